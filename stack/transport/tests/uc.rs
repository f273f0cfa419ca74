//! UC: whole messages or nothing.

mod common;

use common::{Fate, Pair, Setup};
use xroce_transport::DropReason;
use xroce_transport::qp::state::QpType;
use xroce_transport::wc::WcStatus;
use xroce_transport::wr::SendOp;
use xroce_wire::{ImmData, Operation::*, PathMtu};

const OK: WcStatus = WcStatus::Success;

fn pair() -> Pair {
    Pair::new(Setup { kind: QpType::Uc, mtu: PathMtu::Mtu256, ..Setup::default() })
}

#[test]
fn messages_are_not_limited_to_one_packet() {
    let mut pair = pair();
    for (i, len) in [0u32, 1, 255, 256, 257, 100_000].into_iter().enumerate() {
        let id = i as u64;
        pair.a.fill(0, len as usize, len);
        pair.recv_b(id, 0, len);
        pair.recv_b(id + 100, 0, 0);
        let sges = [pair.a.sge(0, len)];
        let (va, rkey) = (pair.b.at(500_000), pair.b.rkey());
        pair.post_a(id, SendOp::SendImm(ImmData(5)), &sges);
        pair.post_a(id + 100, SendOp::WriteImm { va, rkey, imm: ImmData(6) }, &sges);
        pair.run();
        assert_eq!(pair.a.statuses(), [(id, OK), (id + 100, OK)]);
        let b = pair.b.poll();
        assert_eq!(b.iter().map(|wc| (wc.wr_id.0, wc.byte_len)).collect::<Vec<_>>(), [(id, len), (id + 100, len)]);
        assert_eq!(pair.b.bytes(0, len as usize), pair.a.bytes(0, len as usize));
        assert_eq!(pair.b.bytes(500_000, len as usize), pair.a.bytes(0, len as usize));
    }
    assert!(pair.trace.iter().all(|f| f.to_b && !f.packet().bth().ack_req), "no answer, no AckReq");
    assert!(!pair.tick(), "no timer");
}

#[test]
fn a_lost_packet_loses_its_message_and_only_that_one() {
    // Three SENDs of four packets each; one packet of the whole run is lost.
    for lost in 0..12 {
        let mut pair = pair();
        for id in 0..3 {
            pair.recv_b(id, 2000 * id as usize, 1000);
        }
        for id in 0..3u32 {
            pair.a.fill(2000 * id as usize, 1000, id);
            let sges = [pair.a.sge(2000 * id as usize, 1000)];
            pair.post_a(u64::from(id), SendOp::SendImm(ImmData(id)), &sges);
        }
        pair.settle(|i, _| if i == lost { Fate::Drop } else { Fate::Deliver });
        assert_eq!(pair.a.statuses(), [(0, OK), (1, OK), (2, OK)], "the sender never learns");
        let b = pair.b.poll();
        let survivors: Vec<u32> = (0..3).filter(|m| *m != lost as u32 / 4).collect();
        assert_eq!(b.iter().map(|wc| wc.imm.0).collect::<Vec<_>>(), survivors);
        assert_eq!(b.iter().map(|wc| wc.wr_id.0).collect::<Vec<_>>(), [0, 1], "the RECV is reused");
        for (slot, m) in survivors.iter().enumerate() {
            assert_eq!(pair.b.bytes(2000 * slot, 1000), pair.a.bytes(2000 * *m as usize, 1000));
        }
        pair.b.check_guards();
    }
}

#[test]
fn a_write_with_a_gap_delivers_no_immediate() {
    let mut pair = pair();
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    pair.a.fill(0, 1000, 1);
    pair.recv_b(1, 0, 0);
    let sges = [pair.a.sge(0, 1000)];
    for id in 0..2 {
        pair.post_a(id, SendOp::WriteImm { va, rkey, imm: ImmData(id as u32) }, &sges);
    }
    pair.settle(|i, _| if i == 2 { Fate::Drop } else { Fate::Deliver });
    assert_eq!(pair.b.poll().iter().map(|wc| wc.imm.0).collect::<Vec<_>>(), [1]);
}

#[test]
fn refused_messages_vanish_and_the_next_one_is_served() {
    let mut pair = pair();
    let sges = [pair.a.sge(0, 600)];
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    pair.post_a(1, SendOp::Send, &sges); // no RECV
    pair.post_a(2, SendOp::Write { va, rkey: xroce_wire::Rkey(1) }, &sges);
    pair.run();
    pair.recv_b(8, 0, 599);
    pair.post_a(3, SendOp::Send, &sges); // longer than the RECV
    pair.run();
    assert!(pair.b.poll().is_empty());
    pair.post_a(4, SendOp::Write { va, rkey }, &sges);
    let short = [pair.a.sge(0, 599)];
    pair.post_a(5, SendOp::Send, &short);
    pair.run();
    assert_eq!(pair.b.statuses(), [(8, OK)]);
    assert_eq!(pair.a.statuses().len(), 5);
    assert!(pair.b.ep.poll_event().is_none_or(|e| e.kind == xroce_transport::EventKind::CommEst));
}

#[test]
fn any_psn_may_begin_a_message_but_none_may_continue_what_is_not_open() {
    let mut pair = pair();
    for id in 0..4 {
        pair.recv_b(id, 0, 1000);
    }
    let long = [pair.a.sge(0, 600)];
    let short = [pair.a.sge(0, 8)];
    pair.post_a(0, SendOp::Send, &long);
    pair.post_a(1, SendOp::Send, &short);
    pair.transmit();
    let frames: Vec<_> = pair.wire.drain(..).collect();
    assert_eq!(frames.iter().map(|f| f.op()).collect::<Vec<_>>(), [SendFirst, SendMiddle, SendLast, SendOnly]);
    for i in [1, 2] {
        assert_eq!(pair.deliver(&frames[i]), Err(DropReason::UcOutOfSequence));
    }
    assert_eq!(pair.deliver(&frames[3]), Ok(()));
    // An old ONLY again is taken again: no at-most-once where the network duplicates.
    assert_eq!(pair.deliver(&frames[3]), Ok(()));
    // A FIRST in the middle of a message begins a new one.
    assert_eq!(pair.deliver(&frames[0]), Ok(()));
    assert_eq!(pair.deliver(&frames[0]), Ok(()));
    assert_eq!(pair.deliver(&frames[1]), Ok(()));
    assert_eq!(pair.deliver(&frames[2]), Ok(()));
    assert_eq!(
        pair.b.poll().iter().map(|wc| (wc.wr_id.0, wc.byte_len)).collect::<Vec<_>>(),
        [(0, 8), (1, 8), (2, 600)]
    );
}

#[test]
fn a_local_fault_stops_the_send_queue_only() {
    use xroce_transport::qp::state::{QpAttr, QpState};
    let mut pair = pair();
    let mut bad = pair.a.sge(0, 8);
    bad.lkey = xroce_wire::Lkey(1);
    let good = [pair.a.sge(0, 8)];
    pair.recv_b(9, 0, 8);
    pair.post_a(1, SendOp::Send, &[bad]);
    pair.post_a(2, SendOp::Send, &good);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]);
    let info = pair.a.ep.query_qp(pair.qpn_a()).unwrap();
    assert_eq!(info.attr.qp_state, Some(QpState::Sqe));
    pair.modify(true, &QpAttr { qp_state: Some(QpState::Rts), ..QpAttr::default() }, false).unwrap();
    pair.post_a(3, SendOp::Send, &good);
    pair.run();
    assert_eq!(pair.a.statuses(), [(3, OK)]);
    assert_eq!(pair.b.statuses(), [(9, OK)]);
}
