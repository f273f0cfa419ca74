//! `xroce decode` from the file to the lines: any bytes are frames or an error, however they come out of a pipe.
//!
//! In: a capture file. Out: nothing. The command has no library; its reader and its two writers are built in here from
//! their own files.

use std::io::{self, Read};

#[allow(dead_code, reason = "the command uses more of them")]
#[path = "../../../stack/cli/src/commands/decode"]
mod decode {
    pub mod capture;
    pub mod json;
    pub mod link;
    pub mod packet;
    pub mod tally;
    pub mod text;
}

use decode::capture::{Capture, CaptureError};
use decode::json::{MalformedLine, PacketLine};
use decode::packet::Verdict;
use decode::tally::Tally;
use decode::text::Text;

/// Everything of a frame but the borrow.
type Seen = (u64, Option<i128>, u32, Vec<u8>, usize);

/// A pipe that gives a few bytes at a time.
struct Pipe<'a> {
    file: &'a [u8],
    step: usize,
}

impl Read for Pipe<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let len = to.len().min(self.step);
        self.file.read(&mut to[..len])
    }
}

/// Reads the file at once and in pieces, and writes what it holds both ways.
pub fn check(data: &[u8]) {
    let (frames, error) = read(data, usize::MAX);
    for step in [1, 7] {
        let (slow, slow_error) = read(data, step);
        assert_eq!(frames, slow);
        assert_eq!(error.as_ref().map(ToString::to_string), slow_error.map(|e| e.to_string()));
    }
    // A record has at least 12 bytes in either format.
    assert!(frames.len() <= data.len() / 12, "{} frames in {} bytes", frames.len(), data.len());
    lines(data);
}

fn read(file: &[u8], step: usize) -> (Vec<Seen>, Option<CaptureError>) {
    let mut frames: Vec<Seen> = Vec::new();
    let mut capture = match Capture::open(Pipe { file, step }) {
        Ok(capture) => capture,
        Err(error) => return (frames, Some(error)),
    };
    loop {
        match capture.next_frame() {
            Ok(Some(f)) => {
                assert!(f.original_len >= f.data.len(), "{f:?}");
                assert!(frames.last().is_none_or(|before| before.0 < f.number));
                frames.push((f.number, f.time_ns, f.link_type, f.data.to_vec(), f.original_len));
            }
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        }
    }
}

/// What the command prints of it.
fn lines(file: &[u8]) {
    let (mut tally, mut text, mut out) = (Tally::default(), Text::default(), Vec::new());
    let Ok(mut capture) = Capture::open(file) else { return };
    while let Ok(Some(frame)) = capture.next_frame() {
        let json = match tally.look(&frame) {
            Verdict::NotRoce => continue,
            Verdict::Malformed(ends, error) => {
                text.malformed(&mut out, &frame, &ends, &error).expect("a Vec takes it");
                serde_json::to_string(&MalformedLine::new(frame.number, &ends, &error))
            }
            Verdict::Packet(ends, packet) => {
                text.packet(&mut out, &frame, &ends, &packet).expect("a Vec takes it");
                serde_json::to_string(&PacketLine::new(frame.number, &ends, &packet))
            }
        };
        let json = json.expect("a line");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(value["frame"], frame.number);
    }
    text.summary(&mut out, &tally).expect("a Vec takes it");
    let printed = String::from_utf8(out).expect("text");
    assert!(!printed.chars().any(|c| c.is_control() && c != '\n'), "{printed:?}");
    assert_eq!(tally.frames, tally.packets + tally.malformed + tally.other);
    assert_eq!(tally.packets, tally.good + tally.bad + tally.cut);
}
