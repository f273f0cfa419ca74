//! RC: NAKs, timeouts, retries, RNR, duplicates, one rule a test.

mod common;

use common::{Fate, Frame, MS, Pair, Setup};
use xroce_transport::wc::WcStatus;
use xroce_transport::wr::SendOp;
use xroce_transport::{DropReason, EventKind};
use xroce_wire::{AethRepr, Headers, Lkey, Msn, NakCode, Operation::*, Psn, Rkey, RnrTimer, Syndrome};

const OK: WcStatus = WcStatus::Success;
const FLUSH: WcStatus = WcStatus::WrFlushErr;

fn write(pair: &mut Pair, id: u64, len: u32) {
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    let sges = [pair.a.sge(0, len)];
    pair.post_a(id, SendOp::Write { va, rkey }, &sges);
}

fn read(pair: &mut Pair, id: u64, len: u32) {
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    let sges = [pair.a.sge(100_000, len)];
    pair.post_a(id, SendOp::Read { va, rkey }, &sges);
}

fn send(pair: &mut Pair, id: u64, len: u32) {
    let sges = [pair.a.sge(0, len)];
    pair.post_a(id, SendOp::Send, &sges);
}

/// A response from B to A made by hand.
fn response(pair: &Pair, psn: u32, syndrome: Syndrome, msn: u32) -> Frame {
    let template = pair.trace.iter().find(|f| f.to_b).expect("A has sent something");
    let mut headers = Headers::parse(&template.packet());
    (headers.ip.src, headers.ip.dst) = (pair.b.addr, pair.a.addr);
    headers.bth.opcode = xroce_wire::Opcode::Rc(Acknowledge);
    headers.bth.dest_qp = pair.a.qp.qpn;
    headers.bth.psn = Psn::new(psn);
    (headers.bth.ack_req, headers.bth.solicited) = (false, false);
    (headers.reth, headers.imm, headers.ieth, headers.atomic_eth) = (None, None, None, None);
    headers.aeth = Some(AethRepr { syndrome, msn: Msn::new(msn) });
    let mut bytes = vec![0; headers.packet_len(0)];
    headers.emit_packet(&[], &mut bytes);
    Frame { to_b: false, bytes }
}

const ACK: Syndrome = Syndrome::Ack { credits: 0x1f };
const NAK_SEQ: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);

#[test]
fn a_gap_is_answered_by_one_nak_and_the_rest_is_sent_again() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 5 * 1024);
    pair.settle(|i, _| if i == 1 { Fate::Drop } else { Fate::Deliver });
    assert_eq!(
        pair.sent(true),
        [
            (WriteFirst, 100),
            (WriteMiddle, 101),
            (WriteMiddle, 102),
            (WriteMiddle, 103),
            (WriteLast, 104),
            (WriteMiddle, 101),
            (WriteMiddle, 102),
            (WriteMiddle, 103),
            (WriteLast, 104),
        ]
    );
    assert_eq!(pair.sent(false), [(Acknowledge, 101), (Acknowledge, 104)]);
    let nak = pair.trace.iter().find(|f| !f.to_b).unwrap().packet().aeth().unwrap();
    assert_eq!((nak.syndrome, nak.msn.value()), (NAK_SEQ, 0));
    assert_eq!(pair.a.statuses(), [(1, OK)]);
    assert_eq!(pair.a.ep.counters().qp.rcvd_seq_err, 1);
    assert_eq!(pair.b.ep.counters().drops.get(DropReason::PsnAhead), 3);
}

#[test]
fn the_same_nak_again_starts_no_second_resend() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 1024);
    pair.transmit();
    pair.wire.clear();
    let nak = response(&pair, 100, NAK_SEQ, 0);
    for _ in 0..6 {
        let _ = pair.deliver(&nak);
        pair.transmit();
    }
    assert_eq!(pair.sent(true), [(WriteOnly, 100), (WriteOnly, 100)]);
}

