//! What the states of a queue pair do to work, packets and completions.

mod common;

use common::{Fate, Pair, Setup};
use std::sync::Arc;
use xroce_transport::cq::{Cq, Push};
use xroce_transport::qp::state::{QpAttr, QpState, QpType};
use xroce_transport::qp::{ModifyQpError, QpInfo, QpInit};
use xroce_transport::wc::{Wc, WcStatus};
use xroce_transport::wr::{QpCap, RecvWr, SendOp, WrId};
use xroce_transport::{DropReason, EventKind, Instant};
use xroce_wire::Psn;

const OK: WcStatus = WcStatus::Success;
const FLUSH: WcStatus = WcStatus::WrFlushErr;

fn to(state: QpState) -> QpAttr {
    QpAttr { qp_state: Some(state), ..QpAttr::default() }
}

fn write(pair: &mut Pair, id: u64, len: u32) {
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    let sges = [pair.a.sge(0, len)];
    pair.post_a(id, SendOp::Write { va, rkey }, &sges);
}

fn events(pair: &mut Pair) -> Vec<EventKind> {
    std::iter::from_fn(|| pair.a.ep.poll_event()).map(|e| e.kind).collect()
}

#[test]
fn sqd_finishes_what_was_begun_and_rts_resumes_at_once() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 300 * 1024); // longer than the window: begun, not all sent
    write(&mut pair, 2, 10);
    pair.transmit();
    let sqd = QpAttr { en_sqd_async_notify: Some(true), ..to(QpState::Sqd) };
    pair.modify(true, &sqd, false).unwrap();
    assert!(events(&mut pair).is_empty(), "not drained yet");
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK)]);
    assert_eq!(events(&mut pair), [EventKind::SqDrained]);
    write(&mut pair, 3, 10);
    pair.run();
    assert!(pair.a.poll().is_empty(), "queued");
    pair.modify(true, &to(QpState::Rts), false).unwrap();
    pair.run();
    assert_eq!(pair.a.statuses(), [(2, OK), (3, OK)]);
}

#[test]
fn sqd_of_an_idle_queue_is_drained_at_once() {
    let mut pair = Pair::new(Setup::default());
    pair.modify(true, &QpAttr { en_sqd_async_notify: Some(true), ..to(QpState::Sqd) }, false).unwrap();
    assert_eq!(events(&mut pair), [EventKind::SqDrained]);
    pair.modify(true, &QpAttr { timeout: Some(20), retry_cnt: Some(1), ..to(QpState::Sqd) }, false).unwrap();
    let attr = pair.a.ep.query_qp(pair.qpn_a()).unwrap().attr;
    assert_eq!((attr.timeout, attr.retry_cnt, attr.qp_state), (Some(20), Some(1), Some(QpState::Sqd)));
}

#[test]
fn err_flushes_everything_in_order_also_what_comes_later() {
    let mut pair = Pair::new(Setup::default());
    for id in 0..5 {
        pair.recv_b(100 + id, 0, 10);
        write(&mut pair, id, 3000);
    }
    pair.transmit();
    for a_side in [true, false] {
        pair.modify(a_side, &to(QpState::Err), false).unwrap();
    }
    assert_eq!(pair.a.statuses(), (0..5).map(|id| (id, FLUSH)).collect::<Vec<_>>());
    assert_eq!(pair.b.statuses(), (100..105).map(|id| (id, FLUSH)).collect::<Vec<_>>());
    write(&mut pair, 9, 1);
    pair.recv_b(109, 0, 1);
    assert_eq!(pair.a.statuses(), [(9, FLUSH)]);
    assert_eq!(pair.b.statuses(), [(109, FLUSH)]);
    let frames: Vec<_> = pair.wire.drain(..).collect();
    assert_eq!(pair.deliver(&frames[0]), Err(DropReason::WrongState));
    pair.transmit();
    assert!(pair.wire.is_empty(), "nothing is sent in ERR");
    assert!(!pair.tick() || pair.a.poll().is_empty());
}

