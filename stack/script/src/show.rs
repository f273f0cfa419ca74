//! Packets, completions and times as lines that could stand in a script, for traces.

use core::fmt::Write as _;

use xroce_transport::wc::{Wc, WcFlags};
use xroce_wire::{Opcode, Operation, Packet, Syndrome};

use crate::names::{self, Answer};
use crate::packet::{Kind, syndrome_text};

/// The name of a packet.
pub fn kind(packet: &Packet<'_>) -> String {
    match (packet.opcode(), packet.aeth()) {
        (Opcode::Cnp, _) => "CNP".into(),
        (Opcode::Rc(Operation::Acknowledge), Some(aeth)) => match aeth.syndrome {
            Syndrome::Ack { .. } => "ACK".into(),
            Syndrome::RnrNak(_) => "RNR_NAK".into(),
            Syndrome::Nak(_) => "NAK".into(),
            Syndrome::Reserved(_) => "AETH".into(),
        },
        (opcode, _) => match opcode.operation() {
            Some(operation) => names::name(names::PACKETS, operation).into(),
            None => opcode.name().into(),
        },
    }
}

/// The name that a script gave a packet.
pub fn spec_kind(kind: Kind) -> String {
    match kind {
        Kind::Operation(operation) => names::name(names::PACKETS, operation).into(),
        Kind::Answer(Answer::Any) => "any ACKNOWLEDGE".into(),
        Kind::Answer(answer) => names::name(names::ANSWERS, answer).into(),
        Kind::Cnp => "CNP".into(),
    }
}

/// A packet as a script would write it.
pub fn packet(bytes: &[u8]) -> String {
    let packet = match Packet::new_checked(bytes, &[]) {
        Ok(packet) => packet,
        Err(error) => return format!("{} bytes that are no packet: {error}", bytes.len()),
    };
    let bth = packet.bth();
    let mut text = format!("{} psn={}", kind(&packet), bth.psn.value());
    let mut add = |part: String| {
        if !part.is_empty() {
            text.push(' ');
            text.push_str(&part);
        }
    };
    for (name, set) in [("A", bth.ack_req), ("SE", bth.solicited), ("FECN", bth.fecn), ("BECN", bth.becn)] {
        add(if set { name.into() } else { String::new() });
    }
    let has_payload = packet.payload_len() != 0
        || packet.opcode().operation().is_some_and(|o| o.is_send() || o.is_write() || o.is_read_response());
    add(if has_payload { format!("len={}", packet.payload_len()) } else { String::new() });
    if let Some(reth) = packet.reth() {
        add(format!("va={:#x} rkey={:#x} dmalen={}", reth.va, reth.rkey.0, reth.len));
    }
    if let Some(h) = packet.atomic_eth() {
        add(format!("va={:#x} rkey={:#x} swap={} compare={}", h.va, h.rkey.0, h.swap_add, h.compare));
    }
    add(packet.imm().map_or(String::new(), |imm| format!("imm={:#x}", imm.0)));
    add(packet.ieth().map_or(String::new(), |key| format!("inv={:#x}", key.0)));
    if let Some(aeth) = packet.aeth() {
        add(syndrome_text(aeth.syndrome.byte()));
        add(format!("msn={}", aeth.msn.value()));
    }
    add(packet.atomic_ack().map_or(String::new(), |ack| format!("orig={}", ack.original)));
    if !packet.icrc_ok() {
        add("(wrong ICRC)".into());
    }
    text
}

/// A completion as a script would write it.
pub fn wc(wc: &Wc) -> String {
    let mut text = format!("id={} status={}", wc.wr_id.0, names::name(names::STATUSES, wc.status));
    if wc.status.is_success() {
        let _ = write!(text, " op={} len={}", names::name(names::WC_OPCODES, wc.opcode), wc.byte_len);
    }
    if wc.flags.contains(WcFlags::WITH_IMM) {
        let _ = write!(text, " imm={:#x}", wc.imm.0);
    }
    if wc.flags.contains(WcFlags::WITH_INV) {
        let _ = write!(text, " inv={:#x}", wc.imm.0);
    }
    text
}

/// A time since the start of the script, in the unit that reads best.
pub fn time(ns: u64) -> String {
    match ns {
        0 => "0".into(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", thousandths(ns)),
        1_000_000..1_000_000_000 => format!("{} ms", thousandths(ns / 1_000)),
        _ => format!("{} s", thousandths(ns / 1_000_000)),
    }
}

fn thousandths(n: u64) -> String {
    let text = format!("{}.{:03}", n / 1000, n % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        for (ns, text) in [
            (0, "0"),
            (10, "10 ns"),
            (5_000, "5 us"),
            (5_250, "5.25 us"),
            (67_108_864, "67.108 ms"),
            (2_000_000_000, "2 s"),
        ] {
            assert_eq!(time(ns), text);
        }
    }
}
