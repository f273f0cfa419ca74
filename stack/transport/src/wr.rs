//! Work requests as the application states them.
//!
//! In: what a program wants done. Out: nothing; [`wq`](crate::wq) checks these and copies them into the rings.
#![forbid(unsafe_code)]

use crate::qp::state::QpType;
use bitflags::bitflags;
use core::fmt;
use xroce_wire::{ImmData, Lkey, Rkey};

/// The longest message there is: 2^31 bytes (DMA length of the RETH). A port may allow less.
pub const MAX_MESSAGE: u64 = 1 << 31;

/// The number by which an application knows its work request again in the completion. Never interpreted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct WrId(pub u64);

impl fmt::Display for WrId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// One piece of a scatter/gather list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Sge {
    /// Address in the space of the memory region: its iova plus an offset.
    pub addr: u64,
    /// Bytes; 0 is an empty piece whose key is not looked at.
    pub length: u32,
    /// Key of the memory region.
    pub lkey: Lkey,
}

bitflags! {
    /// Flags of a send work request. Values are ours; the numbers of `ibv_send_flags` happen to be the same.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct SendFlags: u32 {
        /// Start only when all earlier READs and atomics of the queue are complete (IBTA, ordering).
        const FENCE = 1;
        /// Make a completion on success too; an error always makes one.
        const SIGNALED = 2;
        /// Ask the peer to raise a solicited event with the receive completion.
        const SOLICITED = 4;
        /// Take the bytes of [`SendWr::inline`] at post time; the buffers are free as soon as post returns.
        const INLINE = 8;
    }
}

/// What a send work request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// A message into the peer's next RECV.
    Send,
    /// [`Send`](SendOp::Send) with four bytes of immediate data.
    SendImm(ImmData),
    /// [`Send`](SendOp::Send) that also invalidates a key of the peer. RC only.
    SendInv(Rkey),
    /// Bytes into the peer's memory.
    Write {
        /// Where, in the space of the peer's region.
        va: u64,
        /// The peer's key.
        rkey: Rkey,
    },
    /// [`Write`](SendOp::Write) that takes a RECV of the peer and hands it four bytes.
    WriteImm {
        /// Where, in the space of the peer's region.
        va: u64,
        /// The peer's key.
        rkey: Rkey,
        /// The four bytes.
        imm: ImmData,
    },
    /// Bytes out of the peer's memory into ours. RC only.
    Read {
        /// Where, in the space of the peer's region.
        va: u64,
        /// The peer's key.
        rkey: Rkey,
    },
    /// Writes `swap` if the peer's word equals `compare`; the old word comes back. RC only.
    CmpSwap {
        /// Where; a multiple of 8.
        va: u64,
        /// The peer's key.
        rkey: Rkey,
        /// What the word must be.
        compare: u64,
        /// What it becomes.
        swap: u64,
    },
    /// Adds to the peer's word, wrapping; the old word comes back. RC only.
    FetchAdd {
        /// Where; a multiple of 8.
        va: u64,
        /// The peer's key.
        rkey: Rkey,
        /// What is added.
        add: u64,
    },
}

