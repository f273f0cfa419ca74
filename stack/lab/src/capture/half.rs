//! One direction of requests, with the responses to them.
//!
//! In: packets of it, in order, as a capture saw them. Out: troubles. What the capture point sees decides between a packet that was lost
//! before it (its PSN is missing), behind it (its PSN was here, and the responder asks for it), and one that only the capture missed
//! (its PSN is missing, and is acknowledged).

use std::collections::{BTreeMap, BTreeSet};

use xroce_wire::{NakCode, Operation, Packet, Psn, Syndrome};

use super::diagnosis::Diagnosis;
use super::psns::Psns;
use super::trouble::Kind;
use crate::words;

/// Silence that only a timer ends: no end takes so long to answer while it is asked.
const SILENCE_NS: i128 = 200_000;
/// The same packet again within this time was doubled on the way, if nothing asked for it.
const AT_ONCE_NS: i128 = 20_000;

/// A packet that was sent again comes no later than so for the first time: it is not held longer on its way.
const LATE_NS: i128 = 10_000_000;
/// A PSN of UC so far behind the newest is not late: the sender began afresh.
const UC_AFRESH: i32 = 4_096;

/// A packet whose ICRC is not wrong.
pub(super) struct Seen<'a> {
    pub(super) index: usize,
    pub(super) frame: u64,
    pub(super) time_ns: i128,
    pub(super) packet: &'a Packet<'a>,
    pub(super) operation: Operation,
    pub(super) uc: bool,
}

/// A request packet that was here.
struct Request {
    index: usize,
    frame: u64,
    name: String,
    /// PSNs that it takes: more than one for a READ of several responses.
    psns: u32,
    wants_answer: bool,
    times: u32,
    /// The frame in which it came last.
    last_frame: u64,
    /// It came behind later ones.
    late: bool,
    /// It came while one before it was missing, so that the responder did not take it.
    early: bool,
}

/// Of what PSNs are missing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// Of new requests.
    New,
    /// Of what the requester sends again.
    Again,
    /// Of UC, which sends nothing again.
    Uc,
}

/// PSNs that are missing.
#[derive(Clone, Copy)]
struct Gap {
    of: Of,
    first: Psn,
    last: Psn,
    /// Where it shows.
    index: usize,
    frame: u64,
}

impl Gap {
    fn holds(&self, psn: Psn) -> bool {
        psn.distance_from(self.first) >= 0 && psn.distance_from(self.last) <= 0
    }

    fn psns(&self) -> impl Iterator<Item = Psn> + use<> {
        let first = self.first;
        (0..=self.last.distance_from(first).unsigned_abs()).map(move |n| first.add(n))
    }

    /// What is left of it without a PSN.
    fn without(self, psn: Psn) -> impl Iterator<Item = Gap> {
        let before = (self.first != psn).then(|| Gap { last: psn.sub(1), ..self });
        let behind = (self.last != psn).then(|| Gap { first: psn.add(1), ..self });
        before.into_iter().chain(behind)
    }
}

/// A gap that was filled by sending again, which does not say yet that the packets were lost: they may come late.
struct Replaced {
    gap: Gap,
    /// From which frame on it was sent again, and when.
    again: u64,
    time_ns: i128,
    /// PSNs that have not come late.
    left: BTreeSet<u32>,
}

/// A refusal that waits for what the requester does about it.
struct Open {
    kind: Kind,
    index: usize,
    psn: Psn,
    time_ns: i128,
    /// How long the requester has to wait first.
    wait_ns: u64,
}

/// One packet that came again, of which it is not known yet whether more follow.
struct Loose {
    index: usize,
    frame: u64,
    psn: Psn,
    at_once: bool,
}

