//! One frame's IP packet: bytes from the IP header on enter, a verdict leaves: no RoCE v2, malformed, or its headers.
//!
//! A RoCE v2 packet is UDP to port 4791 over IPv4 or IPv6, also where a receiver would drop it: one with IPv4 options,
//! with IPv6 extension headers, or the first fragment of a larger one is shown as malformed, with the field at fault.
//! Later fragments have no ports and are passed over. A wrong IPv4 header checksum is told but not held against the
//! packet, since captures taken on the sending host may precede its calculation.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use xroce_wire::{Field, HeaderSet, Headers, Packet, ROCE_PORT, Reason, WireError};

const UDP: u8 = 17;
const UDP_LEN: usize = 8;
const BTH_LEN: usize = 12;
/// Bytes of the largest IP packet: an IPv6 header and 65,535 bytes behind it.
const MAX_IP_PACKET: usize = 40 + 65_535;

/// Who sent a packet to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// UDP source port.
    pub sport: u16,
}

/// What a frame turned out to be.
#[derive(Debug)]
pub enum Verdict {
    /// Not UDP to port 4791.
    NotRoce,
    /// RoCE v2 by its port, but no valid packet.
    Malformed(Ends, WireError),
    /// A packet, perhaps with a bad ICRC, perhaps cut short.
    Packet(Ends, Box<Decoded>),
}

/// A packet that is not malformed.
#[derive(Debug)]
pub struct Decoded {
    /// Its headers, without those extension headers that the capture cut off; `None` if the BTH itself is cut.
    pub headers: Option<Headers>,
    /// Bytes of payload without pad, also of what the capture cut off.
    pub payload_len: usize,
    /// Whether the ICRC is right; `None` if the capture cut off bytes that it covers.
    pub icrc_ok: Option<bool>,
    /// The IPv4 header checksum is wrong.
    pub bad_ip_checksum: bool,
}

/// Decodes one IP packet. `original_len` is what it had on the wire (with any link-layer padding), `ip` what was captured.
pub fn decode(ip: &[u8], original_len: usize) -> Verdict {
    let Some((ends, udp_at)) = find_roce(ip) else { return Verdict::NotRoce };
    let cut = ip.len() < original_len;
    if cut && ip.len() < udp_at + UDP_LEN {
        let decoded = Decoded { headers: None, payload_len: 0, icrc_ok: None, bad_ip_checksum: false };
        return Verdict::Packet(ends, Box::new(decoded));
    }
    let mut bytes = Cow::Borrowed(ip);
    if cut {
        // Zeroes stand in for what was cut off, so that the lengths are judged as they were on the wire.
        bytes.to_mut().resize(ip.len().max(original_len.min(MAX_IP_PACKET)), 0);
    }
    let bad_ip_checksum = match Packet::new_checked(&bytes, &[]) {
        Err(WireError { field: Field::Ipv4Checksum, reason: Reason::BadChecksum { right, .. } }) => {
            bytes.to_mut()[10..12].copy_from_slice(&right.to_be_bytes());
            true
        }
        _ => false,
    };
    let packet = match Packet::new_checked(&bytes, &[]) {
        Ok(packet) => packet,
        Err(error) => return Verdict::Malformed(ends, error),
    };
    let complete = ip.len() >= ip_len(ip);
    let decoded = Decoded {
        headers: captured_headers(Headers::parse(&packet), ip.len(), udp_at + UDP_LEN),
        payload_len: packet.payload_len(),
        icrc_ok: complete.then(|| packet.icrc_ok()),
        bad_ip_checksum,
    };
    Verdict::Packet(ends, Box::new(decoded))
}

/// Takes away what does not lie whole in the first `captured` bytes; the BTH begins at `bth_at`.
fn captured_headers(mut headers: Headers, captured: usize, bth_at: usize) -> Option<Headers> {
    let mut end = bth_at + BTH_LEN;
    if captured < end {
        return None;
    }
    let set = headers.bth.opcode.headers();
    let mut here = |header: HeaderSet| {
        end += if set.contains(header) { header.byte_len() } else { 0 };
        captured >= end
    };
    // In the order in which they stand on the wire.
    headers.deth = headers.deth.filter(|_| here(HeaderSet::DETH));
    let _ = here(HeaderSet::FETH);
    headers.reth = headers.reth.filter(|_| here(HeaderSet::RETH));
    headers.atomic_eth = headers.atomic_eth.filter(|_| here(HeaderSet::ATOMIC_ETH));
    headers.aeth = headers.aeth.filter(|_| here(HeaderSet::AETH));
    headers.atomic_ack = headers.atomic_ack.filter(|_| here(HeaderSet::ATOMIC_ACK));
    headers.imm = headers.imm.filter(|_| here(HeaderSet::IMM));
    headers.ieth = headers.ieth.filter(|_| here(HeaderSet::IETH));
    Some(headers)
}

/// Bytes of the IP packet by its own length field. The header is known to be there.
fn ip_len(ip: &[u8]) -> usize {
    let field = |at: usize| usize::from(u16::from_be_bytes([ip[at], ip[at + 1]]));
    if ip[0] >> 4 == 4 { field(2) } else { 40 + field(4) }
}

/// The ends of a packet to UDP port 4791 and the offset of its UDP header; `None` for all others.
fn find_roce(ip: &[u8]) -> Option<(Ends, usize)> {
    let (src, dst, udp_at) = match ip.first()? >> 4 {
        4 => {
            let header = ip.get(..20)?;
            let fragment_offset = u16::from_be_bytes([header[6], header[7]]) & 0x1FFF;
            let header_len = usize::from(header[0] & 0x0F) * 4;
            if header[9] != UDP || fragment_offset != 0 || header_len < 20 {
                return None;
            }
            (IpAddr::from(v4(header, 12)), IpAddr::from(v4(header, 16)), header_len)
        }
        6 => {
            let header = ip.get(..40)?;
            (IpAddr::from(v6(header, 8)), IpAddr::from(v6(header, 24)), behind_extensions(ip)?)
        }
        _ => return None,
    };
    let ports = ip.get(udp_at..udp_at + 4)?;
    let sport = u16::from_be_bytes([ports[0], ports[1]]);
    let dport = u16::from_be_bytes([ports[2], ports[3]]);
    (dport == ROCE_PORT).then_some((Ends { src, dst, sport }, udp_at))
}

/// Where UDP begins in an IPv6 packet, behind any extension headers (RFC 8200 section 4); `None` if it does not.
fn behind_extensions(ip: &[u8]) -> Option<usize> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;
    let (mut kind, mut at) = (ip[6], 40);
    loop {
        let header_len = match kind {
            UDP => return Some(at),
            HOP_BY_HOP | ROUTING | DESTINATION => 8 + usize::from(*ip.get(at + 1)?) * 8,
            FRAGMENT if u16::from_be_bytes([*ip.get(at + 2)?, *ip.get(at + 3)?]) >> 3 == 0 => 8,
            _ => return None,
        };
        kind = *ip.get(at)?;
        at += header_len;
    }
}

fn v4(header: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::from([0, 1, 2, 3].map(|i| header[at + i]))
}

fn v6(header: &[u8], at: usize) -> Ipv6Addr {
    Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| header[at + i]))
}
