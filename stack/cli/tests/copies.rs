//! `xroce lab --from` a file in which each packet is twice, seen at two places: as `tcpdump -i any` writes it, and as captures are merged.

mod ends;

use std::fs;
use std::path::PathBuf;

use ends::xroce;

/// A packet of a capture: interface, nanoseconds, the bytes of the frame.
type Frame = (u32, u64, Vec<u8>);

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// What both ends of a scenario, or of another run, sent and received, from the capture that xroce itself wrote.
fn recorded(args: &[&str], file: &str) -> Vec<Frame> {
    let said = xroce(&[args, &["--pcap", file]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let all = fs::read(file).expect("a capture");
    let (mut at, mut frames) = (0, Vec::new());
    while at < all.len() {
        let (kind, len) = (u32_at(&all, at), u32_at(&all, at + 4) as usize);
        if kind == 6 {
            let time = u64::from(u32_at(&all, at + 12)) << 32 | u64::from(u32_at(&all, at + 16));
            frames.push((u32_at(&all, at + 8), time, all[at + 28..][..u32_at(&all, at + 20) as usize].to_vec()));
        }
        at += len;
    }
    frames.sort_by_key(|(_, time, _)| *time);
    frames
}

/// A classic pcap file with nanoseconds.
fn pcap(link_type: u32, frames: &[Frame]) -> Vec<u8> {
    let header = [0xA1B2_3C4D, 0x0004_0002, 0, 0, 262_144, link_type];
    let mut out: Vec<u8> = header.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    for (_, ns, bytes) in frames {
        let (seconds, len) = ((ns / 1_000_000_000) as u32, bytes.len() as u32);
        let words = [seconds, (ns % 1_000_000_000) as u32, len, len];
        out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        out.extend(bytes);
    }
    out
}

/// The same as pcapng, with one interface that has microseconds.
fn pcapng(link_type: u32, frames: &[Frame]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let padded = body.len().next_multiple_of(4);
        let len = (padded as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes(), &len, body, &vec![0; padded - body.len()][..], &len].concat()
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut out = block(0x0A0D_0D0A, &words(&[0x1A2B_3C4D, 1, !0, !0]));
    out.extend(block(1, &words(&[link_type, 0])));
    for (_, ns, bytes) in frames {
        let (us, len) = (ns / 1_000, bytes.len() as u32);
        let head = words(&[0, (us >> 32) as u32, us as u32, len, len]);
        out.extend(block(6, &[&head[..], bytes].concat()));
    }
    out
}

/// What `tcpdump -i any` makes of an Ethernet frame: Linux cooked, version 2, with the interface and the direction.
fn cooked((interface, time, frame): &Frame) -> Frame {
    // The lab's ends have the addresses 02:00:00:00:00:01 and :02; who sends it sees it leave.
    let leaves = u32::from(frame[11]) == interface + 1;
    let mut out = [&frame[12..14], &[0, 0], &(interface + 2).to_be_bytes()[..], &[0, 1]].concat();
    out.extend([if leaves { 4 } else { 0 }, 6]);
    // Behind a short address is whatever was there.
    out.extend([&frame[6..12], &(*time as u16).to_be_bytes(), &frame[14..]].concat());
    (*interface, *time, out)
}

fn scratch(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("copies-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a scratch directory");
    dir
}

/// The part of a text ladder that says what went wrong, and how many packets it has.
fn told(file: &std::path::Path) -> (String, usize) {
    let text = xroce(&["lab", "--from", file.to_str().expect("UTF-8"), "--text"]);
    assert_eq!(text.code, Some(0), "{text:?}");
    let wrong = text.out.lines().skip_while(|line| *line != "What went wrong").take_while(|line| !line.is_empty());
    let packets = text.out.matches('#').count();
    let told = text.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(told.matches("captured at 2 places at once").count(), 1, "{}", text.out);
    let wrong = wrong.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    (wrong, packets)
}

#[test]
fn a_packet_of_two_places_is_shown_once() {
    let dir = scratch("scenarios");
    let file = dir.join("both.pcapng");
    let path = file.to_str().expect("UTF-8");
    for (name, wrong, packets) in [
        ("go-back-n", "sequence NAK in frame 12. It was here, as frame 5: lost, damaged or overtaken behind", 13),
        ("read-split", "asks for the rest of a READ, from PSN 101 on", 13),
        ("psn-wrap", "B expects PSN 0 and says so", 10),
    ] {
        let frames = recorded(&["lab", name, "--text"], path);
        assert!(frames.len() > packets * 3 / 2, "{name}: {} frames", frames.len());
        let any: Vec<Frame> = frames.iter().map(cooked).collect();
        for (kind, bytes) in [
            ("merged.pcap", pcap(1, &frames)),
            ("merged.pcapng", pcapng(1, &frames)),
            ("any.pcap", pcap(276, &any)),
            ("any.pcapng", pcapng(276, &any)),
        ] {
            fs::write(dir.join(kind), bytes).expect("a scratch file");
            let (told, shown) = told(&dir.join(kind));
            assert!(told.contains(wrong) && !told.contains("twice"), "{name}, {kind}: {told}");
            assert_eq!(shown, packets, "{name}, {kind}");
        }
    }
    fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn timeouts_are_told_in_a_capture_of_two_places() {
    let dir = scratch("timeouts");
    let file = dir.join("both.pcapng");
    let path = file.to_str().expect("UTF-8");
    let any: Vec<Frame> = recorded(&["lab", "lost-packet", "--text"], path).iter().map(cooked).collect();
    fs::write(dir.join("any.pcap"), pcap(276, &any)).expect("a scratch file");
    let (told, _) = told(&dir.join("any.pcap"));
    assert!(told.contains("ms of silence, then A sends PSN 103 again") && !told.contains("twice"), "{told}");
    fs::remove_dir_all(dir).expect("ours");
}