#[test]
fn a_lost_ack_costs_one_timeout_and_the_duplicate_is_acknowledged() {
    let mut pair = Pair::new(Setup { timeout: 14, ..Setup::default() });
    pair.recv_b(9, 0, 64);
    send(&mut pair, 1, 64);
    let start = pair.now;
    pair.settle(|_, f| if f.to_b { Fate::Deliver } else { Fate::Drop });
    assert!(pair.a.poll().is_empty());
    while pair.sent(true).len() < 2 {
        assert!(pair.tick());
        pair.transmit();
    }
    let waited = pair.now.since_ns(start);
    assert!((4096 << 14..4 * (4096 << 14)).contains(&waited), "T..4T, was {waited}");
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK)]);
    assert_eq!(pair.b.statuses(), [(9, OK)], "received once");
    assert_eq!(pair.b.ep.counters().qp.duplicate_request, 1);
}

#[test]
fn retry_cnt_is_the_number_of_resends_and_seven_means_seven() {
    for retry_cnt in [0, 1, 3, 7] {
        let mut pair = Pair::new(Setup { retry_cnt, ..Setup::default() });
        write(&mut pair, 1, 10);
        write(&mut pair, 2, 10);
        pair.run_timed(100, |_, _| Fate::Drop);
        let of_first = pair.sent(true).iter().filter(|(_, psn)| *psn == 100).count();
        assert_eq!(of_first, 1 + usize::from(retry_cnt));
        assert_eq!(pair.a.statuses(), [(1, WcStatus::RetryExcErr), (2, FLUSH)]);
        // What is posted later is flushed too.
        write(&mut pair, 3, 10);
        assert_eq!(pair.a.statuses(), [(3, FLUSH)]);
    }
}

#[test]
fn timeout_zero_is_no_timer() {
    let mut pair = Pair::new(Setup { timeout: 0, ..Setup::default() });
    write(&mut pair, 1, 10);
    pair.settle(|_, _| Fate::Drop);
    assert!(!pair.tick());
}

#[test]
fn an_ack_for_a_later_request_completes_the_earlier_ones() {
    let mut pair = Pair::new(Setup::default());
    for id in 1..=3 {
        write(&mut pair, id, 2048);
    }
    pair.transmit();
    let _ = pair.deliver(&response(&pair, 103, ACK, 2));
    assert_eq!(pair.a.statuses(), [(1, OK), (2, OK)]);
    // In the middle of the third: progress without completion, and the resend starts behind it.
    let _ = pair.deliver(&response(&pair, 104, ACK, 2));
    assert!(pair.a.poll().is_empty());
    pair.trace.clear();
    while pair.trace.is_empty() {
        assert!(pair.tick());
        pair.transmit();
    }
    assert_eq!(pair.sent(true), [(WriteLast, 105)]);
}

#[test]
fn ghost_and_stale_acks_are_ignored() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 10);
    pair.transmit();
    for psn in [101, 102, 5000, 99, 0xFF_FFFF] {
        for syndrome in
            [ACK, NAK_SEQ, Syndrome::Nak(NakCode::RemoteAccessError), Syndrome::RnrNak(RnrTimer::new(1).unwrap())]
        {
            let ghost = response(&pair, psn, syndrome, 1);
            let expected =
                if psn == 99 || psn == 0xFF_FFFF { DropReason::StaleResponse } else { DropReason::GhostResponse };
            assert_eq!(pair.deliver(&ghost), Err(expected), "{psn} {syndrome:?}");
        }
    }
    assert!(pair.a.poll().is_empty());
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK)]);
}

#[test]
fn reserved_syndromes_are_ignored() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 10);
    pair.transmit();
    for byte in [0x40, 0x5F, 0x80, 0xFF, 0x64, 0x65, 0x7F] {
        let frame = response(&pair, 100, Syndrome::from_byte(byte), 1);
        assert_eq!(pair.deliver(&frame), Err(DropReason::ReservedSyndrome), "{byte:#x}");
    }
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK)]);
}

#[test]
fn fatal_naks_end_the_request_they_belong_to() {
    for (code, status) in [
        (NakCode::InvalidRequest, WcStatus::RemInvReqErr),
        (NakCode::RemoteAccessError, WcStatus::RemAccessErr),
        (NakCode::RemoteOperationalError, WcStatus::RemOpErr),
    ] {
        let mut pair = Pair::new(Setup::default());
        for id in 1..=3 {
            write(&mut pair, id, 10);
        }
        pair.transmit();
        let _ = pair.deliver(&response(&pair, 101, Syndrome::Nak(code), 1));
        assert_eq!(pair.a.statuses(), [(1, OK), (2, status), (3, FLUSH)]);
    }
}

