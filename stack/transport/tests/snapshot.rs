//! What a snapshot tells of a queue pair in the middle of its work.

mod common;

use common::{Fate, MS, Pair, Setup};
use xroce_transport::qp::state::{QpAttr, QpState, QpType};
use xroce_transport::qp::{NakState, QpSnapshot, StartedRequest};
use xroce_transport::wc::WcOpcode;
use xroce_transport::wr::{SendOp, WrId};
use xroce_transport::{EndpointConfig, Instant};
use xroce_wire::{Msn, Operation, Psn, Rkey};

fn a(pair: &Pair) -> QpSnapshot {
    pair.a.ep.snapshot_qp(pair.a.qp.qpn).expect("A's queue pair")
}

fn b(pair: &Pair) -> QpSnapshot {
    pair.b.ep.snapshot_qp(pair.b.qp.qpn).expect("B's queue pair")
}

fn post(pair: &mut Pair, id: u64, len: u32, op: impl Fn(u64, Rkey) -> SendOp) {
    let op = op(pair.b.at(0), pair.b.rkey());
    let sges = [pair.a.sge(0, len)];
    pair.post_a(id, op, &sges);
}

fn request(id: u64, opcode: WcOpcode, len: u32, first: u32, (psns, sent, acked): (u32, u32, u32)) -> StartedRequest {
    StartedRequest { wr_id: WrId(id), opcode, len, first_psn: Psn::new(first), psns, sent, acked }
}

#[test]
fn requests_are_told_from_the_post_to_the_last_response() {
    let mut pair = Pair::new(Setup { max_rd_atomic: 1, timeout: 14, retry_cnt: 3, ..Setup::default() });
    let timeout_ns = 4096 << 14;
    let idle = a(&pair);
    assert_eq!((idle.state, idle.kind, idle.waiting, idle.started.len()), (QpState::Rts, QpType::Rc, 0, 0));
    assert_eq!(idle.requester.ack_deadline, None);

    post(&mut pair, 1, 3000, |va, rkey| SendOp::Write { va, rkey });
    post(&mut pair, 2, 5000, |va, rkey| SendOp::Read { va, rkey });
    post(&mut pair, 3, 8, |va, rkey| SendOp::Read { va, rkey });
    assert_eq!(a(&pair).waiting, 3);
    let start = pair.now;
    pair.transmit();
    let seen = a(&pair);
    assert_eq!(
        seen.started,
        [request(1, WcOpcode::RdmaWrite, 3000, 100, (3, 3, 0)), request(2, WcOpcode::RdmaRead, 5000, 103, (5, 5, 0))]
    );
    assert_eq!(seen.waiting, 1, "max_rd_atomic is 1");
    let r = seen.requester;
    assert_eq!((r.next_psn, r.oldest_unacked, r.sent_end), (Psn::new(108), Psn::new(100), Psn::new(108)));
    assert_eq!((r.in_flight, r.window, r.rd_atomics, r.max_rd_atomic), (4, 256, 1, 1));
    assert_eq!((r.ssn, r.credit_limit, r.retries_left), (2, None, 3));
    assert_eq!(r.ack_deadline, Some(start.add_ns(timeout_ns)));

    // The second response of the READ is lost, and what follows it as well.
    pair.settle(|_, frame| match frame.op() {
        Operation::ReadResponseFirst | Operation::WriteFirst | Operation::WriteMiddle => Fate::Deliver,
        Operation::WriteLast | Operation::ReadRequest => Fate::Deliver,
        _ => Fate::Drop,
    });
    let seen = a(&pair);
    assert_eq!(
        seen.started,
        [request(2, WcOpcode::RdmaRead, 5000, 103, (5, 5, 1))],
        "the WRITE is done, one response came"
    );
    assert_eq!((seen.requester.oldest_unacked, seen.requester.in_flight), (Psn::new(104), 1));
    assert_eq!((b(&pair).responder.msn, b(&pair).responder.epsn), (Some(Msn::new(2)), Psn::new(108)));
    assert_eq!(b(&pair).responder.kept, 1, "the READ may be asked for again");

    pair.advance(2 * timeout_ns);
    assert_eq!((a(&pair).requester.retries_left, a(&pair).requester.next_psn), (2, Psn::new(104)));
    pair.run();
    let seen = a(&pair);
    assert_eq!((seen.waiting, seen.started.len(), seen.requester.retries_left), (0, 0, 3));
    assert_eq!(seen.requester.oldest_unacked, Psn::new(109));
}

