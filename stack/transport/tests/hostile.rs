//! A peer, or somebody who speaks in its name, that means harm: every frame has a bounded price, is counted by reason, and moves
//! nothing that it has no right to move.

mod common;

use common::{Fate, Frame, MS, Pair, Setup};
use xroce_transport::DropReason;
use xroce_transport::qp::QpInit;
use xroce_transport::qp::state::{QpState, QpType};
use xroce_transport::wc::WcStatus;
use xroce_transport::wr::{QpCap, SendOp};
use xroce_wire::{
    AethRepr, BthRepr, Gid, Headers, IpRepr, Msn, NakCode, Opcode, Operation, PKey, Psn, Qpn, RethRepr, Rkey, RnrTimer,
    Syndrome,
};

/// Headers of a packet from A to B, or from B to A, as the connection would carry them.
fn headers(pair: &Pair, to_b: bool, operation: Operation, psn: u32) -> Headers {
    let (from, to) = if to_b { (&pair.a, &pair.b) } else { (&pair.b, &pair.a) };
    let ip = IpRepr { src: from.addr, dst: to.addr, traffic_class: 0, flow_label: 0, hop_limit: 64 };
    let bth = BthRepr {
        opcode: Opcode::Rc(operation),
        solicited: false,
        migreq: true,
        pad: 0,
        pkey: PKey::DEFAULT,
        fecn: false,
        becn: false,
        dest_qp: to.qp.qpn,
        ack_req: false,
        psn: Psn::new(psn),
    };
    Headers::new(ip, 0xc001, bth)
}

fn packet(to_b: bool, headers: &Headers, payload: &[u8]) -> Frame {
    let mut bytes = vec![0; headers.packet_len(payload.len())];
    headers.emit_packet(payload, &mut bytes);
    Frame { to_b, bytes }
}

fn answer(pair: &Pair, operation: Operation, psn: u32, syndrome: Syndrome, payload: &[u8]) -> Frame {
    let mut headers = headers(pair, false, operation, psn);
    headers.aeth = Some(AethRepr { syndrome, msn: Msn::new(psn) });
    packet(false, &headers, payload)
}

const ACK: Syndrome = Syndrome::Ack { credits: 31 };
/// `a_psn` and `b_psn` of the default set-up.
const A_PSN: u32 = 100;
const FLOOD: usize = 5000;

