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
        if headers[0] >> 4 == 6 { masked(headers, &MASK_IPV6) } else { masked(headers, &MASK_IPV4) }
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

/// Starts the CRC with `headers`, whose first `N` bytes are or-ed with `mask`.
///
/// Masked in a copy on the stack, with the extension headers in the same piece: for so few bytes each call of the CRC costs
/// more than a copy. The or is a fixed-length loop, which becomes a few vector operations; single byte stores here would
/// stall the vector loads of the CRC.
#[inline]
fn masked<const N: usize>(headers: &[u8], mask: &[u8; N]) -> Icrc {
    let mut copy = [0u8; MAX_HEADER_LEN];
    let (near, far) = headers.split_at(headers.len().min(MAX_HEADER_LEN));
    let (fixed, extension) = near.split_at(N);
    for ((to, from), mask) in copy[..N].iter_mut().zip(fixed).zip(mask) {
        *to = from | mask;
    }
    copy[N..near.len()].copy_from_slice(extension);
    let mut crc = crc32fast::Hasher::new_with_initial(CRC_OF_ONES);
    crc.update(&copy[..near.len()]);
    if !far.is_empty() {
        crc.update(far);
    }
    Icrc { crc }
}

/// What the ICRC does not cover of the bytes from the IP header to the BTH: ones for such bits.
pub(crate) fn masked_bytes(v6: bool) -> &'static [u8] {
    if v6 { &MASK_IPV6 } else { &MASK_IPV4 }
}

/// Ones for type of service, time to live, header checksum, UDP checksum and the BTH's congestion byte.
static MASK_IPV4: [u8; ipv4::LEN + udp::LEN + bth::LEN] = {
    let mut mask = [0; ipv4::LEN + udp::LEN + bth::LEN];
    mask[1] = 0xFF;
    mask[8] = 0xFF;
    mask[10] = 0xFF;
    mask[11] = 0xFF;
    mask_udp_bth(mask, ipv4::LEN)
};

/// Ones for traffic class, flow label, hop limit, UDP checksum and the BTH's congestion byte.
static MASK_IPV6: [u8; ipv6::LEN + udp::LEN + bth::LEN] = {
    let mut mask = [0; ipv6::LEN + udp::LEN + bth::LEN];
    mask[0] = 0x0F;
    mask[1] = 0xFF;
    mask[2] = 0xFF;
    mask[3] = 0xFF;
    mask[7] = 0xFF;
    mask_udp_bth(mask, ipv6::LEN)
};

const fn mask_udp_bth<const N: usize>(mut mask: [u8; N], udp_at: usize) -> [u8; N] {
    mask[udp_at + 6] = 0xFF;
    mask[udp_at + 7] = 0xFF;
    mask[udp_at + udp::LEN + 4] = 0xFF;
    mask
}
