//! A packet as a script describes it, and whether a packet that was seen is that one.

use xroce_wire::{Gid, Operation, Packet, Syndrome, pad_len};

use crate::expr::{Data, Num};
use crate::names::{self, Answer};

/// Which transport's opcode a packet carries; by default the queue pair's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names of the transports")]
pub enum Service {
    Rc,
    Uc,
    Ud,
}

/// What a packet is, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Everything that its opcode names.
    Operation(Operation),
    /// An ACKNOWLEDGE with that kind of syndrome.
    Answer(Answer),
    /// A congestion notification.
    Cnp,
}

impl Kind {
    /// The operation; a CNP has none.
    pub fn operation(self) -> Option<Operation> {
        match self {
            Kind::Operation(operation) => Some(operation),
            Kind::Answer(_) => Some(Operation::Acknowledge),
            Kind::Cnp => None,
        }
    }

    /// It goes from responder to requester.
    pub fn is_response(self) -> bool {
        self.operation().is_some_and(Operation::is_response)
    }
}

/// A packet: to be made, where what is `None` has a default; or to be matched, where it is not looked at.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names of the header fields")]
pub struct PacketSpec {
    pub kind: Kind,
    pub psn: Option<u32>,
    pub ack_req: Option<bool>,
    pub solicited: Option<bool>,
    pub migreq: Option<bool>,
    pub fecn: Option<bool>,
    pub becn: Option<bool>,
    pub pkey: Option<u16>,
    pub dest_qp: Option<u32>,
    /// Bytes of payload.
    pub len: Option<u32>,
    pub data: Option<Data>,
    pub va: Option<Num>,
    pub rkey: Option<Num>,
    /// DMA length of the RETH.
    pub dmalen: Option<u32>,
    pub imm: Option<u32>,
    pub inv: Option<Num>,
    pub swap: Option<u64>,
    pub add: Option<u64>,
    pub compare: Option<u64>,
    /// The original value of an atomic's answer.
    pub orig: Option<u64>,
    pub syndrome: Option<u8>,
    pub msn: Option<u32>,
    pub sport: Option<u16>,
    /// IPv4 ToS, IPv6 traffic class.
    pub tos: Option<u8>,
    pub hops: Option<u8>,
    pub flow: Option<u32>,
    pub wire: Wire,
}

/// Departures from what a well-behaved sender does; only for packets that the script makes.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the names of the fields that are bent")]
pub struct Wire {
    pub service: Option<Service>,
    /// The opcode byte.
    pub opcode: Option<u8>,
    pub bad_icrc: bool,
    pub pad: Option<u8>,
    pub tver: Option<u8>,
    /// The reserved bits beside FECN and BECN.
    pub resv6: Option<u8>,
    /// The reserved bits beside AckReq.
    pub resv7: Option<u8>,
    pub src: Option<Gid>,
    pub dst: Option<Gid>,
    pub dport: Option<u16>,
    pub udp_sum: Option<u16>,
    /// Added to the UDP length.
    pub udp_len: i32,
    /// Added to the IP length.
    pub ip_len: i32,
    /// Bytes of IPv4 options.
    pub options: usize,
    /// The fragment field of IPv4.
    pub fragment: Option<u16>,
    pub bad_ip_sum: bool,
    /// Bytes behind the end of the IP packet.
    pub junk: usize,
    /// Bytes cut off the end.
    pub cut: usize,
}

impl PacketSpec {
    /// A packet of which only the name is given.
    pub fn new(kind: Kind) -> PacketSpec {
        PacketSpec {
            kind,
            psn: None,
            ack_req: None,
            solicited: None,
            migreq: None,
            fecn: None,
            becn: None,
            pkey: None,
            dest_qp: None,
            len: None,
            data: None,
            va: None,
            rkey: None,
            dmalen: None,
            imm: None,
            inv: None,
            swap: None,
            add: None,
            compare: None,
            orig: None,
            syndrome: None,
            msn: None,
            sport: None,
            tos: None,
            hops: None,
            flow: None,
            wire: Wire::default(),
        }
    }

    /// Its payload, if it is one to be made.
    pub fn payload(&self) -> Vec<u8> {
        let data = self.data.clone().unwrap_or(Data::Pattern(0));
        let own = self.data.as_ref().and_then(Data::own_len).unwrap_or(0);
        data.bytes(self.len.map_or(own, |len| len as usize))
    }
}

