//! Numbers, GIDs, and the fixed tables of the protocol.

mod common;

use std::collections::BTreeSet;

use common::all_opcodes;
use proptest::prelude::*;
use xroce_wire::*;

const COUNT: i64 = 1 << 24;

/// PSNs, half of them close to the wrap.
fn psn() -> impl Strategy<Value = Psn> {
    prop_oneof![any::<u32>().prop_map(Psn::new), (0u32..64).prop_map(|n| Psn::new(n.wrapping_sub(32)))]
}

proptest! {
    #[test]
    fn psn_arithmetic_is_modulo_2_to_24(a in psn(), n: u32) {
        let expected = (i64::from(a.value()) + i64::from(n)).rem_euclid(COUNT) as u32;
        prop_assert_eq!(a.add(n).value(), expected);
        prop_assert_eq!(a.add(n).sub(n), a);
        prop_assert_eq!(a.next(), a.add(1));
        prop_assert!(a.value() < 1 << 24);
    }

    #[test]
    // rule: wire.psn
    fn psn_distance_is_the_short_way_round(a in psn(), b in psn()) {
        let mut expected = (i64::from(a.value()) - i64::from(b.value())).rem_euclid(COUNT);
        if expected >= COUNT / 2 {
            expected -= COUNT;
        }
        prop_assert_eq!(i64::from(a.distance_from(b)), expected);
        prop_assert_eq!(b.add(a.distance_from(b) as u32), a);
    }

    #[test]
    fn psn_window(start in psn(), len in prop_oneof![0u32..100, 0u32..=1 << 24], n in prop_oneof![0u32..128, 0u32..1 << 24]) {
        let window = PsnWindow { start, len };
        let psn = start.add(n);
        prop_assert_eq!(window.contains(psn), n < len);
        prop_assert_eq!(window.offset_of(psn), (n < len).then_some(n));
    }

    #[test]
    fn gid_forms(bytes: [u8; 16]) {
        let gid = Gid(bytes);
        prop_assert_eq!(gid.to_string().parse::<Gid>(), Ok(gid));
        prop_assert_eq!(Gid::from_hex32(gid.to_hex32().as_str()), Ok(gid));
        prop_assert_eq!(Gid::from_hex32(&gid.to_hex32().to_string().to_uppercase()), Ok(gid));
        prop_assert_eq!(Gid::from_ip(gid.to_ip()), gid);
    }

    #[test]
    fn gid_parsing_never_panics(text in "\\PC{0,40}") {
        let _ = (text.parse::<Gid>(), Gid::from_hex32(&text));
    }

    #[test]
    // rule: wire.source-port
    fn source_port_is_dynamic_and_symmetric(label in 0u32..1 << 20, a: u32, b: u32) {
        let (a, b) = (Qpn::new(a), Qpn::new(b));
        prop_assert!(udp_src_port(label, a, b) >= 0xC000);
        prop_assert_eq!(udp_src_port(label, a, b), udp_src_port(label, b, a));
    }

    #[test]
    fn credit_code_is_the_largest_that_fits(free in prop_oneof![0u32..70_000, any::<u32>()]) {
        let code = credit::code_for(free);
        prop_assert!(credit::credits(code).unwrap() <= free);
        if code < 0x1E {
            prop_assert!(credit::credits(code + 1).unwrap() > free);
        } else {
            prop_assert_eq!(code, 0x1E);
        }
    }
}

#[test]
fn psn_distance_at_its_limits() {
    let at = |n| Psn::new(n);
    assert_eq!(at(0x80_0000).distance_from(at(0)), -(1 << 23));
    assert_eq!(at(0x7F_FFFF).distance_from(at(0)), (1 << 23) - 1);
    assert_eq!(at(0).distance_from(at(0xFF_FFFF)), 1);
    assert_eq!(at(0xFF_FFFF).distance_from(at(0)), -1);
    assert!(PsnWindow { start: at(0xFF_FFFF), len: 1 << 24 }.contains(at(0xFF_FFFE)));
}

