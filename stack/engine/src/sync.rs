//! The one place the atomics and locks of what threads share without waiting come from: token, doorbell, sleeper.
//!
//! In: nothing. Out: types. A model checker takes their place by changing this file alone: `tests/loom` builds those files
//! again, with a `sync` of its own.
#![forbid(unsafe_code)]

pub(crate) use crossbeam_queue::ArrayQueue;
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard, TryLockError};
pub(crate) use std::thread::yield_now;
