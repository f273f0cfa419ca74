//! The invariant CRC: what a RoCE packet carries at its end (IBTA annex A17).
//!
//! CRC-32 as in Ethernet over 8 bytes of ones (where InfiniBand has its LRH), the headers with those fields replaced by ones
//! that routers may change, payload and pad; sent least significant byte first.

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
    /// Starts with the headers of a packet, from the IP header on, and as much of what follows as lies in the same piece:
    /// behind the BTH everything is covered as it stands.
    ///
    /// # Panics
    /// If `bytes` are shorter than IP, UDP and BTH (40 bytes for IPv4, 60 for IPv6).
    #[inline]
    // rule: icrc.coverage
    pub fn begin(bytes: &[u8]) -> Icrc {
        if bytes[0] >> 4 == 6 { masked(bytes, &MASK_IPV6) } else { masked(bytes, &MASK_IPV4) }
    }

    /// As [`begin`](Self::begin), with headers that have ones already in all that the ICRC does not cover, as
    /// [`Template::emit_covered`](crate::Template::emit_covered) writes them.
    #[inline]
    pub fn begin_covered(bytes: &[u8]) -> Icrc {
        let mut crc = begun();
        crc.update(bytes);
        Icrc { crc }
    }

    /// Goes on with payload or pad; in pieces of any size.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        // A second piece and pad are mostly empty, and a call for nothing costs as much as one for 64 bytes.
        if !bytes.is_empty() {
            self.crc.update(bytes);
        }
    }

    /// The four bytes as they go on the wire.
    #[inline]
    // rule: icrc.order
    pub fn finish(self) -> [u8; ICRC_LEN] {
        self.crc.finalize().to_le_bytes()
    }
}

/// A CRC after the 8 bytes of ones. Which SIMD code to use is asked once, not for every packet.
#[cfg(feature = "std")]
#[inline]
fn begun() -> crc32fast::Hasher {
    use std::sync::LazyLock;
    static BEGUN: LazyLock<crc32fast::Hasher> = LazyLock::new(|| crc32fast::Hasher::new_with_initial(CRC_OF_ONES));
    BEGUN.clone()
}

/// A CRC after the 8 bytes of ones.
#[cfg(not(feature = "std"))]
#[inline]
fn begun() -> crc32fast::Hasher {
    crc32fast::Hasher::new_with_initial(CRC_OF_ONES)
}

/// The most bytes behind the BTH that are worth a copy: for so few each call of the CRC costs more.
const SHORT: usize = 128;

/// Starts the CRC with `bytes`, whose first `N` are or-ed with `mask`.
///
/// Masked in a copy on the stack; of a short packet all is copied, so that the CRC is called once. The or is a fixed-length
/// loop, which becomes a few vector operations; single byte stores here would stall the vector loads of the CRC.
#[inline]
// rule: icrc.mask
fn masked<const N: usize>(bytes: &[u8], mask: &[u8; N]) -> Icrc {
    let (fixed, rest) = bytes.split_at(N);
    let mut copy = [0u8; MASK_IPV6.len() + SHORT];
    for ((to, from), mask) in copy[..N].iter_mut().zip(fixed).zip(mask) {
        *to = from | mask;
    }
    let mut crc = begun();
    if rest.len() <= SHORT {
        copy[N..N + rest.len()].copy_from_slice(rest);
        crc.update(&copy[..bytes.len()]);
    } else {
        crc.update(&copy[..N]);
        crc.update(rest);
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
