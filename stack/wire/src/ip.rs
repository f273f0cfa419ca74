//! The IP header as the transport sees it: GIDs, whichever family is on the wire.

use core::net::Ipv4Addr;

use crate::gid::Gid;
use crate::ipv4::{self, Ipv4, Ipv4Repr};
use crate::ipv6::{self, Ipv6};
use crate::octets::get_array;

/// An IP header of either family. IPv4-mapped GIDs at both ends mean IPv4 on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IpRepr {
    /// Source.
    pub src: Gid,
    /// Destination.
    pub dst: Gid,
    /// DSCP (upper 6 bits) and ECN (lower 2 bits).
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits; 0 when read from IPv4, not sent with it.
    pub flow_label: u32,
    /// Hop limit or time to live.
    pub hop_limit: u8,
}

impl IpRepr {
    /// Whether the packet is IPv4 on the wire.
    #[inline]
    pub const fn is_ipv4(&self) -> bool {
        self.src.is_v4_mapped() && self.dst.is_v4_mapped()
    }

    /// Bytes of the IP header: 20 or 40.
    #[inline]
    pub const fn header_len(&self) -> usize {
        if self.is_ipv4() { ipv4::LEN } else { ipv6::LEN }
    }

    /// ECN bits say "congestion experienced" (RFC 3168).
    #[inline]
    pub const fn is_ce(&self) -> bool {
        self.traffic_class & 3 == 3
    }

    /// The value of an IPv4 header.
    #[inline]
    pub(crate) fn of_ipv4<T: AsRef<[u8]>>(view: &Ipv4<T>) -> IpRepr {
        IpRepr {
            src: Gid::from_ipv4(view.src()),
            dst: Gid::from_ipv4(view.dst()),
            traffic_class: view.traffic_class(),
            flow_label: 0,
            hop_limit: view.ttl(),
        }
    }

    /// The value of an IPv6 header.
    #[inline]
    pub(crate) fn of_ipv6<T: AsRef<[u8]>>(view: &Ipv6<T>) -> IpRepr {
        IpRepr {
            src: Gid::from_ipv6(view.src()),
            dst: Gid::from_ipv6(view.dst()),
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            hop_limit: view.hop_limit(),
        }
    }

    /// Writes the IP header in front of a UDP datagram of `udp_len` bytes, UDP header included. IPv4: ID 0, DF 1.
    ///
    /// # Panics
    /// If `buf` is shorter than [`header_len`](Self::header_len).
    #[inline]
    pub fn emit(&self, udp_len: u16, buf: &mut [u8]) {
        if self.is_ipv4() {
            let repr = Ipv4Repr {
                src: low_four(self.src),
                dst: low_four(self.dst),
                traffic_class: self.traffic_class,
                ttl: self.hop_limit,
                ident: 0,
                dont_fragment: true,
                total_len: udp_len + ipv4::LEN as u16,
            };
            repr.emit(buf);
        } else {
            let repr = ipv6::Ipv6Repr {
                src: self.src.0.into(),
                dst: self.dst.0.into(),
                traffic_class: self.traffic_class,
                flow_label: self.flow_label,
                hop_limit: self.hop_limit,
                payload_len: udp_len,
            };
            repr.emit(buf);
        }
    }
}

#[inline]
fn low_four(gid: Gid) -> Ipv4Addr {
    Ipv4Addr::from(get_array::<4>(&gid.0, 12))
}
