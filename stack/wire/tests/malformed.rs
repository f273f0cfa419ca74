//! Packets that are none: the field at fault and the reason, the text a user reads; and that no bytes at all bring us down.

mod common;

use common::*;
use proptest::prelude::*;
use xroce_wire::*;

fn send() -> Vec<u8> {
    build(&simple(Opcode::Rc(Operation::SendOnly)), b"hello")
}

fn send_v6() -> Vec<u8> {
    build(&over_ipv6(simple(Opcode::Rc(Operation::SendOnly))), b"hello")
}

fn error_of(packet: &[u8]) -> WireError {
    Packet::new_checked(packet, &[]).map(|p| p.opcode()).expect_err("the packet is malformed")
}

/// A change to a good packet, the field it spoils, and how the error reads.
#[track_caller]
fn spoiled(mut packet: Vec<u8>, change: impl FnOnce(&mut Vec<u8>), field: Field, text: &str) {
    change(&mut packet);
    let error = error_of(&packet);
    assert_eq!(error.field, field);
    assert_eq!(error.to_string(), text);
    // The decoder gives the same verdict.
    assert_eq!(dissect(&packet).packet.map(|p| p.opcode()), Err(error));
}

/// As [`spoiled`], with the IPv4 header checksum put right after the change.
#[track_caller]
fn spoiled_v4(change: impl FnOnce(&mut Vec<u8>), field: Field, text: &str) {
    let change = |p: &mut Vec<u8>| {
        change(p);
        fix_ipv4_checksum(p);
    };
    spoiled(send(), change, field, text);
}

#[test]
fn ip_version() {
    let text = "IP version: 0x5 is not supported, expected 4 or 6";
    spoiled(send(), |p| p[0] = 0x55, Field::IpVersion, text);
}

#[test]
fn ipv4_options() {
    let text = "IPv4 header length: 0x6 is not supported, expected 5 words: RoCE v2 packets carry no IP options";
    spoiled_v4(|p| p[0] = 0x46, Field::Ipv4HeaderLength, text);
    assert_eq!(error_of(&[0x44; 64]).field, Field::Ipv4HeaderLength);
}

#[test]
// rule: wire.ip
fn ipv4_fragments() {
    let first = "IPv4 fragment field: 0x2000 is not supported, expected no fragment";
    spoiled_v4(|p| p[6] = 0x20, Field::Ipv4Fragment, first);
    let later = "IPv4 fragment field: 0x4001 is not supported, expected no fragment";
    spoiled_v4(|p| p[7] = 1, Field::Ipv4Fragment, later);
}

#[test]
fn ipv4_protocol() {
    spoiled_v4(|p| p[9] = 6, Field::Ipv4Protocol, "IPv4 protocol: 0x6 is not supported, expected 17 (UDP)");
}

#[test]
// rule: wire.ip
fn ipv4_checksum() {
    let right = Ipv4::new_unchecked(&send()[..]).checksum();
    let text = format!("IPv4 header checksum: {:#06x} is wrong, {right:#06x} would be right", right ^ 1);
    spoiled(send(), |p| p[11] ^= 1, Field::Ipv4Checksum, &text);
}

#[test]
fn every_bit_flipped_in_an_ipv4_header_is_noticed() {
    for bit in 0..160 {
        let mut packet = send();
        packet[bit / 8] ^= 1 << (bit % 8);
        assert!(Packet::new_checked(&packet, &[]).is_err(), "bit {bit}");
    }
}

#[test]
fn ip_lengths_below_the_smallest_packet() {
    let text = "IPv4 total length: 43 is shorter than IP, UDP, BTH and ICRC (44)";
    spoiled_v4(|p| p[3] = 43, Field::Ipv4TotalLength, text);
    spoiled_v4(|p| p[3] = 0, Field::Ipv4TotalLength, &text.replace("43", "0"));
    let text = "IPv6 payload length: 23 is shorter than UDP, BTH and ICRC (24)";
    spoiled(send_v6(), |p| p[5] = 23, Field::Ipv6PayloadLength, text);
}

/// A packet cut short on its way. A decoder takes the same for a truncated capture.
#[test]
fn ip_lengths_beyond_the_bytes() {
    let (v4, v6) = (send(), send_v6());
    let error = error_of(&v4[..v4.len() - 1]);
    assert_eq!(error.to_string(), "IPv4 total length: 52 is longer than the bytes that arrived (51)");
    let error = error_of(&v6[..v6.len() - 1]);
    assert_eq!(error.to_string(), "IPv6 payload length: 32 is longer than the bytes that arrived behind it (31)");
    assert_eq!(Packet::new_checked(&v6[..60], &v6[60..71]).unwrap_err(), error);
}

