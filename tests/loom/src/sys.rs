//! What stands in for the engine's `sys.rs`: a counter where the kernel has a descriptor.
//!
//! In: signals. Out: whether there was one. Nobody waits in a model: that a sleeper would have been woken is what is asked.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;

thread_local! {
    // Loom runs all threads of a model in one.
    static SIGNALS: Cell<u32> = const { Cell::new(0) };
}

/// Signals given so far, to whomever.
pub fn signals() -> u32 {
    SIGNALS.get()
}

/// A counter that says whether somebody signalled.
#[derive(Debug)]
pub struct EventFd(loom::sync::atomic::AtomicU32);

/// As in the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    /// A read takes everything.
    All,
}

impl EventFd {
    /// Not signalled.
    ///
    /// # Errors
    /// None.
    pub fn new(_: Take) -> io::Result<EventFd> {
        Ok(EventFd(loom::sync::atomic::AtomicU32::new(0)))
    }

    /// Adds one.
    pub fn signal(&self) {
        SIGNALS.set(SIGNALS.get() + 1);
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes everything; false when there was nothing.
    pub fn take(&self) -> bool {
        self.0.swap(0, Ordering::Relaxed) != 0
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        -1
    }
}

/// An entry that nobody waits for.
pub fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: 0, revents: 0 }
}

/// Returns at once.
///
/// # Errors
/// None.
pub fn wait(_: &mut [libc::pollfd], _: Option<u64>) -> io::Result<usize> {
    Ok(0)
}
