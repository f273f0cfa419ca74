//! Where each field of a packet lies, and whether the ICRC covers it: what a packet looks like to somebody who learns.
//!
//! In: a [`Dissection`]. Out: every bit of the packet, once and in order, as named parts of headers, payload, pad and ICRC.
//! The tables below are the layouts of IBTA 9.2 and 9.3, of RFC 791, 8200 and 768; the masks are those that
//! [`Icrc`](crate::Icrc) computes with.

use crate::dissect::Dissection;
use crate::icrc::{self, ICRC_LEN};
use crate::opcode::HeaderSet;
use crate::{bth, ipv4, ipv6, udp};

/// How a field is best written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// A number that counts something.
    Decimal,
    /// A number whose digits mean something: keys, addresses of memory, masks.
    Hex,
    /// A flag of one bit.
    Flag,
    /// An IP address.
    Address,
    /// Bytes without a meaning to the transport.
    Bytes,
}

/// What the ICRC has to do with a field (IBTA 7.8.1, annex A17).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cover {
    /// It is part of what the ICRC is computed over.
    Covered,
    /// Ones stand in for it, since routers may change it.
    Masked,
    /// It is the ICRC.
    Icrc,
}

/// A part of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The header it belongs to, like `BTH`; or `Payload`, `Pad`, `ICRC`, `Rest`.
    pub header: &'static str,
    /// Its name in that header.
    pub name: &'static str,
    /// Its first bit, counted from the most significant bit of the IP header's first byte.
    pub at: usize,
    /// How many bits it has, 1 or more.
    pub bits: usize,
    /// How it is best written.
    pub form: Form,
    /// Whether the ICRC covers it.
    pub cover: Cover,
}

impl Part {
    /// The value of a part of at most 64 bits, the first bit the most significant; `None` for a longer one, or if the
    /// packet ends before it does.
    pub fn value(&self, packet: &[u8]) -> Option<u64> {
        if self.bits > 64 {
            return None;
        }
        (self.at..self.at + self.bits).try_fold(0, |value, bit| {
            let byte = packet.get(bit / 8)?;
            Some(value << 1 | u64::from(byte >> (7 - bit % 8) & 1))
        })
    }
}

/// A header as a table: name, bits, form of each field, in wire order.
struct Table {
    name: &'static str,
    fields: &'static [(&'static str, usize, Form)],
}

use Form::{Address, Bytes, Decimal, Flag, Hex};

static IPV4: Table = Table {
    name: "IPv4",
    fields: &[
        ("Version", 4, Decimal),
        ("IHL", 4, Decimal),
        ("DSCP", 6, Decimal),
        ("ECN", 2, Decimal),
        ("Total length", 16, Decimal),
        ("Identification", 16, Hex),
        ("Reserved", 1, Flag),
        ("DF", 1, Flag),
        ("MF", 1, Flag),
        ("Fragment offset", 13, Decimal),
        ("TTL", 8, Decimal),
        ("Protocol", 8, Decimal),
        ("Header checksum", 16, Hex),
        ("Source", 32, Address),
        ("Destination", 32, Address),
    ],
};

static IPV6: Table = Table {
    name: "IPv6",
    fields: &[
        ("Version", 4, Decimal),
        ("DSCP", 6, Decimal),
        ("ECN", 2, Decimal),
        ("Flow label", 20, Hex),
        ("Payload length", 16, Decimal),
        ("Next header", 8, Decimal),
        ("Hop limit", 8, Decimal),
        ("Source", 128, Address),
        ("Destination", 128, Address),
    ],
};

static UDP: Table = Table {
    name: "UDP",
    fields: &[
        ("Source port", 16, Decimal),
        ("Destination port", 16, Decimal),
        ("Length", 16, Decimal),
        ("Checksum", 16, Hex),
    ],
};

static BTH: Table = Table {
    name: "BTH",
    fields: &[
        ("OpCode", 8, Hex),
        ("SE", 1, Flag),
        ("M", 1, Flag),
        ("PadCnt", 2, Decimal),
        ("TVer", 4, Decimal),
        ("P_Key", 16, Hex),
        ("FECN", 1, Flag),
        ("BECN", 1, Flag),
        ("Reserved", 6, Hex),
        ("DestQP", 24, Hex),
        ("A", 1, Flag),
        ("Reserved", 7, Hex),
        ("PSN", 24, Decimal),
    ],
};

