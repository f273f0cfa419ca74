//! What went wrong in a conversation.
//!
//! In: the packets of two queue pairs, in order. Out: troubles, each at the packet where it shows, which packets are sent again, and
//! which are damaged. Each end may send requests: every direction of requests is a [`Half`] of its own.

use std::collections::BTreeSet;

use xroce_wire::{Operation, Packet, dissect};

use super::Captured;
use super::flows::Pairing;
use super::half::{Half, Seen};
use super::trouble::{Kind, Trouble};
use super::turns::Turns;

/// What there is to say.
#[derive(Debug, Default)]
pub(super) struct Diagnosis {
    /// In the order of packets.
    pub(super) troubles: Vec<Trouble>,
    /// Packets that were sent before; indices into the conversation, as all here.
    pub(super) again: BTreeSet<usize>,
    /// Packets whose ICRC is wrong.
    pub(super) damaged: BTreeSet<usize>,
}

impl Diagnosis {
    pub(super) fn say(&mut self, kind: Kind, index: usize, text: impl Into<String>) {
        self.troubles.push(Trouble { kind, index, text: text.into() });
    }

    /// What was said last of a kind at a packet.
    pub(super) fn find(&mut self, kind: Kind, index: usize) -> Option<&mut Trouble> {
        self.troubles.iter_mut().rev().find(|trouble| trouble.kind == kind && trouble.index == index)
    }

    /// The summary: a sentence for each kind of trouble, with the packet where it first shows.
    pub(super) fn findings(&self) -> Vec<(String, usize)> {
        let kinds: BTreeSet<Kind> = self.troubles.iter().map(|trouble| trouble.kind).collect();
        let of = |kind| self.troubles.iter().filter(move |trouble| trouble.kind == kind);
        let sentence = |kind: Kind| {
            let first = of(kind).next()?;
            let text = match of(kind).count() {
                1 => first.text.clone(),
                n => format!("{n} {}. The first: {}", kind.several(), first.text),
            };
            Some((text, first.index))
        };
        kinds.into_iter().filter_map(sentence).collect()
    }
}

/// Looks at a conversation.
pub(super) fn diagnose(packets: &[Captured], pairing: &Pairing) -> Diagnosis {
    let mut diagnosis = Diagnosis::default();
    let own: Vec<&Captured> = pairing.packets.iter().map(|index| &packets[*index]).collect();
    let from = |captured: &Captured| usize::from(captured.src != pairing.ends[0]);
    let both = [0, 1].map(|end| own.iter().any(|captured| from(captured) == end));
    let mtu = path_mtu(&own);
    let names = ["A", "B"];
    let mut halves = [0, 1].map(|end| {
        let turns = Turns::of(&own, |captured| from(captured) == end);
        Half::new([names[end], names[1 - end]], mtu, both[1 - end], turns)
    });
    let (mut marked, mut rc) = (0u32, false);
    for (index, captured) in own.iter().enumerate() {
        let packet = match dissect(&captured.bytes).packet {
            Ok(packet) => packet,
            Err(e) => {
                diagnosis.say(Kind::Unreadable, index, format!("Frame {} cannot be read: {e}.", captured.frame));
                continue;
            }
        };
        marked += u32::from(packet.is_ce());
        rc |= matches!(packet.opcode(), xroce_wire::Opcode::Rc(_));
        if packet.icrc() == Some(false) {
            diagnosis.damaged.insert(index);
            let text = format!(
                "The ICRC of frame {} is wrong: bytes changed on the way. Its receiver drops it in silence.",
                captured.frame
            );
            diagnosis.say(Kind::Damaged, index, text);
            if let Some(operation) = packet.opcode().operation() {
                let (end, response) = (from(captured), !operation.is_request());
                halves[if response { 1 - end } else { end }].damaged(response, packet.psn(), captured.frame);
            }
            continue;
        }
        let Some(operation) = packet.opcode().operation() else {
            diagnosis.say(Kind::Congestion, index, format!("A congestion notification (frame {}).", captured.frame));
            continue;
        };
        let seen = Seen {
            index,
            frame: captured.frame,
            time_ns: captured.time_ns,
            packet: &packet,
            operation,
            uc: is_uc(&packet),
        };
        let end = from(captured);
        if operation.is_request() {
            halves[end].request(&seen, &mut diagnosis);
        } else {
            halves[1 - end].response(&seen, &mut diagnosis);
        }
    }
    for half in &mut halves {
        half.finish(&mut diagnosis);
    }
    // UC answers nothing: one direction may be all there is.
    if let Some(missing) = both.iter().position(|there| !there).filter(|_| rc) {
        let text = format!(
            "Only what {a} sends was captured. Either what {b} answers is not here (one direction of a mirror port?), so that losses show \
             only where packets are sent again; or {b} never answers: it is not there, or has no such queue pair, or that takes nothing yet.",
            a = names[1 - missing],
            b = names[missing]
        );
        diagnosis.say(Kind::OneDirection, 0, text);
    }
    if marked > 0 {
        diagnosis.say(
            Kind::Congestion,
            0,
            format!("{marked} packets are marked by a router: congestion experienced (ECN)."),
        );
    }
    diagnosis.troubles.sort_by_key(|trouble| trouble.index);
    diagnosis
}

fn is_uc(packet: &Packet<'_>) -> bool {
    matches!(packet.opcode(), xroce_wire::Opcode::Uc(_))
}

/// Every packet of a message but its last carries exactly one path MTU.
fn path_mtu(packets: &[&Captured]) -> Option<u32> {
    let full = |operation: Operation| operation.is_first() || operation.is_middle();
    packets.iter().find_map(|captured| {
        let packet = dissect(&captured.bytes).packet.ok()?;
        let whole = packet.icrc() != Some(false) && packet.opcode().operation().is_some_and(full);
        (whole && packet.payload_len() > 0).then_some(packet.payload_len() as u32)
    })
}
