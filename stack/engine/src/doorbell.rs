//! Doorbells: which queue pairs have posted work that the shard has not looked at.
//!
//! In: QP numbers from posting threads. Out: each of them once, to whoever steps the shard.
#![forbid(unsafe_code)]

use crate::sync::{ArrayQueue, AtomicU32, AtomicU64, Ordering};
use xroce_wire::Qpn;

/// The low bits of a QP number are its index in the table; the bits above are process slot and generation.
const INDEX_MASK: u32 = 0xffff;

/// One bit per queue pair and a ring of QP indices.
///
/// The bit says "is in the ring", so the ring never holds a QP twice and, with one slot per QP of the shard, never
/// overflows. The ring carries indices, not numbers: a bell rung for a queue pair that was destroyed meanwhile must not hide
/// the bell of its successor in the same place.
#[derive(Debug)]
pub struct Doorbell {
    rung: Box<[AtomicU64]>,
    current: Box<[AtomicU32]>,
    ring: ArrayQueue<u16>,
}

impl Doorbell {
    /// Doorbells for QP indices `0..indices` (at most 65536) of which at most `of_shard` belong to this shard.
    ///
    /// # Panics
    /// If `of_shard` is 0.
    pub fn new(indices: u32, of_shard: u32) -> Doorbell {
        let words = (indices as usize).div_ceil(64);
        Doorbell {
            rung: (0..words).map(|_| AtomicU64::new(0)).collect(),
            current: (0..words * 64).map(|i| AtomicU32::new(i as u32)).collect(),
            ring: ArrayQueue::new(of_shard as usize),
        }
    }

    /// From now on the bell of this index belongs to `qpn`. Called when the queue pair is created.
    pub fn assign(&self, qpn: Qpn) {
        if let Some(current) = self.current.get((qpn.value() & INDEX_MASK) as usize) {
            current.store(qpn.value(), Ordering::Release);
        }
    }

    /// Work was posted to `qpn`'s queues. True when the bell was not rung yet, so that a sleeper may need waking.
    /// A number outside the table is ignored.
    #[inline]
    pub fn ring(&self, qpn: Qpn) -> bool {
        let index = (qpn.value() & INDEX_MASK) as u16;
        let Some((word, bit)) = self.place(index) else { return false };
        // AcqRel: the entry written before is seen by whoever clears the bit; if the bit was set, its clearing is still to
        // come and will see the entry too.
        if word.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return false;
        }
        let pushed = self.ring.push(index).is_ok();
        debug_assert!(pushed, "a slot per queue pair, and each at most once");
        true
    }

    /// The next QP whose bell was rung. Its bit is cleared first: work posted after that rings again.
    #[inline]
    pub fn pop(&self) -> Option<Qpn> {
        let index = self.ring.pop()?;
        if let Some((word, bit)) = self.place(index) {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
        Some(Qpn::new(self.current.get(index as usize)?.load(Ordering::Acquire)))
    }

    /// Whether no bell waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    fn place(&self, index: u16) -> Option<(&AtomicU64, u64)> {
        Some((self.rung.get(index as usize / 64)?, 1 << (index % 64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn rung_twice_is_heard_once() {
        let d = Doorbell::new(128, 128);
        assert!(d.ring(Qpn::new(65)));
        assert!(!d.ring(Qpn::new(65)));
        assert!(d.ring(Qpn::new(3)));
        assert_eq!((d.pop(), d.pop(), d.pop()), (Some(Qpn::new(65)), Some(Qpn::new(3)), None));
        assert!(d.ring(Qpn::new(65)), "after the pop it can be rung again");
    }

    #[test]
    fn an_index_outside_the_table_is_ignored() {
        let d = Doorbell::new(64, 64);
        assert!(!d.ring(Qpn::new(64)));
        assert!(d.is_empty());
    }

    #[test]
    fn the_ring_holds_every_queue_pair_at_once() {
        let d = Doorbell::new(1000, 1000);
        for i in 0..1000 {
            assert!(d.ring(Qpn::new(i)));
        }
        assert_eq!(std::iter::from_fn(|| d.pop()).count(), 1000);
    }

    #[test]
    fn a_successor_in_the_same_place_is_heard() {
        let d = Doorbell::new(64, 64);
        let (old, new) = (Qpn::new(0x0001_0005), Qpn::new(0x0002_0005));
        d.assign(old);
        d.ring(old);
        d.assign(new);
        assert!(!d.ring(new), "the bell of the index hangs already");
        assert_eq!(d.pop(), Some(new));
    }

    #[test]
    fn no_ring_is_lost_between_threads() {
        // A counter per QP stands for its work queue: the pop that follows a ring must see every post before it.
        const POSTS: u64 = 20_000;
        let d = Arc::new(Doorbell::new(8, 8));
        let posted: Arc<Vec<AtomicU64>> = Arc::new((0..8).map(|_| AtomicU64::new(0)).collect());
        let poster = {
            let (d, posted) = (d.clone(), posted.clone());
            std::thread::spawn(move || {
                for i in 0..POSTS {
                    let qp = (i % 8) as u32;
                    posted[qp as usize].fetch_add(1, Ordering::Relaxed);
                    d.ring(Qpn::new(qp));
                }
            })
        };
        let mut seen = [0u64; 8];
        loop {
            let done = poster.is_finished();
            while let Some(qpn) = d.pop() {
                seen[qpn.value() as usize] = posted[qpn.value() as usize].load(Ordering::Relaxed);
            }
            if done {
                break;
            }
        }
        poster.join().unwrap();
        assert_eq!(seen, [POSTS / 8; 8]);
    }
}
