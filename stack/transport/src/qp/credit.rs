//! End-to-end credits as the requester honours them (IBTA 9.7.7.2).
//!
//! In: credits and MSN of received AETHs, requests as they start. Out: whether a request that takes a RECV may start.

use xroce_wire::{Msn, credit};

/// No limit until the peer gives a code other than "no credits given".
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credits {
    /// Requests started since RTS, modulo 2^24: the SSN of the last one.
    ssn: u32,
    /// The limit LSN: the SSN that may be reached.
    limit: Option<Msn>,
}

impl Credits {
    /// An AETH with an ACK syndrome arrived. What was granted is not taken back: one that says less was sent earlier, or
    /// does not know yet of WRITEs and READs on their way, which have raised the limit.
    pub(crate) fn granted(&mut self, msn: Msn, code: u8) {
        let new = credit::credits(code).map(|n| msn.add(n));
        self.limit = match (self.limit, new) {
            (Some(old), Some(new)) if (new.value().wrapping_sub(old.value()) & 0xFF_FFFF) >= 1 << 23 => Some(old),
            (_, new) => new,
        };
    }

    /// The next request is within the limit, or the one probe beyond it.
    pub(crate) fn allow(&self) -> bool {
        self.limit.is_none_or(|limit| {
            let ahead = (self.ssn.wrapping_add(1).wrapping_sub(limit.value())) & 0xFF_FFFF;
            // Serial: "at most one beyond" is 0 or 1, or anything in the half behind.
            ahead <= 1 || ahead >= 1 << 23
        })
    }

    /// SSN of the last request that started.
    pub(crate) fn ssn(&self) -> u32 {
        self.ssn
    }

    /// The limit LSN.
    pub(crate) fn limit(&self) -> Option<Msn> {
        self.limit
    }

    /// A request started. One that needs no RECV uses no credit, so it takes the limit along.
    pub(crate) fn started(&mut self, takes_recv: bool) {
        self.ssn = (self.ssn + 1) & 0xFF_FFFF;
        if !takes_recv {
            self.limit = self.limit.map(|l| l.add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_probe_beyond_the_limit() {
        let mut c = Credits::default();
        assert!(c.allow());
        c.granted(Msn::new(0), 2);
        for _ in 0..3 {
            assert!(c.allow());
            c.started(true);
        }
        assert!(!c.allow());
        c.granted(Msn::new(3), 0);
        assert!(c.allow(), "the probe");
        c.started(true);
        assert!(!c.allow());
        c.started(false);
        assert!(!c.allow(), "a WRITE takes the limit along");
        c.granted(Msn::new(5), credit::UNLIMITED);
        assert!(c.allow());
    }

    #[test]
    fn what_was_granted_is_not_taken_back() {
        let mut c = Credits::default();
        c.granted(Msn::new(0), 2);
        for _ in 0..5 {
            c.started(false);
        }
        assert!(c.allow(), "WRITEs use no credit");
        c.granted(Msn::new(1), 2);
        assert!(c.allow(), "nor do those that the peer has not seen yet");
        c.granted(Msn::new(5), 2);
        assert!(c.allow());
    }
}
