//! Memory regions: the slots that keys lead to.
//!
//! In: what a region is. Out: for a key, the region it names now; one look at a slot, no lock.
//!
//! The fields of a slot are written before its key is published (Release) and stay as they are until the key has been
//! taken back and every reader that may have seen it has unpinned. So a reader that finds its key in the slot (Acquire)
//! and is pinned reads fields that belong together.
#![forbid(unsafe_code)]

use super::key::INDEX_BITS;
use super::pd::Pd;
use super::region::Region;
use crate::mutation::{self, Mutation};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use bitflags::bitflags;
use std::sync::OnceLock;
use xroce_wire::{Lkey, Rkey};

bitflags! {
    /// What may be done with a region, or on a QP: the numbers of `enum ibv_access_flags`, and one of ours.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Access: u32 {
        /// Our own side may write: RECV, READ and atomic results.
        const LOCAL_WRITE = 1;
        /// The peer may write. Needs [`LOCAL_WRITE`](Access::LOCAL_WRITE).
        const REMOTE_WRITE = 2;
        /// The peer may read.
        const REMOTE_READ = 4;
        /// The peer may do atomics. Needs [`LOCAL_WRITE`](Access::LOCAL_WRITE).
        const REMOTE_ATOMIC = 8;
        /// Memory windows may be bound: there are none here, so it is refused.
        const MW_BIND = 16;
        /// Addresses in the region count from 0.
        const ZERO_BASED = 32;
        /// The peer may invalidate the key by SEND with invalidate. Ours: verbs has no such flag for plain regions.
        const REMOTE_INVALIDATE = 1 << 30;
    }
}

/// A registered region, as its owner knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MrInfo {
    /// The key; local and remote key are the same number.
    pub key: u32,
    /// The domain it belongs to.
    pub pd: Pd,
    /// The first address by which work requests and peers name it.
    pub iova: u64,
    /// Bytes.
    pub len: u64,
    /// What may be done with it.
    pub access: Access,
}

impl MrInfo {
    /// The key for our own work requests.
    pub const fn lkey(&self) -> Lkey {
        Lkey(self.key)
    }

    /// The key to give to the peer.
    pub const fn rkey(&self) -> Rkey {
        Rkey(self.key)
    }
}

/// One slot of the table: a cache line.
#[repr(align(64))]
pub(super) struct Slot {
    /// The key that leads here now; 0 is none.
    key: AtomicU32,
    /// The domain in the upper half, the rights in the lower: changed together.
    rights: AtomicU64,
    iova: AtomicU64,
    len: AtomicU64,
    base: AtomicPtr<u8>,
}

impl Slot {
    fn empty() -> Slot {
        Slot {
            key: AtomicU32::new(0),
            rights: AtomicU64::new(0),
            iova: AtomicU64::new(0),
            len: AtomicU64::new(0),
            base: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Fills the slot and lets its key lead here. Nobody reads the slot: its last key is dead and its grace over.
    pub(super) fn publish(&self, info: &MrInfo, base: *mut u8) {
        self.set_rights(info.pd, info.access);
        self.iova.store(info.iova, Ordering::Relaxed);
        self.len.store(info.len, Ordering::Relaxed);
        self.base.store(base, Ordering::Relaxed);
        self.key.store(info.key, Ordering::Release);
    }

    /// Changes domain and rights in one step, for look-ups from now on.
    pub(super) fn set_rights(&self, pd: Pd, access: Access) {
        self.rights.store(u64::from(pd.value()) << 32 | u64::from(access.bits()), Ordering::Relaxed);
    }

    /// Takes `key` back; false if it does not lead here (any more).
    pub(super) fn retire(&self, key: u32) -> bool {
        key != 0 && self.key.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether `key` leads here.
    pub(super) fn holds(&self, key: u32) -> bool {
        self.key.load(Ordering::Acquire) == key
    }

    /// The memory behind the slot, to be registered again. Its owner still vouches for it.
    pub(super) fn region(&self) -> Region {
        Region::again(self.base.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed) as usize)
    }

    /// Whether the region belongs to `pd`, and what may be done with it.
    #[inline]
    pub(super) fn rights(&self, pd: Pd) -> Option<Access> {
        let rights = self.rights.load(Ordering::Relaxed);
        (rights >> 32 == u64::from(pd.value())).then_some(Access::from_bits_retain(rights as u32))
    }

    /// The first byte and the offset of `len` bytes at `addr`; `None` if they do not all lie in the region.
    #[inline]
    pub(super) fn range(&self, addr: u64, len: u32) -> Option<(*mut u8, usize)> {
        // A difference and a remainder instead of an end: nothing here can wrap, wherever the region lies.
        let offset = addr.checked_sub(self.iova.load(Ordering::Relaxed))?;
        let room = self.len.load(Ordering::Relaxed).checked_sub(offset)?;
        let slack = u64::from(mutation::is(Mutation::RangeOneTooFar));
        (u64::from(len) <= room + slack).then_some((self.base.load(Ordering::Relaxed), offset as usize))
    }
}

const CHUNK_BITS: u32 = 10;
const CHUNK: usize = 1 << CHUNK_BITS;

/// Slots that stay in the cache as they are: half a MiB of them.
const CACHED_SLOTS: usize = 8 << 10;

/// Slots, made a thousand at a time; a slot never moves.
pub(super) struct SlotTable {
    chunks: Vec<OnceLock<Box<[Slot]>>>,
}

/// Slots there can be.
pub(super) const MAX_SLOTS: u32 = 1 << INDEX_BITS;

impl SlotTable {
    /// A table that can grow to `slots`.
    pub(super) fn new(slots: u32) -> SlotTable {
        let chunks = (slots.min(MAX_SLOTS) as usize).div_ceil(CHUNK);
        SlotTable { chunks: (0..chunks).map(|_| OnceLock::new()).collect() }
    }

    /// The slot, if it was made.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Slot> {
        self.chunks.get(index as usize >> CHUNK_BITS)?.get()?.get(index as usize & (CHUNK - 1))
    }

    /// So many were made that they do not stay in the cache.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.chunks.get(CACHED_SLOTS / CHUNK).is_some_and(|chunk| chunk.get().is_some())
    }

    /// The slot, made if it was not. `None` beyond the end of the table.
    pub(super) fn make(&self, index: u32) -> Option<&Slot> {
        let chunk = self.chunks.get(index as usize >> CHUNK_BITS)?;
        chunk.get_or_init(|| (0..CHUNK).map(|_| Slot::empty()).collect()).get(index as usize & (CHUNK - 1))
    }
}
