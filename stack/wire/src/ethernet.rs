//! The Ethernet II header (IEEE 802.3), and the MAC addresses of multicast groups.

use core::fmt;
use core::net::IpAddr;

use crate::error::{Field, WireError};
use crate::octets::{get_array, get_u16, put_u16};

/// Bytes of the header, without FCS.
pub const LEN: usize = 14;

mod field {
    pub const DST: usize = 0;
    pub const SRC: usize = 6;
    pub const ETHERTYPE: usize = 12;
}

/// What follows an Ethernet header or a VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP.
    pub const ARP: EtherType = EtherType(0x0806);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86DD);
    /// An 802.1Q tag.
    pub const VLAN: EtherType = EtherType(0x8100);
    /// An 802.1ad service tag: the outer of two.
    pub const SERVICE_VLAN: EtherType = EtherType(0x88A8);

    /// Whether a tag follows.
    #[inline]
    pub const fn is_tag(self) -> bool {
        matches!(self, EtherType::VLAN | EtherType::SERVICE_VLAN)
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

header_view! {
    /// A view over an Ethernet header.
    Ethernet, LEN, Field::Ethernet
}

impl<T: AsRef<[u8]>> Ethernet<T> {
    /// Destination MAC address.
    #[inline]
    pub fn dst(&self) -> [u8; 6] {
        get_array(self.data(), field::DST)
    }

    /// Source MAC address.
    #[inline]
    pub fn src(&self) -> [u8; 6] {
        get_array(self.data(), field::SRC)
    }

    /// What follows.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(get_u16(self.data(), field::ETHERTYPE))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ethernet<T> {
    /// Sets the destination MAC address.
    #[inline]
    pub fn set_dst(&mut self, mac: [u8; 6]) {
        self.data_mut()[field::DST..field::DST + 6].copy_from_slice(&mac);
    }

    /// Sets the source MAC address.
    #[inline]
    pub fn set_src(&mut self, mac: [u8; 6]) {
        self.data_mut()[field::SRC..field::SRC + 6].copy_from_slice(&mac);
    }

    /// Sets what follows.
    #[inline]
    pub fn set_ethertype(&mut self, ethertype: EtherType) {
        put_u16(self.data_mut(), field::ETHERTYPE, ethertype.0);
    }
}

/// An Ethernet header as a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EthernetRepr {
    /// Destination MAC address.
    pub dst: [u8; 6],
    /// Source MAC address.
    pub src: [u8; 6],
    /// What follows.
    pub ethertype: EtherType,
}

impl EthernetRepr {
    /// Bytes of the header.
    pub const LEN: usize = LEN;

    /// Reads a header from the start of `bytes`.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<EthernetRepr, WireError> {
        let view = Ethernet::new_checked(bytes)?;
        Ok(EthernetRepr { dst: view.dst(), src: view.src(), ethertype: view.ethertype() })
    }

    /// Writes the header to the first 14 bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) {
        let mut view = Ethernet::new_unchecked(&mut buf[..LEN]);
        view.set_dst(self.dst);
        view.set_src(self.src);
        view.set_ethertype(self.ethertype);
    }
}

/// The MAC address of a multicast group: 01:00:5e and the low 23 bits of an IPv4 group (RFC 1112), 33:33 and the low 32 bits
/// of an IPv6 group (RFC 2464); `None` if the address is no group.
pub const fn multicast_mac(group: IpAddr) -> Option<[u8; 6]> {
    match group {
        IpAddr::V4(a) if a.is_multicast() => {
            let [_, b, c, d] = a.octets();
            Some([0x01, 0x00, 0x5E, b & 0x7F, c, d])
        }
        IpAddr::V6(a) if a.is_multicast() => {
            let a = a.octets();
            Some([0x33, 0x33, a[12], a[13], a[14], a[15]])
        }
        _ => None,
    }
}
