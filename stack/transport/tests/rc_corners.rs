//! Corners of RC that only odd timing reaches: repeated and late packets, a port without room, changes in SQD, a dead CQ.

mod common;

use common::{Frame, Pair, Setup};
use std::sync::Arc;
use xroce_transport::cq::Cq;
use xroce_transport::memory::Access;
use xroce_transport::qp::QpInit;
use xroce_transport::qp::state::{QpAttr, QpState, QpType};
use xroce_transport::wc::{Wc, WcStatus};
use xroce_transport::wr::{QpCap, SendFlags, SendOp, SendWr, Sge, WrId};
use xroce_transport::{DropReason, EventKind, PathId, TxClass, TxPacket, TxSink};
use xroce_wire::{Lkey, NakCode, Operation, Syndrome};

const OK: WcStatus = WcStatus::Success;

fn to(state: QpState) -> QpAttr {
    QpAttr { qp_state: Some(state), ..QpAttr::default() }
}

fn write(pair: &mut Pair, id: u64, len: u32) {
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    let sges = [pair.a.sge(0, len)];
    pair.post_a(id, SendOp::Write { va, rkey }, &sges);
}

fn read(pair: &mut Pair, id: u64, len: u32) {
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    let sges = [pair.a.sge(0, len)];
    pair.post_a(id, SendOp::Read { va, rkey }, &sges);
}

/// Takes what is on the wire.
fn frames(pair: &mut Pair) -> Vec<Frame> {
    pair.transmit();
    pair.wire.drain(..).collect()
}

fn state(pair: &Pair, a_side: bool) -> QpState {
    if a_side { pair.a.qp.state.load() } else { pair.b.qp.state.load() }
}

/// A port with room for a number of packets.
struct Port {
    room: usize,
    bytes: Vec<u8>,
}

impl TxSink for Port {
    fn reserve(&mut self, _path: PathId, len: usize, _class: TxClass) -> Option<TxPacket<'_>> {
        self.room = self.room.checked_sub(1)?;
        self.bytes = vec![0; len];
        Some(TxPacket { head: &mut self.bytes, tail: &mut [] })
    }
}

/// The next packet of A, when nothing more is asked for.
fn one(pair: &mut Pair) -> Frame {
    let mut port = Port { room: 1, bytes: Vec::new() };
    assert!(pair.a.ep.poll_transmit(pair.now, &mut port).is_some());
    Frame { to_b: true, bytes: port.bytes }
}

/// A is asked for a packet, and has no room for it.
fn blocked(pair: &mut Pair) {
    assert!(pair.a.ep.poll_transmit(pair.now, &mut Port { room: 0, bytes: Vec::new() }).is_none());
}

#[test]
fn naks_that_wait_for_the_port_are_one() {
    let mut pair = Pair::new(Setup { max_dest_rd_atomic: 0, ..Setup::default() });
    for id in 0..3 {
        write(&mut pair, id, 8);
    }
    let sent = frames(&mut pair);
    pair.deliver(&sent[0]).unwrap();
    // The first again and the third, over and over, before B can send anything.
    for _ in 0..200 {
        assert_eq!(pair.deliver(&sent[2]), Err(DropReason::PsnAhead));
        let _ = pair.deliver(&sent[0]);
    }
    let answers = frames(&mut pair);
    assert!(answers.len() <= 2, "{} answers", answers.len());

    let mut pair = Pair::new(Setup { max_dest_rd_atomic: 0, ..Setup::default() });
    let sges = [pair.a.sge(0, 8)];
    pair.post_a(1, SendOp::Send, &sges);
    let sent = frames(&mut pair);
    for _ in 0..200 {
        assert_eq!(pair.deliver(&sent[0]), Err(DropReason::ReceiverNotReady));
    }
    assert_eq!(frames(&mut pair).len(), 1);
}

