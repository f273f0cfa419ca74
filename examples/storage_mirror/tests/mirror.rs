//! The storage case end to end, on a network in memory: what is lost is found, what is claimed was compared.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest that a run may go on behind a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// The rows of the table that the program prints.
fn mirror(args: &[&str]) -> Vec<Row> {
    said(args).lines().filter_map(Row::parse).collect()
}

/// What a run prints that must succeed.
fn said(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_storage-mirror"))
        .args(["--sim", "--nodes", "2", "--blocks", "6", "--rounds", "2"])
        .args(args)
        .output()
        .expect("storage-mirror starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("all equal"), "{said}");
    said
}

#[derive(Debug)]
struct Row {
    data: String,
    blocks_again: f64,
    packets_again: u64,
    rnr_naks: u64,
    credit_waits: u64,
    blocks: u64,
    records: u64,
}

impl Row {
    fn parse(line: &str) -> Option<Row> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [data @ ("UC" | "RC"), _, _, _, again, packets, rnr, waits, blocks, _, records, _] = fields[..] else {
            return None;
        };
        Some(Row {
            data: data.to_owned(),
            blocks_again: again.trim_end_matches('%').parse().ok()?,
            packets_again: packets.parse().ok()?,
            rnr_naks: rnr.parse().ok()?,
            credit_waits: waits.parse().ok()?,
            blocks: blocks.parse().ok()?,
            records: records.parse().ok()?,
        })
    }
}

#[test]
fn everything_is_mirrored_and_compared() {
    let rows = mirror(&[]);
    assert_eq!(rows.iter().map(|r| r.data.as_str()).collect::<Vec<_>>(), ["UC", "RC"]);
    for row in rows {
        // Two nodes with a volume of 6 blocks each, every block written twice.
        assert_eq!((row.blocks, row.records), (12, 24), "{row:?}");
    }
}

#[test]
fn blocks_of_any_size_are_mirrored() {
    // One packet; some and a bit; more than the receive ring holds of them.
    for size in ["1k", "12296", "1024k"] {
        for row in mirror(&["--block-size", size, "--loss", "1"]) {
            assert_eq!((row.blocks, row.records), (12, 24), "{size}: {row:?}");
        }
    }
}

