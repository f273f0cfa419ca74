//! The memory of a work queue, and who may touch which part of it.
//!
//! In: entries of whole units. Out: the same entries in order, read in place until they are retired.
//!
//! The one rule all `unsafe` here rests on: the units of the entries numbered `retired` up to `posted` are read only, by
//! the consumer; all other units are the producer's. Both counts only grow. `posted` is stored by the producer after
//! it has written (Release) and loaded by the consumer before it reads (Acquire); `retired` the other way round.
//!
//! The producer counts entries, not units. That is enough: with `capacity = depth · max + max - 1` units and fewer than
//! `depth` entries of at most `max` units in the ring, the free units are either one piece between the end of the newest
//! entry and the start of the oldest, then at least `capacity - (depth - 1) · max - (max - 1) = max` units (the last
//! term is a skip, which is shorter than the entry that did not fit); or one piece at the end and one at the start, and if
//! the first is shorter than `max`, the second has at least `max` units by the same sum.

use crate::sync::{AtomicU64, Ordering, OwnLine, Watch};
use crate::wr::Sge;
use core::cell::UnsafeCell;
use std::sync::Arc;

/// The grain of the ring: 16 bytes. The low 16 bits of the second word of an entry's first unit say how many units it
/// has; 0 is the mark that skips to the start of the ring. The ring writes these bits itself.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub(super) struct Unit(pub(super) [u64; 2]);

pub(super) const UNIT: usize = size_of::<Unit>();
const UNITS_MASK: u64 = 0xFFFF;
const _: () = assert!(UNIT == 16 && size_of::<Sge>() == UNIT && align_of::<Sge>() <= align_of::<Unit>());

impl Unit {
    pub(super) const ZERO: Unit = Unit([0; 2]);

    fn units(&self) -> u32 {
        (self.0[1] & UNITS_MASK) as u32
    }

    pub(super) fn from_sge(sge: Sge) -> Unit {
        // SAFETY: an Sge is 8 + 4 + 4 bytes without padding (its size is asserted above), so all 16 bytes are
        // initialised, and any 16 bytes are a Unit.
        unsafe { core::mem::transmute::<Sge, Unit>(sge) }
    }

    /// Units written by [`Unit::from_sge`], as SGEs.
    pub(super) fn sges(units: &[Unit]) -> &[Sge] {
        // SAFETY: same size, and an alignment that is no larger (asserted above); any 16 initialised bytes are an Sge,
        // which is made of integers. The lifetime is that of `units`.
        unsafe { core::slice::from_raw_parts(units.as_ptr().cast(), units.len()) }
    }

    pub(super) fn bytes(units: &[Unit]) -> &[u8] {
        // SAFETY: units are two words without padding; bytes have no alignment. The lifetime is that of `units`.
        unsafe { core::slice::from_raw_parts(units.as_ptr().cast(), size_of_val(units)) }
    }

    pub(super) fn bytes_mut(units: &mut [Unit]) -> &mut [u8] {
        // SAFETY: as in `bytes`; any bytes are a Unit, and the exclusive borrow passes over.
        unsafe { core::slice::from_raw_parts_mut(units.as_mut_ptr().cast(), size_of_val(units)) }
    }
}

/// What producer and consumer share.
pub(super) struct Ring {
    units: Box<[UnsafeCell<Unit>]>,
    watch: Watch,
    depth: u32,
    max_units: u32,
    /// Entries posted since the beginning.
    posted: OwnLine<AtomicU64>,
    /// Entries retired since the beginning.
    retired: OwnLine<AtomicU64>,
}

