//! Packets made by hand, right or bent on purpose.
//!
//! In: a description and who talks to whom. Out: the bytes from the IP header on. A packet is first made as a
//! well-behaved sender would, then bent, and the ICRC is computed over the result, so that only what the script bends is
//! wrong.

use xroce_transport::qp::state::QpType;
use xroce_wire::{
    AethRepr, AtomicAckRepr, AtomicEthRepr, BthRepr, DethRepr, Gid, Headers, Icrc, ImmData, IpRepr, Msn, Opcode,
    Operation, PKey, Psn, QKey, Qpn, RethRepr, Rkey, Syndrome, credit, pad_len,
};

use crate::expr::Num;
use crate::names::Answer;
use crate::packet::{Kind, PacketSpec, Service};

/// Who the script talks to, and as whom.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The script's address.
    pub src: Gid,
    /// The device's address.
    pub dst: Gid,
    /// The device's queue pair.
    pub dest_qp: Qpn,
    /// Its service.
    pub kind: QpType,
}

/// The region that packets of the script aim at when they say nothing else.
pub const DEFAULT_REGION: &str = "buf";

/// The bytes of a packet. `num` evaluates addresses (`false`) and keys (`true`).
pub fn packet(spec: &PacketSpec, route: &Route, num: impl Fn(&Num, bool) -> u64) -> Vec<u8> {
    let headers = headers(spec, route, num);
    let payload = spec.payload();
    let pad = spec.wire.pad.map_or(pad_len(payload.len()), usize::from);
    let body = payload.len() + pad;
    let header_len = headers.header_len();
    let mut bytes = vec![0; header_len + body + 4];
    headers.emit(payload.len(), &mut bytes);
    bytes[header_len..header_len + payload.len()].copy_from_slice(&payload);
    bend(spec, &headers, pad as u8, &mut bytes);
    set_icrc(spec, header_len, &mut bytes);
    finish(spec, headers.ip.is_ipv4(), &mut bytes);
    bytes
}

fn headers(spec: &PacketSpec, route: &Route, num: impl Fn(&Num, bool) -> u64) -> Headers {
    let ip = IpRepr {
        src: spec.wire.src.unwrap_or(route.src),
        dst: spec.wire.dst.unwrap_or(route.dst),
        traffic_class: spec.tos.unwrap_or(0),
        flow_label: spec.flow.unwrap_or(0),
        hop_limit: spec.hops.unwrap_or(64),
    };
    let service = spec.wire.service.unwrap_or(match route.kind {
        QpType::Rc => Service::Rc,
        QpType::Uc => Service::Uc,
    });
    let opcode = match (spec.kind.operation(), service) {
        (None, _) => Opcode::Cnp,
        (Some(operation), Service::Rc) => Opcode::Rc(operation),
        (Some(operation), Service::Uc) => Opcode::Uc(operation),
        (Some(operation), Service::Ud) => Opcode::Ud(operation),
    };
    let bth = BthRepr {
        opcode,
        solicited: spec.solicited.unwrap_or(false),
        migreq: spec.migreq.unwrap_or(true),
        pad: 0,
        pkey: PKey(spec.pkey.unwrap_or(0xFFFF)),
        fecn: spec.fecn.unwrap_or(false),
        becn: spec.becn.unwrap_or(spec.kind == Kind::Cnp),
        dest_qp: spec.dest_qp.map_or(route.dest_qp, Qpn::new),
        ack_req: spec.ack_req.unwrap_or(false),
        psn: Psn::new(spec.psn.unwrap_or(0)),
    };
    let mut headers = Headers::new(ip, spec.sport.unwrap_or(0xC123), bth);
    if let Some(operation) = spec.kind.operation() {
        extensions(&mut headers, operation, spec, num);
    }
    if service == Service::Ud {
        headers.deth = Some(DethRepr { qkey: QKey(0x11), src_qp: Qpn::new(0x22) });
    }
    headers
}

fn extensions(headers: &mut Headers, operation: Operation, spec: &PacketSpec, num: impl Fn(&Num, bool) -> u64) {
    let set = operation.headers();
    let target = Num::region(DEFAULT_REGION);
    let va = num(spec.va.as_ref().unwrap_or(&target), false);
    let rkey = Rkey(num(spec.rkey.as_ref().unwrap_or(&target), true) as u32);
    use xroce_wire::HeaderSet;
    if set.contains(HeaderSet::RETH) {
        let len = spec.dmalen.unwrap_or(spec.payload().len() as u32);
        headers.reth = Some(RethRepr { va, rkey, len });
    }
    if set.contains(HeaderSet::ATOMIC_ETH) {
        let swap_add = spec.swap.or(spec.add).unwrap_or(0);
        headers.atomic_eth = Some(AtomicEthRepr { va, rkey, swap_add, compare: spec.compare.unwrap_or(0) });
    }
    if set.contains(HeaderSet::AETH) {
        let usual = match spec.kind {
            Kind::Answer(Answer::RnrNak) => 0x2C,
            Kind::Answer(Answer::Nak) => 0x60,
            _ => credit::UNLIMITED,
        };
        let syndrome = Syndrome::from_byte(spec.syndrome.unwrap_or(usual));
        headers.aeth = Some(AethRepr { syndrome, msn: Msn::new(spec.msn.unwrap_or(0)) });
    }
    if set.contains(HeaderSet::ATOMIC_ACK) {
        headers.atomic_ack = Some(AtomicAckRepr { original: spec.orig.unwrap_or(0) });
    }
    if set.contains(HeaderSet::IMM) {
        headers.imm = Some(ImmData(spec.imm.unwrap_or(0)));
    }
    if set.contains(HeaderSet::IETH) {
        headers.ieth = Some(Rkey(num(spec.inv.as_ref().unwrap_or(&target), true) as u32));
    }
}

