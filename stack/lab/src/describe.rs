//! One packet in one line of words: headers, payload length and ICRC verdict enter, aligned text leaves.
//!
//! Used wherever a person is shown packets, so that a line looks the same in every command.

use std::fmt;
use std::net::IpAddr;

use xroce_wire::{AethRepr, Headers, NakCode, Syndrome, credit};

/// What is known of the ICRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcrcVerdict {
    /// It matches the packet.
    Good,
    /// It does not.
    Bad,
    /// Not all bytes it covers are there.
    Unknown,
}

impl From<Option<bool>> for IcrcVerdict {
    fn from(ok: Option<bool>) -> Self {
        match ok {
            Some(true) => IcrcVerdict::Good,
            Some(false) => IcrcVerdict::Bad,
            None => IcrcVerdict::Unknown,
        }
    }
}

impl fmt::Display for IcrcVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            IcrcVerdict::Good => "good",
            IcrcVerdict::Bad => "BAD",
            IcrcVerdict::Unknown => "?",
        })
    }
}

/// Both addresses; the `width` of an address grows with what was seen, so that lines of one family stay aligned.
pub struct Path {
    /// Who sent it.
    pub src: IpAddr,
    /// Where it goes.
    pub dst: IpAddr,
    /// Characters for one address.
    pub width: usize,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.width;
        // IpAddr pads itself only through a string.
        write!(f, "{:>width$} → {:<width$}", self.src.to_string(), self.dst.to_string())
    }
}

/// A packet as one line: opcode, PSN, QP, payload, flags, ICRC, then what its extension headers say.
pub struct Packet<'a> {
    /// All headers.
    pub headers: &'a Headers,
    /// Bytes of payload, without pad.
    pub payload_len: usize,
    /// Whether the ICRC is right.
    pub icrc: IcrcVerdict,
}

/// Characters of the longest opcode name, `RC_RDMA_READ_RESPONSE_MIDDLE`.
const OPCODE_WIDTH: usize = 28;

/// The names over the columns that [`Packet`] prints.
pub fn heading() -> String {
    format!("{:<OPCODE_WIDTH$} {:>8}  {:>8}  {:>7}  flags  ICRC  details", "opcode", "PSN", "QP", "payload")
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = &self.headers.bth;
        write!(f, "{:<OPCODE_WIDTH$} {:#08x}  {:#08x}", bth.opcode.name(), bth.psn.value(), bth.dest_qp.value())?;
        write!(f, "  {:>5} B  {}  {:<4}", self.payload_len, flags(self.headers), self.icrc)?;
        for detail in details(self.headers) {
            write!(f, "  {detail}")?;
        }
        Ok(())
    }
}

/// A: an ACK is asked for, S: solicited event, M: migrated, F and B: congestion seen forward, backward.
fn flags(headers: &Headers) -> String {
    let bth = &headers.bth;
    [(bth.ack_req, 'A'), (bth.solicited, 'S'), (bth.migreq, 'M'), (bth.fecn, 'F'), (bth.becn, 'B')]
        .map(|(on, letter)| if on { letter } else { '.' })
        .iter()
        .collect()
}

fn details(headers: &Headers) -> Vec<String> {
    let mut details = Vec::new();
    if let Some(deth) = &headers.deth {
        details.push(format!("from QP {:#08x} Q_Key {:#010x}", deth.src_qp.value(), deth.qkey.0));
    }
    if let Some(reth) = &headers.reth {
        details.push(format!("VA {:#x} rkey {:#010x} length {}", reth.va, reth.rkey.0, reth.len));
    }
    if let Some(atomic) = &headers.atomic_eth {
        details.push(format!("VA {:#x} rkey {:#010x}", atomic.va, atomic.rkey.0));
        details.push(format!("swap or add {:#x} compare {:#x}", atomic.swap_add, atomic.compare));
    }
    if let Some(aeth) = &headers.aeth {
        details.push(aeth_words(aeth));
    }
    if let Some(ack) = &headers.atomic_ack {
        details.push(format!("value before {:#x}", ack.original));
    }
    if let Some(imm) = &headers.imm {
        details.push(format!("immediate {:#010x}", imm.0));
    }
    if let Some(rkey) = &headers.ieth {
        details.push(format!("invalidates rkey {:#010x}", rkey.0));
    }
    details
}

/// The AETH in words: `ACK, credits unlimited, MSN 5`.
pub fn aeth_words(aeth: &AethRepr) -> String {
    let what = match aeth.syndrome {
        Syndrome::Ack { credits } => match credit::credits(credits) {
            None => "ACK, credits unlimited".to_owned(),
            Some(n) => format!("ACK, credits {n}"),
        },
        Syndrome::RnrNak(timer) => format!("RNR NAK, wait {} ms", timer.ns() as f64 / 1e6),
        Syndrome::Nak(code) => format!("NAK, {}", nak_words(code)),
        Syndrome::Reserved(byte) => format!("reserved syndrome {byte:#04x}"),
    };
    format!("{what}, MSN {}", aeth.msn.value())
}

fn nak_words(code: NakCode) -> String {
    match code {
        NakCode::PsnSequenceError => "PSN sequence error".into(),
        NakCode::InvalidRequest => "invalid request".into(),
        NakCode::RemoteAccessError => "remote access error".into(),
        NakCode::RemoteOperationalError => "remote operational error".into(),
        NakCode::InvalidRdRequest => "invalid RD request".into(),
        NakCode::Reserved(code) => format!("reserved code {code}"),
    }
}