#[test]
// rule: wc.reset
fn reset_forgets_everything_without_completions() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 10);
    pair.run(); // a completion that nobody polled
    write(&mut pair, 2, 3000);
    pair.transmit();
    pair.wire.clear();
    pair.recv_b(3, 0, 10);
    for a_side in [true, false] {
        pair.modify(a_side, &to(QpState::Reset), false).unwrap();
    }
    assert!(pair.a.poll().is_empty(), "completions not polled are purged");
    assert!(pair.b.poll().is_empty());
    assert!(!pair.tick() || pair.trace.len() < 10, "timers are off");
    pair.trace.clear();
    pair.connect();
    write(&mut pair, 4, 10);
    pair.run();
    assert_eq!(pair.a.statuses(), [(4, OK)]);
    assert_eq!(pair.sent(true).len(), 1);
}

#[test]
fn a_query_tells_the_psns_that_come_next() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 3000);
    pair.transmit_some(true, 2);
    let frames: Vec<_> = pair.wire.drain(..).collect();
    assert!(pair.deliver(&frames[0]).is_ok());
    let psns = |info: QpInfo| [info.attr.sq_psn, info.attr.rq_psn].map(|psn| psn.map(Psn::value));
    // A has begun a request of three packets and nothing of it is acknowledged; B has taken one.
    assert_eq!(psns(pair.a.ep.query_qp(pair.qpn_a()).unwrap()), [Some(103), Some(0xFF_FFF0)]);
    assert_eq!(psns(pair.b.ep.query_qp(pair.b.qp.qpn).unwrap()), [Some(0xFF_FFF0), Some(101)]);
}

#[test]
// rule: qp.reset
fn reset_forgets_every_attribute() {
    for kind in [QpType::Rc, QpType::Uc] {
        let mut pair = Pair::new(Setup { kind, ..Setup::default() });
        pair.modify(true, &to(QpState::Reset), false).unwrap();
        let info = pair.a.ep.query_qp(pair.qpn_a()).unwrap();
        assert_eq!((info.attr, info.path), (to(QpState::Reset), None), "{kind:?}");
    }
}

#[test]
// rule: qp.reset
fn reset_forgets_the_answers_that_are_owed_and_those_that_are_kept() {
    let mut pair = Pair::new(Setup::default());
    let read = |pair: &mut Pair, id| {
        let sges = [pair.a.sge(0, 8)];
        let (va, rkey) = (pair.b.at(0), pair.b.rkey());
        pair.post_a(id, SendOp::Read { va, rkey }, &sges);
        pair.transmit_some(true, 1);
        pair.wire.pop_back().unwrap()
    };
    let anew = |pair: &mut Pair| {
        for a_side in [true, false] {
            pair.modify(a_side, &to(QpState::Reset), false).unwrap();
        }
        pair.connect();
    };
    let owed = read(&mut pair, 1);
    assert!(pair.deliver(&owed).is_ok());
    anew(&mut pair);
    pair.trace.clear();
    pair.transmit();
    assert!(pair.trace.is_empty(), "an answer of the life before");
    write(&mut pair, 2, 8);
    pair.run();
    let kept = read(&mut pair, 3);
    assert!(pair.deliver(&kept).is_ok());
    pair.run();
    anew(&mut pair);
    write(&mut pair, 4, 8);
    write(&mut pair, 5, 8);
    pair.run();
    assert_eq!(pair.deliver(&kept), Err(DropReason::DuplicateTooOld), "its PSN is that of a WRITE now");
}

#[test]
fn what_a_destroyed_queue_pair_had_to_send_is_forgotten() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 10);
    pair.transmit();
    let frame = pair.wire.pop_front().unwrap();
    assert!(pair.deliver(&frame).is_ok());
    write(&mut pair, 2, 10);
    assert!(pair.a.ep.may_have_packets() && pair.b.ep.may_have_packets(), "a request, and an ACK");
    pair.a.ep.destroy_qp(pair.a.qp.qpn).unwrap();
    pair.b.ep.destroy_qp(pair.b.qp.qpn).unwrap();
    assert!(!pair.a.ep.may_have_packets() && !pair.b.ep.may_have_packets());
    assert_eq!((pair.a.ep.poll_timeout(), pair.b.ep.poll_timeout()), (None, None));
}

