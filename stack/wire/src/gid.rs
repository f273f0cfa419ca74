//! GIDs: the 128-bit addresses of InfiniBand ports, which in RoCE v2 are the IP addresses.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// A GID. An IPv4 address is its IPv4-mapped IPv6 form, and a mapped GID means IPv4 on the wire (IBTA annex A17).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// `::`, the GID of nobody.
    pub const UNSPECIFIED: Gid = Gid([0; 16]);

    /// `::ffff:a.b.c.d`.
    #[inline]
    pub const fn from_ipv4(a: Ipv4Addr) -> Gid {
        let [a, b, c, d] = a.octets();
        Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d])
    }

    /// The address as it stands.
    #[inline]
    pub const fn from_ipv6(a: Ipv6Addr) -> Gid {
        Gid(a.octets())
    }

    /// Either kind of address.
    // rule: gid.form
    pub const fn from_ip(a: IpAddr) -> Gid {
        match a {
            IpAddr::V4(a) => Gid::from_ipv4(a),
            IpAddr::V6(a) => Gid::from_ipv6(a),
        }
    }

    /// The IP address this GID is on the wire.
    #[inline]
    pub const fn to_ip(self) -> IpAddr {
        match self.to_ipv4() {
            Some(a) => IpAddr::V4(a),
            None => IpAddr::V6(Ipv6Addr::from_bits(u128::from_be_bytes(self.0))),
        }
    }

    /// The IPv4 address if this GID is IPv4-mapped.
    #[inline]
    pub const fn to_ipv4(self) -> Option<Ipv4Addr> {
        let g = &self.0;
        if self.is_v4_mapped() { Some(Ipv4Addr::new(g[12], g[13], g[14], g[15])) } else { None }
    }

    /// Whether this is `::ffff:a.b.c.d`.
    #[inline]
    pub const fn is_v4_mapped(self) -> bool {
        // As one number, the upper 96 bits of a mapped address are 0xFFFF.
        u128::from_be_bytes(self.0) >> 32 == 0xFFFF
    }

    /// Whether this is in `fe80::/10`.
    #[inline]
    // rule: path.link-local
    pub const fn is_link_local(self) -> bool {
        self.0[0] == 0xFE && self.0[1] & 0xC0 == 0x80
    }

    /// Whether the IP address is a multicast group.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        if self.is_v4_mapped() { self.0[12] & 0xF0 == 0xE0 } else { self.0[0] == 0xFF }
    }

    /// The 32 hex digits in which verbs tools (ibv_rc_pingpong, perftest) tell each other a GID.
    pub const fn to_hex32(self) -> Hex32 {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        let mut i = 0;
        while i < 16 {
            text[2 * i] = DIGITS[(self.0[i] >> 4) as usize];
            text[2 * i + 1] = DIGITS[(self.0[i] & 15) as usize];
            i += 1;
        }
        Hex32(text)
    }

    /// The GID written as 32 hex digits, either case.
    ///
    /// # Errors
    /// If there are not exactly 32 hex digits.
    pub fn from_hex32(text: &str) -> Result<Gid, ParseGidError> {
        let digits: &[u8; 32] = text.as_bytes().try_into().map_err(|_| ParseGidError::Hex)?;
        let mut gid = [0; 16];
        for (byte, pair) in gid.iter_mut().zip(digits.chunks_exact(2)) {
            for &digit in pair {
                let nibble = char::from(digit).to_digit(16).ok_or(ParseGidError::Hex)?;
                *byte = *byte << 4 | nibble as u8;
            }
        }
        Ok(Gid(gid))
    }
}

impl From<IpAddr> for Gid {
    fn from(a: IpAddr) -> Gid {
        Gid::from_ip(a)
    }
}

/// Prints the GID as IPv6 text, an IPv4-mapped one as `::ffff:192.0.2.1`.
impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

/// Reads IPv6 text, or dotted IPv4 text as the mapped GID.
impl FromStr for Gid {
    type Err = ParseGidError;

    fn from_str(text: &str) -> Result<Gid, ParseGidError> {
        text.parse().map(Gid::from_ip).map_err(|_| ParseGidError::Address)
    }
}

/// A GID as 32 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hex32([u8; 32]);

impl Hex32 {
    /// The digits as ASCII bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        // The bytes are hex digits by construction, so this never falls back.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Hex32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Text that is not a GID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum ParseGidError {
    /// Neither IPv6 nor IPv4 text.
    #[error("a GID is written as an IPv6 or IPv4 address, like ::ffff:192.0.2.1 or 192.0.2.1")]
    Address,
    /// Not 32 hex digits.
    #[error("a GID in wire form is exactly 32 hex digits")]
    Hex,
}
