//! Everything before the IP header: Ethernet and up to two VLAN tags.
//!
//! In: a frame. Out: addresses, tags, and where the IP header begins.

use crate::error::{Field, WireError};
use crate::ethernet::{self, EtherType, EthernetRepr};
use crate::vlan::{self, VlanRepr};

/// The longest link header: Ethernet and two tags, 22 bytes.
pub const MAX_LEN: usize = ethernet::LEN + 2 * vlan::LEN;

/// The link header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Link {
    /// Destination MAC address.
    pub dst: [u8; 6],
    /// Source MAC address.
    pub src: [u8; 6],
    /// VLAN tags, outermost first; a second without a first does not exist and is not sent.
    pub tags: [Option<VlanRepr>; 2],
    /// What follows the last tag.
    pub ethertype: EtherType,
}

impl Link {
    /// Reads the link header of a frame. A third tag is not read; `ethertype` then says that one follows.
    ///
    /// # Errors
    /// The frame ends inside the Ethernet header or a tag. Any EtherType is fine here.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Link, WireError> {
        let ethernet = EthernetRepr::parse(frame)?;
        let mut link = Link { dst: ethernet.dst, src: ethernet.src, tags: [None; 2], ethertype: ethernet.ethertype };
        let mut at = ethernet::LEN;
        for slot in &mut link.tags {
            if !link.ethertype.is_tag() {
                break;
            }
            let (tag, next) = VlanRepr::parse(&frame[at..])?;
            *slot = Some(tag);
            link.ethertype = next;
            at += vlan::LEN;
        }
        Ok(link)
    }

    /// As [`parse`](Self::parse), for frames that must carry IP.
    ///
    /// # Errors
    /// As there, and any EtherType but IPv4 and IPv6.
    #[inline]
    pub fn parse_ip(frame: &[u8]) -> Result<Link, WireError> {
        let link = Link::parse(frame)?;
        match link.ethertype {
            EtherType::IPV4 | EtherType::IPV6 => Ok(link),
            other => {
                let accepted = "0x0800 (IPv4) or 0x86dd (IPv6), behind at most two VLAN tags";
                Err(WireError::unsupported(Field::EtherType, other.0.into(), accepted))
            }
        }
    }

    /// Bytes before the IP header: 14, 18 or 22.
    #[inline]
    pub fn header_len(&self) -> usize {
        let tags = match self.tags {
            [None, _] => 0,
            [Some(_), None] => 1,
            [Some(_), Some(_)] => 2,
        };
        ethernet::LEN + tags * vlan::LEN
    }

    /// The VLAN the frame belongs to: the VID of the innermost tag, `None` if untagged or only priority-tagged.
    #[inline]
    pub fn vlan(&self) -> Option<u16> {
        self.tags.iter().rev().flatten().map(|tag| tag.vid).find(|&vid| vid != 0)
    }

    /// Writes the header to the start of `buf`. The outer of two tags gets the 802.1ad type, a tag alone that of 802.1Q.
    ///
    /// # Panics
    /// If `buf` is shorter than [`header_len`](Self::header_len).
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) {
        let first = match self.tags {
            [None, _] => self.ethertype,
            [Some(tag), None] => {
                tag.emit(self.ethertype, &mut buf[ethernet::LEN..]);
                EtherType::VLAN
            }
            [Some(outer), Some(inner)] => {
                outer.emit(EtherType::VLAN, &mut buf[ethernet::LEN..]);
                inner.emit(self.ethertype, &mut buf[ethernet::LEN + vlan::LEN..]);
                EtherType::SERVICE_VLAN
            }
        };
        EthernetRepr { dst: self.dst, src: self.src, ethertype: first }.emit(buf);
    }
}