#[test]
fn a_repeated_request_does_not_take_the_place_of_a_newer_ack() {
    let mut pair = Pair::new(Setup { timeout: 0, ..Setup::default() });
    write(&mut pair, 1, 8);
    let first = frames(&mut pair).remove(0);
    pair.deliver(&first).unwrap();
    let lost = frames(&mut pair);
    assert_eq!(lost[0].op(), Operation::Acknowledge);
    read(&mut pair, 2, 8);
    let request = frames(&mut pair).remove(0);
    pair.deliver(&request).unwrap();
    let response = frames(&mut pair).remove(0);
    pair.deliver(&response).unwrap();
    write(&mut pair, 3, 8);
    let third = frames(&mut pair).remove(0);
    pair.deliver(&third).unwrap();
    let _ = pair.deliver(&first);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK), (2, OK), (3, OK)]);
}

#[test]
fn a_late_copy_of_an_answered_read_is_harmless_when_its_memory_is_gone() {
    let mut pair = Pair::new(Setup::default());
    read(&mut pair, 1, 3000);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK)]);
    let request = pair.trace.iter().find(|f| f.op() == Operation::ReadRequest).unwrap().clone();
    let _grace = pair.b.mem.deregister(Lkey(pair.b.key)).unwrap();
    let _ = pair.deliver(&request);
    pair.run();
    assert_eq!(state(&pair, false), QpState::Rts);
    assert!(pair.b.ep.poll_event().is_none());
}

#[test]
fn a_read_is_not_repeated_once_the_queue_pair_forbids_reads() {
    let mut pair = Pair::new(Setup::default());
    read(&mut pair, 1, 8);
    pair.run();
    let request = pair.trace.iter().find(|f| f.op() == Operation::ReadRequest).unwrap().clone();
    let sent = pair.trace.len();
    let attr = QpAttr { qp_access_flags: Some(Access::REMOTE_WRITE), ..to(QpState::Rts) };
    pair.modify(false, &attr, false).unwrap();
    pair.deliver(&request).unwrap();
    pair.run();
    let answers: Vec<_> = pair.trace[sent..].iter().map(|f| f.packet().aeth().map(|aeth| aeth.syndrome)).collect();
    assert_eq!(answers, [Some(Syndrome::Nak(NakCode::InvalidRequest))], "nothing was read again");
    assert_eq!([true, false].map(|side| state(&pair, side)), [QpState::Rts; 2], "and the peer has its answer");
}

#[test]
fn what_the_peer_is_owed_outlives_a_change_of_max_dest_rd_atomic() {
    let mut pair = Pair::new(Setup { timeout: 0, ..Setup::default() });
    read(&mut pair, 1, 3000);
    let request = frames(&mut pair).remove(0);
    pair.deliver(&request).unwrap();
    pair.modify(false, &to(QpState::Sqd), false).unwrap();
    for n in [16, 1] {
        pair.modify(false, &QpAttr { max_dest_rd_atomic: Some(n), ..to(QpState::Sqd) }, false).unwrap();
    }
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK)]);
    let sent = pair.trace.len();
    pair.deliver(&request).unwrap();
    pair.run();
    assert_eq!(pair.trace.len(), sent + 3, "a duplicate is answered");
}

#[test]
fn sqd_drains_although_the_ack_was_to_be_asked_for_by_the_next_request() {
    let mut pair = Pair::new(Setup { timeout: 0, ..Setup::default() });
    write(&mut pair, 1, 8);
    write(&mut pair, 2, 8);
    let sent = one(&mut pair);
    assert!(!sent.packet().bth().ack_req, "the second follows at once");
    pair.deliver(&sent).unwrap();
    let sqd = QpAttr { en_sqd_async_notify: Some(true), ..to(QpState::Sqd) };
    pair.modify(true, &sqd, false).unwrap();
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK)]);
    assert_eq!(pair.a.ep.poll_event().map(|e| e.kind), Some(EventKind::SqDrained));
    pair.modify(true, &to(QpState::Rts), false).unwrap();
    pair.run();
    assert_eq!(pair.a.statuses(), [(2, OK)]);
}

