//! One operation of one length from one side to the other, everything checked. Enters: a link, who begins, what, how long.
//! Leaves: nothing; a difference is a panic that says which.
//!
//! The target lies at an odd address between bytes of another pattern, which must not change; nor may the guards around the
//! registered memory. Messages of some length are gathered from three pieces.

use super::link::{Link, Side, WAIT};
use super::{BUF_LEN, Known};
use crate::rxe::{Op, QpKind, RecvWr, SendWr, Sge, Wc};

/// What is exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Operation {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    Read,
    CmpSwap,
    FetchAdd,
}

impl Operation {
    /// What a QP of this type can do.
    pub fn of(kind: QpKind) -> &'static [Self] {
        use Operation::{CmpSwap, FetchAdd, Read, Send, SendImm, SendInv, Write, WriteImm};
        match kind {
            QpKind::Rc => &[Send, SendImm, SendInv, Write, WriteImm, Read, CmpSwap, FetchAdd],
            QpKind::Uc => &[Send, SendImm, Write, WriteImm],
        }
    }

    /// Whether its length is always 8.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::CmpSwap | Self::FetchAdd)
    }

    /// As the tables print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::SendImm => "SEND_IMM",
            Self::SendInv => "SEND_INV",
            Self::Write => "WRITE",
            Self::WriteImm => "WRITE_IMM",
            Self::Read => "READ",
            Self::CmpSwap => "CMP_SWAP",
            Self::FetchAdd => "FETCH_ADD",
        }
    }

    fn completion(self) -> u32 {
        match self {
            Self::Send | Self::SendImm | Self::SendInv => 0,
            Self::Write | Self::WriteImm => 1,
            Self::Read => 2,
            Self::CmpSwap => 3,
            Self::FetchAdd => 4,
        }
    }
}

/// The lengths around the edges of packets, and two long ones.
pub fn lengths(mtu: u32) -> [u32; 9] {
    [0, 1, 3, 4, mtu - 1, mtu, mtu + 1, 64 << 10, 1 << 20]
}

/// Where the initiator's bytes lie, and where the other's: neither aligned.
const FROM: usize = 8192 + 5;
const TO: usize = 8192 + 3;
/// Bytes on either side of the target that are filled before and compared after.
const MARGIN: usize = 4096;
const _: () = assert!(TO + (1 << 20) + MARGIN <= BUF_LEN && FROM + (1 << 20) + MARGIN <= BUF_LEN);

/// `operation` begun by `from`, with `len` bytes.
///
/// # Panics
/// Something is not as it should be.
pub fn exchange(link: &mut Link<'_>, from: Side, operation: Operation, len: u32, seed: u64) {
    match operation {
        Operation::Send | Operation::SendImm => send(link, from, operation, len, seed),
        Operation::SendInv => send_with_invalidate(link, from, len, seed),
        Operation::Write | Operation::WriteImm => write(link, from, operation, len, seed),
        Operation::Read => read(link, from, len, seed),
        Operation::CmpSwap | Operation::FetchAdd => atomic(link, from, operation, seed),
    }
    for side in Side::BOTH {
        link.assert_guard(side);
    }
}

fn immediate(seed: u64) -> u32 {
    0xc0de_0000 | (seed as u32 & 0xffff)
}

/// The message as one piece if it is short, else as three.
fn pieces(link: &Link<'_>, side: Side, off: usize, len: u32) -> Vec<Sge> {
    if len < 3 {
        return vec![link.sge(side, off, len)];
    }
    let (a, b) = (len / 3, len / 2);
    let piece = |from: u32, to: u32| link.sge(side, off + from as usize, to - from);
    vec![piece(0, a), piece(a, b), piece(b, len)]
}

/// Source and target are filled, each with its own pattern.
fn prepare(link: &mut Link<'_>, source: (Side, usize), target: (Side, usize), len: u32, seed: u64) {
    link.fill(source.0, source.1, len as usize, seed, 0);
    link.fill(target.0, target.1 - MARGIN, len as usize + 2 * MARGIN, !seed, 0);
}

/// The target holds the source's bytes and what is around it is as before.
#[track_caller]
fn assert_arrived(link: &mut Link<'_>, target: (Side, usize), len: u32, seed: u64) {
    let (side, at, len) = (target.0, target.1, len as usize);
    link.verify(side, at - MARGIN, MARGIN, !seed, 0);
    link.verify(side, at, len, seed, 0);
    link.verify(side, at + len, MARGIN, !seed, (MARGIN + len) as u64);
}