#[test]
fn ipv6_extension_headers() {
    // Hop-by-hop options, routing, fragment, destination options.
    for next in [0u8, 43, 44, 60] {
        let text = format!(
            "IPv6 next header: {next:#x} is not supported, expected 17 (UDP): RoCE v2 packets carry no extension headers"
        );
        spoiled(send_v6(), |p| p[6] = next, Field::Ipv6NextHeader, &text);
    }
}

#[test]
fn ipv4_mapped_addresses_do_not_come_by_ipv6() {
    let mapped = Gid::from_ipv4([192, 0, 2, 1].into()).0;
    let text = "IPv6 address: IPv4-mapped, which goes by IPv4 on the wire";
    spoiled(send_v6(), |p| p[8..24].copy_from_slice(&mapped), Field::Ipv6Address, text);
    spoiled(send_v6(), |p| p[24..40].copy_from_slice(&mapped), Field::Ipv6Address, text);
}

#[test]
// rule: wire.udp
fn udp_port_and_length() {
    let text = "UDP destination port: 0x12b6 is not supported, expected 4791";
    spoiled(send(), |p| p[23] = 0xB6, Field::UdpDstPort, text);
    let text = "UDP length: 31 differs from what the IP header leaves (32)";
    spoiled(send(), |p| p[25] = 31, Field::UdpLength, text);
    let text = "UDP length: 33 differs from what the IP header leaves (32)";
    spoiled(send_v6(), |p| p[45] = 33, Field::UdpLength, text);
}

#[test]
fn bth_version_and_opcode() {
    spoiled(send(), |p| p[29] |= 1, Field::BthVersion, "BTH transport version: 0x1 is not supported, expected 0");
    let text = "BTH opcode: 0x15 is not supported, expected an opcode of RC, UC or UD, or CNP (0x81)";
    spoiled(send(), |p| p[28] = 0x15, Field::BthOpcode, text);
    assert_eq!(BthRepr::parse(&[0x15; 12]).unwrap_err().field, Field::BthOpcode);
}

#[test]
fn too_short_for_the_headers_of_its_opcode() {
    let text = "UDP length: 32 is shorter than UDP, BTH, extension headers and ICRC (40)";
    spoiled(send(), |p| p[28] = 0x0A, Field::UdpLength, text);
    for opcode in all_opcodes() {
        let headers = simple(opcode);
        let need = headers.packet_len(0);
        for len in 44..need {
            let mut packet = build(&headers, &[]);
            let mut ip = Ipv4::new_unchecked(&mut packet[..]);
            ip.set_total_len(len as u16);
            ip.fill_checksum();
            Udp::new_unchecked(&mut packet[20..]).set_length(len as u16 - 20);
            assert_eq!(error_of(&packet).field, Field::UdpLength, "{opcode} in {len} bytes");
        }
    }
}

#[test]
fn pad_beyond_the_payload() {
    let packet = build(&simple(Opcode::Rc(Operation::SendOnly)), &[]);
    let text = "BTH pad count: 3 is longer than the bytes before the ICRC (0)";
    spoiled(packet, |p| p[29] |= 0x30, Field::BthPad, text);
}

#[test]
fn payload_where_there_is_none() {
    for opcode in all_opcodes() {
        let packet = build(&simple(opcode), &[1, 2, 3, 4]);
        let result = Packet::new_checked(&packet, &[]);
        if opcode.payload_rule() == PayloadRule::Empty {
            let error = result.unwrap_err();
            assert_eq!(error, WireError { field: Field::Payload, reason: Reason::NotAllowed { len: 4 } }, "{opcode}");
            assert_eq!(error.to_string(), "payload: 4 bytes follow the headers of an opcode that carries none");
        } else {
            assert_eq!(result.unwrap().payload_len(), 4, "{opcode}");
        }
    }
}

