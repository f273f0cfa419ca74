//! The IPv4 header (RFC 791), always of 20 bytes: RoCE v2 packets carry no options and are never fragments.

use core::net::Ipv4Addr;

use crate::error::{Field, Reason, WireError};
use crate::octets::{get_array, get_u16, put_u16};

/// Bytes of the header without options.
pub const LEN: usize = 20;
/// The protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;

mod field {
    /// Version and header length.
    pub const VERSION_IHL: usize = 0;
    pub const TOS: usize = 1;
    pub const TOTAL_LENGTH: usize = 2;
    pub const IDENT: usize = 4;
    /// Three flag bits, 13 bits of fragment offset.
    pub const FRAGMENT: usize = 6;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const CHECKSUM: usize = 10;
    pub const SRC: usize = 12;
    pub const DST: usize = 16;
}

/// Where the total length stands, in bytes from the start of the header.
pub(crate) const TOTAL_LEN_AT: usize = field::TOTAL_LENGTH;
/// Where the time to live stands.
pub(crate) const TTL_AT: usize = field::TTL;
/// Where the header checksum stands.
pub(crate) const CHECKSUM_AT: usize = field::CHECKSUM;

const VERSION_4_IHL_5: u8 = 0x45;
const DONT_FRAGMENT: u16 = 0x4000;
/// "More fragments" and the offset: not zero in any fragment.
const IS_FRAGMENT: u16 = 0x3FFF;
const OFFSET: u16 = 0x1FFF;

