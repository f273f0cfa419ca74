//! A polled device whose steps take long, as with large bursts or on a slow machine: its helper thread leaves the application alone.
//!
//! One test in this program: it measures the whole process, and looks at all threads.

mod common;

use common::before::Before;
use common::{Side, connect, device};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use xroce::{Progress, QpType, SendOp};
use xroce_port::sim::{PipeConfig, loop_pair};

const TIME: Duration = Duration::from_millis(500);
/// A helper that comes just between two steps is on duty for a while: then it is looked at again.
const TRIES: usize = 10;
const APPLICATION: usize = 0;
const OF_HELPER: usize = 1;
const HELPER: &str = "xroce-0";

/// How often a helper thread went to sleep, and how much CPU time it took, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Helper {
    sleeps: u64,
    cpu_us: u64,
}

impl Helper {
    /// Of the device whose steps are slow: it is the one that has a helper.
    fn look() -> Helper {
        let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        let helpers = tasks.filter(|t| fs::read_to_string(t.join("comm")).is_ok_and(|name| name.trim() == HELPER));
        let [task] = &helpers.collect::<Vec<_>>()[..] else { panic!("one helper") };
        let [status, stat] = ["status", "schedstat"].map(|file| fs::read_to_string(task.join(file)).unwrap());
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        let cpu_ns: u64 = stat.split(' ').next().unwrap().parse().unwrap();
        Helper { sleeps: sleeps.trim().parse().unwrap(), cpu_us: cpu_ns / 1000 }
    }

    /// Since this look.
    fn since(self) -> Helper {
        let now = Helper::look();
        Helper { sleeps: now.sleeps - self.sleeps, cpu_us: now.cpu_us - self.cpu_us }
    }
}

#[test]
fn the_helper_leaves_the_application_alone_while_that_is_in_a_step() {
    let step_ms = Arc::new(AtomicU64::new(0));
    // Of the application, and of the helper.
    let steps = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let (a, b) = loop_pair(&PipeConfig::default()).unwrap();
    let (its, counted) = (Arc::clone(&step_ms), Arc::clone(&steps));
    let slow = Before(a, move || {
        counted[usize::from(thread::current().name() == Some(HELPER))].fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(its.load(Ordering::Relaxed)));
    });
    let a = device(slow, 0, Progress::Inline { helper: true }, |_| {});
    let b = device(b, 1, Progress::Inline { helper: false }, |_| {});
    let (a, b) = (Side::new(&a, QpType::Uc, 8), Side::new(&b, QpType::Uc, 8));
    connect(&a, &b);
    let steps = |of: usize| steps[of].load(Ordering::Relaxed);
    let mut id = 0;
    let mut send_and_poll = || {
        let start = Instant::now();
        while start.elapsed() < TIME {
            // It rings, which gets a helper up that is on duty.
            a.send(id, SendOp::Send, &[a.sge(0, 8)]);
            while a.cq.poll_one().unwrap().is_none() {}
            // Takes it off the wire, which holds so many.
            assert_eq!(b.cq.poll_one(), Ok(None));
            id += 1;
        }
    };
    // Longer than the shortest patrol: the helper takes its time between its looks, which would be thousands else. Longer than the
    // longest, which takes 4 ms: it looks some times in each step, and does not wait for the end of one.
    for ms in [2, 40] {
        step_ms.store(ms, Ordering::Relaxed);
        let mut seen = Vec::new();
        let alone = (0..TRIES).any(|_| {
            // With nothing to do it goes off duty.
            let some = steps(APPLICATION) + 3;
            while steps(APPLICATION) < some {
                assert_eq!(a.cq.poll_one(), Ok(None));
            }
            let (helper, before) = (Helper::look(), steps(OF_HELPER));
            send_and_poll();
            let (helper, steps) = (helper.since(), steps(OF_HELPER) - before);
            seen.push((helper, steps));
            (30..250).contains(&helper.sleeps) && helper.cpu_us < TIME.as_micros() as u64 / 50 && steps < 6
        });
        assert!(alone, "steps of {ms} ms, the helper and its steps in each {TIME:?}: {seen:?}");
    }
}