/// What a responder has to answer with a NAK must get as far as the responder.
#[test]
fn what_the_transport_judges_is_let_through() {
    // FIRST and MIDDLE of a size that is no path MTU, LAST without payload, an ATOMIC WRITE of 4 bytes.
    for (operation, len) in [
        (Operation::SendFirst, 5),
        (Operation::WriteMiddle, 0),
        (Operation::SendLast, 0),
        (Operation::WriteOnly, 5000),
        (Operation::AtomicWrite, 4),
    ] {
        let payload = vec![1; len];
        let packet = build(&simple(Opcode::Rc(operation)), &payload);
        let packet = Packet::new_checked(&packet, &[]).unwrap();
        assert_eq!(packet.payload_len(), len);
    }
    // A pad count that does not match: "hello" and three bytes of pad, called one.
    let mut packet = send();
    packet[29] = packet[29] & !0x30 | 0x10;
    let packet = Packet::new_checked(&packet, &[]).unwrap();
    assert_eq!(packet.payload().0, b"hello\0\0");
    assert!(packet.pad_is_right(), "payload and pad still fill whole words");
    // A length that is no multiple of four.
    let mut packet = build(&simple(Opcode::Rc(Operation::SendOnly)), b"hell");
    packet.insert(44, b'o');
    let mut ip = Ipv4::new_unchecked(&mut packet[..]);
    ip.set_total_len(49);
    ip.fill_checksum();
    Udp::new_unchecked(&mut packet[20..]).set_length(29);
    let packet = Packet::new_checked(&packet, &[]).unwrap();
    assert_eq!(packet.payload().0, b"hello");
    assert!(!packet.pad_is_right());
}

#[test]
fn ether_types() {
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[0x08, 0x06]);
    let error = Link::parse_ip(&frame).unwrap_err();
    let text =
        "EtherType: 0x806 is not supported, expected 0x0800 (IPv4) or 0x86dd (IPv6), behind at most two VLAN tags";
    assert_eq!(error.to_string(), text);
    assert_eq!(Link::parse(&frame).unwrap().ethertype, EtherType::ARP);
    for at in [12, 16, 20] {
        frame[at..at + 2].copy_from_slice(&[0x81, 0x00]);
    }
    assert_eq!(
        Link::parse_ip(&frame).unwrap_err().reason,
        Reason::Unsupported { value: 0x8100, accepted: "0x0800 (IPv4) or 0x86dd (IPv6), behind at most two VLAN tags" }
    );
    assert_eq!(Link::parse(&frame[..17]).unwrap_err().to_string(), "VLAN tag: only 3 of 4 bytes are there");
}

#[test]
fn headers_beyond_the_first_piece() {
    let packet = build(&simple(Opcode::Rc(Operation::WriteOnly)), b"payload");
    let headers = 28 + 12 + 16;
    for cut in 20..packet.len() {
        let (head, tail) = packet.split_at(cut);
        let result = Packet::new_checked(head, tail);
        if cut < headers {
            assert_eq!(result.unwrap_err().field, Field::Headers, "cut at {cut}");
        } else {
            assert!(result.unwrap().icrc_ok(), "cut at {cut}");
        }
    }
    let error = Packet::new_checked(&packet[..50], &packet[50..]).unwrap_err();
    assert_eq!(error.to_string(), "headers in the first piece: only 50 of 56 bytes are there");
}

#[test]
fn truncated_captures() {
    let headers = simple(Opcode::Rc(Operation::WriteOnly));
    let payload: Vec<u8> = (0..101).collect();
    let bytes = build(&headers, &payload);
    for captured in 0..=bytes.len() {
        let result = Packet::new_truncated(&bytes[..captured]);
        if captured < headers.header_len() {
            assert!(result.is_err(), "{captured} bytes");
            continue;
        }
        let packet = result.unwrap();
        let whole = captured == bytes.len();
        assert_eq!(packet.missing(), bytes.len() - captured);
        assert_eq!(packet.icrc(), whole.then_some(true));
        assert_eq!(packet.icrc_bytes().is_some(), whole);
        assert_eq!(packet.icrc_ok(), whole);
        assert_eq!(packet.ip_len(), bytes.len());
        assert_eq!(packet.payload_len(), payload.len());
        assert_eq!(packet.reth(), headers.reth);
        let seen = payload.len().min(captured - headers.header_len());
        assert_eq!(packet.payload(), (&payload[..seen], &[][..]));
        // From the wire, the same bytes are an error.
        assert_eq!(Packet::new_checked(&bytes[..captured], &[]).is_ok(), whole);
    }
    let mut bad = bytes.clone();
    *bad.last_mut().unwrap() ^= 1;
    assert_eq!(Packet::new_truncated(&bad).unwrap().icrc(), Some(false));
    bad.extend([0; 9]);
    assert_eq!(Packet::new_truncated(&bad).unwrap().missing(), 0);
}

