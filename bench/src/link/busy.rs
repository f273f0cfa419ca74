//! What of a spinning thread's CPU time was work.
//!
//! In: at the end of each round of its loop, whether there was something to do in it. Out: nanoseconds. A thread that spins
//! takes a whole CPU whatever it does, so its CPU time alone says nothing of what the work costs.

use std::time::{Duration, Instant};

use crate::cpu_time::thread_ns;

/// The time of one thread, from its making on.
pub struct Busy {
    since: Instant,
    worked: Duration,
    waited: Duration,
    cpu_ns: u64,
}

impl Busy {
    /// Begins now, for this thread.
    pub fn begin() -> Busy {
        Busy { since: Instant::now(), worked: Duration::ZERO, waited: Duration::ZERO, cpu_ns: thread_ns() }
    }

    /// A round of the loop is over.
    #[inline]
    pub fn round(&mut self, worked: bool) {
        let now = Instant::now();
        let took = now - self.since;
        self.since = now;
        *(if worked { &mut self.worked } else { &mut self.waited }) += took;
    }

    /// CPU time of the rounds that did something, in nanoseconds. What other programs took from the thread meanwhile is not in
    /// its CPU time, and is taken to have hit both kinds of rounds alike.
    pub fn cpu_ns(&self) -> f64 {
        let all = (self.worked + self.waited).as_secs_f64();
        let part = if all > 0.0 { self.worked.as_secs_f64() / all } else { 0.0 };
        (thread_ns() - self.cpu_ns) as f64 * part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rounds_with_work_count() {
        let spin = |ns: u64| {
            let until = thread_ns() + ns;
            while thread_ns() < until {}
        };
        let (mut idle, mut busy) = (Busy::begin(), Busy::begin());
        spin(2_000_000);
        idle.round(false);
        busy.round(true);
        assert_eq!(idle.cpu_ns(), 0.0);
        assert!(busy.cpu_ns() >= 1_900_000.0, "{} ns", busy.cpu_ns());
    }
}
