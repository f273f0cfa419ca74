//! What must fail, and how: each case in both directions. Enters: a station, who asks, over which IP. Leaves: nothing; a
//! difference that is not among the [`Known`] ones is a panic.
//!
//! In all of them the one who asks is called the requester, and nothing of the other's memory may change.

use std::thread;
use std::time::{Duration, Instant};

use xroce::{AsyncEventKind, QpState};

use super::exchange::{Invalidatable, Operation, assert_success, exchange};
use super::table::Delivery;
use super::{Family, Guarded, Known, Link, LinkSpec, Side, Station, WAIT};
use crate::rxe::{self, Access, Op, QpKind, RecvWr, SendWr, Wc, status};

/// One case, run both ways over both families.
pub struct Case {
    /// For tables.
    pub name: &'static str,
    /// Whether lost frames may make it fail.
    pub delivery: Delivery,
    /// Runs it.
    pub run: fn(&mut Station, Side, Family),
}

impl Case {
    /// One over RC.
    pub const fn rc(name: &'static str, run: fn(&mut Station, Side, Family)) -> Self {
        Self { name, delivery: Delivery::Reliable, run }
    }

    /// One over UC.
    pub const fn uc(name: &'static str, run: fn(&mut Station, Side, Family)) -> Self {
        Self { name, delivery: Delivery::Unreliable, run }
    }
}

/// All of them.
pub const CASES: &[Case] = &[
    Case::rc("unknown rkey", unknown_rkey),
    Case::rc("out of bounds", out_of_bounds),
    Case::rc("right missing in the region", region_without_right),
    Case::rc("right missing in the QP", qp_without_right),
    Case::rc("misaligned atomic", misaligned_atomic),
    Case::rc("invalidated rkey", invalidated_rkey),
    Case::rc("no RECV, then one", late_recv),
    Case::rc("no RECV, RNR exhausted", rnr_exhausted),
    Case::rc("SEND longer than the RECV", long_send),
    Case::rc("requests before the bad one succeed", earlier_requests_succeed),
    Case::rc("QP of the peer destroyed", peer_destroyed),
];

const SEED: u64 = 0xbad;
const LEN: u32 = 3000;

/// A pair whose target memory has a pattern that must stay.
fn link<'a>(station: &'a mut Station, requester: Side, family: Family, change: fn(&mut LinkSpec)) -> Link<'a> {
    let mut spec = LinkSpec::new(QpKind::Rc, family, 1024);
    change(&mut spec);
    let mut link = Link::new(station, spec);
    link.fill(requester.other(), 0, 16 << 10, SEED, 0);
    link
}

/// The requester's `op` ends with `wanted`, its QP is in ERR and flushes; so is the responder's, whose memory is as it was.
#[track_caller]
fn assert_refused(link: &mut Link<'_>, requester: Side, op: Op, len: u32, wanted: u32) {
    let responder = requester.other();
    link.post_recv(requester, &RecvWr::new(70, &[]));
    link.post_recv(responder, &RecvWr::new(71, &[link.sge(responder, 8192, 64)]));
    link.post_send(requester, &SendWr::new(1, op, &[link.sge(requester, 4096, len)]));
    let wc = link.sent(requester);
    assert_eq!((wc.wr_id, wc.status), (1, wanted), "{op:?} of {len} bytes by {requester:?}: {wc:?}");
    assert_flushes(link, requester, &[70]);
    assert_responder_failed(link, responder, 71);
    link.verify(responder, 0, 16 << 10, SEED, 0);
    for side in Side::BOTH {
        link.assert_guard(side);
    }
}

/// A QP in ERR: RECVs posted before and SENDs posted now come back flushed.
#[track_caller]
pub(super) fn assert_flushes(link: &mut Link<'_>, side: Side, recvs: &[u64]) {
    let flushed: Vec<_> = link.recv_done(side, recvs.len(), WAIT).iter().map(|wc| (wc.wr_id, wc.status)).collect();
    let wanted: Vec<_> = recvs.iter().map(|&id| (id, status::WR_FLUSH_ERR)).collect();
    assert_eq!(flushed, wanted, "{side:?}: RECVs flushed");
    match side {
        Side::Ours => assert_eq!(link.our_qp.as_ref().expect("there").state(), QpState::Err),
        Side::Peer => {
            let qp = link.peer_qp.expect("there");
            assert_eq!(link.station.peer.agent.qp_state(qp).expect("asked"), rxe::QpState::Err);
        }
    }
    link.post_send(side, &SendWr::new(99, Op::Send, &[]));
    let wc = link.sent(side);
    assert_eq!((wc.wr_id, wc.status), (99, status::WR_FLUSH_ERR), "{side:?}: what is posted in ERR");
}

