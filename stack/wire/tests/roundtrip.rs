//! What is written is what is read, for every opcode; and what is sent has no stray bits.

mod common;

use common::*;
use proptest::prelude::*;
use xroce_wire::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    // rule: wire.bth, wire.reth, wire.atomic-eth, wire.aeth, wire.atomic-ack, wire.imm, wire.ieth, wire.deth
    fn headers_and_payload((headers, payload) in packet(), junk in proptest::collection::vec(any::<u8>(), 0..20)) {
        let len = headers.packet_len(payload.len());
        let mut bytes = build(&headers, &payload);
        prop_assert_eq!(len, headers.header_len() + payload.len() + pad_len(payload.len()) + ICRC_LEN);
        bytes.extend(&junk); // Ethernet padding

        let packet = Packet::new_checked(&bytes, &[]).unwrap();
        let pad = pad_len(payload.len()) as u8;
        let expected = Headers { bth: BthRepr { pad, ..headers.bth }, ..headers };
        prop_assert_eq!(Headers::parse(&packet), expected);
        prop_assert!(expected.fit_opcode());
        prop_assert_eq!(packet.payload(), (&payload[..], &[][..]));
        prop_assert_eq!(packet.payload_len(), payload.len());
        prop_assert_eq!(packet.ip_len(), len);
        prop_assert_eq!(packet.opcode(), headers.bth.opcode);
        prop_assert_eq!(packet.psn(), headers.bth.psn);
        prop_assert_eq!(packet.dest_qp(), headers.bth.dest_qp);
        prop_assert_eq!(packet.header_bytes(), &bytes[..headers.header_len()]);
        prop_assert_eq!(packet.missing(), 0);
        prop_assert!(packet.pad_is_right());
        prop_assert!(packet.icrc_ok());
    }

    #[test]
    fn emit_writes_every_byte_and_no_more((headers, payload) in packet()) {
        // Whatever lay in the frame before, the same packet comes out.
        let len = headers.header_len();
        let mut zeros = vec![0x00; len + 8];
        let mut ones = vec![0xFF; len + 8];
        headers.emit(payload.len(), &mut zeros);
        headers.emit(payload.len(), &mut ones);
        prop_assert_eq!(&zeros[..len], &ones[..len]);
        prop_assert_eq!(&zeros[len..], &[0x00; 8]);
        prop_assert_eq!(&ones[len..], &[0xFF; 8]);
        let whole = build(&headers, &payload);
        prop_assert_eq!(&whole[..len], &zeros[..len]);
        // The pad is zero.
        prop_assert!(whole[len + payload.len()..whole.len() - 4].iter().all(|&b| b == 0));
    }

    #[test]
    // rule: wire.reserved
    fn h14_reserved_bits_are_zero_on_tx((headers, payload) in packet()) {
        let bytes = build(&headers, &payload);
        let (ip, udp) = if headers.ip.is_ipv4() { (&bytes[..20], &bytes[20..]) } else { (&bytes[..40], &bytes[40..]) };
        if headers.ip.is_ipv4() {
            prop_assert_eq!(&ip[4..8], &[0, 0, 0x40, 0], "ID 0, DF alone, offset 0");
        }
        prop_assert_eq!(&udp[6..8], &[0, 0], "UDP checksum");
        let bth = &udp[8..20];
        prop_assert_eq!(bth[1] & 0x0F, 0, "TVer");
        prop_assert_eq!(bth[4] & 0x3F, 0, "beside FECN and BECN");
        prop_assert_eq!(bth[8] & 0x7F, 0, "beside AckReq");
        match headers.bth.opcode {
            Opcode::Ud(_) => prop_assert_eq!(udp[20 + 4], 0, "DETH"),
            Opcode::Cnp => prop_assert_eq!(&udp[20..36], &[0; 16]),
            _ => {}
        }
    }

    #[test]
    fn aeth_reserved_bit_is_zero_in_what_we_say(credits in 0u8..32, timer in 0u8..32, code in 0u8..32) {
        let said = [
            Syndrome::Ack { credits },
            Syndrome::RnrNak(RnrTimer::new(timer).unwrap()),
            Syndrome::Nak(NakCode::from_code(code)),
        ];
        for syndrome in said {
            prop_assert_eq!(syndrome.byte() & 0x80, 0);
            prop_assert_eq!(Syndrome::from_byte(syndrome.byte()), syndrome);
        }
    }

    #[test]
    fn reserved_bits_are_ignored_when_read((headers, payload) in packet()) {
        let mut bytes = build(&headers, &payload);
        let clean = Headers::parse(&Packet::new_checked(&bytes, &[]).unwrap());
        let bth = headers.ip.header_len() + 8;
        bytes[bth + 4] |= 0x3F;
        bytes[bth + 8] |= 0x7F;
        match headers.bth.opcode {
            Opcode::Ud(_) => bytes[bth + 12 + 4] = 0xFF,
            Opcode::Cnp => bytes[bth + 12..bth + 28].fill(0xFF),
            _ => {}
        }
        prop_assert_eq!(Headers::parse(&Packet::new_checked(&bytes, &[]).unwrap()), clean);
    }

    #[test]
    fn feth(placement in 0u8..16, level in 0u8..4) {
        let repr = FethRepr { placement, level };
        let mut bytes = [0xFF; 4];
        repr.emit(&mut bytes);
        prop_assert_eq!(&bytes[..3], &[0, 0, 0]);
        prop_assert_eq!(bytes[3], level << 4 | placement);
        prop_assert_eq!(FethRepr::parse(&bytes), Ok(repr));
    }

    #[test]
    fn link_header(dst: [u8; 6], src: [u8; 6], tags in proptest::collection::vec((0u8..8, any::<bool>(), 0u16..4096), 0..3)) {
        let mut link = Link { dst, src, tags: [None; 2], ethertype: EtherType::IPV4 };
        for (slot, &(pcp, dei, vid)) in link.tags.iter_mut().zip(&tags) {
            *slot = Some(VlanRepr { pcp, dei, vid });
        }
        let mut bytes = vec![0; link.header_len()];
        link.emit(&mut bytes);
        prop_assert_eq!(bytes.len(), 14 + 4 * tags.len());
        prop_assert_eq!(Link::parse(&bytes), Ok(link));
        prop_assert_eq!(link.vlan(), tags.iter().rev().map(|t| t.2).find(|&vid| vid != 0));
        for short in 0..bytes.len() {
            prop_assert!(Link::parse(&bytes[..short]).is_err());
        }
    }
}

