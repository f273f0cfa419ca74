//! RC: peers that are slow, busy or not ready, but alive. Found against rdma_rxe on an emulated machine.

mod common;

use common::{Fate, Frame, MS, Pair, Setup};
use xroce_transport::wc::WcStatus;
use xroce_transport::wr::SendOp;
use xroce_wire::{AethRepr, Headers, Msn, NakCode, Operation, Psn, Syndrome};

const OK: WcStatus = WcStatus::Success;

/// A sequence NAK from B to A made by hand.
fn sequence_nak(pair: &Pair, psn: u32) -> Frame {
    let of_b = pair.trace.iter().find(|f| !f.to_b).expect("B has answered something");
    let mut headers = Headers::parse(&of_b.packet());
    headers.bth.psn = Psn::new(psn);
    headers.aeth = Some(AethRepr { syndrome: Syndrome::Nak(NakCode::PsnSequenceError), msn: Msn::new(0) });
    let mut bytes = vec![0; headers.packet_len(0)];
    headers.emit_packet(&[], &mut bytes);
    Frame { to_b: false, bytes }
}

fn send(pair: &mut Pair, id: u64, len: u32) {
    let sges = [pair.a.sge(0, len)];
    pair.post_a(id, SendOp::Send, &sges);
}

/// rxe answers the packets behind one it has RNR-NAKed by a sequence NAK, which may arrive after the wait.
#[test]
fn the_echo_of_a_not_ready_round_costs_no_retry() {
    let mut pair = Pair::new(Setup { retry_cnt: 0, ..Setup::default() });
    send(&mut pair, 1, 3000);
    for _ in 0..20 {
        pair.run();
        assert!(pair.tick(), "the wait ends");
        pair.transmit();
        let echo = sequence_nak(&pair, 100);
        let _ = pair.deliver(&echo);
    }
    assert_eq!(pair.a.statuses(), [], "the peer is there, and not ready");
    pair.recv_b(9, 0, 3000);
    pair.run_timed(100, |_, _| Fate::Deliver);
    assert_eq!((pair.a.statuses(), pair.b.statuses()), (vec![(1, OK)], vec![(9, OK)]));
}

/// Whoever says "not ready" is alive: the retries for no answer at all begin anew.
#[test]
fn a_not_ready_answer_restores_the_retries() {
    let mut pair = Pair::new(Setup { retry_cnt: 1, rnr_retry: 7, ..Setup::default() });
    send(&mut pair, 1, 10);
    let mut requests = 0;
    // Each second request is lost, and so each second wait ends with the ACK timer.
    pair.run_timed(400, |_, frame| {
        requests += usize::from(frame.to_b);
        if frame.to_b && requests.is_multiple_of(2) { Fate::Drop } else { Fate::Deliver }
    });
    assert_eq!(pair.a.statuses(), []);
    assert!(pair.a.ep.counters().qp.local_ack_timeout_err > 5, "timers ran out");
    pair.recv_b(9, 0, 10);
    pair.run_timed(100, |_, _| Fate::Deliver);
    assert_eq!(pair.a.statuses(), [(1, OK)]);
}

/// A READ of many packets loses one. The rest is on its way already and takes longer than the ACK timer; asking again each
/// time would make it longer still.
#[test]
fn a_responder_that_is_still_sending_is_not_asked_again() {
    let mut pair = Pair::new(Setup { timeout: 14, retry_cnt: 2, ..Setup::default() });
    pair.b.fill(0, 20 * 1024, 3);
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    let sges = [pair.a.sge(100_000, 20 * 1024)];
    pair.post_a(1, SendOp::Read { va, rkey }, &sges);
    pair.transmit();
    let request = pair.wire.pop_front().unwrap();
    pair.deliver(&request).unwrap();
    pair.transmit();
    assert_eq!(pair.wire.len(), 20);
    pair.wire.remove(1);
    let responses = pair.wire.len();
    for _ in 0..responses {
        let frame = pair.wire.pop_front().unwrap();
        let _ = pair.deliver(&frame);
        pair.advance(40 * MS); // the timer is 67 ms
        pair.transmit();
    }
    assert_eq!(pair.a.ep.counters().qp.local_ack_timeout_err, 0);
    let asked = pair.sent(true).iter().filter(|(op, _)| *op == Operation::ReadRequest).count();
    assert_eq!(asked, 2, "once, and once more for what was lost");
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK)]);
    assert_eq!(pair.a.bytes(100_000, 20 * 1024), pair.b.bytes(0, 20 * 1024));
}

/// But a peer that only repeats itself is given up, in bounded time.
#[test]
fn patience_with_a_busy_responder_ends() {
    let mut pair = Pair::new(Setup { timeout: 14, retry_cnt: 2, ..Setup::default() });
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    let sges = [pair.a.sge(100_000, 5000)];
    pair.post_a(1, SendOp::Read { va, rkey }, &sges);
    pair.transmit();
    let request = pair.wire.pop_front().unwrap();
    pair.deliver(&request).unwrap();
    pair.transmit();
    let last = pair.wire.pop_back().unwrap();
    let start = pair.now;
    while pair.a.ep.counters().qp.retry_exceeded_err == 0 {
        pair.advance(40 * MS);
        let _ = pair.deliver(&last);
        pair.transmit();
        assert!(pair.now.since_ns(start) < 3_000 * MS, "still waiting");
    }
    assert_eq!(pair.a.statuses(), [(1, WcStatus::RetryExcErr)]);
}