/// The responder's QP is in ERR too and its RECV flushed; ours also raises an event.
#[track_caller]
fn assert_responder_failed(link: &mut Link<'_>, responder: Side, recv: u64) {
    assert_flushes(link, responder, &[recv]);
    if responder == Side::Ours {
        let qpn = link.our_qp.as_ref().expect("there").qpn();
        let kind = loop {
            let event = link.station.ours().context.get_async_event(Some(WAIT)).expect("events").expect("an event");
            if event.qpn == Some(qpn) && event.kind != AsyncEventKind::CommEst {
                break event.kind;
            }
        };
        assert!(matches!(kind, AsyncEventKind::QpAccessErr | AsyncEventKind::QpReqErr), "{kind:?}");
    }
}

/// WRITE, READ and FETCH_ADD at one place.
fn three(va: u64, rkey: u32) -> [(Op, u32); 3] {
    [(Op::Write { va, rkey }, LEN), (Op::Read { va, rkey }, LEN), (Op::FetchAdd { va, rkey, add: 1 }, 8)]
}

fn unknown_rkey(station: &mut Station, requester: Side, family: Family) {
    for i in 0..3 {
        let mut link = link(station, requester, family, |_| ());
        let (va, rkey) = link.remote(requester.other(), 4096 + 5);
        let (op, len) = three(va.next_multiple_of(8), rkey ^ 0x0100_0010)[i];
        assert_refused(&mut link, requester, op, len, status::REM_ACCESS_ERR);
    }
}

fn out_of_bounds(station: &mut Station, requester: Side, family: Family) {
    for i in 0..4 {
        let mut link = link(station, requester, family, |_| ());
        let (end, rkey) = link.remote(requester.other(), link.station.buf_len);
        let (start, _) = link.remote(requester.other(), 0);
        let (op, len) = match i {
            // One byte beyond, one byte before, past the end of the address space, a word beyond.
            0 => (Op::Write { va: end - u64::from(LEN) + 1, rkey }, LEN),
            1 => (Op::Read { va: start - 1, rkey }, LEN),
            2 => (Op::Read { va: u64::MAX - 3, rkey }, 8),
            _ => (Op::FetchAdd { va: end.next_multiple_of(8), rkey, add: 1 }, 8),
        };
        assert_refused(&mut link, requester, op, len, status::REM_ACCESS_ERR);
    }
}

/// A further region of a side, with fewer rights or of another size than the one of all cases.
pub(super) enum Limited {
    Ours(Guarded),
    Peer(rxe::Mr),
}

impl Limited {
    pub(super) fn new(link: &mut Link<'_>, side: Side, rights: Access) -> Self {
        let rights = rights | Access::LOCAL_WRITE;
        match side {
            Side::Ours => {
                let rights = xroce::Access::from_bits_truncate(rights.bits());
                Self::Ours(Guarded::new(&link.station.ours().pd, 8192, rights).expect("a region"))
            }
            Side::Peer => {
                let peer = &mut link.station.peer;
                Self::Peer(peer.agent.reg_mr_part(peer.pd, peer.buf, 0, 8192, rights, None).expect("a region"))
            }
        }
    }

    pub(super) fn remote(&self) -> (u64, u32) {
        match self {
            Self::Ours(memory) => (memory.mr().addr(), memory.mr().rkey().0),
            Self::Peer(mr) => (mr.va, mr.rkey),
        }
    }

    pub(super) fn give_back(self, link: &mut Link<'_>) {
        if let Self::Peer(mr) = self {
            link.station.peer.agent.destroy(mr).expect("nothing holds it");
        }
    }
}

const REMOTE: [Access; 3] = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];

fn region_without_right(station: &mut Station, requester: Side, family: Family) {
    for (i, lacking) in REMOTE.into_iter().enumerate() {
        let mut link = link(station, requester, family, |_| ());
        let rights = (Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC) - lacking;
        let region = Limited::new(&mut link, requester.other(), rights);
        let (va, rkey) = region.remote();
        let (op, len) = three(va.next_multiple_of(8), rkey)[i];
        assert_refused(&mut link, requester, op, len, status::REM_ACCESS_ERR);
        region.give_back(&mut link);
    }
}

