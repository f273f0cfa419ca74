//! An application that polls again takes its device back from the helper thread, also where that finds work in each of its steps.
//!
//! One test in this program: it binds all its threads to one CPU, where the helper would have the token whenever the application runs.

mod common;

use common::before::Before;
use common::{Side, connect, device};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use xroce::{Progress, QpType, SendOp};
use xroce_port::sim::{PipeConfig, loop_pair};

const TIME: Duration = Duration::from_millis(500);

#[test]
fn who_polls_again_gets_to_step() {
    let mut one = rustix::thread::CpuSet::new();
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    one.set((0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap());
    rustix::thread::sched_setaffinity(None, &one).unwrap();

    let steps = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let [by_helper, by_others] = steps.clone();
    let slow = move || {
        let by = if thread::current().name() == Some("xroce-0") { &by_helper } else { &by_others };
        by.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(2));
    };
    let (a, b) = loop_pair(&PipeConfig::default()).unwrap();
    let a = device(Before(a, slow), 0, Progress::Inline { helper: true }, |_| {});
    let b = device(b, 1, Progress::Inline { helper: false }, |_| {});
    let (a, b) = (Side::new(&a, QpType::Uc, 8), Side::new(&b, QpType::Uc, 8));
    connect(&a, &b);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Something has come whenever a step of the other end begins.
        scope.spawn(|| {
            for id in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                b.send(id, SendOp::Send, &[b.sge(0, 8)]);
                while b.cq.poll_one().unwrap().is_none() {}
                thread::sleep(Duration::from_micros(200));
            }
        });
        // Nobody polls: the helper goes on duty.
        thread::sleep(Duration::from_millis(50));
        let before = steps.each_ref().map(|steps| steps.load(Ordering::Relaxed));
        assert!(before[0] > 2, "the helper is on duty");
        let start = Instant::now();
        while start.elapsed() < TIME {
            assert!(a.cq.poll_one().unwrap().is_none(), "nothing was posted there");
        }
        over.store(true, Ordering::Relaxed);
        let [by_helper, by_others] = [0, 1].map(|i: usize| steps[i].load(Ordering::Relaxed) - before[i]);
        assert!(by_others > by_helper, "{by_others} steps of the application, {by_helper} of the helper");
    });
}
