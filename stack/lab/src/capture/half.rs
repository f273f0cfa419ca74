//! One direction of requests, with the responses to them.
//!
//! In: packets of it, in order, as a capture saw them. Out: troubles. What the capture point sees decides between a packet that was lost
//! before it (its PSN is missing), behind it (its PSN was here, and the responder asks for it), and one that only the capture missed
//! (its PSN is missing, and is acknowledged).

use std::collections::BTreeMap;

use xroce_wire::{NakCode, Operation, Packet, Psn, Syndrome};

use super::diagnosis::Diagnosis;
use super::gaps::{Gap, Gaps, Of};
use super::psns::Psns;
use super::refusals::{Refusal, Refusals};
use super::responder::Responder;
use super::trouble::Kind;
use super::turns::Turns;
use crate::words;

/// Silence that only a timer ends: no end takes so long to answer while it is asked.
const SILENCE_NS: i128 = 200_000;
/// The same packet again within this time was doubled on the way, if nothing asked for it.
const AT_ONCE_NS: i128 = 20_000;

/// New requests that may come late while older ones are sent again. More of them are sent behind those.
const NEW_MAX: u32 = 4;
/// Behind so many missing packets one alone does not tell that they are.
const FAR: i32 = 4;
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
    /// It is not the last of its message: it has as many bytes as the path MTU.
    full: bool,
    times: u32,
    /// The frame in which it came last, and when.
    last_frame: u64,
    last_ns: i128,
}

/// One packet that came again, of which it is not known yet whether more follow.
struct Loose {
    index: usize,
    frame: u64,
    psn: Psn,
    at_once: bool,
    /// What was being sent again until then.
    before: Option<Resend>,
}

/// What is being sent again.
#[derive(Clone, Copy)]
struct Resend {
    next: Psn,
    /// New requests that came meanwhile, and the first of them: before that it ends, but for what is late.
    new: u32,
    end: Option<Psn>,
}

impl Resend {
    fn from(next: Psn) -> Resend {
        Resend { next, new: 0, end: None }
    }
}

/// What a packet does that comes again and not in its turn.
enum Passes {
    /// It goes on with what is sent again, and something before it is missing.
    Hole,
    /// It is so far on that it may be late, of what was sent again before.
    Stray,
    Nothing,
}

