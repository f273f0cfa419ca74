//! When memory that was deregistered may be freed.
//!
//! In: readers that say when they look things up (pin) and when they hold nothing any more (unpin). Out: for a change
//! made at some moment, whether every reader that was at work then has let go.
//!
//! Quiescent-state based reclamation: a reader counts its pins and unpins, so an odd count means at work. A change looks
//! at all counts once and then waits for the odd ones to move. A reader pays two stores and a fence for a whole burst.
#![forbid(unsafe_code)]

use crate::sync::{AtomicU64, Ordering, OwnLine, fence};
use core::cell::Cell;
use std::sync::Arc;

type Count = OwnLine<AtomicU64>;

/// Somebody who looks things up: one per shard, used by one thread at a time.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Count>,
    count: Cell<u64>,
}

impl Reader {
    /// Begins a burst of look-ups. Does nothing if one is begun already.
    #[inline]
    pub fn pin(&self) {
        if self.is_pinned() {
            return;
        }
        self.count.set(self.count.get() + 1);
        self.shared.0.store(self.count.get(), Ordering::Relaxed);
        // Pairs with the fence in `Readers::snapshot`: either the change sees this reader at work, or this reader sees the
        // change.
        fence(Ordering::SeqCst);
    }

    /// Ends it: nothing that was looked up since [`pin`](Reader::pin) is used any more. Does nothing if none is begun.
    #[inline]
    pub fn unpin(&self) {
        if self.is_pinned() {
            self.count.set(self.count.get() + 1);
            // Release: whatever was done to the memory is done before the change counts this reader as gone.
            self.shared.0.store(self.count.get(), Ordering::Release);
        }
    }

    /// Whether a burst is begun.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        is_odd(self.count.get())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.unpin();
    }
}

fn is_odd(count: u64) -> bool {
    count & 1 == 1
}

/// All readers of one table.
#[derive(Debug, Default)]
pub(super) struct Readers {
    all: Vec<Arc<Count>>,
}

impl Readers {
    /// One more reader. Those that are gone make room.
    pub(super) fn add(&mut self) -> Reader {
        self.all.retain(|count| Arc::strong_count(count) > 1);
        let shared = Arc::new(Count::default());
        self.all.push(Arc::clone(&shared));
        Reader { shared, count: Cell::new(0) }
    }

    /// The readers at work now, just after a change was stored.
    pub(super) fn snapshot(&self) -> Grace {
        fence(Ordering::SeqCst);
        let waits = self.all.iter().filter_map(|count| {
            let seen = count.0.load(Ordering::Acquire);
            is_odd(seen).then(|| (Arc::clone(count), seen))
        });
        Grace { waits: waits.collect() }
    }
}

/// The readers that may still use what was changed.
#[derive(Debug, Clone)]
pub struct Grace {
    waits: Arc<[(Arc<Count>, u64)]>,
}

impl Grace {
    /// Whether all of them have unpinned since: the memory may be freed. Once true it stays true.
    pub fn done(&self) -> bool {
        self.waits.iter().all(|(count, seen)| count.0.load(Ordering::Acquire) != *seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_readers_at_work_are_waited_for() {
        let mut readers = Readers::default();
        let (a, b) = (readers.add(), readers.add());
        assert!(readers.snapshot().done());
        a.pin();
        let grace = readers.snapshot();
        assert!(!grace.done());
        b.pin();
        a.unpin();
        assert!(grace.done(), "b began after the change");
        a.pin();
        assert!(grace.done(), "a began again after the change");
    }

    #[test]
    fn pin_and_unpin_do_not_nest() {
        let mut readers = Readers::default();
        let reader = readers.add();
        reader.unpin();
        assert!(!reader.is_pinned());
        reader.pin();
        reader.pin();
        let grace = readers.snapshot();
        reader.unpin();
        assert!(grace.done() && !reader.is_pinned());
    }

    #[test]
    fn a_reader_that_is_dropped_has_let_go() {
        let mut readers = Readers::default();
        let reader = readers.add();
        reader.pin();
        let grace = readers.snapshot();
        assert!(!grace.done());
        drop(reader);
        assert!(grace.done());
        drop(grace);
        let _again = readers.add();
        assert_eq!(readers.all.len(), 1);
    }
}