/// One thing that is not as it must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// What it is.
    pub what: &'static str,
    /// How it must be.
    pub expected: String,
    /// How it is.
    pub seen: String,
}

/// Who sends to whom: what every packet of the device must say.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The device.
    pub device: Gid,
    /// The script.
    pub peer: Gid,
    /// The script's queue pair.
    pub peer_qpn: u32,
}

/// Gathers mismatches.
struct Checker(Vec<Mismatch>);

impl Checker {
    fn equal<T: PartialEq>(&mut self, what: &'static str, expected: T, seen: T, show: impl Fn(T) -> String) {
        if expected != seen {
            self.0.push(Mismatch { what, expected: show(expected), seen: show(seen) });
        }
    }

    /// Looks only if the script says something about it.
    fn named<T: PartialEq>(
        &mut self,
        what: &'static str,
        expected: Option<T>,
        seen: Option<T>,
        show: impl Fn(T) -> String,
    ) {
        let Some(expected) = expected else { return };
        match seen {
            Some(seen) => self.equal(what, expected, seen, show),
            None => self.0.push(Mismatch { what, expected: show(expected), seen: "no such header".into() }),
        }
    }
}

fn dec<T: core::fmt::Display>(value: T) -> String {
    value.to_string()
}

fn hex<T: core::fmt::LowerHex>(value: T) -> String {
    format!("{value:#x}")
}

fn flag(value: bool) -> String {
    u8::from(value).to_string()
}

/// What must hold for any packet that a device sends: lengths, port, opcode and version (all checked by the parser), ICRC,
/// reserved bits, pad, addresses, destination (IBTA, BTH and annex A17).
pub fn check_frame(bytes: &[u8], ends: &Ends) -> Result<(), Vec<Mismatch>> {
    let packet = match Packet::new_checked(bytes, &[]) {
        Ok(packet) => packet,
        Err(error) => {
            return Err(vec![Mismatch { what: "packet", expected: "well-formed".into(), seen: error.to_string() }]);
        }
    };
    let mut c = Checker(Vec::new());
    c.equal("icrc", true, packet.icrc_ok(), |ok| if ok { "right" } else { "wrong" }.into());
    let bth = &bytes[packet.ip().header_len() + 8..];
    c.equal("reserved bits of BTH byte 4", 0, bth[4] & 0x3F, hex);
    c.equal("reserved bits of BTH byte 8", 0, bth[8] & 0x7F, hex);
    c.equal("pad count", pad_len(packet.payload_len()) as u8, packet.bth().pad, dec);
    let end = packet.ip_len() - 4;
    let pad = &bytes[end - packet.bth().pad as usize..end];
    c.equal("pad bytes", 0, pad.iter().fold(0, |all, b| all | b), hex);
    c.equal("length after the packet", bytes.len(), packet.ip_len(), dec);
    let ip = packet.ip();
    c.equal("source address", ends.device.to_ip(), ip.src.to_ip(), dec);
    c.equal("destination address", ends.peer.to_ip(), ip.dst.to_ip(), dec);
    c.equal("destination QP", ends.peer_qpn, packet.dest_qp().value(), hex);
    if c.0.is_empty() { Ok(()) } else { Err(c.0) }
}

/// What a well-formed packet has that the script says otherwise. `num` evaluates addresses and keys.
pub fn check(spec: &PacketSpec, bytes: &[u8], num: impl Fn(&Num, bool) -> u64) -> Vec<Mismatch> {
    let mut c = Checker(Vec::new());
    let Ok(packet) = Packet::new_checked(bytes, &[]) else { return c.0 };
    let bth = packet.bth();
    let is_the_kind = match spec.kind {
        Kind::Operation(operation) => packet.opcode().operation() == Some(operation),
        Kind::Answer(answer) => {
            packet.opcode().operation() == Some(Operation::Acknowledge)
                && packet.aeth().is_some_and(|aeth| is_answer(answer, aeth.syndrome))
        }
        Kind::Cnp => packet.opcode() == xroce_wire::Opcode::Cnp,
    };
    if !is_the_kind {
        let seen = crate::show::kind(&packet);
        c.0.push(Mismatch { what: "packet", expected: crate::show::spec_kind(spec.kind), seen });
        return c.0;
    }
    c.named("psn", spec.psn, Some(bth.psn.value()), dec);
    c.named("A", spec.ack_req, Some(bth.ack_req), flag);
    c.named("SE", spec.solicited, Some(bth.solicited), flag);
    c.named("M", spec.migreq, Some(bth.migreq), flag);
    c.named("FECN", spec.fecn, Some(bth.fecn), flag);
    c.named("BECN", spec.becn, Some(bth.becn), flag);
    c.named("pkey", spec.pkey, Some(bth.pkey.0), hex);
    c.named("dest_qp", spec.dest_qp, Some(bth.dest_qp.value()), hex);
    c.named("sport", spec.sport, Some(packet.udp_src_port()), dec);
    let ip = packet.ip();
    c.named("tos", spec.tos, Some(ip.traffic_class), hex);
    c.named("hops", spec.hops, Some(ip.hop_limit), dec);
    c.named("flow", spec.flow, Some(ip.flow_label), hex);
    let sum_at = ip.header_len() + 6;
    let sum = u16::from_be_bytes([bytes[sum_at], bytes[sum_at + 1]]);
    c.named("udp_sum", spec.wire.udp_sum, Some(sum), hex);
    check_extensions(&mut c, spec, &packet, num);
    check_payload(&mut c, spec, &packet);
    c.0
}

