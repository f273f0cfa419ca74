//! The ICRC against an independent CRC, and against its definition: which bytes it covers and which it does not.

mod common;

use common::{build, over_ipv6, packet, simple};
use crc::{CRC_32_ISO_HDLC, Crc};
use proptest::prelude::*;
use xroce_wire::*;

const ORACLE: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// The ICRC by the letter: ones, then the packet with its variant fields made ones, byte by byte.
fn oracle(packet: &[u8]) -> [u8; 4] {
    let mut masked = packet[..packet.len() - 4].to_vec();
    for at in variant_bytes(packet) {
        masked[at] = 0xFF;
    }
    if packet[0] >> 4 == 6 {
        masked[0] |= 0x0F;
    }
    let mut digest = ORACLE.digest();
    digest.update(&[0xFF; 8]);
    digest.update(&masked);
    digest.finalize().to_le_bytes()
}

/// Offsets of whole bytes the ICRC leaves out (beside the low nibble of an IPv6 packet's first byte).
fn variant_bytes(packet: &[u8]) -> Vec<usize> {
    let (mut bytes, udp) = if packet[0] >> 4 == 4 { (vec![1, 8, 10, 11], 20) } else { (vec![1, 2, 3, 7], 40) };
    bytes.extend([udp + 6, udp + 7, udp + 8 + 4]);
    bytes
}

fn stored(packet: &[u8]) -> [u8; 4] {
    packet[packet.len() - 4..].try_into().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    // rule: icrc.coverage
    fn equals_an_independent_crc((headers, payload) in packet()) {
        let packet = build(&headers, &payload);
        prop_assert_eq!(stored(&packet), oracle(&packet));
    }

    #[test]
    fn pieces_of_any_size_give_the_same((headers, payload) in packet(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4)) {
        let packet = build(&headers, &payload);
        let at = headers.header_len();
        let body = &packet[at..packet.len() - 4];
        let mut cuts: Vec<usize> = cuts.iter().map(|i| i.index(body.len() + 1)).collect();
        cuts.sort_unstable();
        let mut icrc = Icrc::begin(&packet[..at]);
        let mut from = 0;
        for to in cuts.into_iter().chain([body.len()]) {
            icrc.update(&body[from..to]);
            from = to;
        }
        prop_assert_eq!(icrc.finish(), stored(&packet));
        // Payload handed over together with the headers is covered as it stands.
        let whole = Icrc::begin(&packet[..packet.len() - 4]);
        prop_assert_eq!(whole.finish(), stored(&packet));
    }

    #[test]
    fn holds_wherever_the_packet_is_cut_in_two((headers, payload) in packet(), cut: prop::sample::Index, flip: prop::sample::Index) {
        let mut bytes = build(&headers, &payload);
        let at = headers.header_len();
        let cut = at + cut.index(bytes.len() - at + 1);
        let (head, tail) = bytes.split_at(cut);
        let packet = Packet::new_checked(head, tail).unwrap();
        prop_assert!(packet.icrc_ok());
        let (first, second) = packet.payload();
        prop_assert_eq!([first, second].concat(), payload);

        let flip = at + flip.index(bytes.len() - at);
        bytes[flip] ^= 0x10;
        let (head, tail) = bytes.split_at(cut);
        prop_assert!(!Packet::new_checked(head, tail).unwrap().icrc_ok());
    }

    #[test]
    // rule: icrc.mask
    fn a_memo_says_what_the_packet_says(
        (headers, payload) in packet(),
        cut: prop::sample::Index,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u32..8), 0..8),
    ) {
        let mut bytes = build(&headers, &payload);
        let mut memo = IcrcMemo::default();
        let cut = headers.header_len() + cut.index(bytes.len() - headers.header_len() + 1);
        for known in 0..4 {
            let (head, tail) = bytes.split_at(cut);
            prop_assert!(memo.icrc_ok(&Packet::new_checked(head, tail).unwrap()), "after {known}");
        }
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let (head, tail) = bytes.split_at(cut);
            let Ok(packet) = Packet::new_checked(head, tail) else { break };
            for known in 0..3 {
                prop_assert_eq!(memo.icrc_ok(&packet), packet.icrc_ok(), "bit {} of byte {}, after {}", bit, at, known);
            }
        }
    }

    #[test]
    fn arbitrary_headers_and_lengths(mut bytes in proptest::collection::vec(any::<u8>(), 64..300), v6: bool) {
        bytes[0] = if v6 { 0x60 } else { 0x45 };
        let end = bytes.len() - 4;
        let icrc = Icrc::begin(&bytes[..end]).finish();
        prop_assert_eq!(icrc, oracle(&bytes));
    }
}