/// A completion of success with this id and opcode.
///
/// # Panics
/// It is another one.
#[track_caller]
pub fn assert_success(wc: &Wc, id: u64, opcode: u32) {
    assert!(wc.ok() && wc.wr_id == id && wc.opcode == opcode, "{wc:?} instead of success, id {id}, opcode {opcode}");
}

#[track_caller]
fn assert_received(link: &mut Link<'_>, side: Side, opcode: u32, len: u32, imm: Option<u32>) -> Wc {
    let wc = link.received(side);
    assert_success(&wc, RECV_ID, opcode);
    assert_eq!((wc.byte_len, wc.immediate()), (len, imm), "{side:?}: bytes and immediate data of {wc:?}");
    wc
}

const SEND_ID: u64 = 0x5e4d;
const RECV_ID: u64 = 0x4ec5;

fn send(link: &mut Link<'_>, from: Side, operation: Operation, len: u32, seed: u64) {
    let to = from.other();
    prepare(link, (from, FROM), (to, TO), len, seed);
    link.post_recv(to, &RecvWr::new(RECV_ID, &pieces(link, to, TO, len)));
    let imm = (operation == Operation::SendImm).then(|| immediate(seed));
    let op = imm.map_or(Op::Send, Op::SendImm);
    link.post_send(from, &SendWr::new(SEND_ID, op, &pieces(link, from, FROM, len)));
    assert_received(link, to, 128, len, imm);
    assert_success(&link.sent(from), SEND_ID, operation.completion());
    assert_arrived(link, (to, TO), len, seed);
}

fn write(link: &mut Link<'_>, from: Side, operation: Operation, len: u32, seed: u64) {
    let to = from.other();
    prepare(link, (from, FROM), (to, TO), len, seed);
    // An empty WRITE_IMM behind a plain WRITE says that it is there, on UC too.
    link.post_recv(to, &RecvWr::new(RECV_ID, &[]));
    let (va, rkey) = link.remote(to, TO);
    let (imm, sges) = (immediate(seed), pieces(link, from, FROM, len));
    if operation == Operation::WriteImm {
        link.post_send(from, &SendWr::new(SEND_ID, Op::WriteImm { va, rkey, imm }, &sges));
        assert_received(link, to, 129, len, Some(imm));
    } else {
        link.post_send(from, &SendWr::new(SEND_ID, Op::Write { va, rkey }, &sges));
        link.post_send(from, &SendWr::new(SEND_ID + 1, Op::WriteImm { va, rkey, imm }, &[]));
        assert_received(link, to, 129, 0, Some(imm));
    }
    assert_success(&link.sent(from), SEND_ID, operation.completion());
    if operation == Operation::Write {
        assert_success(&link.sent(from), SEND_ID + 1, 1);
    }
    assert_arrived(link, (to, TO), len, seed);
}

fn read(link: &mut Link<'_>, from: Side, len: u32, seed: u64) {
    let of = from.other();
    prepare(link, (of, FROM), (from, TO), len, seed);
    let (va, rkey) = link.remote(of, FROM);
    link.post_send(from, &SendWr::new(SEND_ID, Op::Read { va, rkey }, &pieces(link, from, TO, len)));
    let wc = link.sent(from);
    assert_success(&wc, SEND_ID, 2);
    assert_arrived(link, (from, TO), len, seed);
}

/// Two of each kind: a comparison that holds and one that does not; a sum and one that wraps.
fn atomic(link: &mut Link<'_>, from: Side, operation: Operation, seed: u64) {
    let of = from.other();
    // The guest's memory begins 3 bytes behind a page, ours on one... of 16 bytes at least.
    let (word, result) = (aligned(link, of), TO);
    let (va, rkey) = link.remote(of, word);
    let first = seed.wrapping_mul(0x1_0001) | 1;
    let second = u64::MAX - 2;
    link.fill(of, word - 64, 128 + 8, !seed, 0);
    link.set_word(of, word, first);
    let steps: [(Op, u64, u64); 2] = match operation {
        Operation::CmpSwap => [
            (Op::CmpSwap { va, rkey, compare: first, swap: second }, first, second),
            (Op::CmpSwap { va, rkey, compare: first, swap: 1 }, second, second),
        ],
        _ => [
            (Op::FetchAdd { va, rkey, add: second.wrapping_sub(first) }, first, second),
            (Op::FetchAdd { va, rkey, add: 5 }, second, 2),
        ],
    };
    for (op, old, new) in steps {
        link.fill(from, result - 64, 128 + 8, seed, 0);
        link.post_send(from, &SendWr::new(SEND_ID, op, &[link.sge(from, result, 8)]));
        let wc = link.sent(from);
        assert_success(&wc, SEND_ID, operation.completion());
        assert_eq!(
            (link.word(from, result), link.word(of, word)),
            (old, new),
            "{op:?}: the old value, and the new one"
        );
        link.verify(from, result - 64, 64, seed, 0);
        link.verify(from, result + 8, 64, seed, 72);
    }
    link.verify(of, word - 64, 64, !seed, 0);
    link.verify(of, word + 8, 64, !seed, 72);
}