pub(super) struct Half {
    /// Requester and responder.
    names: [&'static str; 2],
    mtu: Option<u32>,
    answers_captured: bool,
    /// PSN of the first request packet and its frame, if a message begins there.
    first: Option<(Psn, u64)>,
    /// PSN of the next new request packet.
    next: Option<Psn>,
    requests: Psns<Request>,
    gaps: Gaps,
    /// Packets that came damaged, requests and responses: PSN and frame.
    damaged: [BTreeMap<u32, u64>; 2],
    refusals: Refusals,
    loose: Option<Loose>,
    resending: Option<Resend>,
    /// What would follow on what a NAK asked for. That has come, but may be what was late: then it is to come once more.
    begun: Option<Psn>,
    /// A packet far on in what is sent again, and the PSN behind it.
    stray: Option<(Psn, Psn)>,
    responder: Responder,
    turns: Turns,
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
    /// The responder expects other PSNs than come.
    other_psns: bool,
    /// The PSN for which there was no RECV last.
    not_ready: Option<Psn>,
}

impl Half {
    pub(super) fn new(names: [&'static str; 2], mtu: Option<u32>, answers_captured: bool, turns: Turns) -> Half {
        Half {
            names,
            mtu,
            answers_captured,
            first: None,
            next: None,
            requests: Psns::new(),
            gaps: Gaps::default(),
            damaged: [BTreeMap::new(), BTreeMap::new()],
            refusals: Refusals::new(turns.resend_ns),
            loose: None,
            resending: None,
            begun: None,
            stray: None,
            responder: Responder::new(),
            turns,
            acked: None,
            read_next: None,
            read_gaps: Vec::new(),
            last_ns: None,
            responses: Psns::new(),
            over: false,
            other_psns: false,
            not_ready: None,
        }
    }

    /// A request packet.
    pub(super) fn request(&mut self, seen: &Seen<'_>, out: &mut Diagnosis) {
        let psn = seen.packet.psn();
        let ahead = self.next.map_or(0, |next| psn.distance_from(next));
        self.settle_loose(psn, ahead, out);
        match (self.next, ahead) {
            // The one before it came, though damaged.
            (None, _) if self.damaged[0].contains_key(&psn.sub(1).value()) => {}
            (None, _) if seen.operation.is_middle() || seen.operation.is_last() => {
                let text = format!(
                    "The capture begins inside a message of {}: frame {} is not its first packet.",
                    self.names[0], seen.frame
                );
                out.say(Kind::BeginsInside, seen.index, text);
            }
            (None, _) => self.first = Some((psn, seen.frame)),
            (Some(next), 0..) => {
                self.new_while_resending(next, seen);
                self.missing(if seen.uc { Of::Uc } else { Of::New }, next, psn, seen);
            }
            (Some(_), _) if seen.uc => self.uc_old(seen, out),
            (Some(_), _) => self.old(seen, out),
        }
        let psns = self.psns(seen);
        if ahead >= 0 || (seen.uc && ahead < -UC_AFRESH) {
            self.next = Some(psn.add(psns));
        }
        let wants_answer =
            seen.packet.ack_req() || matches!(seen.operation, Operation::ReadRequest) || seen.operation.is_atomic();
        let name = words::label(seen.packet.header_bytes());
        let (index, frame) = (seen.index, seen.frame);
        let request = self.requests.entry(psn, || Request {
            index,
            frame,
            name,
            psns,
            wants_answer: wants_answer && !seen.uc,
            full: seen.operation.is_first() || seen.operation.is_middle(),
            times: 0,
            last_frame: frame,
            last_ns: seen.time_ns,
        });
        request.times += 1;
        (request.last_frame, request.last_ns) = (frame, seen.time_ns);
        self.responder.request(psn, psns, frame);
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
            let (last, index, frame, time_ns) = (behind.sub(1), seen.index, seen.frame, seen.time_ns);
            self.gaps.add(Gap { of, first, last, index, frame, time_ns, again: None, made_good: false });
        }
    }

    /// A new request comes. While others are sent again it may be late; or these are over, and their last are missing.
    fn new_while_resending(&mut self, next: Psn, seen: &Seen<'_>) {
        let Some(resend) = &mut self.resending else { return };
        let end = *resend.end.get_or_insert(next);
        resend.new += 1;
        if resend.new > NEW_MAX {
            self.hole_before(end, seen);
            self.resending = None;
        }
    }

    /// While packets are sent again, those up to `until` that are left out. An acknowledgement lets a requester skip what
    /// it covers; who does not see the answers cannot tell.
    fn hole_before(&mut self, until: Psn, seen: &Seen<'_>) {
        let Some(Resend { next: expected, .. }) = self.resending.filter(|_| self.answers_captured && !seen.uc) else {
            return;
        };
        self.refusals.passed_over(expected, until);
        let owed = self.acked.map(|acked| acked.add(1)).filter(|behind| behind.distance_from(expected) > 0);
        let owed = owed.unwrap_or(expected);
        self.missing(Of::Skipped, expected, if until.distance_from(owed) < 0 { until } else { owed }, seen);
        self.missing(Of::Again, owed, until, seen);
    }

