//! Frames that mean harm. In: whom they aim at, and what an attacker may know. Out: frames by kind, each kind with the counter
//! that must count it and the most answers that it may draw.
//!
//! The attacker sits on the link and writes raw frames. It knows addresses and QP numbers, and makes good ICRCs; what it does not
//! know is where the PSN windows stand: its guesses lie outside.

use std::net::Ipv4Addr;

use xroce::{Counters, DropReason, PortCounters, Psn, Qp, Qpn, Rkey};
use xroce_wire::{
    AethRepr, BthRepr, Gid, Headers, IpRepr, Msn, NakCode, Opcode, Operation, PKey, RethRepr, RnrTimer, Syndrome,
};

use crate::field::{IPV4, MAC};
use crate::pattern;

/// The queue pair that frames aim at, at end 1 of the field.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its number.
    pub qpn: Qpn,
    /// A PSN far ahead of, or behind, anything it expects or has sent: half the window's worth away.
    pub far: [Psn; 2],
    /// The PSN that is far ahead of what it expects from its peer.
    pub ahead: Psn,
    /// The PSN right behind which it expects its peer to go on.
    pub behind: Psn,
}

/// How far off the mark a guess is: a flow does not get that far in a test.
const FAR: u32 = 1 << 22;

impl Target {
    /// A connected queue pair, as it stands now.
    ///
    /// # Panics
    /// When it is not connected.
    pub fn of(qp: &Qp) -> Target {
        let attr = qp.query().expect("its device runs").attr;
        let (sq, rq) = (attr.sq_psn.expect("it is in RTS"), attr.rq_psn.expect("it is in RTS"));
        Target { qpn: qp.qpn(), far: [sq.add(FAR), sq.sub(FAR)], ahead: rq.add(FAR), behind: rq.sub(1) }
    }
}

/// Where a kind of frame must be counted.
#[derive(Debug, Clone, Copy)]
pub enum Counted {
    /// By the transport, for this reason.
    Drop(DropReason),
    /// By the shard or the port in front of it.
    Before(fn(&Seen) -> u64),
}

/// What a device has counted.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The port.
    pub port: PortCounters,
    /// Frames for another station.
    pub other_station: u64,
    /// Frames of another VLAN.
    pub other_vlan: u64,
    /// The transport.
    pub transport: Counters,
}

impl Seen {
    /// By the only shard of a device.
    ///
    /// # Panics
    /// When its poll thread died.
    pub fn by(context: &xroce::Context) -> Seen {
        let mut shards = context.counters().expect("the device runs");
        let (port, shard, transport) = shards.remove(0);
        Seen { port, other_station: shard.rx_other_station, other_vlan: shard.rx_other_vlan, transport }
    }

    /// What counts a kind of frame.
    pub fn of(&self, counted: Counted) -> u64 {
        match counted {
            Counted::Drop(reason) => self.transport.drops.get(reason),
            Counted::Before(read) => read(self),
        }
    }
}

/// How many packets may answer `frames` of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// None at all.
    None,
    /// This many, however many frames come.
    AtMost(u64),
    /// One a frame, no longer than it.
    OneEach,
}

/// A kind of frame.
pub struct Attack {
    /// What it is.
    pub name: &'static str,
    /// Who counts it.
    pub counted: Counted,
    /// What it draws.
    pub answers: Answers,
    frame: fn(&Target, u64) -> Vec<u8>,
}

impl Attack {
    /// Frame `i` of this kind; each differs a little.
    pub fn frame(&self, target: &Target, i: u64) -> Vec<u8> {
        (self.frame)(target, i)
    }
}

