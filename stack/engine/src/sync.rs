//! The one place the atomics and locks of what threads share without waiting come from: token, doorbell, sleeper.
//!
//! In: nothing. Out: types, and a time. A model checker takes their place by changing this file alone: `tests/loom` builds those files
//! again, with a `sync` of its own.
#![forbid(unsafe_code)]

pub(crate) use crossbeam_queue::ArrayQueue;
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard, TryLockError};
pub(crate) use std::thread::yield_now;

/// Microseconds since some moment before the first call: a model checker, in which no time passes, has another.
pub(crate) fn microseconds() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let elapsed = START.get_or_init(std::time::Instant::now).elapsed();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}
