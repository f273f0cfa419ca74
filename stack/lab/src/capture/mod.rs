//! Ladders of packets that somebody captured.
//!
//! In: packets with their times and addresses. Out: the conversations among them, and the ladder of one, with what went wrong in it.
//! A capture sees a packet once, so it leaves and arrives in the same instant; what the queue pairs were in the middle of is not
//! known.

mod copies;
mod diagnosis;
mod flows;
mod gaps;
mod half;
mod psns;
mod refusals;
mod responder;
mod trouble;
mod turns;

use std::net::IpAddr;

pub(crate) use flows::request_key;

use crate::ladder::{Effect, End, Fate, Finding, Ladder, Packet, Step, What};
use copies::Copies;
use diagnosis::Diagnosis;
use flows::Pairing;

/// A RoCE v2 packet of a capture.
#[derive(Debug, Clone)]
pub struct Captured {
    /// Its number in the file, as other programs count.
    pub frame: u64,
    /// The interface that it was captured at.
    pub interface: u32,
    /// When, in nanoseconds since an arbitrary start.
    pub time_ns: i128,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// The bytes before the IP header, as far as they are known: they may tell two places of one capture apart.
    pub link: Vec<u8>,
    /// The packet from the IP header on, as far as it was captured; bytes behind its end do no harm.
    pub bytes: Vec<u8>,
}

/// Packets that a ladder shows at most: a page of more is of no use to anybody.
const SHOWN_MAX: usize = 2_000;
/// Of a longer conversation: so many packets before and behind one that there is something to say about.
const AROUND: usize = 12;
/// Conversations that a page lists.
const LISTED_MAX: usize = 20;

/// A capture: its conversations, each between two queue pairs, those with the most packets first.
pub struct Capture {
    packets: Vec<Captured>,
    pairings: Vec<Pairing>,
    copies: Copies,
}

impl Capture {
    /// Sorts packets to conversations. They are put in the order of time first, and copies from other places left out.
    pub fn new(mut packets: Vec<Captured>) -> Capture {
        packets.sort_by_key(|packet| packet.time_ns);
        let copies = copies::leave_out(&mut packets);
        let pairings = flows::conversations(&packets);
        Capture { packets, pairings, copies }
    }

    /// How many conversations there are.
    pub fn len(&self) -> usize {
        self.pairings.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pairings.is_empty()
    }

    /// The conversations, a line each, counted from 1.
    pub fn list(&self) -> Vec<String> {
        let width = self.pairings.iter().map(|pairing| between(pairing).chars().count()).max().unwrap_or(0);
        let line = |(i, pairing): (usize, &Pairing)| {
            let wrong = match diagnosis::diagnose(&self.packets, pairing).troubles.len() {
                0 => "nothing wrong".to_owned(),
                1 => "1 thing to look at".to_owned(),
                n => format!("{n} things to look at"),
            };
            format!("{:>3}  {:<width$}  {:>7} packets  {wrong}", i + 1, between(pairing), pairing.packets.len())
        };
        self.pairings.iter().enumerate().map(line).collect()
    }

    /// The ladder of conversation `which`, counted from 0; `None` if there are not so many.
    pub fn ladder(&self, name: &str, which: usize) -> Option<Ladder> {
        let pairing = self.pairings.get(which)?;
        let diagnosis = diagnosis::diagnose(&self.packets, pairing);
        let mut ladder = Ladder {
            name: name.into(),
            title: name.into(),
            about: self.about(which, pairing),
            ends: [end("A", pairing, 0), end("B", pairing, 1)],
            ..Ladder::default()
        };
        if diagnosis.troubles.is_empty() {
            ladder.about.push("Nothing went wrong, as far as a capture tells.".into());
        }
        let shown = shown(pairing.packets.len(), &diagnosis);
        if shown.len() < pairing.packets.len() {
            let (all, some) = (pairing.packets.len(), shown.len());
            ladder.about.push(format!(
                "Of {all} packets {some} are shown: the beginning, and what is around something to look at."
            ));
        }
        let start = pairing.packets.first().map_or(0, |first| self.packets[*first].time_ns);
        let mut before = 0;
        for index in &shown {
            let left_out = index - before;
            before = index + 1;
            self.step(&mut ladder, pairing, &diagnosis, (*index, left_out, start));
        }
        let place = |index: usize| shown.binary_search(&index).ok();
        ladder.findings =
            diagnosis.findings().into_iter().map(|(text, index)| Finding { text, step: place(index) }).collect();
        Some(ladder)
    }

