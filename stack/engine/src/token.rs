//! The token of a shard: who holds it may run the shard.
//!
//! In: threads that want to step or to change something. Out: exclusive access for one of them, by one compare-and-swap.
#![forbid(unsafe_code)]

use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering, TryLockError, microseconds, yield_now};

/// How long steppers stand back for whoever insists, and then go on, by turns, in microseconds. Whoever insists and has a CPU takes
/// less; whoever has lost it to others, or to the very steppers, must not stop them meanwhile.
const TURN_US: u64 = 50;

/// Exclusive access to `T`, taken by one compare-and-swap and never by sleeping in the kernel.
///
/// Two kinds of takers share it. Steppers ([`try_take`](Token::try_take)) give up at once: somebody else is doing the
/// work. Control calls ([`take`](Token::take)) insist; while one waits, steppers stand back half of the time, so that a spinning
/// poll thread cannot starve a `create_qp`, nor a thread that waits for a CPU in the middle of one the packets.
#[derive(Debug)]
pub struct Token<T> {
    inner: Mutex<T>,
    insisting: AtomicU32,
}

/// The holder panicked in the middle of a step; what the token guards is not to be trusted any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a thread panicked while it ran this shard; close the device and open it again")]
pub struct Broken;

/// Access while it lives.
pub type Held<'a, T> = MutexGuard<'a, T>;

impl<T> Token<T> {
    /// A token that nobody holds.
    pub fn new(value: T) -> Token<T> {
        Token { inner: Mutex::new(value), insisting: AtomicU32::new(0) }
    }

    /// The token, if nobody holds it and it is not the turn of a control call that waits for it.
    #[inline]
    pub fn try_take(&self) -> Option<Held<'_, T>> {
        // Relaxed: fairness only; exclusion is the mutex's.
        if self.insisting.load(Ordering::Relaxed) != 0 && stands_back(microseconds()) {
            return None;
        }
        self.inner.try_lock().ok()
    }

    /// The token, as soon as its holder gives it back. Gives its CPU away between its tries: a step is bounded, but
    /// its thread may lose its CPU in the middle, and steppers go on half of the time.
    ///
    /// # Errors
    /// [`Broken`] after a holder panicked.
    pub fn take(&self) -> Result<Held<'_, T>, Broken> {
        self.insisting.fetch_add(1, Ordering::Relaxed);
        let held = loop {
            match self.inner.try_lock() {
                Ok(held) => break Ok(held),
                Err(TryLockError::Poisoned(_)) => break Err(Broken),
                Err(TryLockError::WouldBlock) => yield_now(),
            }
        };
        self.insisting.fetch_sub(1, Ordering::Relaxed);
        held
    }

    /// Whether a holder panicked.
    pub fn is_broken(&self) -> bool {
        self.inner.is_poisoned()
    }
}

/// Whether it is the turn of those who insist.
fn stands_back(now_us: u64) -> bool {
    (now_us / TURN_US).is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    #[test]
    fn one_holder_at_a_time() {
        let t = Token::new(1);
        let held = t.try_take().unwrap();
        assert!(t.try_take().is_none());
        drop(held);
        assert!(t.try_take().is_some());
    }

    #[test]
    fn a_control_call_gets_past_a_spinning_stepper() {
        let t = Arc::new(Token::new(0u64));
        let stop = Arc::new(AtomicBool::new(false));
        let spinner = {
            let (t, stop) = (t.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if let Some(mut held) = t.try_take() {
                        *held += 1;
                    }
                }
            })
        };
        for _ in 0..100 {
            *t.take().unwrap() += 1;
        }
        stop.store(true, Ordering::Relaxed);
        spinner.join().unwrap();
        assert!(*t.take().unwrap() >= 100);
    }

    /// As a real-time thread that spins on the last CPU does to it.
    #[test]
    fn who_insists_and_has_no_cpu_stops_nobody() {
        let t = Token::new(());
        t.insisting.fetch_add(1, Ordering::Relaxed);
        let (start, mut steps, mut refusals) = (Instant::now(), 0, 0);
        while (steps == 0 || refusals == 0) && start.elapsed() < Duration::from_secs(20) {
            if t.try_take().is_some() { steps += 1 } else { refusals += 1 }
        }
        assert!(steps > 0 && refusals > 0, "{steps} steps, {refusals} refusals");
        assert_eq!((0..4 * TURN_US).filter(|now| stands_back(*now)).count() as u64, 2 * TURN_US);
    }

    #[test]
    fn a_panic_breaks_the_token_for_everybody() {
        let t = Arc::new(Token::new(()));
        let other = t.clone();
        let died = std::thread::spawn(move || {
            let _held = other.take().unwrap();
            std::panic::resume_unwind(Box::new("the step dies"));
        });
        assert!(died.join().is_err());
        assert!(t.try_take().is_none());
        assert_eq!(t.take().err(), Some(Broken));
        assert!(t.is_broken());
    }
}
