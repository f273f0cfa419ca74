//! Packets: `SEND_ONLY psn=100 A len=10`.

use super::line::{Line, Result, Word, Words};
use crate::names::{self, Answer};
use crate::packet::{Kind, PacketSpec, Service};
use xroce_wire::HeaderSet;

/// Fields of any packet.
const COMMON: &[&str] = &[
    "psn", "A", "SE", "M", "FECN", "BECN", "pkey", "dest_qp", "len", "data", "sport", "tos", "hops", "flow", "udp_sum",
];
/// Fields that only a packet to be made can have: ways to bend it.
const BENT: &[&str] = &[
    "as",
    "opcode",
    "bad_icrc",
    "pad",
    "tver",
    "resv6",
    "resv7",
    "src",
    "dst",
    "dport",
    "udp_len",
    "ip_len",
    "options",
    "fragment",
    "bad_ip_sum",
    "junk",
    "cut",
];

/// A packet, to be made (`incoming`) or to be matched.
pub(super) fn packet(words: &mut Words<'_>, incoming: bool) -> Result<PacketSpec> {
    let name = words.need("a packet")?;
    let line = words.line;
    let kind = kind(&line, name)?;
    let mut spec = PacketSpec::new(kind);
    let allowed = fields_of(kind, incoming);
    while let Some(word) = words.take() {
        let (field, value) = word.field();
        if !allowed.contains(&field.text) {
            let what = format!("a field of {}", name.text);
            return line.unknown(field, &what, allowed.iter().copied());
        }
        if flag(&mut spec, &line, field, value)? {
            continue;
        }
        let Some(value) = value else { return line.error(field, format!("{}=VALUE", field.text)) };
        set(&mut spec, &line, field, value)?;
    }
    if incoming && spec.psn.is_none() && kind != Kind::Cnp {
        return line.error(words.end, "psn=NUMBER");
    }
    Ok(spec)
}

fn kind(line: &Line<'_>, name: Word<'_>) -> Result<Kind> {
    if let Some(operation) = names::find(names::PACKETS, name.text) {
        return Ok(Kind::Operation(operation));
    }
    if let Some(answer) = names::find(names::ANSWERS, name.text) {
        return Ok(Kind::Answer(answer));
    }
    if name.text == "CNP" {
        return Ok(Kind::Cnp);
    }
    let all = names::PACKETS.iter().map(|(n, _)| *n).chain(names::ANSWERS.iter().map(|(n, _)| *n)).chain(["CNP"]);
    line.unknown(name, "a packet", all)
}