#[test]
fn the_register_after_eight_bytes_of_ones() {
    assert_eq!(!ORACLE.checksum(&[0xFF; 8]), 0xDEBB_20E3);
}

/// Flips every bit of a packet in turn: variant bits must not change the ICRC, all others must.
fn coverage_is_exact(packet: &[u8]) {
    let v6 = packet[0] >> 4 == 6;
    let end = packet.len() - 4;
    let variant = variant_bytes(packet);
    for at in 0..end {
        for bit in 0..8 {
            if at == 0 && bit >= 4 {
                // The version decides which mask is used: not a bit that can be flipped alone.
                continue;
            }
            let mut changed = packet.to_vec();
            changed[at] ^= 1 << bit;
            let same = Icrc::begin(&changed[..end]).finish() == stored(packet);
            let is_variant = variant.contains(&at) || (v6 && at == 0);
            assert_eq!(same, is_variant, "bit {bit} of byte {at} (IPv6: {v6})");
        }
    }
}

/// Report H12.
#[test]
// rule: icrc.coverage, icrc.mask
fn covers_exactly_the_invariant_fields() {
    let headers = simple(Opcode::Rc(Operation::WriteOnlyImm));
    coverage_is_exact(&build(&headers, b"covered"));
    coverage_is_exact(&build(&over_ipv6(headers), b"covered"));
}

/// As [`coverage_is_exact`], by a memo that knows this kind of packet.
fn coverage_is_exact_with_a_memo(packet: &[u8]) {
    let mut known = IcrcMemo::default();
    (0..2).for_each(|_| assert!(known.icrc_ok(&Packet::new_checked(packet, &[]).unwrap())));
    let mut compared = 0;
    for at in 0..packet.len() {
        for bit in 0..8 {
            let mut changed = packet.to_vec();
            changed[at] ^= 1 << bit;
            if packet[0] >> 4 == 4 {
                Ipv4::new_unchecked(&mut changed[..]).fill_checksum();
            }
            let Ok(changed) = Packet::new_checked(&changed, &[]) else { continue };
            let mut memo = known.clone();
            for look in 0..3 {
                assert_eq!(memo.icrc_ok(&changed), changed.icrc_ok(), "bit {bit} of byte {at}, look {look}");
            }
            compared += 1;
        }
    }
    assert!(compared > 300, "{compared} changed packets were well-formed");
}

#[test]
// rule: icrc.mask, rx.icrc
fn a_memo_covers_the_same_fields() {
    let headers = simple(Opcode::Rc(Operation::WriteOnlyImm));
    coverage_is_exact_with_a_memo(&build(&headers, b"covered"));
    coverage_is_exact_with_a_memo(&build(&over_ipv6(headers), b"covered"));
}

/// Report H11.
#[test]
// rule: icrc.mask
fn rewriting_variant_fields_keeps_a_packet_good() {
    let mut packet = build(&simple(Opcode::Rc(Operation::SendOnly)), b"payload!");
    let mut ip = Ipv4::new_unchecked(&mut packet[..]);
    ip.set_traffic_class(0x03);
    ip.set_ttl(7);
    ip.fill_checksum();
    packet[20 + 6] = 0xAB; // UDP checksum
    packet[28 + 4] = 0xC0; // FECN and BECN
    let checked = Packet::new_checked(&packet, &[]).unwrap();
    assert!(checked.icrc_ok());
    assert!(checked.ip().is_ce() && checked.bth().fecn && checked.bth().becn);
}
