//! How long the two ends take to answer each other, seen from where a capture was taken.
//!
//! In: packets, in order. Out: the shortest times. They tell what a packet cannot be: an answer to one that has just passed.

use std::collections::{HashMap, HashSet};

use xroce_wire::{NakCode, Packet, Psn, Syndrome, dissect};

use super::Captured;

/// Of a row of packets no more are missing at a place.
const MISSING_MAX: i32 = 3;
/// Fewer times say nothing: chance may have made them.
const LEAST: usize = 4;

/// Of one direction of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Turns {
    /// The shortest time between a request that was sent once and its acknowledgement; None if there is no such.
    pub(super) answer_ns: Option<i128>,
    /// Sooner after a NAK nothing comes that it asked for.
    pub(super) resend_ns: i128,
}

impl Turns {
    /// Of the requests of the end that sent what `asks` is true of.
    pub(super) fn of(packets: &[&Captured], asks: impl Fn(&Captured) -> bool) -> Turns {
        let (mut answers, mut resends) = (Answers::default(), Resends::default());
        for captured in packets {
            let Ok(packet) = dissect(&captured.bytes).packet else { continue };
            let Some(operation) = packet.opcode().operation() else { continue };
            let (psn, at_ns) = (packet.psn(), captured.time_ns);
            match (asks(captured), operation.is_request(), syndrome(&packet)) {
                (true, true, _) => {
                    answers.request(psn, at_ns);
                    resends.request(psn, at_ns);
                }
                (false, false, Some(Syndrome::Ack { .. })) => answers.ack(psn, at_ns),
                (false, false, Some(Syndrome::Nak(NakCode::PsnSequenceError))) => resends.nak(psn, at_ns),
                _ => {}
            }
        }
        Turns { answer_ns: answers.shortest, resend_ns: resends.soonest() }
    }
}

fn syndrome(packet: &Packet<'_>) -> Option<Syndrome> {
    packet.aeth().map(|aeth| aeth.syndrome)
}

/// From a request to its acknowledgement.
#[derive(Default)]
struct Answers {
    /// When each PSN was sent last, and how often.
    sent: HashMap<Psn, (i128, u32)>,
    shortest: Option<i128>,
}

impl Answers {
    fn request(&mut self, psn: Psn, at_ns: i128) {
        self.sent.entry(psn).and_modify(|(_, times)| *times += 1).or_insert((at_ns, 1));
    }

    fn ack(&mut self, psn: Psn, at_ns: i128) {
        let once = self.sent.get(&psn).filter(|(_, times)| *times == 1);
        let ns = once.map(|(sent_ns, _)| at_ns - sent_ns);
        self.shortest = ns.into_iter().chain(self.shortest).min();
    }
}

/// Packets in a row that are not new, with a few missing perhaps.
#[derive(Clone, Copy)]
struct Row {
    first: Psn,
    begun_ns: i128,
    last: Psn,
}

impl Row {
    fn goes_on_with(&self, psn: Psn) -> bool {
        (1..=MISSING_MAX + 1).contains(&psn.distance_from(self.last))
    }
}

/// From a sequence NAK to the first packet that comes a second time, or those in a row before it. Where nothing else was being sent
/// again, it made them come.
#[derive(Default)]
struct Resends {
    seen: HashSet<Psn>,
    newest: Option<Psn>,
    /// When a NAK was the first to ask for anything.
    asked_ns: Option<i128>,
    /// What the newest NAK asked for, until it is sent again.
    owed: Option<Psn>,
    /// What is sent again has not come up to the newest yet, or is to begin.
    busy: bool,
    row: Option<Row>,
    took: Vec<i128>,
}

impl Resends {
    fn request(&mut self, psn: Psn, at_ns: i128) {
        let again = !self.seen.insert(psn);
        if self.newest.is_none_or(|newest| psn.distance_from(newest) > 0) {
            (self.newest, self.row) = (Some(psn), None);
            self.busy &= self.asked_ns.is_some() || self.owed.is_some();
            return;
        }
        let goes_on = self.row.filter(|row| row.goes_on_with(psn));
        let row = Row { last: psn, ..goes_on.unwrap_or(Row { first: psn, begun_ns: at_ns, last: psn }) };
        self.row = Some(row);
        if again {
            self.owed = self.owed.filter(|owed| *owed != row.first && *owed != psn);
            self.took.extend(self.asked_ns.take().map(|asked_ns| row.begun_ns.max(asked_ns) - asked_ns));
        }
    }

    fn nak(&mut self, psn: Psn, at_ns: i128) {
        self.owed = Some(psn);
        self.asked_ns = self.asked_ns.or(Some(at_ns).filter(|_| !self.busy));
        self.busy = true;
    }

    /// Half of what one in four stays below: some belong to what was on its way, and a sender may be busy or has a queue.
    fn soonest(&mut self) -> i128 {
        self.took.sort_unstable();
        let enough = self.took.len() >= LEAST;
        self.took.get(self.took.len() / 4).filter(|_| enough).map_or(0, |ns| ns / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_nak_of_a_calm_stream_tells() {
        let mut resends = Resends::default();
        let requests = |resends: &mut Resends, psns: &[u32], from_ns: i128| {
            psns.iter().zip(from_ns..).for_each(|(psn, at_ns)| resends.request(Psn::new(*psn), at_ns));
        };
        requests(&mut resends, &[10, 12], 0);
        resends.nak(Psn::new(11), 10);
        // What was never here may only be late.
        requests(&mut resends, &[11, 13, 14], 11);
        // 11 is sent again already when this is to be answered: that says nothing.
        resends.nak(Psn::new(12), 29);
        requests(&mut resends, &[11, 12, 13, 12, 13, 14], 30);
        assert_eq!(resends.took, [20]);
        // Up to the newest all is sent again, and a new one comes: calm.
        requests(&mut resends, &[15, 17], 50);
        resends.nak(Psn::new(16), 60);
        requests(&mut resends, &[16, 17], 100);
        assert_eq!(resends.took, [20, 40], "16 was not here before, but begins it");
        // What a NAK asked for meanwhile is still to come: no calm.
        resends.nak(Psn::new(17), 101);
        requests(&mut resends, &[18], 102);
        resends.nak(Psn::new(18), 103);
        requests(&mut resends, &[17, 18], 104);
        assert_eq!(resends.took, [20, 40]);
        assert_eq!(resends.soonest(), 0, "that may be chance");
        resends.took = vec![20; LEAST];
        assert_eq!(resends.soonest(), 10);
        assert_eq!(Resends::default().soonest(), 0);
    }
}
