//! What a thread does that polls and finds nothing.
//!
//! In: that there was something, or nothing. Out: nothing, but after a while the CPU is offered to others: the peer may be
//! waiting for this very one. As long as both ends have a CPU each, an exchange is over long before, and no system call is made.

use std::time::{Duration, Instant};

/// Polls between two looks at the clock.
const POLLS: u32 = 256;

/// How long to poll in vain before others may have the CPU.
const SPIN: Duration = Duration::from_micros(300);

/// A thread that polls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Idle {
    polls: u32,
    since: Option<Instant>,
}

impl Idle {
    /// There was something.
    #[inline]
    pub fn found(&mut self) {
        *self = Idle::default();
    }

    /// There was nothing.
    #[inline]
    pub fn nothing(&mut self) {
        self.polls += 1;
        if self.polls == POLLS {
            self.look();
        } else {
            std::hint::spin_loop();
        }
    }

    #[cold]
    fn look(&mut self) {
        self.polls = 0;
        if self.since.get_or_insert_with(Instant::now).elapsed() >= SPIN {
            std::thread::yield_now();
        }
    }
}