#[test]
fn what_somebody_else_sends_in_the_name_of_the_peer_is_counted_and_moves_nothing() {
    let mut pair = Pair::new(Setup::default());
    let (far, past) = (A_PSN + (1 << 22), (A_PSN.wrapping_sub(1 << 22)) & 0xff_ffff);
    let request = |change: &dyn Fn(&mut Headers)| {
        let mut headers = headers(&pair, true, Operation::SendOnly, A_PSN);
        change(&mut headers);
        packet(true, &headers, &[7; 32])
    };
    let mut bad_icrc = request(&|_| {});
    *bad_icrc.bytes.last_mut().unwrap() ^= 1;
    let mut cnp = headers(&pair, true, Operation::SendOnly, 0);
    cnp.bth.opcode = Opcode::Cnp;
    let cnp = packet(true, &cnp, &[]);
    let stranger = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 99]);
    let rnr = Syndrome::RnrNak(RnrTimer::new(1).unwrap());
    let fatal = Syndrome::Nak(NakCode::RemoteAccessError);
    let sequence = Syndrome::Nak(NakCode::PsnSequenceError);
    let table = [
        (request(&|h| h.ip.src = stranger), DropReason::WrongAddress),
        (request(&|h| h.ip.dst = stranger), DropReason::WrongAddress),
        (bad_icrc, DropReason::BadIcrc),
        (request(&|h| h.bth.dest_qp = Qpn::new(h.bth.dest_qp.value() ^ 1 << 16)), DropReason::UnknownQp),
        (request(&|h| h.bth.dest_qp = Qpn::new(1)), DropReason::UnknownQp),
        (request(&|h| h.bth.pkey = PKey(0x8001)), DropReason::WrongPKey),
        (request(&|h| h.bth.opcode = Opcode::Uc(Operation::SendOnly)), DropReason::WrongTransport),
        (cnp, DropReason::Cnp),
        (answer(&pair, Operation::Acknowledge, far, ACK, &[]), DropReason::GhostResponse),
        (answer(&pair, Operation::Acknowledge, past, ACK, &[]), DropReason::StaleResponse),
        (answer(&pair, Operation::Acknowledge, far, rnr, &[]), DropReason::GhostResponse),
        (answer(&pair, Operation::Acknowledge, past, rnr, &[]), DropReason::StaleResponse),
        (answer(&pair, Operation::Acknowledge, far, fatal, &[]), DropReason::GhostResponse),
        (answer(&pair, Operation::Acknowledge, past, sequence, &[]), DropReason::StaleResponse),
        (answer(&pair, Operation::ReadResponseOnly, far, ACK, &[9; 1024]), DropReason::GhostResponse),
        (answer(&pair, Operation::ReadResponseOnly, past, ACK, &[9; 1024]), DropReason::StaleResponse),
    ];
    // A waits for the answer to a SEND, so that there is a timer that could be moved, and a request that could be ended.
    pair.recv_b(1, 4096, 1024);
    let source = [pair.a.sge(0, 64)];
    pair.post_a(2, SendOp::Send, &source);
    pair.transmit();
    let held = pair.wire.pop_front().expect("the SEND");
    let state = |pair: &Pair| {
        let psns = |info: xroce_transport::qp::QpInfo| (info.attr.qp_state, info.attr.sq_psn, info.attr.rq_psn);
        let (a, b) = (pair.a.ep.query_qp(pair.qpn_a()), pair.b.ep.query_qp(pair.b.qp.qpn));
        (a.map(psns), b.map(psns), pair.a.ep.poll_timeout(), pair.b.ep.poll_timeout())
    };
    let (before, sent) = (state(&pair), pair.trace.len());
    for (frame, reason) in &table {
        let node = |pair: &Pair| if frame.to_b { pair.b.ep.counters() } else { pair.a.ep.counters() };
        let counted = node(&pair).drops.get(*reason);
        for _ in 0..FLOOD {
            assert_eq!(pair.deliver(frame), Err(*reason));
        }
        assert_eq!(node(&pair).drops.get(*reason), counted + FLOOD as u64, "{reason:?}");
        pair.transmit();
        assert_eq!(pair.trace.len(), sent, "{reason:?} drew an answer");
        assert_eq!(state(&pair), before, "{reason:?} moved something");
    }
    assert!(pair.deliver(&held).is_ok());
    pair.run();
    assert_eq!(pair.a.statuses(), [(2, WcStatus::Success)]);
    assert_eq!(pair.b.statuses(), [(1, WcStatus::Success)]);
    pair.b.check_guards();
}

#[test]
fn a_response_that_nobody_asked_for_does_not_put_the_ack_timer_off() {
    let mut pair = Pair::new(Setup { retry_cnt: 1, timeout: 10, ..Setup::default() });
    let source = [pair.a.sge(0, 64)];
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    pair.post_a(1, SendOp::Write { va, rkey }, &source);
    let ghost = answer(&pair, Operation::ReadResponseOnly, A_PSN + 5000, ACK, &[0; 1024]);
    let start = pair.now;
    while pair.now.since_ns(start) < 100 * MS {
        pair.transmit();
        pair.wire.clear();
        assert!(matches!(pair.deliver(&ghost), Err(DropReason::GhostResponse | DropReason::WrongState)));
        pair.advance(MS);
        if let [(1, status)] = pair.a.statuses()[..] {
            // 4.2 ms, doubled once, and the steps of this loop.
            assert_eq!(status, WcStatus::RetryExcErr);
            let waited = pair.now.since_ns(start);
            assert!(waited < 20 * MS, "{waited} ns");
            return;
        }
    }
    panic!("the request never ended");
}