/// Every kind that is sure not to touch a good flow.
pub const HARMLESS: &[Attack] = &[
    Attack {
        name: "forged source address",
        counted: Counted::Drop(DropReason::WrongAddress),
        answers: Answers::None,
        frame: |t, i| {
            let mut headers = headers(t, t.ahead, Operation::SendOnly);
            headers.ip.src = Gid::from_ipv4(Ipv4Addr::from(0x0a09_0064 + (i % 100) as u32));
            frame(&headers, &[7; 64])
        },
    },
    Attack {
        name: "bad ICRC",
        counted: Counted::Drop(DropReason::BadIcrc),
        answers: Answers::None,
        frame: |t, i| {
            let mut bytes = frame(&headers(t, t.ahead, Operation::SendOnly), &[7; 64]);
            let at = bytes.len() - 1 - (i % 60) as usize;
            bytes[at] ^= 1 << (i % 8);
            bytes
        },
    },
    Attack {
        name: "unknown queue pair",
        counted: Counted::Drop(DropReason::UnknownQp),
        answers: Answers::None,
        frame: |t, i| {
            let mut headers = headers(t, t.ahead, Operation::SendOnly);
            // Another generation of the same place, a place that nobody has, and the two numbers of management.
            headers.bth.dest_qp = match i % 4 {
                0 => Qpn::new(t.qpn.value() ^ 0x1f_0000),
                1 => Qpn::new(t.qpn.value() ^ 0xe0_0000),
                2 => Qpn::new((i / 4 % 2) as u32),
                _ => Qpn::new(0xff_8000 | i as u32),
            };
            frame(&headers, &[7; 64])
        },
    },
    Attack {
        name: "ACK of the future",
        counted: Counted::Drop(DropReason::GhostResponse),
        answers: Answers::None,
        frame: |t, i| frame(&answer(t, t.far[0].add(i as u32 % 4096), Syndrome::Ack { credits: 31 }), &[]),
    },
    Attack {
        name: "ACK of the past",
        counted: Counted::Drop(DropReason::StaleResponse),
        answers: Answers::None,
        frame: |t, i| frame(&answer(t, t.far[1].add(i as u32 % 4096), Syndrome::Ack { credits: 0 }), &[]),
    },
    Attack {
        name: "RNR NAK outside the window",
        counted: Counted::Drop(DropReason::GhostResponse),
        answers: Answers::None,
        frame: |t, i| {
            let timer = RnrTimer::new((i % 32) as u8).expect("a code of five bits");
            frame(&answer(t, t.far[0], Syndrome::RnrNak(timer)), &[])
        },
    },
    Attack {
        name: "fatal NAK outside the window",
        counted: Counted::Drop(DropReason::StaleResponse),
        answers: Answers::None,
        frame: |t, i| {
            let codes = [NakCode::RemoteAccessError, NakCode::RemoteOperationalError, NakCode::InvalidRequest];
            frame(&answer(t, t.far[1], Syndrome::Nak(codes[i as usize % 3])), &[])
        },
    },
    Attack {
        name: "READ response that nobody asked for",
        counted: Counted::Drop(DropReason::GhostResponse),
        answers: Answers::None,
        frame: |t, i| {
            let mut headers = answer(t, t.far[0].add(i as u32 % 64), Syndrome::Ack { credits: 31 });
            headers.bth.opcode = Opcode::Rc(Operation::ReadResponseOnly);
            frame(&headers, &[9; 512])
        },
    },
    Attack {
        name: "CNP",
        counted: Counted::Drop(DropReason::Cnp),
        answers: Answers::None,
        frame: |t, _| {
            let mut headers = headers(t, Psn::new(0), Operation::SendOnly);
            headers.bth.opcode = Opcode::Cnp;
            headers.bth.becn = true;
            frame(&headers, &[])
        },
    },
    Attack {
        name: "wrong P_Key",
        counted: Counted::Drop(DropReason::WrongPKey),
        answers: Answers::None,
        frame: |t, i| {
            let mut headers = headers(t, t.ahead, Operation::SendOnly);
            headers.bth.pkey = PKey(0x8000 | (i as u16 % 0x7ffe));
            frame(&headers, &[7; 8])
        },
    },
    Attack {
        name: "another service's packet",
        counted: Counted::Drop(DropReason::WrongTransport),
        answers: Answers::None,
        frame: |t, _| {
            let mut headers = headers(t, t.ahead, Operation::SendOnly);
            headers.bth.opcode = Opcode::Uc(Operation::SendOnly);
            frame(&headers, &[7; 8])
        },
    },
    Attack {
        name: "malformed headers and lengths",
        counted: Counted::Drop(DropReason::Malformed),
        answers: Answers::None,
        frame: malformed,
    },
    Attack {
        name: "VLAN of others",
        counted: Counted::Before(|seen| seen.other_vlan),
        answers: Answers::None,
        frame: |t, i| {
            let mut bytes = frame(&headers(t, t.ahead, Operation::SendOnly), &[7; 64]);
            // Any but 0, which is no VLAN but a priority.
            let tag = [0x81, 0, (i % 16) as u8 | 0x10, i as u8 | 1];
            bytes.splice(12..12, tag);
            bytes
        },
    },
    Attack {
        name: "another station's frame",
        counted: Counted::Before(|seen| seen.other_station),
        answers: Answers::None,
        frame: |t, i| {
            let mut bytes = frame(&headers(t, t.ahead, Operation::SendOnly), &[7; 64]);
            // To somebody, and to everybody.
            bytes[..6].fill(if i % 2 == 0 { 0xff } else { 0x0a });
            bytes
        },
    },
    Attack {
        name: "fragments",
        counted: Counted::Before(|seen| seen.port.rx_left_to_kernel),
        answers: Answers::None,
        frame: |t, i| {
            let mut bytes = frame(&headers(t, t.ahead, Operation::SendOnly), &[7; 64]);
            // More to come, or a place that is not the first.
            let field: u16 = if i % 2 == 0 { 0x2000 } else { 185 };
            bytes[IP + 6..IP + 8].copy_from_slice(&field.to_be_bytes());
            sum_ipv4(&mut bytes);
            bytes
        },
    },
    Attack {
        name: "IP options",
        counted: Counted::Before(|seen| seen.port.rx_left_to_kernel),
        answers: Answers::None,
        frame: |t, _| {
            let mut bytes = frame(&headers(t, t.ahead, Operation::SendOnly), &[7; 64]);
            bytes.splice(IP + 20..IP + 20, [1, 1, 1, 0]);
            bytes[IP] = 0x46;
            let len = (bytes.len() - IP) as u16;
            bytes[IP + 2..IP + 4].copy_from_slice(&len.to_be_bytes());
            sum_ipv4(&mut bytes);
            bytes
        },
    },
];