/// The fields that a packet has by its headers.
fn fields_of(kind: Kind, incoming: bool) -> Vec<&'static str> {
    let mut all = COMMON.to_vec();
    if incoming {
        all.extend(BENT);
    }
    let headers = kind.operation().map_or(HeaderSet::NONE, |operation| operation.headers());
    let by_header: [(HeaderSet, &[&'static str]); 6] = [
        (HeaderSet::RETH, &["va", "rkey", "dmalen"]),
        (HeaderSet::ATOMIC_ETH, &["va", "rkey", "swap", "add", "compare"]),
        (HeaderSet::AETH, &["msn", "syndrome", "credits"]),
        (HeaderSet::ATOMIC_ACK, &["orig"]),
        (HeaderSet::IMM, &["imm"]),
        (HeaderSet::IETH, &["inv"]),
    ];
    for (header, fields) in by_header {
        if headers.contains(header) {
            all.extend(fields);
        }
    }
    match kind {
        Kind::Answer(Answer::RnrNak) => all.push("timer"),
        Kind::Answer(Answer::Nak) => all.push("code"),
        _ => {}
    }
    all
}

/// Fields that may stand without a value: `A` is `A=1`.
fn flag(spec: &mut PacketSpec, line: &Line<'_>, field: Word<'_>, value: Option<Word<'_>>) -> Result<bool> {
    let place = match field.text {
        "A" => &mut spec.ack_req,
        "SE" => &mut spec.solicited,
        "M" => &mut spec.migreq,
        "FECN" => &mut spec.fecn,
        "BECN" => &mut spec.becn,
        "bad_icrc" | "bad_ip_sum" => {
            if let Some(value) = value {
                return line.error(value, "nothing: the name alone");
            }
            spec.wire.bad_icrc |= field.text == "bad_icrc";
            spec.wire.bad_ip_sum |= field.text == "bad_ip_sum";
            return Ok(true);
        }
        _ => return Ok(false),
    };
    *place = Some(value.map_or(Ok(true), |v| line.bit(v))?);
    Ok(true)
}

fn set(spec: &mut PacketSpec, line: &Line<'_>, field: Word<'_>, value: Word<'_>) -> Result<()> {
    match field.text {
        "psn" => spec.psn = Some(line.u24(value)?),
        "pkey" => spec.pkey = Some(line.at_most(value, 0xFFFF)? as u16),
        "dest_qp" => spec.dest_qp = Some(line.u24(value)?),
        "len" => spec.len = Some(line.at_most(value, 8192)? as u32),
        "data" => spec.data = Some(line.data(value)?),
        "va" => spec.va = Some(line.num(value)?),
        "rkey" => spec.rkey = Some(line.num(value)?),
        "dmalen" => spec.dmalen = Some(line.u32(value)?),
        "imm" => spec.imm = Some(line.u32(value)?),
        "inv" => spec.inv = Some(line.num(value)?),
        "swap" => spec.swap = Some(line.int(value)?),
        "add" => spec.add = Some(line.int(value)?),
        "compare" => spec.compare = Some(line.int(value)?),
        "orig" => spec.orig = Some(line.int(value)?),
        "msn" => spec.msn = Some(line.u24(value)?),
        "syndrome" => spec.syndrome = Some(line.at_most(value, 255)? as u8),
        "credits" => spec.syndrome = Some(line.at_most(value, 31)? as u8),
        "timer" => spec.syndrome = Some(0x20 | line.at_most(value, 31)? as u8),
        "code" => spec.syndrome = Some(0x60 | nak_code(line, value)?),
        "sport" => spec.sport = Some(line.at_most(value, 0xFFFF)? as u16),
        "tos" => spec.tos = Some(line.at_most(value, 255)? as u8),
        "hops" => spec.hops = Some(line.at_most(value, 255)? as u8),
        "flow" => spec.flow = Some(line.at_most(value, 0xF_FFFF)? as u32),
        _ => bend(spec, line, field, value)?,
    }
    Ok(())
}

fn nak_code(line: &Line<'_>, value: Word<'_>) -> Result<u8> {
    match value.text.starts_with(|c: char| c.is_ascii_digit()) {
        true => Ok(line.at_most(value, 31)? as u8),
        false => line.one_of(value, names::NAK_CODES, "a NAK code"),
    }
}

fn bend(spec: &mut PacketSpec, line: &Line<'_>, field: Word<'_>, value: Word<'_>) -> Result<()> {
    const SERVICES: names::Table<Service> = &[("rc", Service::Rc), ("uc", Service::Uc), ("ud", Service::Ud)];
    let wire = &mut spec.wire;
    match field.text {
        "as" => wire.service = Some(line.one_of(value, SERVICES, "a transport")?),
        "opcode" => wire.opcode = Some(line.at_most(value, 255)? as u8),
        "pad" => wire.pad = Some(line.at_most(value, 3)? as u8),
        "tver" => wire.tver = Some(line.at_most(value, 15)? as u8),
        "resv6" => wire.resv6 = Some(line.at_most(value, 63)? as u8),
        "resv7" => wire.resv7 = Some(line.at_most(value, 127)? as u8),
        "src" => wire.src = Some(line.address(value)?),
        "dst" => wire.dst = Some(line.address(value)?),
        "dport" => wire.dport = Some(line.at_most(value, 0xFFFF)? as u16),
        "udp_sum" => wire.udp_sum = Some(line.at_most(value, 0xFFFF)? as u16),
        "udp_len" => wire.udp_len = line.int(value)? as i64 as i32,
        "ip_len" => wire.ip_len = line.int(value)? as i64 as i32,
        "options" => wire.options = line.at_most(value, 40)? as usize,
        "fragment" => wire.fragment = Some(line.at_most(value, 0xFFFF)? as u16),
        "junk" => wire.junk = line.at_most(value, 1000)? as usize,
        "cut" => wire.cut = line.at_most(value, 20)? as usize,
        _ => return line.error(field, "a field"),
    }
    Ok(())
}
