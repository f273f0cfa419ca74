//! An idle connection costs next to no CPU time where the device may sleep.
//!
//! One test in this program: it measures the whole process.

mod common;

use common::netns::{connect, joined, open_both};
use common::{Side, connected, cpu_us};
use std::time::Duration;
use xroce::{PathMtu, Progress, QpType, SendOp};

const MODES: [Progress; 3] =
    [Progress::Event, Progress::Adaptive { cpu: None, spin_ns: 50_000 }, Progress::Inline { helper: true }];

/// How much CPU time the process takes while it does nothing for so long; 2 % of one CPU is the limit.
#[track_caller]
fn idle(what: &str, time: Duration) {
    let before = cpu_us();
    std::thread::sleep(time);
    let used = cpu_us() - before;
    let limit = time.as_micros() as i64 / 50;
    assert!(used < limit, "{what}: {used} µs of CPU time in {time:?}; 2 % are {limit}");
    println!("{what}: {used} µs of CPU time in {time:?}");
}

/// One message, so that the connection has been in use.
fn once(a: &Side, b: &Side) {
    b.recv(1, &[b.sge(0, 8)]);
    a.send(2, SendOp::Send, &[a.sge(0, 8)]);
    a.success(b, 2);
    b.success(a, 1);
}

/// Each mode for a moment over memory, then all modes at once for a minute over AF_XDP, whose sockets can always be written to;
/// and then each connection still carries a message.
#[test]
fn h46_an_idle_connection_sleeps() {
    const TEST: &str = "h46_an_idle_connection_sleeps";
    for mode in MODES {
        let (a, b) = connected(mode, QpType::Rc, 64);
        once(&a, &b);
        idle(&format!("{mode:?}"), Duration::from_secs(2));
    }
    let mut open = Vec::new();
    for mode in MODES {
        let Some(ends) = joined(TEST, 1500) else { return };
        let Some(contexts) = open_both(TEST, &ends, "eth0", mode) else { return };
        let (a, b) = (Side::new(&contexts[0], QpType::Rc, 64), Side::new(&contexts[1], QpType::Rc, 64));
        connect(&a, &b, true, PathMtu::Mtu1024);
        once(&a, &b);
        open.push((a, b, contexts, ends));
    }
    idle("six devices over AF_XDP", Duration::from_secs(60));
    for (a, b, ..) in &open {
        once(a, b);
    }
}
