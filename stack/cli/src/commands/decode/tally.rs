//! What a capture holds: frames enter, each is decoded and counted.

use std::collections::BTreeSet;

use super::capture::Frame;
use super::link::{self, Inner};
use super::packet::{self, Verdict};

/// What was seen.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Frames in the file.
    pub frames: u64,
    /// RoCE v2 packets that are not malformed.
    pub packets: u64,
    /// Of those, with the right ICRC.
    pub good: u64,
    /// Of those, with a wrong one.
    pub bad: u64,
    /// Of those, cut short by the capture.
    pub cut: u64,
    /// Malformed RoCE v2 packets.
    pub malformed: u64,
    /// All other frames.
    pub other: u64,
    /// Link types that are not supported.
    pub unknown_links: BTreeSet<u32>,
    /// Frames on them.
    pub on_unknown_links: u64,
}

impl Tally {
    /// Decodes one frame and counts it.
    pub fn look(&mut self, frame: &Frame<'_>) -> Verdict {
        self.frames += 1;
        let verdict = match link::inner(frame.link_type, frame.data) {
            Inner::Ip(at) => packet::decode(&frame.data[at..], frame.original_len - at),
            Inner::Other => Verdict::NotRoce,
            Inner::UnknownLink => {
                self.unknown_links.insert(frame.link_type);
                self.on_unknown_links += 1;
                Verdict::NotRoce
            }
        };
        match &verdict {
            Verdict::NotRoce => self.other += 1,
            Verdict::Malformed(..) => self.malformed += 1,
            Verdict::Packet(_, packet) => {
                self.packets += 1;
                match packet.icrc_ok {
                    Some(true) => self.good += 1,
                    Some(false) => self.bad += 1,
                    None => self.cut += 1,
                }
            }
        }
        verdict
    }
}