#[test]
fn flush_is_decoded() {
    for headers in [simple(Opcode::Rc(Operation::Flush)), over_ipv6(simple(Opcode::Rc(Operation::Flush)))] {
        let mut bytes = build(&headers, &[]);
        let feth = headers.ip.header_len() + 20;
        assert_eq!(bytes[feth..feth + 4], [0; 4]);
        FethRepr { placement: 2, level: 1 }.emit(&mut bytes[feth..]);
        let packet = Packet::new_checked(&bytes, &[]).unwrap();
        assert_eq!(packet.feth(), Some(FethRepr { placement: 2, level: 1 }));
        assert_eq!(packet.reth(), headers.reth);
        assert!(!packet.icrc_ok(), "the ICRC covers the FETH");
    }
}

#[test]
fn headers_an_opcode_lacks_are_not_there() {
    for opcode in all_opcodes() {
        let bytes = build(&simple(opcode), &[]);
        let packet = Packet::new_checked(&bytes, &[]).unwrap();
        assert_eq!(Headers::parse(&packet), simple(opcode), "{opcode}");
        assert_eq!(packet.feth().is_some(), opcode.operation() == Some(Operation::Flush), "{opcode}");
    }
}

#[test]
#[should_panic(expected = "does not fit an IP packet")]
fn a_payload_beyond_the_ip_length_is_refused() {
    simple(Opcode::Rc(Operation::SendOnly)).emit(MAX_PAYLOAD_LEN + 1, &mut [0; 128]);
}

#[test]
fn the_longest_payload_fits() {
    let headers = over_ipv6(simple(Opcode::Rc(Operation::WriteOnlyImm)));
    let bytes = build(&headers, &vec![7; MAX_PAYLOAD_LEN]);
    assert_eq!(Packet::new_checked(&bytes, &[]).unwrap().payload_len(), MAX_PAYLOAD_LEN);
}

/// A header the opcode demands but that is missing: caught in debug builds, and never stale bytes of the frame in release.
#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "extension headers do not fit RC_RDMA_READ_REQUEST"))]
fn a_missing_extension_header() {
    let headers = Headers { reth: None, ..simple(Opcode::Rc(Operation::ReadRequest)) };
    let mut bytes = [0xFF; 56];
    headers.emit(0, &mut bytes);
    assert_eq!(bytes[40..], [0; 16]);
}
