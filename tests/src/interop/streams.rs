//! Many requests at once: queues filled in one go, both directions together, flags, loss. Enters: a station, who begins, over
//! which IP. Leaves: nothing; a difference is a panic.

use std::time::{Duration, Instant};

use xroce_port::fault::{Action, Rule};

use super::errors::Case;
use super::exchange::assert_success;
use super::{Family, Link, LinkSpec, Side, Station, WAIT};
use crate::rxe::{Flags, Op, QpKind, RecvWr, SendWr, status};

/// What runs without loss.
pub const CASES: &[Case] = &[
    Case::rc("RC: 100 SENDs in one go", |s, side, f| many_sends(s, side, f, QpKind::Rc)),
    Case::uc("UC: 20 SENDs in one go", |s, side, f| many_sends(s, side, f, QpKind::Uc)),
    Case::rc("all operations at once, both ways", mixed_both_ways),
    Case::rc("more READs than may be outstanding", many_reads),
    Case::rc("fence, unsignaled, solicited, inline", flags),
];

/// READs and atomics while 1 % of the frames are lost in each direction.
pub const LOSS_CASES: &[Case] = &[
    Case::rc("READs under 1 % loss", |s, side, f| under_loss(s, side, f, reads)),
    Case::rc("atomics under 1 % loss", |s, side, f| under_loss(s, side, f, atomics)),
    Case::rc("SENDs and WRITEs under 1 % loss", |s, side, f| under_loss(s, side, f, writes)),
];

/// They arrive in order, each in its RECV.
fn many_sends(station: &mut Station, from: Side, family: Family, kind: QpKind) {
    // UC has no credits and no acknowledgement: no more at once than an emulated guest takes off the wire.
    let (count, len) = if kind == QpKind::Rc { (100, 2500) } else { (20, 2500) };
    let (stride, to) = (u64::from(len), from.other());
    let mut link = Link::new(station, LinkSpec::new(kind, family, 1024));
    let total = (count * len) as usize;
    link.fill(from, 100, total, 11, 0);
    link.fill(to, 0, total + 8192, 12, 0);
    link.post_recv(to, &RecvWr { count, stride, ..RecvWr::new(0, &[link.sge(to, 4096, len)]) });
    link.post_send(from, &SendWr { count, stride, ..SendWr::new(0, Op::Send, &[link.sge(from, 100, len)]) });
    let wanted: Vec<_> = (0..u64::from(count)).map(|id| (id, status::SUCCESS)).collect();
    for done in [link.send_done(from, count as usize, WAIT), link.recv_done(to, count as usize, WAIT)] {
        assert_eq!(done.iter().map(|wc| (wc.wr_id, wc.status)).collect::<Vec<_>>(), wanted);
    }
    link.verify(to, 0, 4096, 12, 0);
    link.verify(to, 4096, total, 11, 0);
    link.verify(to, 4096 + total, 4096, 12, 4096 + total as u64);
}

/// Each side has 12 operations of all kinds under way while the other does the same. The upper half of each side's memory is
/// the other's to write.
fn mixed_both_ways(station: &mut Station, first: Side, family: Family) {
    const HALF: usize = 512 << 10;
    const LEN: u32 = 20_000;
    const SLOT: usize = 24 << 10;
    let mut link = Link::new(station, LinkSpec::new(QpKind::Rc, family, 1024));
    let (seed_of, word) = (|side| if side == Side::Ours { 21_u64 } else { 22 }, 1 << 20);
    for side in Side::BOTH {
        link.fill(side, 0, HALF, seed_of(side), 0);
        link.fill(side, HALF, HALF, 0, 0);
        link.post_recv(side, &RecvWr::new(0, &[link.sge(side, HALF, LEN)]));
        link.post_recv(side, &RecvWr::new(1, &[]));
        link.post_recv(side, &RecvWr::new(2, &[link.sge(side, HALF + SLOT, LEN)]));
    }
    let word_off = |link: &Link<'_>, side| word + (link.remote(side, word).0.wrapping_neg() % 8) as usize;
    for side in Side::BOTH {
        let off = word_off(&link, side);
        link.set_word(side, off, 1000);
    }
    for side in [first, first.other()] {
        let to = side.other();
        let at = |slot: usize| HALF + slot * SLOT;
        let (va, rkey) = link.remote(to, at(2));
        let (va_imm, _) = link.remote(to, at(3));
        let (va_read, _) = link.remote(to, 7);
        let (va_word, _) = link.remote(to, word_off(&link, to));
        let (data, result) = (link.sge(side, 3, LEN), link.sge(side, word + 64, 8));
        let ops = [
            (Op::Read { va: va_read, rkey }, link.sge(side, at(4), LEN)),
            (Op::Send, data),
            (Op::FetchAdd { va: va_word, rkey, add: 1 }, result),
            (Op::Write { va, rkey }, data),
            (Op::WriteImm { va: va_imm, rkey, imm: 9 }, data),
            (Op::Read { va: va_read, rkey }, link.sge(side, at(5), LEN)),
            (Op::CmpSwap { va: va_word, rkey, compare: 1001, swap: 5000 }, result),
            (Op::SendImm(3), data),
            (Op::FetchAdd { va: va_word, rkey, add: 2 }, result),
        ];
        for (id, (op, sge)) in ops.into_iter().enumerate() {
            link.post_send(side, &SendWr::new(id as u64, op, &[sge]));
        }
    }
    for side in [first, first.other()] {
        let done: Vec<_> = link.send_done(side, 9, WAIT).iter().map(|wc| (wc.wr_id, wc.status)).collect();
        assert_eq!(done, (0..9).map(|id| (id, status::SUCCESS)).collect::<Vec<_>>(), "{side:?}");
        let got = link.recv_done(side, 3, WAIT);
        let got: Vec<_> = got.iter().map(|wc| (wc.wr_id, wc.status, wc.byte_len, wc.immediate())).collect();
        assert_eq!(got, [(0, 0, LEN, None), (1, 0, LEN, Some(9)), (2, 0, LEN, Some(3))], "{side:?}");
    }
    for side in Side::BOTH {
        let theirs = seed_of(side.other());
        for slot in [0, 1, 2, 3] {
            link.verify(side, HALF + slot * SLOT, LEN as usize, theirs, 3);
        }
        for slot in [4, 5] {
            link.verify(side, HALF + slot * SLOT, LEN as usize, theirs, 7);
        }
        let off = word_off(&link, side);
        assert_eq!((link.word(side, off), link.word(side, word + 64)), (5002, 5000), "{side:?}: word and last result");
        link.assert_guard(side);
    }
}

