//! Reader and decoder from the inside: file formats, packets cut at every length, arbitrary bytes.

use proptest::prelude::*;
use xroce_wire::{Field, HeaderSet, Opcode, Operation};

use super::capture::{Capture, CaptureError};
use super::each_frame;
use super::packet::{self, Decoded, Verdict};
use super::tally::Tally;

#[path = "../../../tests/captures/mod.rs"]
mod captures;

use captures::{Order, PcapNg, Record};

/// Everything of a frame but the borrow.
type Seen = (u64, Option<i128>, u32, Vec<u8>, usize);

/// All frames, and the error at the end if there is one.
fn read(file: &[u8]) -> (Vec<Seen>, Option<CaptureError>) {
    // One byte at a time, as the slowest pipe would bring it.
    struct Slow<'a>(&'a [u8]);
    impl std::io::Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let len = to.len().min(1);
            std::io::Read::read(&mut self.0, &mut to[..len])
        }
    }
    let mut frames = Vec::new();
    let mut capture = match Capture::open(Slow(file)) {
        Ok(capture) => capture,
        Err(e) => return (frames, Some(e)),
    };
    loop {
        match capture.next_frame() {
            Ok(Some(f)) => frames.push((f.number, f.time_ns, f.link_type, f.data.to_vec(), f.original_len)),
            Ok(None) => return (frames, None),
            Err(e) => return (frames, Some(e)),
        }
    }
}

fn record(len: usize) -> Record {
    Record::new((0..len).map(|i| i as u8).collect())
}

/// A record that claims megabytes and a pipe that brings bytes: no more room is made than for what comes.
#[test]
fn what_a_record_claims_is_not_cleared_with_every_read() {
    struct Trickle {
        file: Vec<u8>,
        widest: usize,
    }
    impl std::io::Read for &mut Trickle {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            self.widest = self.widest.max(to.len());
            let len = to.len().min(self.file.len()).min(1);
            to[..len].copy_from_slice(&self.file[..len]);
            self.file.drain(..len);
            Ok(len)
        }
    }
    let mut file = captures::pcap(Order::BOTH[0], false, 1, &[record(300)]);
    // Little or big endian, 12 MiB.
    file[24 + 8..24 + 12].copy_from_slice(&[0, 0xC0, 0xC0, 0]);
    let mut pipe = Trickle { file, widest: 0 };
    let mut capture = Capture::open(&mut pipe).expect("a pcap file");
    assert!(matches!(capture.next_frame(), Err(CaptureError::CutShort(1, 316))));
    drop(capture);
    assert!(pipe.widest <= 1 << 16, "{} bytes asked for at once", pipe.widest);
}

#[test]
fn pcap_in_both_orders_and_both_resolutions() {
    for order in Order::BOTH {
        for (nanoseconds, time) in [(false, 1_700_000_000_123_456_000), (true, 1_700_000_000_123_456_789)] {
            let records = [record(5), record(70).cut_to(61), record(0)];
            let (frames, error) = read(&captures::pcap(order, nanoseconds, 113, &records));
            assert!(error.is_none());
            let expected: Vec<Seen> = vec![
                (1, Some(time), 113, records[0].data.clone(), 5),
                (2, Some(time), 113, records[1].data.clone(), 70),
                (3, Some(time), 113, Vec::new(), 0),
            ];
            assert_eq!(frames, expected);
        }
    }
}

#[test]
fn upper_bits_of_the_pcap_link_type_tell_of_the_fcs_only() {
    let (frames, _) = read(&captures::pcap(Order::Big, false, 0x2400_0001, &[record(3)]));
    assert_eq!(frames[0].2, 1);
}

