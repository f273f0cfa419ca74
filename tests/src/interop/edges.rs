//! What lies at the edges: extreme timers, full lists of pieces, the last bytes of a region, empty requests, draining, UC after a
//! loss. Enters: a station, who begins, over which IP. Leaves: nothing; a difference that is not [`Known`] is a panic.

use std::thread;
use std::time::{Duration, Instant};

use xroce::{AsyncEventKind, QpAttr, QpState};
use xroce_port::RxFrame;
use xroce_port::fault::{Action, Rule};

use super::errors::{Case, Limited, assert_flushes};
use super::exchange::assert_success;
use super::{Family, Known, Link, LinkSpec, Side, Station, WAIT};
use crate::rxe::{self, Access, Flags, Op, QpKind, RecvWr, SendWr, Sge, status};

/// All of them.
pub const CASES: &[Case] = &[
    Case::rc("shortest and longest RNR timer", rnr_timers),
    Case::rc("READ outstanding, no answer", unanswered_read),
    Case::rc("SQD drains and goes on", drained),
    Case::rc("32 pieces each", pieces),
    Case::rc("inline of every size", inline),
    Case::rc("atomic on the last word of a region", last_word),
    Case::rc("empty READ and WRITE with a key that is none", empty_with_junk_key),
    Case::uc("UC: SEND that lost its middle, then others", lost_send),
    Case::uc("UC: WRITE that lost its middle, then others", lost_write),
];

/// Waits for the RECV as long as the responder's code says, not less; and with the shortest code, an exhausted count is soon
/// spent.
fn rnr_timers(station: &mut Station, requester: Side, family: Family) {
    // Codes of the RNR NAK timer: 0.01 ms, 655.36 ms, 491.52 ms.
    for (code, wait) in
        [(1, Duration::from_micros(10)), (0, Duration::from_micros(655_360)), (31, Duration::from_micros(491_520))]
    {
        let spec = LinkSpec { min_rnr_timer: code, rnr_retry: 7, ..LinkSpec::new(QpKind::Rc, family, 1024) };
        let mut link = Link::new(station, spec);
        let responder = requester.other();
        let begun = Instant::now();
        link.post_send(requester, &SendWr::new(1, Op::Send, &[link.sge(requester, 0, 3000)]));
        // The first try has met no RECV by then; the next one finds it.
        thread::sleep(Duration::from_millis(100));
        link.post_recv(responder, &RecvWr::new(2, &[link.sge(responder, 0, 3000)]));
        assert_success(&link.sent(requester), 1, 0);
        let took = begun.elapsed();
        assert_success(&link.received(responder), 2, 128);
        assert!(took >= wait, "code {code}: sent again after {took:?}, before {wait:?} were over");
    }
    let spec = LinkSpec { min_rnr_timer: 1, rnr_retry: 6, ..LinkSpec::new(QpKind::Rc, family, 1024) };
    let mut link = Link::new(station, spec);
    link.post_send(requester, &SendWr::new(1, Op::Send, &[link.sge(requester, 0, 10)]));
    let wc = link.sent(requester);
    assert_eq!((wc.wr_id, wc.status), (1, status::RNR_RETRY_EXC_ERR), "{wc:?}");
}

/// All frames towards the requester are lost while a READ and an atomic wait for theirs.
fn unanswered_read(station: &mut Station, requester: Side, family: Family) {
    let spec = LinkSpec { timeout: 14, retry_cnt: 2, ..LinkSpec::new(QpKind::Rc, family, 1024) };
    let rule = if requester == Side::Ours { Rule::rx(Action::Drop) } else { Rule::tx(Action::Drop) };
    station.faults.add(rule).expect("a rule");
    let faults = station.faults.clone();
    let mut link = Link::new(station, spec);
    let (va, rkey) = link.remote(requester.other(), 4096);
    let aligned = va.next_multiple_of(8);
    link.post_recv(requester, &RecvWr::new(70, &[]));
    let begun = Instant::now();
    for (id, op, len) in [
        (1, Op::Read { va, rkey }, 5000),
        (2, Op::Write { va, rkey }, 100),
        (3, Op::FetchAdd { va: aligned, rkey, add: 1 }, 8),
        (4, Op::Read { va, rkey }, 10),
    ] {
        link.post_send(requester, &SendWr::new(id, op, &[link.sge(requester, 0, len)]));
    }
    let done: Vec<_> = link.send_done(requester, 4, WAIT).iter().map(|wc| (wc.wr_id, wc.status)).collect();
    let took = begun.elapsed();
    faults.clear();
    let flush = status::WR_FLUSH_ERR;
    assert_eq!(done, [(1, status::RETRY_EXC_ERR), (2, flush), (3, flush), (4, flush)]);
    assert!(took > Duration::from_millis(3 * 60), "gave up after {took:?}");
    assert_flushes(&mut link, requester, &[70]);
}