#[test]
fn what_went_before_a_request_whose_memory_is_gone_completes_first() {
    let mut pair = Pair::new(Setup { timeout: 0, ..Setup::default() });
    let other = {
        // SAFETY: never read through: deregistered before the first packet is built.
        let region = unsafe { xroce_transport::memory::Region::new(pair.a.at(0) as *mut u8, 4096) };
        pair.a.mem.register(pair.a.pd, region, None, Access::LOCAL_WRITE).unwrap()
    };
    write(&mut pair, 1, 8);
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    pair.post_a(2, SendOp::Write { va, rkey }, &[Sge { addr: other.iova, length: 8, lkey: other.lkey() }]);
    let sent = one(&mut pair);
    blocked(&mut pair);
    let _grace = pair.a.mem.deregister(other.lkey()).unwrap();
    pair.deliver(&sent).unwrap();
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK), (2, WcStatus::LocProtErr)]);
}

#[test]
fn what_went_before_completes_first_also_when_the_memory_goes_in_mid_message() {
    let mut pair = Pair::new(Setup { timeout: 0, ..Setup::default() });
    let other = {
        // SAFETY: the node's own memory, which outlives this registration.
        let region = unsafe { xroce_transport::memory::Region::new(pair.a.at(0) as *mut u8, 4096) };
        pair.a.mem.register(pair.a.pd, region, None, Access::LOCAL_WRITE).unwrap()
    };
    write(&mut pair, 1, 8);
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    pair.post_a(2, SendOp::Write { va, rkey }, &[Sge { addr: other.iova, length: 4096, lkey: other.lkey() }]);
    let sent = [one(&mut pair), one(&mut pair), one(&mut pair)];
    let _grace = pair.a.mem.deregister(other.lkey()).unwrap();
    for frame in &sent {
        pair.deliver(frame).unwrap();
    }
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK), (2, WcStatus::LocProtErr)]);
}

#[test]
fn a_request_posted_in_sqd_is_not_judged_before_rts() {
    let mut pair = Pair::new(Setup::default());
    pair.modify(true, &to(QpState::Sqd), false).unwrap();
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    pair.post_a(1, SendOp::Write { va, rkey }, &[Sge { addr: 0, length: 8, lkey: Lkey(12) }]);
    pair.run();
    assert!(pair.a.poll().is_empty());
    assert_eq!(state(&pair, true), QpState::Sqd);
    pair.modify(true, &to(QpState::Rts), false).unwrap();
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, WcStatus::LocProtErr)]);
}

#[test]
fn the_ack_timer_does_not_run_for_what_was_never_sent() {
    let mut pair = Pair::new(Setup { retry_cnt: 0, ..Setup::default() });
    write(&mut pair, 1, 8);
    let sent = one(&mut pair);
    write(&mut pair, 2, 8);
    blocked(&mut pair);
    pair.deliver(&sent).unwrap();
    // B's acknowledgement only; A's port stays full.
    let mut port = Port { room: 9, bytes: Vec::new() };
    while pair.b.ep.poll_transmit(pair.now, &mut port).is_some() {
        let ack = Frame { to_b: false, bytes: port.bytes.clone() };
        pair.deliver(&ack).unwrap();
    }
    pair.advance(10_000 * common::MS);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK), (2, OK)]);
}

/// A queue pair of B's endpoint on its CQs, in INIT with a RECV or not.
fn bystander(pair: &mut Pair, cq: &Arc<Cq>) -> xroce_transport::qp::QpHandle {
    let init = QpInit {
        kind: QpType::Rc,
        pd: pair.b.pd,
        send_cq: Arc::clone(cq),
        recv_cq: Arc::clone(cq),
        cap: QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 },
        sq_sig_all: false,
    };
    let handle = pair.b.ep.create_qp(init).unwrap();
    let attr = pair.init_attr();
    pair.b.ep.modify_qp(pair.now, handle.qpn, &attr, None).unwrap();
    handle
}

