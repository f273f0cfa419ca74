//! How a work request lies in the ring.
//!
//! In: a checked request. Out: its units; and from units, the request again.
//!
//! | unit | send | receive |
//! |---|---|---|
//! | 0 | wr_id · units 16, operation 4, flags 4, SGEs 8, length 32 | wr_id · units 16, length 48 |
//! | 1, not for a plain SEND | remote address · rkey 32, immediate data 32 | |
//! | 2, atomics only | compare · swap or add | |
//! | rest | SGEs, or inline bytes | SGEs |
#![forbid(unsafe_code)]

use super::RecvWqe;
use super::ring::{UNIT, Unit};
use crate::qp::state::QpType;
use crate::wr::{QpCap, RecvWr, SendFlags, SendOp, SendWr, Sge, WrId};
use xroce_wire::{ImmData, Rkey};

const SEND: u64 = 0;
const SEND_IMM: u64 = 1;
const SEND_INV: u64 = 2;
const WRITE: u64 = 3;
const WRITE_IMM: u64 = 4;
const READ: u64 = 5;
const CMP_SWAP: u64 = 6;
const FETCH_ADD: u64 = 7;

const OP_SHIFT: u32 = 16;
const FLAGS_SHIFT: u32 = 20;
const SGES_SHIFT: u32 = 24;
const LENGTH_SHIFT: u32 = 32;
const RECV_LENGTH_SHIFT: u32 = 16;

/// The operation as number and arguments: address, (rkey, immediate data), and two words for atomics.
struct Packed {
    op: u64,
    va: u64,
    rkey: u32,
    imm: u32,
    words: [u64; 2],
}

impl Packed {
    fn new(op: &SendOp) -> Packed {
        let none = Packed { op: SEND, va: 0, rkey: 0, imm: 0, words: [0; 2] };
        match *op {
            SendOp::Send => none,
            SendOp::SendImm(imm) => Packed { op: SEND_IMM, imm: imm.0, ..none },
            SendOp::SendInv(rkey) => Packed { op: SEND_INV, rkey: rkey.0, ..none },
            SendOp::Write { va, rkey } => Packed { op: WRITE, va, rkey: rkey.0, ..none },
            SendOp::WriteImm { va, rkey, imm } => Packed { op: WRITE_IMM, va, rkey: rkey.0, imm: imm.0, ..none },
            SendOp::Read { va, rkey } => Packed { op: READ, va, rkey: rkey.0, ..none },
            SendOp::CmpSwap { va, rkey, compare, swap } => {
                Packed { op: CMP_SWAP, va, rkey: rkey.0, words: [compare, swap], ..none }
            }
            SendOp::FetchAdd { va, rkey, add } => Packed { op: FETCH_ADD, va, rkey: rkey.0, words: [0, add], ..none },
        }
    }
}

/// Units before the SGEs or the inline bytes.
#[inline]
fn head_units(op: u64) -> usize {
    match op {
        SEND => 1,
        CMP_SWAP | FETCH_ADD => 3,
        _ => 2,
    }
}

/// Units of the largest send request that the capacities allow.
pub(super) fn max_send_units(kind: QpType, cap: &QpCap) -> u32 {
    let transfer = 2 + cap.max_send_sge.max(cap.max_inline_data.div_ceil(UNIT as u32));
    let atomic = if kind == QpType::Rc { 3 + cap.max_send_sge.min(1) } else { 0 };
    transfer.max(atomic)
}

/// Units of the largest receive request that the capacities allow.
pub(super) fn max_recv_units(cap: &QpCap) -> u32 {
    1 + cap.max_recv_sge
}

/// Units that this request takes; `length` is its message length.
pub(super) fn send_units(wr: &SendWr<'_>, length: u32) -> u32 {
    let data = if wr.flags.contains(SendFlags::INLINE) { (length as usize).div_ceil(UNIT) } else { wr.sges.len() };
    (head_units(Packed::new(&wr.op).op) + data) as u32
}

