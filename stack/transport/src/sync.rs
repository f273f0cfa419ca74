//! The one place atomics come from.
//!
//! In: nothing. Out: the atomic types, fences and the spin hint that every lock-free part of this crate uses. A model
//! checker takes their place by changing this file alone.
#![forbid(unsafe_code)]

pub(crate) use core::hint::spin_loop;
pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// Keeps what one thread writes off the cache line that another thread writes.
#[repr(align(64))]
#[derive(Debug, Default)]
pub(crate) struct OwnLine<T>(pub(crate) T);
