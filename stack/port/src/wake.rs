//! Waking a thread that sleeps on a port which has no socket of its own.
//!
//! What enters: "something arrived" and "something will be due". What leaves: two descriptors that become readable
//! then, for `poll(2)`.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

const NS_PER_S: u64 = 1_000_000_000;

/// An eventfd for what has happened and a timerfd for what will.
#[derive(Debug)]
pub(crate) struct Wake {
    event: OwnedFd,
    timer: OwnedFd,
}

impl Wake {
    /// Opens both descriptors, non-blocking and close-on-exec.
    pub(crate) fn new() -> io::Result<Wake> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Wake { event, timer })
    }

    /// Appends both descriptors.
    pub(crate) fn fds(&self, out: &mut Vec<RawFd>) {
        out.extend([self.event.as_raw_fd(), self.timer.as_raw_fd()]);
    }

    /// Makes the sleeper wake now. The only failure an open eventfd knows is a full counter, which is readable anyway.
    pub(crate) fn signal(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Makes the sleeper wake `after_ns` from now; replaces an earlier time. `None` takes the time away.
    pub(crate) fn arm(&self, after_ns: Option<u64>) {
        // Zero would disarm the timer: due now is one nanosecond from now.
        let ns = after_ns.map_or(0, |ns| ns.max(1));
        let value = Timespec { tv_sec: (ns / NS_PER_S).cast_signed(), tv_nsec: (ns % NS_PER_S).cast_signed() };
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec);
        debug_assert!(set.is_ok(), "an open timerfd takes any time below 2^63 s: {set:?}");
    }

    /// Forgets what was signalled, so that the next sleep is a sleep. An empty descriptor answers EAGAIN.
    pub(crate) fn drain(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        let _ = rustix::io::read(&self.timer, &mut count);
    }
}
