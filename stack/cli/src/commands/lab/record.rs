//! A scenario as a capture: what each end sent and received, with the scenario's own times.
//!
//! In: a ladder. Out: pcapng with an interface for each end; comments say what the network did to a packet and why an end dropped it.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use xroce_lab::Ladder;
use xroce_lab::ladder::{Effect, Fate, Step, What};
use xroce_port::pcap::Capture;
use xroce_port::{Direction, RxFrame};

/// The hardware address of an end.
fn mac(end: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, end as u8 + 1]
}

/// The packet with an Ethernet header in front, which a ladder leaves out.
fn framed(from: usize, packet: &[u8]) -> Vec<u8> {
    let ethertype: u16 = if packet.first().is_some_and(|byte| byte >> 4 == 6) { 0x86dd } else { 0x0800 };
    [&mac(1 - from), &mac(from), &ethertype.to_be_bytes()[..], packet].concat()
}

/// What the network does to a packet.
fn harm(fate: Fate) -> String {
    match fate {
        Fate::Delivered | Fate::Captured => String::new(),
        Fate::Lost => "fault: lost on the way".to_owned(),
        Fate::Duplicated => "fault: doubled on the way".to_owned(),
        Fate::Corrupted(bit) => format!("fault: bit {bit} flipped on the way"),
    }
}

/// Why the packet that a step is about changed nothing, if so.
fn dropped(step: &Step) -> Option<String> {
    step.effects.iter().find_map(|effect| match effect {
        Effect::Dropped(reason) => Some(format!("dropped: {reason}")),
        _ => None,
    })
}

/// Writes the packets of `ladder` to `file`.
pub fn write(file: &Path, ladder: &Ladder) -> io::Result<()> {
    let capture = Capture::new(BufWriter::new(File::create(file)?))?;
    let ends = [0, 1].map(|end| capture.add_interface(&ladder.ends[end].name, Some(mac(end))));
    for step in &ladder.steps {
        let (direction, number, comment) = match step.what {
            What::Sent(number) => (Direction::Tx, number, harm(ladder.packets[number].fate)),
            What::Arrived { packet, .. } => (Direction::Rx, packet, dropped(step).unwrap_or_default()),
            _ => continue,
        };
        let packet = &ladder.packets[number];
        let mut bytes = packet.sent.clone();
        if let (Direction::Rx, Fate::Corrupted(bit)) = (direction, packet.fate) {
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
        }
        let frame = framed(packet.from, &bytes);
        capture.record(ends[step.end], direction, step.at_ns, &RxFrame { head: &frame, tail: &[] }, &comment);
    }
    capture.flush().error.map_or(Ok(()), |why| Err(io::Error::other(why)))
}
