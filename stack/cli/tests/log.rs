//! `--log` and `RUST_LOG`: what happens to a queue pair, in a span that names it.

mod ends;

use std::process::Command;

fn stderr_of(args: &str, variable: Option<&str>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xroce"));
    command.args(args.split_whitespace()).env_remove("RUST_LOG").envs(variable.map(|filter| ("RUST_LOG", filter)));
    let output = command.output().expect("xroce starts");
    assert!(output.status.success(), "{args}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const GAME: &str = "rc_pingpong --sim -n 30 -s 20000 --reorder 30";

#[test]
fn events_of_a_queue_pair_name_it_and_its_peer() {
    let said = stderr_of(&format!("--log xroce::qp=debug {GAME}"), None);
    let lines = |text: &str| said.lines().filter(|line| line.contains(text)).collect::<Vec<_>>();
    // Both ends are in this process, and each says how it came to RTS.
    assert_eq!(lines("state from=RTR to=RTS").len(), 2, "{said}");
    for line in lines("state from=RTR to=RTS") {
        let span = line.split_once("qp{qpn=0x").expect("a span").1.split_once('}').expect("its end").0;
        assert!(span.contains(" dest_qpn=0x") && span.contains(" peer=192.0.2."), "{line}");
    }
    // The client's frames overtake each other: a gap, its NAK at both ends, and what is done about it.
    for text in ["packet dropped reason=\"psn_ahead\"", "NAK sent", "NAK received", "rewind psn=0x"] {
        assert!(!lines(text).is_empty(), "{text:?} in {said}");
    }
}

#[test]
fn without_a_filter_nothing_is_told() {
    let said = stderr_of(GAME, None);
    assert_eq!(said.lines().filter(|line| !line.starts_with("xroce: faults: ")).count(), 0, "{said}");
    assert!(stderr_of(GAME, Some("xroce::qp=debug")).contains("state from=INIT to=RTR"));
    // Empty is not set, at either place.
    for (args, variable) in [("", ""), ("", " "), ("--log=", ""), ("--log=", "debug")] {
        let said = stderr_of(&format!("{GAME} {args}"), Some(variable));
        assert_eq!(said.lines().filter(|line| !line.starts_with("xroce: faults: ")).count(), 0, "{variable:?}: {said}");
    }
    // What is asked for in the command line holds.
    let quiet = stderr_of(&format!("{GAME} --log off"), Some("debug"));
    assert!(!quiet.contains("state from="), "{quiet}");
}

#[test]
fn a_filter_that_is_none_is_a_usage_error() {
    let said = ends::xroce(&["--log", "xroce::qp=loud", "devinfo"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("xroce::qp=loud"), "{said:?}");
}