#[test]
fn a_storm_of_requests_ahead_draws_one_nak_and_duplicates_one_ack_a_round() {
    let mut pair = Pair::new(Setup::default());
    let ahead = packet(true, &headers(&pair, true, Operation::SendOnly, A_PSN + 1000), &[1; 64]);
    for _ in 0..FLOOD {
        assert_eq!(pair.deliver(&ahead), Err(DropReason::PsnAhead));
    }
    pair.transmit();
    assert_eq!(pair.sent(false), [(Operation::Acknowledge, A_PSN)]);
    assert_eq!(pair.b.ep.counters().qp.nak_seq_sent, 1);

    let mut old = headers(&pair, true, Operation::SendOnly, A_PSN - 50);
    old.bth.ack_req = true;
    let old = packet(true, &old, &[1; 64]);
    for _ in 0..FLOOD {
        assert!(pair.deliver(&old).is_ok());
    }
    pair.transmit();
    assert_eq!(pair.sent(false).len(), 2, "one ACK for all of them");
}

fn read(pair: &Pair, psn: u32, len: u32) -> Frame {
    let mut headers = headers(pair, true, Operation::ReadRequest, psn);
    headers.reth = Some(RethRepr { va: pair.b.at(0), rkey: pair.b.rkey(), len });
    packet(true, &headers, &[])
}

/// Packets of path MTU 1024 in a READ.
const READ_LEN: u32 = 256 << 10;
const READ_PACKETS: u32 = READ_LEN / 1024;

#[test]
fn asking_again_and_again_for_a_read_multiplies_nothing() {
    let mut pair = Pair::new(Setup::default());
    for _ in 0..FLOOD {
        // The first is new, the others are duplicates of it.
        assert!(pair.deliver(&read(&pair, A_PSN, READ_LEN)).is_ok());
    }
    pair.transmit();
    assert_eq!(
        pair.sent(false).len(),
        READ_PACKETS as usize,
        "one READ is answered once, however often it is asked for"
    );
    // Never asked for, or with another key, or longer than it was: nothing.
    for frame in [read(&pair, A_PSN - 9, READ_LEN), read(&pair, A_PSN, READ_LEN + 1)] {
        assert_eq!(pair.deliver(&frame), Err(DropReason::DuplicateTooOld));
    }
    pair.transmit();
    assert_eq!(pair.sent(false).len(), READ_PACKETS as usize);
}

#[test]
fn a_peer_that_asks_for_more_reads_than_agreed_is_cut_off() {
    let mut pair = Pair::new(Setup { max_dest_rd_atomic: 4, ..Setup::default() });
    let mut refused = 0;
    for i in 0..64 {
        refused += u32::from(pair.deliver(&read(&pair, A_PSN + i * READ_PACKETS, READ_LEN)).is_err());
    }
    assert_eq!(refused, 60);
    let state = pair.b.ep.query_qp(pair.b.qp.qpn).unwrap().attr.qp_state;
    assert_eq!(state, Some(QpState::Err));
    pair.transmit();
    assert!(pair.sent(false).len() <= 4 * READ_PACKETS as usize + 1, "{} packets", pair.sent(false).len());
}

#[test]
fn a_greedy_peer_leaves_the_others_their_turns() {
    let mut pair = Pair::new(Setup::default());
    // A second queue pair of B, whose peer is modest.
    let init = QpInit {
        kind: QpType::Rc,
        pd: pair.b.pd,
        send_cq: pair.b.cq.clone(),
        recv_cq: pair.b.cq.clone(),
        cap: QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 },
        sq_sig_all: false,
    };
    let modest = pair.b.ep.create_qp(init).unwrap();
    let path = pair.b.ep.query_qp(pair.b.qp.qpn).unwrap().path;
    for (attr, path) in [(pair.init_attr(), None), (pair.rtr_attr(false), path), (pair.rts_attr(false), None)] {
        pair.b.ep.modify_qp(pair.now, modest.qpn, &attr, path).unwrap();
    }
    for i in 0..4 {
        assert!(pair.deliver(&read(&pair, A_PSN + i * READ_PACKETS, READ_LEN)).is_ok());
    }
    for asked in 0..16 {
        let mut frame = read(&pair, A_PSN + asked, 1024);
        // The same packet, to the other queue pair.
        let mut headers = Headers::parse(&frame.packet());
        headers.bth.dest_qp = modest.qpn;
        frame = packet(true, &headers, &[]);
        assert!(pair.deliver(&frame).is_ok());
        let waited = packets_until(&mut pair, modest.qpn);
        assert!(waited <= 17, "request {asked} waited for {waited} packets of the greedy one");
    }
}

