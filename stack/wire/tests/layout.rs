//! The layout of a packet: every bit once, with the value that the views read, and covered as the ICRC covers it.

mod common;

use common::{all_opcodes, build, over_ipv6, packet, simple};
use proptest::prelude::*;
use xroce_wire::*;

fn parts(packet: &[u8]) -> Vec<Part> {
    layout(&dissect(packet), packet).collect()
}

fn value(packet: &[u8], header: &str, name: &str) -> u64 {
    let part = *parts(packet).iter().find(|p| (p.header, p.name) == (header, name)).expect("a field of that name");
    part.value(packet).expect("a short field inside the packet")
}

/// Every bit of `packet` is in one part, in order.
fn assert_without_gaps(packet: &[u8]) {
    let mut at = 0;
    for part in parts(packet) {
        assert_eq!(part.at, at, "{} {}", part.header, part.name);
        assert!(part.bits > 0);
        at += part.bits;
    }
    assert_eq!(at, packet.len() * 8);
}

fn icrc(packet: &[u8]) -> [u8; 4] {
    let mut icrc = Icrc::begin(&packet[..packet.len() - 4]);
    icrc.update(&[]);
    icrc.finish()
}

#[test]
fn a_field_is_masked_if_and_only_if_its_bits_do_not_change_the_icrc() {
    for opcode in all_opcodes().into_iter().filter(|o| o.operation() != Some(Operation::Flush)) {
        for headers in [simple(opcode), over_ipv6(simple(opcode))] {
            let payload: &[u8] = if opcode.payload_rule() == PayloadRule::Empty { &[] } else { b"hello" };
            let packet = build(&headers, payload);
            assert_without_gaps(&packet);
            // The version says which bytes are masked, so it cannot be flipped alone.
            for part in parts(&packet).into_iter().filter(|p| p.cover != Cover::Icrc && p.name != "Version") {
                for bit in part.at..part.at + part.bits {
                    let mut bent = packet.clone();
                    bent[bit / 8] ^= 0x80 >> (bit % 8);
                    let changes = icrc(&bent) != icrc(&packet);
                    assert_eq!(changes, part.cover == Cover::Covered, "{opcode} {} {} {bit}", part.header, part.name);
                }
            }
        }
    }
}

#[test]
fn values_are_those_that_were_sent() {
    let packet = build(&simple(Opcode::Rc(Operation::CompareSwap)), &[]);
    for (header, name, expected) in [
        ("IPv4", "Version", 4),
        ("IPv4", "ECN", 2),
        ("IPv4", "DF", 1),
        ("IPv4", "TTL", 64),
        ("IPv4", "Destination", 0xC000_0202),
        ("UDP", "Source port", 0xC123),
        ("UDP", "Destination port", 4791),
        ("BTH", "OpCode", 0x13),
        ("BTH", "M", 1),
        ("BTH", "P_Key", 0xFFFF),
        ("BTH", "DestQP", 0x123),
        ("BTH", "A", 1),
        ("BTH", "PSN", 0xFF_FFFE),
        ("AtomicETH", "VA", 0x1000),
        ("AtomicETH", "R_Key", 0x2000),
        ("AtomicETH", "Swap or add", 3),
        ("AtomicETH", "Compare", 4),
    ] {
        assert_eq!(value(&packet, header, name), expected, "{header} {name}");
    }
    let flow =
        Headers { ip: IpRepr { flow_label: 0x1_2345, ..over_ipv6(simple(Opcode::Cnp)).ip }, ..simple(Opcode::Cnp) };
    assert_eq!(value(&build(&flow, &[]), "IPv6", "Flow label"), 0x1_2345);
    let send = build(&simple(Opcode::Uc(Operation::SendOnlyImm)), b"hello");
    assert_eq!(value(&send, "ImmDt", "Immediate"), 0xDEAD_BEEF);
    assert_eq!(value(&send, "Payload", "Data"), u64::from_be_bytes(*b"\0\0\0hello"));
    assert_eq!(value(&send, "Pad", "Zeroes"), 0);
    let ack = build(&simple(Opcode::Rc(Operation::AtomicAcknowledge)), &[]);
    assert_eq!((value(&ack, "AETH", "MSN"), value(&ack, "AtomicAckETH", "Original")), (1, 5));
}

#[test]
fn what_is_not_understood_is_one_rest() {
    let packet = build(&simple(Opcode::Rc(Operation::SendOnly)), b"hello");
    let mut unknown = packet.clone();
    unknown[28] = 0x15;
    let last = *parts(&unknown).last().expect("parts");
    assert_eq!((last.header, last.at, last.bits), ("Rest", 40 * 8, 12 * 8));
    assert_without_gaps(&unknown);

    let mut options = packet.clone();
    options[0] = 0x46;
    assert_eq!(parts(&options).iter().find(|p| p.header == "Rest").map(|p| p.at), Some(20 * 8));
    assert_without_gaps(&options);
    assert_eq!(parts(&[0x45; 7]).len(), 1, "not even an IP header");
    assert!(parts(&[]).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn parts_cover_any_packet_whole_or_cut((headers, payload) in packet(), cut in 0usize..2000) {
        let packet = build(&headers, &payload);
        assert_without_gaps(&packet);
        assert_without_gaps(&packet[..packet.len() - cut.min(packet.len())]);
    }

    #[test]
    fn parts_cover_any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), version in 4u8..=6) {
        if let Some(first) = bytes.first_mut() {
            *first = version << 4 | *first & 0x0F;
        }
        let seen = dissect(&bytes);
        // A well-formed packet may be followed by padding, which is no part of it.
        if seen.packet.is_err() {
            assert_without_gaps(&bytes);
        }
    }
}
