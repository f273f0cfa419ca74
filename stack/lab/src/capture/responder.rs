//! What the responder would do if all that was captured came to it, and nothing else, in that order.
//!
//! In: request packets, and what the responder really says. Out: whether a sequence NAK follows from what was captured.
//! If not, something happened behind the capture point.

use xroce_wire::Psn;

use super::psns::Psns;

/// The responder's side of PSNs.
pub(super) struct Responder {
    expected: Option<Psn>,
    /// The frame that made it ask for the PSN that it expects. Until that comes it says nothing else, but may say so again.
    asked: Option<u64>,
    /// PSNs that it would ask for, and the frame that makes it do so.
    asks: Psns<Option<u64>>,
}

impl Responder {
    pub(super) fn new() -> Responder {
        Responder { expected: None, asked: None, asks: Psns::new() }
    }

    /// A request packet that takes so many PSNs.
    pub(super) fn request(&mut self, psn: Psn, psns: u32, frame: u64) {
        let expected = *self.expected.get_or_insert(psn);
        match psn.distance_from(expected) {
            0 => (self.expected, self.asked) = (Some(psn.add(psns)), None),
            1.. if self.asked.is_none() => {
                self.asks.insert(expected, Some(frame));
                self.asked = Some(frame);
            }
            _ => {}
        }
    }

    /// It has acknowledged a PSN, whether it was captured or not.
    pub(super) fn acknowledges(&mut self, psn: Psn) {
        if self.expected.is_none_or(|expected| psn.distance_from(expected) >= 0) {
            (self.expected, self.asked) = (Some(psn.add(1)), None);
        }
    }

    /// It asks for a PSN, in a frame. Gives the frame that came while that was missing, if what was captured explains it.
    pub(super) fn asks_for(&mut self, psn: Psn, frame: u64) -> Option<u64> {
        let now = self.asked.filter(|_| self.expected == Some(psn));
        let why = now.or_else(|| self.asks.get(psn).copied().flatten());
        if why.is_none() {
            self.waits_for(psn, frame);
        }
        self.asks.insert(psn, None);
        why
    }

    /// Whether it has asked for a PSN before.
    pub(super) fn has_asked_for(&self, psn: Psn) -> bool {
        self.asks.get(psn).is_some_and(Option::is_none)
    }

    /// It takes nothing but this PSN from here on: what came of it was lost, or there was no RECV for it.
    pub(super) fn waits_for(&mut self, psn: Psn, frame: u64) {
        (self.expected, self.asked) = (Some(psn), Some(frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(psns: &[u32]) -> Responder {
        let mut responder = Responder::new();
        psns.iter().zip(1..).for_each(|(psn, frame)| responder.request(Psn::new(*psn), 1, frame));
        responder
    }

    #[test]
    fn a_gap_is_asked_for_once() {
        let mut responder = after(&[7, 9, 10, 8, 11, 7]);
        assert_eq!(responder.asks_for(Psn::new(8), 20), Some(2));
        assert_eq!(responder.asks_for(Psn::new(9), 21), Some(5), "9 and 10 came before their turn");
        assert_eq!(responder.asks_for(Psn::new(9), 22), Some(5), "it has not come since");
        responder.request(Psn::new(9), 1, 23);
        assert_eq!(responder.asks_for(Psn::new(9), 24), None, "that was asked for, and came");
    }

    #[test]
    fn what_is_lost_behind_the_capture_explains_what_follows() {
        let mut responder = after(&[7, 8, 9]);
        assert_eq!(responder.asks_for(Psn::new(8), 20), None);
        [9, 8, 10].iter().zip(4..).for_each(|(psn, frame)| responder.request(Psn::new(*psn), 1, frame));
        assert_eq!(responder.asks_for(Psn::new(9), 21), Some(6));
        responder.acknowledges(Psn::new(20));
        responder.request(Psn::new(22), 1, 7);
        assert_eq!(responder.asks_for(Psn::new(21), 22), Some(7));
    }
}
