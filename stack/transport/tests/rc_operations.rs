//! Every RC operation between two endpoints on a perfect wire, and on one that loses packets.

mod common;

use common::{Fate, Pair, Setup};
use xroce_transport::wc::{WcFlags, WcOpcode, WcStatus};
use xroce_transport::wr::{SendFlags, SendOp};
use xroce_wire::{ImmData, PathMtu};

/// Lengths around every border.
fn lengths(mtu: PathMtu) -> Vec<u32> {
    let p = mtu.bytes() as u32;
    vec![0, 1, 2, 3, 4, 5, p - 1, p, p + 1, 2 * p - 1, 2 * p, 2 * p + 1, 65_535, 65_536, 65_537]
}

/// All operations of one length; contents compared on both sides.
fn all_operations(pair: &mut Pair, len: u32, fate: impl Fn(usize) -> bool) {
    let n = len as usize;
    let half = 1 << 19;
    let va = pair.b.at(half);
    let rkey = pair.b.rkey();
    pair.a.fill(0, n, len);
    pair.b.fill(half, n, 0);
    pair.b.fill(0, n, 1);
    pair.recv_b(100, 0, len);
    pair.recv_b(101, half / 2, len);
    let sges = [pair.a.sge(0, len)];
    let back = [pair.a.sge(half, len)];
    pair.post_a(1, SendOp::SendImm(ImmData(0x0102_0304)), &sges);
    pair.post_a(2, SendOp::Write { va, rkey }, &sges);
    pair.post_flags(3, SendOp::Read { va, rkey }, &back, SendFlags::SIGNALED | SendFlags::FENCE);
    pair.post_a(4, SendOp::WriteImm { va, rkey, imm: ImmData(7) }, &sges);
    pair.run_timed(10_000, |i, _| if fate(i) { Fate::Deliver } else { Fate::Drop });

    let a: Vec<_> = pair.a.poll();
    assert_eq!(
        a.iter().map(|wc| (wc.wr_id.0, wc.status)).collect::<Vec<_>>(),
        (1..=4).map(|i| (i, WcStatus::Success)).collect::<Vec<_>>(),
        "len {len}"
    );
    let b = pair.b.poll();
    assert_eq!(b.len(), 2, "len {len}");
    assert_eq!((b[0].wr_id.0, b[0].opcode, b[0].byte_len, b[0].imm.0), (100, WcOpcode::Recv, len, 0x0102_0304));
    assert_eq!((b[1].wr_id.0, b[1].opcode, b[1].byte_len), (101, WcOpcode::RecvRdmaWithImm, len));
    assert!(b.iter().all(|wc| wc.flags.contains(WcFlags::WITH_IMM)));
    let expected: Vec<u8> = (0..n).map(|i| common::pattern(len, i)).collect();
    assert!(pair.b.bytes(0, n) == &expected[..], "SEND {len}");
    assert!(pair.b.bytes(half, n) == &expected[..], "WRITE {len}");
    assert!(pair.a.bytes(half, n) == &expected[..], "READ {len}");
    pair.a.check_guards();
    pair.b.check_guards();
}

#[test]
fn h01_every_length_at_every_mtu() {
    for mtu in PathMtu::ALL {
        let mut pair = Pair::new(Setup { mtu, ..Setup::default() });
        for len in lengths(mtu) {
            all_operations(&mut pair, len, |_| true);
        }
    }
}

#[test]
fn frames_in_two_pieces_over_ipv6() {
    for split in [100, 1000, 1100, 3840] {
        let mut pair = Pair::new(Setup { mtu: PathMtu::Mtu4096, split: Some(split), ipv6: true, ..Setup::default() });
        for len in lengths(PathMtu::Mtu4096) {
            all_operations(&mut pair, len, |_| true);
        }
    }
}

#[test]
fn everything_arrives_once_under_loss_in_both_directions() {
    for seed in 0..200u64 {
        let mut pair = Pair::new(Setup { mtu: PathMtu::Mtu256, ..Setup::default() });
        for len in [0, 1, 255, 256, 257, 1000, 5000] {
            let state = std::cell::Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(len));
            all_operations(&mut pair, len, |_| {
                state.set(state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
                (state.get() >> 33) % 10 != 0
            });
        }
    }
}

#[test]
fn atomics_are_executed_once_and_in_order() {
    for lost in 0..12 {
        let mut pair = Pair::new(Setup::default());
        let (va, rkey) = (pair.b.at(0), pair.b.rkey());
        let sge = |pair: &Pair, i: usize| [pair.a.sge(8 * i, 8)];
        for i in 0..4u64 {
            let to = sge(&pair, i as usize);
            pair.post_a(i, SendOp::FetchAdd { va, rkey, add: 10 }, &to);
        }
        let to = sge(&pair, 4);
        pair.post_a(4, SendOp::CmpSwap { va, rkey, compare: 40, swap: 7 }, &to);
        let to = sge(&pair, 5);
        pair.post_a(5, SendOp::CmpSwap { va, rkey, compare: 40, swap: 9 }, &to);
        pair.run_timed(1000, |i, _| if i == lost { Fate::Drop } else { Fate::Deliver });
        assert_eq!(pair.a.statuses(), (0..6).map(|i| (i, WcStatus::Success)).collect::<Vec<_>>());
        let word = |node: &common::Node, i: usize| u64::from_ne_bytes(node.bytes(8 * i, 8).try_into().unwrap());
        assert_eq!((0..6).map(|i| word(&pair.a, i)).collect::<Vec<_>>(), [0, 10, 20, 30, 40, 7], "lost {lost}");
        assert_eq!(word(&pair.b, 0), 7);
    }
}

#[test]
fn psns_wrap_in_the_middle_of_everything() {
    for back in [0, 1, 2, 3, 10, 30, 66] {
        let mut pair = Pair::new(Setup { a_psn: 0xFF_FFFF - back, mtu: PathMtu::Mtu1024, ..Setup::default() });
        all_operations(&mut pair, 65_536, |i| i % 13 != 5);
    }
}

#[test]
fn gathers_and_scatters_over_many_entries() {
    let mut pair = Pair::new(Setup { mtu: PathMtu::Mtu256, ..Setup::default() });
    pair.a.fill(0, 4096, 9);
    let sizes = [1u32, 0, 255, 257, 3, 1000, 64, 7, 500, 2, 2, 300, 1, 1, 90, 13];
    let total: u32 = sizes.iter().sum();
    let list = |node: &common::Node, gap: usize| {
        let mut at = 0;
        sizes
            .iter()
            .map(|n| {
                let s = node.sge(at, *n);
                at += *n as usize + gap;
                s
            })
            .collect::<Vec<_>>()
    };
    let sges = list(&pair.a, 0);
    let va = pair.b.at(100_000);
    let rkey = pair.b.rkey();
    pair.post_a(1, SendOp::Write { va, rkey }, &sges);
    let back: Vec<_> = {
        let mut v = list(&pair.a, 5);
        for s in &mut v {
            s.addr += 200_000;
        }
        v
    };
    pair.post_flags(2, SendOp::Read { va, rkey }, &back, SendFlags::SIGNALED | SendFlags::FENCE);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    let expected: Vec<u8> = (0..total as usize).map(|i| common::pattern(9, i)).collect();
    assert_eq!(pair.b.bytes(100_000, total as usize), &expected[..]);
    let mut at = 200_000;
    let mut got = Vec::new();
    for n in sizes {
        got.extend_from_slice(pair.a.bytes(at, n as usize));
        at += n as usize + 5;
    }
    assert_eq!(got, expected);
}
