//! A packet as a hostile peer makes it: right where a lie would only be dropped, wrong where the fuzzer says.
//!
//! In: a few bytes. Out: a packet with a right ICRC, unless that is the lie.

use arbitrary::Arbitrary;
use xroce_wire::{
    AethRepr, AtomicAckRepr, AtomicEthRepr, BthRepr, DethRepr, HeaderSet, Headers, ICRC_LEN, Icrc, ImmData, IpRepr,
    Ipv4, Msn, Opcode, Operation, PKey, Packet, QKey, Qpn, RethRepr, Rkey, Syndrome, udp_src_port,
};

use super::victim::{PEER, VICTIM, Victim};

/// Bytes of payload at the most, beyond any path MTU here.
const MAX_PAYLOAD: usize = 600;

/// How long the payload is, or what a RETH says.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Length {
    /// One path MTU.
    Mtu,
    /// So much more or less than one.
    NearMtu(i8),
    Small(u8),
    /// Any: far beyond memory or not.
    Any(u32),
    /// What the payload has; for the RETH.
    Payload,
    /// So many path MTUs and a bit.
    Mtus(u8, u8),
}

/// Where a PSN lies.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum At {
    /// What the victim's responder expects next.
    Expected,
    /// So far from it.
    NearExpected(i8),
    /// So far from what the victim's requester sends next.
    NearSent(i8),
    Any(u32),
}

/// One lie about what the ICRC does not protect or what stands before it.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum Bend {
    Nothing,
    Source,
    Destination,
    PKey(u16),
    Qpn(u8),
    Version(u8),
    Pad(u8),
    Icrc,
    /// The packet is cut short, its lengths are not.
    Short(u8),
    /// IP and UDP say so much more or less.
    Lengths(i8),
    /// A byte anywhere, with the ICRC right again.
    Byte(u8, u8),
}

/// A packet of the peer.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Lie {
    operation: u8,
    /// Of the other transport.
    foreign: bool,
    psn: At,
    payload: Length,
    fill: u8,
    flags: u8,
    /// Which region, and where in or around it.
    region: u8,
    offset: i16,
    /// Whose key.
    key: u8,
    length: Length,
    syndrome: u8,
    msn: u8,
    word: u64,
    bend: Bend,
    cut: u16,
}

impl Lie {
    /// Where the packet comes apart; headers lie in the first piece.
    pub(super) fn cut(&self) -> usize {
        usize::from(self.cut)
    }

    fn payload_len(&self, mtu: usize) -> usize {
        self.payload.of(mtu, 0) as usize % (MAX_PAYLOAD + 1)
    }

    /// This packet as the first of a message, and what belongs behind it, without further lies but the last packet's.
    pub(super) fn message(&self, victim: &Victim, packets: u8) -> Vec<Lie> {
        let send = self.operation.is_multiple_of(2);
        let [first, middle, last] = match send {
            true => [Operation::SendFirst, Operation::SendMiddle, Operation::SendLast],
            false => [Operation::WriteFirst, Operation::WriteMiddle, Operation::WriteLast],
        };
        let packets = packets % 6 + 2;
        let mtu = victim.mtu() as u32;
        // The last packet is as long as it says; the RETH tells the whole, as far as the lie allows.
        let total = u32::from(packets - 1) * mtu + self.payload_len(victim.mtu()) as u32;
        let length = if let Length::Payload = self.length { Length::Any(total) } else { self.length };
        (0..packets)
            .map(|i| {
                let ends = i + 1 == packets;
                let operation = if i == 0 {
                    first
                } else if ends {
                    last
                } else {
                    middle
                };
                Lie {
                    operation: operation.code(),
                    foreign: false,
                    psn: if i == 0 { self.psn } else { At::Expected },
                    payload: if ends { self.payload } else { Length::Mtu },
                    fill: self.fill.wrapping_add(i),
                    length,
                    bend: if ends { self.bend } else { Bend::Nothing },
                    ..*self
                }
            })
            .collect()
    }

    /// The packet.
    pub(super) fn bytes(&self, victim: &Victim) -> Vec<u8> {
        let headers = self.headers(victim);
        let len = self.payload_len(victim.mtu());
        let payload: Vec<u8> = (0..len).map(|i| self.fill.wrapping_add(i as u8).wrapping_mul(7)).collect();
        let mut bytes = vec![0; headers.packet_len(len)];
        headers.emit_packet(&payload, &mut bytes);
        self.bend(&mut bytes, headers.ip.header_len());
        bytes
    }

    fn opcode(&self, victim: &Victim) -> Opcode {
        let operation = Operation::from_code(self.operation & 0x1F).unwrap_or(Operation::SendOnly);
        // FLUSH is read only; its bytes are another lie's.
        let operation = if operation == Operation::Flush { Operation::WriteOnly } else { operation };
        let opcode = if victim.is_rc() != self.foreign { Opcode::Rc(operation) } else { Opcode::Uc(operation) };
        Opcode::from_byte(opcode.byte()).unwrap_or(Opcode::Uc(Operation::SendOnly))
    }