// SAFETY: the cells are reached through the one Producer and the one Consumer of a ring only, by the rule at the head of
// this file; the counts are atomic, the rest does not change.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring for `depth` entries of up to `max_units` units (1 to 65,535).
    pub(super) fn pair(depth: u32, max_units: u32) -> (Producer, Consumer) {
        let max_units = max_units.clamp(1, UNITS_MASK as u32);
        let capacity = depth * max_units + max_units - 1;
        let ring = Arc::new(Ring {
            units: (0..capacity).map(|_| UnsafeCell::new(Unit::ZERO)).collect(),
            watch: Watch::new(capacity),
            depth,
            max_units,
            posted: OwnLine::default(),
            retired: OwnLine::default(),
        });
        let consumer = Consumer { ring: Arc::clone(&ring), taken: 0, retired: 0, unit: 0 };
        (Producer { ring, posted: 0, retired_seen: 0, unit: 0 }, consumer)
    }

    fn capacity(&self) -> u32 {
        self.units.len() as u32
    }

    /// Where a unit lies; the pointer may reach all units.
    fn at(&self, unit: u32) -> *mut Unit {
        assert!(unit < self.capacity(), "unit {unit} of {}", self.capacity());
        UnsafeCell::raw_get(self.units.as_ptr().wrapping_add(unit as usize))
    }

    /// Bytes that the ring takes in memory.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        size_of::<Ring>() + size_of_val(&*self.units)
    }
}

/// The writing end.
pub(super) struct Producer {
    ring: Arc<Ring>,
    posted: u64,
    /// The newest `retired` that was looked at.
    retired_seen: u64,
    /// The unit after the newest entry.
    unit: u32,
}

impl Producer {
    pub(super) fn depth(&self) -> u32 {
        self.ring.depth
    }

    /// Whether one more entry fits.
    pub(super) fn has_room(&mut self) -> bool {
        let depth = u64::from(self.ring.depth);
        if self.posted - self.retired_seen < depth {
            return true;
        }
        self.retired_seen = self.ring.retired.0.load(Ordering::Acquire);
        self.posted - self.retired_seen < depth
    }

    /// Appends an entry of `units` units (1 to the ring's maximum), written by `fill`, and publishes it. False if the ring
    /// is full; `fill` is not called then.
    pub(super) fn push(&mut self, units: u32, fill: impl FnOnce(&mut [Unit])) -> bool {
        assert!((1..=self.ring.max_units).contains(&units), "{units} units; the ring takes {}", self.ring.max_units);
        if !self.has_room() {
            return false;
        }
        if self.unit + units > self.ring.capacity() {
            self.ring.watch.writes(self.unit, 1);
            // SAFETY: `self.unit` is less than the capacity. It is the producer's: fewer than `depth` entries are in the
            // ring, and by the sum at the head of this file they do not reach around to here.
            unsafe { self.ring.at(self.unit).write(Unit::ZERO) };
            self.unit = 0;
        }
        self.ring.watch.writes(self.unit, units);
        // SAFETY: `units` units from here on are inside the ring, and are the producer's by the same sum; nobody else
        // reads or writes them before `posted` is stored, and this borrow ends before that.
        let entry = unsafe { core::slice::from_raw_parts_mut(self.ring.at(self.unit), units as usize) };
        fill(entry);
        entry[0].0[1] = entry[0].0[1] & !UNITS_MASK | u64::from(units);
        self.unit += units;
        if self.unit == self.ring.capacity() {
            self.unit = 0;
        }
        self.posted += 1;
        self.ring.posted.0.store(self.posted, Ordering::Release);
        true
    }

    /// Bytes that this end and the ring take in memory.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.ring.memory() + size_of::<Self>() + size_of::<Consumer>()
    }
}

/// The reading end.
pub(super) struct Consumer {
    ring: Arc<Ring>,
    /// Entries taken since the beginning.
    taken: u64,
    /// Entries retired since the beginning.
    retired: u64,
    /// The unit after the newest entry taken.
    unit: u32,
}

impl Consumer {
    fn posted(&self) -> u64 {
        self.ring.posted.0.load(Ordering::Acquire)
    }