/// Puts into the headers what no well-behaved sender would.
fn bend(spec: &PacketSpec, headers: &Headers, pad: u8, bytes: &mut [u8]) {
    let wire = &spec.wire;
    let udp_at = headers.ip.header_len();
    let bth_at = udp_at + 8;
    let udp_len = (bytes.len() - udp_at) as i32;
    put_u16(bytes, udp_at + 4, (udp_len + wire.udp_len) as u16);
    let (length_at, ip_len) = if headers.ip.is_ipv4() { (2, bytes.len() as i32) } else { (4, udp_len) };
    put_u16(bytes, length_at, (ip_len + wire.ip_len) as u16);
    if let Some(port) = wire.dport {
        put_u16(bytes, udp_at + 2, port);
    }
    if let Some(sum) = wire.udp_sum {
        put_u16(bytes, udp_at + 6, sum);
    }
    if let Some(field) = wire.fragment.filter(|_| headers.ip.is_ipv4()) {
        put_u16(bytes, 6, field);
    }
    if let Some(opcode) = wire.opcode {
        bytes[bth_at] = opcode;
    }
    bytes[bth_at + 1] = bytes[bth_at + 1] & 0xCF | (pad & 3) << 4 | wire.tver.unwrap_or(0) & 0xF;
    bytes[bth_at + 4] |= wire.resv6.unwrap_or(0) & 0x3F;
    bytes[bth_at + 8] |= wire.resv7.unwrap_or(0) & 0x7F;
    if spec.kind == Kind::Cnp {
        bytes[bth_at + 1] &= 0xCF;
    }
    if headers.ip.is_ipv4() {
        set_ip_sum(bytes, 20);
    }
}

fn set_icrc(spec: &PacketSpec, header_len: usize, bytes: &mut [u8]) {
    let (data, place) = bytes.split_at_mut(bytes.len() - 4);
    let mut icrc = Icrc::begin(&data[..header_len]);
    icrc.update(&data[header_len..]);
    place.copy_from_slice(&icrc.finish());
    if spec.wire.bad_icrc {
        place[0] ^= 1;
    }
}

/// What happens to a finished packet on its way: options put in, bytes added or cut off, a spoilt checksum.
fn finish(spec: &PacketSpec, ipv4: bool, bytes: &mut Vec<u8>) {
    let wire = &spec.wire;
    if ipv4 && wire.options > 0 {
        // No-operation options, as many as fill words.
        let options = wire.options.next_multiple_of(4);
        bytes.splice(20..20, std::iter::repeat_n(1, options));
        bytes[0] = 0x45 + (options / 4) as u8;
        let total = bytes.len() as u16;
        put_u16(bytes, 2, total);
        set_ip_sum(bytes, 20 + options);
    }
    if ipv4 && wire.bad_ip_sum {
        bytes[10] ^= 0x40;
    }
    bytes.truncate(bytes.len() - wire.cut);
    bytes.extend(std::iter::repeat_n(0x5A, wire.junk));
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The header checksum of IPv4 (RFC 791).
fn set_ip_sum(bytes: &mut [u8], header: usize) {
    put_u16(bytes, 10, 0);
    let sum: u32 = bytes[..header].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let folded = (folded & 0xFFFF) + (folded >> 16);
    put_u16(bytes, 10, !(folded as u16));
}

#[cfg(test)]
mod tests {
    use super::*;
    use xroce_wire::Packet;

    fn route(kind: QpType) -> Route {
        let gid = |n| Gid::from_ip(core::net::IpAddr::from([10, 77, 0, n]));
        Route { src: gid(2), dst: gid(1), dest_qp: Qpn::new(0x11), kind }
    }

    #[test]
    fn unbent_packets_are_those_of_the_wire_crate() {
        for operation in [Operation::SendOnly, Operation::WriteOnlyImm, Operation::WriteMiddle] {
            for len in [0u32, 1, 2, 3, 4, 1024] {
                let mut spec = PacketSpec::new(Kind::Operation(operation));
                (spec.psn, spec.len) = (Some(7), Some(len));
                let made = packet(&spec, &route(QpType::Rc), |_, _| 5);
                let parsed = Packet::new_checked(&made, &[]).expect("well-formed");
                assert!(parsed.icrc_ok() && parsed.pad_is_right());
                let headers = Headers::parse(&parsed);
                let mut again = vec![0; headers.packet_len(len as usize)];
                headers.emit_packet(&spec.payload(), &mut again);
                assert_eq!(made, again, "{operation:?} {len}");
            }
        }
    }

    #[test]
    fn a_pad_that_does_not_fit_is_what_was_asked_for() {
        let mut spec = PacketSpec::new(Kind::Operation(Operation::SendOnly));
        (spec.len, spec.wire.pad) = (Some(6), Some(1));
        let made = packet(&spec, &route(QpType::Rc), |_, _| 0);
        let parsed = Packet::new_checked(&made, &[]).expect("well-formed but for the pad");
        assert!(parsed.icrc_ok() && !parsed.pad_is_right());
        assert_eq!((parsed.payload_len(), parsed.bth().pad), (6, 1));
    }
}