    fn headers(&self, victim: &Victim) -> Headers {
        let opcode = self.opcode(victim);
        let (expected, sent) = victim.psns();
        let near =
            |psn: xroce_wire::Psn, by: i8| if by < 0 { psn.sub(by.unsigned_abs().into()) } else { psn.add(by as u32) };
        let psn = match self.psn {
            At::Expected => expected,
            At::NearExpected(by) => near(expected, by),
            At::NearSent(by) => near(sent, by),
            At::Any(value) => xroce_wire::Psn::new(value),
        };
        let va = victim.address(self.region, self.offset);
        let rkey = Rkey(victim.key(self.key, self.region));
        let len = self.length.of(victim.mtu(), self.payload_len(victim.mtu()));
        let flag = |bit: u8| self.flags & 1 << bit != 0;
        let ip = IpRepr { src: PEER, dst: VICTIM, traffic_class: self.flags & 3, flow_label: 0, hop_limit: 64 };
        let bth = BthRepr {
            opcode,
            solicited: flag(2),
            migreq: flag(3),
            pad: 0,
            pkey: PKey::DEFAULT,
            fecn: flag(4),
            becn: flag(5),
            dest_qp: victim.qpn(),
            ack_req: flag(6),
            psn,
        };
        let has = |header| opcode.headers().contains(header);
        let word = self.word;
        let aeth = AethRepr { syndrome: Syndrome::from_byte(self.syndrome), msn: Msn::new(self.msn.into()) };
        Headers {
            reth: has(HeaderSet::RETH).then_some(RethRepr { va, rkey, len }),
            atomic_eth: has(HeaderSet::ATOMIC_ETH).then_some(AtomicEthRepr { va, rkey, swap_add: word, compare: 0 }),
            aeth: has(HeaderSet::AETH).then_some(aeth),
            atomic_ack: has(HeaderSet::ATOMIC_ACK).then_some(AtomicAckRepr { original: word }),
            imm: has(HeaderSet::IMM).then_some(ImmData(word as u32)),
            ieth: has(HeaderSet::IETH).then_some(rkey),
            deth: has(HeaderSet::DETH).then_some(DethRepr { qkey: QKey(0), src_qp: Qpn::new(2) }),
            ..Headers::new(ip, udp_src_port(0, victim.qpn(), Qpn::new(2)), bth)
        }
    }

    fn bend(&self, bytes: &mut Vec<u8>, udp: usize) {
        let bth = udp + 8;
        match self.bend {
            Bend::Nothing => return,
            Bend::Icrc => {
                if let Some(last) = bytes.last_mut() {
                    *last ^= 1;
                }
                return;
            }
            Bend::Short(by) => {
                bytes.truncate(bytes.len().saturating_sub(usize::from(by)));
                return;
            }
            Bend::Source => bytes[15] ^= 1,
            Bend::Destination => bytes[19] ^= 1,
            Bend::PKey(key) => bytes[bth + 2..bth + 4].copy_from_slice(&key.to_be_bytes()),
            Bend::Qpn(by) => bytes[bth + 5] ^= by,
            Bend::Version(version) => bytes[bth + 1] = bytes[bth + 1] & 0xF0 | version & 0x0F,
            Bend::Pad(pad) => bytes[bth + 1] = bytes[bth + 1] & 0xCF | (pad & 3) << 4,
            Bend::Lengths(by) => {
                for at in [2, udp + 4] {
                    let value = u16::from_be_bytes([bytes[at], bytes[at + 1]]).wrapping_add_signed(by.into());
                    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
                }
                let len = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
                if (bth + 12 + ICRC_LEN..=bytes.len()).contains(&len) {
                    bytes.truncate(len);
                }
            }
            Bend::Byte(at, value) => {
                let at = usize::from(at) % bytes.len();
                bytes[at] = value;
            }
        }
        make_good(bytes, bth);
    }
}

/// IPv4 checksum and ICRC of what is there.
fn make_good(bytes: &mut [u8], bth: usize) {
    if bytes[0] >> 4 != 4 || bytes.len() < bth + 12 + ICRC_LEN {
        return;
    }
    Ipv4::new_unchecked(&mut *bytes).fill_checksum();
    let end = bytes.len() - ICRC_LEN;
    let icrc = Icrc::begin(&bytes[..end]).finish();
    bytes[end..].copy_from_slice(&icrc);
}

impl Length {
    fn of(self, mtu: usize, payload: usize) -> u32 {
        let mtu = mtu as u32;
        match self {
            Length::Mtu => mtu,
            Length::NearMtu(by) => mtu.saturating_add_signed(by.into()),
            Length::Small(len) => len.into(),
            Length::Any(len) => len,
            Length::Payload => payload as u32,
            Length::Mtus(times, more) => mtu * u32::from(times % 8) + u32::from(more),
        }
    }
}

/// The packet in these bytes, if it is one that a receiver at `dest` may take: the model's own view.
pub(super) fn well_formed(bytes: &[u8], dest: Qpn) -> Option<Packet<'_>> {
    let packet = Packet::new_checked(bytes, &[]).ok()?;
    let ip = packet.ip();
    let ours = ip.src == PEER && ip.dst == VICTIM && packet.dest_qp() == dest;
    (ours && packet.icrc_ok() && packet.bth().pkey.matches(PKey::DEFAULT)).then_some(packet)
}
