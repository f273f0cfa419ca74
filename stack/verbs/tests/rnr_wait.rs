//! How long a requester waits after an RNR NAK, where a step has taken its time before it looked at what came.

mod common;

use common::{Side, device, options};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use xroce::{ConnectOptions, Port, Progress, QpType, SendOp};
use xroce_port::Layer;
use xroce_port::sim::{PipeConfig, loop_pair};

/// When something came in and when something left.
#[derive(Default)]
struct Times {
    received: Vec<Instant>,
    sent: Vec<Instant>,
}

/// A port that, when told so, finds what came only after a while, and that notes when.
struct Tardy<P> {
    port: P,
    tardy: Arc<AtomicBool>,
    times: Arc<Mutex<Times>>,
}

impl<P: Port> Layer for Tardy<P> {
    type Below = P;

    fn below(&self) -> &P {
        &self.port
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.port
    }

    fn rx_burst(&mut self, max: usize) -> usize {
        if self.tardy.swap(false, Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(30));
        }
        let before = Instant::now();
        let count = self.port.rx_burst(max);
        if count > 0 {
            self.times.lock().unwrap().received.push(before);
        }
        count
    }

    fn tx_commit(&mut self, len: usize) {
        self.times.lock().unwrap().sent.push(Instant::now());
        self.port.tx_commit(len);
    }
}

#[test]
// rule: rc.req.rnr
fn nothing_is_sent_again_before_the_rnr_timer_says() {
    /// Code 24 of the table of RNR timers.
    const WAIT: Duration = Duration::from_micros(40_960);
    const INLINE: Progress = Progress::Inline { helper: false };
    let (a, b) = loop_pair(&PipeConfig::default()).unwrap();
    let (tardy, times) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Times::default())));
    let a = Tardy { port: a, tardy: Arc::clone(&tardy), times: Arc::clone(&times) };
    let (a, b) = (device(a, 0, INLINE, |_| {}), device(b, 1, INLINE, |_| {}));
    let (a, b) = (Side::new(&a, QpType::Rc, 8), Side::new(&b, QpType::Rc, 8));
    let options = ConnectOptions { min_rnr_timer: 24, ..options(7) };
    let ends = [&a, &b].map(|side| side.qp.endpoint(&options).unwrap());
    a.qp.connect(&ends[1], &options).unwrap();
    b.qp.connect(&ends[0], &options).unwrap();
    a.send(1, SendOp::Send, &[a.sge(0, 8)]);
    assert_eq!(a.cq.poll_one(), Ok(None));
    // Nobody has posted a RECV there.
    for _ in 0..3 {
        assert_eq!(b.cq.poll_one(), Ok(None));
    }
    b.recv(2, &[b.sge(0, 8)]);
    tardy.store(true, Ordering::Relaxed);
    a.success(&b, 1);
    let times = times.lock().unwrap();
    let waited = times.sent[1] - times.received[0];
    assert_eq!(times.sent.len(), 2);
    assert!(waited >= WAIT, "sent again {waited:?} after the RNR NAK came");
}
