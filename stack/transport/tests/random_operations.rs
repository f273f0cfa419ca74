//! Random work over a wire that loses, duplicates and reorders; one seed decides everything.
//!
//! What must hold whatever the wire does: requests complete once and in order; RECVs get the SENDs once, in order,
//! unharmed; atomics happen exactly once; nothing outside registered memory changes.

mod common;

use common::{Pair, Setup};
use xroce_transport::wc::{WcOpcode, WcStatus};
use xroce_transport::wr::{SendFlags, SendOp};
use xroce_wire::{ImmData, PathMtu};

struct Rng(u64);

impl Rng {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % below
    }
}

const AREA: usize = 1 << 16;

/// One direction of work from A to B under one seed.
fn run(seed: u64) {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mtu = PathMtu::ALL[rng.next(3) as usize];
    let a_psn = if rng.next(2) == 0 { 0xFF_FFFF - rng.next(40) as u32 } else { rng.next(1 << 24) as u32 };
    let max_rd_atomic = 1 + rng.next(8) as u8;
    let setup =
        Setup { mtu, a_psn, max_rd_atomic, max_dest_rd_atomic: max_rd_atomic, rnr_retry: 7, ..Setup::default() };
    let mut pair = Pair::new(setup);
    let (loss, dup, reorder) = (rng.next(12), rng.next(8), rng.next(8));
    let ops = 5 + rng.next(25);

    // Byte 0 of B holds the atomic; SENDs land in slots of their own, WRITEs too.
    let rkey = pair.b.rkey();
    let (mut sends, mut added) = (Vec::new(), 0u64);
    let mut writes = Vec::new();
    let mut recvs_posted = 0u64;
    for id in 0..ops {
        let len = rng.next(mtu.bytes() as u64 * 4) as u32;
        let slot = AREA + 8192 * id as usize;
        let from = [pair.a.sge(slot, len)];
        pair.a.fill(slot, len as usize, id as u32);
        let flags = if rng.next(4) == 0 { SendFlags::FENCE } else { SendFlags::empty() } | SendFlags::SIGNALED;
        match rng.next(5) {
            0 => {
                pair.post_flags(id, SendOp::SendImm(ImmData(id as u32)), &from, flags);
                sends.push((id as u32, len));
            }
            1 => {
                let va = pair.b.at(slot);
                pair.post_flags(id, SendOp::Write { va, rkey }, &from, flags);
                writes.push((slot, len, id as u32));
            }
            2 => {
                let va = pair.b.at(slot);
                pair.post_flags(id, SendOp::WriteImm { va, rkey, imm: ImmData(id as u32) }, &from, flags);
                sends.push((id as u32, len));
                writes.push((slot, len, id as u32));
            }
            3 => {
                let (va, to) = (pair.b.at(0), [pair.a.sge(slot, 8)]);
                pair.post_flags(id, SendOp::FetchAdd { va, rkey, add: id + 1 }, &to, flags);
                added += id + 1;
            }
            _ => {
                let (va, to) = (pair.b.at(8), [pair.a.sge(slot, len)]);
                pair.post_flags(id, SendOp::Read { va, rkey }, &to, flags);
            }
        }
    }
    let mut done = Vec::new();
    let mut received = Vec::new();
    for step in 0.. {
        assert!(step < 200_000, "seed {seed}: no end");
        pair.transmit();
        if recvs_posted < ops && rng.next(4) == 0 {
            pair.recv_b(recvs_posted, 512 * 1024 + 8192 * recvs_posted as usize, 8192);
            recvs_posted += 1;
        }
        if pair.wire.is_empty() {
            done.extend(pair.a.poll());
            received.extend(pair.b.poll());
            if done.len() as u64 == ops {
                break;
            }
            assert!(pair.tick() || recvs_posted < ops, "seed {seed}: silence");
            continue;
        }
        let at = if rng.next(20) < reorder / 2 { rng.next(pair.wire.len() as u64) as usize } else { 0 };
        let frame = pair.wire.remove(at).expect("in range");
        if rng.next(100) < loss {
            continue;
        }
        let _ = pair.deliver(&frame);
        if rng.next(100) < dup {
            let again = rng.next(pair.wire.len() as u64 + 1) as usize;
            pair.wire.insert(again, frame);
        }
    }
    received.extend(pair.b.poll());
    let failed = done.iter().find(|wc| wc.status != WcStatus::Success);
    assert!(failed.is_none(), "seed {seed}: {failed:?}");
    assert_eq!(done.iter().map(|wc| wc.wr_id.0).collect::<Vec<_>>(), (0..ops).collect::<Vec<_>>(), "seed {seed}");
    assert_eq!(
        received.iter().map(|wc| (wc.imm.0, wc.byte_len, wc.wr_id.0)).collect::<Vec<_>>(),
        sends.iter().enumerate().map(|(i, (imm, len))| (*imm, *len, i as u64)).collect::<Vec<_>>(),
        "seed {seed}"
    );
    for wc in received.iter().filter(|wc| wc.opcode == WcOpcode::Recv) {
        let at = 512 * 1024 + 8192 * wc.wr_id.0 as usize;
        let expected: Vec<u8> = (0..wc.byte_len as usize).map(|i| common::pattern(wc.imm.0, i)).collect();
        assert!(pair.b.bytes(at, expected.len()) == &expected[..], "seed {seed}: SEND {}", wc.imm.0);
    }
    for (slot, len, id) in writes {
        let expected: Vec<u8> = (0..len as usize).map(|i| common::pattern(id, i)).collect();
        assert!(pair.b.bytes(slot, expected.len()) == &expected[..], "seed {seed}: WRITE {id}");
    }
    assert_eq!(u64::from_ne_bytes(pair.b.bytes(0, 8).try_into().unwrap()), added, "seed {seed}");
    pair.a.check_guards();
    pair.b.check_guards();
}

#[test]
fn two_thousand_seeds() {
    for seed in 0..2000 {
        run(seed);
    }
}
