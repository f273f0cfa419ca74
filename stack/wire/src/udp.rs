//! The UDP header (RFC 768). The checksum is sent as 0 and never looked at: the ICRC covers what matters.

use crate::error::{Field, WireError};
use crate::octets::{get_u16, put_u16};

/// Bytes of a UDP header.
pub const LEN: usize = 8;

mod field {
    pub const SRC_PORT: usize = 0;
    pub const DST_PORT: usize = 2;
    pub const LENGTH: usize = 4;
    pub const CHECKSUM: usize = 6;
}

/// Where the length stands, in bytes from the start of the header.
pub(crate) const LENGTH_AT: usize = field::LENGTH;
/// Where the checksum stands.
pub(crate) const CHECKSUM_AT: usize = field::CHECKSUM;

header_view! {
    /// A view over a UDP header.
    Udp, LEN, Field::UdpHeader
}

impl<T: AsRef<[u8]>> Udp<T> {
    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        get_u16(self.data(), field::SRC_PORT)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        get_u16(self.data(), field::DST_PORT)
    }

    /// Bytes of header and data.
    #[inline]
    pub fn length(&self) -> u16 {
        get_u16(self.data(), field::LENGTH)
    }

    /// Checksum; 0 = none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        get_u16(self.data(), field::CHECKSUM)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Udp<T> {
    /// Sets the source port.
    #[inline]
    pub fn set_src_port(&mut self, port: u16) {
        put_u16(self.data_mut(), field::SRC_PORT, port);
    }

    /// Sets the destination port.
    #[inline]
    pub fn set_dst_port(&mut self, port: u16) {
        put_u16(self.data_mut(), field::DST_PORT, port);
    }

    /// Sets the length of header and data in bytes.
    #[inline]
    pub fn set_length(&mut self, len: u16) {
        put_u16(self.data_mut(), field::LENGTH, len);
    }

    /// Sets the checksum as it stands.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put_u16(self.data_mut(), field::CHECKSUM, checksum);
    }
}

/// A UDP header as a value, without the checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UdpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes of header and data.
    pub length: u16,
}

impl UdpRepr {
    /// Bytes of a UDP header.
    pub const LEN: usize = LEN;

    /// Reads a UDP header from the start of `bytes`.
    ///
    /// # Errors
    /// Too few bytes. Port and length are the caller's to judge.
    #[inline]
    // rule: rx.udp-sum
    pub fn parse(bytes: &[u8]) -> Result<UdpRepr, WireError> {
        let view = Udp::new_checked(bytes)?;
        Ok(UdpRepr { src_port: view.src_port(), dst_port: view.dst_port(), length: view.length() })
    }

    /// Writes the header to the first 8 bytes of `buf`, checksum 0.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    // rule: wire.udp
    pub fn emit(&self, buf: &mut [u8]) {
        let mut view = Udp::new_unchecked(&mut buf[..LEN]);
        view.set_src_port(self.src_port);
        view.set_dst_port(self.dst_port);
        view.set_length(self.length);
        view.set_checksum(0);
    }
}
