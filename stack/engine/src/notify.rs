//! Queues with a file descriptor: what completion channels and asynchronous events are made of.
//!
//! In: notices from shards. Out: the same to application threads that poll the descriptor or wait with a deadline.
#![forbid(unsafe_code)]

use crate::sys::{self, EventFd, Take};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A bounded queue whose descriptor is readable while something is in it.
#[derive(Debug)]
pub struct Notices<T> {
    fd: EventFd,
    queue: Mutex<Bounded<T>>,
    lost: AtomicU64,
}

#[derive(Debug)]
struct Bounded<T> {
    entries: VecDeque<T>,
    capacity: usize,
}

impl<T> Notices<T> {
    /// A queue of at most `capacity` notices, allocated now.
    ///
    /// # Errors
    /// What `eventfd(2)` says: mostly EMFILE.
    pub fn new(capacity: usize) -> io::Result<Notices<T>> {
        Ok(Notices {
            fd: EventFd::new(Take::One)?,
            queue: Mutex::new(Bounded { entries: VecDeque::with_capacity(capacity), capacity }),
            lost: AtomicU64::new(0),
        })
    }

    /// Makes room for `more` further notices. For the control path: it allocates, so that [`push`](Notices::push) never does.
    pub fn grow(&self, more: usize) {
        let mut queue = self.lock();
        queue.capacity += more;
        let missing = queue.capacity - queue.entries.len();
        queue.entries.reserve(missing);
    }

    /// Takes back the room for `less` notices, for which there was made room before.
    pub fn shrink(&self, less: usize) {
        let mut queue = self.lock();
        queue.capacity = queue.capacity.saturating_sub(less);
    }

    /// Adds a notice and makes the descriptor readable (one `write`). False, and counted, when the queue is full.
    pub fn push(&self, notice: T) -> bool {
        let mut queue = self.lock();
        if queue.entries.len() >= queue.capacity {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        queue.entries.push_back(notice);
        // Under the lock, so that whoever takes the notice out without having read the descriptor can take that back too.
        self.fd.signal();
        true
    }

    /// The oldest notice, if there is one.
    pub fn try_next(&self) -> Option<T> {
        // Whoever has taken from the counter has a claim on an entry, unless `remove` came in between.
        while self.fd.take() {
            if let Some(notice) = self.lock().entries.pop_front() {
                return Some(notice);
            }
        }
        None
    }

    /// The oldest notice, waiting for one up to `timeout` (None: for ever). `Ok(None)` when the time is over.
    ///
    /// # Errors
    /// What `ppoll(2)` says except EINTR.
    pub fn next(&self, timeout: Option<Duration>) -> io::Result<Option<T>> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            if let Some(notice) = self.try_next() {
                return Ok(Some(notice));
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            let left_ns = left.map(|l| u64::try_from(l.as_nanos()).unwrap_or(u64::MAX));
            sys::wait(&mut [sys::readable(self.fd.as_raw_fd())], left_ns)?;
        }
    }

    /// Takes out every notice that `unwanted` says yes to.
    pub fn remove(&self, mut unwanted: impl FnMut(&T) -> bool) {
        let mut queue = self.lock();
        let before = queue.entries.len();
        queue.entries.retain(|notice| !unwanted(notice));
        for _ in queue.entries.len()..before {
            self.fd.take();
        }
    }

    /// Notices that found the queue full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Bounded<T>> {
        // No code that can panic runs under this lock with the queue half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> AsFd for Notices<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl<T> AsRawFd for Notices<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn is_readable<T>(n: &Notices<T>) -> bool {
        sys::wait(&mut [sys::readable(n.as_raw_fd())], Some(0)).unwrap() == 1
    }

    #[test]
    fn readable_exactly_while_something_is_in_it() {
        let n = Notices::new(4).unwrap();
        assert!(!is_readable(&n));
        assert!(n.push(1) && n.push(2));
        assert_eq!(n.try_next(), Some(1));
        assert!(is_readable(&n));
        assert_eq!(n.try_next(), Some(2));
        assert!(!is_readable(&n));
        assert_eq!(n.try_next(), None);
    }

    #[test]
    fn full_drops_and_counts_until_it_grows() {
        let n = Notices::new(1).unwrap();
        assert!(n.push(1));
        assert!(!n.push(2));
        assert_eq!(n.lost(), 1);
        n.grow(1);
        assert!(n.push(3));
        assert_eq!((n.try_next(), n.try_next()), (Some(1), Some(3)));
    }

    #[test]
    fn removed_notices_are_never_seen() {
        let n = Notices::new(4).unwrap();
        assert!(n.push(1) && n.push(2));
        n.remove(|x| *x == 1);
        assert_eq!((n.try_next(), n.try_next()), (Some(2), None));
        assert!(n.push(3) && n.push(4));
        n.remove(|_| true);
        assert!(!is_readable(&n), "nothing is in it");
    }

    #[test]
    fn a_wait_has_an_end() {
        let n: Notices<u8> = Notices::new(4).unwrap();
        assert_eq!(n.next(Some(Duration::from_millis(2))).unwrap(), None);
    }

    #[test]
    fn a_waiter_gets_what_another_thread_pushes() {
        let n = Arc::new(Notices::new(16).unwrap());
        let other = n.clone();
        let pusher = std::thread::spawn(move || {
            for i in 0..1000 {
                while !other.push(i) {
                    std::thread::yield_now();
                }
            }
        });
        for i in 0..1000 {
            assert_eq!(n.next(Some(Duration::from_secs(10))).unwrap(), Some(i));
        }
        pusher.join().unwrap();
    }
}
