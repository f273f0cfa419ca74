//! Refusals that wait for what the requester does about them.
//!
//! In: NAKs, what is sent again, acknowledgements. Out: the refusal that made a packet be sent again. The requester takes them in their
//! order, one after the other: while the first is on its way to it, the next may be here already.

use xroce_wire::Psn;

use super::trouble::Kind;

/// More never wait at a time in a sane conversation; of more, the oldest is forgotten.
const WAITING_MAX: usize = 64;

/// A refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) kind: Kind,
    /// Where it was told.
    pub(super) index: usize,
    /// The packet that is to come again.
    pub(super) psn: Psn,
    pub(super) time_ns: i128,
    /// How long the requester has to wait first.
    pub(super) wait_ns: u64,
}

impl Refusal {
    /// Whether it asks for a packet and all behind it at once.
    fn is_nak(&self) -> bool {
        self.kind != Kind::Rnr
    }
}

/// Those that wait.
#[derive(Default)]
pub(super) struct Refusals {
    /// The oldest first.
    waiting: Vec<Refusal>,
    /// Sooner after a NAK nothing comes that it asked for: it was on its way before.
    soonest_ns: i128,
}

impl Refusals {
    pub(super) fn new(soonest_ns: i128) -> Refusals {
        Refusals { waiting: Vec::new(), soonest_ns }
    }

    pub(super) fn add(&mut self, refusal: Refusal) {
        if self.waiting.len() == WAITING_MAX {
            self.waiting.remove(0);
        }
        self.waiting.push(refusal);
    }

    /// Whether a PSN is asked for.
    pub(super) fn ask_for(&self, psn: Psn, now_ns: i128) -> bool {
        self.waiting.iter().any(|refusal| refusal.psn == psn && self.is_answered(refusal, now_ns))
    }

    /// A PSN comes again: gives the first that asked for it. Those before it have had their turn.
    pub(super) fn take(&mut self, psn: Psn, now_ns: i128) -> Option<Refusal> {
        let asked = |refusal: &Refusal| refusal.psn == psn && self.is_answered(refusal, now_ns);
        let at = self.waiting.iter().position(asked)?;
        self.waiting.drain(..=at).next_back()
    }

    /// What is sent again begins with a PSN: gives the NAK that asked for that and more before it.
    pub(super) fn take_before(&mut self, psn: Psn, now_ns: i128) -> Option<Refusal> {
        let before = |refusal: &Refusal| {
            refusal.is_nak() && psn.distance_from(refusal.psn) > 0 && self.is_answered(refusal, now_ns)
        };
        let at = self.waiting.iter().rposition(before)?;
        self.waiting.drain(..=at).next_back()
    }

    /// What is sent again passes PSNs over: a NAK that asks for one of them has had its effect.
    pub(super) fn passed_over(&mut self, first: Psn, behind: Psn) {
        self.waiting.retain(|refusal| {
            !(refusal.is_nak() && behind.distance_from(refusal.psn) > 0 && refusal.psn.distance_from(first) >= 0)
        });
    }

    /// Whether what comes now may be what it asks for.
    fn is_answered(&self, refusal: &Refusal, now_ns: i128) -> bool {
        !refusal.is_nak() || now_ns - refusal.time_ns >= self.soonest_ns
    }

    /// Everything up to a PSN is acknowledged.
    pub(super) fn acknowledged(&mut self, psn: Psn) {
        self.waiting.retain(|refusal| psn.distance_from(refusal.psn) < 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(psns: &[u32]) -> Refusals {
        let mut refusals = Refusals::default();
        for (index, psn) in psns.iter().enumerate() {
            refusals.add(Refusal { kind: Kind::SequenceNak, index, psn: Psn::new(*psn), time_ns: 0, wait_ns: 0 });
        }
        refusals
    }

    fn left(refusals: &Refusals) -> Vec<u32> {
        refusals.waiting.iter().map(|refusal| refusal.psn.value()).collect()
    }

    #[test]
    fn each_has_its_turn() {
        let mut refusals = waiting(&[7, 8, 9, 8]);
        assert_eq!(refusals.take(Psn::new(6), 0), None);
        assert_eq!(refusals.take(Psn::new(8), 0).map(|r| r.index), Some(1), "the first of two");
        assert_eq!(left(&refusals), [9, 8], "7 was not asked for in vain: its turn is over");
        assert_eq!(refusals.take_before(Psn::new(10), 0).map(|r| r.index), Some(3), "the newest");
        assert_eq!(left(&refusals), [0; 0]);
    }

    #[test]
    fn what_comes_too_soon_was_not_asked_for() {
        let mut refusals = Refusals::new(20);
        refusals.add(Refusal { kind: Kind::SequenceNak, index: 0, psn: Psn::new(4), time_ns: 100, wait_ns: 0 });
        assert!(!refusals.ask_for(Psn::new(4), 119) && refusals.ask_for(Psn::new(4), 120));
        assert_eq!(refusals.take_before(Psn::new(5), 119), None);
        assert_eq!(refusals.take(Psn::new(4), 119), None);
        assert!(refusals.take(Psn::new(4), 120).is_some());
    }

    #[test]
    fn what_is_over_waits_no_longer() {
        let mut refusals = waiting(&[0xFF_FFFE, 0xFF_FFFF, 0, 3]);
        refusals.passed_over(Psn::new(0xFF_FFFF), Psn::new(3));
        assert_eq!(left(&refusals), [0xFF_FFFE, 3]);
        refusals.acknowledged(Psn::new(0));
        assert_eq!(left(&refusals), [3]);
        let many = waiting(&(0..100).collect::<Vec<_>>());
        assert_eq!((many.waiting.len(), left(&many)[0]), (WAITING_MAX, 36));
    }

    #[test]
    fn an_rnr_nak_asks_for_one_packet() {
        let mut refusals = Refusals::default();
        refusals.add(Refusal { kind: Kind::Rnr, index: 0, psn: Psn::new(4), time_ns: 0, wait_ns: 10 });
        assert_eq!(refusals.take_before(Psn::new(5), 0), None);
        refusals.passed_over(Psn::new(4), Psn::new(5));
        assert!(refusals.ask_for(Psn::new(4), 0) && !refusals.ask_for(Psn::new(5), 0));
    }
}
