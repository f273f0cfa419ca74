//! The JSON line of one packet: a verdict enters, the object that `--json` prints leaves.
//!
//! Field names are a contract. A packet cut short by the capture lacks the fields that were cut off; its `icrc_ok` is null.

use std::net::IpAddr;

use serde::Serialize;
use xroce_wire::{AethRepr, AtomicEthRepr, DethRepr, Headers, RethRepr, Syndrome, WireError};

use super::packet::{Decoded, Ends};

/// A packet that could be decoded.
#[derive(Serialize)]
pub struct PacketLine {
    frame: u64,
    src: IpAddr,
    dst: IpAddr,
    sport: u16,
    #[serde(flatten)]
    body: Option<Body>,
    icrc_ok: Option<bool>,
    #[serde(flatten)]
    extensions: Extensions,
}

/// What the BTH says; absent if the capture cut it.
#[derive(Serialize)]
struct Body {
    opcode: &'static str,
    opcode_value: u8,
    psn: u32,
    dest_qp: u32,
    pkey: u16,
    ack_req: bool,
    solicited: bool,
    migreq: bool,
    pad: u8,
    payload_len: usize,
}

#[derive(Serialize, Default)]
struct Extensions {
    #[serde(skip_serializing_if = "Option::is_none")]
    reth: Option<Reth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aeth: Option<Aeth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    atomic: Option<Atomic>,
    #[serde(skip_serializing_if = "Option::is_none")]
    atomic_ack: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    imm: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ieth: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deth: Option<Deth>,
}

#[derive(Serialize)]
struct Reth {
    va: u64,
    rkey: u32,
    len: u32,
}

#[derive(Serialize)]
struct Aeth {
    kind: &'static str,
    value: u8,
    msn: u32,
}

#[derive(Serialize)]
struct Atomic {
    va: u64,
    rkey: u32,
    swap_add: u64,
    compare: u64,
}

#[derive(Serialize)]
struct Deth {
    qkey: u32,
    src_qp: u32,
}

/// A malformed packet.
#[derive(Serialize)]
pub struct MalformedLine {
    frame: u64,
    src: IpAddr,
    dst: IpAddr,
    sport: u16,
    error: ErrorObject,
}

#[derive(Serialize)]
struct ErrorObject {
    field: &'static str,
    reason: String,
}

impl PacketLine {
    /// The line of packet number `frame` of the file.
    pub fn new(frame: u64, ends: &Ends, packet: &Decoded) -> Self {
        PacketLine {
            frame,
            src: ends.src,
            dst: ends.dst,
            sport: ends.sport,
            body: packet.headers.as_ref().map(|h| Body::new(h, packet.payload_len)),
            icrc_ok: packet.icrc_ok,
            extensions: packet.headers.as_ref().map(Extensions::new).unwrap_or_default(),
        }
    }
}

impl MalformedLine {
    /// The line of packet number `frame` of the file.
    pub fn new(frame: u64, ends: &Ends, error: &WireError) -> Self {
        let error = ErrorObject { field: error.field.name(), reason: error.reason.to_string() };
        MalformedLine { frame, src: ends.src, dst: ends.dst, sport: ends.sport, error }
    }
}

impl Body {
    fn new(headers: &Headers, payload_len: usize) -> Self {
        let bth = &headers.bth;
        Body {
            opcode: bth.opcode.name(),
            opcode_value: bth.opcode.byte(),
            psn: bth.psn.value(),
            dest_qp: bth.dest_qp.value(),
            pkey: bth.pkey.0,
            ack_req: bth.ack_req,
            solicited: bth.solicited,
            migreq: bth.migreq,
            pad: bth.pad,
            payload_len,
        }
    }
}

impl Extensions {
    fn new(headers: &Headers) -> Self {
        Extensions {
            reth: headers.reth.as_ref().map(|&RethRepr { va, rkey, len }| Reth { va, rkey: rkey.0, len }),
            aeth: headers.aeth.as_ref().map(Aeth::new),
            atomic: headers.atomic_eth.as_ref().map(|&AtomicEthRepr { va, rkey, swap_add, compare }| Atomic {
                va,
                rkey: rkey.0,
                swap_add,
                compare,
            }),
            atomic_ack: headers.atomic_ack.as_ref().map(|a| a.original),
            imm: headers.imm.map(|i| i.0),
            ieth: headers.ieth.map(|k| k.0),
            deth: headers.deth.as_ref().map(|&DethRepr { qkey, src_qp }| Deth { qkey: qkey.0, src_qp: src_qp.value() }),
        }
    }
}

impl Aeth {
    fn new(aeth: &AethRepr) -> Self {
        let kind = match aeth.syndrome {
            Syndrome::Ack { .. } => "ack",
            Syndrome::RnrNak(_) => "rnr_nak",
            Syndrome::Nak(_) => "nak",
            Syndrome::Reserved(_) => "reserved",
        };
        Aeth { kind, value: aeth.syndrome.byte() & 0x1F, msn: aeth.msn.value() }
    }
}
