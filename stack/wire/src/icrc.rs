//! The invariant CRC: what a RoCE packet carries at its end (IBTA 7.8.1, annex A17).
//!
//! CRC-32 as in Ethernet over 8 bytes of ones (where InfiniBand has its LRH), the headers with those fields replaced by ones
//! that routers may change, payload and pad; sent least significant byte first.

use crate::MAX_HEADER_LEN;
use crate::{bth, ipv4, ipv6, udp};

/// Bytes of the ICRC at the end of a packet.
pub const ICRC_LEN: usize = 4;

/// CRC-32 of the 8 bytes of ones (the register then holds its complement, 0xDEBB20E3).
const CRC_OF_ONES: u32 = !0xDEBB_20E3;

/// An ICRC in the making.
#[derive(Clone, Debug)]
pub struct Icrc {
    crc: crc32fast::Hasher,
}

impl Icrc {
    /// Starts with the headers of a packet: from the IP header to the last extension header or beyond (whatever follows the
    /// BTH is covered as it stands).
    ///
    /// # Panics
    /// If `headers` is shorter than IP, UDP and BTH (40 bytes for IPv4, 60 for IPv6).
    #[inline]
    pub fn begin(headers: &[u8]) -> Icrc {
        // Masked in a copy, headers and extension headers in one piece: short runs cost the CRC more than the copy does.
        let mut copy = [0u8; MAX_HEADER_LEN];
        let len = headers.len().min(MAX_HEADER_LEN);
        let (near, far) = headers.split_at(len);
        copy[..len].copy_from_slice(near);
        let masked = &mut copy[..len];
        if masked[0] >> 4 == 6 {
            mask_ipv6(masked)
        } else {
            mask_ipv4(masked)
        }
        let mut crc = crc32fast::Hasher::new_with_initial(CRC_OF_ONES);
        crc.update(masked);
        if !far.is_empty() {
            crc.update(far);
        }
        Icrc { crc }
    }

    /// Goes on with payload or pad; in pieces of any size.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
    }

    /// The four bytes as they go on the wire.
    #[inline]
    pub fn finish(self) -> [u8; ICRC_LEN] {
        self.crc.finalize().to_le_bytes()
    }
}

/// Ones for type of service, time to live, header checksum, UDP checksum and the BTH's congestion byte.
#[inline]
fn mask_ipv4(h: &mut [u8]) {
    let h = &mut h[..ipv4::LEN + udp::LEN + bth::LEN];
    h[1] = 0xFF;
    h[8] = 0xFF;
    h[10] = 0xFF;
    h[11] = 0xFF;
    mask_udp_bth(&mut h[ipv4::LEN..]);
}

/// Ones for traffic class, flow label, hop limit, UDP checksum and the BTH's congestion byte.
#[inline]
fn mask_ipv6(h: &mut [u8]) {
    let h = &mut h[..ipv6::LEN + udp::LEN + bth::LEN];
    h[0] |= 0x0F;
    h[1] = 0xFF;
    h[2] = 0xFF;
    h[3] = 0xFF;
    h[7] = 0xFF;
    mask_udp_bth(&mut h[ipv6::LEN..]);
}

#[inline]
fn mask_udp_bth(h: &mut [u8]) {
    h[6] = 0xFF;
    h[7] = 0xFF;
    h[udp::LEN + 4] = 0xFF;
}