#[test]
fn an_ack_beyond_a_read_asks_for_the_read_again() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 10);
    read(&mut pair, 2, 10);
    write(&mut pair, 3, 10);
    pair.transmit();
    pair.trace.clear();
    let frame = pair.trace.first().cloned();
    assert!(frame.is_none());
    // W100 R101 W102, and an ACK for 102 alone.
    let template = pair.wire[0].clone();
    pair.trace.push(template);
    let ack = response(&pair, 102, ACK, 3);
    pair.trace.clear();
    let _ = pair.deliver(&ack);
    assert_eq!(pair.a.statuses(), [(1, OK)]);
    pair.transmit();
    assert_eq!(pair.sent(true), [(ReadRequest, 101), (WriteOnly, 102)]);
    assert_eq!(pair.a.ep.counters().qp.implied_nak_seq_err, 1);
}

#[test]
fn a_lost_read_response_is_asked_for_from_there_on() {
    for lost in 0..5u32 {
        let mut pair = Pair::new(Setup::default());
        pair.b.fill(0, 5000, 3);
        read(&mut pair, 1, 5000);
        let mut dropped = false;
        pair.run_timed(10, |_, f| {
            let hit = !dropped && !f.to_b && f.psn() == 100 + lost;
            dropped |= hit;
            if hit { Fate::Drop } else { Fate::Deliver }
        });
        assert_eq!(pair.a.statuses(), [(1, OK)]);
        assert_eq!(pair.a.bytes(100_000, 5000), pair.b.bytes(0, 5000));
        let requests: Vec<_> = pair.trace.iter().filter(|f| f.to_b).collect();
        assert_eq!(requests.len(), 2);
        let again = requests[1].packet();
        let reth = again.reth().unwrap();
        assert_eq!((again.psn().value(), reth.len), (100 + lost, 5000 - 1024 * lost));
        assert_eq!(reth.va, pair.b.at(1024 * lost as usize));
    }
}

#[test]
fn read_responses_of_the_wrong_size_fail_the_read() {
    for (len, asked) in [(10, 20), (20, 10)] {
        let mut pair = Pair::new(Setup::default());
        read(&mut pair, 1, asked);
        pair.transmit();
        let mut headers = Headers::parse(&response(&pair, 100, ACK, 1).packet());
        headers.bth.opcode = xroce_wire::Opcode::Rc(ReadResponseOnly);
        let mut bytes = vec![0; headers.packet_len(len)];
        headers.emit_packet(&vec![1; len], &mut bytes);
        let _ = pair.deliver(&Frame { to_b: false, bytes });
        assert_eq!(pair.a.statuses(), [(1, WcStatus::LocLenErr)]);
    }
}

#[test]
fn h16_rnr_waits_at_least_the_coded_time_then_succeeds() {
    for code in 0..32u8 {
        let mut pair = Pair::new(Setup { min_rnr_timer: code, ..Setup::default() });
        send(&mut pair, 1, 100);
        write(&mut pair, 2, 10);
        pair.run();
        assert!(pair.a.poll().is_empty());
        assert_eq!(pair.sent(false).len(), 1, "the packet behind is dropped in silence");
        let start = pair.now;
        pair.recv_b(9, 0, 100);
        // Neither posts nor early ticks shorten the wait.
        write(&mut pair, 3, 10);
        let sent = pair.sent(true).len();
        while pair.sent(true).len() == sent {
            assert!(pair.tick());
            pair.transmit();
        }
        let waited = pair.now.since_ns(start);
        let coded = RnrTimer::new(code).unwrap().ns();
        assert!((coded..coded + coded / 2 + 100_000).contains(&waited), "code {code}: {waited} ns for {coded}");
        pair.run();
        assert_eq!(pair.a.statuses(), [(1, OK), (2, OK), (3, OK)]);
        assert_eq!(pair.b.statuses(), [(9, OK)]);
    }
}