#[test]
fn a_size_that_cannot_be_is_said() {
    for (args, said) in [
        (["--block-size", "1028", "--blocks", "1"], "a multiple of 8"),
        (["--block-size", "1024k", "--blocks", "1025"], "at most 1024 of that size"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_storage-mirror")).args(args).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(said), "{args:?}: {error}");
    }
}

#[test]
fn what_uc_loses_the_application_repeats_and_what_rc_loses_the_card() {
    for row in mirror(&["--loss", "3"]) {
        assert_eq!((row.blocks, row.records), (12, 24), "{row:?}");
        match row.data.as_str() {
            "UC" => assert!(row.blocks_again > 0.0, "{row:?}"),
            _ => assert!(row.blocks_again == 0.0 && row.packets_again > 0, "{row:?}"),
        }
    }
}

#[test]
fn a_slow_mirror_is_met_by_credits_or_by_rnr_naks() {
    let slow = ["--data", "uc", "--slow-mirror", "2000", "--channel-depth", "2"];
    for row in mirror(&slow) {
        assert!(row.credit_waits > 0 && row.rnr_naks == 0, "{row:?}");
    }
    for row in mirror(&[&slow[..], &["--no-credits"]].concat()) {
        assert!(row.credit_waits == 0 && row.rnr_naks > 0, "{row:?}");
    }
}

#[test]
fn a_connection_that_is_lost_is_made_again() {
    let said = said(&["--break", "1:lose"]);
    assert_eq!(said.matches("connections lost and made again: 1").count(), 2, "{said}");
    for row in said.lines().filter_map(Row::parse) {
        assert_eq!((row.blocks, row.records), (12, 24), "{row:?}");
    }
}

#[test]
fn at_a_third_lost_all_is_mirrored() {
    for row in mirror(&["--loss", "33"]) {
        assert_eq!((row.blocks, row.records), (12, 24), "{row:?}");
        // Pieces that arrived stay: a dozen turns, not hundreds.
        assert!(row.blocks_again < 3000.0, "{row:?}");
    }
}

/// A run that must fail ends by itself; its exit code and what it says.
fn fails(args: &[&str]) -> String {
    let child = Command::new(env!("CARGO_BIN_EXE_storage-mirror"))
        .args(["--sim", "--nodes", "3", "--blocks", "2", "--rounds", "2"])
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("storage-mirror starts");
    ends(child)
}

#[test]
fn a_copy_that_is_not_equal_ends_the_run() {
    for data in ["uc", "rc"] {
        let said = fails(&["--data", data, "--break", "1:rot"]);
        assert!(said.contains("failed: the copy at node 1 is not equal: 1 of 2 blocks are"), "{said}");
    }
}

#[test]
fn a_log_that_is_not_equal_ends_the_run() {
    let said = fails(&["--break", "2:forget"]);
    assert!(said.contains("failed: the log at node 2 is not equal: 0 records"), "{said}");
}

#[test]
fn a_request_that_fails_ends_the_run() {
    let said = fails(&["--data", "rc", "--break", "2:key"]);
    assert!(said.contains("node 2 failed: WRITE of block 0 to node "), "{said}");
    assert!(said.contains("remote access error"), "{said}");
}

#[test]
fn blocks_that_never_arrive_end_the_run() {
    let said = fails(&["--data", "uc", "--break", "2:key"]);
    assert!(said.contains("node 2 failed: 2 blocks do not reach node "), "{said}");
}

#[test]
fn a_node_that_crashes_ends_the_run() {
    let said = fails(&["--break", "0:crash"]);
    assert!(said.contains("node 0 failed: its thread panicked"), "{said}");
}

#[test]
fn a_node_that_hangs_ends_the_run() {
    let said = fails(&["--break", "0:hang", "--patience", "1"]);
    // It hangs at its first completion, which may come before all others are connected to it.
    let working = said.contains("nothing came for 1s: owner ") && said.contains(" to 0: round ");
    assert!(working || said.contains("node 0 was asked to connect, and nothing came for 1s"), "{said}");
}

#[test]
fn a_node_that_is_killed_ends_the_run() {
    for wait in [Duration::ZERO, Duration::from_millis(1500)] {
        let Some(said) = disturbed("a_node_that_is_killed_ends_the_run", "KILL", wait) else { return };
        let due = "node 1 failed: its process ended by signal: 9 (SIGKILL), without a report";
        assert!(said.contains(due), "after {wait:?}: {said}");
    }
}

#[test]
fn a_node_that_stops_answering_ends_the_run() {
    let wait = Duration::from_millis(1500);
    let Some(said) = disturbed("a_node_that_stops_answering_ends_the_run", "STOP", wait) else { return };
    assert!(said.contains(" to node 1: transport retry counter exceeded"), "{said}");
}

#[test]
fn a_run_that_gets_a_signal_leaves_no_namespaces() {
    for signal in ["INT", "TERM", "KILL"] {
        let Some(mut run) = in_namespaces("a_run_that_gets_a_signal_leaves_no_namespaces") else { return };
        let prefix = format!("xroce-mirror-{}-", run.id());
        let left = || {
            let list = Command::new("ip").args(["netns", "list"]).output().expect("ip runs").stdout;
            String::from_utf8_lossy(&list).lines().filter(|line| line.starts_with(&prefix)).count()
        };
        assert_eq!(left(), 4, "three nodes and the bridge");
        kill(signal, run.id());
        assert!(!end_of(&mut run).success());
        let start = Instant::now();
        while left() > 0 {
            assert!(start.elapsed() < PATIENCE, "SIG{signal}: {} namespaces are left", left());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn kill(signal: &str, process: u32) {
    let sent = Command::new("kill").args(["-s", signal, &process.to_string()]).status().expect("kill(1) runs");
    assert!(sent.success(), "process {process} runs");
}

/// A run in namespaces that would take minutes, once they are there. None if they cannot be had here.
fn in_namespaces(test: &str) -> Option<Child> {
    // Whoever starts the tests in the background may have SIGINT ignored in all that they start.
    let mut run = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_storage-mirror")])
        .args(["--nodes", "3", "--blocks", "64", "--rounds", "100000", "--data", "rc"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("storage-mirror starts");
    // The table's head is written when the namespaces are there, just before the nodes are started.
    let head = BufReader::new(run.stdout.as_mut().expect("a pipe")).lines().nth(1);
    if head.is_some() && run.try_wait().expect("it can be waited for").is_none() {
        return Some(run);
    }
    println!("SKIP {test}: {}", ends(run).trim());
    None
}

/// What a run in namespaces says when its node 1 gets a signal, so long after its start. None if it cannot be had here.
fn disturbed(test: &str, signal: &str, after: Duration) -> Option<String> {
    let mut run = in_namespaces(test)?;
    let node = process_of_node(run.id(), 1);
    let (true, Some(node)) = (after.is_zero() || still_runs(&mut run, after), node) else {
        let said = ends(run);
        println!("SKIP {test}: {}", said.trim());
        return None;
    };
    kill(signal, node);
    Some(ends(run))
}

fn still_runs(run: &mut Child, after: Duration) -> bool {
    std::thread::sleep(after);
    run.try_wait().expect("it can be waited for").is_none()
}

/// Waits for the process of node `index`; None if the run ends before there is one.
fn process_of_node(run: u32, index: u32) -> Option<u32> {
    let wanted = format!("\0node\0--index\0{index}\0");
    let command_line = |process: u32| std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
    // That of a process that has ended is empty.
    while !command_line(run).is_empty() {
        let children = std::fs::read_to_string(format!("/proc/{run}/task/{run}/children")).ok()?;
        let mut children = children.split_whitespace().filter_map(|id| id.parse().ok());
        // Not `ip netns exec`, which becomes the node.
        if let Some(node) = children.find(|&child| {
            let line = command_line(child);
            line.contains(&wanted) && !line.starts_with("ip\0")
        }) {
            return Some(node);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// Waits for the end of a run, far less long than one lasts that nobody ends.
fn end_of(run: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        match run.try_wait().expect("it can be waited for") {
            Some(status) => return status,
            None if start.elapsed() > PATIENCE => {
                run.kill().expect("it runs");
                run.wait().expect("it ends");
                panic!("the run goes on after {PATIENCE:?}");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// What a run says that must fail.
fn ends(mut run: Child) -> String {
    let status = end_of(&mut run);
    let mut said = String::new();
    run.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(status.code(), Some(1), "{said}");
    said
}
