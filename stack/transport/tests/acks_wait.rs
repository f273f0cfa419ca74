//! ACKs that may wait a round for company, and what must not wait.

mod common;

use common::{Pair, Setup};
use xroce_transport::wc::WcStatus;
use xroce_transport::wr::{SendFlags, SendOp, SendWr, WrId};
use xroce_wire::{Operation, Rkey};

/// A WRITE of A that has arrived at B and was not answered.
fn written() -> Pair {
    let mut pair = Pair::new(Setup::default());
    let (va, rkey, sge) = (pair.b.at(0), pair.b.rkey(), pair.a.sge(0, 8));
    pair.post_a(1, SendOp::Write { va, rkey }, &[sge]);
    pair.transmit();
    let request = pair.wire.pop_front().unwrap();
    pair.deliver(&request).unwrap();
    pair
}

fn sent_by_b(pair: &mut Pair) -> Vec<Operation> {
    pair.wire.clear();
    pair.transmit();
    pair.wire.iter().filter(|frame| !frame.to_b).map(|frame| frame.op()).collect()
}

#[test]
fn an_ack_alone_waits_one_round() {
    let mut pair = written();
    pair.b.ep.let_acks_wait(true);
    assert_eq!(sent_by_b(&mut pair), []);
    assert!(pair.b.ep.holds_acks());
    pair.b.ep.let_acks_wait(false);
    assert!(!pair.b.ep.holds_acks());
    assert_eq!(sent_by_b(&mut pair), [Operation::Acknowledge]);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, WcStatus::Success)]);
}

/// A round that ends before an ACK has had its turn owes it as much as one that keeps it: a process that exits pays both.
#[test]
fn an_ack_is_owed_from_the_message_on_until_it_has_left() {
    for may_wait in [true, false] {
        let mut pair = written();
        assert!(pair.b.ep.owes_acknowledges() && pair.b.ep.owes_acknowledge(pair.b.qp.qpn));
        pair.b.ep.let_acks_wait(may_wait);
        let sent = sent_by_b(&mut pair);
        assert_eq!((sent.is_empty(), pair.b.ep.owes_acknowledges()), (may_wait, may_wait));
    }
}

#[test]
fn an_ack_leaves_behind_a_request_of_the_same_round() {
    let mut pair = written();
    let (va, rkey, sges) = (pair.a.at(64), pair.a.rkey(), [pair.b.sge(64, 8)]);
    let op = SendOp::Write { va, rkey };
    pair.b.qp.sq.post(&SendWr { wr_id: WrId(2), op, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] }, 8).unwrap();
    pair.b.ep.doorbell(pair.now, pair.b.qp.qpn);
    pair.b.ep.let_acks_wait(true);
    assert_eq!(sent_by_b(&mut pair), [Operation::WriteOnly, Operation::Acknowledge]);
    assert!(!pair.b.ep.holds_acks());
}

#[test]
fn a_refusal_does_not_wait() {
    let mut pair = Pair::new(Setup::default());
    let (va, sge) = (pair.b.at(0), pair.a.sge(0, 8));
    pair.post_a(1, SendOp::Write { va, rkey: Rkey(0x1234_5678) }, &[sge]);
    pair.transmit();
    let request = pair.wire.pop_front().unwrap();
    assert!(pair.deliver(&request).is_err());
    pair.b.ep.let_acks_wait(true);
    assert_eq!(sent_by_b(&mut pair), [Operation::Acknowledge], "the NAK");
    assert!(!pair.b.ep.holds_acks());
}
