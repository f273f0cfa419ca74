//! One direction of requests, with the responses to them.
//!
//! In: packets of it, in order, as a capture saw them. Out: troubles. What the capture point sees decides between a packet that was lost
//! before it (its PSN is missing), behind it (its PSN was here, and the responder asks for it), and one that only the capture missed
//! (its PSN is missing, and is acknowledged).

use std::collections::BTreeMap;

use xroce_wire::{NakCode, Operation, Packet, Psn, Syndrome};

use super::diagnosis::Diagnosis;
use super::trouble::Kind;
use crate::words;

/// Silence that only a timer ends: no end takes so long to answer while it is asked.
const SILENCE_NS: i128 = 200_000;
/// The same packet again within this time was doubled on the way, if nothing asked for it.
const AT_ONCE_NS: i128 = 20_000;

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
    /// It came behind later ones.
    late: bool,
}

/// PSNs that are missing.
struct Gap {
    first: Psn,
    last: Psn,
    /// Where it shows.
    index: usize,
    frame: u64,
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
    requests: BTreeMap<u32, Request>,
    gaps: Vec<Gap>,
    open: Option<Open>,
    loose: Option<Loose>,
    /// What would be the next packet of those that are sent again.
    resending: Option<Psn>,
    acked: Option<Psn>,
    /// PSN of the next READ response packet.
    read_next: Option<Psn>,
    last_ns: Option<i128>,
    /// READ response packets that were here: PSN and frame.
    responses: BTreeMap<u32, u64>,
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
            requests: BTreeMap::new(),
            gaps: Vec::new(),
            open: None,
            loose: None,
            resending: None,
            acked: None,
            read_next: None,
            last_ns: None,
            responses: BTreeMap::new(),
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
            (Some(next), 1..) if seen.uc => self.uc_gap(next, seen, out),
            (Some(next), 1..) => {
                let (first, last) = (next, psn.sub(1));
                self.gaps.push(Gap { first, last, index: seen.index, frame: seen.frame });
            }
            (Some(_), 0) => {}
            // UC takes any PSN where a message begins.
            (Some(_), _) if seen.uc => {}
            (Some(_), _) => self.old(seen, out),
        }
        let psns = self.psns(seen);
        if ahead >= 0 || seen.uc {
            self.next = Some(psn.add(psns));
            self.resending = None;
        }
        let wants_answer =
            seen.packet.ack_req() || matches!(seen.operation, Operation::ReadRequest) || seen.operation.is_atomic();
        let name = words::label(seen.packet.header_bytes());
        let (index, frame) = (seen.index, seen.frame);
        let request = self.requests.entry(psn.value()).or_insert(Request {
            index,
            frame,
            name,
            psns,
            wants_answer: wants_answer && !seen.uc,
            times: 0,
            late: ahead < 0,
        });
        request.times += 1;
        self.last_ns = Some(seen.time_ns);
    }

    /// How many PSNs a request packet takes.
    fn psns(&self, seen: &Seen<'_>) -> u32 {
        match (seen.packet.reth(), self.mtu) {
            (Some(reth), Some(mtu)) if seen.operation == Operation::ReadRequest => reth.len.div_ceil(mtu).max(1),
            _ => 1,
        }
    }

    fn uc_gap(&mut self, next: Psn, seen: &Seen<'_>, out: &mut Diagnosis) {
        let missing = range(next, seen.packet.psn().sub(1));
        let text = format!(
            "{missing} {} missing before frame {}: lost before this point. UC sends nothing again; the message is dropped by {}.",
            are(next, seen.packet.psn().sub(1)),
            seen.frame,
            self.names[1]
        );
        out.say(Kind::UcGap, seen.index, text);
    }

    /// A PSN that lies behind what was sent before.
    fn old(&mut self, seen: &Seen<'_>, out: &mut Diagnosis) {
        let psn = seen.packet.psn();
        let expected = self.resending == Some(psn);
        self.resending = Some(psn.add(self.psns(seen)));
        let gap =
            self.gaps.iter().position(|gap| psn.distance_from(gap.first) >= 0 && psn.distance_from(gap.last) <= 0);
        let known = self.requests.contains_key(&psn.value());
        let caused = expected || self.cause(seen, known, out);
        if let Some(gap) = gap.filter(|_| !known) {
            self.fill(gap, seen, caused, out);
            if !caused {
                return;
            }
        } else if !caused && self.inside_a_read(psn) {
            // A READ for the rest of a READ has a PSN of its own.
            self.rest_of_read(seen, out);
        } else if !caused {
            let at_once = self.last_ns.is_some_and(|last| seen.time_ns - last <= AT_ONCE_NS);
            self.loose = Some(Loose { index: seen.index, frame: seen.frame, psn, at_once });
        }
        out.again.insert(seen.index);
    }

    fn rest_of_read(&self, seen: &Seen<'_>, out: &mut Diagnosis) {
        let psn = seen.packet.psn();
        let why = match self.responses.get(&psn.value()) {
            Some(frame) => format!("That response was here, as frame {frame}: lost behind this point."),
            None => "That response was never here: lost before this point.".to_owned(),
        };
        let text = format!(
            "{} asks for the rest of a READ, from PSN {} on (frame {}). {why}",
            self.names[0],
            psn.value(),
            seen.frame
        );
        out.say(Kind::ReadGap, seen.index, text);
    }

    fn inside_a_read(&self, psn: Psn) -> bool {
        let before = self.requests.range(..psn.value()).next_back();
        before.is_some_and(|(first, request)| psn.value() - first < request.psns)
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
            if let Some(trouble) = out.troubles.iter_mut().find(|t| t.index == open.index && t.kind == open.kind) {
                trouble.text += &text;
            }
            return true;
        }
        let silence = self.last_ns.map_or(0, |last| seen.time_ns - last);
        if silence < SILENCE_NS {
            return false;
        }
        let times = self.requests.get(&psn.value()).map_or(0, |request| request.times);
        let acked = self.acked.is_some_and(|acked| acked.distance_from(psn) >= 0);
        let why = match (known, acked, self.answers_captured) {
            (_, true, _) => "Its acknowledgement was here: it was lost behind this point.",
            (false, ..) => "It was never here before.",
            (true, false, true) => "Request or answer was lost behind this point.",
            (true, false, false) => "Request or answer was lost.",
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

    /// A missing PSN comes: sent again, or late.
    fn fill(&mut self, at: usize, seen: &Seen<'_>, caused: bool, out: &mut Diagnosis) {
        let psn = seen.packet.psn();
        if caused {
            let gap = self.gaps.remove(at);
            self.lost_before(&gap, Some(seen.frame), out);
            return;
        }
        let text = format!(
            "PSN {} (frame {}) comes behind frame {}, which has a later one: overtaken on the way.",
            psn.value(),
            seen.frame,
            self.gaps[at].frame
        );
        out.say(Kind::Reordered, seen.index, text);
        self.resending = None;
        let gap = self.gaps.remove(at);
        let before = (gap.first != psn).then(|| Gap { first: gap.first, last: psn.sub(1), ..gap });
        let behind =
            (gap.last != psn).then(|| Gap { first: psn.add(1), last: gap.last, index: gap.index, frame: gap.frame });
        self.gaps.extend(before.into_iter().chain(behind));
    }

    fn lost_before(&self, gap: &Gap, again: Option<u64>, out: &mut Diagnosis) {
        let (missing, are) = (range(gap.first, gap.last), are(gap.first, gap.last));
        let then = match again {
            Some(frame) => format!(" {} sends again from frame {frame} on.", self.names[0]),
            None => " Nothing of it is sent again in the capture.".to_owned(),
        };
        let text = format!("{missing} {are} missing before frame {}: lost before this point.{then}", gap.frame);
        out.say(Kind::LostBefore, gap.index, text);
    }

    /// Whether one packet that came again was the beginning of many is known at the next one.
    fn settle_loose(&mut self, psn: Psn, ahead: i32, out: &mut Diagnosis) {
        let Some(loose) = self.loose.take() else { return };
        let Loose { index, frame, psn: again, at_once } = loose;
        if at_once && (ahead >= 0 || psn == again) {
            out.again.remove(&index);
            out.say(
                Kind::Doubled,
                index,
                format!(
                    "PSN {} comes twice at once (frame {frame}): doubled on the way, or captured twice.",
                    again.value()
                ),
            );
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
        for gap in missed {
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
        let begins = seen.operation.begins_message() || self.requests.contains_key(&psn.value());
        if let Some(expected) = self.read_next.filter(|expected| !begins && psn.distance_from(*expected) > 0) {
            let text = format!(
                "{} of a READ response {} missing before frame {}: lost before this point.",
                range(expected, psn.sub(1)),
                are(expected, psn.sub(1)),
                seen.frame
            );
            out.say(Kind::ReadGap, seen.index, text);
        }
        self.responses.insert(psn.value(), seen.frame);
        self.read_next = Some(psn.add(1)).filter(|_| !seen.operation.ends_message());
    }

    fn sequence_nak(&mut self, seen: &Seen<'_>, out: &mut Diagnosis) {
        let psn = seen.packet.psn();
        let told =
            format!("{} expects PSN {} and says so: sequence NAK in frame {}.", self.names[1], psn.value(), seen.frame);
        let (kind, text) = match self.requests.get(&psn.value()) {
            Some(request) if request.late => {
                (Kind::SequenceNak, format!("{told} It came too late (frame {}).", request.frame))
            }
            Some(request) => (
                Kind::LostBehind,
                format!("{told} It was here, as frame {}: lost or damaged behind this point.", request.frame),
            ),
            None => (Kind::SequenceNak, told),
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
        match self.requests.get(&psn.value()) {
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
        let unanswered = |psn: u32| self.acked.is_none_or(|acked| Psn::new(psn).distance_from(acked) > 0);
        let waits = |request: &Request| request.wants_answer && self.answers_captured;
        let open = || self.requests.iter().filter(|(psn, _)| unanswered(**psn));
        if self.over || !open().any(|(_, request)| waits(request)) {
            return;
        }
        let Some((psn, request)) = open().min_by_key(|(_, request)| request.index) else { return };
        let (kind, index, end) = match request.times {
            1 => (Kind::Unanswered, request.index, "The capture ends before its answer."),
            _ => (Kind::GivenUp, request.index, "Its requester gives up when retry_cnt is spent."),
        };
        let text = format!(
            "PSN {psn} was sent {} and never answered: {}. {end}",
            times(request.times),
            self.what(Psn::new(*psn))
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
