//! A polled device whose steps take long, as with large bursts or on a slow machine: its helper thread leaves the application alone.
//!
//! One test in this program: it measures the whole process.

mod common;

use common::{Side, connect, device};
use std::thread;
use std::time::{Duration, Instant};
use xroce::{Port, Progress, QpType, SendOp};
use xroce_port::sim::{PipeConfig, loop_pair};
use xroce_port::{Capabilities, LinkChange, PortCounters, RxFrame, TxClass, TxFrame};

/// Each burst takes so long, and no CPU time.
struct Slow<P>(P, Duration);

impl<P: Port> Port for Slow<P> {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }
    fn rx_burst(&mut self, max: usize) -> usize {
        thread::sleep(self.1);
        self.0.rx_burst(max)
    }
    fn rx_frame(&self, i: usize) -> RxFrame<'_> {
        self.0.rx_frame(i)
    }
    fn rx_release(&mut self) {
        self.0.rx_release();
    }
    fn tx_reserve(&mut self, len: usize, class: TxClass) -> Option<TxFrame<'_>> {
        self.0.tx_reserve(len, class)
    }
    fn tx_commit(&mut self, len: usize) {
        self.0.tx_commit(len);
    }
    fn tx_flush(&mut self) {
        self.0.tx_flush();
    }
    fn tx_idle(&self) -> bool {
        self.0.tx_idle()
    }
    fn wait_fds(&self, out: &mut Vec<std::os::fd::RawFd>) {
        self.0.wait_fds(out);
    }
    fn counters(&self) -> PortCounters {
        self.0.counters()
    }
    fn link(&mut self) -> Option<LinkChange> {
        self.0.link()
    }
}

/// CPU time of this process so far.
fn cpu() -> Duration {
    // SAFETY: an all-zero rusage is valid, and getrusage writes only to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    let time = |t: libc::timeval| Duration::from_micros((t.tv_sec * 1_000_000 + t.tv_usec) as u64);
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[test]
fn the_helper_does_not_spin_while_the_application_is_in_a_step() {
    const TIME: Duration = Duration::from_millis(500);
    let (a, b) = loop_pair(&PipeConfig::default()).unwrap();
    let a = device(Slow(a, Duration::from_millis(2)), 0, Progress::Inline { helper: true }, |_| {});
    let b = device(b, 1, Progress::Inline { helper: false }, |_| {});
    let (a, b) = (Side::new(&a, QpType::Uc, 8), Side::new(&b, QpType::Uc, 8));
    connect(&a, &b);
    let (start, before) = (Instant::now(), cpu());
    let mut id = 0;
    while start.elapsed() < TIME {
        // It rings, which gets the helper up.
        a.send(id, SendOp::Send, &[a.sge(0, 8)]);
        while a.cq.poll_one().unwrap().is_none() {}
        id += 1;
    }
    let used = cpu() - before;
    assert!(used < TIME / 10, "{used:?} of CPU time in {:?}", start.elapsed());
}
