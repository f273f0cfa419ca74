//! The JSON inside a page: a ladder enters, what the script reads leaves. Names are a contract with `page.js`.

use std::collections::BTreeMap;

use serde::Serialize;
use xroce_wire::{Headers, Syndrome, dissect};

use crate::fields::{self, Header};
use crate::ladder::{
    self, Effect, Fate, Ladder, Progress, Request, STATE_NAMES, Section, State, What, state_lines, time,
};
use crate::words;

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
    glossary: BTreeMap<String, &'static str>,
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
    psn: Option<u32>,
    rest: String,
    nak: bool,
    again: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    frame: Option<u64>,
    fate: &'static str,
    #[serde(flatten)]
    view: View,
    #[serde(skip_serializing_if = "Option::is_none")]
    flipped: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arrived: Option<View>,
}

#[derive(Serialize)]
struct View {
    hex: String,
    headers: Vec<Header>,
}

/// A work request: number, what it does, bytes, how it stands (as a class of the page), and in words.
type Line = (u64, &'static str, u32, &'static str, String);

#[derive(Serialize)]
struct Step<'a> {
    ns: u64,
    time: String,
    end: usize,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet: Option<usize>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    copy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    effects: Vec<Words>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    states: Option<[Option<[String; 17]>; 2]>,
    /// Of each end whose state is known, the send queue and the receive queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<[Option<[Vec<Line>; 2]>; 2]>,
}

#[derive(Serialize)]
struct Words {
    kind: &'static str,
    text: String,
}

impl<'a> Data<'a> {
    pub(super) fn new(ladder: &'a Ladder) -> Data<'a> {
        let packets: Vec<Packet> = ladder.packets.iter().map(packet).collect();
        let mut glossary = BTreeMap::new();
        for header in packets.iter().flat_map(|p| &p.view.headers) {
            for field in header.fields.iter().filter(|f| !f.about.is_empty()) {
                glossary.insert(format!("{}.{}", header.name, field.name), field.about);
            }
        }
        Data {
            version: 1,
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
            glossary,
            packets,
            steps: ladder.steps.iter().map(step).collect(),
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

fn packet(packet: &ladder::Packet) -> Packet {
    let headers = dissect(&packet.sent).packet.ok().map(|p| Headers::parse(&p));
    let (name, rest) = words::name_and_rest(&packet.sent);
    let flipped = match packet.fate {
        Fate::Corrupted(bit) => Some(bit),
        _ => None,
    };
    let arrived = flipped.map(|bit| {
        let mut bytes = packet.sent.clone();
        bytes[bit / 8] ^= 0x80 >> (bit % 8);
        view(&bytes)
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
        view: view(&packet.sent),
        flipped,
        arrived,
    }
}

fn view(bytes: &[u8]) -> View {
    View { hex: bytes.iter().map(|b| format!("{b:02x}")).collect(), headers: fields::headers(bytes) }
}

fn step(step: &ladder::Step) -> Step<'_> {
    let (kind, packet, copy, text) = match &step.what {
        What::Call(text) => ("call", None, false, Some(text.as_str())),
        What::Sent(packet) => ("sent", Some(*packet), false, None),
        What::Arrived { packet, copy } => ("arrived", Some(*packet), *copy, None),
        What::Captured(packet) => ("captured", Some(*packet), false, None),
        What::Timer(text) => ("timer", None, false, Some(text.as_str())),
    };
    let states = Some(step.states.each_ref()).filter(|states| states.iter().any(|state| state.is_some()));
    Step {
        ns: step.at_ns,
        time: time(step.at_ns),
        end: step.end,
        kind,
        packet,
        copy,
        text,
        effects: step.effects.iter().map(effect).collect(),
        note: step.note.as_deref(),
        states: states.map(|states| states.map(|state| state.as_ref().map(state_lines))),
        requests: states.map(|states| states.map(|state| state.as_ref().map(queues))),
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

fn queues(state: &State) -> [Vec<Line>; 2] {
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