#[test]
fn printed_as_verbs_tools_do() {
    assert_eq!(Psn::new(0x1A).to_string(), "0x00001a");
    assert_eq!(Qpn::new(0x123).to_string(), "0x000123");
    assert_eq!(Msn::new(1).add(0xFF_FFFF).to_string(), "0x000000");
    assert_eq!(Rkey(0xABCD).to_string(), "0x0000abcd");
    assert_eq!(Lkey(1).to_string(), "0x00000001");
    assert_eq!(QKey(0x8001_0000).to_string(), "0x80010000");
    assert_eq!(PKey::DEFAULT.to_string(), "0xffff");
    assert_eq!(ImmData(5).to_string(), "0x00000005");
    assert_eq!(Syndrome::from_byte(0x1F).to_string(), "ACK, unlimited credits");
    assert_eq!(Syndrome::from_byte(0x08).to_string(), "ACK, 16 credits");
    assert_eq!(Syndrome::from_byte(0x20).to_string(), "RNR NAK, wait 655.36 ms");
    assert_eq!(Syndrome::from_byte(0x62).to_string(), "NAK, remote access error");
    assert_eq!(Syndrome::from_byte(0x45).to_string(), "reserved syndrome 0x45");
}

#[test]
// rule: wire.pkey
fn pkey_matching() {
    let matches = |a, b| PKey(a).matches(PKey(b));
    assert!(matches(0xFFFF, 0xFFFF));
    assert!(matches(0xFFFF, 0x7FFF) && matches(0x7FFF, 0xFFFF));
    assert!(!matches(0x7FFF, 0x7FFF), "two limited members");
    assert!(!matches(0x8001, 0x8002) && !matches(0x8001, 0x0002), "another partition");
    assert!(!matches(0x8000, 0x8000), "the invalid partition");
}

#[test]
// rule: gid.form
fn gids() {
    let v4 = Gid::from_ipv4([192, 0, 2, 1].into());
    assert_eq!(v4.to_string(), "::ffff:192.0.2.1");
    assert_eq!("192.0.2.1".parse(), Ok(v4));
    assert_eq!(v4.to_hex32().as_str(), "00000000000000000000ffffc0000201");
    assert!(v4.is_v4_mapped() && !v4.is_link_local());
    assert_eq!(v4.to_ip().to_string(), "192.0.2.1");
    let local: Gid = "fe80::1".parse().unwrap();
    assert!(local.is_link_local() && !local.is_v4_mapped());
    assert!(!Gid::UNSPECIFIED.is_v4_mapped());
    assert!("224.0.0.1".parse::<Gid>().unwrap().is_multicast() && "ff02::1".parse::<Gid>().unwrap().is_multicast());
    assert!(!v4.is_multicast() && !local.is_multicast());
    assert_eq!("fe80::1%eth0".parse::<Gid>(), Err(ParseGidError::Address));
    assert_eq!(Gid::from_hex32("00ff"), Err(ParseGidError::Hex));
    assert_eq!(Gid::from_hex32(&"+".repeat(32)), Err(ParseGidError::Hex));
}

#[test]
fn multicast_macs() {
    use xroce_wire::ethernet::multicast_mac;
    let mac = |text: &str| multicast_mac(text.parse().unwrap());
    assert_eq!(mac("239.129.2.3"), Some([0x01, 0, 0x5E, 0x01, 2, 3]));
    assert_eq!(mac("ff0e::1:ff00:1234"), Some([0x33, 0x33, 0xFF, 0, 0x12, 0x34]));
    assert_eq!(mac("192.0.2.1"), None);
    assert_eq!(mac("2001:db8::1"), None);
}