fn qp_without_right(station: &mut Station, requester: Side, family: Family) {
    let changes: [fn(&mut LinkSpec); 3] = [
        |spec| spec.access -= Access::REMOTE_WRITE,
        |spec| spec.access -= Access::REMOTE_READ,
        |spec| spec.access -= Access::REMOTE_ATOMIC,
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let mut link = link(station, requester, family, change);
        let (va, rkey) = link.remote(requester.other(), 4096 + 5);
        let (op, len) = three(va.next_multiple_of(8), rkey)[i];
        assert_refused(&mut link, requester, op, len, status::REM_INV_REQ_ERR);
    }
}

/// Ours only asks: rxe refuses it when it is posted.
fn misaligned_atomic(station: &mut Station, requester: Side, family: Family) {
    if requester == Side::Peer {
        return;
    }
    let mut link = link(station, requester, family, |_| ());
    let (va, rkey) = link.remote(requester.other(), 4096);
    let op = Op::CmpSwap { va: va.next_multiple_of(8) + 4, rkey, compare: 0, swap: 1 };
    assert_refused(&mut link, requester, op, 8, status::REM_INV_REQ_ERR);
}

/// A key that a SEND with invalidate took away serves no more.
fn invalidated_rkey(station: &mut Station, requester: Side, family: Family) {
    let mut link = link(station, requester, family, |_| ());
    let responder = requester.other();
    let target = Invalidatable::new(&mut link, responder);
    let write = Op::Write { va: target.va, rkey: target.rkey };
    link.post_send(requester, &SendWr::new(1, write, &[link.sge(requester, 4096, 16)]));
    assert_success(&link.sent(requester), 1, 1);
    link.post_recv(responder, &RecvWr::new(2, &[]));
    link.post_send(requester, &SendWr::new(3, Op::SendInv(target.rkey), &[]));
    assert_success(&link.sent(requester), 3, 0);
    assert_success(&link.received(responder), 2, 128);
    link.fill(responder, 0, 16 << 10, SEED, 0);
    assert_refused(&mut link, requester, write, 16, status::REM_ACCESS_ERR);
    target.give_back(&mut link);
}

/// Long and short SENDs and a WRITE_IMM wait for their RECVs, and for no longer than they must.
fn late_recv(station: &mut Station, requester: Side, family: Family) {
    let responder = requester.other();
    let mut link = link(station, requester, family, |spec| spec.rnr_retry = 7);
    let (va, rkey) = link.remote(responder, 8192);
    let write = Op::WriteImm { va, rkey, imm: 5 };
    for (i, op) in [Op::Send, Op::SendImm(5), write].into_iter().enumerate() {
        let seed = 100 + i as u64;
        link.fill(requester, 4096, 10_000, seed, 0);
        link.post_send(requester, &SendWr::new(1, op, &[link.sge(requester, 4096, 10_000)]));
        // Behind the one that waits, and not to arrive before it.
        link.post_send(requester, &SendWr::new(2, Op::Send, &[link.sge(requester, 4096, 10)]));
        assert_eq!(link.send_done(requester, 1, Duration::from_millis(50)), [], "nothing is done without a RECV");
        link.post_recv(responder, &RecvWr::new(3, &[link.sge(responder, 8192, 10_000)]));
        link.post_recv(responder, &RecvWr::new(4, &[link.sge(responder, 64, 10)]));
        for (id, len) in [(3, 10_000), (4, 10)] {
            let wc = link.received(responder);
            assert!(wc.ok() && wc.wr_id == id && wc.byte_len == len, "{wc:?}");
        }
        for id in [1, 2] {
            let wc = link.sent(requester);
            assert!(wc.ok() && wc.wr_id == id, "{wc:?}");
        }
        link.verify(responder, 8192, 10_000, seed, 0);
        link.verify(responder, 64, 10, seed, 0);
    }
}

fn rnr_exhausted(station: &mut Station, requester: Side, family: Family) {
    for op in [Op::Send, Op::SendImm(1)] {
        let mut link = link(station, requester, family, |spec| spec.rnr_retry = 2);
        link.post_recv(requester, &RecvWr::new(70, &[]));
        link.post_send(requester, &SendWr::new(1, op, &[link.sge(requester, 4096, LEN)]));
        let wc = link.sent(requester);
        assert_eq!((wc.wr_id, wc.status), (1, status::RNR_RETRY_EXC_ERR), "{wc:?}");
        assert_flushes(&mut link, requester, &[70]);
        link.verify(requester.other(), 0, 16 << 10, SEED, 0);
    }
}

