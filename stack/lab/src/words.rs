//! A packet in a few words, for its arrow.
//!
//! In: bytes from the IP header on. Out: opcode, PSN and what decides its meaning.

use xroce_wire::{Headers, NakCode, Opcode, Packet, Syndrome, credit, dissect};

/// The label of a packet: `SEND_LAST PSN 102 952 B A`.
pub(crate) fn label(bytes: &[u8]) -> String {
    let (name, rest) = name_and_rest(bytes);
    let psn = dissect(bytes).packet.map_or(String::new(), |packet| format!(" PSN {}", packet.psn().value()));
    let rest = if rest.is_empty() { rest } else { format!(" {rest}") };
    format!("{name}{psn}{rest}")
}

/// What a packet is called, and what stands behind its PSN: bytes, MSN, credits, AckReq.
pub(crate) fn name_and_rest(bytes: &[u8]) -> (String, String) {
    match dissect(bytes).packet {
        Ok(packet) => {
            let headers = Headers::parse(&packet);
            (name(&headers), rest(&packet, &headers))
        }
        Err(error) => ("malformed".into(), error.to_string()),
    }
}

fn rest(packet: &Packet<'_>, headers: &Headers) -> String {
    let mut words = Vec::new();
    let payload = packet.payload_len();
    match headers.reth {
        Some(reth) if payload == 0 && reth.len > 0 => words.push(format!("asks {} B", reth.len)),
        _ if payload > 0 => words.push(format!("{payload} B")),
        _ => {}
    }
    if let Some(aeth) = headers.aeth {
        words.push(format!("MSN {}", aeth.msn.value()));
        if let Syndrome::Ack { credits } = aeth.syndrome
            && let Some(n) = credit::credits(credits)
        {
            words.push(format!("credits {n}"));
        }
    }
    if headers.bth.ack_req {
        words.push("A".into());
    }
    words.join(" ")
}

/// The opcode without its transport; ACKNOWLEDGE by what its syndrome says.
pub(crate) fn name(headers: &Headers) -> String {
    let opcode = headers.bth.opcode;
    let short = match opcode {
        Opcode::Cnp => "CNP",
        opcode => opcode.name().split_once('_').map_or(opcode.name(), |(_, rest)| rest),
    };
    let short = short.strip_prefix("RDMA_").unwrap_or(short);
    match headers.aeth.map(|aeth| aeth.syndrome) {
        Some(Syndrome::Nak(code)) => format!("NAK {}", nak(code)),
        Some(Syndrome::RnrNak(timer)) => format!("RNR NAK {} ms", timer.ns() as f64 / 1e6),
        Some(Syndrome::Reserved(byte)) => format!("reserved syndrome {byte:#04x}"),
        Some(Syndrome::Ack { .. }) if short == "ACKNOWLEDGE" => "ACK".into(),
        Some(Syndrome::Ack { .. }) if short == "ATOMIC_ACKNOWLEDGE" => "ATOMIC_ACK".into(),
        _ => short.into(),
    }
}

fn nak(code: NakCode) -> String {
    match code {
        NakCode::PsnSequenceError => "sequence error".into(),
        NakCode::InvalidRequest => "invalid request".into(),
        NakCode::RemoteAccessError => "remote access".into(),
        NakCode::RemoteOperationalError => "remote operational".into(),
        NakCode::InvalidRdRequest => "invalid RD request".into(),
        NakCode::Reserved(code) => format!("code {code}"),
    }
}