/// Report H02.
#[test]
// rule: mtu.values, mtu.overhead
fn path_mtus() {
    let bytes: Vec<usize> = PathMtu::ALL.iter().map(|p| p.bytes()).collect();
    assert_eq!(bytes, [256, 512, 1024, 2048, 4096]);
    for (i, mtu) in PathMtu::ALL.into_iter().enumerate() {
        assert_eq!(mtu.code() as usize, i + 1);
        assert_eq!(PathMtu::from_code(mtu.code()), Some(mtu));
        assert_eq!(PathMtu::from_bytes(mtu.bytes()), Some(mtu));
        let exact = mtu.bytes() as u32 + 96;
        assert_eq!(PathMtu::largest_for_netdev(exact), Some(mtu));
        assert_ne!(PathMtu::largest_for_netdev(exact - 1), Some(mtu));
    }
    assert_eq!(PathMtu::from_code(0), None);
    assert_eq!(PathMtu::from_code(6), None);
    assert_eq!(PathMtu::from_bytes(1500), None);
    assert_eq!(PathMtu::largest_for_netdev(0), None);
    assert_eq!(PathMtu::largest_for_netdev(351), None);
    assert_eq!(PathMtu::largest_for_netdev(1500), Some(PathMtu::Mtu1024));
    assert_eq!(PathMtu::largest_for_netdev(9000), Some(PathMtu::Mtu4096));
}

/// Report H02.
#[test]
// rule: mtu.overhead
fn the_overhead_of_a_packet_fits_the_reserve() {
    for opcode in all_opcodes() {
        let headers = common::over_ipv6(common::simple(opcode));
        assert!(headers.header_len() <= MAX_HEADER_LEN);
        assert!(headers.packet_len(0) <= PathMtu::OVERHEAD as usize, "{opcode}");
    }
    // The smallest packet, an ACK, with its Ethernet header.
    assert_eq!(common::simple(Opcode::Rc(Operation::Acknowledge)).packet_len(0) + 14, 62);
    let ack = common::over_ipv6(common::simple(Opcode::Rc(Operation::Acknowledge)));
    assert_eq!(ack.packet_len(0) + 14, 82);
}

#[test]
// rule: wire.credit
fn credits_by_code() {
    let table: Vec<u32> = (0..31).map(|code| credit::credits(code).unwrap()).collect();
    let expected = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
        6144, 8192, 12288, 16384, 24576, 32768,
    ];
    assert_eq!(table, expected);
    assert_eq!(credit::credits(credit::UNLIMITED), None);
    for code in 0..31 {
        assert_eq!(credit::code_for(expected[code as usize]), code);
        assert_eq!(credit::code_for(expected[code as usize] + 1), if code < 4 { code + 1 } else { code });
    }
}

/// Report H16.
#[test]
// rule: wire.rnr
fn rnr_timers_by_code() {
    let hundredths_of_ms: Vec<u64> = (0..32).map(|code| RnrTimer::new(code).unwrap().ns() / 10_000).collect();
    let expected = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    assert_eq!(hundredths_of_ms, expected);
    assert!((0..32).all(|code| RnrTimer::new(code).unwrap().code() == code));
    assert_eq!(RnrTimer::new(32), None);
}

#[test]
// rule: wire.syndrome
fn syndromes_by_byte() {
    for byte in 0..=255u8 {
        let syndrome = Syndrome::from_byte(byte);
        assert_eq!(syndrome.byte(), byte);
        let kind = match syndrome {
            Syndrome::Ack { credits } => {
                assert_eq!(credits, byte & 0x1F);
                0x00
            }
            Syndrome::RnrNak(timer) => {
                assert_eq!(timer.code(), byte & 0x1F);
                0x20
            }
            Syndrome::Nak(code) => {
                assert_eq!(code.code(), byte & 0x1F);
                0x60
            }
            Syndrome::Reserved(_) => {
                assert!(byte & 0x80 != 0 || byte & 0x60 == 0x40, "{byte:#x}");
                continue;
            }
        };
        assert_eq!(byte & 0xE0, kind);
    }
    let codes = [
        NakCode::PsnSequenceError,
        NakCode::InvalidRequest,
        NakCode::RemoteAccessError,
        NakCode::RemoteOperationalError,
        NakCode::InvalidRdRequest,
        NakCode::Reserved(5),
    ];
    for (i, code) in codes.into_iter().enumerate() {
        assert_eq!(NakCode::from_code(i as u8), code);
    }
}

