//! The link header of a path. In: a next hop. Out: the bytes that stand in front of the IP header.

#![forbid(unsafe_code)]

use xroce_wire::{EtherType, Gid, Link, VlanRepr};

use crate::nexthop::NextHop;

/// Ethernet header with an 802.1Q tag.
const MAX_LEN: usize = 18;

/// A prebuilt Ethernet header, with an 802.1Q tag where the interface is a VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct L2Header {
    bytes: [u8; MAX_LEN],
    len: u8,
}

impl L2Header {
    /// The header for packets to `dst` by way of `hop`. The tag's priority is the low three bits of the service level,
    /// as mlx5 maps it.
    pub fn new(hop: &NextHop, dst: Gid, sl: u8) -> L2Header {
        let tag = hop.vlan.map(|vid| VlanRepr { pcp: sl & 7, dei: false, vid });
        let ethertype = if dst.is_v4_mapped() { EtherType::IPV4 } else { EtherType::IPV6 };
        let link = Link { dst: hop.dst_mac.0, src: hop.src_mac.0, tags: [tag, None], ethertype };
        let mut bytes = [0; MAX_LEN];
        link.emit(&mut bytes);
        L2Header { bytes, len: link.header_len() as u8 }
    }

    /// The header's bytes, 14 or 18.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    /// Bytes of the header, 14 or 18.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        usize::from(self.len).min(MAX_LEN)
    }

    /// Writes the header to the start of a frame; gives the rest of it.
    ///
    /// # Panics
    /// If the frame is shorter than 18 bytes, which no RoCE packet in a frame is.
    #[inline]
    pub fn put<'a>(&self, frame: &'a mut [u8]) -> &'a mut [u8] {
        // Always 18 bytes, as a copy of constant length is two moves and any other a call: the packet is written over the rest.
        frame[..MAX_LEN].copy_from_slice(&self.bytes);
        &mut frame[self.len()..]
    }
}
