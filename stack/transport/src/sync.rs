//! The one place atomics come from.
//!
//! In: nothing. Out: the atomic types, fences, the lock and the spin hint that every lock-free part of this crate uses, and the
//! places where memory changes hands. A model checker takes their place by changing this file alone: `tests/loom` builds the
//! rings and the memory table again, with a `sync` of its own.
#![forbid(unsafe_code)]

pub(crate) use core::hint::spin_loop;
pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard};

/// A word of registered memory: the host's own, whatever the other atomics are.
pub(crate) use core::sync::atomic::AtomicU64 as MemoryWord;

/// Keeps what one thread writes off the cache line that another thread writes.
#[repr(align(64))]
#[derive(Debug, Default)]
pub(crate) struct OwnLine<T>(pub(crate) T);

/// Says which places of a shared piece of memory are read and written when. Nothing here; in a model checker, an access that
/// is not ordered after the last one by another thread fails.
pub(crate) struct Watch;

impl Watch {
    /// Over so many places.
    #[inline(always)]
    pub(crate) const fn new(_places: u32) -> Watch {
        Watch
    }

    /// `count` places from `at` on are read.
    #[inline(always)]
    pub(crate) const fn reads(&self, _at: u32, _count: u32) {}

    /// They are written.
    #[inline(always)]
    pub(crate) const fn writes(&self, _at: u32, _count: u32) {}
}