/// What an attacker draws who also guesses on which side of the window a PSN lies: as much as any lost packet.
pub const DRAWING: &[Attack] = &[
    Attack {
        name: "request far ahead",
        counted: Counted::Drop(DropReason::PsnAhead),
        answers: Answers::AtMost(1),
        frame: |t, i| frame(&headers(t, t.ahead.add(i as u32 % 4096), Operation::SendOnly), &[7; 64]),
    },
    Attack {
        name: "READ that was never asked for",
        counted: Counted::Drop(DropReason::DuplicateTooOld),
        answers: Answers::None,
        frame: |t, i| {
            let mut headers = headers(t, t.behind.sub(1 << 16), Operation::ReadRequest);
            headers.reth = Some(RethRepr { va: 0x1000, rkey: Rkey(i as u32), len: 1 << 31 });
            frame(&headers, &[])
        },
    },
    Attack {
        name: "duplicate that asks for an ACK",
        counted: Counted::Before(|seen| seen.transport.qp.duplicate_request),
        answers: Answers::OneEach,
        frame: |t, i| {
            let mut headers = headers(t, t.behind.sub(i as u32 % 4096), Operation::SendOnly);
            headers.bth.ack_req = true;
            frame(&headers, &[7; 64])
        },
    },
];

/// Where the IP header begins.
const IP: usize = 14;
const UDP: usize = IP + 20;
const BTH: usize = UDP + 8;

