//! What a bandwidth run asks of the kernel, by `strace -c -f` at both ends: after set-up nothing but the kick of AF_XDP, and where
//! the user chose a thread that sleeps, what sleeping and waking take.
//!
//! A call of the data path is one whose count grows with the number of messages: each run is made twice.

mod ends;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use ends::{Ends, NETDEV, SERVER, Scratch, skip};

const MTU: u32 = 1500;
const FEW: u64 = 1000;
const MANY: u64 = 11_000;
/// Packets of a message of [`SIZE`] bytes at path MTU 1024.
const PACKETS: u64 = 4;
const SIZE: &str = "4096";
/// Calls that time brings along, not messages: a run under strace is long.
const HOUSEKEEPING: u64 = 50;
/// How often a run is made whose counts are not as they should be: lost time costs retransmissions, and those a look at the path.
const GAMES: usize = 3;

/// The kick.
const KICK: &str = "sendto";
/// A thread that polls offers its CPU when it has found nothing for 300 µs: an application's own affair.
const OFFER: &str = "sched_yield";
/// Sleeping until a frame or an application's work comes, and waking who sleeps.
const SLEEP: [&str; 4] = ["ppoll", "read", "write", "futex"];

type Counts = BTreeMap<String, u64>;

#[test]
fn a_bandwidth_run_makes_no_system_call_but_the_kick() {
    let test = "a_bandwidth_run_makes_no_system_call_but_the_kick";
    if let Err(error) = Command::new("strace").arg("-V").output() {
        return skip(test, &format!("cannot run strace: {error}")).unwrap_or_default();
    }
    let Some(ends) = Ends::new(test, MTU) else { return };
    for (progress, sleeps) in [("inline", false), ("spin", false), ("adaptive", true), ("event", true)] {
        for what in ["send_bw", "write_bw", "read_bw"] {
            let mut wrong = excess(&ends, what, progress, sleeps);
            for _ in 1..GAMES {
                // A call of the data path comes in every game; what a machine brings along that stands still for a while, does not.
                let Err(_) = wrong else { break };
                wrong = excess(&ends, what, progress, sleeps);
            }
            assert_eq!(wrong, Ok(()), "{what}, {progress}");
        }
    }
}

/// What one of the ends does beyond what it may, with `MANY` messages beside `FEW`.
fn excess(ends: &Ends, what: &str, progress: &str, sleeps: bool) -> Result<(), String> {
    let (few, many) = (run(ends, what, progress, FEW), run(ends, what, progress, MANY));
    for (end, (few, many)) in ["client", "server"].iter().zip(few.iter().zip(&many)) {
        let grown = grown(few, many);
        let allowed = |call: &str| call == KICK || call == OFFER || sleeps && SLEEP.contains(&call);
        let others: Vec<_> = grown.iter().filter(|(call, _)| !allowed(call)).collect();
        if !others.is_empty() {
            return Err(format!("{end}: {others:?} of {grown:?}"));
        }
        let kicks = grown.get(KICK).copied().unwrap_or(0);
        let packets = (MANY - FEW) * PACKETS;
        if kicks >= packets / 4 {
            return Err(format!("{end}: {kicks} kicks for {packets} packets"));
        }
    }
    Ok(())
}

/// The client's and the server's counts of a run of that many messages.
fn run(ends: &Ends, what: &str, progress: &str, messages: u64) -> [Counts; 2] {
    let files = ["client", "server"].map(|end| Scratch::new(&format!("calls-{end}")));
    let [client, server] = files.each_ref().map(|file| ["strace", "-c", "-f", "-o", file.path()]);
    let messages = messages.to_string();
    let args = ["perf", what, "-d", NETDEV, "-s", SIZE, "--progress", progress];
    let other = ends.server_under(&server, &args);
    let args: Vec<&str> = args.into_iter().chain(["-n", &messages, SERVER]).collect();
    let (said, other) = (ends.client_under(&client, &args), other.wait());
    assert_eq!((said.code, other.code), (Some(0), Some(0)), "{args:?}: {said:?} {other:?}");
    files.map(|file| counts(&fs::read_to_string(file.path()).expect("strace has written its table")))
}

/// By call, from strace's table: time, seconds, microseconds a call, calls, perhaps errors, name.
fn counts(table: &str) -> Counts {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, calls) = (words.last()?, words.get(3)?.parse().ok()?);
        (words.len() >= 5 && *name != "total").then(|| ((*name).to_owned(), calls))
    };
    table.lines().filter_map(row).collect()
}

fn grown(few: &Counts, many: &Counts) -> Counts {
    let more = |(call, &count): (&String, &u64)| {
        let more = count.saturating_sub(few.get(call).copied().unwrap_or(0));
        (more > HOUSEKEEPING).then(|| (call.clone(), more))
    };
    many.iter().filter_map(more).collect()
}
