//! A capture says which frames the engine dropped, and why.

mod common;

use common::{Side, connect, device};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use xroce::port::fault::{Action, Fault, Rule};
use xroce::port::pcap::Pcap;
use xroce::{Progress, QpType, SendOp};
use xroce_port::sim::{PipeConfig, loop_pair};

/// Bytes that are still there when the capture is gone.
#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Bytes {
    fn count(&self, text: &str) -> usize {
        self.0.lock().unwrap().windows(text.len()).filter(|window| *window == text.as_bytes()).count()
    }
}

/// Sends `count` SENDs from a port that does `rule` to its frames; what the other end's capture has.
fn captured(rule: Rule, count: u64) -> Bytes {
    let (a, b) = loop_pair(&PipeConfig::default()).unwrap();
    let bytes = Bytes::default();
    let faulty = Fault::new(a, 1);
    faulty.faults().add(rule).unwrap();
    let b = Pcap::to_sink(b, bytes.clone(), "b").unwrap();
    let (ca, cb) = (device(faulty, 0, Progress::Event, |_| {}), device(b, 1, Progress::Event, |_| {}));
    let (a, b) = (Side::new(&ca, QpType::Rc, 4096), Side::new(&cb, QpType::Rc, 4096));
    connect(&a, &b);
    for id in 0..count {
        b.recv(id, &[b.sge(0, 64)]);
    }
    for id in 0..count {
        a.send(id, SendOp::Send, &[a.sge(0, 64)]);
        a.success(&b, id);
    }
    drop((a, b, ca, cb));
    bytes
}

#[test]
fn what_was_dropped_has_its_reason_for_a_comment() {
    assert_eq!(captured(Rule::tx(Action::Drop).nth(100), 3).count("dropped: "), 0, "nothing was");
    // A bit of the payload, behind Ethernet, IP, UDP and BTH.
    let corrupted = captured(Rule::tx(Action::FlipBit((14 + 20 + 8 + 12 + 3) * 8)).nth(2), 3);
    assert_eq!((corrupted.count("dropped: bad_icrc"), corrupted.count("dropped: ")), (1, 1));
    // Bytes of the Ethernet header: another station, another protocol.
    assert_eq!(captured(Rule::tx(Action::FlipBit(5 * 8)).nth(2), 3).count("dropped: other_station"), 1);
    assert_eq!(captured(Rule::tx(Action::FlipBit(12 * 8)).nth(2), 3).count("dropped: not_ip"), 1);
}