#[test]
fn pcapng_with_interfaces_sections_and_all_packet_blocks() {
    for order in Order::BOTH {
        let mut ng = PcapNg::new(order);
        ng.interface(1, 60, None).interface(276, 0, Some(9)).interface(101, 0, Some(0x80 | 10));
        ng.enhanced(1, 5_000_000_001, &record(7)).block(0x8000_0001, b"unknown blocks are skipped");
        ng.simple(&record(60)).simple(&record(90).cut_to(60));
        ng.enhanced(2, 1024 + 512, &record(9).cut_to(6)).old_packet(0, 2_000_001, &record(10));
        ng.block(9, b"MESSAGE=a journal entry has a number too\n");
        // Interfaces begin anew in each section, and so may the byte order.
        ng.section(if order == Order::Little { Order::Big } else { Order::Little });
        ng.interface(113, 0, Some(6)).enhanced(0, 1, &record(2));
        let (frames, error) = read(&ng.file);
        assert!(error.is_none(), "{error:?}");
        let expected: Vec<Seen> = vec![
            (1, Some(5_000_000_001), 276, record(7).data, 7),
            (2, None, 1, record(60).data, 60),
            (3, None, 1, record(60).data, 90),
            (4, Some(1_500_000_000), 101, record(6).data, 9),
            (5, Some(2_000_001_000), 1, record(10).data, 10),
            (7, Some(1_000), 113, record(2).data, 2),
        ];
        assert_eq!(frames, expected);
    }
}

#[test]
fn a_file_cut_anywhere_gives_the_frames_before_and_says_so() {
    let packets = [record(20), record(33)];
    let mut ng = PcapNg::new(Order::Big);
    ng.interface(1, 0, None);
    let ng_start = ng.file.len();
    ng.enhanced(0, 0, &packets[0]).enhanced(0, 0, &packets[1]);
    for (file, start) in [(captures::pcap(Order::Little, false, 1, &packets), 24), (ng.file, ng_start)] {
        let second = start + (file.len() - start - 13) / 2;
        for len in start + 1..file.len() {
            let (frames, error) = read(&file[..len]);
            assert!(frames.len() <= 1, "{len}");
            assert!(len < second || !frames.is_empty() || len < file.len() - 49, "{len}");
            // Between two records a cut cannot be seen.
            if let Some(error) = error {
                assert!(matches!(error, CaptureError::CutShort(..)), "{error}");
            } else {
                assert_eq!(frames.len(), 1);
            }
        }
    }
}

#[test]
fn what_is_no_capture_is_refused() {
    for bytes in [&b""[..], b"abc", b"#!/bin/sh\nexit 1\n", b"\x1f\x8b\x08\0\0\0\0\0"] {
        let (frames, error) = read(bytes);
        assert!(frames.is_empty() && matches!(error, Some(CaptureError::NotACapture)), "{bytes:?}: {error:?}");
    }
    let header = captures::pcap(Order::Big, false, 1, &[]);
    assert!(matches!(read(&header[..10]).1, Some(CaptureError::CutShort(..))));
}