/// Packets that B sends until one of queue pair `qpn` leaves.
fn packets_until(pair: &mut Pair, qpn: Qpn) -> usize {
    struct Any(Vec<u8>);
    impl xroce_transport::TxSink for Any {
        fn reserve(
            &mut self,
            _: xroce_transport::PathId,
            len: usize,
            _: xroce_transport::TxClass,
        ) -> Option<xroce_transport::TxPacket<'_>> {
            Some(xroce_transport::TxPacket { head: &mut self.0[..len], tail: &mut [] })
        }
    }
    let mut sink = Any(vec![0; 8192]);
    for n in 1..10_000 {
        match pair.b.ep.poll_transmit(pair.now, &mut sink) {
            Some(transmit) if transmit.qpn == qpn => return n,
            Some(_) => {}
            None => panic!("nothing of {qpn} left"),
        }
    }
    panic!("the other starved");
}

#[test]
fn messages_that_are_begun_and_never_ended_leave_nothing_behind() {
    for kind in [QpType::Rc, QpType::Uc] {
        let mut pair = Pair::new(Setup { kind, ..Setup::default() });
        pair.recv_b(1, 0, 4096);
        let opcode = |operation| if kind == QpType::Rc { Opcode::Rc(operation) } else { Opcode::Uc(operation) };
        let mut first = headers(&pair, true, Operation::SendFirst, A_PSN);
        first.bth.opcode = opcode(Operation::SendFirst);
        assert!(pair.deliver(&packet(true, &first, &[3; 1024])).is_ok());
        // UC: begun anew each time, the RECV stays. RC: another FIRST breaks the order of opcodes and ends it.
        for i in 1..100 {
            first.bth.psn = Psn::new(A_PSN + i);
            let outcome = pair.deliver(&packet(true, &first, &[3; 1024]));
            assert_eq!(outcome.is_ok(), kind == QpType::Uc, "{kind:?} {i}: {outcome:?}");
        }
        pair.settle(|_, _| Fate::Drop);
        let statuses = pair.b.statuses();
        match kind {
            QpType::Uc => assert_eq!(statuses, []),
            QpType::Rc => assert_eq!(statuses, [(1, WcStatus::RemInvReqErr)]),
        }
        pair.b.check_guards();
    }
}

#[test]
fn a_key_is_not_found_by_trying() {
    let mut pair = Pair::new(Setup { kind: QpType::Uc, ..Setup::default() });
    pair.b.fill(0, 4096, 1);
    let memory = pair.b.bytes(0, 4096).to_vec();
    for i in 0..FLOOD as u32 {
        let mut write = headers(&pair, true, Operation::WriteOnly, A_PSN + i);
        write.bth.opcode = Opcode::Uc(Operation::WriteOnly);
        let rkey = Rkey(pair.b.key.wrapping_add(i + 1));
        write.reth = Some(RethRepr { va: pair.b.at(0), rkey, len: 64 });
        assert_eq!(pair.deliver(&packet(true, &write, &[0xff; 64])), Err(DropReason::RemoteAccess));
    }
    assert_eq!(pair.b.ep.counters().qp.resp_remote_access_errors, FLOOD as u64);
    assert_eq!(pair.b.bytes(0, 4096), memory);
}
