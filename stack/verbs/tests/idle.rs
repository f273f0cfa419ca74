//! An idle connection costs next to no CPU time where the device may sleep.
//!
//! One test in this program: it measures the whole process.

mod common;

use common::connected;
use std::time::Duration;
use xroce::{Progress, QpType, SendOp};

/// CPU time of this process so far, in microseconds.
fn cpu_us() -> i64 {
    // SAFETY: an all-zero rusage is valid, and getrusage writes only to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    let us = |t: libc::timeval| t.tv_sec * 1_000_000 + t.tv_usec;
    us(usage.ru_utime) + us(usage.ru_stime)
}

#[test]
fn h46_an_idle_connection_sleeps() {
    const IDLE: Duration = Duration::from_secs(2);
    for mode in [Progress::Event, Progress::Adaptive { cpu: None, spin_ns: 50_000 }, Progress::Inline { helper: true }]
    {
        let (a, b) = connected(mode, QpType::Rc, 64);
        b.recv(1, &[b.sge(0, 8)]);
        a.send(2, SendOp::Send, &[a.sge(0, 8)]);
        a.success(&b, 2);
        b.success(&a, 1);
        let before = cpu_us();
        std::thread::sleep(IDLE);
        let used = cpu_us() - before;
        let limit = IDLE.as_micros() as i64 / 50;
        assert!(used < limit, "{mode:?}: {used} µs of CPU time in {IDLE:?}; 2 % are {limit}");
    }
}