/// In one packet and in several; the RECV is one byte too short.
fn long_send(station: &mut Station, requester: Side, family: Family) {
    for len in [100, 5000] {
        let mut link = link(station, requester, family, |_| ());
        let responder = requester.other();
        link.post_recv(responder, &RecvWr::new(2, &[link.sge(responder, 20 << 10, len - 1)]));
        link.post_send(requester, &SendWr::new(1, Op::Send, &[link.sge(requester, 4096, len)]));
        let sent = link.sent(requester);
        let received = link.received(responder);
        let known = if responder == Side::Peer {
            [Known::LongSendIsOperationalError, Known::LongSendRecvIsQpOperation].map(Some)
        } else {
            [None, None]
        };
        assert_status(&mut link, &sent, 1, status::REM_INV_REQ_ERR, status::REM_OP_ERR, known[0]);
        assert_status(&mut link, &received, 2, status::LOC_LEN_ERR, status::LOC_QP_OP_ERR, known[1]);
        link.verify(responder, 0, 16 << 10, SEED, 0);
        for side in Side::BOTH {
            link.assert_guard(side);
        }
    }
}

/// A status as the specification has it, or as a known fault has.
#[track_caller]
fn assert_status(link: &mut Link<'_>, wc: &Wc, id: u64, right: u32, faulty: u32, known: Option<Known>) {
    assert_eq!(wc.wr_id, id, "{wc:?}");
    match known {
        Some(known) if wc.status == faulty => link.station.tolerated.push(known),
        _ => assert_eq!(wc.status, right, "{wc:?}"),
    }
}

/// Those posted with the bad one, before it, are carried out and complete; those behind it are flushed, in order.
fn earlier_requests_succeed(station: &mut Station, requester: Side, family: Family) {
    let responder = requester.other();
    let mut link = link(station, requester, family, |_| ());
    let (va, rkey) = link.remote(responder, 8192);
    link.fill(requester, 4096, 2000, 5, 0);
    link.post_recv(responder, &RecvWr::new(50, &[link.sge(responder, 0, 2000)]));
    let sge = [link.sge(requester, 4096, 2000)];
    for (id, op) in [
        (1, Op::Send),
        (2, Op::Write { va, rkey }),
        (3, Op::Write { va, rkey: rkey ^ 0x0100_0010 }),
        (4, Op::Write { va, rkey }),
        (5, Op::Read { va, rkey }),
    ] {
        link.post_send(requester, &SendWr::new(id, op, &sge));
    }
    let done: Vec<_> = link.send_done(requester, 5, WAIT).iter().map(|wc| (wc.wr_id, wc.status)).collect();
    let (ok, flush) = (status::SUCCESS, status::WR_FLUSH_ERR);
    assert_eq!(done, [(1, ok), (2, ok), (3, status::REM_ACCESS_ERR), (4, flush), (5, flush)]);
    assert_success(&link.received(responder), 50, 128);
    link.verify(responder, 0, 2000, 5, 0);
    link.verify(responder, 8192, 2000, 5, 0);
}

/// Nobody answers: WC 12, in bounded time, for a request that was posted before and for one after.
fn peer_destroyed(station: &mut Station, requester: Side, family: Family) {
    const BOUND: Duration = Duration::from_secs(10);
    let change: fn(&mut LinkSpec) = |spec| (spec.timeout, spec.retry_cnt, spec.rnr_retry) = (14, 3, 7); // 67 ms, four times
    for in_flight in [false, true] {
        let mut link = link(station, requester, family, change);
        exchange(&mut link, requester, Operation::Send, 64, 1);
        if in_flight {
            // It never gets its RECV, and so waits until the peer is gone.
            link.post_send(requester, &SendWr::new(1, Op::Send, &[link.sge(requester, 4096, LEN)]));
            thread::sleep(Duration::from_millis(2));
        }
        let from = Instant::now();
        link.kill(requester.other());
        if !in_flight {
            link.post_send(requester, &SendWr::new(1, Op::Send, &[link.sge(requester, 4096, LEN)]));
        }
        let wc = link.sent(requester);
        assert_eq!((wc.wr_id, wc.status), (1, status::RETRY_EXC_ERR), "{wc:?}");
        let took = from.elapsed();
        // rxe's ACK timer runs on while RNR NAKs come: of its first period a part may be over when the peer goes.
        let periods = if requester == Side::Peer && in_flight { 3 } else { 4 };
        assert!(took > periods * Duration::from_millis(60) && took < BOUND, "gave up after {took:?}");
    }
}