#[test]
fn damage_is_named() {
    let good = record(20);
    let mut long = captures::pcap(Order::Little, false, 1, std::slice::from_ref(&good));
    long.extend([0xFF; 16]);
    assert!(matches!(read(&long), (frames, Some(CaptureError::TooLong(2, 0xFFFF_FFFF))) if frames.len() == 1));

    let damaged = |damage: fn(&mut PcapNg)| {
        let mut ng = PcapNg::new(Order::Little);
        ng.interface(1, 0, None).enhanced(0, 0, &record(20));
        damage(&mut ng);
        let (frames, error) = read(&ng.file);
        assert_eq!(frames.len(), 1);
        error.expect("an error").to_string()
    };
    let undescribed = damaged(|ng| _ = ng.enhanced(1, 0, &record(4)));
    assert!(undescribed.contains("not described"), "{undescribed}");
    // A captured length beyond the block.
    let outside = damaged(|ng| _ = ng.block(6, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0, 99, 0, 0, 0]));
    assert!(outside.contains("outside"), "{outside}");
    let odd = damaged(|ng| ng.file.extend([6, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert!(odd.contains("multiple of 4"), "{odd}");
    let huge = damaged(|ng| ng.file.extend([6, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0]));
    assert!(huge.contains("claims"), "{huge}");
    let huge_and_odd = damaged(|ng| ng.file.extend([6, 0, 0, 0, 1, 0, 0, 0x40, 0, 0, 0, 0]));
    assert!(huge_and_odd.contains("claims 1073741825"), "{huge_and_odd}");
    let old = damaged(|ng| _ = ng.block(2, &[0; 8]));
    assert!(old.contains("fixed fields"), "{old}");
}

fn decoded(ip: &[u8], original_len: usize) -> Decoded {
    match packet::decode(ip, original_len) {
        Verdict::Packet(_, packet) => *packet,
        other => panic!("{other:?}"),
    }
}

#[test]
fn cut_at_any_length_a_packet_keeps_what_was_captured() {
    for opcode in captures::all_opcodes() {
        for ipv6 in [false, true] {
            let headers = captures::headers(opcode, ipv6);
            let payload = captures::payload(opcode);
            let whole = captures::packet(&headers, &payload);
            let bth_at = headers.header_len() - opcode.headers().byte_len() - 12;
            for len in 0..whole.len() {
                let cut = &whole[..len];
                if len < bth_at - 4 {
                    assert!(matches!(packet::decode(cut, whole.len()), Verdict::NotRoce), "{opcode} {len}");
                    continue;
                }
                let packet = decoded(cut, whole.len());
                assert_eq!(packet.icrc_ok, None, "{opcode} {len}");
                let Some(seen) = packet.headers else {
                    assert!(len < bth_at + 12, "{opcode} {len}");
                    continue;
                };
                assert!(len >= bth_at + 12);
                assert_eq!((seen.bth.opcode, seen.bth.psn), (opcode, headers.bth.psn));
                assert_eq!(packet.payload_len, payload.len());
                // The 16 reserved bytes of a CNP are no field.
                let all = opcode == Opcode::Cnp || len >= headers.header_len();
                assert_eq!(seen.fit_opcode(), all, "{opcode} {len}");
                assert!(seen.aeth.is_none() || seen.aeth == headers.aeth);
                assert!(seen.atomic_ack.is_none() || seen.atomic_ack == headers.atomic_ack);
            }
            let packet = decoded(&whole, whole.len());
            assert_eq!((packet.icrc_ok, packet.payload_len), (Some(true), payload.len()), "{opcode}");
        }
    }
}

#[test]
fn only_the_trailer_of_the_link_layer_cut_off_leaves_the_icrc_known() {
    let whole = captures::packet_of(Opcode::Rc(Operation::Acknowledge), false);
    assert_eq!(decoded(&whole, whole.len() + 4).icrc_ok, Some(true));
}

#[test]
fn a_cut_packet_may_still_be_malformed() {
    let mut whole = captures::packet_of(Opcode::Rc(Operation::SendOnly), true);
    let original_len = whole.len();
    whole[48] = 0x1F;
    whole.truncate(60);
    assert!(matches!(packet::decode(&whole, original_len), Verdict::Malformed(_, e) if e.field == Field::BthOpcode));
    // Shorter on the wire than its own length field says: the cut does not excuse that.
    whole[48] = 0x04;
    assert!(matches!(packet::decode(&whole, 61), Verdict::Malformed(_, e) if e.field == Field::Ipv6PayloadLength));
}

#[test]
fn a_wrong_ipv4_checksum_is_told_but_not_held_against_the_packet() {
    let mut whole = captures::packet_of(Opcode::Uc(Operation::WriteOnly), false);
    whole[10] ^= 1;
    let packet = decoded(&whole, whole.len());
    assert!(packet.bad_ip_checksum);
    assert_eq!(packet.icrc_ok, Some(true), "the checksum is masked in the ICRC");
}

#[test]
fn ipv6_extension_headers_are_malformed_and_later_fragments_passed_over() {
    let whole = captures::packet_of(Opcode::Rc(Operation::SendOnly), true);
    let with = |kind: u8, extension: [u8; 8]| {
        let mut bytes = whole[..40].to_vec();
        bytes[6] = kind;
        bytes[5] += 8;
        bytes.extend(extension);
        bytes.extend(&whole[40..]);
        bytes
    };
    for kind in [0, 43, 60] {
        let bytes = with(kind, [17, 0, 1, 4, 0, 0, 0, 0]);
        assert!(
            matches!(packet::decode(&bytes, bytes.len()), Verdict::Malformed(_, e) if e.field == Field::Ipv6NextHeader),
            "{kind}"
        );
    }
    let first = with(44, [17, 0, 0, 1, 0, 0, 0, 7]);
    assert!(matches!(packet::decode(&first, first.len()), Verdict::Malformed(..)));
    let later = with(44, [17, 0, 0, 9, 0, 0, 0, 7]);
    assert!(matches!(packet::decode(&later, later.len()), Verdict::NotRoce));
}

/// Runs everything that reads bytes from outside.
fn run(file: &[u8]) -> Tally {
    let mut tally = Tally::default();
    let _ = each_frame(file, |frame| {
        tally.look(&frame);
        Ok(())
    });
    tally
}

/// A capture with packets of each kind, to be damaged.
fn sample(kind: u8) -> Vec<u8> {
    let packets: Vec<Record> = captures::all_opcodes()
        .into_iter()
        .filter(|o| o.headers() != HeaderSet::NONE)
        .map(|o| Record::new(captures::ethernet(&captures::packet_of(o, kind & 1 == 0))))
        .collect();
    match kind {
        0 | 1 => captures::pcap(Order::Little, kind == 0, 1, &packets),
        2 | 3 => captures::pcap(Order::Big, kind == 2, 1, &packets),
        _ => {
            let mut ng = PcapNg::new(if kind & 1 == 0 { Order::Little } else { Order::Big });
            ng.interface(1, 0, Some(9));
            for (i, packet) in packets.iter().enumerate() {
                match i % 3 {
                    0 => ng.enhanced(0, 7, packet),
                    1 => ng.simple(packet),
                    _ => ng.old_packet(0, 7, packet),
                };
            }
            ng.file
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), magic in 0u8..6) {
        let start: &[u8] = match magic {
            0 => &[],
            1 => &[0xD4, 0xC3, 0xB2, 0xA1],
            2 => &[0xA1, 0xB2, 0x3C, 0x4D],
            3 => &[0x34, 0xCD, 0xB2, 0xA1],
            4 => &[0x0A, 0x0D, 0x0D, 0x0A, 28, 0, 0, 0, 0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0],
            _ => &[0x0A, 0x0D, 0x0D, 0x0A, 0, 0, 0, 28, 0x1A, 0x2B, 0x3C, 0x4D, 0, 1, 0, 0],
        };
        run(&[start, &bytes].concat());
    }

    #[test]
    fn damaged_captures_never_panic(
        kind in 0u8..6,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        len in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut file = sample(kind);
        for (at, value) in changes {
            let at = at.index(file.len());
            file[at] = value;
        }
        if cut {
            file.truncate(len.index(file.len()));
        }
        let tally = run(&file);
        prop_assert_eq!(tally.frames, tally.packets + tally.malformed + tally.other);
        prop_assert_eq!(tally.packets, tally.good + tally.bad + tally.cut);
    }

    #[test]
    fn arbitrary_ip_packets_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        version in prop::sample::select(vec![0x45u8, 0x46, 0x60]),
        more in 0usize..200_000,
    ) {
        let mut bytes = bytes;
        if bytes.len() > 50 {
            bytes[0] = version;
            bytes[6] = if version == 0x60 { 17 } else { 0 };
            bytes[9] = 17;
            let udp = if version == 0x60 { 40 } else { usize::from(version & 0xF) * 4 };
            bytes[udp + 2..udp + 4].copy_from_slice(&4791u16.to_be_bytes());
        }
        let verdict = packet::decode(&bytes, bytes.len() + more);
        prop_assert!(bytes.len() <= 50 || !matches!(verdict, Verdict::NotRoce) || version != 0x60);
    }
}