/// A queue for each direction: RESET takes out of both what the queue pair left there, and nothing of another's.
#[test]
// rule: wc.reset
fn reset_empties_both_completion_queues() {
    let mut pair = Pair::new(Setup::default());
    let [sends, recvs] = [1, 2].map(|id| Cq::new(id, 16).unwrap());
    let cap = QpCap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    let (send_cq, recv_cq) = (Arc::clone(&sends), Arc::clone(&recvs));
    let init = QpInit { kind: QpType::Rc, pd: pair.a.pd, send_cq, recv_cq, cap, sq_sig_all: false };
    let qpn = pair.a.ep.create_qp(init).unwrap().qpn;
    for cq in [&sends, &recvs] {
        for (wr_id, qpn) in [(1, qpn), (2, pair.a.qp.qpn), (3, qpn)] {
            assert_eq!(cq.push(Wc { wr_id: WrId(wr_id), qpn, ..Wc::default() }, false), Push::Quiet);
        }
    }
    pair.a.ep.modify_qp(Instant(0), qpn, &to(QpState::Reset), None).unwrap();
    for cq in [&sends, &recvs] {
        let left: Vec<u64> = std::iter::from_fn(|| cq.poll_one()).map(|wc| wc.wr_id.0).collect();
        assert_eq!(left, [2]);
    }
}

#[test]
fn rtr_serves_and_does_not_send_and_says_when_the_first_packet_came() {
    let mut pair = Pair::unconnected(Setup::default());
    for a_side in [true, false] {
        pair.modify(a_side, &pair.init_attr(), false).unwrap();
    }
    pair.recv_b(7, 0, 16); // RECVs may be posted in INIT
    pair.modify(true, &pair.rtr_attr(true), true).unwrap();
    pair.modify(true, &pair.rts_attr(true), false).unwrap();
    let sges = [pair.a.sge(0, 16)];
    pair.post_a(1, SendOp::Send, &sges);
    pair.transmit();
    let frame = pair.wire[0].clone();
    assert_eq!(pair.deliver(&frame), Err(DropReason::WrongState), "INIT drops packets");
    pair.modify(false, &pair.rtr_attr(false), true).unwrap();
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK)]);
    assert_eq!(pair.b.statuses(), [(7, OK)]);
    let kinds: Vec<_> = std::iter::from_fn(|| pair.b.ep.poll_event()).map(|e| e.kind).collect();
    assert_eq!(kinds, [EventKind::CommEst]);
}

#[test]
fn a_call_that_is_refused_changes_nothing() {
    let mut pair = Pair::unconnected(Setup::default());
    let missing = QpAttr { qp_access_flags: None, ..pair.init_attr() };
    assert!(matches!(pair.modify(true, &missing, false), Err(ModifyQpError::State(_))));
    assert!(pair.modify(true, &pair.rts_attr(true), false).is_err(), "RESET to RTS");
    let init = pair.init_attr();
    pair.modify(true, &init, false).unwrap();
    assert_eq!(pair.modify(true, &pair.rtr_attr(true), false), Err(ModifyQpError::PathMissing));
    let greedy = QpAttr { max_dest_rd_atomic: Some(17), ..pair.rtr_attr(true) };
    let error = pair.modify(true, &greedy, true).unwrap_err();
    assert_eq!(error.to_string(), "max_dest_rd_atomic 17 is more than the device's 16: ask for 16 or less");
    let state = pair.a.ep.query_qp(pair.qpn_a()).unwrap().attr.qp_state;
    assert_eq!(state, Some(QpState::Init));
}

#[test]
fn an_overrun_cq_is_an_event_and_the_end_of_the_queue_pair() {
    let mut pair = Pair::unconnected(Setup::default());
    let cq = Cq::new(77, 4).unwrap();
    let init = QpInit {
        kind: QpType::Rc,
        pd: pair.a.pd,
        send_cq: Arc::clone(&cq),
        recv_cq: Arc::clone(&cq),
        cap: QpCap { max_send_wr: 4, max_recv_wr: 32, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 },
        sq_sig_all: true,
    };
    let mut handle = pair.a.ep.create_qp(init).unwrap();
    let qpn = handle.qpn;
    let init_attr = pair.init_attr();
    pair.a.ep.modify_qp(pair.now, qpn, &init_attr, None).unwrap();
    let capacity = cq.capacity();
    for id in 0..u64::from(capacity) + 2 {
        handle.rq.post(&RecvWr { wr_id: WrId(id), sges: &[] }).unwrap();
    }
    pair.a.ep.modify_qp(pair.now, qpn, &to(QpState::Err), None).unwrap();
    assert!(cq.is_overrun());
    let event = pair.a.ep.poll_event().unwrap();
    assert_eq!((event.kind, event.cq), (EventKind::CqErr, Some(77)));
}