impl SendOp {
    /// The name as verbs tools print it.
    pub const fn name(&self) -> &'static str {
        match self {
            SendOp::Send => "SEND",
            SendOp::SendImm(_) => "SEND_WITH_IMM",
            SendOp::SendInv(_) => "SEND_WITH_INV",
            SendOp::Write { .. } => "RDMA_WRITE",
            SendOp::WriteImm { .. } => "RDMA_WRITE_WITH_IMM",
            SendOp::Read { .. } => "RDMA_READ",
            SendOp::CmpSwap { .. } => "ATOMIC_CMP_AND_SWP",
            SendOp::FetchAdd { .. } => "ATOMIC_FETCH_AND_ADD",
        }
    }

    /// Whether this is one of the two atomics.
    pub const fn is_atomic(&self) -> bool {
        matches!(self, SendOp::CmpSwap { .. } | SendOp::FetchAdd { .. })
    }

    /// Whether this counts against `max_rd_atomic`: READs and atomics (IBTA 9.4.4).
    pub const fn is_read_or_atomic(&self) -> bool {
        self.is_atomic() || matches!(self, SendOp::Read { .. })
    }

    /// Whether a QP of this type can do it (IBTA, table of transport functions).
    // rule: uc.operations
    pub const fn allowed_on(&self, kind: QpType) -> bool {
        match kind {
            QpType::Rc => true,
            QpType::Uc => !self.is_read_or_atomic() && !matches!(self, SendOp::SendInv(_)),
        }
    }
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub wr_id: WrId,
    /// What to do.
    pub op: SendOp,
    /// How.
    pub flags: SendFlags,
    /// Where the bytes come from, or go to for READ and atomics. Empty with [`SendFlags::INLINE`].
    pub sges: &'a [Sge],
    /// With [`SendFlags::INLINE`]: the bytes themselves, in order. Empty without.
    pub inline: &'a [&'a [u8]],
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Comes back in the completion.
    pub wr_id: WrId,
    /// Where the bytes go, filled in order.
    pub sges: &'a [Sge],
}

/// How much a queue pair can hold, in work requests, pieces and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpCap {
    /// Send work requests posted and not complete; 0 to [`QpCap::MAX`].
    pub max_send_wr: u32,
    /// Receive work requests posted and not complete.
    pub max_recv_wr: u32,
    /// Pieces of a send work request.
    pub max_send_sge: u32,
    /// Pieces of a receive work request.
    pub max_recv_sge: u32,
    /// Inline bytes of a send work request.
    pub max_inline_data: u32,
}

impl QpCap {
    /// The largest value of each capacity.
    pub const MAX: QpCap =
        QpCap { max_send_wr: 32_768, max_recv_wr: 32_768, max_send_sge: 32, max_recv_sge: 32, max_inline_data: 4_096 };

    /// Whether every capacity is one that queues can be made with.
    ///
    /// # Errors
    /// Names the first capacity that is too large, its value and its limit.
    pub fn check(&self) -> Result<(), CapError> {
        self.within(&Self::MAX)
    }

    /// Whether no capacity is above that of `max`.
    ///
    /// # Errors
    /// As [`check`](QpCap::check).
    pub fn within(&self, max: &QpCap) -> Result<(), CapError> {
        let table = [
            ("max_send_wr", self.max_send_wr, max.max_send_wr),
            ("max_recv_wr", self.max_recv_wr, max.max_recv_wr),
            ("max_send_sge", self.max_send_sge, max.max_send_sge),
            ("max_recv_sge", self.max_recv_sge, max.max_recv_sge),
            ("max_inline_data", self.max_inline_data, max.max_inline_data),
        ];
        match table.into_iter().find(|(_, value, max)| value > max) {
            Some((name, value, max)) => Err(CapError { name, value, max }),
            None => Ok(()),
        }
    }

    /// These capacities, each cut to [`QpCap::MAX`].
    pub fn clamped(&self) -> QpCap {
        QpCap {
            max_send_wr: self.max_send_wr.min(Self::MAX.max_send_wr),
            max_recv_wr: self.max_recv_wr.min(Self::MAX.max_recv_wr),
            max_send_sge: self.max_send_sge.min(Self::MAX.max_send_sge),
            max_recv_sge: self.max_recv_sge.min(Self::MAX.max_recv_sge),
            max_inline_data: self.max_inline_data.min(Self::MAX.max_inline_data),
        }
    }
}

/// A queue pair capacity that is too large.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name} is {value}; the limit is {max}")]
pub struct CapError {
    /// The field of [`QpCap`].
    pub name: &'static str,
    /// What was asked for.
    pub value: u32,
    /// What can be had.
    pub max: u32,
}