fn is_answer(answer: Answer, syndrome: Syndrome) -> bool {
    match answer {
        Answer::Ack => matches!(syndrome, Syndrome::Ack { .. }),
        Answer::RnrNak => matches!(syndrome, Syndrome::RnrNak(_)),
        Answer::Nak => matches!(syndrome, Syndrome::Nak(_)),
        Answer::Any => true,
    }
}

fn check_extensions(c: &mut Checker, spec: &PacketSpec, packet: &Packet<'_>, num: impl Fn(&Num, bool) -> u64) {
    let (reth, atomic, aeth) = (packet.reth(), packet.atomic_eth(), packet.aeth());
    let va = reth.map(|h| h.va).or(atomic.map(|h| h.va));
    let rkey = reth.map(|h| h.rkey).or(atomic.map(|h| h.rkey)).map(|k| k.0);
    c.named("va", spec.va.as_ref().map(|n| num(n, false)), va, hex);
    c.named("rkey", spec.rkey.as_ref().map(|n| num(n, true) as u32), rkey, hex);
    c.named("dmalen", spec.dmalen, reth.map(|h| h.len), dec);
    c.named("imm", spec.imm, packet.imm().map(|i| i.0), hex);
    c.named("inv", spec.inv.as_ref().map(|n| num(n, true) as u32), packet.ieth().map(|k| k.0), hex);
    c.named("swap", spec.swap, atomic.map(|h| h.swap_add), dec);
    c.named("add", spec.add, atomic.map(|h| h.swap_add), dec);
    c.named("compare", spec.compare, atomic.map(|h| h.compare), dec);
    c.named("orig", spec.orig, packet.atomic_ack().map(|h| h.original), dec);
    c.named("msn", spec.msn, aeth.map(|h| h.msn.value()), dec);
    let syndrome = aeth.map(|h| h.syndrome.byte());
    c.named("syndrome", spec.syndrome, syndrome, |byte| format!("{byte:#04x} ({})", Syndrome::from_byte(byte)));
}

fn check_payload(c: &mut Checker, spec: &PacketSpec, packet: &Packet<'_>) {
    let len = packet.payload_len();
    c.named("len", spec.len, Some(len as u32), dec);
    let Some(data) = &spec.data else { return };
    let (head, tail) = packet.payload();
    let seen = [head, tail].concat();
    if let Some(at) = first_difference(&data.bytes(len), &seen) {
        let expected = data.bytes(len)[at];
        c.equal("data", expected, seen[at], |byte| format!("{byte:#04x} at byte {at} of {len}"));
    } else if let Some(own) = data.own_len() {
        c.equal("len", own, len, dec);
    }
}

/// The first place where two runs of bytes of one length differ.
pub fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(x, y)| x != y)
}

/// The name of a NAK code or of another syndrome, for a reader.
pub fn syndrome_text(byte: u8) -> String {
    match Syndrome::from_byte(byte) {
        Syndrome::Nak(code) => match names::NAK_CODES.iter().find(|(_, value)| *value == code.code()) {
            Some((name, _)) => format!("code={name}"),
            None => format!("code={}", code.code()),
        },
        Syndrome::RnrNak(timer) => format!("timer={}", timer.code()),
        Syndrome::Ack { credits: xroce_wire::credit::UNLIMITED } => String::new(),
        Syndrome::Ack { credits } => format!("credits={credits}"),
        Syndrome::Reserved(byte) => format!("syndrome={byte:#04x}"),
    }
}