#[test]
fn dissection_reads_as_far_as_the_bytes_go() {
    let headers = simple(Opcode::Rc(Operation::SendOnly));
    let mut bytes = build(&headers, b"hello");
    for len in 0..bytes.len() {
        let seen = dissect(&bytes[..len]);
        assert_eq!(seen.ip, (len >= 20).then_some(headers.ip));
        assert_eq!(seen.udp.is_some(), len >= 28);
        assert_eq!(seen.bth.map(|b| b.psn()), (len >= 40).then_some(headers.bth.psn));
        assert_eq!(seen.packet.is_ok(), len >= 40);
    }
    // A broken field does not hide the others.
    bytes[11] ^= 1;
    bytes[28] = 0x1F;
    let seen = dissect(&bytes);
    assert_eq!(seen.packet.unwrap_err().field, Field::Ipv4Checksum);
    assert_eq!(seen.bth.unwrap().opcode_byte(), 0x1F);
    assert_eq!(seen.udp.unwrap().src_port, 0xC123);
    // Another UDP port is not taken for RoCE.
    bytes[23] ^= 1;
    assert!(dissect(&bytes).bth.is_none() && dissect(&bytes).udp.is_some());
    // Behind IP options UDP is still found, behind another protocol it is not.
    let mut options = bytes.clone();
    options[0] = 0x46;
    options.splice(20..20, [1; 4]);
    assert_eq!(dissect(&options).udp.unwrap().src_port, 0xC123);
    options[9] = 6;
    assert!(dissect(&options).udp.is_none());
    let v6 = send_v6();
    assert_eq!(dissect(&v6).ip.unwrap().src, "2001:db8::1".parse().unwrap());
    assert!(dissect(&v6).packet.unwrap().icrc_ok());
}

/// Calls everything that reads on a packet; none of it may panic.
fn touch(packet: &Packet<'_>) {
    let headers = Headers::parse(packet);
    assert_eq!(headers.bth.opcode, packet.opcode());
    let (first, second) = packet.payload();
    assert!(first.len() + second.len() <= packet.payload_len());
    assert!(first.len() + second.len() + packet.missing() >= packet.payload_len());
    let _ = (packet.icrc_ok(), packet.icrc(), packet.icrc_bytes(), packet.pad_is_right(), packet.feth());
}

fn read_all(bytes: &[u8], cut: usize) {
    let (head, tail) = bytes.split_at(cut.min(bytes.len()));
    if let Ok(packet) = Packet::new_checked(head, tail) {
        touch(&packet);
        assert_eq!(packet.missing(), 0);
    }
    if let Ok(packet) = dissect(bytes).packet {
        touch(&packet);
    }
    if let Ok(link) = Link::parse(bytes) {
        let _ = dissect(&bytes[link.header_len()..]);
    }
    let _ = (Ipv4Repr::parse(bytes), Ipv6Repr::parse(bytes), UdpRepr::parse(bytes), BthRepr::parse(bytes));
    let _ = (RethRepr::parse(bytes), AethRepr::parse(bytes), AtomicEthRepr::parse(bytes), AtomicAckRepr::parse(bytes));
    let _ = (ImmData::parse(bytes), Rkey::parse_ieth(bytes), DethRepr::parse(bytes), FethRepr::parse(bytes));
    let _ = (EthernetRepr::parse(bytes), VlanRepr::parse(bytes));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    // rule: wire.total
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
        read_all(&bytes, cut);
    }

    /// Bytes that look like a packet, changed in a few places, get deeper than noise does.
    #[test]
    // rule: wire.total
    fn nearly_good_bytes_never_panic(
        (headers, payload) in packet(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        len: prop::sample::Index,
        cut: prop::sample::Index,
        fix: bool,
    ) {
        let mut bytes = build(&headers, &payload);
        for (at, value) in changes {
            let at = at.index(bytes.len().min(90));
            bytes[at] = value;
        }
        if fix && bytes[0] >> 4 == 4 {
            fix_ipv4_checksum(&mut bytes);
        }
        read_all(&bytes, cut.index(bytes.len() + 1));
        bytes.truncate(len.index(bytes.len() + 1));
        read_all(&bytes, cut.index(bytes.len() + 1));
    }
}
