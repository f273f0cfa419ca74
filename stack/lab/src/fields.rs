//! A packet taken apart for people: headers and fields with their bits, values, words, and whether the ICRC covers them.
//!
//! In: bytes from the IP header on. Out: what a page shows when a packet is selected. Where a field lies is known to
//! [`xroce_wire::layout()`]; what it means to somebody who learns is here.

use std::net::{Ipv4Addr, Ipv6Addr};

use xroce_wire::{Cover, Form, Opcode, Packet, Part, dissect, layout};

use crate::describe;

/// A header, the payload, the pad or the ICRC.
#[derive(Debug, Clone)]
pub struct Header {
    /// Short name.
    pub name: &'static str,
    /// Long name.
    pub title: &'static str,
    /// Its fields, in wire order.
    pub fields: Vec<Field>,
}

/// A field of a header.
#[derive(Debug, Clone)]
pub struct Field {
    /// Name, as the specification has it.
    pub name: &'static str,
    /// First bit, from the most significant bit of the IP header's first byte.
    pub at: usize,
    /// Bits.
    pub bits: usize,
    /// How the value is written.
    pub form: Form,
    /// The value.
    pub value: String,
    /// What the value says; may be empty.
    pub says: String,
    /// What the field is for; may be empty.
    pub about: &'static str,
    /// `covered` or `masked` in the calculation of the ICRC, or `icrc`: the ICRC itself.
    pub cover: &'static str,
}

/// Takes a packet apart.
pub fn headers(bytes: &[u8]) -> Vec<Header> {
    let seen = dissect(bytes);
    let mut headers: Vec<Header> = Vec::new();
    for part in layout(&seen, bytes) {
        let field = Field {
            name: part.name,
            at: part.at,
            bits: part.bits,
            form: part.form,
            value: value(&part, bytes),
            says: says(&part, bytes, seen.packet.as_ref().ok()),
            about: about(&part),
            cover: match part.cover {
                Cover::Covered => "covered",
                Cover::Masked => "masked",
                Cover::Icrc => "icrc",
            },
        };
        match headers.last_mut().filter(|header| header.name == part.header) {
            Some(header) => header.fields.push(field),
            None => headers.push(Header { name: part.header, title: title(part.header), fields: vec![field] }),
        }
    }
    headers
}

fn value(part: &Part, bytes: &[u8]) -> String {
    let number = part.value(bytes);
    let octets = bytes.get(part.at / 8..(part.at + part.bits) / 8).unwrap_or(&[]);
    match (part.form, number) {
        (Form::Address, _) => match (<[u8; 4]>::try_from(octets), <[u8; 16]>::try_from(octets)) {
            (Ok(v4), _) => Ipv4Addr::from(v4).to_string(),
            (_, Ok(v6)) => Ipv6Addr::from(v6).to_string(),
            _ => "cut off".into(),
        },
        (Form::Bytes, _) => format!("{} B", part.bits / 8),
        (_, None) => "cut off".into(),
        (Form::Decimal | Form::Flag, Some(n)) => n.to_string(),
        (Form::Hex, Some(n)) => format!("{n:#0width$x}", width = part.bits.div_ceil(4) + 2),
    }
}

/// What a value says, where that is more than a number.
fn says(part: &Part, bytes: &[u8], packet: Option<&Packet<'_>>) -> String {
    let Some(value) = part.value(bytes) else { return String::new() };
    let text = match (part.header, part.name, value) {
        ("IPv4", "Protocol", 17) | ("IPv6", "Next header", 17) => "UDP",
        ("IPv4", "DF", 1) => "do not fragment",
        (_, "ECN", 0) => "not ECN-capable",
        (_, "ECN", 1 | 2) => "ECN-capable",
        (_, "ECN", 3) => "congestion experienced",
        ("UDP", "Destination port", 4791) => "RoCE v2",
        ("UDP", "Checksum", 0) => "not used: the ICRC does its work",
        ("BTH", "OpCode", byte) => return Opcode::from_byte(byte as u8).map_or("unknown".into(), |o| o.name().into()),
        ("BTH", "SE", 1) => "raise a solicited event",
        ("BTH", "M", 1) => "migrated",
        ("BTH", "A", 1) => "an acknowledgement is asked for",
        ("BTH", "P_Key", 0xFFFF) => "default partition, full member",
        ("BTH", "PadCnt", 1..=3) => "zero bytes behind the payload",
        ("BTH", "PSN", psn) => return format!("{psn:#08x}"),
        ("AETH", "Syndrome", _) => {
            return packet.and_then(Packet::aeth).map_or(String::new(), |a| describe::aeth_words(&a));
        }
        ("AtomicETH" | "AtomicAckETH", "Swap or add" | "Compare" | "Original", word) => return word.to_string(),
        ("ICRC", ..) => match packet.and_then(Packet::icrc) {
            Some(true) => "right",
            Some(false) => "WRONG",
            None => "",
        },
        _ => "",
    };
    text.into()
}