/// In SQD what has begun is finished and an event says so; what is posted then waits for RTS.
fn drained(station: &mut Station, requester: Side, family: Family) {
    let mut link = Link::new(station, LinkSpec::new(QpKind::Rc, family, 1024));
    let responder = requester.other();
    let (va, rkey) = link.remote(responder, 0);
    let write = |link: &Link<'_>, id| SendWr::new(id, Op::Write { va, rkey }, &[link.sge(requester, 0, 100_000)]);
    for id in 0..20 {
        link.post_send(requester, &write(&link, id));
    }
    to_state(&mut link, requester, rxe::QpState::Sqd);
    let told = drained_event(&mut link, requester, if requester == Side::Peer { Duration::from_secs(3) } else { WAIT });
    assert!(told || requester == Side::Peer, "no event says that we have drained");
    // Those that had begun are done, and the rest has not begun.
    let mut done: Vec<_> = link.send_done(requester, 21, Duration::from_millis(200));
    link.post_send(requester, &write(&link, 20));
    if !told {
        link.station.tolerated.push(Known::SqdTellsAtTheNextPost);
        assert!(
            drained_event(&mut link, requester, WAIT),
            "no event says that rxe has drained, not even at the next post"
        );
    }
    done.extend(link.send_done(requester, 1, Duration::from_millis(200)));
    let before = done.len() as u64;
    assert!(before <= 20, "{done:?}: what was posted in SQD does not begin");
    to_state(&mut link, requester, rxe::QpState::Rts);
    done.extend(link.send_done(requester, 21 - done.len(), Duration::from_secs(2)));
    let mut count = 21;
    if requester == Side::Peer && done.len() as u64 == before {
        link.station.tolerated.push(Known::SqdForgetsItsQueue);
        link.post_send(requester, &write(&link, 21));
        count = 22;
    }
    done.extend(link.send_done(requester, count - done.len(), WAIT));
    let said: Vec<_> = done.iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(said, (0..count as u64).map(|id| (id, status::SUCCESS)).collect::<Vec<_>>(), "{before} before RTS");
}

fn to_state(link: &mut Link<'_>, side: Side, state: rxe::QpState) {
    let notify = (state == rxe::QpState::Sqd).then_some(true);
    match side {
        Side::Ours => {
            let ours = if state == rxe::QpState::Sqd { QpState::Sqd } else { QpState::Rts };
            let attr = QpAttr { qp_state: Some(ours), en_sqd_async_notify: notify, ..QpAttr::default() };
            link.our_qp.as_ref().expect("there").modify(&attr).expect("a legal step");
        }
        Side::Peer => {
            let attr = rxe::QpAttr { state: Some(state), en_sqd_notify: notify, ..rxe::QpAttr::default() };
            let qp = link.peer_qp.expect("there");
            link.station.peer.agent.modify(qp, &attr).expect("a legal step");
        }
    }
}

/// Whether an event says within `wait` that `side` has drained.
fn drained_event(link: &mut Link<'_>, side: Side, wait: Duration) -> bool {
    const SQ_DRAINED: u32 = 5; // IBV_EVENT_SQ_DRAINED
    let end = Instant::now() + wait;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let found = match side {
            Side::Ours => {
                let qpn = link.our_qp.as_ref().expect("there").qpn();
                let event = link.station.ours().context.get_async_event(Some(left)).expect("events");
                event.is_some_and(|e| e.kind == AsyncEventKind::SqDrained && e.qpn == Some(qpn))
            }
            Side::Peer => {
                let qpn = link.peer_qp.expect("there").qpn;
                let peer = &mut link.station.peer;
                let events = peer.agent.events(peer.ctx, left).expect("events");
                events.iter().any(|event| event.kind == SQ_DRAINED && event.qpn == qpn)
            }
        };
        if found || left.is_zero() {
            return found;
        }
    }
}

/// `len` bytes from `off` on in `count` pieces, none of them like its neighbours.
fn cut(link: &Link<'_>, side: Side, off: usize, len: u32, count: u32) -> Vec<Sge> {
    let edge = |i: u32| if i == count { len } else { i * (len / count) + i % 3 };
    (0..count).map(|i| link.sge(side, off + edge(i) as usize, edge(i + 1) - edge(i))).collect()
}

