//! Deadlines of many queue pairs: a hierarchical timing wheel.
//!
//! In: one deadline per id, the time. Out: the ids whose deadline has come, and when to look again. Arming, cancelling
//! and asking for the next deadline cost the same with one id and with 10,000.
//!
//! A deadline is a 64-bit number; level *n* of the wheel looks at its *n*-th group of six bits. A deadline sits at the
//! level of the highest group in which it differs from the wheel's own time, so that everything at a lower level comes
//! earlier. A slot of level *n* is 64^n ns wide; when its time comes, its deadlines move to lower levels, and level 0
//! is exact to the nanosecond.
#![forbid(unsafe_code)]

use crate::instant::Instant;

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Eleven groups of six bits hold 64 bits.
const LEVELS: usize = 11;
/// No node: the end of a list.
const NIL: u32 = u32::MAX;
/// A node that is in no slot.
const NOWHERE: u16 = u16::MAX;

#[derive(Clone, Copy)]
struct Node {
    at: u64,
    next: u32,
    prev: u32,
    /// Level × 64 + slot, or [`NOWHERE`].
    place: u16,
}

const IDLE: Node = Node { at: 0, next: NIL, prev: NIL, place: NOWHERE };

/// The timing wheel: at most one deadline per id.
pub struct Wheel {
    /// The wheel's own time: the newest `now` it has seen, or the start of a slot that has been opened since.
    at: u64,
    /// Bit *n*: level *n* holds a deadline.
    levels: u16,
    /// Per level, bit *s*: slot *s* holds a deadline.
    slots: [u64; LEVELS],
    heads: [u32; LEVELS * SLOTS],
    nodes: Vec<Node>,
    armed: u32,
}

impl Default for Wheel {
    fn default() -> Self {
        Self::new()
    }
}

impl Wheel {
    /// An empty wheel for no ids at all; see [`ensure`](Wheel::ensure).
    pub fn new() -> Wheel {
        Wheel { at: 0, levels: 0, slots: [0; LEVELS], heads: [NIL; LEVELS * SLOTS], nodes: Vec::new(), armed: 0 }
    }

    /// Makes room for `id` and all smaller ids. The only call that allocates.
    ///
    /// # Panics
    /// If `id` is `u32::MAX`, which is no QP index.
    pub fn ensure(&mut self, id: u32) {
        assert!(id != NIL, "timer id {id:#x} is reserved");
        let needed = id as usize + 1;
        if self.nodes.len() < needed {
            self.nodes.resize(needed, IDLE);
        }
    }

    /// Sets the deadline of `id`; one that it had is forgotten. A deadline in the past expires at the next
    /// [`expired`](Wheel::expired).
    ///
    /// # Panics
    /// If [`ensure`](Wheel::ensure) was not called for `id`.
    pub fn arm(&mut self, id: u32, at: Instant) {
        self.cancel(id);
        self.nodes[id as usize].at = at.0;
        self.link(id);
        self.armed += 1;
    }

    /// Forgets the deadline of `id`; nothing happens if it has none or is unknown.
    pub fn cancel(&mut self, id: u32) {
        if self.is_armed(id) {
            self.unlink(id);
            self.armed -= 1;
        }
    }

    /// Whether `id` has a deadline that has not expired.
    pub fn is_armed(&self, id: u32) -> bool {
        self.nodes.get(id as usize).is_some_and(|node| node.place != NOWHERE)
    }

    /// The deadline of `id`.
    pub fn deadline(&self, id: u32) -> Option<Instant> {
        self.nodes.get(id as usize).filter(|node| node.place != NOWHERE).map(|node| Instant(node.at))
    }

    /// How many ids have a deadline.
    pub fn armed(&self) -> u32 {
        self.armed
    }

    /// Takes one id whose deadline is not after `now`. Call until `None`: each deadline is given out once, never early,
    /// in the order of deadlines as far as they were armed for the future.
    ///
    /// After `None`, [`next`](Wheel::next) is later than `now`, so that a caller who sleeps until then makes progress.
    pub fn expired(&mut self, now: Instant) -> Option<u32> {
        loop {
            let Some((level, slot, start)) = self.earliest() else {
                self.at = self.at.max(now.0);
                return None;
            };
            if start > now.0 {
                // Nothing lies between, so the wheel's time may move: deadlines armed from here on are placed lower.
                self.at = self.at.max(now.0);
                return None;
            }
            self.at = self.at.max(start);
            if level == 0 {
                let id = self.heads[slot];
                self.unlink(id);
                self.armed -= 1;
                return Some(id);
            }
            self.open(level * SLOTS + slot);
        }
    }