/// An offset whose address is a multiple of 8.
fn aligned(link: &Link<'_>, side: Side) -> usize {
    let (va, _) = link.remote(side, 4096);
    4096 + (va.wrapping_neg() % 8) as usize
}

/// The key dies with the SEND: a bound type 2 window of the guest, or a region of ours that permits it. That it is dead is shown
/// where the connection may break.
fn send_with_invalidate(link: &mut Link<'_>, from: Side, len: u32, seed: u64) {
    let to = from.other();
    prepare(link, (from, FROM), (to, TO), len, seed);
    let target = Invalidatable::new(link, to);
    link.post_recv(to, &RecvWr::new(RECV_ID, &pieces(link, to, TO, len)));
    link.post_send(from, &SendWr::new(SEND_ID, Op::SendInv(target.rkey), &pieces(link, from, FROM, len)));
    let wc = assert_received_inv(link, to, len);
    assert_eq!(wc.invalidated(), Some(target.rkey), "the key that the RECV names: {wc:?}");
    assert_success(&link.sent(from), SEND_ID, 0);
    assert_arrived(link, (to, TO), len, seed);
    target.give_back(link);
}

#[track_caller]
fn assert_received_inv(link: &mut Link<'_>, side: Side, len: u32) -> Wc {
    let wc = link.received(side);
    assert_success(&wc, RECV_ID, 128);
    assert_eq!(wc.byte_len, len, "{side:?}: bytes of {wc:?}");
    if wc.flags & 8 == 0 && wc.flags & 4 != 0 && side == Side::Peer {
        link.station.tolerated.push(Known::InvalidateFlagIsFour);
    } else {
        assert_eq!(wc.flags & 8, 8, "{side:?}: WITH_INV of {wc:?}");
    }
    wc
}

/// Something of one side that a SEND with invalidate may take away.
pub struct Invalidatable {
    /// Its key.
    pub rkey: u32,
    /// The address of its first byte as the key means it; 4096 bytes.
    pub va: u64,
    window: Option<crate::rxe::Mw>,
    region: Option<super::Guarded>,
}

impl Invalidatable {
    /// A type 2 window bound to the guest's memory, or a region of ours with the right.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn new(link: &mut Link<'_>, side: Side) -> Self {
        match side {
            Side::Peer => {
                let (qp, station) = (link.peer_qp.expect("not destroyed"), &mut *link.station);
                let peer = &mut station.peer;
                let mw = peer.agent.alloc_mw(peer.pd, 2).expect("a window");
                let rights = crate::rxe::Access::REMOTE_WRITE | crate::rxe::Access::REMOTE_READ;
                let rkey = peer.agent.bind_mw(qp, 2, 7, mw, peer.mr, peer.mr.va, 4096, rights).expect("it is bound");
                let va = peer.mr.va;
                assert_success(&link.sent(Side::Peer), 7, 5);
                Self { rkey, va, window: Some(mw), region: None }
            }
            Side::Ours => {
                let rights = xroce::Access::LOCAL_WRITE
                    | xroce::Access::REMOTE_WRITE
                    | xroce::Access::REMOTE_READ
                    | xroce::Access::REMOTE_INVALIDATE;
                let region = super::Guarded::new(&link.station.ours().pd, 4096, rights).expect("a region");
                Self { rkey: region.mr().rkey().0, va: region.mr().addr(), window: None, region: Some(region) }
            }
        }
    }

    /// Frees it.
    ///
    /// # Panics
    /// The guest refuses.
    pub fn give_back(self, link: &mut Link<'_>) {
        if let Some(mw) = self.window {
            link.station.peer.agent.destroy(mw).expect("an invalid window can be freed");
        }
        drop(self.region);
    }
}

/// Whether nothing more comes: both sides' queues are empty.
///
/// # Panics
/// A completion is there.
pub fn assert_quiet(link: &mut Link<'_>) {
    for side in Side::BOTH {
        let wait = WAIT.min(std::time::Duration::from_millis(1));
        let left = (link.send_done(side, 1, wait), link.recv_done(side, 1, wait));
        assert!(left.0.is_empty() && left.1.is_empty(), "{side:?}: completions nobody asked for: {left:?}");
    }
}