/// 40 READs on a QP that may have 1, and on one that may have 4, outstanding: all come, in order.
fn many_reads(station: &mut Station, from: Side, family: Family) {
    const LEN: u32 = 5000;
    for rd_atomic in [1, 4] {
        let mut link = Link::new(station, LinkSpec { rd_atomic, ..LinkSpec::new(QpKind::Rc, family, 1024) });
        let of = from.other();
        link.fill(of, 9, 40 * LEN as usize, 31, 0);
        link.fill(from, 0, 41 * LEN as usize, 32, 0);
        let (va, rkey) = link.remote(of, 9);
        let wr = SendWr::new(0, Op::Read { va, rkey }, &[link.sge(from, 64, LEN)]);
        link.post_send(from, &SendWr { count: 40, stride: LEN.into(), ..wr });
        let done: Vec<_> = link.send_done(from, 40, WAIT).iter().map(|wc| (wc.wr_id, wc.status)).collect();
        assert_eq!(done, (0..40).map(|id| (id, status::SUCCESS)).collect::<Vec<_>>());
        link.verify(from, 0, 64, 32, 0);
        link.verify(from, 64, 40 * LEN as usize, 31, 0);
        link.verify(from, 64 + 40 * LEN as usize, 1000, 32, 64 + 40 * u64::from(LEN));
    }
}

/// An unsignaled READ says nothing; the fenced SEND behind it carries what it brought; inline bytes are those at the time of
/// the post.
fn flags(station: &mut Station, from: Side, family: Family) {
    let to = from.other();
    let mut link = Link::new(station, LinkSpec::new(QpKind::Rc, family, 1024));
    link.fill(to, 0, 16 << 10, 41, 0);
    link.fill(from, 0, 16 << 10, 42, 0);
    let (va, rkey) = link.remote(to, 8192);
    let mut read = SendWr::new(1, Op::Read { va, rkey }, &[link.sge(from, 64, 5000)]);
    read.flags = Flags::empty();
    link.post_recv(to, &RecvWr::new(2, &[link.sge(to, 100, 5000)]));
    link.post_recv(to, &RecvWr::new(3, &[link.sge(to, 6000, 60)]));
    link.post_send(from, &read);
    let fenced = SendWr::new(4, Op::Send, &[link.sge(from, 64, 5000)]).with(Flags::FENCE | Flags::SOLICITED);
    link.post_send(from, &fenced);
    link.post_send(from, &SendWr::new(5, Op::Send, &[link.sge(from, 12_000, 60)]).with(Flags::INLINE));
    link.fill(from, 12_000, 60, 43, 0);
    assert_success(&link.sent(from), 4, 0);
    assert_success(&link.sent(from), 5, 0);
    assert_success(&link.received(to), 2, 128);
    assert_success(&link.received(to), 3, 128);
    link.verify(to, 100, 5000, 41, 8192);
    link.verify(to, 6000, 60, 42, 12_000);
}

