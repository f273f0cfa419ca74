//! The requests that are on the wire: the one place where a PSN maps to a work request.
//!
//! In: requests as they start, in order; acknowledged PSNs. Out: which request a PSN belongs to, and which are done.
//! PSNs `una..end` (serial arithmetic) are covered without holes by the entries, oldest first.

use std::collections::VecDeque;

use xroce_wire::Psn;

use crate::wq::WqePos;

/// How a request is answered, which decides what acknowledges it (IBTA 9.7.5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// SEND and WRITE: any ACK at or behind its last PSN.
    Ack,
    /// READ: only its own responses, one a PSN.
    Read,
    /// Atomic: only its own response.
    Atomic,
}

/// A request on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) wqe: WqePos,
    pub(crate) answer: Answer,
    /// PSN of its first packet.
    pub(crate) first: Psn,
    /// PSNs that it takes: its packets, or the packets of its READ response.
    pub(crate) psns: u32,
    /// Message length in bytes.
    pub(crate) len: u32,
}

impl Entry {
    /// The PSN after its last.
    pub(crate) fn end(&self) -> Psn {
        self.first.add(self.psns)
    }

    /// Index of `psn` in this request, if it belongs to it.
    pub(crate) fn index_of(&self, psn: Psn) -> Option<u32> {
        let d = psn.distance_from(self.first);
        (d >= 0 && (d as u32) < self.psns).then_some(d as u32)
    }
}

/// Requests from the oldest unacknowledged to the newest started.
#[derive(Debug)]
pub(crate) struct Unacked {
    entries: VecDeque<Entry>,
    /// Number of the front entry, counted from the start of the QP; lets a cursor survive that entries retire.
    base: u32,
    una: Psn,
    end: Psn,
    rd_atomics: u32,
    read_psns: u32,
}

impl Unacked {
    /// Room for `depth` requests, so that starting one never allocates.
    pub(crate) fn new(depth: u32) -> Unacked {
        let zero = Psn::new(0);
        Unacked {
            entries: VecDeque::with_capacity(depth as usize),
            base: 0,
            una: zero,
            end: zero,
            rd_atomics: 0,
            read_psns: 0,
        }
    }

    /// Forgets everything; the next request starts at `sq_psn`.
    pub(crate) fn reset(&mut self, sq_psn: Psn) {
        self.base = self.base.wrapping_add(self.entries.len() as u32);
        self.entries.clear();
        (self.una, self.end, self.rd_atomics, self.read_psns) = (sq_psn, sq_psn, 0, 0);
    }

    /// Oldest PSN that nothing has acknowledged; inside a READ, the next response packet.
    pub(crate) fn una(&self) -> Psn {
        self.una
    }

    /// The PSN that the next request will start with.
    pub(crate) fn end(&self) -> Psn {
        self.end
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Requests that have started and are not done.
    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// They, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// READs and atomics that wait for their response: derived as entries come and go.
    pub(crate) fn rd_atomics(&self) -> u32 {
        self.rd_atomics
    }

    /// PSNs from `una` on that are only places for READ responses, not packets of ours.
    pub(crate) fn read_psns(&self) -> u32 {
        self.read_psns
    }

    /// A request starts. Returns its number.
    pub(crate) fn push(&mut self, wqe: WqePos, answer: Answer, psns: u32, len: u32) -> u32 {
        let entry = Entry { wqe, answer, first: self.end, psns, len };
        self.end = entry.end();
        if answer != Answer::Ack {
            self.rd_atomics += 1;
            self.read_psns += psns - 1;
        }
        self.entries.push_back(entry);
        self.base.wrapping_add(self.entries.len() as u32 - 1)
    }

    pub(crate) fn front(&self) -> Option<&Entry> {
        self.entries.front()
    }

    /// The entry with this number, if it still waits.
    pub(crate) fn get(&self, number: u32) -> Option<&Entry> {
        self.entries.get(number.wrapping_sub(self.base) as usize)
    }

    /// Number of the entry that holds `psn`.
    pub(crate) fn find(&self, psn: Psn) -> Option<u32> {
        let after = self.entries.partition_point(|e| psn.distance_from(e.first) >= 0);
        let i = after.checked_sub(1)?;
        self.entries[i].index_of(psn)?;
        Some(self.base.wrapping_add(i as u32))
    }

    /// Everything before `psn` inside the front entry is acknowledged.
    pub(crate) fn advance(&mut self, psn: Psn) {
        debug_assert!(psn.distance_from(self.una) >= 0);
        if self.entries.front().is_some_and(|front| front.answer == Answer::Read) {
            self.read_psns -= psns(self.una, psn);
        }
        self.una = psn;
    }

    /// The front entry is done, successfully or not.
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.base = self.base.wrapping_add(1);
        if entry.answer != Answer::Ack {
            self.rd_atomics -= 1;
            // The places before `una` were taken off as their responses came.
            self.read_psns -= psns(self.una, entry.end()) - 1;
        }
        self.una = entry.end();
        Some(entry)
    }
}

/// PSNs from `from` up to `to`, 0 to 2^24 - 1: a READ may take half the space.
pub(crate) fn psns(from: Psn, to: Psn) -> u32 {
    to.distance_from(from) as u32 & 0xFF_FFFF
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pos() -> WqePos {
        WqePos::default()
    }

    #[test]
    fn psns_map_to_requests_across_the_wrap() {
        let mut u = Unacked::new(4);
        u.reset(Psn::new(0xFF_FFFE));
        let a = u.push(pos(), Answer::Ack, 3, 3000);
        let b = u.push(pos(), Answer::Read, 4, 4000);
        let c = u.push(pos(), Answer::Ack, 1, 0);
        for (psn, number) in [(0xFF_FFFE, a), (0xFF_FFFF, a), (0, a), (1, b), (4, b), (5, c)] {
            assert_eq!(u.find(Psn::new(psn)), Some(number), "{psn:#x}");
        }
        assert_eq!(u.find(Psn::new(6)), None);
        assert_eq!(u.find(Psn::new(0xFF_FFFD)), None);
        assert_eq!((u.rd_atomics(), u.read_psns()), (1, 3));
        u.pop();
        assert_eq!(u.una(), Psn::new(1));
        assert_eq!(u.find(Psn::new(0)), None);
        assert_eq!(u.get(b).unwrap().first, Psn::new(1));
        assert!(u.get(a).is_none());
        u.advance(Psn::new(3));
        assert_eq!((u.rd_atomics(), u.read_psns()), (1, 1), "places that are behind us count no more");
        u.pop();
        assert_eq!((u.rd_atomics(), u.read_psns()), (0, 0));
    }
}