/// Reports H15, H17.
#[test]
fn h15_rnr_retry_counts_waits_and_seven_is_for_ever() {
    for rnr_retry in [0, 1, 6] {
        let mut pair = Pair::new(Setup { rnr_retry, ..Setup::default() });
        for id in 1..=3 {
            send(&mut pair, id, 10);
        }
        pair.run_timed(100, |_, _| Fate::Deliver);
        assert_eq!(pair.a.statuses(), [(1, WcStatus::RnrRetryExcErr), (2, FLUSH), (3, FLUSH)]);
        let of_first = pair.sent(true).iter().filter(|(_, psn)| *psn == 100).count();
        assert_eq!(of_first, 1 + usize::from(rnr_retry));
        assert_eq!(pair.a.ep.counters().qp.rcvd_rnr_err, 1 + u64::from(rnr_retry));
        pair.recv_b(9, 0, 10);
        pair.run();
        assert!(pair.b.poll().is_empty(), "a late RECV gives nothing");
    }
    let mut pair = Pair::new(Setup { rnr_retry: 7, ..Setup::default() });
    send(&mut pair, 1, 10);
    for _ in 0..40 {
        pair.run();
        assert!(pair.tick());
    }
    assert!(pair.a.poll().is_empty());
    pair.recv_b(9, 0, 10);
    pair.run_timed(100, |_, _| Fate::Deliver);
    assert_eq!(pair.a.statuses(), [(1, OK)]);
}

