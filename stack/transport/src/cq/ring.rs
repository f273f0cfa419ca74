//! The memory of a completion queue, and who may touch which slot.
//!
//! In: completions from many threads. Out: the same, to whoever holds the lock.
//!
//! The rule all `unsafe` here rests on, for the slot of position *p* in a ring of *n*: while its sequence is `p`, it is
//! written by the one producer whose compare-and-swap moved `tail` from `p`; from the store of `p + 1` (Release) on it
//! belongs to the holder of the lock, who loaded that sequence (Acquire); from the store of `p + n` (Release) on it is
//! free for position `p + n`. Positions are 64 bits and do not wrap.

use crate::sync::{AtomicBool, AtomicU64, Ordering, OwnLine, Watch, spin_loop};
use crate::wc::Wc;
use core::cell::UnsafeCell;

struct Slot {
    sequence: AtomicU64,
    wc: UnsafeCell<Wc>,
    watch: Watch,
}

/// A position that one producer has claimed in this ring. Not `Copy`: it is published once.
pub(super) struct Claimed(u64);

pub(super) struct Ring {
    slots: Box<[Slot]>,
    /// The position the next producer claims.
    tail: OwnLine<AtomicU64>,
    /// The position of the oldest completion; stored by the holder of the lock only.
    head: OwnLine<AtomicU64>,
    locked: AtomicBool,
}

// SAFETY: a slot's completion is reached by one thread at a time, by the rule at the head of this file; a Wc is plain
// data and may be sent. Everything else is atomic or does not change.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring for at least `cqe` completions, and at least two: with one slot, "published" and "free for the next
    /// round" would be the same number.
    pub(super) fn new(cqe: u32) -> Ring {
        let slots = u64::from(cqe.max(2).next_power_of_two());
        let slot = |position| Slot {
            sequence: AtomicU64::new(position),
            wc: UnsafeCell::new(Wc::default()),
            watch: Watch::new(1),
        };
        Ring {
            slots: (0..slots).map(slot).collect(),
            tail: OwnLine::default(),
            head: OwnLine::default(),
            locked: AtomicBool::new(false),
        }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    fn slot(&self, position: u64) -> &Slot {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// Appends a completion; false if there is no free slot.
    pub(super) fn push(&self, wc: Wc) -> bool {
        let Some(position) = self.claim() else { return false };
        self.publish(position, wc);
        true
    }

    /// Claims the next position, if its slot is free.
    pub(super) fn claim(&self) -> Option<Claimed> {
        let mut position = self.tail.0.load(Ordering::Relaxed);
        loop {
            let sequence = self.slot(position).sequence.load(Ordering::Acquire);
            if sequence == position {
                match self.tail.0.compare_exchange_weak(position, position + 1, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return Some(Claimed(position)),
                    Err(now) => position = now,
                }
            } else {
                // Behind: of the round before, and not taken yet; the ring is full, unless `tail` has moved meanwhile.
                // Ahead: `tail` has moved.
                let now = self.tail.0.load(Ordering::Relaxed);
                if now == position && sequence < position {
                    return None;
                }
                position = now;
            }
        }
    }

    /// Fills a claimed slot and lets consumers have it.
    pub(super) fn publish(&self, Claimed(position): Claimed, wc: Wc) {
        let slot = self.slot(position);
        slot.watch.writes(0, 1);
        // SAFETY: the sequence was `position` and the holder of the claim moved `tail` from there, so the slot is its own
        // until it stores the next sequence; a claim is used up by publishing.
        unsafe { *slot.wc.get() = wc };
        slot.sequence.store(position + 1, Ordering::Release);
    }

    /// Whether nothing is claimed that has not been taken.
    pub(super) fn is_empty(&self) -> bool {
        self.head.0.load(Ordering::Relaxed) >= self.tail.0.load(Ordering::Relaxed)
    }

    /// Whether a slot is claimed and not published yet. May say so of one that is being taken.
    pub(super) fn has_unpublished(&self) -> bool {
        let (head, tail) = (self.head.0.load(Ordering::Relaxed), self.tail.0.load(Ordering::Relaxed));
        (head..tail).any(|position| !self.is_published(position))
    }

    fn is_published(&self, position: u64) -> bool {
        self.slot(position).sequence.load(Ordering::Acquire) == position + 1
    }

    /// The right to take completions; waits for other consumers, which hold it for one poll.
    pub(super) fn lock(&self) -> Consumer<'_> {
        while self.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.locked.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
        Consumer { ring: self }
    }
}

/// The holder of the lock.
pub(super) struct Consumer<'a> {
    ring: &'a Ring,
}

impl Drop for Consumer<'_> {
    fn drop(&mut self) {
        self.ring.locked.store(false, Ordering::Release);
    }
}

impl Consumer<'_> {
    fn head(&self) -> u64 {
        self.ring.head.0.load(Ordering::Relaxed)
    }

    /// Takes the oldest completion, if it is published.
    pub(super) fn pop(&mut self) -> Option<Wc> {
        let head = self.head();
        if !self.ring.is_published(head) {
            return None;
        }
        let wc = self.get(head);
        self.free(head);
        Some(wc)
    }

    /// Drops the completions that `keep` refuses, of all that were claimed when this began.
    pub(super) fn retain(&mut self, keep: impl Fn(&Wc) -> bool) {
        let (head, tail) = (self.head(), self.ring.tail.0.load(Ordering::Acquire));
        for position in head..tail {
            // Claimed, so its producer is between two stores; no consumer can be what it waits for.
            while !self.ring.is_published(position) {
                spin_loop();
            }
        }
        // From the newest backwards, what is kept moves up against the tail; the slots left over at the head are freed.
        let mut to = tail;
        for position in (head..tail).rev() {
            let wc = self.get(position);
            if keep(&wc) {
                to -= 1;
                self.set(to, wc);
            }
        }
        for position in head..to {
            self.free(position);
        }
    }

    /// The completion at a published position.
    fn get(&self, position: u64) -> Wc {
        debug_assert!(self.ring.is_published(position));
        let slot = self.ring.slot(position);
        slot.watch.reads(0, 1);
        // SAFETY: published and not freed, so it belongs to the holder of the lock, which is `self`.
        unsafe { *slot.wc.get() }
    }

    /// Replaces the completion at a published position.
    fn set(&mut self, position: u64, wc: Wc) {
        debug_assert!(self.ring.is_published(position));
        let slot = self.ring.slot(position);
        slot.watch.writes(0, 1);
        // SAFETY: published and not freed, so it belongs to the holder of the lock, which is `self`, exclusively.
        unsafe { *slot.wc.get() = wc }
    }

    /// Gives the slot at the head back to the producers.
    fn free(&mut self, position: u64) {
        let next_round = position + self.ring.slots.len() as u64;
        self.ring.slot(position).sequence.store(next_round, Ordering::Release);
        self.ring.head.0.store(position + 1, Ordering::Relaxed);
    }
}
