//! The time a shard works with.
//!
//! In: the monotonic clock of the machine, or the virtual one of a simulated port. Out: [`Instant`]s, read once a burst.
#![forbid(unsafe_code)]

use xroce_port::Port;
use xroce_transport::instant::Instant;

/// A clock that starts near zero when the engine starts. `clock_gettime(CLOCK_MONOTONIC)` is answered by the vDSO, without
/// a system call.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
}

impl Clock {
    /// A clock that shows zero now.
    pub fn start() -> Clock {
        Clock { start: std::time::Instant::now() }
    }

    /// The machine's time since the start.
    #[inline]
    pub fn real(&self) -> Instant {
        Instant(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The time at `port`: its own if it lives in virtual time, else the machine's.
    #[inline]
    pub fn at(&self, port: &dyn Port) -> Instant {
        port.now_hint().map_or_else(|| self.real(), Instant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_starts_small_and_grows() {
        let clock = Clock::start();
        let first = clock.real();
        std::thread::sleep(std::time::Duration::from_millis(1));
        let second = clock.real();
        assert!(second.0 - first.0 >= 1_000_000);
        assert!(first.0 < 1_000_000_000);
    }
}
