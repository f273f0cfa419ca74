//! `--from` a capture: the RoCE v2 packets of a pcap or pcapng file enter, a ladder leaves.
//!
//! A capture sees each packet once, and may hold more than one conversation: the ladder is that of the two addresses with the
//! most packets. Nobody knows the state of the queue pairs.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use xroce_lab::Ladder;
use xroce_lab::capture::{Captured, ladder as of_packets};

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
}

/// Reads the file.
pub fn ladder(file: &Path) -> Result<Ladder, FromError> {
    let mut packets = Vec::new();
    let mut capture = Capture::open(File::open(file)?)?;
    while let Some(frame) = capture.next_frame()? {
        let Inner::Ip(at) = link::inner(frame.link_type, frame.data) else { continue };
        let bytes = &frame.data[at..];
        let ends = match packet::decode(bytes, frame.original_len - at) {
            Verdict::NotRoce => continue,
            Verdict::Malformed(ends, _) | Verdict::Packet(ends, _) => ends,
        };
        packets.push(captured(frame.time_ns, ends.src, ends.dst, bytes));
    }
    let name = file.file_stem().map_or("capture".into(), |stem| stem.to_string_lossy().into_owned());
    of_packets(&name, packets).ok_or(FromError::Empty)
}

fn captured(time_ns: Option<i128>, src: IpAddr, dst: IpAddr, bytes: &[u8]) -> Captured {
    Captured { time_ns: time_ns.unwrap_or(0), src, dst, bytes: bytes.to_vec() }
}
