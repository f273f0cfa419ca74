//! What seeds of the simulation (tests/simulation) found, each as small as it gets. The seed stands in the test's name.

mod common;

use common::{Fate, Pair, Setup};
use xroce_transport::qp::state::{QpAttr, QpState};
use xroce_transport::wc::WcStatus;
use xroce_transport::wr::{SendFlags, SendOp, SendWr, WrId};
use xroce_transport::{EndpointConfig, EventKind, Limits, PathId, TxClass, TxPacket, TxSink};
use xroce_wire::{Lkey, Operation};

fn with_window(window_packets: u32) -> Setup {
    let limits = Limits { window_packets, ..Limits::default() };
    Setup { config: EndpointConfig { limits, ..EndpointConfig::default() }, ..Setup::default() }
}

#[test]
fn seed_9_an_atomic_waits_for_the_window() {
    let mut pair = Pair::new(with_window(1));
    let (va, rkey, from) = (pair.b.at(0), pair.b.rkey(), pair.a.sge(0, 8));
    pair.post_a(1, SendOp::Write { va, rkey }, &[from]);
    pair.post_a(2, SendOp::FetchAdd { va, rkey, add: 1 }, &[from]);
    pair.transmit();
    assert_eq!(pair.sent(true), [(Operation::WriteOnly, 100)], "one packet fills a window of one");
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
}

#[test]
fn seed_216_an_answered_part_of_a_read_makes_no_room_in_the_window() {
    let mut pair = Pair::new(with_window(2));
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    let (to, from) = (pair.a.sge(0, 4096), pair.a.sge(8192, 8));
    pair.post_a(1, SendOp::Read { va, rkey }, &[to]);
    for id in 2..=5 {
        pair.post_a(id, SendOp::Write { va, rkey }, &[from]);
    }
    // The READ is answered half, the WRITE behind it not at all.
    let mut responses = 0;
    pair.settle(|_, frame| {
        responses += u32::from(!frame.to_b && frame.op() != Operation::Acknowledge);
        if frame.to_b && frame.op() == Operation::ReadRequest || (!frame.to_b && responses <= 2) {
            Fate::Deliver
        } else {
            Fate::Drop
        }
    });
    let requests = pair.sent(true);
    assert_eq!(requests, [(Operation::ReadRequest, 100), (Operation::WriteOnly, 104)], "READ and WRITE fill it");
}

#[test]
fn seed_441_what_is_sent_before_memory_goes_away_is_asked_for() {
    let mut pair = Pair::new(Setup::default());
    let (va, rkey, from) = (pair.b.at(0), pair.b.rkey(), pair.a.sge(0, 8));
    pair.recv_b(9, 0, 8);
    pair.post_a(1, SendOp::Send, &[]);
    pair.post_a(2, SendOp::Write { va, rkey }, &[from]);
    pair.transmit();
    pair.wire.clear();
    // Both are lost, and the second cannot be built again: the first must end well, and carry AckReq itself.
    pair.a.mem.deregister(Lkey(pair.a.key)).unwrap();
    pair.run_timed(10, |_, _| Fate::Deliver);
    assert_eq!(pair.a.statuses(), [(1, WcStatus::Success), (2, WcStatus::LocProtErr)]);
    assert_eq!(pair.b.statuses()[0], (9, WcStatus::Success));
}

/// A port with room for one packet.
#[derive(Default)]
struct OneSlot {
    bytes: Vec<u8>,
    used: bool,
}

impl TxSink for OneSlot {
    fn reserve(&mut self, _path: PathId, len: usize, _class: TxClass) -> Option<TxPacket<'_>> {
        if std::mem::replace(&mut self.used, true) {
            return None;
        }
        self.bytes = vec![0; len];
        Some(TxPacket { head: &mut self.bytes, tail: &mut [] })
    }
}

/// The same fault by another way: the last packet before SQD had no AckReq, because another message was to follow.
#[test]
fn seed_441_sqd_asks_for_the_last_packet() {
    // No timer: nothing but the right question brings the answer.
    let mut pair = Pair::new(Setup { timeout: 0, ..Setup::default() });
    let (va, rkey, from) = (pair.b.at(0), pair.b.rkey(), pair.a.sge(0, 8));
    let wr = |id| SendWr {
        wr_id: WrId(id),
        op: SendOp::Write { va, rkey },
        flags: SendFlags::SIGNALED,
        sges: std::slice::from_ref(&from),
        inline: &[],
    };
    pair.a.qp.sq.post(&wr(1), 1 << 31).unwrap();
    pair.a.qp.sq.post(&wr(2), 1 << 31).unwrap();
    let (qpn, now) = (pair.qpn_a(), pair.now);
    pair.a.ep.doorbell(now, qpn);
    let mut port = OneSlot::default();
    assert!(pair.a.ep.poll_transmit(now, &mut port).is_some());
    let first = common::Frame { to_b: true, bytes: port.bytes };
    assert!(!first.packet().bth().ack_req, "another message follows");
    pair.deliver(&first).unwrap();
    let sqd = QpAttr { qp_state: Some(QpState::Sqd), en_sqd_async_notify: Some(true), ..QpAttr::default() };
    pair.modify(true, &sqd, false).unwrap();
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, WcStatus::Success)]);
    let event = std::iter::from_fn(|| pair.a.ep.poll_event()).find(|event| event.kind == EventKind::SqDrained);
    assert!(event.is_some(), "SQ_DRAINED");
    pair.modify(true, &QpAttr { qp_state: Some(QpState::Rts), ..QpAttr::default() }, false).unwrap();
    pair.run();
    assert_eq!(pair.a.statuses(), [(2, WcStatus::Success)]);
}
