//! `xroce script`: on the stack of the command itself, and against an `xroce agent` at the other end of a veth.

mod ends;

use std::path::PathBuf;

use ends::{Ends, NETDEV, SERVER, xroce};
use serde_json::Value;

/// The packet scripts of the workspace.
fn suite() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/scripts")
}

fn path(name: &str) -> String {
    suite().join(name).display().to_string()
}

/// A file with this text, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("xroce-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("the temporary folder is writable");
        Scratch(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const WRONG: &str = "# Not so.\nsource: none\ncovers: x\nwhere: any\n\nqp rc sq_psn=100\npost_send id=1 SEND len=4\n> SEND_ONLY psn=101\n";

#[test]
fn scripts_run_on_the_own_stack() {
    let said = xroce(&["script", &path("uc")]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("passed      uc/no_recv.roce\n"), "{said:?}");
    assert!(said.out.lines().last().unwrap().contains(" passed, 0 failed"), "{said:?}");
}

#[test]
fn what_is_wrong_is_told_by_line_expected_and_seen() {
    let script = Scratch::new("wrong.roce", WRONG);
    let said = xroce(&["script", script.path()]);
    assert_eq!(said.code, Some(1), "{said:?}");
    for part in [
        "wrong.roce:8: the packet has another psn",
        "-              0    8  > SEND_ONLY psn=101",
        "expected 101, seen 100",
    ] {
        assert!(said.out.contains(part), "{part}: {said:?}");
    }
    let json = xroce(&["script", "--json", script.path()]);
    let json: Value = serde_json::from_str(&json.out).expect("JSON");
    let one = &json["scripts"][0];
    assert_eq!((&one["outcome"], &one["line"]), (&"failed".into(), &8.into()), "{json}");
    assert_eq!(one["differences"][0]["expected"], "101");
    assert_eq!(json["summary"]["failed"], 1);
}

#[test]
fn a_known_deviation_is_none_and_one_that_is_gone_is_told() {
    let script = Scratch::new("known.roce", WRONG);
    let name = format!(
        "{}/{}",
        std::env::temp_dir().file_name().unwrap().to_str().unwrap(),
        script.0.file_name().unwrap().to_str().unwrap()
    );
    let known = |line: &str| Scratch::new(&format!("known{}.txt", line.len()), line);
    let right = known(&format!("{name}:8 it counts from elsewhere\n"));
    let said = xroce(&["script", script.path(), "--known", right.path()]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("it counts from elsewhere") && said.out.contains("1 deviate as known"), "{said:?}");
    let elsewhere = known(&format!("{name}:77 it counts from elsewhere\n"));
    let said = xroce(&["script", script.path(), "--known", elsewhere.path()]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let passes = known("uc/no_recv.roce   answers\n");
    let said = xroce(&["script", &path("uc/no_recv.roce"), "--known", passes.path()]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("OUT OF DATE uc/no_recv.roce: it passed"), "{said:?}");
}

#[test]
fn a_script_that_cannot_be_read_is_told_by_line_and_column() {
    let script = Scratch::new("bad.roce", "# A rule.\nqp rc\n+5us    > SNED_ONLY psn=1\n");
    let said = xroce(&["script", &path("uc/no_recv.roce"), script.path()]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("bad.roce:3:11: expected a packet (did you mean SEND_ONLY?)"), "{said:?}");
    assert!(said.out.is_empty(), "nothing is played before all are read: {said:?}");
    for args in [&["script"][..], &["script", "/nonexistent.roce"], &["script", "-d", "lo", script.path()]] {
        let said = xroce(args);
        assert_eq!(said.code, Some(2), "{args:?}: {said:?}");
    }
}

#[test]
fn an_agent_that_is_not_there_is_named() {
    let Some(ends) = Ends::new("an_agent_that_is_not_there_is_named", 1500) else { return };
    let said = ends.client(&["script", &path("uc/no_recv.roce"), "-d", NETDEV, "--peer", "192.0.2.2:18599"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("192.0.2.2:18599") && said.err.contains("xroce agent"), "{said:?}");
}

/// One or more of each kind: requests, responses, both directions, loss, RNR, errors, memory, events, states, bent packets.
const SMOKE: &[&str] = &[
    "rc/fence_waits_for_reads_and_atomics.roce",
    "rc/nak_access.roce",
    "rc/resp_after_a_fatal_nak.roce",
    "rc/resp_gap_is_naked_once.roce",
    "rc/resp_rnr_send.roce",
    "rc/rx_icrc.roce",
    "rc/rx_ipv6.roce",
    "rc/timer_restarts_on_progress.roce",
    "rc/resp_invalidate.roce",
    "rc/qp_err_flushes.roce",
    "uc/bad_key.roce",
    "uc/no_recv.roce",
];

#[test]
fn scripts_run_against_a_live_peer() {
    let Some(ends) = Ends::new("scripts_run_against_a_live_peer", 4200) else { return };
    let agent = ends.server(&["agent", "-d", NETDEV]);
    let files: Vec<String> = SMOKE.iter().map(|name| path(name)).collect();
    let mut args = vec!["script", "-d", NETDEV, "--peer", SERVER, "--all", "--patience", "4", "--json"];
    args.extend(files.iter().map(String::as_str));
    let said = ends.client(&args);
    agent.kill();
    let json: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!((said.code, &json["summary"]["passed"]), (Some(0), &SMOKE.len().into()), "{}", said.out);
}

#[test]
fn a_wrong_script_fails_against_a_live_peer_too() {
    let Some(ends) = Ends::new("a_wrong_script_fails_against_a_live_peer_too", 1500) else { return };
    let agent = ends.server(&["agent", "-d", NETDEV]);
    let script = Scratch::new("live.roce", WRONG);
    let said = ends.client(&["script", "-d", NETDEV, "--peer", SERVER, "--patience", "4", script.path()]);
    agent.kill();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("live.roce:8: the packet has another psn"), "{said:?}");
}
