//! For decoders: everything that can be read of a packet, be it broken or cut short.
//!
//! In: captured bytes from the IP header on. Out: each header as far as the bytes go, and the verdict a receiver would give.

use crate::ROCE_PORT;
use crate::bth::Bth;
use crate::error::WireError;
use crate::ip::IpRepr;
use crate::ipv4::{self, Ipv4, PROTOCOL_UDP};
use crate::ipv6::{self, Ipv6, NEXT_HEADER_UDP};
use crate::packet::Packet;
use crate::udp::UdpRepr;

/// What there is to say about captured bytes. A header is `None` if the bytes end before it does or it is not there at all.
#[derive(Clone, Copy, Debug)]
pub struct Dissection<'a> {
    /// The IP header, its checksum and length fields not judged.
    pub ip: Option<IpRepr>,
    /// The UDP header; none behind IPv6 extension headers or in a later fragment.
    pub udp: Option<UdpRepr>,
    /// The BTH, if UDP goes to the RoCE port. Its opcode may be unknown.
    pub bth: Option<Bth<&'a [u8]>>,
    /// The packet, or the first field that makes it none. Truncated captures are fine, see [`Packet::new_truncated`].
    pub packet: Result<Packet<'a>, WireError>,
}

/// Reads captured bytes, from the IP header on, as far as they go. Never panics.
pub fn dissect(captured: &[u8]) -> Dissection<'_> {
    let (ip, udp_at) = read_ip(captured);
    let udp_bytes = udp_at.and_then(|at| captured.get(at..));
    let udp = udp_bytes.and_then(|bytes| UdpRepr::parse(bytes).ok());
    let bth = match (udp, udp_bytes) {
        (Some(UdpRepr { dst_port: ROCE_PORT, .. }), Some(bytes)) => Bth::new_checked(&bytes[UdpRepr::LEN..]).ok(),
        _ => None,
    };
    Dissection { ip, udp, bth, packet: Packet::new_truncated(captured) }
}

/// The IP header, and where UDP begins if it is next.
fn read_ip(bytes: &[u8]) -> (Option<IpRepr>, Option<usize>) {
    match bytes.first().map(|b| b >> 4) {
        Some(4) => {
            let Ok(ip) = Ipv4::new_checked(bytes) else { return (None, None) };
            let header = usize::from(ip.ihl()) * 4;
            let udp_next = ip.protocol() == PROTOCOL_UDP && header >= ipv4::LEN && ip.fragment_offset() == 0;
            (Some(IpRepr::of_ipv4(&ip)), udp_next.then_some(header))
        }
        Some(6) => {
            let Ok(ip) = Ipv6::new_checked(bytes) else { return (None, None) };
            (Some(IpRepr::of_ipv6(&ip)), (ip.next_header() == NEXT_HEADER_UDP).then_some(ipv6::LEN))
        }
        _ => (None, None),
    }
}
