//! What can be wrong with a registration or with an access.
//!
//! In: nothing. Out: one error type per operation.
#![forbid(unsafe_code)]

use super::pd::Pd;
use xroce_wire::{Lkey, Rkey};

/// Why a region was not registered, or a registration not changed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegError {
    /// There is no such domain.
    #[error("there is no protection domain {pd}")]
    UnknownPd {
        /// The handle.
        pd: Pd,
    },
    /// There is no region with this key.
    #[error("no memory region is registered with lkey {lkey}")]
    UnknownKey {
        /// The key.
        lkey: Lkey,
    },
    /// As many regions as the device has are registered.
    #[error("all {max} memory regions are in use; deregister some")]
    TooMany {
        /// How many there are.
        max: u32,
    },
    /// Regions that were deregistered are still in use by shards that have not finished their step.
    #[error("every free memory region is still being let go by a shard; try again")]
    Draining,
    /// A region of no bytes has no address to name it by.
    #[error("a memory region must have at least one byte")]
    Empty,
    /// The memory begins at the null address, or reaches beyond the address space.
    #[error("{len} bytes at {base:#x} is not memory")]
    NotMemory {
        /// First address.
        base: u64,
        /// Bytes.
        len: u64,
    },
    /// The addresses that name the region would wrap around.
    #[error("iova {iova:#x} plus {len} bytes is beyond 2^64 - 1")]
    IovaWraps {
        /// First address.
        iova: u64,
        /// Bytes.
        len: u64,
    },
    /// A zero-based region begins at 0 and nowhere else.
    #[error("iova {iova:#x} given for a ZERO_BASED region; leave it out")]
    ZeroBasedIova {
        /// The address given.
        iova: u64,
    },
    /// Rights that do not exist here.
    #[error("access flags {bits:#x} are not supported here (memory windows, 0x10, neither)")]
    Unsupported {
        /// The flags in question.
        bits: u32,
    },
    /// The peer may not write where our own side may not (IBTA, memory access).
    #[error("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE")]
    NeedsLocalWrite,
}

/// Why a region was not deregistered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeregError {
    /// There is no region with this key.
    #[error("no memory region is registered with lkey {lkey}")]
    UnknownKey {
        /// The key.
        lkey: Lkey,
    },
}

/// Why a piece of a scatter/gather list cannot be used. The work request completes with a local protection error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LocalError {
    /// The key leads to nothing.
    #[error("lkey {0} is no key of a registered region")]
    UnknownKey(Lkey),
    /// The region belongs to another protection domain than the QP.
    #[error("the region of lkey {0} belongs to another protection domain")]
    WrongPd(Lkey),
    /// Not all of it lies in the region.
    #[error("the SGE reaches beyond the region of lkey {0}")]
    OutOfBounds(Lkey),
    /// It is to be written, and the region has no LOCAL_WRITE.
    #[error("the region of lkey {0} has no LOCAL_WRITE")]
    MissingRight(Lkey),
}

/// Why the peer may not do what it asked for. It is answered with NAK remote access error (IBTA, NAK).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoteError {
    /// The key leads to nothing.
    #[error("rkey {0} is no key of a registered region")]
    UnknownKey(Rkey),
    /// The region belongs to another protection domain than the QP.
    #[error("the region of rkey {0} belongs to another protection domain")]
    WrongPd(Rkey),
    /// Not all of it lies in the region.
    #[error("the range reaches beyond the region of rkey {0}")]
    OutOfBounds(Rkey),
    /// The region does not give the right to do it.
    #[error("the region of rkey {0} does not give that right")]
    MissingRight(Rkey),
}

/// Why a key was not invalidated at the peer's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidateError {
    /// The key leads to nothing, or was invalidated before.
    #[error("rkey {0} is no key of a registered region")]
    UnknownKey(Rkey),
    /// The region belongs to another protection domain than the QP.
    #[error("the region of rkey {0} belongs to another protection domain")]
    WrongPd(Rkey),
    /// The region was not registered with REMOTE_INVALIDATE.
    #[error("the region of rkey {0} may not be invalidated by the peer")]
    NotInvalidatable(Rkey),
}
