//! What is written is what is read, and what is read is written the same.
//!
//! In: a byte that chooses, then a packet as bytes, or the fields of one. Out: nothing.

use arbitrary::{Arbitrary, Unstructured};
use xroce_wire::{
    AethRepr, AtomicAckRepr, AtomicEthRepr, BthRepr, DethRepr, Gid, HeaderSet, Headers, ImmData, IpRepr, Ipv4Repr,
    Ipv6Repr, Link, MAX_PAYLOAD_LEN, Msn, Opcode, Operation, PKey, Packet, PayloadRule, Psn, QKey, Qpn, RethRepr, Rkey,
    Syndrome, UdpRepr, VlanRepr, pad_len,
};

/// Bytes if the first byte is even, fields if it is odd.
pub fn check(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    if choice & 1 == 0 {
        from_bytes(rest);
        return;
    }
    let mut source = Unstructured::new(rest);
    if let Ok(fields) = Fields::arbitrary(&mut source) {
        from_fields(&fields, source.take_rest());
    }
}

/// parse, emit, parse.
fn from_bytes(ip: &[u8]) {
    small_headers(ip);
    let Ok(packet) = Packet::new_checked(ip, &[]) else { return };
    let headers = Headers::parse(&packet);
    let payload = [packet.payload().0, packet.payload().1].concat();
    if payload.len() <= MAX_PAYLOAD_LEN {
        let written = write(&headers, &payload);
        let again = read(&written, &payload);
        assert_eq!(again, Headers { bth: BthRepr { pad: pad_len(payload.len()) as u8, ..headers.bth }, ..headers });
        assert_eq!(write(&again, &payload), written);
    }
}

/// Each header by itself: what was read of any bytes is written so that it is read the same.
fn small_headers(bytes: &[u8]) {
    if let Ok(ip) = Ipv4Repr::parse(bytes) {
        let mut out = [0xA5; 20];
        ip.emit(&mut out);
        assert_eq!(Ipv4Repr::parse(&out), Ok(ip));
    }
    if let Ok(ip) = Ipv6Repr::parse(bytes) {
        let mut out = [0xA5; 40];
        ip.emit(&mut out);
        assert_eq!(Ipv6Repr::parse(&out), Ok(ip));
        assert_eq!(out[..], bytes[..40]);
    }
    if let Ok(udp) = UdpRepr::parse(bytes) {
        let mut out = [0xA5; 8];
        udp.emit(&mut out);
        assert_eq!(UdpRepr::parse(&out), Ok(udp));
    }
    if let Ok((tag, next)) = VlanRepr::parse(bytes) {
        let mut out = [0xA5; 4];
        tag.emit(next, &mut out);
        assert_eq!(out[..], bytes[..4]);
    }
    if let Ok(reth) = RethRepr::parse(bytes) {
        let mut out = [0xA5; 16];
        reth.emit(&mut out);
        assert_eq!(out[..], bytes[..16]);
    }
    if let Ok(aeth) = AethRepr::parse(bytes) {
        let mut out = [0xA5; 4];
        aeth.emit(&mut out);
        assert_eq!(AethRepr::parse(&out), Ok(aeth));
    }
    if let Ok(link) = Link::parse(bytes) {
        assert!(link.header_len() <= bytes.len());
    }
}

/// The fields of one packet.
#[derive(Arbitrary, Debug)]
struct Fields {
    opcode: u8,
    v6: bool,
    addresses: [[u8; 16]; 2],
    ip: (u8, u32, u8),
    udp_src_port: u16,
    /// Solicited event, MigReq, FECN, BECN, AckReq.
    flags: [bool; 5],
    pkey: u16,
    numbers: [u32; 6],
    words: [u64; 4],
    syndrome: u8,
}

impl Fields {
    fn headers(&self) -> Option<Headers> {
        // FLUSH is read only: its own header has no field.
        let opcode = Opcode::from_byte(self.opcode).filter(|o| o.operation() != Some(Operation::Flush))?;
        let [solicited, migreq, fecn, becn, ack_req] = self.flags;
        let gid = |bytes: [u8; 16]| {
            let v4: [u8; 4] = [bytes[0], bytes[1], bytes[2], bytes[3]];
            if self.v6 { Gid(bytes) } else { Gid::from_ipv4(v4.into()) }
        };
        let (traffic_class, label, hop_limit) = self.ip;
        let [src, dst] = self.addresses.map(gid);
        let ip = IpRepr { src, dst, traffic_class, flow_label: if self.v6 { label & 0xF_FFFF } else { 0 }, hop_limit };
        // IPv4-mapped addresses do not go by IPv6.
        if self.v6 && (src.is_v4_mapped() || dst.is_v4_mapped()) {
            return None;
        }
        let [qpn, psn, rkey, len, msn, last] = self.numbers;
        let [va, swap_add, compare, original] = self.words;
        let has = |header| opcode.headers().contains(header);
        let (dest_qp, psn) = (Qpn::new(qpn), Psn::new(psn));
        let pkey = PKey(self.pkey);
        let bth = BthRepr { opcode, solicited, migreq, pad: 0, pkey, fecn, becn, dest_qp, ack_req, psn };
        let rkey = Rkey(rkey);
        let aeth = AethRepr { syndrome: Syndrome::from_byte(self.syndrome), msn: Msn::new(msn) };
        Some(Headers {
            ip,
            udp_src_port: self.udp_src_port,
            bth,
            reth: has(HeaderSet::RETH).then_some(RethRepr { va, rkey, len }),
            atomic_eth: has(HeaderSet::ATOMIC_ETH).then_some(AtomicEthRepr { va, rkey, swap_add, compare }),
            aeth: has(HeaderSet::AETH).then_some(aeth),
            atomic_ack: has(HeaderSet::ATOMIC_ACK).then_some(AtomicAckRepr { original }),
            imm: has(HeaderSet::IMM).then_some(ImmData(last)),
            ieth: has(HeaderSet::IETH).then_some(Rkey(last)),
            deth: has(HeaderSet::DETH).then_some(DethRepr { qkey: QKey(len), src_qp: Qpn::new(last) }),
        })
    }
}

/// emit, parse.
fn from_fields(fields: &Fields, rest: &[u8]) {
    let Some(headers) = fields.headers() else { return };
    let payload = if headers.bth.opcode.payload_rule() == PayloadRule::Empty { &[][..] } else { rest };
    let payload = &payload[..payload.len().min(MAX_PAYLOAD_LEN)];
    let written = write(&headers, payload);
    let pad = pad_len(payload.len()) as u8;
    assert_eq!(read(&written, payload), Headers { bth: BthRepr { pad, ..headers.bth }, ..headers });
}

/// Writes into a buffer of old bytes, of which none must remain.
fn write(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let [first, second] = [0x5A, 0xA5].map(|old| {
        let mut out = vec![old; headers.packet_len(payload.len()) + 8];
        let len = headers.emit_packet(payload, &mut out);
        assert_eq!(len + 8, out.len());
        assert!(out.drain(len..).all(|b| b == old), "wrote behind the packet");
        out
    });
    assert_eq!(first, second, "old bytes remain");
    first
}

fn read(bytes: &[u8], payload: &[u8]) -> Headers {
    let packet = Packet::new_checked(bytes, &[]).unwrap_or_else(|e| panic!("{e} in {bytes:02x?}"));
    assert!(packet.icrc_ok() && packet.pad_is_right());
    assert_eq!(packet.payload().0, payload);
    assert_eq!(packet.ip_len(), bytes.len());
    Headers::parse(&packet)
}