#[test]
fn the_responder_refuses_what_it_must_and_says_why() {
    use xroce_transport::memory::Access;
    type Case = (&'static str, fn(&mut Pair), WcStatus, Option<EventKind>);
    let cases: [Case; 7] = [
        (
            "unknown key",
            |p| {
                let sges = [p.a.sge(0, 8)];
                let va = p.b.at(0);
                let rkey = Rkey(p.b.key ^ 0x1000);
                p.post_a(1, SendOp::Write { va, rkey }, &sges);
            },
            WcStatus::RemAccessErr,
            Some(EventKind::QpAccessErr),
        ),
        (
            "one byte beyond the end",
            |p| {
                let sges = [p.a.sge(0, 9)];
                let (va, rkey) = (p.b.at((1 << 20) - 8), p.b.rkey());
                p.post_a(1, SendOp::Write { va, rkey }, &sges);
            },
            WcStatus::RemAccessErr,
            Some(EventKind::QpAccessErr),
        ),
        (
            "address that wraps",
            |p| {
                let sges = [p.a.sge(0, 8)];
                let rkey = p.b.rkey();
                p.post_a(1, SendOp::Write { va: u64::MAX - 3, rkey }, &sges);
            },
            WcStatus::RemAccessErr,
            Some(EventKind::QpAccessErr),
        ),
        (
            "READ beyond the end",
            |p| {
                let sges = [p.a.sge(0, 16)];
                let (va, rkey) = (p.b.at((1 << 20) - 8), p.b.rkey());
                p.post_a(1, SendOp::Read { va, rkey }, &sges);
            },
            WcStatus::RemAccessErr,
            Some(EventKind::QpAccessErr),
        ),
        (
            "misaligned atomic",
            |p| {
                let sges = [p.a.sge(0, 8)];
                let (va, rkey) = ((p.b.at(0) & !7) + 12, p.b.rkey());
                p.post_a(1, SendOp::FetchAdd { va, rkey, add: 1 }, &sges);
            },
            WcStatus::RemInvReqErr,
            Some(EventKind::QpReqErr),
        ),
        (
            "SEND longer than the RECV",
            |p| {
                p.recv_b(9, 0, 64);
                let sges = [p.a.sge(0, 65)];
                p.post_a(1, SendOp::Send, &sges);
            },
            WcStatus::RemInvReqErr,
            None,
        ),
        (
            "QP without the right",
            |p| {
                let attr = xroce_transport::qp::state::QpAttr {
                    qp_access_flags: Some(Access::REMOTE_READ),
                    ..Default::default()
                };
                p.modify(false, &attr, false).unwrap();
                let sges = [p.a.sge(0, 8)];
                let (va, rkey) = (p.b.at(0), p.b.rkey());
                p.post_a(1, SendOp::Write { va, rkey }, &sges);
            },
            WcStatus::RemInvReqErr,
            Some(EventKind::QpReqErr),
        ),
    ];
    for (name, post, status, event) in cases {
        let mut pair = Pair::new(Setup::default());
        let before = pair.b.bytes(0, 1 << 20).to_vec();
        post(&mut pair);
        write(&mut pair, 2, 8);
        pair.run_timed(100, |_, _| Fate::Deliver);
        assert_eq!(pair.a.statuses(), [(1, status), (2, FLUSH)], "{name}");
        let events: Vec<_> = std::iter::from_fn(|| pair.b.ep.poll_event()).map(|e| e.kind).collect();
        assert_eq!(events, event.into_iter().collect::<Vec<_>>(), "{name}");
        let recvs = pair.b.statuses();
        if event.is_none() {
            assert_eq!(recvs, [(9, WcStatus::LocLenErr)], "{name}");
        } else {
            assert!(recvs.is_empty(), "{name}");
        }
        assert!(before == pair.b.bytes(0, 1 << 20), "{name}: memory was touched");
        pair.b.check_guards();
    }
}

#[test]
fn h21_zero_length_looks_at_no_key() {
    // Six requests, and the answers of the three READs, which speak for the WRITEs too; each frame is lost once.
    const FRAMES: usize = 9;
    for lost in 0..FRAMES {
        let mut pair = Pair::new(Setup::default());
        let stale = pair.b.rkey();
        pair.b.mem.deregister(Lkey(pair.b.key)).unwrap();
        for (id, rkey) in [(1, Rkey(0)), (2, Rkey(u32::MAX)), (3, stale)] {
            pair.post_a(id, SendOp::Write { va: u64::MAX, rkey }, &[]);
            pair.post_a(id + 10, SendOp::Read { va: u64::MAX, rkey }, &[]);
        }
        pair.run_timed(100, |i, _| if i == lost { Fate::Drop } else { Fate::Deliver });
        assert_eq!(pair.a.statuses(), [(1, OK), (11, OK), (2, OK), (12, OK), (3, OK), (13, OK)], "frame {lost} lost");
        assert!(pair.trace.len() > FRAMES, "something was sent or answered again");
        let sq_psn = pair.a.ep.query_qp(pair.qpn_a()).unwrap().attr.sq_psn;
        assert_eq!(sq_psn, Some(Psn::new(106)), "each counts as one PSN");
    }
}

#[test]
fn a_local_fault_ends_its_own_request_after_the_earlier_ones() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 2048);
    let mut bad = pair.a.sge(0, 8);
    bad.lkey = xroce_wire::Lkey(1);
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    pair.post_a(2, SendOp::Write { va, rkey }, &[bad]);
    write(&mut pair, 3, 8);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK), (2, WcStatus::LocProtErr), (3, FLUSH)]);
    assert!(!pair.tick() || pair.sent(true).len() == 2);
}

#[test]
fn a_bad_recv_buffer_is_remote_operational_for_the_sender() {
    let mut pair = Pair::new(Setup::default());
    let mut sge = pair.b.sge(0, 64);
    sge.lkey = xroce_wire::Lkey(1);
    pair.b.qp.rq.post(&xroce_transport::wr::RecvWr { wr_id: xroce_transport::wr::WrId(9), sges: &[sge] }).unwrap();
    send(&mut pair, 1, 64);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, WcStatus::RemOpErr)]);
    assert_eq!(pair.b.statuses(), [(9, WcStatus::LocProtErr)]);
}

#[test]
fn no_more_reads_than_max_rd_atomic_are_outstanding() {
    for max in 1..=4u8 {
        let mut pair = Pair::new(Setup { max_rd_atomic: max, ..Setup::default() });
        for id in 0..8 {
            read(&mut pair, id, 10);
        }
        pair.transmit();
        assert_eq!(pair.wire.len(), usize::from(max));
        pair.run();
        assert_eq!(pair.a.statuses().len(), 8);
    }
}

