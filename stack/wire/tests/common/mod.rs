//! Strategies and helpers the tests of this crate share.
#![allow(dead_code, reason = "each test binary uses a part")]

use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use xroce_wire::*;

/// Bytes of hex text.
pub fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// Every opcode there is, found by asking for all bytes.
pub fn all_opcodes() -> Vec<Opcode> {
    (0..=255).filter_map(Opcode::from_byte).collect()
}

/// Opcodes that [`Headers`] can send: all but FLUSH, whose FETH is for decoding only.
pub fn sendable_opcodes() -> Vec<Opcode> {
    all_opcodes().into_iter().filter(|o| o.operation() != Some(Operation::Flush)).collect()
}

pub fn gid_pair() -> impl Strategy<Value = (Gid, Gid)> {
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(a, b)| (Gid::from_ipv4(Ipv4Addr::from(a)), Gid::from_ipv4(Ipv4Addr::from(b)))),
        any::<(u128, u128)>()
            .prop_filter("not IPv4-mapped", |(a, b)| a >> 32 != 0xFFFF && b >> 32 != 0xFFFF)
            .prop_map(|(a, b)| (Gid::from_ipv6(Ipv6Addr::from(a)), Gid::from_ipv6(Ipv6Addr::from(b)))),
    ]
}

pub fn ip() -> impl Strategy<Value = IpRepr> {
    (gid_pair(), any::<u8>(), 0u32..1 << 20, any::<u8>()).prop_map(|((src, dst), traffic_class, label, hop_limit)| {
        let ip = IpRepr { src, dst, traffic_class, flow_label: 0, hop_limit };
        IpRepr { flow_label: if ip.is_ipv4() { 0 } else { label }, ..ip }
    })
}

pub fn syndrome() -> impl Strategy<Value = Syndrome> {
    any::<u8>().prop_map(Syndrome::from_byte)
}

/// Headers with exactly the extension headers of `opcode`.
pub fn headers_of(opcode: Opcode) -> impl Strategy<Value = Headers> {
    let bth = (any::<[bool; 5]>(), any::<u16>(), any::<u32>(), any::<u32>());
    let words = (any::<[u64; 4]>(), any::<[u32; 6]>(), syndrome());
    (ip(), any::<u16>(), bth, words).prop_map(move |(ip, udp_src_port, (flags, pkey, qpn, psn), (w, k, syndrome))| {
        let [solicited, migreq, fecn, becn, ack_req] = flags;
        let bth = BthRepr {
            opcode,
            solicited,
            migreq,
            pad: 0,
            pkey: PKey(pkey),
            fecn,
            becn,
            dest_qp: Qpn::new(qpn),
            ack_req,
            psn: Psn::new(psn),
        };
        let set = opcode.headers();
        let has = |h| set.contains(h);
        Headers {
            ip,
            udp_src_port,
            bth,
            reth: has(HeaderSet::RETH).then_some(RethRepr { va: w[0], rkey: Rkey(k[0]), len: k[1] }),
            atomic_eth: has(HeaderSet::ATOMIC_ETH).then_some(AtomicEthRepr {
                va: w[0],
                rkey: Rkey(k[0]),
                swap_add: w[1],
                compare: w[2],
            }),
            aeth: has(HeaderSet::AETH).then_some(AethRepr { syndrome, msn: Msn::new(k[2]) }),
            atomic_ack: has(HeaderSet::ATOMIC_ACK).then_some(AtomicAckRepr { original: w[3] }),
            imm: has(HeaderSet::IMM).then_some(ImmData(k[3])),
            ieth: has(HeaderSet::IETH).then_some(Rkey(k[4])),
            deth: has(HeaderSet::DETH).then_some(DethRepr { qkey: QKey(k[5]), src_qp: Qpn::new(k[4]) }),
        }
    })
}

/// Headers of a random opcode with a payload it may have (any length up to 4096 where it may have one).
pub fn packet() -> impl Strategy<Value = (Headers, Vec<u8>)> {
    proptest::sample::select(sendable_opcodes()).prop_flat_map(|opcode| {
        let longest: usize = if opcode.payload_rule() == PayloadRule::Empty { 0 } else { 4096 };
        let len = prop_oneof![4 => 0..=longest.min(80), 1 => 0..=longest];
        (headers_of(opcode), len.prop_flat_map(|n| proptest::collection::vec(any::<u8>(), n)))
    })
}

/// The whole packet as bytes.
pub fn build(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut buf = vec![0xA5; headers.packet_len(payload.len())];
    let len = headers.emit_packet(payload, &mut buf);
    assert_eq!(len, buf.len());
    buf
}

/// A fixed sender of `opcode` between two IPv4 hosts, every extension header filled.
pub fn simple(opcode: Opcode) -> Headers {
    let set = opcode.headers();
    let has = |h| set.contains(h);
    let ip = IpRepr {
        src: Gid::from_ipv4(Ipv4Addr::new(192, 0, 2, 1)),
        dst: Gid::from_ipv4(Ipv4Addr::new(192, 0, 2, 2)),
        traffic_class: 2,
        flow_label: 0,
        hop_limit: 64,
    };
    let bth = BthRepr {
        opcode,
        solicited: false,
        migreq: true,
        pad: 0,
        pkey: PKey::DEFAULT,
        fecn: false,
        becn: false,
        dest_qp: Qpn::new(0x123),
        ack_req: true,
        psn: Psn::new(0xFF_FFFE),
    };
    Headers {
        ip,
        udp_src_port: 0xC123,
        bth,
        reth: has(HeaderSet::RETH).then_some(RethRepr { va: 0x1000, rkey: Rkey(0x2000), len: 8 }),
        atomic_eth: has(HeaderSet::ATOMIC_ETH).then_some(AtomicEthRepr {
            va: 0x1000,
            rkey: Rkey(0x2000),
            swap_add: 3,
            compare: 4,
        }),
        aeth: has(HeaderSet::AETH).then_some(AethRepr { syndrome: Syndrome::ACK_UNLIMITED, msn: Msn::new(1) }),
        atomic_ack: has(HeaderSet::ATOMIC_ACK).then_some(AtomicAckRepr { original: 5 }),
        imm: has(HeaderSet::IMM).then_some(ImmData(0xDEAD_BEEF)),
        ieth: has(HeaderSet::IETH).then_some(Rkey(0x3000)),
        deth: has(HeaderSet::DETH).then_some(DethRepr { qkey: QKey(0x8001_0000), src_qp: Qpn::new(1) }),
    }
}

/// The same packet between two IPv6 hosts.
pub fn over_ipv6(mut headers: Headers) -> Headers {
    headers.ip.src = "2001:db8::1".parse().unwrap();
    headers.ip.dst = "2001:db8::2".parse().unwrap();
    headers
}

/// Puts the right IPv4 header checksum into a packet whose IP header a test has changed.
pub fn fix_ipv4_checksum(packet: &mut [u8]) {
    Ipv4::new_unchecked(packet).fill_checksum();
}