#[test]
// rule: wire.source-port
fn source_ports_of_linux() {
    // A label decides alone; 0 means the product of the QPNs, folded.
    let (a, b) = (Qpn::new(0x11), Qpn::new(0x22));
    assert_eq!(udp_src_port(1, a, b), 0xC001);
    assert_eq!(udp_src_port(0x4000, a, b), 0xC001);
    assert_eq!(udp_src_port(0xF_FFFF, a, b), 0xC000 | (0x3FFF ^ 0x3F));
    assert_eq!(udp_src_port(0, a, b), 0xC000 | 0x242);
    let top = Qpn::new(0xFF_FFFF);
    let product = 0xFF_FFFFu64 * 0xFF_FFFF;
    let once = product ^ product >> 20;
    let label = ((once ^ once >> 40) & 0xF_FFFF) as u32;
    assert_eq!(flow::flow_label_of(top, top), label);
    assert_eq!(udp_src_port(0, top, top), 0xC000 | ((label & 0x3FFF) ^ (label >> 14)) as u16);
}

/// One row of the table of opcodes: code, UC too, UD too, name, bytes of extension headers, payload, takes a RECV.
type Row = (u8, bool, bool, &'static str, usize, PayloadRule, bool);

const ROWS: [Row; 25] = {
    use PayloadRule::*;
    [
        (0x00, true, false, "SEND_FIRST", 0, Full, true),
        (0x01, true, false, "SEND_MIDDLE", 0, Full, false),
        (0x02, true, false, "SEND_LAST", 0, NotEmpty, false),
        (0x03, true, false, "SEND_LAST_IMM", 4, NotEmpty, false),
        (0x04, true, true, "SEND_ONLY", 0, UpToMtu, true),
        (0x05, true, true, "SEND_ONLY_IMM", 4, UpToMtu, true),
        (0x06, true, false, "RDMA_WRITE_FIRST", 16, Full, false),
        (0x07, true, false, "RDMA_WRITE_MIDDLE", 0, Full, false),
        (0x08, true, false, "RDMA_WRITE_LAST", 0, NotEmpty, false),
        (0x09, true, false, "RDMA_WRITE_LAST_IMM", 4, NotEmpty, true),
        (0x0A, true, false, "RDMA_WRITE_ONLY", 16, UpToMtu, false),
        (0x0B, true, false, "RDMA_WRITE_ONLY_IMM", 20, UpToMtu, true),
        (0x0C, false, false, "RDMA_READ_REQUEST", 16, Empty, false),
        (0x0D, false, false, "RDMA_READ_RESPONSE_FIRST", 4, Full, false),
        (0x0E, false, false, "RDMA_READ_RESPONSE_MIDDLE", 0, Full, false),
        (0x0F, false, false, "RDMA_READ_RESPONSE_LAST", 4, NotEmpty, false),
        (0x10, false, false, "RDMA_READ_RESPONSE_ONLY", 4, UpToMtu, false),
        (0x11, false, false, "ACKNOWLEDGE", 4, Empty, false),
        (0x12, false, false, "ATOMIC_ACKNOWLEDGE", 12, Empty, false),
        (0x13, false, false, "COMPARE_SWAP", 28, Empty, false),
        (0x14, false, false, "FETCH_ADD", 28, Empty, false),
        (0x16, false, false, "SEND_LAST_INV", 4, NotEmpty, false),
        (0x17, false, false, "SEND_ONLY_INV", 4, UpToMtu, true),
        (0x1C, false, false, "FLUSH", 20, Empty, false),
        (0x1D, false, false, "ATOMIC_WRITE", 16, Eight, false),
    ]
};

#[test]
// rule: wire.opcode
fn opcodes_by_byte() {
    let mut known = BTreeSet::from([0x81]);
    for (code, uc, ud, name, headers, payload, takes_recv) in ROWS {
        let operation = Operation::from_code(code).unwrap();
        assert_eq!(operation.code(), code);
        assert_eq!(operation.headers().byte_len(), headers, "{name}");
        assert_eq!(operation.payload_rule(), payload, "{name}");
        assert_eq!(operation.takes_recv(), takes_recv, "{name}");
        assert_eq!((operation.on_uc(), operation.on_ud()), (uc, ud), "{name}");
        let rows = [
            (true, 0x00, Opcode::Rc(operation), "RC", headers, Transport::Rc),
            (uc, 0x20, Opcode::Uc(operation), "UC", headers, Transport::Uc),
            (ud, 0x60, Opcode::Ud(operation), "UD", headers + 8, Transport::Ud),
        ];
        for (exists, base, opcode, prefix, headers, transport) in rows {
            assert_eq!(opcode.byte(), base | code);
            assert_eq!(Opcode::from_byte(base | code), exists.then_some(opcode));
            if exists {
                known.insert(base | code);
                assert_eq!(opcode.name(), format!("{prefix}_{name}"));
                assert_eq!(opcode.to_string(), opcode.name());
                assert_eq!(opcode.headers().byte_len(), headers);
                assert_eq!(opcode.payload_rule(), payload);
                assert_eq!(opcode.transport(), transport);
                assert_eq!(opcode.operation(), Some(operation));
            }
        }
    }
    for byte in 0..=255 {
        assert_eq!(Opcode::from_byte(byte).is_some(), known.contains(&byte), "{byte:#x}");
    }
    assert_eq!(Opcode::from_byte(0x81), Some(Opcode::Cnp));
    assert_eq!((Opcode::Cnp.byte(), Opcode::Cnp.name(), Opcode::Cnp.headers().byte_len()), (0x81, "CNP", 16));
    assert_eq!((Opcode::Cnp.operation(), Opcode::Cnp.transport()), (None, Transport::Cnp));
}

#[test]
fn traits_follow_from_the_name() {
    for (code, _, _, name, ..) in ROWS {
        let operation = Operation::from_code(code).unwrap();
        let says = |part: &str| name.split('_').any(|p| p == part);
        let response = says("RESPONSE") || says("ACKNOWLEDGE");
        assert_eq!(operation.is_response(), response, "{name}");
        assert_eq!(operation.is_request(), !response, "{name}");
        assert_eq!(operation.is_first(), says("FIRST"), "{name}");
        assert_eq!(operation.is_middle(), says("MIDDLE"), "{name}");
        assert_eq!(operation.is_last(), says("LAST"), "{name}");
        let one_packet = !says("FIRST") && !says("MIDDLE") && !says("LAST");
        assert_eq!(operation.is_only(), one_packet, "{name}");
        assert_eq!(operation.begins_message(), says("FIRST") || one_packet, "{name}");
        assert_eq!(operation.ends_message(), says("LAST") || one_packet, "{name}");
        assert_eq!(operation.is_send(), says("SEND"), "{name}");
        assert_eq!(operation.is_write(), name.starts_with("RDMA_WRITE"), "{name}");
        assert_eq!(operation.is_atomic(), name == "COMPARE_SWAP" || name == "FETCH_ADD", "{name}");
        assert_eq!(operation.is_read_response(), says("READ") && response, "{name}");
        assert_eq!(operation.has_imm(), says("IMM"), "{name}");
        assert_eq!(operation.has_inv(), says("INV"), "{name}");
        let reth = [
            "RDMA_WRITE_FIRST",
            "RDMA_WRITE_ONLY",
            "RDMA_WRITE_ONLY_IMM",
            "RDMA_READ_REQUEST",
            "FLUSH",
            "ATOMIC_WRITE",
        ];
        assert_eq!(operation.has_reth(), reth.contains(&name), "{name}");
        assert_eq!(operation.has_aeth(), response && !says("MIDDLE"), "{name}");
    }
}

#[test]
// rule: wire.opcode
fn payload_rules() {
    use PayloadRule::*;
    let p = PathMtu::Mtu1024;
    let allowed = |rule: PayloadRule| [0, 1, 8, 1023, 1024, 1025].map(|len| rule.allows(len, p));
    assert_eq!(allowed(Empty), [true, false, false, false, false, false]);
    assert_eq!(allowed(Full), [false, false, false, false, true, false]);
    assert_eq!(allowed(NotEmpty), [false, true, true, true, true, false]);
    assert_eq!(allowed(UpToMtu), [true, true, true, true, true, false]);
    assert_eq!(allowed(Eight), [false, false, true, false, false, false]);
    assert_eq!([0, 1, 2, 3, 4, 5].map(pad_len), [0, 3, 2, 1, 0, 3]);
}