/// Gathered from 32 and scattered into 32, at other places.
fn pieces(station: &mut Station, from: Side, family: Family) {
    const COUNT: u32 = 32;
    let to = from.other();
    let mut link = Link::new(station, LinkSpec { sges: COUNT, ..LinkSpec::new(QpKind::Rc, family, 1024) });
    for (i, len) in [100, 5_000, 100_001].into_iter().enumerate() {
        let (size, seed) = (len as usize, 10 * i as u64);
        let (va, rkey) = link.remote(to, 300_000);
        link.fill(from, 0, size, seed, 0);
        link.fill(to, 0, 600_000, seed + 1, 0);
        link.post_recv(to, &RecvWr::new(2, &cut(&link, to, 4097, len + 7, COUNT)));
        link.post_send(from, &SendWr::new(1, Op::Send, &cut(&link, from, 0, len, COUNT)));
        link.post_send(from, &SendWr::new(3, Op::Write { va, rkey }, &cut(&link, from, 0, len, 31)));
        assert_success(&link.sent(from), 1, 0);
        assert_success(&link.sent(from), 3, 1);
        let wc = link.received(to);
        assert!(wc.ok() && wc.wr_id == 2 && wc.byte_len == len, "{wc:?}");
        for off in [4097, 300_000] {
            link.verify(to, off, size, seed, 0);
            link.verify(to, off + size, 4096, seed + 1, (off + size) as u64);
        }
        link.fill(from, 300_000, size + 8192, seed + 2, 0);
        link.post_send(from, &SendWr::new(4, Op::Read { va, rkey }, &cut(&link, from, 304_096, len, COUNT)));
        assert_success(&link.sent(from), 4, 2);
        link.verify(from, 300_000, 4096, seed + 2, 0);
        link.verify(from, 304_096, size, seed, 0);
        link.verify(from, 304_096 + size, 4096, seed + 2, 4096 + size as u64);
    }
}

/// The bytes are those of the moment of the post.
fn inline(station: &mut Station, from: Side, family: Family) {
    let spec = LinkSpec { inline: 512, sges: 32, ..LinkSpec::new(QpKind::Rc, family, 256) };
    let (mut link, to) = (Link::new(station, spec), from.other());
    let (va, rkey) = link.remote(to, 8192);
    for (i, len) in [0, 1, 3, 4, 63, 64, 65, 255, 256, 257, 511, 512].into_iter().enumerate() {
        let seed = i as u64;
        link.fill(to, 0, 16 << 10, 90, 0);
        link.post_recv(to, &RecvWr::new(2, &[link.sge(to, 4096, 1024)]));
        link.post_recv(to, &RecvWr::new(3, &[]));
        for (id, op) in [(4, Op::Send), (5, Op::WriteImm { va, rkey, imm: 7 })] {
            link.fill(from, 1, 512, seed, 0);
            let count = if len < 4 { 1 } else { 3 };
            link.post_send(from, &SendWr::new(id, op, &cut(&link, from, 1, len, count)).with(Flags::INLINE));
            link.fill(from, 1, 512, 91, 0);
        }
        assert_success(&link.sent(from), 4, 0);
        assert_success(&link.sent(from), 5, 1);
        for (id, opcode) in [(2, 128), (3, 129)] {
            let wc = link.received(to);
            assert_success(&wc, id, opcode);
            assert_eq!(wc.byte_len, len);
        }
        for off in [4096, 8192] {
            link.verify(to, off, len as usize, seed, 0);
            link.verify(to, off + len as usize, 1024, 90, (off + len as usize) as u64);
        }
    }
}

/// The region ends with the word.
fn last_word(station: &mut Station, requester: Side, family: Family) {
    let mut link = Link::new(station, LinkSpec::new(QpKind::Rc, family, 1024));
    let responder = requester.other();
    let region = Limited::new(&mut link, responder, Access::REMOTE_ATOMIC | Access::REMOTE_READ);
    let (va, rkey) = region.remote();
    // Neither region begins or ends on a word: the last whole one.
    let word = (va + 8192) / 8 * 8 - 8;
    let mut ask = |op, at| {
        link.post_send(requester, &SendWr::new(1, op, &[link.sge(requester, at, 8)]));
        assert_success(&link.sent(requester), 1, if matches!(op, Op::Read { .. }) { 2 } else { 4 });
    };
    ask(Op::Read { va: word, rkey }, 0);
    ask(Op::FetchAdd { va: word, rkey, add: 5 }, 64);
    ask(Op::FetchAdd { va: word, rkey, add: 7 }, 128);
    ask(Op::Read { va: word, rkey }, 192);
    let [first, old, next, last] = [0, 64, 128, 192].map(|off| link.word(requester, off));
    assert_eq!((old, next, last), (first, first.wrapping_add(5), first.wrapping_add(12)));
    region.give_back(&mut link);
}