/// The extension headers, in the order in which they stand on the wire.
static EXTENSIONS: [(HeaderSet, Table); 9] = [
    (
        HeaderSet::DETH,
        Table { name: "DETH", fields: &[("Q_Key", 32, Hex), ("Reserved", 8, Hex), ("Source QP", 24, Hex)] },
    ),
    (HeaderSet::FETH, Table { name: "FETH", fields: &[("Reserved", 26, Hex), ("Level", 2, Hex), ("Type", 4, Hex)] }),
    (
        HeaderSet::RETH,
        Table { name: "RETH", fields: &[("VA", 64, Hex), ("R_Key", 32, Hex), ("DMA length", 32, Decimal)] },
    ),
    (
        HeaderSet::ATOMIC_ETH,
        Table {
            name: "AtomicETH",
            fields: &[("VA", 64, Hex), ("R_Key", 32, Hex), ("Swap or add", 64, Hex), ("Compare", 64, Hex)],
        },
    ),
    (HeaderSet::AETH, Table { name: "AETH", fields: &[("Syndrome", 8, Hex), ("MSN", 24, Decimal)] }),
    (HeaderSet::ATOMIC_ACK, Table { name: "AtomicAckETH", fields: &[("Original", 64, Hex)] }),
    (HeaderSet::IMM, Table { name: "ImmDt", fields: &[("Immediate", 32, Hex)] }),
    (HeaderSet::IETH, Table { name: "IETH", fields: &[("R_Key", 32, Hex)] }),
    (HeaderSet::CNP_RESERVED, Table { name: "CNP", fields: &[("Reserved", 128, Bytes)] }),
];

/// The parts of a packet that can be told apart, in order. What the IP, UDP and BTH headers do not explain, because the
/// packet is malformed or cut off by a capture, is one last part called `Rest`. Bytes behind the end of the IP packet
/// are no part of it.
pub fn layout<'a>(seen: &Dissection<'_>, captured: &'a [u8]) -> impl Iterator<Item = Part> + use<'a> {
    let v6 = captured.first().is_some_and(|b| b >> 4 == 6);
    let (ip, ip_len): (&'static Table, _) = if v6 { (&IPV6, ipv6::LEN) } else { (&IPV4, ipv4::LEN) };
    let mask = icrc::masked_bytes(v6);
    let well_formed = seen.packet.ok();

    // IPv4 options are no part of RoCE (IBTA annex A17): what lies behind such a header is not looked at.
    let plain = v6 || captured.first().is_some_and(|b| b & 0x0F == 5);
    let fixed: [Option<(&'static Table, usize)>; 3] = [
        seen.ip.map(|_| (ip, 0)),
        seen.udp.filter(|_| plain).map(|_| (&UDP, ip_len)),
        seen.bth.filter(|_| plain).map(|_| (&BTH, ip_len + udp::LEN)),
    ];
    let mut at = fixed.iter().flatten().last().map_or(0, |(table, at)| at + table.bytes());
    let set = well_formed.map_or(HeaderSet::NONE, |packet| packet.opcode().headers());
    let extensions = EXTENSIONS.iter().filter(move |(header, _)| set.contains(*header)).scan(
        ip_len + udp::LEN + bth::LEN,
        |at, (_, table)| {
            let here = *at;
            *at += table.bytes();
            Some((table, here))
        },
    );
    at += set.byte_len();

    let (payload, pad, icrc, rest) = match well_formed {
        Some(packet) => {
            let end = packet.ip_len() - packet.missing();
            let captured_to = |to: usize| to.min(end);
            let payload_end = at + packet.payload_len();
            let pad_end = payload_end + usize::from(packet.bth().pad);
            let icrc_end = captured_to(pad_end + ICRC_LEN);
            (at..captured_to(payload_end), payload_end..captured_to(pad_end), pad_end..icrc_end, 0..0)
        }
        None => (0..0, 0..0, 0..0, at..captured.len()),
    };
    let tail = [
        ("Payload", "Data", Bytes, Cover::Covered, payload),
        ("Pad", "Zeroes", Bytes, Cover::Covered, pad),
        ("ICRC", "Invariant CRC", Hex, Cover::Icrc, icrc),
        ("Rest", "Not understood", Bytes, Cover::Covered, rest),
    ];
    let tail = tail.into_iter().filter(|(.., bytes)| !bytes.is_empty()).map(|(header, name, form, cover, bytes)| {
        Part { header, name, at: bytes.start * 8, bits: bytes.len() * 8, form, cover }
    });
    fixed.into_iter().flatten().chain(extensions).flat_map(move |(table, at)| table.parts(at, mask)).chain(tail)
}

impl Table {
    fn bytes(&self) -> usize {
        self.fields.iter().map(|(_, bits, _)| bits).sum::<usize>() / 8
    }

    /// The fields of this header where it begins at byte `at`. `mask` has ones for what the ICRC does not cover.
    fn parts(&'static self, at: usize, mask: &'static [u8]) -> impl Iterator<Item = Part> {
        self.fields.iter().scan(at * 8, move |at, (name, bits, form)| {
            let masked = mask.get(*at / 8).is_some_and(|byte| byte << (*at % 8) & 0x80 != 0);
            let cover = if masked { Cover::Masked } else { Cover::Covered };
            let part = Part { header: self.name, name, at: *at, bits: *bits, form: *form, cover };
            *at += bits;
            Some(part)
        })
    }
}
