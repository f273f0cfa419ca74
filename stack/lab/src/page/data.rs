//! The JSON inside a page: a ladder enters, what the script reads leaves. Names are a contract with `page.js`.

use serde::Serialize;
use xroce_wire::{Headers, Syndrome, dissect};

use crate::ladder::{self, Effect, Fate, Ladder, Progress, Request, STATE_NAMES, Section, State, What, state_lines};
use crate::words;

use super::views::Views;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Data<'a> {
    version: u32,
    name: &'a str,
    title: &'a str,
    about: &'a [String],
    findings: Vec<(&'a str, Option<usize>)>,
    look: &'a [String],
    facts: &'a [(&'static str, String)],
    ends: Vec<End<'a>>,
    state_names: Vec<(&'static str, &'static str, &'static str)>,
    #[serde(flatten)]
    views: Views,
    packets: Vec<Packet>,
    steps: Vec<Step<'a>>,
}

#[derive(Serialize)]
struct End<'a> {
    name: &'a str,
    address: &'a str,
    qpn: Option<String>,
}

/// A packet; `arrived` is how it looks where it was corrupted.
#[derive(Serialize)]
struct Packet {
    from: usize,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    psn: Option<u32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    rest: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    nak: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    again: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    frame: Option<u64>,
    fate: &'static str,
    view: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    flipped: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arrived: Option<usize>,
}

/// A work request: number, what it does, bytes, how it stands (as a class of the page), and in words.
type Line = (u64, &'static str, u32, &'static str, String);

/// Lines of a state: their numbers and what they say.
type Lines = Vec<(usize, String)>;
/// The send queue and the receive queue.
type Queues = [Vec<Line>; 2];

#[derive(Serialize)]
struct Step<'a> {
    ns: u64,
    end: usize,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet: Option<usize>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    copy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    effects: Vec<Words>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    /// Of each end whose state is known, what is other than before.
    #[serde(skip_serializing_if = "Option::is_none")]
    states: Option<[Option<Lines>; 2]>,
    /// Of each end, if they are other than before.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<[Option<Queues>; 2]>,
}

#[derive(Serialize)]
struct Words {
    kind: &'static str,
    text: String,
}

impl<'a> Data<'a> {
    pub(super) fn new(ladder: &'a Ladder) -> Data<'a> {
        let mut views = Views::default();
        let packets: Vec<Packet> = ladder.packets.iter().map(|p| packet(p, &mut views)).collect();
        let mut before = Before::default();
        Data {
            version: 2,
            name: &ladder.name,
            title: &ladder.title,
            about: &ladder.about,
            findings: ladder.findings.iter().map(|finding| (finding.text.as_str(), finding.step)).collect(),
            look: &ladder.look,
            facts: &ladder.facts,
            ends: ladder.ends.iter().map(end).collect(),
            state_names: STATE_NAMES
                .iter()
                .map(|(section, name, about)| (section_name(*section), *name, *about))
                .collect(),
            views,
            packets,
            steps: ladder.steps.iter().map(|s| step(s, &mut before)).collect(),
        }
    }
}

fn section_name(section: Section) -> &'static str {
    match section {
        Section::Pair => "",
        Section::Requester => "Requester",
        Section::Responder => "Responder",
    }
}

fn end(end: &ladder::End) -> End<'_> {
    End { name: &end.name, address: &end.address, qpn: end.qpn.map(|qpn| qpn.to_string()) }
}

fn packet(packet: &ladder::Packet, views: &mut Views) -> Packet {
    let headers = dissect(&packet.sent).packet.ok().map(|p| Headers::parse(&p));
    let (name, rest) = words::name_and_rest(&packet.sent);
    let flipped = match packet.fate {
        Fate::Corrupted(bit) => Some(bit),
        _ => None,
    };
    let arrived = flipped.map(|bit| {
        let mut bytes = packet.sent.clone();
        bytes[bit / 8] ^= 0x80 >> (bit % 8);
        views.add(&bytes)
    });
    Packet {
        from: packet.from,
        name,
        psn: headers.map(|h| h.bth.psn.value()),
        rest,
        nak: headers.and_then(|h| h.aeth).is_some_and(|a| !matches!(a.syndrome, Syndrome::Ack { .. })),
        again: packet.again,
        frame: packet.frame,
        fate: match packet.fate {
            Fate::Delivered => "delivered",
            Fate::Lost => "lost",
            Fate::Duplicated => "doubled",
            Fate::Corrupted(_) => "corrupted",
            Fate::Captured => "captured",
        },
        view: views.add(&packet.sent),
        flipped,
        arrived,
    }
}

/// What was said last of either end.
#[derive(Default)]
struct Before {
    states: [Option<[String; 17]>; 2],
    requests: [Option<Queues>; 2],
}

impl Before {
    /// The lines of an end's state that changed.
    fn lines(&mut self, end: usize, state: &State) -> Lines {
        let lines = state_lines(state);
        let old = self.states[end].get_or_insert_default();
        let changed = lines.iter().enumerate().filter(|(n, line)| old[*n] != **line);
        let changed = changed.map(|(n, line)| (n, line.clone())).collect();
        *old = lines;
        changed
    }

    /// Its requests, if they changed.
    fn queues(&mut self, end: usize, state: &State) -> Option<Queues> {
        let queues = queues(state);
        if self.requests[end].as_ref() == Some(&queues) {
            return None;
        }
        self.requests[end].insert(queues).clone().into()
    }
}

fn step<'a>(step: &'a ladder::Step, before: &mut Before) -> Step<'a> {
    let (kind, packet, copy, text) = match &step.what {
        What::Call(text) => ("call", None, false, Some(text.as_str())),
        What::Sent(packet) => ("sent", Some(*packet), false, None),
        What::Arrived { packet, copy } => ("arrived", Some(*packet), *copy, None),
        What::Captured(packet) => ("captured", Some(*packet), false, None),
        What::Timer(text) => ("timer", None, false, Some(text.as_str())),
    };
    let known = |end: usize| step.states[end].as_ref();
    let states = [0, 1].map(|end| known(end).map(|state| before.lines(end, state)));
    let requests = [0, 1].map(|end| known(end).and_then(|state| before.queues(end, state)));
    Step {
        ns: step.at_ns,
        end: step.end,
        kind,
        packet,
        copy,
        text,
        effects: step.effects.iter().map(effect).collect(),
        note: step.note.as_deref(),
        states: Some(states).filter(|states| states.iter().any(Option::is_some)),
        requests: Some(requests).filter(|requests| requests.iter().any(Option::is_some)),
    }
}

fn effect(effect: &Effect) -> Words {
    let kind = match effect {
        Effect::Dropped(_) => "dropped",
        Effect::Duplicate => "duplicate",
        Effect::Completion { success: true, .. } => "done",
        Effect::Completion { .. } => "failed",
        Effect::Event(_) => "event",
        Effect::State { .. } => "state",
        Effect::Refused(_) => "refused",
        Effect::Memory { .. } => "memory",
    };
    Words { kind, text: effect.words() }
}

fn queues(state: &State) -> Queues {
    [&state.sends, &state.recvs].map(|queue| queue.iter().map(line).collect())
}

fn line(request: &Request) -> Line {
    let kind = match request.progress {
        Progress::Done { success: true, .. } => "done",
        Progress::Done { .. } => "failed",
        _ => "open",
    };
    (request.wr_id, request.op, request.len, kind, request.progress.words())
}