#[test]
// rule: qpn.late, qpn.special
fn a_number_is_not_given_again_soon_and_late_packets_miss() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 10);
    pair.transmit();
    let late = pair.wire.pop_front().unwrap();
    let old = pair.b.qp.qpn;
    pair.b.ep.destroy_qp(old).unwrap();
    let init = || QpInit {
        kind: QpType::Rc,
        pd: pair.b.pd,
        send_cq: Arc::clone(&pair.b.cq),
        recv_cq: Arc::clone(&pair.b.cq),
        cap: QpCap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 },
        sq_sig_all: false,
    };
    let first = init();
    let mut seen = vec![old];
    let mut next = pair.b.ep.create_qp(first).unwrap();
    for _ in 0..1000 {
        assert!(!seen.contains(&next.qpn), "{:?} again", next.qpn);
        seen.push(next.qpn);
        pair.b.ep.destroy_qp(next.qpn).unwrap();
        let again = QpInit {
            kind: QpType::Rc,
            pd: pair.b.pd,
            send_cq: Arc::clone(&pair.b.cq),
            recv_cq: Arc::clone(&pair.b.cq),
            cap: next.cap,
            sq_sig_all: false,
        };
        next = pair.b.ep.create_qp(again).unwrap();
    }
    assert_eq!(pair.deliver(&late), Err(DropReason::UnknownQp));
    assert!(pair.b.ep.destroy_qp(old).is_err());
}

#[test]
fn a_dead_mr_ends_a_read_in_progress_with_a_nak_in_its_place() {
    let mut pair = Pair::new(Setup::default());
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    let sges = [pair.a.sge(100_000, 5000)];
    pair.post_a(1, SendOp::Read { va, rkey }, &sges);
    pair.transmit();
    let request = pair.wire.pop_front().unwrap();
    let _ = pair.deliver(&request);
    let lkey = xroce_wire::Lkey(pair.b.key);
    let _grace = pair.b.mem.deregister(lkey).unwrap();
    pair.run_timed(10, |_, _| Fate::Deliver);
    assert_eq!(pair.a.statuses(), [(1, WcStatus::RemAccessErr)]);
    let kinds: Vec<_> = std::iter::from_fn(|| pair.b.ep.poll_event()).map(|e| e.kind).collect();
    assert_eq!(kinds, [EventKind::QpAccessErr]);
}

#[test]
fn h19_inline_bytes_are_taken_at_the_post() {
    use xroce_transport::wr::{SendFlags, SendWr};
    let mut pair = Pair::new(Setup::default());
    pair.recv_b(9, 0, 16);
    let mut bytes = *b"before the post!";
    let wr = SendWr {
        wr_id: WrId(1),
        op: SendOp::Send,
        flags: SendFlags::SIGNALED | SendFlags::INLINE,
        sges: &[],
        inline: &[&bytes[..7], &bytes[7..]],
    };
    pair.a.qp.sq.post(&wr, 1 << 31).unwrap();
    bytes.fill(0);
    assert_eq!(bytes[0], 0);
    pair.a.ep.doorbell(pair.now, pair.a.qp.qpn);
    pair.run_timed(10, |i, _| if i == 0 { Fate::Drop } else { Fate::Deliver });
    assert_eq!(pair.a.statuses(), [(1, OK)]);
    assert_eq!(pair.b.bytes(0, 16), b"before the post!");
}

#[test]
fn capacities_are_checked_against_what_the_device_says_it_has() {
    let mut pair = Pair::unconnected(Setup::default());
    let limits = pair.a.ep.config().limits;
    let (pd, cq) = (pair.a.pd, Arc::clone(&pair.a.cq));
    let mut create = |cap: QpCap| {
        let init =
            QpInit { kind: QpType::Rc, pd, send_cq: Arc::clone(&cq), recv_cq: Arc::clone(&cq), cap, sq_sig_all: false };
        pair.a.ep.create_qp(init).map(|handle| handle.cap).map_err(|e| e.to_string())
    };
    let small = QpCap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    assert_eq!(create(QpCap { max_send_wr: limits.max_qp_wr, ..small }).unwrap().max_send_wr, limits.max_qp_wr);
    let refused = create(QpCap { max_send_wr: limits.max_qp_wr + 1, ..small }).unwrap_err();
    assert_eq!(refused, "max_send_wr is 16385; the limit is 16384");
    let refused = create(QpCap { max_inline_data: u32::MAX, ..small }).unwrap_err();
    assert_eq!(refused, "max_inline_data is 4294967295; the limit is 512");
}
