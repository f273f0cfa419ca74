//! A polled device whose steps take long, as with large bursts or on a slow machine: its helper thread leaves the application alone.
//!
//! One test in this program: it measures the whole process.

mod common;

use common::before::Before;
use common::{Side, connect, cpu_us, device};
use std::thread;
use std::time::{Duration, Instant};
use xroce::{Progress, QpType, SendOp};
use xroce_port::sim::{PipeConfig, loop_pair};

#[test]
fn the_helper_does_not_spin_while_the_application_is_in_a_step() {
    const TIME: Duration = Duration::from_millis(500);
    let (a, b) = loop_pair(&PipeConfig::default()).unwrap();
    let a = device(Before(a, || thread::sleep(Duration::from_millis(2))), 0, Progress::Inline { helper: true }, |_| {});
    let b = device(b, 1, Progress::Inline { helper: false }, |_| {});
    let (a, b) = (Side::new(&a, QpType::Uc, 8), Side::new(&b, QpType::Uc, 8));
    connect(&a, &b);
    let (start, before) = (Instant::now(), cpu_us());
    let mut id = 0;
    while start.elapsed() < TIME {
        // It rings, which gets the helper up.
        a.send(id, SendOp::Send, &[a.sge(0, 8)]);
        while a.cq.poll_one().unwrap().is_none() {}
        id += 1;
    }
    let used = cpu_us() - before;
    assert!(used < TIME.as_micros() as i64 / 10, "{used} µs of CPU time in {:?}", start.elapsed());
}
