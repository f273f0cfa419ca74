//! Whole frames, byte for byte both ways. V1 to V4 come from scapy's RoCE layer and were confirmed with an independent CRC;
//! V5 was captured from rdma_rxe of Linux 6.12.

mod common;

use common::hex;
use xroce_wire::*;

const V1: &str = "020000000002020000000001080045020034123440004011a47fc0000201c0000202c12312b7002000000470ffff0000012380fffffe68656c6c6f000000ed6232b3";
const V2: &str = "02000000000202000000000186dd668123450030113f20010db800000000000000000000000120010db8000000000000000000000002d0d012b7003000000bc0ffff00abcdef80000000112233445566778800abcd1200000004deadbeef01020304a528032a";
const V3: &str = "020000000002020000000001080045c2003c000140004011b5eac0000202c0000201c00112b7002800008140ffff400001230000000000000000000000000000000000000000fcdeb684";
const V4: &str = "02000000000202000000000181006014080045000030000240004011b6b7c0000202c0000201c00112b7001c00001140ffff0000012300fffffe1f00000139786392";
const V5: &str = "02000a4d000102000a4d000786dd6000000000201140fd000077000000000000000000000007fd000077000000000000000000000001cfe212b7002000000430ffff00123456800000090000000000000000abfb2464";

/// Parses the frame, compares all of it with what is expected, and builds the same bytes again.
/// `ident` is the IPv4 identification: ours is always 0, so the rebuilt packet gets it (and checksum and ICRC) afterwards.
#[track_caller]
fn both_ways(frame: &str, link: Link, headers: Headers, payload: &[u8], ident: Option<u16>) {
    let frame = hex(frame);
    let parsed = Link::parse_ip(&frame).unwrap();
    assert_eq!(parsed, link);
    let packet = Packet::new_checked(&frame[parsed.header_len()..], &[]).unwrap();
    assert_eq!(Headers::parse(&packet), headers);
    assert_eq!(packet.payload(), (payload, &[][..]));
    assert!(packet.pad_is_right());
    assert!(packet.icrc_ok());
    assert_eq!(packet.icrc(), Some(true));
    assert_eq!(packet.icrc_bytes().unwrap(), frame[frame.len() - 4..]);

    let mut built = vec![0xEE; link.header_len() + headers.packet_len(payload.len())];
    link.emit(&mut built);
    let ip = &mut built[link.header_len()..];
    headers.emit_packet(payload, ip);
    if let Some(ident) = ident {
        Ipv4::new_unchecked(&mut *ip).set_ident(ident);
        common::fix_ipv4_checksum(ip);
        let end = ip.len() - ICRC_LEN;
        let mut icrc = Icrc::begin(&ip[..headers.header_len()]);
        icrc.update(&ip[headers.header_len()..end]);
        let icrc = icrc.finish();
        ip[end..].copy_from_slice(&icrc);
    }
    assert_eq!(built, frame);
}

fn link(ethertype: EtherType) -> Link {
    Link { dst: [2, 0, 0, 0, 0, 2], src: [2, 0, 0, 0, 0, 1], tags: [None; 2], ethertype }
}

fn ip(src: &str, dst: &str, traffic_class: u8) -> IpRepr {
    IpRepr { src: src.parse().unwrap(), dst: dst.parse().unwrap(), traffic_class, flow_label: 0, hop_limit: 64 }
}

fn bth(opcode: Opcode, dest_qp: u32, psn: u32) -> BthRepr {
    BthRepr {
        opcode,
        solicited: false,
        migreq: true,
        pad: 0,
        pkey: PKey::DEFAULT,
        fecn: false,
        becn: false,
        dest_qp: Qpn::new(dest_qp),
        ack_req: false,
        psn: Psn::new(psn),
    }
}

/// Reports H13, H14.
#[test]
// rule: wire.bth, icrc.order
fn v1_send_only_with_pad() {
    let bth = BthRepr { pad: 3, ack_req: true, ..bth(Opcode::Rc(Operation::SendOnly), 0x123, 0xFF_FFFE) };
    let headers = Headers::new(ip("192.0.2.1", "192.0.2.2", 0x02), 0xC123, bth);
    both_ways(V1, link(EtherType::IPV4), headers, b"hello", Some(0x1234));
}