    fn about(&self, which: usize, pairing: &Pairing) -> Vec<String> {
        let n = pairing.packets.len();
        let mut about = vec![format!("{n} RoCE v2 packets between {}, as a capture saw them.", between(pairing))];
        let Copies { interfaces, packets, times } = self.copies;
        if interfaces > 0 {
            about.push(format!("The file has them from {} places; these are from one.", interfaces + 1));
        }
        if packets > 0 {
            about.push(format!(
                "The file was captured at {times} places at once (tcpdump -i any, or captures merged into one): {packets} packets are copies of \
                 others. Each is shown once, where it was seen first."
            ));
        }
        if self.len() > 1 {
            let mut list = self.list();
            let more = list.len().saturating_sub(LISTED_MAX);
            list.truncate(LISTED_MAX);
            let which = which + 1;
            about.push(format!("Conversation {which} of {}; --conversation N shows another:", self.len()));
            about.extend(list.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")));
            if more > 0 {
                about.push(format!("and {more} more"));
            }
        }
        about
    }

    fn step(&self, ladder: &mut Ladder, pairing: &Pairing, diagnosis: &Diagnosis, at: (usize, usize, i128)) {
        let (index, left_out, start) = at;
        let captured = &self.packets[pairing.packets[index]];
        let from = usize::from(captured.src != pairing.ends[0]);
        let mut notes: Vec<&str> =
            diagnosis.troubles.iter().filter(|t| t.index == index).map(|t| t.text.as_str()).collect();
        let skipped = format!("{left_out} packets before this one are left out: there is nothing to say about them.");
        if left_out > 0 {
            notes.insert(0, &skipped);
        }
        let again = diagnosis.again.contains(&index);
        let (frame, sent) = (Some(captured.frame), captured.bytes.clone());
        ladder.packets.push(Packet { from, sent, fate: Fate::Captured, again, frame });
        ladder.steps.push(Step {
            at_ns: u64::try_from(captured.time_ns - start).unwrap_or(0),
            end: from,
            what: What::Captured(ladder.packets.len() - 1),
            effects: diagnosis
                .damaged
                .contains(&index)
                .then_some(Effect::Dropped("ICRC is wrong"))
                .into_iter()
                .collect(),
            note: (!notes.is_empty()).then(|| notes.join(" ")),
            states: [None, None],
        });
    }
}

fn end(name: &str, pairing: &Pairing, index: usize) -> End {
    End { name: name.into(), address: pairing.ends[index].to_string(), qpn: pairing.qps[index] }
}

fn between(pairing: &Pairing) -> String {
    let end = |i: usize| {
        let qp = pairing.qps[i].map_or("QP ?".to_owned(), |qpn| format!("QP {qpn}"));
        format!("{} {qp}", pairing.ends[i])
    };
    format!("{} and {}", end(0), end(1))
}

/// Which packets of a conversation are shown.
fn shown(all: usize, diagnosis: &Diagnosis) -> Vec<usize> {
    if all <= SHOWN_MAX {
        return (0..all).collect();
    }
    let mut keep = vec![false; all];
    keep[..4 * AROUND].fill(true);
    let mut left = SHOWN_MAX - 4 * AROUND;
    for trouble in &diagnosis.troubles {
        let (from, to) = (trouble.index.saturating_sub(AROUND), (trouble.index + AROUND).min(all));
        for kept in keep[from..to].iter_mut().filter(|kept| !**kept) {
            if left > 0 {
                *kept = true;
                left -= 1;
            }
        }
    }
    // Without anything to say, the beginning is as good as any part.
    if diagnosis.troubles.is_empty() {
        keep[..SHOWN_MAX].fill(true);
    }
    (0..all).filter(|index| keep[*index]).collect()
}

#[cfg(test)]
mod overtaken;
#[cfg(test)]
mod tests;