#[test]
fn a_responder_tells_what_it_waits_for() {
    let mut pair = Pair::new(Setup { min_rnr_timer: 14, ..Setup::default() });
    pair.recv_b(1, 0, 4096);
    pair.recv_b(2, 4096, 4096);
    post(&mut pair, 1, 3000, |_, _| SendOp::Send);
    pair.transmit();
    let frames: Vec<_> = pair.wire.drain(..).collect();
    assert_eq!((b(&pair).recvs, b(&pair).responder.open_message), (2, None));
    pair.deliver(&frames[0]).unwrap();
    assert_eq!((b(&pair).responder.open_message, b(&pair).responder.epsn), (Some(1024), Psn::new(101)));
    assert_eq!(b(&pair).responder.nak, NakState::None);
    pair.deliver(&frames[2]).unwrap_err();
    assert_eq!((b(&pair).responder.nak, b(&pair).responder.responses), (NakState::Sequence, 1));
    pair.run();
    assert_eq!((b(&pair).responder.nak, b(&pair).recvs, b(&pair).responder.open_message), (NakState::None, 1, None));

    post(&mut pair, 2, 10, |_, _| SendOp::Send);
    post(&mut pair, 3, 10, |_, _| SendOp::Send);
    let now = pair.now;
    pair.run();
    assert_eq!(b(&pair).responder.nak, NakState::Rnr);
    // Code 14 is 1.28 ms.
    assert_eq!(a(&pair).requester.rnr_wait, Some(Instant(now.0 + 128 * MS / 100)));
    assert_eq!((a(&pair).requester.ack_deadline, a(&pair).requester.rnr_retries_left), (None, 7));
}

#[test]
fn credits_and_states_are_told() {
    let config = EndpointConfig { credits: true, ..EndpointConfig::default() };
    let mut pair = Pair::new(Setup { config, ..Setup::default() });
    for id in 0..3 {
        pair.recv_b(id, 0, 64);
    }
    post(&mut pair, 1, 10, |_, _| SendOp::Send);
    pair.run();
    let seen = a(&pair).requester;
    assert_eq!((seen.ssn, seen.credit_limit), (1, Some(Msn::new(3))), "one is done, two RECVs are left");
    let error = QpAttr { qp_state: Some(QpState::Err), ..QpAttr::default() };
    pair.modify(true, &error, false).unwrap();
    assert_eq!(a(&pair).state, QpState::Err);
    let qpn = pair.a.qp.qpn;
    pair.a.ep.destroy_qp(qpn).unwrap();
    assert_eq!(pair.a.ep.snapshot_qp(qpn), None);
}

#[test]
// rule: qp.err
fn in_err_no_message_is_open_and_no_timer_runs() {
    for kind in [QpType::Rc, QpType::Uc] {
        let mut pair = Pair::new(Setup { kind, ..Setup::default() });
        pair.recv_b(1, 0, 4096);
        post(&mut pair, 1, 3000, |_, _| SendOp::Send);
        pair.transmit_some(true, 2);
        let first = pair.wire.pop_front().unwrap();
        pair.deliver(&first).unwrap();
        assert_eq!(b(&pair).responder.open_message, Some(1024));
        assert_eq!(a(&pair).requester.ack_deadline.is_some(), kind == QpType::Rc);
        for a_side in [true, false] {
            pair.modify(a_side, &QpAttr { qp_state: Some(QpState::Err), ..QpAttr::default() }, false).unwrap();
        }
        assert_eq!((b(&pair).responder.open_message, b(&pair).responder.responses, b(&pair).recvs), (None, 0, 0));
        assert_eq!((a(&pair).requester.ack_deadline, a(&pair).outstanding, a(&pair).waiting), (None, 0, 0));
    }
}

#[test]
fn uc_tells_what_it_has() {
    let mut pair = Pair::new(Setup { kind: QpType::Uc, ..Setup::default() });
    pair.recv_b(1, 0, 4096);
    post(&mut pair, 1, 3000, |_, _| SendOp::Send);
    pair.settle(|i, _| if i == 2 { Fate::Drop } else { Fate::Deliver });
    assert_eq!((b(&pair).responder.msn, b(&pair).responder.open_message), (None, Some(2048)));
    assert_eq!((a(&pair).requester.next_psn, a(&pair).requester.in_flight), (Psn::new(103), 0));
}
