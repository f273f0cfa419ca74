//! The headers that a UDP socket keeps to itself.
//!
//! In: datagrams with what the socket tells of them; frames of the engine. Out: frames as they would have been on a wire; datagrams
//! with an ICRC that holds for the headers the kernel will write.

use std::net::{IpAddr, SocketAddr};

use xroce_wire::{EtherType, Ethernet, EthernetRepr, ICRC_LEN, Icrc, Ipv4, Ipv4Repr, Ipv6, Ipv6Repr, Udp, UdpRepr};

use super::{ROCE_PORT, ident};

/// Bytes of an Ethernet header without a tag.
pub(super) const ETHERNET: usize = 14;
/// Ethernet, IPv6 and UDP: what lies in front of a datagram at most.
pub(super) const HEADERS_MAX: usize = ETHERNET + Ipv6Repr::LEN + UdpRepr::LEN;
/// Bytes of a BTH: the ICRC begins with the headers up to there.
const BTH: usize = 12;

/// There is no Ethernet here: a locally administered address stands for us.
pub(super) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// And one for everybody else, where the engine needs a next hop.
pub const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

const TTL: u8 = 64;

/// Writes headers in front of a datagram of `len` bytes at [`HEADERS_MAX`]; where the frame then begins and ends.
pub(super) fn put_in_front(buf: &mut [u8], len: usize, from: SocketAddr, to: IpAddr) -> (usize, usize) {
    let udp_at = HEADERS_MAX - UdpRepr::LEN;
    let udp_len = (UdpRepr::LEN + len) as u16;
    UdpRepr { src_port: from.port(), dst_port: ROCE_PORT, length: udp_len }.emit(&mut buf[udp_at..]);
    let end = HEADERS_MAX + len;
    let (ip_at, ethertype) = match (from.ip(), to) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let ip_at = udp_at - Ipv6Repr::LEN;
            Ipv6Repr { src, dst, traffic_class: 0, flow_label: 0, hop_limit: TTL, payload_len: udp_len }
                .emit(&mut buf[ip_at..]);
            (ip_at, EtherType::IPV6)
        }
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let ip_at = udp_at - Ipv4Repr::LEN;
            let total_len = Ipv4Repr::LEN as u16 + udp_len;
            let mut ip = Ipv4Repr { src, dst, traffic_class: 0, ttl: TTL, ident: 0, dont_fragment: true, total_len };
            ip.emit(&mut buf[ip_at..]);
            ip.ident = ident::solve(&mut buf[ip_at..end]).unwrap_or(0);
            ip.emit(&mut buf[ip_at..]);
            (ip_at, EtherType::IPV4)
        }
        // A socket that is bound to an address of one family receives no other.
        _ => return (HEADERS_MAX, end),
    };
    let start = ip_at - ETHERNET;
    EthernetRepr { dst: OUR_MAC, src: THEIR_MAC, ethertype }.emit(&mut buf[start..]);
    (start, end)
}

/// A frame without what the kernel writes itself.
pub(super) struct Outgoing<'a> {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    /// From the BTH to the ICRC.
    pub(super) datagram: &'a [u8],
}

/// Where the IP packet ends and the UDP header begins; None for what is no RoCE frame of the engine's.
fn layout(frame: &[u8]) -> Option<(usize, usize)> {
    let ip = frame.get(ETHERNET..)?;
    let header = match Ethernet::new_checked(frame).ok()?.ethertype() {
        EtherType::IPV4 => Ipv4Repr::LEN,
        EtherType::IPV6 => Ipv6Repr::LEN,
        _ => return None,
    };
    let udp = UdpRepr::parse(ip.get(header..)?).ok()?;
    let end = header + usize::from(udp.length);
    (end <= ip.len() && usize::from(udp.length) >= UdpRepr::LEN + BTH + ICRC_LEN)
        .then_some((ETHERNET + end, ETHERNET + header))
}

/// Addresses and datagram of a frame.
pub(super) fn strip(frame: &[u8]) -> Option<Outgoing<'_>> {
    let (end, udp_at) = layout(frame)?;
    let ip = &frame[ETHERNET..];
    let (from, to) = match udp_at - ETHERNET {
        Ipv4Repr::LEN => {
            let view = Ipv4::new_checked(ip).ok()?;
            (view.src().into(), view.dst().into())
        }
        _ => {
            let view = Ipv6::new_checked(ip).ok()?;
            (view.src().into(), view.dst().into())
        }
    };
    Some(Outgoing { from, to, datagram: &frame[udp_at + UdpRepr::LEN..end] })
}

/// Makes the ICRC hold for the source port that the socket has, whatever one the transport chose.
pub(super) fn fit_to_socket(frame: &mut [u8]) {
    let Some((end, udp_at)) = layout(frame) else { return };
    Udp::new_unchecked(&mut frame[udp_at..]).set_src_port(ROCE_PORT);
    let icrc = icrc(&frame[ETHERNET..end]);
    frame[end - ICRC_LEN..end].copy_from_slice(&icrc);
}

/// The ICRC that the packet, from the IP header to its own ICRC, should have.
pub(super) fn icrc(packet: &[u8]) -> [u8; ICRC_LEN] {
    let ip = if packet[0] >> 4 == 6 { Ipv6Repr::LEN } else { Ipv4Repr::LEN };
    let (headers, rest) = packet[..packet.len() - ICRC_LEN].split_at(ip + UdpRepr::LEN + BTH);
    let mut icrc = Icrc::begin(headers);
    icrc.update(rest);
    icrc.finish()
}
