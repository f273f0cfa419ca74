//! PSNs that are missing where a capture was taken.
//!
//! In: PSNs that were passed over, and what comes later. Out: what never came. Each time that a PSN is sent it is owed once; which of
//! two that come is the late one makes no difference, so that nothing is lost while as many come as were sent.

use xroce_wire::Psn;

/// A packet that was sent again comes no later than so for the first time: it is not held longer on its way.
const LATE_NS: i128 = 10_000_000;

/// Of what PSNs are missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Of new requests.
    New,
    /// Of what the requester sends again.
    Again,
    /// The same, but acknowledged before: the requester may skip it, so that it is not missed if it does not come.
    Skipped,
    /// Of UC, which sends nothing again.
    Uc,
}

/// PSNs that are missing.
#[derive(Clone, Copy)]
pub(super) struct Gap {
    pub(super) of: Of,
    pub(super) first: Psn,
    pub(super) last: Psn,
    /// Where it shows, and when.
    pub(super) index: usize,
    pub(super) frame: u64,
    pub(super) time_ns: i128,
    /// From which frame on it was sent again, and when.
    pub(super) again: Option<(u64, i128)>,
    /// What is missing was there another time, and is acknowledged.
    pub(super) made_good: bool,
}

impl Gap {
    pub(super) fn holds(&self, psn: Psn) -> bool {
        psn.distance_from(self.first) >= 0 && psn.distance_from(self.last) <= 0
    }

    pub(super) fn psns(&self) -> impl Iterator<Item = Psn> + use<> {
        let first = self.first;
        (0..=self.last.distance_from(first).unsigned_abs()).map(move |n| first.add(n))
    }

    /// What is left of it without a PSN.
    pub(super) fn without(self, psn: Psn) -> impl Iterator<Item = Gap> {
        let before = (self.first != psn).then(|| Gap { last: psn.sub(1), ..self });
        let behind = (self.last != psn).then(|| Gap { first: psn.add(1), ..self });
        before.into_iter().chain(behind)
    }
}

/// All gaps, the oldest first.
#[derive(Default)]
pub(super) struct Gaps(Vec<Gap>);

impl Gaps {
    pub(super) fn add(&mut self, gap: Gap) {
        self.0.push(gap);
    }

    pub(super) fn holds(&self, psn: Psn) -> bool {
        self.0.iter().any(|gap| gap.holds(psn))
    }

    /// Whether it is missing of what is sent again, and has not been sent once more since.
    pub(super) fn holds_again(&self, psn: Psn) -> bool {
        self.0.iter().any(|gap| gap.of == Of::Again && gap.again.is_none() && gap.holds(psn))
    }

    /// A PSN comes that nobody sends again: it was late. Gives the gap that it was missing in.
    pub(super) fn late(&mut self, psn: Psn) -> Option<Gap> {
        let at = self.0.iter().position(|gap| gap.holds(psn))?;
        let gap = self.0.remove(at);
        self.0.splice(at..at, gap.without(psn));
        Some(gap)
    }

    /// A missing PSN is sent again.
    pub(super) fn sent_again(&mut self, psn: Psn, frame: u64, time_ns: i128) {
        let waits = |gap: &&mut Gap| gap.of != Of::Skipped && gap.again.is_none() && gap.holds(psn);
        for gap in self.0.iter_mut().filter(waits) {
            gap.again = Some((frame, time_ns));
        }
    }

    /// Those that nothing comes late of any more.
    pub(super) fn settled(&mut self, now_ns: i128) -> Vec<Gap> {
        self.0.retain(|gap| gap.of != Of::Skipped || now_ns - gap.time_ns <= LATE_NS);
        let settled = |gap: &mut Gap| gap.again.is_some_and(|(_, time_ns)| now_ns - time_ns > LATE_NS);
        self.0.extract_if(.., settled).collect()
    }

    /// Everything up to a PSN is acknowledged: gives what the capture missed.
    pub(super) fn acknowledged(&mut self, psn: Psn) -> Vec<Gap> {
        let passed = |gap: &Gap| gap.again.is_none() && psn.distance_from(gap.last) >= 0;
        self.0.iter_mut().filter(|gap| gap.of == Of::Again && passed(gap)).for_each(|gap| gap.made_good = true);
        self.0.extract_if(.., |gap| gap.of == Of::New && passed(gap)).collect()
    }

    /// What is missed at the end.
    pub(super) fn take(&mut self) -> Vec<Gap> {
        let missed = |gap: &mut Gap| !gap.made_good && gap.of != Of::Skipped;
        self.0.extract_if(.., missed).collect()
    }
}
