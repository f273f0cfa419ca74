//! `xroce decode FILE [--json]`: the RoCE v2 packets of a capture, each with its ICRC checked.
//!
//! A capture enters (a file, or standard input as `-`), one line a packet leaves. Frames that are no RoCE v2 are passed
//! over. The outcome is failed if any packet is malformed or has a bad ICRC, or if the file is damaged; what lies before
//! the damage is still decoded.

pub mod capture;
mod json;
pub mod link;
pub mod packet;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use capture::{Capture, CaptureError, Frame};
use link::Inner;
use packet::Verdict;

use super::Outcome;

/// Decode the RoCE v2 packets of a capture file and check each ICRC.
///
/// Exit code 1 if a packet is malformed or has a bad ICRC, or if the file cannot be read to its end.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// pcap or pcapng file; `-` reads standard input
    file: PathBuf,
    /// One JSON object a line for each packet
    #[arg(long)]
    json: bool,
}

/// Why `decode` could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The file cannot be opened.
    #[error("{}: {source}", file.display())]
    Open {
        /// As given by the user.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file cannot be read to its end.
    #[error("{}: {source}", file.display())]
    Capture {
        /// As given by the user.
        file: PathBuf,
        /// What is wrong with it.
        source: CaptureError,
    },
    /// Nothing in the file lies on a link layer we know.
    #[error("{}: link type {link_type} is not supported; supported are {supported}", file.display(), supported = link::SUPPORTED)]
    LinkType {
        /// As given by the user.
        file: PathBuf,
        /// LINKTYPE value.
        link_type: u32,
    },
    /// The output cannot be written.
    #[error("output: {0}")]
    Write(#[from] io::Error),
}

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
    unknown_links: BTreeSet<u32>,
    /// Frames on them.
    on_unknown_links: u64,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome, DecodeError> {
    let stdout = io::stdout().lock();
    let done = if args.file == Path::new("-") {
        // Line by line, since a capture may be running at the other end of the pipe.
        decode(args, io::stdin().lock(), stdout)
    } else {
        let file = File::open(&args.file).map_err(|source| DecodeError::Open { file: args.file.clone(), source })?;
        decode(args, file, BufWriter::with_capacity(64 << 10, stdout))
    };
    match done {
        // Who reads our output has seen enough.
        Err(DecodeError::Write(e)) if e.kind() == io::ErrorKind::BrokenPipe => Ok(Outcome::Done),
        other => other,
    }
}

fn decode(args: &Args, input: impl Read, mut out: impl Write) -> Result<Outcome, DecodeError> {
    let mut tally = Tally::default();
    let mut text = text::Text::default();
    let ended = each_frame(input, |frame| {
        tally.frames += 1;
        let verdict = look(&frame, &mut tally);
        match (&verdict, args.json) {
            (Verdict::NotRoce, _) => Ok(()),
            (Verdict::Malformed(ends, e), true) => line(&mut out, &json::MalformedLine::new(frame.number, ends, e)),
            (Verdict::Malformed(ends, e), false) => text.malformed(&mut out, &frame, ends, e),
            (Verdict::Packet(ends, packet), true) => line(&mut out, &json::PacketLine::new(frame.number, ends, packet)),
            (Verdict::Packet(ends, packet), false) => text.packet(&mut out, &frame, ends, packet),
        }
    });
    if let Err(Ended::Output(e)) = ended {
        return Err(e.into());
    }
    if !args.json && (ended.is_ok() || tally.frames > 0) {
        text.summary(&mut out, &tally)?;
    }
    out.flush()?;
    if let Err(Ended::Capture(source)) = ended {
        return Err(DecodeError::Capture { file: args.file.clone(), source });
    }
    links(args, &tally)?;
    Ok(if tally.bad + tally.malformed > 0 { Outcome::Failed } else { Outcome::Done })
}

/// Says which link types were not understood; an error if that was all there was.
fn links(args: &Args, tally: &Tally) -> Result<(), DecodeError> {
    match tally.unknown_links.first() {
        Some(&link_type) if tally.on_unknown_links == tally.frames => {
            Err(DecodeError::LinkType { file: args.file.clone(), link_type })
        }
        Some(_) => {
            let links: Vec<String> = tally.unknown_links.iter().map(u32::to_string).collect();
            let (count, links) = (tally.on_unknown_links, links.join(", "));
            eprintln!("xroce decode: {count} frames passed over: link type {links} is not supported");
            Ok(())
        }
        None => Ok(()),
    }
}

enum Ended {
    Output(io::Error),
    Capture(CaptureError),
}

fn each_frame(input: impl Read, mut act: impl FnMut(Frame<'_>) -> io::Result<()>) -> Result<(), Ended> {
    let mut capture = Capture::open(input).map_err(Ended::Capture)?;
    while let Some(frame) = capture.next_frame().map_err(Ended::Capture)? {
        act(frame).map_err(Ended::Output)?;
    }
    Ok(())
}

/// Decodes one frame and counts it.
fn look(frame: &Frame<'_>, tally: &mut Tally) -> Verdict {
    let verdict = match link::inner(frame.link_type, frame.data) {
        Inner::Ip(at) => packet::decode(&frame.data[at..], frame.original_len - at),
        Inner::Other => Verdict::NotRoce,
        Inner::UnknownLink => {
            tally.unknown_links.insert(frame.link_type);
            tally.on_unknown_links += 1;
            Verdict::NotRoce
        }
    };
    match &verdict {
        Verdict::NotRoce => tally.other += 1,
        Verdict::Malformed(..) => tally.malformed += 1,
        Verdict::Packet(_, packet) => {
            tally.packets += 1;
            match packet.icrc_ok {
                Some(true) => tally.good += 1,
                Some(false) => tally.bad += 1,
                None => tally.cut += 1,
            }
        }
    }
    verdict
}

fn line(out: &mut impl Write, object: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    out.write_all(b"\n")
}
