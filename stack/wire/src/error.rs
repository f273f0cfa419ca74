//! Why bytes are not a packet: the field at fault and what is wrong with it.
//!
//! Small and `Copy`, without text of its own on the heap, so that a hostile sender costs us nothing but the counter.

use core::fmt;

/// The field that is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Field {
    /// The Ethernet header as a whole.
    Ethernet,
    /// Ethernet's type field, after any VLAN tags.
    EtherType,
    /// An 802.1Q or 802.1ad tag.
    VlanTag,
    /// The IP version nibble.
    IpVersion,
    /// IPv4 header as a whole.
    Ipv4Header,
    /// IPv4 header length (IHL), in 32-bit words.
    Ipv4HeaderLength,
    /// IPv4 total length.
    Ipv4TotalLength,
    /// IPv4 fragment offset or the "more fragments" flag.
    Ipv4Fragment,
    /// IPv4 protocol.
    Ipv4Protocol,
    /// IPv4 header checksum.
    Ipv4Checksum,
    /// IPv6 header as a whole.
    Ipv6Header,
    /// IPv6 payload length.
    Ipv6PayloadLength,
    /// IPv6 next header.
    Ipv6NextHeader,
    /// UDP header as a whole.
    UdpHeader,
    /// UDP destination port.
    UdpDstPort,
    /// UDP length.
    UdpLength,
    /// Base transport header as a whole.
    Bth,
    /// BTH opcode.
    BthOpcode,
    /// BTH pad count.
    BthPad,
    /// BTH transport header version.
    BthVersion,
    /// RDMA extended transport header.
    Reth,
    /// ACK extended transport header.
    Aeth,
    /// Atomic extended transport header.
    AtomicEth,
    /// Atomic ACK extended transport header.
    AtomicAck,
    /// Immediate data.
    ImmDt,
    /// Invalidate extended transport header.
    Ieth,
    /// Datagram extended transport header.
    Deth,
    /// Flush extended transport header.
    Feth,
    /// The 16 reserved bytes of a congestion notification packet.
    CnpReserved,
    /// The extension headers the opcode demands.
    ExtensionHeaders,
    /// The payload.
    Payload,
    /// All headers together, which must lie in the first of a packet's two pieces, or inside the capture.
    Headers,
    /// IPv6 source or destination address.
    Ipv6Address,
}

impl Field {
    /// The field's name as `xroce decode` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Field::Ethernet => "Ethernet header",
            Field::EtherType => "EtherType",
            Field::VlanTag => "VLAN tag",
            Field::IpVersion => "IP version",
            Field::Ipv4Header => "IPv4 header",
            Field::Ipv4HeaderLength => "IPv4 header length",
            Field::Ipv4TotalLength => "IPv4 total length",
            Field::Ipv4Fragment => "IPv4 fragment field",
            Field::Ipv4Protocol => "IPv4 protocol",
            Field::Ipv4Checksum => "IPv4 header checksum",
            Field::Ipv6Header => "IPv6 header",
            Field::Ipv6PayloadLength => "IPv6 payload length",
            Field::Ipv6NextHeader => "IPv6 next header",
            Field::UdpHeader => "UDP header",
            Field::UdpDstPort => "UDP destination port",
            Field::UdpLength => "UDP length",
            Field::Bth => "BTH",
            Field::BthOpcode => "BTH opcode",
            Field::BthPad => "BTH pad count",
            Field::BthVersion => "BTH transport version",
            Field::Reth => "RETH",
            Field::Aeth => "AETH",
            Field::AtomicEth => "AtomicETH",
            Field::AtomicAck => "AtomicAckETH",
            Field::ImmDt => "ImmDt",
            Field::Ieth => "IETH",
            Field::Deth => "DETH",
            Field::Feth => "FETH",
            Field::CnpReserved => "CNP reserved bytes",
            Field::ExtensionHeaders => "extension headers",
            Field::Payload => "payload",
            Field::Headers => "headers in the first piece",
            Field::Ipv6Address => "IPv6 address",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is wrong with the field. Numbers are as found in the packet, in the field's own unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// Only `len` bytes are there where the header needs `need`.
    TooShort {
        /// Bytes that are there.
        len: u32,
        /// Bytes the header has.
        need: u32,
    },
    /// A length field says less than what must lie inside it.
    ShorterThan {
        /// The length the field claims, in bytes.
        value: u32,
        /// What must fit, named.
        what: &'static str,
        /// How many bytes that takes.
        need: u32,
    },
    /// A length field says more than the bytes that arrived.
    LongerThan {
        /// The length the field claims, in bytes.
        value: u32,
        /// What bounds it, named.
        what: &'static str,
        /// How many bytes there are.
        limit: u32,
    },
    /// Two fields that must agree do not.
    Differs {
        /// This field's value.
        value: u32,
        /// The other field, named.
        what: &'static str,
        /// The value it demands.
        expected: u32,
    },
    /// A value we do not take, with what we would take.
    Unsupported {
        /// The value found.
        value: u32,
        /// What is accepted.
        accepted: &'static str,
    },
    /// A checksum does not match.
    BadChecksum {
        /// The checksum in the packet.
        found: u16,
        /// The right one.
        right: u16,
    },
    /// An IPv6 header with an IPv4-mapped address.
    MappedAddress,
    /// The opcode has no payload, yet bytes follow its headers.
    NotAllowed {
        /// Bytes between the headers and the ICRC.
        len: u32,
    },
}

/// The first thing wrong with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct WireError {
    /// Where.
    pub field: Field,
    /// What.
    pub reason: Reason,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reason::TooShort { len, need } => write!(f, "only {len} of {need} bytes are there"),
            Reason::ShorterThan { value, what, need } => write!(f, "{value} is shorter than {what} ({need})"),
            Reason::LongerThan { value, what, limit } => write!(f, "{value} is longer than {what} ({limit})"),
            Reason::Differs { value, what, expected } => write!(f, "{value} differs from {what} ({expected})"),
            Reason::Unsupported { value, accepted } => write!(f, "{value:#x} is not supported, expected {accepted}"),
            Reason::BadChecksum { found, right } => write!(f, "{found:#06x} is wrong, {right:#06x} would be right"),
            Reason::MappedAddress => f.write_str("IPv4-mapped, which goes by IPv4 on the wire"),
            Reason::NotAllowed { len } => write!(f, "{len} bytes follow the headers of an opcode that carries none"),
        }
    }
}

impl WireError {
    /// `field` has only `len` of the `need` bytes it takes.
    #[cold]
    pub(crate) fn too_short(field: Field, len: usize, need: usize) -> WireError {
        WireError { field, reason: Reason::TooShort { len: len as u32, need: need as u32 } }
    }

    #[cold]
    pub(crate) fn shorter_than(field: Field, value: usize, what: &'static str, need: usize) -> WireError {
        WireError { field, reason: Reason::ShorterThan { value: value as u32, what, need: need as u32 } }
    }

    #[cold]
    pub(crate) fn longer_than(field: Field, value: usize, what: &'static str, limit: usize) -> WireError {
        WireError { field, reason: Reason::LongerThan { value: value as u32, what, limit: limit as u32 } }
    }

    #[cold]
    pub(crate) fn unsupported(field: Field, value: u32, accepted: &'static str) -> WireError {
        WireError { field, reason: Reason::Unsupported { value, accepted } }
    }
}
