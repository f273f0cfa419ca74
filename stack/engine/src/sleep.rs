//! How the thread behind a shard sleeps and is woken.
//!
//! In: "I am going to sleep until then" from that thread, "there is work" from posting threads and other shards. Out: a
//! wake-up exactly when it is needed: ringing a doorbell costs a system call only while somebody sleeps.
#![forbid(unsafe_code)]

use crate::sync::{AtomicU8, AtomicU64, Ordering, fence};
use crate::sys::{self, EventFd, Take};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use xroce_transport::instant::Instant;

/// How deep the thread sleeps, that is, what is worth waking it for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Depth {
    /// It does not sleep.
    Awake = 0,
    /// It looks in again by itself soon and only wants to hear that it is needed now.
    Patrol = 1,
    /// It sleeps until there is work: everybody who makes work wakes it.
    Asleep = 2,
}

/// The bed of one thread. At most one thread sleeps in it at a time.
#[derive(Debug)]
pub struct Sleeper {
    fd: EventFd,
    depth: AtomicU8,
    wake_at: AtomicU64,
}

impl Sleeper {
    /// An empty bed.
    ///
    /// # Errors
    /// What `eventfd(2)` says: mostly EMFILE.
    pub fn new() -> io::Result<Sleeper> {
        Ok(Sleeper { fd: EventFd::new(Take::All)?, depth: AtomicU8::new(0), wake_at: AtomicU64::new(0) })
    }

    /// Announces that the thread is about to sleep. From here on work that arrives signals the descriptor; the caller
    /// looks for work that came before once more, sets the [`alarm`](Sleeper::alarm) and then calls
    /// [`sleep`](Sleeper::sleep) or [`rise`](Sleeper::rise).
    pub fn lie_down(&self, depth: Depth) {
        self.wake_at.store(0, Ordering::Relaxed);
        self.depth.store(depth as u8, Ordering::Relaxed);
        // Pairs with the fence in `wake`: either the caller's second look sees the work, or the waker sees the depth.
        fence(Ordering::SeqCst);
    }

    /// The thread will sleep until `until` at most. Called with the token held, so that whoever steps the shard next knows
    /// whether a new deadline is nearer.
    pub fn alarm(&self, until: Option<Instant>) {
        self.wake_at.store(until.map_or(u64::MAX, |u| u.0), Ordering::Relaxed);
    }

    /// Sleeps until one of `fds` is readable, someone wakes, or `timeout_ns` (None: for ever) passed.
    ///
    /// # Errors
    /// What `ppoll(2)` says except EINTR. The thread is awake afterwards in any case.
    pub fn sleep(&self, fds: &[RawFd], timeout_ns: Option<u64>, scratch: &mut Vec<libc::pollfd>) -> io::Result<()> {
        scratch.clear();
        scratch.push(sys::readable(self.fd.as_raw_fd()));
        scratch.extend(fds.iter().map(|fd| sys::readable(*fd)));
        let woken = sys::wait(scratch, timeout_ns);
        self.rise();
        woken.map(|_| ())
    }

    /// The thread is awake; wake-ups not heard yet are forgotten.
    pub fn rise(&self) {
        self.depth.store(Depth::Awake as u8, Ordering::Relaxed);
        self.fd.take();
    }

    /// There is work: wakes the thread if it is [`Asleep`](Depth::Asleep). No system call otherwise.
    #[inline]
    pub fn wake(&self) {
        self.wake_if(|depth| depth == Depth::Asleep as u8);
    }

    /// Somebody relies on the thread from now on: ends its [`Patrol`](Depth::Patrol). No system call otherwise.
    #[inline]
    pub fn call(&self) {
        self.wake_if(|depth| depth == Depth::Patrol as u8);
    }

    /// Wakes the thread however it sleeps.
    pub fn rouse(&self) {
        self.wake_if(|depth| depth != Depth::Awake as u8);
    }

    #[inline]
    fn wake_if(&self, wanted: impl Fn(u8) -> bool) {
        // Pairs with the fence in `lie_down`.
        fence(Ordering::SeqCst);
        if wanted(self.depth.load(Ordering::Relaxed)) {
            self.wake_slow();
        }
    }

    /// Whether the thread sleeps so deep that it has to hear of work. Only with the token held is what it says more than a hint:
    /// whoever lies down later looks for work under the token first.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        self.depth.load(Ordering::Relaxed) == Depth::Asleep as u8
    }

    /// There is a deadline at `at`: wakes the thread if it would sleep past it.
    #[inline]
    pub fn wake_before(&self, at: Instant) {
        if self.is_asleep() && self.wake_at.load(Ordering::Relaxed) > at.0 {
            self.wake_slow();
        }
    }

    #[cold]
    fn wake_slow(&self) {
        // One waker is enough: who swaps the depth out writes.
        if self.depth.swap(Depth::Awake as u8, Ordering::AcqRel) != Depth::Awake as u8 {
            self.fd.signal();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn nobody_asleep_costs_no_signal() {
        let s = Sleeper::new().unwrap();
        s.wake();
        s.call();
        s.rouse();
        assert!(!s.fd.take());
    }

    #[test]
    fn a_patrol_is_woken_only_when_it_is_needed() {
        let s = Sleeper::new().unwrap();
        s.lie_down(Depth::Patrol);
        s.wake();
        assert!(!s.fd.take(), "a doorbell leaves it alone");
        s.call();
        assert!(s.fd.take());
    }

    #[test]
    fn who_is_on_duty_needs_no_call() {
        let s = Sleeper::new().unwrap();
        s.lie_down(Depth::Asleep);
        s.call();
        assert!(!s.fd.take());
        s.rouse();
        assert!(s.fd.take());
    }

    #[test]
    fn a_nearer_deadline_wakes() {
        let s = Arc::new(Sleeper::new().unwrap());
        let other = s.clone();
        let t = std::thread::spawn(move || {
            other.lie_down(Depth::Asleep);
            other.alarm(None);
            other.sleep(&[], None, &mut Vec::new()).unwrap();
        });
        while !t.is_finished() {
            s.wake_before(Instant(5));
            std::thread::yield_now();
        }
        t.join().unwrap();
    }

    #[test]
    fn no_wake_up_is_lost() {
        let s = Arc::new(Sleeper::new().unwrap());
        let work = Arc::new(AtomicBool::new(false));
        let (other, theirs) = (s.clone(), work.clone());
        const ROUNDS: usize = 2_000;
        let sleeper = std::thread::spawn(move || {
            let mut scratch = Vec::new();
            for _ in 0..ROUNDS {
                loop {
                    other.lie_down(Depth::Asleep);
                    if theirs.swap(false, Ordering::AcqRel) {
                        other.rise();
                        break;
                    }
                    let start = std::time::Instant::now();
                    other.sleep(&[], Some(5_000_000_000), &mut scratch).unwrap();
                    assert!(start.elapsed().as_secs() < 5, "the wake-up was lost");
                }
            }
        });
        for _ in 0..ROUNDS {
            work.store(true, Ordering::Release);
            s.wake();
            while work.load(Ordering::Acquire) {
                std::hint::spin_loop();
                std::thread::yield_now();
            }
        }
        sleeper.join().unwrap();
    }
}