/// Report H26.
#[test]
fn an_overrun_fails_every_queue_pair_of_the_queue_and_is_told_once() {
    let mut pair = Pair::new(Setup::default());
    let cq = Arc::clone(&pair.b.cq);
    let other = bystander(&mut pair, &cq);
    let wc = Wc { status: OK, ..Wc::default() };
    for _ in 0..cq.capacity() - 1 {
        let _ = cq.push(wc, false);
    }
    for id in 0..3 {
        pair.recv_b(id, 0, 8);
    }
    for id in 0..2 {
        let sges = [pair.a.sge(0, 8)];
        pair.post_flags(id, SendOp::Send, &sges, SendFlags::SIGNALED);
    }
    for frame in frames(&mut pair) {
        let _ = pair.deliver(&frame);
    }
    assert_eq!((state(&pair, false), other.state.load()), (QpState::Err, QpState::Err));
    pair.recv_b(9, 0, 8);
    let mut kinds: Vec<EventKind> = std::iter::from_fn(|| pair.b.ep.poll_event()).map(|e| e.kind).collect();
    assert_eq!(kinds.iter().filter(|k| **k == EventKind::CqErr).count(), 1, "{kinds:?}");
    kinds.retain(|k| *k == EventKind::QpFatal);
    assert_eq!(kinds.len(), 2);
}

#[test]
fn an_overrun_wakes_who_waits_for_solicited_completions() {
    let mut pair = Pair::new(Setup::default());
    let cq = Arc::clone(&pair.b.cq);
    let wc = Wc { status: OK, ..Wc::default() };
    assert!(!cq.arm(true));
    for _ in 0..cq.capacity() {
        let _ = cq.push(wc, false);
    }
    pair.recv_b(1, 0, 8);
    let sges = [pair.a.sge(0, 8)];
    pair.post_a(1, SendOp::Send, &sges);
    pair.run();
    assert!(cq.is_overrun());
    assert_eq!(pair.b.ep.poll_wakeup().map(|cq| cq.id()), Some(cq.id()));
}

#[test]
fn going_back_counts_anew_when_to_ask_for_an_ack() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 40 * 1024);
    pair.transmit_some(true, 10);
    let lost = pair.wire.drain(..).nth(3).unwrap();
    assert!(!lost.packet().ack_req());
    // B misses the packet, and says so; the ten that have not asked are behind it.
    let frames: Vec<Frame> = pair.trace.iter().filter(|frame| frame.psn() != lost.psn()).cloned().collect();
    for frame in frames {
        let _ = pair.deliver(&frame);
    }
    pair.trace.clear();
    let nak = {
        pair.transmit_some(false, 1);
        pair.wire.pop_back().unwrap()
    };
    assert!(pair.deliver(&nak).is_ok());
    pair.transmit_some(true, 20);
    let again: Vec<bool> = pair.trace.iter().filter(|f| f.to_b).map(|f| f.packet().ack_req()).collect();
    assert_eq!(again.iter().position(|asks| *asks), Some(15), "{again:?}");
}

#[test]
fn requests_leave_responses_their_turns() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 200 * 1024);
    pair.transmit_some(true, 1);
    let first = pair.wire.pop_back().unwrap();
    // B wants to read from A, which is in the middle of its burst.
    let (va, rkey) = (pair.a.at(0), pair.a.rkey());
    let sges = [pair.b.sge(0, 8)];
    let wr =
        SendWr { wr_id: WrId(1), op: SendOp::Read { va, rkey }, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] };
    pair.b.qp.sq.post(&wr, 1 << 31).unwrap();
    pair.b.ep.doorbell(pair.now, pair.b.qp.qpn);
    pair.transmit_some(false, 1);
    let request = pair.wire.pop_back().unwrap();
    assert!(pair.deliver(&request).is_ok() && pair.deliver(&first).is_ok());
    pair.trace.clear();
    pair.transmit_some(true, 64);
    let waited = pair.trace.iter().position(|frame| frame.op() == Operation::ReadResponseOnly);
    assert!(waited.is_some_and(|waited| waited <= 32), "{waited:?}");
}