/// Report H14.
#[test]
// rule: wire.reth, wire.imm
fn v2_write_only_imm_over_ipv6() {
    let ip = IpRepr { flow_label: 0x12345, hop_limit: 63, ..ip("2001:db8::1", "2001:db8::2", 0x68) };
    let bth = BthRepr { solicited: true, ack_req: true, ..bth(Opcode::Rc(Operation::WriteOnlyImm), 0xAB_CDEF, 0) };
    let mut headers = Headers::new(ip, 0xD0D0, bth);
    headers.reth = Some(RethRepr { va: 0x1122_3344_5566_7788, rkey: Rkey(0x00AB_CD12), len: 4 });
    headers.imm = Some(ImmData(0xDEAD_BEEF));
    both_ways(V2, link(EtherType::IPV6), headers, &[1, 2, 3, 4], None);
}

/// Report H14.
#[test]
// rule: wire.cnp
fn v3_cnp() {
    let headers = Headers::cnp(ip("192.0.2.2", "192.0.2.1", 0xC2), 0xC001, PKey::DEFAULT, Qpn::new(0x123));
    both_ways(V3, link(EtherType::IPV4), headers, &[], Some(1));

    // BECN is outside the ICRC: the same packet without it carries the same one.
    let mut frame = hex(V3);
    frame[14 + 28 + 4] = 0;
    assert!(Packet::new_checked(&frame[14..], &[]).unwrap().icrc_ok());
}

/// Report H14.
#[test]
// rule: wire.aeth
fn v4_ack_behind_a_vlan_tag() {
    let mut headers = Headers::new(
        ip("192.0.2.2", "192.0.2.1", 0),
        0xC001,
        bth(Opcode::Rc(Operation::Acknowledge), 0x123, 0xFF_FFFE),
    );
    headers.aeth = Some(AethRepr { syndrome: Syndrome::ACK_UNLIMITED, msn: Msn::new(1) });
    let tagged = Link { tags: [Some(VlanRepr { pcp: 3, dei: false, vid: 20 }), None], ..link(EtherType::IPV4) };
    both_ways(V4, tagged, headers, &[], Some(2));
}

/// Report H14.
#[test]
fn v5_send_only_made_by_rxe() {
    let link = Link {
        dst: [2, 0, 0x0A, 0x4D, 0, 1],
        src: [2, 0, 0x0A, 0x4D, 0, 7],
        tags: [None; 2],
        ethertype: EtherType::IPV6,
    };
    // rxe sends M 0. The payload is five zeros, the other three are pad.
    let bth = BthRepr { pad: 3, migreq: false, ack_req: true, ..bth(Opcode::Rc(Operation::SendOnly), 0x12_3456, 9) };
    let headers = Headers::new(ip("fd00:77::7", "fd00:77::1", 0), 0xCFE2, bth);
    both_ways(V5, link, headers, &[0; 5], None);
}

/// The IP packet of a frame without tags, with this ECN field.
fn with_ecn(frame: &str, ecn: u8) -> Vec<u8> {
    let mut ip = hex(frame).split_off(14);
    if ip[0] >> 4 == 6 {
        ip[1] = ip[1] & !0x30 | ecn << 4;
    } else {
        ip[1] = ip[1] & !3 | ecn;
        common::fix_ipv4_checksum(&mut ip);
    }
    ip
}

#[test]
fn only_congestion_experienced_is_a_mark() {
    for frame in [V1, V2] {
        for ecn in 0..4 {
            let ip = with_ecn(frame, ecn);
            assert_eq!(Packet::new_checked(&ip, &[]).unwrap().is_ce(), ecn == 3, "ECN {ecn}");
        }
    }
}

#[test]
fn both_addresses_decide_between_whom_a_packet_goes() {
    for frame in [V1, V2] {
        let bytes = hex(frame).split_off(14);
        let packet = Packet::new_checked(&bytes, &[]).unwrap();
        let (IpRepr { src, dst, .. }, other) = (packet.ip(), Gid::from_ipv6("2001:db8::99".parse().unwrap()));
        assert!(packet.is_between(&src, &dst));
        for (src, dst) in [(src, other), (other, dst), (dst, src), (src, src), (dst, dst)] {
            assert!(!packet.is_between(&src, &dst), "{src:?} to {dst:?}");
        }
    }
}