    /// When to call [`expired`](Wheel::expired) again; `None` if no id has a deadline.
    ///
    /// Never later than the earliest deadline (or, for one that lay in the past when armed, than the last `now`), and
    /// early by less than the width of the slot it waits in: a sleeper wakes early at most once a level, ten times for
    /// the longest delay, three or four times for one of some 100 ms.
    pub fn next(&self) -> Option<Instant> {
        self.earliest().map(|(_, _, start)| Instant(start))
    }

    /// The first occupied slot, as (level, slot, start in ns).
    fn earliest(&self) -> Option<(usize, usize, u64)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        let slot = self.slots[level].trailing_zeros();
        let shift = level as u32 * SLOT_BITS;
        let above = self.at.checked_shr(shift + SLOT_BITS).unwrap_or(0).checked_shl(shift + SLOT_BITS).unwrap_or(0);
        Some((level, slot as usize, above | (u64::from(slot) << shift)))
    }

    /// Moves the deadlines of a slot whose time has come to lower levels.
    fn open(&mut self, place: usize) {
        let mut id = self.heads[place];
        self.clear(place);
        while id != NIL {
            let next = self.nodes[id as usize].next;
            self.link(id);
            id = next;
        }
    }

    fn link(&mut self, id: u32) {
        let node = &mut self.nodes[id as usize];
        let at = node.at.max(self.at);
        let level = (63 - ((at ^ self.at) | 1).leading_zeros()) / SLOT_BITS;
        let slot = (at >> (level * SLOT_BITS)) as usize & (SLOTS - 1);
        let place = level as usize * SLOTS + slot;
        let head = self.heads[place];
        node.next = head;
        node.prev = NIL;
        node.place = place as u16;
        if head != NIL {
            self.nodes[head as usize].prev = id;
        }
        self.heads[place] = id;
        self.slots[level as usize] |= 1 << slot;
        self.levels |= 1 << level;
    }

    fn unlink(&mut self, id: u32) {
        let Node { next, prev, place, .. } = self.nodes[id as usize];
        if prev != NIL {
            self.nodes[prev as usize].next = next;
        } else {
            self.heads[place as usize] = next;
        }
        if next != NIL {
            self.nodes[next as usize].prev = prev;
        }
        if self.heads[place as usize] == NIL {
            self.clear(place as usize);
        }
        self.nodes[id as usize].place = NOWHERE;
    }

    fn clear(&mut self, place: usize) {
        let level = place / SLOTS;
        self.heads[place] = NIL;
        self.slots[level] &= !(1 << (place % SLOTS));
        if self.slots[level] == 0 {
            self.levels &= !(1 << level);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn drain(wheel: &mut Wheel, now: u64) -> Vec<u32> {
        std::iter::from_fn(|| wheel.expired(Instant(now))).collect()
    }

    fn wheel(ids: u32) -> Wheel {
        let mut wheel = Wheel::new();
        wheel.ensure(ids - 1);
        wheel
    }

    #[test]
    fn an_empty_wheel_has_no_next() {
        let mut wheel = wheel(1);
        assert_eq!(wheel.next(), None);
        assert_eq!(wheel.expired(Instant(u64::MAX)), None);
    }

    #[test]
    fn expires_at_the_very_nanosecond() {
        let mut wheel = wheel(1);
        wheel.arm(0, Instant(1_000_000_007));
        assert_eq!(drain(&mut wheel, 1_000_000_006), []);
        assert_eq!(wheel.next(), Some(Instant(1_000_000_007)));
        assert_eq!(drain(&mut wheel, 1_000_000_007), [0]);
        assert_eq!(drain(&mut wheel, u64::MAX), []);
    }

    #[test]
    fn rearming_moves_the_one_deadline() {
        let mut wheel = wheel(2);
        wheel.arm(1, Instant(100));
        wheel.arm(1, Instant(70_000));
        wheel.arm(1, Instant(5_000));
        assert_eq!(wheel.armed(), 1);
        assert_eq!(wheel.deadline(1), Some(Instant(5_000)));
        assert_eq!(drain(&mut wheel, 4_999), []);
        assert_eq!(drain(&mut wheel, 100_000), [1]);
        assert!(!wheel.is_armed(1));
    }

    #[test]
    fn a_deadline_in_the_past_expires_at_once() {
        let mut wheel = wheel(2);
        assert_eq!(drain(&mut wheel, 1 << 40), []);
        wheel.arm(0, Instant(3));
        wheel.arm(1, Instant(1 << 40));
        assert!(wheel.next().unwrap() <= Instant(1 << 40));
        let mut ids = drain(&mut wheel, 1 << 40);
        ids.sort_unstable();
        assert_eq!(ids, [0, 1]);
    }

    #[test]
    fn the_end_of_time_is_a_deadline_like_any_other() {
        let mut wheel = wheel(2);
        wheel.arm(0, Instant::FAR_FUTURE);
        wheel.arm(1, Instant(u64::MAX - 1));
        assert_eq!(drain(&mut wheel, u64::MAX - 2), []);
        assert_eq!(drain(&mut wheel, u64::MAX - 1), [1]);
        assert_eq!(drain(&mut wheel, u64::MAX), [0]);
    }

    #[test]
    fn time_that_runs_backwards_expires_nothing_early() {
        let mut wheel = wheel(1);
        assert_eq!(drain(&mut wheel, 1_000), []);
        wheel.arm(0, Instant(900));
        assert_eq!(drain(&mut wheel, 899), []);
        assert_eq!(drain(&mut wheel, 1_000), [0]);
    }

    #[test]
    fn cancel_takes_a_deadline_out_of_the_middle_of_a_slot() {
        let mut wheel = wheel(5);
        for id in 0..5 {
            wheel.arm(id, Instant(1 << 30));
        }
        wheel.cancel(2);
        wheel.cancel(0);
        wheel.cancel(4);
        wheel.cancel(4);
        wheel.cancel(77);
        let mut ids = drain(&mut wheel, 1 << 30);
        ids.sort_unstable();
        assert_eq!(ids, [1, 3]);
    }

    #[test]
    fn ten_thousand_ids_expire_once_each_in_order() {
        let mut wheel = wheel(10_000);
        // A multiplicative walk spreads the deadlines over 67 ms without a pattern the levels could hide.
        let at = |id: u32| u64::from(id.wrapping_mul(0x9E37_79B1)) % 67_000_000;
        for id in 0..10_000 {
            wheel.arm(id, Instant(at(id)));
        }
        let mut seen = vec![false; 10_000];
        let mut last = 0;
        let mut wakes = 0;
        while let Some(now) = wheel.next() {
            wakes += 1;
            while let Some(id) = wheel.expired(now) {
                assert!(at(id) <= now.0 && at(id) >= last, "{id} at {} seen at {now:?}", at(id));
                assert!(!std::mem::replace(&mut seen[id as usize], true), "{id} expired twice");
                last = at(id);
            }
        }
        assert!(seen.iter().all(|&s| s));
        assert!(wakes < 5 * 10_000, "{wakes} wake-ups");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Arm(u32, u64),
        Cancel(u32),
        Advance(u64),
        SleepUntilNext,
    }

    fn delay() -> impl Strategy<Value = u64> {
        // Every level is met: a width, then a number of that width.
        (0u32..50).prop_flat_map(|bits| 0u64..(1 << bits))
    }

    fn step(ids: u32) -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..ids, delay()).prop_map(|(id, d)| Step::Arm(id, d)),
            1 => (0..ids).prop_map(Step::Cancel),
            2 => delay().prop_map(Step::Advance),
            3 => Just(Step::SleepUntilNext),
        ]
    }

    struct Model {
        wheel: Wheel,
        due: BTreeMap<u32, u64>,
        now: u64,
    }

    impl Model {
        fn advance(&mut self, to: u64) {
            self.now = to;
            let mut got = drain(&mut self.wheel, to);
            got.sort_unstable();
            let want: Vec<u32> = self.due.iter().filter(|(_, at)| **at <= to).map(|(id, _)| *id).collect();
            assert_eq!(got, want, "neither early nor lost at {to}");
            self.due.retain(|_, at| *at > to);
            assert!(self.wheel.next().is_none_or(|next| next.0 > to), "no progress at {to}");
        }

        fn check_next(&self) {
            let earliest = self.due.values().min().copied();
            let next = self.wheel.next().map(|next| next.0);
            assert_eq!(earliest.is_some(), next.is_some());
            if let (Some(earliest), Some(next)) = (earliest, next) {
                // An overdue one is due now.
                let earliest = earliest.max(self.now);
                assert!(next <= earliest, "next {next} is later than {earliest}");
                // A slot is never wider than the distance to where it lies (rounded up to a power of 64).
                let digits = 64 - (earliest ^ self.now).leading_zeros();
                let width = 1u64 << (digits.saturating_sub(1) / 6 * 6);
                assert!(earliest - next < width, "next {next} is early of {earliest} by a slot of {width}");
            }
            assert_eq!(self.wheel.armed() as usize, self.due.len());
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(start in delay(), steps in proptest::collection::vec(step(12), 1..120)) {
            let mut model = Model { wheel: wheel(12), due: BTreeMap::new(), now: 0 };
            model.advance(start);
            for step in steps {
                match step {
                    Step::Arm(id, delay) => {
                        let at = model.now + delay;
                        model.wheel.arm(id, Instant(at));
                        model.due.insert(id, at);
                    }
                    Step::Cancel(id) => {
                        model.wheel.cancel(id);
                        model.due.remove(&id);
                    }
                    Step::Advance(by) => model.advance(model.now + by),
                    Step::SleepUntilNext => {
                        if let Some(next) = model.wheel.next() {
                            model.advance(model.now.max(next.0));
                        }
                    }
                }
                model.check_next();
            }
        }
    }
}
