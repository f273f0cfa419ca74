//! `--from` a capture: the RoCE v2 packets of a pcap or pcapng file enter, a ladder leaves.
//!
//! A capture sees each packet once, and may hold more than one conversation: the ladder is that of one, by default of the two queue
//! pairs with the most packets. Nobody knows the state of the queue pairs.

use std::fs::File;
use std::io;
use std::path::Path;

use xroce_lab::Ladder;
use xroce_lab::capture::{Capture as Conversations, Captured};

use crate::commands::decode::capture::{Capture, CaptureError};
use crate::commands::decode::link::{self, Inner};
use crate::commands::decode::packet::{self, Verdict};

/// Why there is no ladder of a capture.
#[derive(Debug, thiserror::Error)]
pub enum FromError {
    /// The file cannot be opened.
    #[error("{0}")]
    Open(#[from] io::Error),
    /// The file cannot be read to its end.
    #[error("{0}")]
    Capture(#[from] CaptureError),
    /// There is nothing to show.
    #[error("no RoCE v2 packet in it (UDP port 4791 on Ethernet, Linux cooked or raw IP)")]
    Empty,
    /// There are not so many.
    #[error("there is no conversation {0}; there are:\n{1}")]
    NoSuch(usize, String),
}

/// Reads the file, and draws conversation `which` of it, counted from 1.
pub fn ladder(file: &Path, which: usize) -> Result<Ladder, FromError> {
    let mut packets = Vec::new();
    let mut capture = Capture::open(File::open(file)?)?;
    let mut cut = None;
    loop {
        let frame = match capture.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            // Who captured was killed, say: what there is can be shown all the same.
            Err(e) if !packets.is_empty() => {
                cut = Some(e.to_string());
                break;
            }
            Err(e) => return Err(e.into()),
        };
        let Inner::Ip(at) = link::inner(frame.link_type, frame.data) else { continue };
        let bytes = &frame.data[at..];
        let ends = match packet::decode(bytes, frame.original_len - at) {
            Verdict::NotRoce => continue,
            Verdict::Malformed(ends, _) | Verdict::Packet(ends, _) => ends,
        };
        packets.push(Captured {
            frame: frame.number,
            interface: frame.interface,
            time_ns: frame.time_ns.unwrap_or(0),
            src: ends.src,
            dst: ends.dst,
            link: link::place(frame.link_type, &frame.data[..at]).to_vec(),
            bytes: bytes.to_vec(),
        });
    }
    let name = file.file_stem().map_or("capture".into(), |stem| stem.to_string_lossy().into_owned());
    let conversations = Conversations::new(packets);
    if conversations.is_empty() {
        return Err(FromError::Empty);
    }
    let mut ladder = which.checked_sub(1).and_then(|index| conversations.ladder(&name, index));
    if let (Some(ladder), Some(cut)) = (&mut ladder, cut) {
        ladder.about.push(format!("The file is damaged: {cut}."));
    }
    ladder.ok_or_else(|| FromError::NoSuch(which, conversations.list().join("\n")))
}
