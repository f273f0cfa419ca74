//! Captures are what tshark reads.

mod common;

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use common::{A, B, drain, numbered, send};
use xroce_port::fault::{Action, Fault, Rule};
use xroce_port::pcap::{Capture, Pcap};
use xroce_port::sim::{LinkModel, into_capture, pair};
use xroce_port::{Direction, Port, RxFrame};

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.pcapng", std::process::id()))
}

/// One line per packet with these fields, tab-separated; `None` with the reason printed where there is no tshark.
fn tshark(file: &Path, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(file).args(["-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            eprintln!("skipped: tshark is not installed");
            return None;
        }
        Err(error) => panic!("tshark: {error}"),
    };
    assert!(output.status.success(), "tshark refused the file: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("tshark writes text");
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

#[test]
fn tshark_reads_times_directions_interfaces_and_comments() {
    let file = scratch("two-ports");
    let (net, a, b) = pair(1);
    let capture = Capture::new(BufWriter::new(File::create(&file).expect("scratch file"))).expect("a new file");
    let a = Pcap::new(a, &capture, "left");
    let tap = a.tap();
    let mut a = Fault::new(a, 1).with_tap(tap);
    let mut b = Pcap::new(b, &capture, "right");
    net.set_link(a.get_ref().get_ref().id(), b.get_ref().id(), &LinkModel::with_delay_ns(7)).expect("sound");
    let faults = a.faults();
    faults.add(Rule::tx(Action::Drop).nth(2).named("lose the second")).expect("sound");
    faults.add(Rule::tx(Action::CorruptBits(1)).nth(3)).expect("sound");
    faults.add(Rule::rx(Action::Drop).nth(1)).expect("sound");

    net.advance_to(1_000_000_005);
    for number in 1..=3 {
        send(&mut a, &numbered(B, A, number, 60 + number as usize));
    }
    net.advance_to(1_000_000_012);
    assert_eq!(drain(&mut b).len(), 2);
    send(&mut b, &numbered(A, B, 4, 1000));
    send(&mut b, &numbered(A, B, 5, 1001));
    assert_eq!(drain(&mut a).len(), 1);
    drop((a, b));
    assert_eq!((capture.status().packets, capture.status().error), (9, None));

    let fields = [
        "frame.time_epoch",
        "frame.interface_name",
        "frame.packet_flags_direction",
        "frame.len",
        "eth.src",
        "frame.comment",
    ];
    let Some(packets) = tshark(&file, &fields) else { return };
    let line = |i: usize| packets[i].iter().map(String::as_str).collect::<Vec<_>>();
    let rest = |i: usize| line(i)[..4].to_vec();
    assert_eq!(packets.len(), 9);
    assert_eq!(line(0), ["1.000000005", "left", "0x00000002", "61", "02:00:00:00:00:01", ""]);
    assert_eq!(rest(1), ["1.000000005", "left", "0x00000002", "62"]);
    assert_eq!(line(1)[5], "fault: Drop by rule \"lose the second\"");
    assert_eq!(rest(2), ["1.000000005", "left", "0x00000002", "63"]);
    assert_eq!(line(2)[5], "fault: CorruptBits(1) by rule \"tx CorruptBits(1)\"");
    assert_eq!(rest(3), ["1.000000012", "right", "0x00000001", "61"]);
    assert_eq!(rest(4), ["1.000000012", "right", "0x00000001", "63"]);
    assert_eq!(rest(5), ["1.000000012", "right", "0x00000002", "1000"]);
    assert_eq!(rest(7), ["1.000000012", "left", "0x00000001", "1000"]);
    assert_eq!(line(7)[5], "fault: Drop by rule \"rx Drop\"");
    assert_eq!(line(8)[5], "");
    fs::remove_file(&file).expect("scratch file");
}

#[test]
fn what_a_capture_begins_with_waits_in_no_buffer() {
    let file = scratch("begun");
    let on_disk = || fs::metadata(&file).expect("a file").len();
    let sink = BufWriter::with_capacity(1 << 16, File::create(&file).expect("scratch file"));
    let capture = Capture::new(sink).expect("a new file");
    let mut begun = vec![on_disk()];
    for name in ["left", "right"] {
        capture.add_interface(name, None);
        begun.push(on_disk());
    }
    assert!(begun[0] > 0 && begun.is_sorted_by(|a, b| a < b), "bytes after each block: {begun:?}");
    assert_eq!(tshark(&file, &["frame.number"]).unwrap_or_default(), Vec::<Vec<String>>::new());
    fs::remove_file(&file).expect("scratch file");
}

#[test]
fn a_network_tells_a_capture_what_it_did() {
    let file = scratch("network");
    let (net, mut a, b) = pair(1);
    let capture = Capture::new(File::create(&file).expect("scratch file")).expect("a new file");
    net.observe(into_capture(&capture, "net"));
    send(&mut a, &numbered(B, A, 1, 64));
    net.advance_to(9);
    net.set_link(a.id(), b.id(), &LinkModel::with_loss(1.0)).expect("sound");
    send(&mut a, &numbered(B, A, 2, 65));
    assert_eq!(capture.flush().packets, 4);
    let fields = ["frame.time_epoch", "frame.packet_flags_direction", "frame.len", "frame.comment"];
    let Some(packets) = tshark(&file, &fields) else { return };
    let lost = "Lost(Random) on the way from node 0 to node 1";
    let want = [
        ["0.000000000", "0x00000002", "64", ""],
        ["0.000000000", "0x00000001", "64", ""],
        ["0.000000009", "0x00000002", "65", ""],
        ["0.000000009", "0x00000002", "65", lost],
    ];
    assert_eq!(packets, want);
    fs::remove_file(&file).expect("scratch file");
}

#[test]
fn captured_bytes_are_the_bytes_that_passed() {
    let file = scratch("bytes");
    let (_net, a, mut b) = pair(1);
    let mut a = Pcap::to_sink(a, File::create(&file).expect("scratch file"), "a").expect("a new file");
    let sent: Vec<Vec<u8>> = (0..40).map(|number| numbered(B, A, number, 60 + 97 * number as usize)).collect();
    for frame in &sent {
        send(&mut a, frame);
    }
    assert_eq!(drain(&mut b), sent);
    drop(a);
    let Some(packets) = tshark(&file, &["data.data"]) else { return };
    // Our ethertype has no dissector: all behind the Ethernet header is data.
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let want: Vec<Vec<String>> = sent.iter().map(|frame| vec![hex(&frame[14..])]).collect();
    assert_eq!(packets, want);
    fs::remove_file(&file).expect("scratch file");
}

/// A disk that is full after some bytes.
struct Full(usize);

impl io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failing_sink_ends_the_capture_and_not_the_traffic() {
    let (_net, a, mut b) = pair(1);
    let mut a = Pcap::to_sink(a, Full(400), "a").expect("room for the head");
    for number in 0..10 {
        send(&mut a, &numbered(B, A, number, 64));
    }
    assert_eq!(drain(&mut b).len(), 10);
    let status = a.capture().status();
    assert!(status.packets > 0 && status.lost > 0 && status.packets + status.lost == 10, "{status:?}");
    assert!(status.error.is_some());
    assert!(Pcap::to_sink(b, Full(3), "b").is_err());
    assert_eq!(a.counters().tx_frames, 10);
}

/// A sink that can be looked at.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Vec<u8>>>);

impl io::Write for Shelf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A packet of a capture.
#[derive(Debug, PartialEq, Eq)]
struct Captured {
    at_ns: u64,
    bytes: Vec<u8>,
    comment: String,
}

impl Shelf {
    /// The packets that were written, by the layout of their blocks (draft-ietf-opsawg-pcapng): for machines without tshark.
    fn packets(&self) -> Vec<Captured> {
        let all = self.0.lock().unwrap();
        let word = |at: usize| u32::from_le_bytes(all[at..at + 4].try_into().unwrap());
        let (mut at, mut packets) = (0, Vec::new());
        while at < all.len() {
            let total = word(at + 4) as usize;
            assert_eq!(word(at + total - 4) as usize, total, "the length stands at both ends");
            if word(at) == 6 {
                let len = word(at + 20) as usize;
                assert_eq!(word(at + 24) as usize, len);
                let (mut option, mut comment) = (at + 28 + len.next_multiple_of(4), String::new());
                while word(option) != 0 {
                    let (code, size) = (word(option) & 0xffff, (word(option) >> 16) as usize);
                    if code == 1 {
                        comment = String::from_utf8(all[option + 4..option + 4 + size].to_vec()).unwrap();
                    }
                    option += 4 + size.next_multiple_of(4);
                }
                let at_ns = u64::from(word(at + 12)) << 32 | u64::from(word(at + 16));
                packets.push(Captured { at_ns, bytes: all[at + 28..at + 28 + len].to_vec(), comment });
            }
            at += total;
        }
        packets
    }
}

#[test]
fn a_frame_in_two_pieces_is_captured_whole_at_any_time() {
    let shelf = Shelf::default();
    let capture = Capture::new(shelf.clone()).unwrap();
    let interface = capture.add_interface("a", None);
    // More nanoseconds than 32 bits hold.
    let at_ns = 0x17_0123_4567_89ab;
    capture.record(interface, Direction::Rx, at_ns, &RxFrame { head: &[1, 2, 3], tail: &[4, 5] }, "both");
    let whole = Captured { at_ns, bytes: vec![1, 2, 3, 4, 5], comment: "both".to_owned() };
    assert_eq!(shelf.packets(), [whole]);
}

#[test]
fn notes_stand_at_their_frames_in_whatever_order_they_were_made() {
    let shelf = Shelf::default();
    let (_net, mut a, b) = pair(1);
    let mut b = Pcap::to_sink(b, shelf.clone(), "b").unwrap();
    (0..4).for_each(|number| send(&mut a, &numbered(B, A, number, 64)));
    assert_eq!(b.rx_burst(4), 4);
    let tap = b.tap();
    for (i, text) in [(2, "third"), (0, "first"), (2, "again")] {
        tap.note_rx(i, text);
    }
    // Dropped with the burst still lent: it is captured all the same.
    drop(b);
    let comments: Vec<String> = shelf.packets().into_iter().map(|packet| packet.comment).collect();
    assert_eq!(comments, ["first", "", "third; again", ""]);
}