/// Nothing is touched, so nothing is looked up.
fn empty_with_junk_key(station: &mut Station, requester: Side, family: Family) {
    let mut link = Link::new(station, LinkSpec::new(QpKind::Rc, family, 1024));
    let responder = requester.other();
    link.post_recv(responder, &RecvWr::new(9, &[]));
    for (va, rkey) in [(0, 0), (u64::MAX, u32::MAX), (0xdead_beef, 0x1234_5678)] {
        for (op, opcode) in [(Op::Write { va, rkey }, 1), (Op::Read { va, rkey }, 2)] {
            link.post_send(requester, &SendWr::new(1, op, &[]));
            assert_success(&link.sent(requester), 1, opcode);
        }
    }
    link.post_send(requester, &SendWr::new(2, Op::WriteImm { va: 1, rkey: 2, imm: 3 }, &[]));
    assert_success(&link.sent(requester), 2, 1);
    let wc = link.received(responder);
    assert_success(&wc, 9, 129);
    assert_eq!((wc.byte_len, wc.immediate()), (0, Some(3)));
}

/// The transport's opcode of a frame without VLAN tag.
fn opcode(frame: &RxFrame<'_>, family: Family) -> Option<u8> {
    let ip = if family == Family::V4 { 20 } else { 40 };
    frame.head.get(14 + ip + 8).copied()
}

const UC_SEND_MIDDLE: u8 = 0x21;
const UC_WRITE_MIDDLE: u8 = 0x27;

/// Bytes of a message of three packets.
const THREE: u32 = 2500;

/// The first packet with `wanted` is lost, at our port: on its way out or in.
fn lose_one(station: &Station, from: Side, family: Family, wanted: u8) {
    let rule = if from == Side::Ours { Rule::tx(Action::Drop) } else { Rule::rx(Action::Drop) };
    station.faults.add(rule.matching(move |frame| opcode(frame, family) == Some(wanted)).nth(1)).expect("a rule");
}

/// Only the message with the loss is missing; its RECV serves the next one. rxe forgets the next one as well.
fn lost_send(station: &mut Station, from: Side, family: Family) {
    lose_one(station, from, family, UC_SEND_MIDDLE);
    let (mut link, to) = (Link::new(station, LinkSpec::new(QpKind::Uc, family, 1024)), from.other());
    for id in 0..4_u64 {
        link.post_recv(to, &RecvWr::new(id, &[link.sge(to, 4096 * id as usize, THREE)]));
    }
    for imm in 0..4 {
        link.fill(from, 4096 * imm as usize, THREE as usize, imm.into(), 0);
        link.post_send(from, &SendWr::new(imm.into(), Op::SendImm(imm), &[link.sge(from, 4096 * imm as usize, THREE)]));
        assert_success(&link.sent(from), imm.into(), 0);
    }
    let got = link.recv_done(to, 3, Duration::from_secs(2));
    link.station.faults.clear();
    let first = if to == Side::Peer && got.len() == 2 {
        link.station.tolerated.push(Known::UcForgetsTheNextMessage);
        2
    } else {
        1
    };
    let said: Vec<_> = got.iter().map(|wc| (wc.wr_id, wc.status, wc.byte_len, wc.immediate())).collect();
    let wanted = (first..4).zip(0..).map(|(imm, id)| (id, status::SUCCESS, THREE, Some(imm)));
    assert_eq!(said, wanted.collect::<Vec<_>>());
    for (imm, place) in (first..4).zip(0..) {
        link.verify(to, 4096 * place, THREE as usize, imm.into(), 0);
    }
}

/// Only the WRITE with the loss goes without its RECV. rxe takes none of the later ones that fit a packet.
fn lost_write(station: &mut Station, from: Side, family: Family) {
    lose_one(station, from, family, UC_WRITE_MIDDLE);
    let (mut link, to) = (Link::new(station, LinkSpec::new(QpKind::Uc, family, 1024)), from.other());
    link.fill(to, 0, 32 << 10, 90, 0);
    for imm in 0..4 {
        let len = if imm == 0 { THREE } else { 1000 };
        let (off, seed) = (4096 * imm as usize, u64::from(imm));
        let (va, rkey) = link.remote(to, off);
        link.post_recv(to, &RecvWr::new(seed, &[]));
        link.fill(from, off, len as usize, seed, 0);
        link.post_send(from, &SendWr::new(seed, Op::WriteImm { va, rkey, imm }, &[link.sge(from, off, len)]));
        assert_success(&link.sent(from), seed, 1);
    }
    let got = link.recv_done(to, 3, Duration::from_secs(2));
    link.station.faults.clear();
    if to == Side::Peer && got.is_empty() {
        link.station.tolerated.push(Known::UcDeafAfterLostWrite);
        return;
    }
    let said: Vec<_> = got.iter().map(|wc| (wc.wr_id, wc.status, wc.byte_len, wc.immediate())).collect();
    assert_eq!(said, (1..4).map(|imm| (u64::from(imm) - 1, status::SUCCESS, 1000, Some(imm))).collect::<Vec<_>>());
    for imm in 1..4 {
        link.verify(to, 4096 * imm, 1000, imm as u64, 0);
    }
    link.verify(to, 4096 * 4, 4096, 90, 4096 * 4);
}