header_view! {
    /// A view over an IPv4 header.
    Ipv4, LEN, Field::Ipv4Header
}

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// IP version, 4.
    #[inline]
    pub fn version(&self) -> u8 {
        self.data()[field::VERSION_IHL] >> 4
    }

    /// Header length in 32-bit words.
    #[inline]
    pub fn ihl(&self) -> u8 {
        self.data()[field::VERSION_IHL] & 0x0F
    }

    /// Type of service: DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        self.data()[field::TOS]
    }

    /// Bytes of header and data.
    #[inline]
    pub fn total_len(&self) -> u16 {
        get_u16(self.data(), field::TOTAL_LENGTH)
    }

    /// Identification; covered by the ICRC.
    #[inline]
    pub fn ident(&self) -> u16 {
        get_u16(self.data(), field::IDENT)
    }

    /// Whether routers must not fragment the packet.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        get_u16(self.data(), field::FRAGMENT) & DONT_FRAGMENT != 0
    }

    /// Whether this is a fragment of a larger packet.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        get_u16(self.data(), field::FRAGMENT) & IS_FRAGMENT != 0
    }

    /// Where in the original packet this fragment's data belongs, in bytes.
    #[inline]
    pub fn fragment_offset(&self) -> usize {
        usize::from(get_u16(self.data(), field::FRAGMENT) & OFFSET) * 8
    }

    /// Time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.data()[field::TTL]
    }

    /// Protocol of the data.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.data()[field::PROTOCOL]
    }

    /// Header checksum as it stands.
    #[inline]
    pub fn checksum(&self) -> u16 {
        get_u16(self.data(), field::CHECKSUM)
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from(get_array::<4>(self.data(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from(get_array::<4>(self.data(), field::DST))
    }

    /// The checksum these 20 bytes should carry (RFC 1071); the one in the header is left out.
    #[inline]
    pub fn right_checksum(&self) -> u16 {
        let b = self.data();
        let mut sum = 0u64;
        for at in [0, 4, 8, 12, 16] {
            sum += u64::from(u32::from_be_bytes(get_array(b, at)));
        }
        sum -= u64::from(self.checksum());
        // Two folds of 16 bits bring any sum of ten words into one.
        sum = (sum >> 32) + (sum & 0xFFFF_FFFF);
        sum = (sum >> 16) + (sum & 0xFFFF);
        sum = (sum >> 16) + (sum & 0xFFFF);
        !((sum >> 16) + sum) as u16
    }

    /// What a RoCE v2 receiver demands of the header by itself: version, no options, no fragment, UDP, right checksum.
    ///
    /// # Errors
    /// The first field that is wrong.
    #[inline]
    // rule: rx.ipv4, wire.ip
    pub fn check(&self) -> Result<(), WireError> {
        // The common case decides on two loads and the checksum; finding the field at fault is off the path.
        let b = self.data();
        let plain = b[field::VERSION_IHL] == VERSION_4_IHL_5
            && get_u16(b, field::FRAGMENT) & IS_FRAGMENT == 0
            && b[field::PROTOCOL] == PROTOCOL_UDP;
        if plain && self.right_checksum() == self.checksum() { Ok(()) } else { Err(self.fault()) }
    }

    #[cold]
    fn fault(&self) -> WireError {
        if self.version() != 4 {
            return WireError::unsupported(Field::IpVersion, self.version().into(), "4 or 6");
        }
        if self.ihl() != 5 {
            let accepted = "5 words: RoCE v2 packets carry no IP options";
            return WireError::unsupported(Field::Ipv4HeaderLength, self.ihl().into(), accepted);
        }
        if self.is_fragment() {
            let value = get_u16(self.data(), field::FRAGMENT);
            return WireError::unsupported(Field::Ipv4Fragment, value.into(), "no fragment");
        }
        if self.protocol() != PROTOCOL_UDP {
            return WireError::unsupported(Field::Ipv4Protocol, self.protocol().into(), "17 (UDP)");
        }
        let reason = Reason::BadChecksum { found: self.checksum(), right: self.right_checksum() };
        WireError { field: Field::Ipv4Checksum, reason }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4<T> {
    /// Sets the type of service.
    #[inline]
    pub fn set_traffic_class(&mut self, tos: u8) {
        self.data_mut()[field::TOS] = tos;
    }

    /// Sets the length of header and data in bytes.
    #[inline]
    pub fn set_total_len(&mut self, len: u16) {
        put_u16(self.data_mut(), field::TOTAL_LENGTH, len);
    }

    /// Sets the identification.
    #[inline]
    pub fn set_ident(&mut self, ident: u16) {
        put_u16(self.data_mut(), field::IDENT, ident);
    }

    /// Sets the flag; the fragment offset and the other flags become 0.
    #[inline]
    pub fn set_dont_fragment(&mut self, dont: bool) {
        put_u16(self.data_mut(), field::FRAGMENT, if dont { DONT_FRAGMENT } else { 0 });
    }

    /// Sets the time to live.
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.data_mut()[field::TTL] = ttl;
    }

    /// Sets the protocol.
    #[inline]
    pub fn set_protocol(&mut self, protocol: u8) {
        self.data_mut()[field::PROTOCOL] = protocol;
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, a: Ipv4Addr) {
        self.data_mut()[field::SRC..field::SRC + 4].copy_from_slice(&a.octets());
    }

    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, a: Ipv4Addr) {
        self.data_mut()[field::DST..field::DST + 4].copy_from_slice(&a.octets());
    }

    /// Puts the right checksum in.
    #[inline]
    pub fn fill_checksum(&mut self) {
        let checksum = self.right_checksum();
        put_u16(self.data_mut(), field::CHECKSUM, checksum);
    }
}

/// An IPv4 header as a value: version 4, no options, no fragment, UDP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Repr {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Time to live.
    pub ttl: u8,
    /// Identification. We send 0; rxe counts.
    pub ident: u16,
    /// The "don't fragment" flag. We send true.
    pub dont_fragment: bool,
    /// Bytes of header and data.
    pub total_len: u16,
}

impl Ipv4Repr {
    /// Bytes of the header.
    pub const LEN: usize = LEN;

    /// Reads and checks a header at the start of `bytes`.
    ///
    /// # Errors
    /// Too few bytes, or what [`Ipv4::check`] finds.
    pub fn parse(bytes: &[u8]) -> Result<Ipv4Repr, WireError> {
        let view = Ipv4::new_checked(bytes)?;
        view.check()?;
        Ok(Ipv4Repr {
            src: view.src(),
            dst: view.dst(),
            traffic_class: view.traffic_class(),
            ttl: view.ttl(),
            ident: view.ident(),
            dont_fragment: view.dont_fragment(),
            total_len: view.total_len(),
        })
    }

    /// Writes the header with its checksum to the first 20 bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) {
        let mut view = Ipv4::new_unchecked(&mut buf[..LEN]);
        view.data_mut()[field::VERSION_IHL] = VERSION_4_IHL_5;
        view.set_traffic_class(self.traffic_class);
        view.set_total_len(self.total_len);
        view.set_ident(self.ident);
        view.set_dont_fragment(self.dont_fragment);
        view.set_ttl(self.ttl);
        view.set_protocol(PROTOCOL_UDP);
        put_u16(view.data_mut(), field::CHECKSUM, 0);
        view.set_src(self.src);
        view.set_dst(self.dst);
        view.fill_checksum();
    }
}