/// 1 % of what the guest sends is lost in the guest, 1 % of what we send at our port.
fn under_loss(station: &mut Station, from: Side, family: Family, run: fn(&mut Link<'_>, Side)) {
    let lossy = LinkSpec { timeout: 14, ..LinkSpec::new(QpKind::Rc, family, 1024) };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let out = station.guest.run("tc qdisc add dev eth0 root netem loss 1%");
        assert_eq!(out.status, 0, "tc qdisc add: {}", out.stderr);
        station.faults.add(Rule::tx(Action::Drop).chance(0.01)).expect("a rule");
        run(&mut Link::new(station, lossy), from);
    }));
    station.faults.clear();
    // Also after a failure, whatever it was: nothing of the guest shall be lost in the rows that follow.
    let out = station.guest.run("tc qdisc del dev eth0 root; tc qdisc show dev eth0");
    match result {
        Err(panic) => std::panic::resume_unwind(panic),
        Ok(()) => assert!(out.status == 0 && !out.stdout.contains("netem"), "tc qdisc del: {out:?}"),
    }
}

/// How long a run under loss may take: hundreds of packets, some of which wait for a timer.
const LOSS_WAIT: Duration = Duration::from_secs(60);

/// 4 times 10 READs of 64 packets.
fn reads(link: &mut Link<'_>, from: Side) {
    const LEN: u32 = 64 << 10;
    let of = from.other();
    for round in 0..4 {
        link.fill(of, 0, 10 * LEN as usize, 50 + round, 0);
        link.fill(from, 0, super::BUF_LEN, 90, 0);
        let (va, rkey) = link.remote(of, 0);
        let wr = SendWr::new(0, Op::Read { va, rkey }, &[link.sge(from, 4096, LEN)]);
        link.post_send(from, &SendWr { count: 10, stride: LEN.into(), ..wr });
        assert_all(link, from, 10);
        link.verify(from, 4096, 10 * LEN as usize, 50 + round, 0);
        link.verify(from, 0, 4096, 90, 0);
        link.verify(from, 4096 + 10 * LEN as usize, 4096, 90, 4096 + 10 * u64::from(LEN));
    }
}

/// 5 times 100 sums: each happens once, and each brings the value before it.
fn atomics(link: &mut Link<'_>, from: Side) {
    let of = from.other();
    let word = (link.remote(of, 0).0.wrapping_neg() % 8) as usize;
    link.set_word(of, word, 0);
    let (va, rkey) = link.remote(of, word);
    for round in 0..5 {
        let wr = SendWr::new(0, Op::FetchAdd { va, rkey, add: 3 }, &[link.sge(from, 4096, 8)]);
        // The stride would move the word too: one by one.
        for i in 0..100 {
            let sge = link.sge(from, 4096 + 8 * i as usize, 8);
            link.post_send(from, &SendWr { id: i, sges: vec![sge], ..wr.clone() });
        }
        assert_all(link, from, 100);
        for i in 0..100 {
            assert_eq!(link.word(from, 4096 + 8 * i), (round * 100 + i as u64) * 3, "result {i} of round {round}");
        }
        assert_eq!(link.word(of, word), (round + 1) * 300);
    }
}

/// 4 times 20 messages, SENDs and WRITE_IMMs in turn.
fn writes(link: &mut Link<'_>, from: Side) {
    const LEN: u32 = 30_000;
    let to = from.other();
    for round in 0..4 {
        link.fill(from, 0, 20 * LEN as usize, 60 + round, 0);
        link.fill(to, 0, super::BUF_LEN, 90, 0);
        for i in 0..20 {
            let off = i * LEN as usize;
            let (va, rkey) = link.remote(to, 4096 + off);
            let (op, target) = if i.is_multiple_of(2) {
                (Op::Send, vec![link.sge(to, 4096 + off, LEN)])
            } else {
                (Op::WriteImm { va, rkey, imm: i as u32 }, vec![])
            };
            link.post_recv(to, &RecvWr::new(i as u64, &target));
            link.post_send(from, &SendWr::new(i as u64, op, &[link.sge(from, off, LEN)]));
        }
        assert_all(link, from, 20);
        let got: Vec<_> = link.recv_done(to, 20, WAIT).iter().map(|wc| (wc.wr_id, wc.status, wc.byte_len)).collect();
        assert_eq!(got, (0..20).map(|id| (id, status::SUCCESS, LEN)).collect::<Vec<_>>());
        link.verify(to, 4096, 20 * LEN as usize, 60 + round, 0);
        link.verify(to, 4096 + 20 * LEN as usize, 4096, 90, 4096 + 20 * u64::from(LEN));
    }
}

#[track_caller]
fn assert_all(link: &mut Link<'_>, from: Side, count: u64) {
    let begun = Instant::now();
    let done: Vec<_> = link.send_done(from, count as usize, LOSS_WAIT).iter().map(|wc| (wc.wr_id, wc.status)).collect();
    let wanted: Vec<_> = (0..count).map(|id| (id, status::SUCCESS)).collect();
    assert_eq!(done, wanted, "after {:?}", begun.elapsed());
}