fn title(header: &str) -> &'static str {
    match header {
        "IPv4" => "Internet Protocol version 4",
        "IPv6" => "Internet Protocol version 6",
        "UDP" => "User Datagram Protocol",
        "BTH" => "Base Transport Header",
        "DETH" => "Datagram Extended Transport Header",
        "FETH" => "Flush Extended Transport Header",
        "RETH" => "RDMA Extended Transport Header",
        "AtomicETH" => "Atomic Extended Transport Header",
        "AETH" => "ACK Extended Transport Header",
        "AtomicAckETH" => "Atomic ACK Extended Transport Header",
        "ImmDt" => "Immediate Data",
        "IETH" => "Invalidate Extended Transport Header",
        "CNP" => "Congestion Notification Packet",
        "Payload" => "Bytes of the message",
        "Pad" => "Pad to four bytes",
        "ICRC" => "Invariant CRC",
        _ => "What is malformed or not understood",
    }
}

/// What a field is for.
fn about(part: &Part) -> &'static str {
    match (part.header, part.name) {
        (_, "DSCP") => "Which class of traffic it is. Routers may change it.",
        (_, "ECN") => "Routers mark congestion here.",
        ("IPv4", "TTL") | ("IPv6", "Hop limit") => "Each router takes one off, so the ICRC cannot cover it.",
        ("IPv4", "Header checksum") => "Changes with TTL, so the ICRC cannot cover it.",
        ("IPv4", "Identification") => "Covered by the ICRC: whoever rewrites it breaks the packet.",
        ("UDP", "Source port") => "The same for all packets of a queue pair: it spreads queue pairs over paths.",
        ("UDP", "Destination port") => "4791 says RoCE v2.",
        ("UDP", "Length") => "UDP header to ICRC, in bytes.",
        ("BTH", "OpCode") => "Service (upper three bits) and operation (lower five).",
        ("BTH", "SE") => "Solicited event: wakes a receiver that waits for such only.",
        ("BTH", "M") => "Path migration state.",
        ("BTH", "PadCnt") => "How many zero bytes follow the payload, so that it fills whole words.",
        ("BTH", "TVer") => "Version of the transport headers: 0.",
        ("BTH", "P_Key") => "The partition; both ends must be in the same one.",
        ("BTH", "FECN" | "BECN") => "Congestion marks. The whole byte is masked in the ICRC.",
        ("BTH", "DestQP") => "The queue pair that the packet is for.",
        ("BTH", "A") => "AckReq: the requester wants an acknowledgement.",
        ("BTH", "PSN") => "Packet sequence number, modulo 2^24. Responses carry the PSN of what they answer.",
        ("RETH" | "AtomicETH", "VA") => "Address in the memory of the peer.",
        ("RETH" | "AtomicETH", "R_Key") => "The peer's key to that memory.",
        ("RETH", "DMA length") => "Bytes of the whole message, not of this packet.",
        ("AtomicETH", "Swap or add") => "What is added, or swapped in.",
        ("AtomicETH", "Compare") => "For compare and swap: what the word must be.",
        ("AETH", "Syndrome") => "ACK with credits, RNR NAK with a wait, or NAK with a reason.",
        ("AETH", "MSN") => "Message sequence number: messages that the responder has done.",
        ("AtomicAckETH", "Original") => "The word before the atomic.",
        ("ImmDt", _) => "Four bytes that go into the completion.",
        ("IETH", _) => "The key that dies when the message is complete.",
        ("DETH", "Q_Key") => "Must be that of the receiving queue pair.",
        ("Payload", _) => {
            "What the application sends. Every packet but the last of a message carries exactly one path MTU."
        }
        ("ICRC", _) => "CRC-32 over all that is not masked, least significant byte first.",
        _ => "",
    }
}