#[test]
fn a_responder_keeps_resources_for_the_next_power_of_two_and_refuses_more() {
    // The peer believes that it may have 8; this end serves 3, rounded up to 4.
    let mut pair = Pair::new(Setup { max_rd_atomic: 8, max_dest_rd_atomic: 3, ..Setup::default() });
    for id in 0..5 {
        read(&mut pair, id, 10);
    }
    pair.transmit();
    assert_eq!(pair.wire.len(), 5);
    let frames: Vec<_> = pair.wire.drain(..).collect();
    let outcomes: Vec<_> = frames.iter().map(|f| pair.deliver(f)).collect();
    assert_eq!(outcomes, [Ok(()), Ok(()), Ok(()), Ok(()), Err(DropReason::InvalidRequest)]);
}

#[test]
fn acks_are_fewer_than_packets() {
    let mut pair = Pair::new(Setup::default());
    for id in 0..64 {
        write(&mut pair, id, 64);
    }
    pair.run();
    assert_eq!(pair.a.statuses().len(), 64);
    assert!(pair.sent(false).len() <= 4, "{} ACKs for 64 packets", pair.sent(false).len());
}

#[test]
fn a_bad_icrc_changes_nothing() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 100);
    pair.transmit();
    let good = pair.wire.pop_front().unwrap();
    let mut bad = good.clone();
    let n = bad.bytes.len();
    bad.bytes[n - 20] ^= 1;
    assert_eq!(pair.deliver(&bad), Err(DropReason::BadIcrc));
    assert_eq!(pair.deliver(&good), Ok(()));
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, OK)]);
}

#[test]
fn packets_from_elsewhere_are_dropped_before_anything_changes() {
    let mut pair = Pair::new(Setup::default());
    write(&mut pair, 1, 100);
    pair.transmit();
    let frame = pair.wire[0].clone();
    let change = |f: &dyn Fn(&mut Headers)| {
        let mut headers = Headers::parse(&frame.packet());
        f(&mut headers);
        let mut bytes = vec![0; headers.packet_len(100)];
        headers.emit_packet(&[0; 100], &mut bytes);
        Frame { to_b: true, bytes }
    };
    let other = xroce_wire::Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 99]);
    let cases = [
        (change(&|h| h.ip.src = other), DropReason::WrongAddress),
        (change(&|h| h.ip.dst = other), DropReason::WrongAddress),
        (change(&|h| h.bth.pkey = xroce_wire::PKey(0x1234)), DropReason::WrongPKey),
        (change(&|h| h.bth.dest_qp = xroce_wire::Qpn::new(0x77)), DropReason::UnknownQp),
        (change(&|h| h.bth.opcode = xroce_wire::Opcode::Uc(WriteOnly)), DropReason::WrongTransport),
    ];
    for (frame, reason) in cases {
        assert_eq!(pair.deliver(&frame), Err(reason));
        assert_eq!(
            pair.b.ep.counters().drops.get(reason),
            if reason == DropReason::WrongAddress { pair.b.ep.counters().drops.get(reason) } else { 1 }
        );
    }
    // A limited member of the partition may talk to a full one.
    assert_eq!(pair.deliver(&change(&|h| h.bth.pkey = xroce_wire::PKey(0x7FFF))), Ok(()));
}

#[test]
fn the_peer_is_dead_in_bounded_time() {
    let mut pair = Pair::new(Setup { timeout: 10, retry_cnt: 3, ..Setup::default() });
    write(&mut pair, 1, 10);
    let start = pair.now;
    pair.run_timed(100, |_, _| Fate::Drop);
    let took = pair.now.since_ns(start);
    assert_eq!(pair.a.statuses(), [(1, WcStatus::RetryExcErr)]);
    assert!(took < 4 * 4 * (4096 << 10) && took > 4 * (4096 << 10) - MS, "{took}");
}

#[test]
fn a_path_without_answers_is_told_once_until_it_is_asked_for() {
    let mut pair = Pair::new(Setup { retry_cnt: 3, ..Setup::default() });
    write(&mut pair, 1, 8);
    pair.run_timed(32, |_, _| Fate::Drop);
    assert_eq!(pair.a.ep.counters().qp.local_ack_timeout_err, 4);
    assert!(pair.a.ep.poll_unanswered().is_some());
    assert_eq!(pair.a.ep.poll_unanswered(), None);
}