    /// A PSN of UC that lies behind what was sent before: late, or twice.
    fn uc_old(&mut self, seen: &Seen<'_>, out: &mut Diagnosis) {
        let psn = seen.packet.psn();
        if self.gaps.holds(psn) {
            let dropped = match seen.operation.begins_message() && seen.operation.ends_message() {
                true => "",
                false => " UC waits for nothing: the message is dropped.",
            };
            self.late(seen, dropped, out);
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
        for gap in self.gaps.settled(seen.time_ns) {
            self.lost_before(&gap, out);
        }
        let known = self.requests.get(psn).is_some();
        let owed = self.gaps.holds(psn);
        let follows = self.begun == Some(psn);
        let in_turn = self.resending.is_some_and(|resend| resend.next == psn && !(owed && resend.end == Some(psn)));
        let asked = self.refusals.ask_for(psn, seen.time_ns);
        let caused = follows
            || in_turn
            || self.asks_again(seen, out)
            || !owed && self.begins_behind_a_nak(seen)
            || !self.goes_on_behind(seen) && self.cause(seen, known, out);
        if !caused && owed {
            return self.late(seen, "", out);
        }
        self.gaps.sent_again(psn, seen.frame, seen.time_ns);
        out.again.insert(seen.index);
        let next = psn.add(self.psns(seen));
        let unsure = owed && follows || asked && (owed || self.resending.is_some());
        if unsure && !in_turn {
            self.begun = Some(next);
            return;
        }
        match (!caused).then(|| self.passes_over(seen)) {
            Some(Passes::Stray) => return,
            Some(Passes::Nothing) => {
                let at_once = self.last_ns.is_some_and(|last| seen.time_ns - last <= AT_ONCE_NS);
                let (index, frame, before) = (seen.index, seen.frame, self.resending);
                self.loose = Some(Loose { index, frame, psn, at_once, before });
            }
            Some(Passes::Hole) | None => {}
        }
        self.begun = self.begun.filter(|_| in_turn && !follows);
        self.resending = match self.resending.filter(|_| in_turn && !follows) {
            Some(resend) => Some(Resend { next, ..resend }),
            None => Some(Resend::from(next)),
        }
        .filter(|resend| resend.end.is_some() || self.next.is_some_and(|new| new.distance_from(next) > 0));
    }

    /// Whether a packet goes on with what is sent again, of which something is missing before it.
    fn passes_over(&mut self, seen: &Seen<'_>) -> Passes {
        let psn = seen.packet.psn();
        let before = |next: Psn| psn.distance_from(next) > 0;
        let goes_on = self.resending.map(|resend| resend.next).filter(|next| before(*next));
        let Some(next) = goes_on.or(self.begun.filter(|next| before(*next))) else { return Passes::Nothing };
        let far = psn.distance_from(next) > FAR;
        let follows = self.stray.take().filter(|(_, behind)| *behind == psn);
        if far && follows.is_none() {
            self.stray = Some((psn, psn.add(self.psns(seen))));
            return Passes::Stray;
        }
        if goes_on.is_none() {
            self.resending = Some(Resend::from(next));
        }
        self.hole_before(follows.map_or(psn, |(first, _)| first), seen);
        Passes::Hole
    }

    /// What would be the next packet of those that are sent again.
    fn next_again(&self) -> Option<Psn> {
        self.resending.map(|resend| resend.next).or(self.begun)
    }

    /// Whether what is sent again goes on behind a gap after a silence: a timer would begin with the oldest that is not acknowledged.
    fn goes_on_behind(&self, seen: &Seen<'_>) -> bool {
        let psn = seen.packet.psn();
        self.next_again().is_some_and(|next| psn.distance_from(next) > 0)
            && self.acked.is_some_and(|acked| psn.distance_from(acked) > 1)
            && !self.refusals.ask_for(psn, seen.time_ns)
    }

    /// Whether this is what a NAK asked for, but for its first packets, which are missing.
    fn begins_behind_a_nak(&mut self, seen: &Seen<'_>) -> bool {
        let psn = seen.packet.psn();
        // Behind what is being sent again already, it goes on with that.
        let begins = self.next_again().is_none_or(|next| psn.distance_from(next) < 0);
        let Some(nak) = begins.then(|| self.refusals.take_before(psn, seen.time_ns)).flatten() else { return false };
        self.missing(Of::Again, nak.psn, psn, seen);
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
        if let Some(refusal) = self.refusals.take(psn, seen.time_ns) {
            let after = seen.time_ns - refusal.time_ns;
            let mut text = format!(" {who} sends it again {}, in frame {}.", later(after), seen.frame);
            if after < i128::from(refusal.wait_ns) {
                text += " That is sooner than it may.";
            }
            if let Some(trouble) = out.find(refusal.kind, refusal.index) {
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
            _ if self.other_psns => "What was answered was not that.",
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

    /// A missing PSN comes late.
    fn late(&mut self, seen: &Seen<'_>, then: &str, out: &mut Diagnosis) {
        let (psn, frame) = (seen.packet.psn(), seen.frame);
        let Some(gap) = self.gaps.late(psn) else { return };
        let value = psn.value();
        let text = match gap.again {
            None => format!(
                "PSN {value} (frame {frame}) comes behind frame {}, which has a later one: overtaken on the way.{then}",
                gap.frame
            ),
            Some((again, _)) => format!(
                "PSN {value} is missing before frame {} and sent again from frame {again} on, but not lost: overtaken on the way, and \
                 here at last in frame {frame}.",
                gap.frame
            ),
        };
        out.say(Kind::Reordered, seen.index, text);
    }

    /// A packet with a wrong ICRC, if its PSN is right.
    pub(super) fn damaged(&mut self, response: bool, psn: Psn, frame: u64) {
        self.damaged[usize::from(response)].insert(psn.value(), frame);
    }

    fn lost_before(&self, gap: &Gap, out: &mut Diagnosis) {
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
        let then = match gap.again {
            Some((frame, _)) => format!(" {} sends again from frame {frame} on.", self.names[0]),
            None => " Nothing of it is sent again in the capture.".to_owned(),
        };
        let text = format!("{missing} {are} missing{of} before frame {}: {lost}.{then}", gap.frame);
        out.say(Kind::LostBefore, gap.index, text);
    }

    /// Whether one packet that came again was the beginning of many is known at the next one.
    fn settle_loose(&mut self, psn: Psn, ahead: i32, out: &mut Diagnosis) {
        let Some(loose) = self.loose.take() else { return };
        let Loose { index, frame, psn: again, at_once, before } = loose;
        let goes_on = before.is_some_and(|before| before.next == psn);
        if at_once && (ahead >= 0 || psn == again || goes_on) {
            out.again.remove(&index);
            self.resending = before;
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
        if self.speaks_of_others(seen, out) {
            self.last_ns = Some(seen.time_ns);
            return;
        }
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
                self.responder.waits_for(psn, seen.frame);
                self.not_ready = Some(psn);
                self.refused(Kind::Rnr, seen, timer.ns(), text, out);
            }
            _ => self.acknowledged(psn, seen, out),
        }
        self.last_ns = Some(seen.time_ns);
    }

    /// Whether a responder that has carried out nothing speaks of PSNs before the first or behind the newest: it was told another
    /// one to begin with.
    fn speaks_of_others(&mut self, seen: &Seen<'_>, out: &mut Diagnosis) -> bool {
        let (Some(aeth), Some((first, frame)), Some(next)) = (seen.packet.aeth(), self.first, self.next) else {
            return false;
        };
        let psn = seen.packet.psn();
        let expected = match aeth.syndrome {
            Syndrome::Nak(NakCode::PsnSequenceError) if psn.distance_from(first) < 0 => psn,
            Syndrome::Ack { .. } if psn.distance_from(next) >= 0 => psn.add(1),
            _ => return false,
        };
        if aeth.msn.value() != 0 {
            return false;
        }
        if !self.other_psns {
            let [a, b] = self.names;
            let text = format!(
                "{b} expects PSN {} (frame {}), but what {a} sends begins with PSN {} (frame {frame}): the rq_psn of {b} is not the \
                 sq_psn of {a}, and {b} takes nothing of it.",
                expected.value(),
                seen.frame,
                first.value()
            );
            out.say(Kind::OtherPsns, seen.index, text);
        }
        self.other_psns = true;
        true
    }

    fn acknowledged(&mut self, psn: Psn, seen: &Seen<'_>, out: &mut Diagnosis) {
        if self.acked.is_none_or(|acked| psn.distance_from(acked) > 0) {
            self.acked = Some(psn);
        }
        self.refusals.acknowledged(psn);
        self.responder.acknowledges(psn);
        for gap in self.gaps.acknowledged(psn) {
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
        let (index, frame, last) = (seen.index, seen.frame, seen.packet.psn().sub(1));
        let time_ns = seen.time_ns;
        let gap = Gap { of: Of::New, first: expected, last, index, frame, time_ns, again: None, made_good: false };
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
        let missing = self.gaps.holds_again(psn);
        let request = self.requests.get(psn).filter(|_| !missing);
        let crosses =
            request.zip(self.turns.answer_ns).is_some_and(|(request, ns)| seen.time_ns - request.last_ns <= ns);
        let sent_again = self.responder.has_asked_for(psn) || request.is_some_and(|request| request.times > 1);
        if crosses && sent_again {
            let text = format!("{told} What was sent of it last cannot have come to it yet.");
            return self.refused(Kind::SequenceNak, seen, 0, text, out);
        }
        let caused_by = self.responder.asks_for(psn, seen.frame);
        let (kind, text) = match request {
            Some(Request { last_frame, .. }) if caused_by.is_some_and(|frame| frame < *last_frame) => {
                (Kind::SequenceNak, format!("{told} It came too late (frame {last_frame})."))
            }
            Some(Request { last_frame, .. }) if caused_by.is_some() => (
                Kind::SequenceNak,
                format!("{told} It came before its turn (frame {last_frame}), so that {} dropped it.", self.names[1]),
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
        self.refusals.add(Refusal { kind, index, psn, time_ns, wait_ns });
        out.say(kind, index, text);
    }

    fn fatal_nak(&mut self, seen: &Seen<'_>, code: NakCode, out: &mut Diagnosis) {
        let why = match code {
            NakCode::InvalidRequest => "invalid request: its opcode, its length, or a right of the queue pair",
            NakCode::RemoteAccessError => "remote access error: its R_Key, its range, or a right of the memory region",
            NakCode::RemoteOperationalError => "remote operational error: its own buffer or resources",
            _ => "a code that RC does not use",
        };
        let full = self.mtu.filter(|_| code == NakCode::InvalidRequest && self.is_full(seen.packet.psn()));
        let mtu = full.map_or_else(String::new, |mtu| {
            format!(
                " It is a full packet of {mtu} B: if the path MTU of {} is another, it refuses them all.",
                self.names[1]
            )
        });
        let text = format!(
            "{} refuses {}: NAK in frame {}, {why}.{mtu} Both queue pairs are in error from here on.",
            self.names[1],
            self.what(seen.packet.psn()),
            seen.frame
        );
        self.acked = self.acked.max_psn(seen.packet.psn());
        self.over = true;
        out.say(Kind::FatalNak, seen.index, text);
    }

    /// Whether a request packet is not the last of its message.
    fn is_full(&self, psn: Psn) -> bool {
        self.requests.get(psn).is_some_and(|request| request.full)
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
        for gap in &self.gaps.take() {
            self.lost_before(gap, out);
        }
        let unanswered = |psn: Psn| self.acked.is_none_or(|acked| psn.distance_from(acked) > 0);
        let waits = |request: &Request| request.wants_answer && self.answers_captured;
        let open = || self.requests.iter().filter(|(psn, _)| unanswered(*psn));
        if self.over || !open().any(|(_, request)| waits(request)) {
            return;
        }
        let Some((psn, request)) = open().min_by_key(|(_, request)| request.index) else { return };
        let not_ready = self.not_ready == Some(psn);
        let (kind, index, end) = match request.times {
            1 => (Kind::Unanswered, request.index, "The capture ends before its answer."),
            _ if not_ready => (Kind::GivenUp, request.index, "Its requester gives up when rnr_retry is spent."),
            _ => (Kind::GivenUp, request.index, "Its requester gives up when retry_cnt is spent."),
        };
        let answer = if not_ready { "there was never a RECV for it" } else { "never answered" };
        let text =
            format!("PSN {} was sent {} and {answer}: {}. {end}", psn.value(), times(request.times), self.what(psn));
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
