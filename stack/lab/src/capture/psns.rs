//! What belongs to PSNs, in their own order.
//!
//! In: values by PSN, as packets come. Out: values, the one before a PSN, those from a PSN on. PSNs go around at 2^24, so that their
//! numbers have no order: each is put into a line without end, where it is nearest to the one that came last.

use std::collections::BTreeMap;

use xroce_wire::Psn;

/// Further behind than this a PSN cannot be told from one ahead: half of all PSNs.
const BEHIND_MAX: i64 = 1 << 23;

/// A map from PSNs, which forgets what lies half of all PSNs behind.
pub(super) struct Psns<T> {
    /// By place in the line.
    values: BTreeMap<i64, T>,
    /// What came last, and its place.
    last: (Psn, i64),
}

impl<T> Psns<T> {
    pub(super) fn new() -> Psns<T> {
        Psns { values: BTreeMap::new(), last: (Psn::new(0), 0) }
    }

    fn place(&self, psn: Psn) -> i64 {
        self.last.1 + i64::from(psn.distance_from(self.last.0))
    }

    /// The value of a PSN; one that has none gets one.
    pub(super) fn entry(&mut self, psn: Psn, value: impl FnOnce() -> T) -> &mut T {
        let place = self.place(psn);
        self.last = (psn, place);
        while self.values.first_entry().is_some_and(|first| place - first.key() > BEHIND_MAX) {
            self.values.pop_first();
        }
        self.values.entry(place).or_insert_with(value)
    }

    /// Gives a PSN a value, whether it has one or not.
    pub(super) fn insert(&mut self, psn: Psn, value: T)
    where
        T: Copy,
    {
        *self.entry(psn, || value) = value;
    }

    pub(super) fn get(&self, psn: Psn) -> Option<&T> {
        self.values.get(&self.place(psn))
    }

    /// The nearest before a PSN, and how far before.
    pub(super) fn before(&self, psn: Psn) -> Option<(u32, &T)> {
        let place = self.place(psn);
        let (at, value) = self.values.range(..place).next_back()?;
        Some((u32::try_from(place - at).ok()?, value))
    }

    /// Forgets those from a PSN on.
    pub(super) fn forget_from(&mut self, psn: Psn) {
        self.values.split_off(&self.place(psn));
    }

    /// All, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Psn, &T)> {
        let psn = |place: i64| Psn::new((place & 0xFF_FFFF) as u32);
        self.values.iter().map(move |(place, value)| (psn(*place), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(psns: &[u32]) -> Psns<u32> {
        let mut map = Psns::new();
        psns.iter().for_each(|psn| map.insert(Psn::new(*psn), *psn));
        map
    }

    #[test]
    fn behind_the_last_psn_comes_0() {
        let mut map = with(&[0xFF_FFFE, 0xFF_FFFF, 0, 3]);
        assert_eq!(map.before(Psn::new(0)), Some((1, &0xFF_FFFF)));
        assert_eq!(map.before(Psn::new(2)), Some((2, &0)));
        assert_eq!(map.before(Psn::new(0xFF_FFFE)), None);
        map.forget_from(Psn::new(0xFF_FFFF));
        assert_eq!(map.iter().map(|(psn, _)| psn.value()).collect::<Vec<_>>(), [0xFF_FFFE]);
    }

    #[test]
    fn a_psn_of_the_round_before_is_another_one() {
        let mut map = with(&[5]);
        for quarter in 1..=4 {
            map.insert(Psn::new((5 + quarter * (1 << 22)) & 0xFF_FFFF), quarter);
        }
        assert_eq!(map.get(Psn::new(5)), Some(&4));
        assert_eq!(map.iter().count(), 3, "what lies half of all behind is gone");
    }
}