/// Why a work request was not posted. Nothing of it has entered the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    /// As many requests as the queue holds are posted and not complete.
    #[error("the queue is full: all {depth} work requests are outstanding; poll completions first")]
    QueueFull {
        /// Work requests the queue holds.
        depth: u32,
    },
    /// More pieces than the queue was made for.
    #[error("{given} SGEs; this queue takes {max}")]
    TooManySges {
        /// SGEs of the request.
        given: usize,
        /// The queue's capacity.
        max: u32,
    },
    /// More inline bytes than the queue was made for.
    #[error("{length} inline bytes; this queue takes {max} (max_inline_data)")]
    InlineTooLong {
        /// Bytes of the request.
        length: u64,
        /// The queue's capacity.
        max: u32,
    },
    /// READ and atomics bring bytes in: there is nothing to take inline.
    #[error("{op} cannot be inline: its SGEs receive data")]
    InlineNotAllowed {
        /// Name of the operation.
        op: &'static str,
    },
    /// The request has inline bytes and SGEs, or bytes without the flag.
    #[error("a request has {sges} SGEs and {pieces} inline pieces; INLINE takes pieces only, without it SGEs only")]
    InlineMixed {
        /// SGEs of the request.
        sges: usize,
        /// Inline pieces of the request.
        pieces: usize,
    },
    /// The message is longer than the port or the protocol allows.
    #[error("the message has {length} bytes; the limit is {max}")]
    MessageTooLong {
        /// Bytes of the message.
        length: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// An atomic brings back exactly one word of 8 bytes into one piece (IBTA, ATOMIC operations).
    #[error("{op} takes one SGE of 8 bytes; given {sges} with {length} bytes in all")]
    BadAtomicSge {
        /// Name of the operation.
        op: &'static str,
        /// SGEs of the request.
        sges: usize,
        /// Their bytes.
        length: u64,
    },
    /// The transport service of the QP has no such operation.
    #[error("{op} does not exist on a {kind} queue pair")]
    NotOnThisQp {
        /// Name of the operation.
        op: &'static str,
        /// Type of the queue pair.
        kind: QpType,
    },
    /// The QP was connected with `max_rd_atomic` 0, so that a READ or an atomic could never start (IBTA 9.4.4).
    #[error("{op} can never start: max_rd_atomic of the queue pair is 0")]
    NoReadAtomic {
        /// Name of the operation.
        op: &'static str,
    },
    /// A flag that this version does not know.
    #[error("unknown send flags {bits:#x}")]
    UnknownFlags {
        /// The bits that are unknown.
        bits: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_name_the_one_that_is_too_large() {
        assert_eq!(QpCap::MAX.check(), Ok(()));
        let huge = QpCap { max_recv_sge: u32::MAX, ..QpCap::MAX };
        assert_eq!(huge.check().unwrap_err().to_string(), "max_recv_sge is 4294967295; the limit is 32");
        assert_eq!(huge.clamped(), QpCap::MAX);
    }

    #[test]
    fn uc_has_no_reads_atomics_or_invalidation() {
        let (va, rkey) = (0, Rkey(1));
        let rc_only = [
            SendOp::SendInv(rkey),
            SendOp::Read { va, rkey },
            SendOp::CmpSwap { va, rkey, compare: 0, swap: 0 },
            SendOp::FetchAdd { va, rkey, add: 0 },
        ];
        let both = [
            SendOp::Send,
            SendOp::SendImm(ImmData(0)),
            SendOp::Write { va, rkey },
            SendOp::WriteImm { va, rkey, imm: ImmData(0) },
        ];
        for op in rc_only {
            assert!(op.allowed_on(QpType::Rc) && !op.allowed_on(QpType::Uc), "{}", op.name());
        }
        for op in both {
            assert!(op.allowed_on(QpType::Rc) && op.allowed_on(QpType::Uc), "{}", op.name());
        }
    }
}