    /// Whether there is an entry to take.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        self.posted() != self.taken
    }

    /// Entries taken and not retired.
    pub(super) fn taken(&self) -> u32 {
        (self.taken - self.retired) as u32
    }

    /// Entries posted and not retired.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        (self.posted() - self.retired) as u32
    }

    /// The unit of the next entry to take, and its number of units.
    #[inline]
    fn peek(&self) -> Option<(u32, u32)> {
        if !self.has_more() {
            return None;
        }
        self.ring.watch.reads(self.unit, 1);
        // SAFETY: an entry is posted and not retired, so what the producer left at this unit, the entry or the skip mark
        // before it, is ours to read.
        let first = unsafe { self.ring.at(self.unit).read() };
        if first.units() != 0 {
            return Some((self.unit, first.units()));
        }
        self.ring.watch.reads(0, 1);
        // SAFETY: a skip mark is followed by the entry at the start of the ring.
        Some((0, unsafe { self.ring.at(0).read() }.units()))
    }

    /// Takes the next entry: its number, modulo 2^32, and its first unit.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(u32, u32)> {
        let (unit, units) = self.peek()?;
        let number = self.taken as u32;
        self.taken += 1;
        self.unit = unit + units;
        if self.unit == self.ring.capacity() {
            self.unit = 0;
        }
        Some((number, unit))
    }

    /// The units of the next entry to take.
    #[inline]
    pub(super) fn front(&self) -> Option<&[Unit]> {
        let (unit, units) = self.peek()?;
        // SAFETY: these are the units of an entry that is posted and not retired; retiring needs `&mut self`, which the
        // lifetime of the slice excludes.
        Some(unsafe { self.slice(unit, units) })
    }

    /// The units of an entry that was taken.
    ///
    /// # Panics
    /// If it is not one that is taken and not retired.
    #[inline]
    pub(super) fn units(&self, number: u32, unit: u32) -> &[Unit] {
        assert!(
            number.wrapping_sub(self.retired as u32) < self.taken(),
            "entry {number} is not between {} and {}",
            self.retired,
            self.taken
        );
        // SAFETY: `take` gave out the number and the unit together, and the entry is posted and not retired; retiring
        // needs `&mut self`, which the lifetime of the slice excludes.
        unsafe { self.slice(unit, self.ring.at(unit).read().units()) }
    }

    /// # Safety
    /// The units must be those of an entry that is posted, and not retired as long as the slice lives.
    unsafe fn slice(&self, unit: u32, units: u32) -> &[Unit] {
        assert!(unit + units <= self.ring.capacity(), "{units} units at {unit} of {}", self.ring.capacity());
        self.ring.watch.reads(unit, units);
        // SAFETY: inside the ring (checked), and only read while the slice lives (the caller's promise).
        unsafe { core::slice::from_raw_parts(self.ring.at(unit), units as usize) }
    }

    /// Gives the units of the oldest entry taken back to the producer.
    #[inline]
    pub(super) fn retire(&mut self) {
        if self.retired != self.taken {
            self.retired += 1;
            self.ring.retired.0.store(self.retired, Ordering::Release);
        }
    }

    /// Takes and retires everything.
    pub(super) fn reset(&mut self) {
        while self.take().is_some() {}
        self.retired = self.taken;
        self.ring.retired.0.store(self.retired, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_entries_go_on_across_the_32_bits_that_are_kept_of_them() {
        let (mut producer, mut consumer) = Ring::pair(3, 1);
        let before = u64::from(u32::MAX);
        (producer.posted, producer.retired_seen, consumer.taken, consumer.retired) = (before, before, before, before);
        producer.ring.posted.0.store(before, Ordering::Relaxed);
        producer.ring.retired.0.store(before, Ordering::Relaxed);
        for id in 0..3 {
            assert!(producer.push(1, |units| units[0] = Unit([id, 0])));
        }
        assert!(!producer.push(1, |_| ()), "three are all it holds");
        let taken: Vec<_> = std::iter::from_fn(|| consumer.take()).collect();
        assert_eq!(taken.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [u32::MAX, 0, 1]);
        for (id, (number, unit)) in taken.iter().enumerate() {
            assert_eq!(consumer.units(*number, *unit)[0].0[0], id as u64);
        }
        consumer.retire();
        let look = std::panic::AssertUnwindSafe(|| consumer.units(u32::MAX, taken[0].1).len());
        assert!(std::panic::catch_unwind(look).is_err(), "it is retired");
        assert_eq!(consumer.units(0, taken[1].1)[0].0[0], 1);
    }
}
