//! Wrong arguments and missing things: exit codes and what is said.

mod ends;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use ends::xroce;

#[test]
fn usage_errors_exit_with_2() {
    for line in [
        "",
        "nosuch",
        "rc_pingpong --nosuch",
        "rc_pingpong -m 1500",
        "rc_pingpong -p 65536",
        "rc_pingpong -i 2",
        "rc_pingpong -l 8",
        "rc_pingpong -n 0",
        "rc_pingpong a b",
        "rc_pingpong --sim -d lo",
        "perf",
        "perf send",
        "perf send_bw -n 1 -D 1",
        "perf read_bw --uc",
        "perf atomic_bw -s 16",
        "perf send_lat -q 2",
        "perf send_bw -q 0",
        "rc_pingpong --drop 100",
        "rc_pingpong --sim --drop 1",
        "perf send_bw --corrupt x",
        "perf send_bw --reorder -1",
        "devinfo extra",
    ] {
        let args: Vec<&str> = line.split_whitespace().collect();
        let said = xroce(&args);
        assert_eq!(said.code, Some(2), "{line}: {said:?}");
        assert!(!said.err.is_empty() && said.out.is_empty(), "{line}: {said:?}");
    }
}

#[test]
fn options_of_the_originals_without_a_meaning_are_named() {
    for program in ["rc_pingpong", "uc_pingpong"] {
        for option in ["-o", "-O", "-P", "-t", "-j", "-N"] {
            let said = xroce(&[program, option, "192.0.2.1"]);
            assert_eq!(said.code, Some(2), "{program} {option}: {said:?}");
            assert!(said.err.contains(option) && said.err.contains("no meaning"), "{program} {option}: {said:?}");
        }
    }
}

#[test]
fn faults_of_the_xdp_program_want_one() {
    let said = xroce(&["rc_pingpong", "-d", "udp:127.0.0.1", "--drop", "1"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("udp:127.0.0.1") && said.err.contains("--drop"), "{said:?}");
}

/// Ended by the signal itself, which a shell tells as 130: nothing catches it, and nothing is left that would go on.
#[test]
fn ctrl_c_ends_what_waits() {
    for line in ["rc_pingpong", "uc_pingpong", "perf send_bw", "agent"] {
        // Whoever starts the tests in the background may have SIGINT ignored in all that they start.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_xroce")])
            .args(line.split(' '))
            .args(["-p", "0", "-d"])
            .arg(format!("udp:{}", loopback()));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("xroce starts");
        // The first line says that it waits.
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut said).expect("readable");
        assert!(!said.is_empty(), "{line}: {:?}", child.wait_with_output());
        let sent = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status().expect("kill(1) runs");
        let output = child.wait_with_output().expect("it ends");
        assert!(sent.success() && output.status.signal() == Some(2), "{line}: {output:?}");
        assert!(output.stderr.is_empty(), "{line}: {output:?}");
    }
}

/// A loopback address that no other process of these tests has.
fn loopback() -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    format!("127.99.{high}.{low}")
}

#[test]
fn help_exits_with_0_and_shows_the_defaults() {
    let said = xroce(&["rc_pingpong", "--help"]);
    assert_eq!(said.code, Some(0));
    for default in ["18515", "4096", "1024", "500", "1000"] {
        assert!(said.out.contains(&format!("[default: {default}]")), "{default}: {}", said.out);
    }
}

#[test]
fn a_netdev_that_is_not_there_is_named_with_those_that_are() {
    for args in [["devinfo", "-d", "nosuchdev0"].as_slice(), &["rc_pingpong", "-d", "nosuchdev0"]] {
        let said = xroce(args);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains("nosuchdev0") && said.err.contains("lo"), "{said:?}");
    }
}

#[test]
fn a_capture_that_cannot_be_written_is_named() {
    let said = xroce(&["rc_pingpong", "--sim", "-n", "1", "--pcap", "/nonexistent/x.pcapng"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("/nonexistent/x.pcapng"), "{said:?}");
}

#[test]
fn a_gid_that_is_not_there_is_named_with_those_that_are() {
    let said = xroce(&["rc_pingpong", "--sim", "-g", "7"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("no GID at index 7") && said.err.contains("[0, 1]"), "{said:?}");
}