/// Writes a request into the units that [`send_units`] says.
pub(super) fn write_send(wr: &SendWr<'_>, length: u32, units: &mut [Unit]) {
    let packed = Packed::new(&wr.op);
    let (head, data) = units.split_at_mut(head_units(packed.op));
    let about = packed.op << OP_SHIFT
        | u64::from(wr.flags.bits()) << FLAGS_SHIFT
        | (wr.sges.len() as u64) << SGES_SHIFT
        | u64::from(length) << LENGTH_SHIFT;
    head[0] = Unit([wr.wr_id.0, about]);
    if let Some(unit) = head.get_mut(1) {
        *unit = Unit([packed.va, u64::from(packed.rkey) << 32 | u64::from(packed.imm)]);
    }
    if let Some(unit) = head.get_mut(2) {
        *unit = Unit(packed.words);
    }
    if wr.flags.contains(SendFlags::INLINE) {
        let mut rest = Unit::bytes_mut(data);
        for piece in wr.inline {
            let (to, after) = rest.split_at_mut(piece.len());
            to.copy_from_slice(piece);
            rest = after;
        }
    } else {
        for (unit, sge) in data.iter_mut().zip(wr.sges) {
            *unit = Unit::from_sge(*sge);
        }
    }
}

/// A send work request in the queue, read field by field where it lies.
#[derive(Clone, Copy, Debug)]
pub struct SendWqe<'a> {
    about: u64,
    units: &'a [Unit],
}

impl<'a> SendWqe<'a> {
    /// The request that lies in these units.
    #[inline]
    pub(super) fn new(units: &'a [Unit]) -> SendWqe<'a> {
        let Unit([_, about]) = units[0];
        SendWqe { about, units }
    }

    #[inline]
    fn code(&self) -> u64 {
        self.about >> OP_SHIFT & 0xF
    }

    /// The application's number.
    #[inline]
    pub fn wr_id(&self) -> WrId {
        let Unit([wr_id, _]) = self.units[0];
        WrId(wr_id)
    }

    /// What to do.
    #[inline]
    pub fn op(&self) -> SendOp {
        let code = self.code();
        if code == SEND {
            return SendOp::Send;
        }
        let Unit([va, keys]) = self.units[1];
        let (rkey, imm) = (Rkey((keys >> 32) as u32), ImmData(keys as u32));
        match code {
            SEND_IMM => SendOp::SendImm(imm),
            SEND_INV => SendOp::SendInv(rkey),
            WRITE => SendOp::Write { va, rkey },
            WRITE_IMM => SendOp::WriteImm { va, rkey, imm },
            READ => SendOp::Read { va, rkey },
            CMP_SWAP => {
                let Unit([compare, swap]) = self.units[2];
                SendOp::CmpSwap { va, rkey, compare, swap }
            }
            _ => {
                let Unit([_, add]) = self.units[2];
                SendOp::FetchAdd { va, rkey, add }
            }
        }
    }

    /// How.
    #[inline]
    pub fn flags(&self) -> SendFlags {
        SendFlags::from_bits_truncate((self.about >> FLAGS_SHIFT & 0xF) as u32)
    }

    /// Bytes of the message, 0 to 2^31.
    #[inline]
    pub fn length(&self) -> u32 {
        (self.about >> LENGTH_SHIFT) as u32
    }

    /// The SGEs, or the inline bytes.
    #[inline]
    fn data(&self) -> &'a [Unit] {
        &self.units[head_units(self.code())..]
    }

    /// The scatter/gather list; empty for an inline request.
    #[inline]
    pub fn sges(&self) -> &'a [Sge] {
        // An inline request was posted without SGEs, so it counts none.
        Unit::sges(&self.data()[..(self.about >> SGES_SHIFT & 0xFF) as usize])
    }

    /// The bytes of an inline request.
    #[inline]
    pub fn inline(&self) -> Option<&'a [u8]> {
        self.flags().contains(SendFlags::INLINE).then(|| &Unit::bytes(self.data())[..self.length() as usize])
    }
}

/// Units that this request takes.
pub(super) fn recv_units(wr: &RecvWr<'_>) -> u32 {
    1 + wr.sges.len() as u32
}

/// Writes a request into the units that [`recv_units`] says.
pub(super) fn write_recv(wr: &RecvWr<'_>, units: &mut [Unit]) {
    let length: u64 = wr.sges.iter().map(|sge| u64::from(sge.length)).sum();
    units[0] = Unit([wr.wr_id.0, length << RECV_LENGTH_SHIFT]);
    for (unit, sge) in units[1..].iter_mut().zip(wr.sges) {
        *unit = Unit::from_sge(*sge);
    }
}

/// The request that lies in these units.
#[inline]
pub(super) fn read_recv(units: &[Unit]) -> RecvWqe<'_> {
    let Unit([wr_id, about]) = units[0];
    RecvWqe { wr_id: WrId(wr_id), length: about >> RECV_LENGTH_SHIFT, sges: Unit::sges(&units[1..]) }
}