fn headers(target: &Target, psn: Psn, operation: Operation) -> Headers {
    let ip = IpRepr {
        src: Gid::from_ipv4(IPV4[0]),
        dst: Gid::from_ipv4(IPV4[1]),
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
    };
    let bth = BthRepr {
        opcode: Opcode::Rc(operation),
        solicited: false,
        migreq: true,
        pad: 0,
        pkey: PKey::DEFAULT,
        fecn: false,
        becn: false,
        dest_qp: target.qpn,
        ack_req: false,
        psn,
    };
    Headers::new(ip, 0xc000, bth)
}

fn answer(target: &Target, psn: Psn, syndrome: Syndrome) -> Headers {
    let mut headers = headers(target, psn, Operation::Acknowledge);
    headers.aeth = Some(AethRepr { syndrome, msn: Msn::new(psn.value()) });
    headers
}

/// A frame from end 0 to end 1.
fn frame(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; IP + headers.packet_len(payload.len())];
    bytes[..6].copy_from_slice(&MAC[1]);
    bytes[6..12].copy_from_slice(&MAC[0]);
    bytes[12..14].copy_from_slice(&[8, 0]);
    headers.emit_packet(payload, &mut bytes[IP..]);
    bytes
}

fn sum_ipv4(bytes: &mut [u8]) {
    let len = usize::from(bytes[IP] & 0xf) * 4;
    bytes[IP + 10..IP + 12].fill(0);
    let sum: u32 = bytes[IP..IP + len].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
}

/// One thing wrong that a receiver can see without knowing anybody.
fn malformed(target: &Target, i: u64) -> Vec<u8> {
    let mut headers = headers(target, target.ahead, Operation::WriteOnly);
    headers.reth = Some(RethRepr { va: 0, rkey: Rkey(0), len: 0 });
    let mut bytes = frame(&headers, &[]);
    let set = |bytes: &mut Vec<u8>, at: usize, value: u16| bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    let ip_len = (bytes.len() - IP) as u16;
    match i % 10 {
        // The IP header promises more than there is, or less than a UDP header.
        0 => set(&mut bytes, IP + 2, 2000),
        1 => set(&mut bytes, IP + 2, 24),
        // The UDP length: too short for a BTH, longer than the packet, shorter than it.
        2 => set(&mut bytes, UDP + 4, 12),
        3 => set(&mut bytes, UDP + 4, ip_len),
        4 => set(&mut bytes, UDP + 4, ip_len - 24),
        // Another version of the transport header.
        5 => bytes[BTH + 1] |= 0x01,
        // An opcode that nobody has.
        6 => bytes[BTH] = 0x1f,
        // More pad than payload.
        7 => bytes[BTH + 1] |= 0x30,
        // Cut in the middle of the BTH, lengths and all.
        8 => {
            bytes.truncate(BTH + 6);
            set(&mut bytes, IP + 2, (BTH + 6 - IP) as u16);
            set(&mut bytes, UDP + 4, (BTH + 6 - UDP) as u16);
        }
        // An RDMA WRITE without its RETH.
        _ => {
            bytes.truncate(BTH + 12 + 4);
            set(&mut bytes, IP + 2, (BTH + 16 - IP) as u16);
            set(&mut bytes, UDP + 4, (BTH + 16 - UDP) as u16);
        }
    }
    sum_ipv4(&mut bytes);
    bytes
}

/// Frames of every kind, by chance.
pub fn mixture(target: &Target, kinds: &[&[Attack]], count: usize, seed: u64) -> Vec<Vec<u8>> {
    let all: Vec<&Attack> = kinds.iter().flat_map(|kinds| kinds.iter()).collect();
    let mut chance = seed | 1;
    (0..count)
        .map(|_| {
            let roll = pattern::draw(&mut chance);
            all[roll as usize % all.len()].frame(target, roll >> 8)
        })
        .collect()
}
