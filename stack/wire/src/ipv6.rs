//! The IPv6 header (RFC 8200), followed by UDP at once: RoCE v2 packets carry no extension headers.

use core::net::Ipv6Addr;

use crate::error::{Field, Reason, WireError};
use crate::gid::Gid;
use crate::octets::{get_array, get_u16, get_u32, put_u16, put_u32};

/// Bytes of the header.
pub const LEN: usize = 40;
/// The next-header number of UDP.
pub const NEXT_HEADER_UDP: u8 = 17;

mod field {
    /// Version, traffic class, flow label.
    pub const FIRST_WORD: usize = 0;
    pub const PAYLOAD_LENGTH: usize = 4;
    pub const NEXT_HEADER: usize = 6;
    pub const HOP_LIMIT: usize = 7;
    pub const SRC: usize = 8;
    pub const DST: usize = 24;
}

/// Where the payload length stands, in bytes from the start of the header.
pub(crate) const PAYLOAD_LEN_AT: usize = field::PAYLOAD_LENGTH;
/// Where the hop limit stands.
pub(crate) const HOP_LIMIT_AT: usize = field::HOP_LIMIT;

const FLOW_LABEL: u32 = 0xF_FFFF;

header_view! {
    /// A view over an IPv6 header.
    Ipv6, LEN, Field::Ipv6Header
}

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// IP version, 6.
    #[inline]
    pub fn version(&self) -> u8 {
        self.data()[field::FIRST_WORD] >> 4
    }

    /// Traffic class: DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (get_u32(self.data(), field::FIRST_WORD) >> 20) as u8
    }

    /// Flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        get_u32(self.data(), field::FIRST_WORD) & FLOW_LABEL
    }

    /// Bytes after this header.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        get_u16(self.data(), field::PAYLOAD_LENGTH)
    }

    /// What follows this header.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.data()[field::NEXT_HEADER]
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.data()[field::HOP_LIMIT]
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(get_array::<16>(self.data(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(get_array::<16>(self.data(), field::DST))
    }

    /// What a RoCE v2 receiver demands of the header by itself: version, UDP next, and no IPv4-mapped address. A mapped GID
    /// is an IPv4 peer (IBTA annex A17); taken from an IPv6 header it would let one host pass for another.
    ///
    /// # Errors
    /// The first field that is wrong.
    #[inline]
    // rule: wire.ip
    pub fn check(&self) -> Result<(), WireError> {
        if self.version() != 6 {
            return Err(WireError::unsupported(Field::IpVersion, self.version().into(), "4 or 6"));
        }
        if self.next_header() != NEXT_HEADER_UDP {
            let accepted = "17 (UDP): RoCE v2 packets carry no extension headers";
            return Err(WireError::unsupported(Field::Ipv6NextHeader, self.next_header().into(), accepted));
        }
        if Gid::from_ipv6(self.src()).is_v4_mapped() || Gid::from_ipv6(self.dst()).is_v4_mapped() {
            return Err(WireError { field: Field::Ipv6Address, reason: Reason::MappedAddress });
        }
        Ok(())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    /// Sets the first word: version 6, traffic class, the low 20 bits of the flow label.
    #[inline]
    pub fn set_class_and_label(&mut self, traffic_class: u8, flow_label: u32) {
        let word = 6 << 28 | u32::from(traffic_class) << 20 | flow_label & FLOW_LABEL;
        put_u32(self.data_mut(), field::FIRST_WORD, word);
    }

    /// Sets how many bytes follow this header.
    #[inline]
    pub fn set_payload_len(&mut self, len: u16) {
        put_u16(self.data_mut(), field::PAYLOAD_LENGTH, len);
    }

    /// Sets what follows this header.
    #[inline]
    pub fn set_next_header(&mut self, next: u8) {
        self.data_mut()[field::NEXT_HEADER] = next;
    }

    /// Sets the hop limit.
    #[inline]
    pub fn set_hop_limit(&mut self, limit: u8) {
        self.data_mut()[field::HOP_LIMIT] = limit;
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, a: Ipv6Addr) {
        self.data_mut()[field::SRC..field::SRC + 16].copy_from_slice(&a.octets());
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, a: Ipv6Addr) {
        self.data_mut()[field::DST..field::DST + 16].copy_from_slice(&a.octets());
    }
}

/// An IPv6 header as a value, with UDP next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6Repr {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Bytes after this header.
    pub payload_len: u16,
}

impl Ipv6Repr {
    /// Bytes of the header.
    pub const LEN: usize = LEN;

    /// Reads and checks a header at the start of `bytes`.
    ///
    /// # Errors
    /// Too few bytes, or what [`Ipv6::check`] finds.
    pub fn parse(bytes: &[u8]) -> Result<Ipv6Repr, WireError> {
        let view = Ipv6::new_checked(bytes)?;
        view.check()?;
        Ok(Ipv6Repr {
            src: view.src(),
            dst: view.dst(),
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            hop_limit: view.hop_limit(),
            payload_len: view.payload_len(),
        })
    }

    /// Writes the header to the first 40 bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) {
        let mut view = Ipv6::new_unchecked(&mut buf[..LEN]);
        view.set_class_and_label(self.traffic_class, self.flow_label);
        view.set_payload_len(self.payload_len);
        view.set_next_header(NEXT_HEADER_UDP);
        view.set_hop_limit(self.hop_limit);
        view.set_src(self.src);
        view.set_dst(self.dst);
    }
}