pub(super) struct Half {
    /// Requester and responder.
    names: [&'static str; 2],
    mtu: Option<u32>,
    answers_captured: bool,
    /// PSN of the next new request packet.
    next: Option<Psn>,
    requests: Psns<Request>,
    gaps: Vec<Gap>,
    replaced: Vec<Replaced>,
    /// Packets that came damaged, requests and responses: PSN and frame.
    damaged: [BTreeMap<u32, u64>; 2],
    open: Option<Open>,
    loose: Option<Loose>,
    /// What would be the next packet of those that are sent again.
    resending: Option<Psn>,
    acked: Option<Psn>,
    /// PSN of the next READ response packet.
    read_next: Option<Psn>,
    last_ns: Option<i128>,
    /// PSNs that are missing of READ responses.
    read_gaps: Vec<Gap>,
    /// READ and atomic response packets that were here: PSN and frame.
    responses: Psns<u64>,
    /// A NAK has ended the connection.
    over: bool,
}

impl Half {
    pub(super) fn new(names: [&'static str; 2], mtu: Option<u32>, answers_captured: bool) -> Half {
        Half {
            names,
            mtu,
            answers_captured,
            next: None,
            requests: Psns::new(),
            gaps: Vec::new(),
            replaced: Vec::new(),
            damaged: [BTreeMap::new(), BTreeMap::new()],
            open: None,
            loose: None,
            resending: None,
            acked: None,
            read_next: None,
            read_gaps: Vec::new(),
            last_ns: None,
            responses: Psns::new(),
            over: false,
        }
    }

    /// A request packet.
    pub(super) fn request(&mut self, seen: &Seen<'_>, out: &mut Diagnosis) {
        let psn = seen.packet.psn();
        let ahead = self.next.map_or(0, |next| psn.distance_from(next));
        self.settle_loose(psn, ahead, out);
        match (self.next, ahead) {
            (None, _) if seen.operation.is_middle() || seen.operation.is_last() => {
                let text = format!(
                    "The capture begins inside a message of {}: frame {} is not its first packet.",
                    self.names[0], seen.frame
                );
                out.say(Kind::BeginsInside, seen.index, text);
            }
            (None, _) => {}
            (Some(next), 0..) => {
                self.hole_before(next, seen);
                self.missing(if seen.uc { Of::Uc } else { Of::New }, next, psn, seen);
            }
            (Some(_), _) if seen.uc => self.uc_old(seen, out),
            (Some(_), _) => self.old(seen, out),
        }
        let psns = self.psns(seen);
        if ahead >= 0 || (seen.uc && ahead < -UC_AFRESH) {
            self.next = Some(psn.add(psns));
            self.resending = None;
        }
        let wants_answer =
            seen.packet.ack_req() || matches!(seen.operation, Operation::ReadRequest) || seen.operation.is_atomic();
        let name = words::label(seen.packet.header_bytes());
        let (index, frame) = (seen.index, seen.frame);
        let early = !seen.uc && self.gaps.iter().any(|gap| psn.distance_from(gap.last) > 0);
        let request = self.requests.entry(psn, || Request {
            index,
            frame,
            name,
            psns,
            wants_answer: wants_answer && !seen.uc,
            times: 0,
            last_frame: frame,
            late: ahead < 0,
            early,
        });
        request.times += 1;
        (request.last_frame, request.early) = (frame, early);
        self.last_ns = Some(seen.time_ns);
    }

    /// How many PSNs a request packet takes.
    fn psns(&self, seen: &Seen<'_>) -> u32 {
        match (seen.packet.reth(), self.mtu) {
            (Some(reth), Some(mtu)) if seen.operation == Operation::ReadRequest => reth.len.div_ceil(mtu).max(1),
            _ => 1,
        }
    }

    /// The PSNs from one to the one before another are not here, if there are any.
    fn missing(&mut self, of: Of, first: Psn, behind: Psn, seen: &Seen<'_>) {
        if behind.distance_from(first) > 0 {
            self.gaps.push(Gap { of, first, last: behind.sub(1), index: seen.index, frame: seen.frame });
        }
    }

    /// While packets are sent again, those up to `until` that are left out. An acknowledgement lets a requester skip what
    /// it covers; who does not see the answers cannot tell.
    fn hole_before(&mut self, until: Psn, seen: &Seen<'_>) {
        let Some(expected) = self.resending.filter(|_| self.answers_captured && !seen.uc) else { return };
        let first = self.acked.map(|acked| acked.add(1)).filter(|behind| behind.distance_from(expected) > 0);
        self.missing(Of::Again, first.unwrap_or(expected), until, seen);
    }

    /// A PSN of UC that lies behind what was sent before: late, or twice.
    fn uc_old(&mut self, seen: &Seen<'_>, out: &mut Diagnosis) {
        let psn = seen.packet.psn();
        if let Some(gap) = self.gaps.iter().position(|gap| gap.holds(psn)) {
            let dropped = match seen.operation.begins_message() && seen.operation.ends_message() {
                true => "",
                false => " UC waits for nothing: the message is dropped.",
            };
            self.late(gap, seen, dropped, out);
        } else if self.requests.get(psn).is_some() {
            let at_once = self.last_ns.is_some_and(|last| seen.time_ns - last <= AT_ONCE_NS);
            if at_once {
                say_doubled(seen.index, seen.frame, psn, out);
            }
        }
    }

    /// A PSN that lies behind what was sent before.
    fn old(&mut self, seen: &Seen<'_>, out: &mut Diagnosis) {
        let psn = seen.packet.psn();
        let known = self.requests.get(psn).is_some();
        let expected = self.resending == Some(psn);
        let mut caused = expected
            || self.asks_again(seen, out)
            || self.begins_behind_a_nak(seen)
            || (!self.goes_on_behind(seen) && self.cause(seen, known, out));
        if caused && !expected {
            // What lies before is no part of it: if it comes, it is late.
            self.replaced.retain(|replaced| psn.distance_from(replaced.gap.last) > 0);
        }
        if !caused && self.late_after_all(seen, out) {
            return;
        }
        if !caused && self.resending.is_some_and(|expected| psn.distance_from(expected) > 0) {
            // The same go-back-N, of which something is missing.
            self.hole_before(psn, seen);
            caused = true;
        }
        let gap = self.gaps.iter().position(|gap| gap.holds(psn)).filter(|at| !known || self.gaps[*at].of == Of::Again);
        match gap {
            Some(gap) if !caused => return self.late(gap, seen, "", out),
            Some(gap) => self.fill(gap, seen, out),
            None if !caused => {
                let at_once = self.last_ns.is_some_and(|last| seen.time_ns - last <= AT_ONCE_NS);
                self.loose = Some(Loose { index: seen.index, frame: seen.frame, psn, at_once });
            }
            None => {}
        }
        self.resending = Some(psn.add(self.psns(seen)));
        out.again.insert(seen.index);
    }

    /// Whether what is sent again goes on behind a gap after a silence: a timer would begin with the oldest that is not acknowledged.
    fn goes_on_behind(&self, seen: &Seen<'_>) -> bool {
        let psn = seen.packet.psn();
        self.resending.is_some_and(|expected| psn.distance_from(expected) > 0)
            && self.acked.is_some_and(|acked| psn.distance_from(acked) > 1)
            && self.open.as_ref().is_none_or(|open| open.psn != psn)
    }

    /// Whether this is what a NAK asked for, but for its first packets, which are missing.
    fn begins_behind_a_nak(&mut self, seen: &Seen<'_>) -> bool {
        let psn = seen.packet.psn();
        // Behind what is being sent again already, it goes on with that.
        let begins = self.resending.is_none_or(|expected| psn.distance_from(expected) < 0);
        let behind = |open: &mut Open| begins && open.kind != Kind::Rnr && psn.distance_from(open.psn) > 0;
        let Some(open) = self.open.take_if(behind) else { return false };
        if !self.gaps.iter().any(|gap| gap.holds(open.psn)) {
            self.missing(Of::Again, open.psn, psn, seen);
        }
        true
    }

    /// A READ or an atomic that is asked for again because later answers came and this one did not. That is at once or not: it
    /// takes no timer. A READ for the rest of a READ has a PSN of its own.
    fn asks_again(&mut self, seen: &Seen<'_>, out: &mut Diagnosis) -> bool {
        let (psn, who) = (seen.packet.psn(), self.names[0]);
        let rest = seen.operation == Operation::ReadRequest && self.inside_a_read(psn);
        let passed = self.acked.is_some_and(|acked| acked.distance_from(psn) > 0);
        let answered_by_data = seen.operation == Operation::ReadRequest || seen.operation.is_atomic();
        if !(rest || answered_by_data && passed) {
            return false;
        }
        let what = match rest {
            true => format!("for the rest of a READ, from PSN {} on", psn.value()),
            false => format!("again for the answer to PSN {}, when later ones came", psn.value()),
        };
        self.read_next = None;
        let gap = self.read_gaps.iter().find(|gap| gap.holds(psn));
        let told = gap.and_then(|gap| out.find(Kind::ReadGap, gap.index));
        if let Some(trouble) = told {
            trouble.text += &format!(" {who} asks {what} (frame {}).", seen.frame);
            self.responses.forget_from(psn);
            return true;
        }
        let why = match (self.responses.get(psn), self.damaged[1].get(&psn.value())) {
            (Some(frame), _) => format!("That response was here, as frame {frame}: lost behind this point."),
            (None, Some(frame)) => format!("That response was here, as frame {frame}, but damaged."),
            (None, None) => "That response was never here: lost before this point.".to_owned(),
        };
        out.say(Kind::ReadGap, seen.index, format!("{who} asks {what} (frame {}). {why}", seen.frame));
        self.responses.forget_from(psn);
        true
    }

    fn inside_a_read(&self, psn: Psn) -> bool {
        self.requests.before(psn).is_some_and(|(behind, request)| behind < request.psns)
    }

    /// Whether something asked for the packet that comes again: a NAK, the end of an RNR wait, or an ACK timer.
    fn cause(&mut self, seen: &Seen<'_>, known: bool, out: &mut Diagnosis) -> bool {
        let (psn, who) = (seen.packet.psn(), self.names[0]);
        if let Some(open) = self.open.take_if(|open| open.psn == psn) {
            let after = seen.time_ns - open.time_ns;
            let mut text = format!(" {who} sends it again {}, in frame {}.", later(after), seen.frame);
            if after < i128::from(open.wait_ns) {
                text += " That is sooner than it may.";
            }
            if let Some(trouble) = out.find(open.kind, open.index) {
                trouble.text += &text;
            }
            return true;
        }
        let silence = self.last_ns.map_or(0, |last| seen.time_ns - last);
        if silence < SILENCE_NS {
            return false;
        }
        let times = self.requests.get(psn).map_or(0, |request| request.times);
        let acked = self.acked.is_some_and(|acked| acked.distance_from(psn) >= 0);
        if !self.answers_captured {
            let text = format!(
                "{} of silence, then {who} sends PSN {} again (frame {}): its ACK timer ran out, or an answer that is not in the \
                 capture asked for it.",
                span(silence),
                psn.value(),
                seen.frame
            );
            out.say(Kind::Resent, seen.index, text);
            return true;
        }
        let why = match (known, acked) {
            (_, true) => "Its acknowledgement was here: it was lost behind this point.",
            (false, _) => "It was never here before.",
            (true, false) => "The request was lost behind this point, or its answer before it.",
        };
        let nth = if times > 1 { format!(" (resend {times})") } else { String::new() };
        let text = format!(
            "{} of silence, then {who} sends PSN {} again{nth} (frame {}): its ACK timer ran out. {why}",
            span(silence),
            psn.value(),
            seen.frame
        );
        out.say(Kind::Timeout, seen.index, text);
        true
    }

    /// A missing PSN is sent again.
    fn fill(&mut self, at: usize, seen: &Seen<'_>, out: &mut Diagnosis) {
        let gap = self.gaps.remove(at);
        self.lost_before(&gap, Some(seen.frame), out);
        let left = gap.psns().map(Psn::value).collect();
        self.replaced.push(Replaced { gap, again: seen.frame, time_ns: seen.time_ns, left });
    }

    /// A missing PSN comes late.
    fn late(&mut self, at: usize, seen: &Seen<'_>, then: &str, out: &mut Diagnosis) {
        let (psn, gap) = (seen.packet.psn(), self.gaps.remove(at));
        let text = format!(
            "PSN {} (frame {}) comes behind frame {}, which has a later one: overtaken on the way.{then}",
            psn.value(),
            seen.frame,
            gap.frame
        );
        out.say(Kind::Reordered, seen.index, text);
        self.gaps.extend(gap.without(psn));
    }

    /// Whether a packet that nobody asked for is the first of its PSN, which was sent again before it came. When all of a gap has
    /// come so, nothing was lost.
    fn late_after_all(&mut self, seen: &Seen<'_>, out: &mut Diagnosis) -> bool {
        self.replaced.retain(|replaced| seen.time_ns - replaced.time_ns <= LATE_NS);
        let (psn, frame) = (seen.packet.psn(), seen.frame);
        let Some(at) = self.replaced.iter_mut().position(|replaced| replaced.left.remove(&psn.value())) else {
            return false;
        };
        if !self.replaced[at].left.is_empty() {
            return true;
        }
        let Replaced { gap, again, .. } = self.replaced.remove(at);
        if let Some(trouble) = out.find(Kind::LostBefore, gap.index) {
            trouble.kind = Kind::Reordered;
            trouble.text = format!(
                "{} {} missing before frame {} and sent again from frame {again} on, but not lost: overtaken on the way, and here at \
                 last in frame {frame}.",
                range(gap.first, gap.last),
                are(gap.first, gap.last),
                gap.frame
            );
        }
        true
    }

    /// A packet with a wrong ICRC, if its PSN is right.
    pub(super) fn damaged(&mut self, response: bool, psn: Psn, frame: u64) {
        self.damaged[usize::from(response)].insert(psn.value(), frame);
    }

    fn lost_before(&self, gap: &Gap, again: Option<u64>, out: &mut Diagnosis) {
        let damaged = gap.psns().filter(|psn| self.damaged[0].contains_key(&psn.value())).count();
        if damaged == gap.psns().count() {
            // They came, and what is wrong with them is told.
            return;
        }
        let (missing, are) = (range(gap.first, gap.last), are(gap.first, gap.last));
        let lost = if damaged > 0 { "lost before this point, or damaged" } else { "lost before this point" };
        let of = if gap.of == Of::Again { " in what is sent again" } else { "" };
        if gap.of == Of::Uc {
            let text = format!(
                "{missing} {are} missing before frame {}: {lost}. UC sends nothing again; the message is dropped by {}.",
                gap.frame, self.names[1]
            );
            return out.say(Kind::UcGap, gap.index, text);
        }
        let then = match again {
            Some(frame) => format!(" {} sends again from frame {frame} on.", self.names[0]),
            None => " Nothing of it is sent again in the capture.".to_owned(),
        };
        let text = format!("{missing} {are} missing{of} before frame {}: {lost}.{then}", gap.frame);
        out.say(Kind::LostBefore, gap.index, text);
    }

    /// Whether one packet that came again was the beginning of many is known at the next one.
    fn settle_loose(&mut self, psn: Psn, ahead: i32, out: &mut Diagnosis) {
        let Some(loose) = self.loose.take() else { return };
        let Loose { index, frame, psn: again, at_once } = loose;
        if at_once && (ahead >= 0 || psn == again) {
            out.again.remove(&index);
            say_doubled(index, frame, again, out);
        } else {
            let text = format!(
                "{} sends PSN {} again (frame {frame}); what made it do so is not in the capture.",
                self.names[0],
                again.value()
            );
            out.say(Kind::Resent, index, text);
        }
    }

    /// A response.
    pub(super) fn response(&mut self, seen: &Seen<'_>, out: &mut Diagnosis) {
        let psn = seen.packet.psn();
        if seen.operation.is_read_response() {
            self.read_response(seen, out);
        } else if seen.operation == Operation::AtomicAcknowledge {
            self.responses.insert(psn, seen.frame);
        }
        match seen.packet.aeth().map(|aeth| aeth.syndrome) {
            Some(Syndrome::Nak(NakCode::PsnSequenceError)) => self.sequence_nak(seen, out),
            Some(Syndrome::Nak(code)) => self.fatal_nak(seen, code, out),
            Some(Syndrome::RnrNak(timer)) => {
                let text = format!(
                    "{} has no RECV for {}: RNR NAK in frame {}, wait {}.",
                    self.names[1],
                    self.what(psn),
                    seen.frame,
                    span(timer.ns().into())
                );
                self.refused(Kind::Rnr, seen, timer.ns(), text, out);
            }
            _ => self.acknowledged(psn, seen, out),
        }
        self.last_ns = Some(seen.time_ns);
    }

    fn acknowledged(&mut self, psn: Psn, seen: &Seen<'_>, out: &mut Diagnosis) {
        if self.acked.is_none_or(|acked| psn.distance_from(acked) > 0) {
            self.acked = Some(psn);
        }
        self.open.take_if(|open| psn.distance_from(open.psn) >= 0);
        let missed: Vec<Gap> = self.gaps.extract_if(.., |gap| psn.distance_from(gap.last) >= 0).collect();
        // What is missing of a resend may have been there the first time.
        for gap in missed.into_iter().filter(|gap| gap.of == Of::New) {
            if gap.psns().any(|psn| self.damaged[0].contains_key(&psn.value())) {
                continue;
            }
            let text = format!(
                "{} {} not here, but frame {} acknowledges {them}: not lost, the capture missed {them}.",
                range(gap.first, gap.last),
                are(gap.first, gap.last),
                seen.frame,
                them = them(gap.first, gap.last)
            );
            out.say(Kind::NotCaptured, gap.index, text);
        }
        if let Some(next) = self.next.filter(|next| psn.distance_from(*next) >= 0 && self.mtu.is_some()) {
            let text = format!(
                "Frame {} acknowledges {}, which {} not here: the capture missed {}.",
                seen.frame,
                range(next, psn),
                are(next, psn),
                them(next, psn)
            );
            out.say(Kind::NotCaptured, seen.index, text);
            self.next = Some(psn.add(1));
        }
    }

    fn read_response(&mut self, seen: &Seen<'_>, out: &mut Diagnosis) {
        let psn = seen.packet.psn();
        if seen.operation.begins_message() {
            // Answers from here on; what was missing is asked for again, or another READ's.
            self.read_gaps.clear();
        }
        if let Some(at) = self.read_gaps.iter().position(|gap| gap.holds(psn)) {
            let gap = self.read_gaps.remove(at);
            self.read_gaps.extend(gap.without(psn));
            self.responses.insert(psn, seen.frame);
            return late_response(&gap, seen, out);
        }
        let begins = seen.operation.begins_message() || self.requests.get(psn).is_some();
        if let Some(expected) = self.read_next.filter(|expected| !begins && psn.distance_from(*expected) > 0) {
            self.read_gap(expected, seen, out);
        }
        self.responses.insert(psn, seen.frame);
        self.read_next = Some(psn.add(1)).filter(|_| !seen.operation.ends_message());
    }

    fn read_gap(&mut self, expected: Psn, seen: &Seen<'_>, out: &mut Diagnosis) {
        let gap =
            Gap { of: Of::New, first: expected, last: seen.packet.psn().sub(1), index: seen.index, frame: seen.frame };
        let (here, damaged) = (&self.responses, &self.damaged[1]);
        if gap.psns().all(|psn| here.get(psn).is_some() || damaged.contains_key(&psn.value())) {
            return;
        }
        let (missing, are) = (range(gap.first, gap.last), are(gap.first, gap.last));
        let text =
            format!("{missing} of a READ response {are} missing before frame {}: lost before this point.", gap.frame);
        out.say(Kind::ReadGap, seen.index, text);
        self.read_gaps.push(gap);
    }

    fn sequence_nak(&mut self, seen: &Seen<'_>, out: &mut Diagnosis) {
        let psn = seen.packet.psn();
        let told =
            format!("{} expects PSN {} and says so: sequence NAK in frame {}.", self.names[1], psn.value(), seen.frame);
        let missing = self.gaps.iter().any(|gap| gap.of == Of::Again && gap.holds(psn));
        let (kind, text) = match self.requests.get(psn).filter(|_| !missing) {
            Some(request) if request.late => {
                (Kind::SequenceNak, format!("{told} It came too late (frame {}).", request.frame))
            }
            Some(request) if request.early => (
                Kind::SequenceNak,
                format!(
                    "{told} It came before its turn (frame {}), so that {} dropped it.",
                    request.last_frame, self.names[1]
                ),
            ),
            Some(request) => (
                Kind::LostBehind,
                format!(
                    "{told} It was here, as frame {}: lost, damaged or overtaken behind this point.",
                    request.last_frame
                ),
            ),
            None => match self.damaged[0].get(&psn.value()) {
                Some(frame) => (Kind::SequenceNak, format!("{told} It was here, as frame {frame}, but damaged.")),
                None => (Kind::SequenceNak, told),
            },
        };
        self.refused(kind, seen, 0, text, out);
    }

    fn refused(&mut self, kind: Kind, seen: &Seen<'_>, wait_ns: u64, text: String, out: &mut Diagnosis) {
        let (index, psn, time_ns) = (seen.index, seen.packet.psn(), seen.time_ns);
        self.acked = self.acked.max_psn(psn.sub(1));
        self.open = Some(Open { kind, index, psn, time_ns, wait_ns });
        out.say(kind, index, text);
    }

    fn fatal_nak(&mut self, seen: &Seen<'_>, code: NakCode, out: &mut Diagnosis) {
        let why = match code {
            NakCode::InvalidRequest => "invalid request: its opcode, its length, or a right of the queue pair",
            NakCode::RemoteAccessError => "remote access error: its R_Key, its range, or a right of the memory region",
            NakCode::RemoteOperationalError => "remote operational error: its own buffer or resources",
            _ => "a code that RC does not use",
        };
        let text = format!(
            "{} refuses {}: NAK in frame {}, {why}. Both queue pairs are in error from here on.",
            self.names[1],
            self.what(seen.packet.psn()),
            seen.frame
        );
        self.acked = self.acked.max_psn(seen.packet.psn());
        self.over = true;
        out.say(Kind::FatalNak, seen.index, text);
    }

    /// The request with a PSN, in words.
    fn what(&self, psn: Psn) -> String {
        match self.requests.get(psn) {
            Some(request) => format!("frame {} ({})", request.frame, request.name),
            None => format!("PSN {}, which is not in the capture", psn.value()),
        }
    }

    /// The capture is over.
    pub(super) fn finish(&mut self, out: &mut Diagnosis) {
        if let Some(next) = self.next {
            self.settle_loose(next, 0, out);
        }
        for gap in std::mem::take(&mut self.gaps) {
            self.lost_before(&gap, None, out);
        }
        let unanswered = |psn: Psn| self.acked.is_none_or(|acked| psn.distance_from(acked) > 0);
        let waits = |request: &Request| request.wants_answer && self.answers_captured;
        let open = || self.requests.iter().filter(|(psn, _)| unanswered(*psn));
        if self.over || !open().any(|(_, request)| waits(request)) {
            return;
        }
        let Some((psn, request)) = open().min_by_key(|(_, request)| request.index) else { return };
        let (kind, index, end) = match request.times {
            1 => (Kind::Unanswered, request.index, "The capture ends before its answer."),
            _ => (Kind::GivenUp, request.index, "Its requester gives up when retry_cnt is spent."),
        };
        let text = format!(
            "PSN {} was sent {} and never answered: {}. {end}",
            psn.value(),
            times(request.times),
            self.what(psn)
        );
        out.say(kind, index, text);
    }
}

trait MaxPsn {
    /// The later of two.
    fn max_psn(self, psn: Psn) -> Self;
}

impl MaxPsn for Option<Psn> {
    fn max_psn(self, psn: Psn) -> Option<Psn> {
        self.filter(|old| old.distance_from(psn) >= 0).or(Some(psn))
    }
}

/// A missing READ response packet comes late. If it was all that was missing, nothing was lost.
fn late_response(gap: &Gap, seen: &Seen<'_>, out: &mut Diagnosis) {
    let psn = seen.packet.psn().value();
    let text = format!(
        "PSN {psn} of a READ response (frame {}) comes behind frame {}, which has a later one: overtaken on the way.",
        seen.frame, gap.frame
    );
    match out.find(Kind::ReadGap, gap.index) {
        Some(trouble) if gap.first == gap.last => (trouble.kind, trouble.text) = (Kind::Reordered, text),
        _ => out.say(Kind::Reordered, seen.index, text),
    }
}

fn say_doubled(index: usize, frame: u64, psn: Psn, out: &mut Diagnosis) {
    let text =
        format!("PSN {} comes twice at once (frame {frame}): doubled on the way, or captured twice.", psn.value());
    out.say(Kind::Doubled, index, text);
}

fn times(n: u32) -> String {
    if n == 1 { "once".into() } else { format!("{n} times") }
}

fn range(first: Psn, last: Psn) -> String {
    if first == last { format!("PSN {}", first.value()) } else { format!("PSNs {} to {}", first.value(), last.value()) }
}

fn are(first: Psn, last: Psn) -> &'static str {
    if first == last { "is" } else { "are" }
}

fn them(first: Psn, last: Psn) -> &'static str {
    if first == last { "it" } else { "them" }
}

fn later(ns: i128) -> String {
    if ns < 100 { "at once".into() } else { format!("{} later", span(ns)) }
}

/// A time as one would say it.
fn span(ns: i128) -> String {
    match ns {
        ..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}
