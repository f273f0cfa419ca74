//! What the mask of the ICRC changes, remembered: packets of a flow are alike in all that the ICRC does not cover.
//!
//! In: checked packets. Out: whether their ICRC is right, of most by one CRC over the packet as it lies there, where masking
//! takes a copy of the headers and a CRC of its own.
//!
//! A CRC is linear: for packets of one length, the CRC with the mask and the CRC without it differ by a value that follows from
//! the masked bits alone, whatever the rest of the packet. So the check is as strict as
//! [`Packet::icrc_ok`](crate::Packet::icrc_ok) is, for every packet.

use crate::bth;
use crate::octets::{get_u16, get_u32, get_u64};
use crate::packet::Packet;
use crate::{ipv4, ipv6, udp};

/// Kinds of packets that are remembered, a power of two. A flow has two to four: full packets of each set of headers, and ACKs.
const ENTRIES: usize = 16;

/// All bits that the ICRC does not cover, and the length: what the effect of the mask follows from. Some covered bits stand
/// between them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Kind {
    /// IPv4: version to total length, TTL to checksum. IPv6: version to hop limit. 0 is no packet.
    ip: u64,
    /// UDP checksum and the BTH's congestion byte.
    rest: u32,
}

impl Kind {
    #[inline(always)]
    fn of(packet: &Packet<'_>) -> Kind {
        let bytes = packet.header_bytes();
        let (ip, udp_at) = match packet.is_ipv4() {
            true => (u64::from(get_u32(bytes, 0)) << 32 | u64::from(get_u32(bytes, ipv4::TTL_AT)), ipv4::LEN),
            false => (get_u64(bytes, 0), ipv6::LEN),
        };
        let congestion = bytes[udp_at + udp::LEN + bth::CONGESTION_AT];
        Kind { ip, rest: u32::from(get_u16(bytes, udp_at + udp::CHECKSUM_AT)) << 8 | u32::from(congestion) }
    }

    #[inline]
    fn place(&self) -> usize {
        // Fibonacci hashing: the upper bits of the product depend on all bits of the factor.
        (self.ip.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - ENTRIES.ilog2())) as usize
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    kind: Kind,
    /// CRC without the mask, or-ed exclusively with the CRC with it. Found out when a kind comes the second time in a row: some
    /// senders number their packets in the IP header, and each of theirs is a kind of its own.
    effect: Option<u32>,
}

/// The kinds of packets that came last.
#[derive(Clone, Default, Debug)]
pub struct IcrcMemo {
    entries: [Entry; ENTRIES],
}

impl IcrcMemo {
    /// What [`Packet::icrc_ok`](crate::Packet::icrc_ok) says, in less time for a packet of a kind that came before.
    #[inline(always)]
    // rule: rx.icrc, icrc.mask
    pub fn icrc_ok(&mut self, packet: &Packet<'_>) -> bool {
        let kind = Kind::of(packet);
        let entry = &mut self.entries[kind.place()];
        match *entry {
            Entry { kind: known, effect: Some(effect) } if known == kind => {
                packet.missing() == 0 && unmasked(packet) ^ effect == stored(packet)
            }
            _ => entry.look(kind, packet),
        }
    }
}

impl Entry {
    /// Looks at a packet of a kind whose effect is not known.
    #[inline(never)]
    fn look(&mut self, kind: Kind, packet: &Packet<'_>) -> bool {
        let ok = packet.icrc_ok();
        let again = self.kind == kind;
        // The stored one is the one with the mask then.
        let effect = (ok && again).then(|| unmasked(packet) ^ stored(packet));
        *self = Entry { kind, effect };
        ok
    }
}

#[inline]
fn unmasked(packet: &Packet<'_>) -> u32 {
    u32::from_le_bytes(packet.unmasked_icrc())
}

#[inline]
fn stored(packet: &Packet<'_>) -> u32 {
    u32::from_le_bytes(packet.stored_icrc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BthRepr, Gid, Headers, IpRepr, Opcode, Operation, PKey, Psn, Qpn};

    fn packet(psn: u32) -> [u8; 48] {
        let bth = BthRepr {
            opcode: Opcode::Rc(Operation::SendOnly),
            solicited: false,
            migreq: true,
            pad: 0,
            pkey: PKey(0xFFFF),
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(17),
            ack_req: false,
            psn: Psn::new(psn),
        };
        let gid = |n| Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, n]);
        let ip = IpRepr { src: gid(1), dst: gid(2), traffic_class: 0, flow_label: 0, hop_limit: 64 };
        let headers = Headers::new(ip, 0xC000, bth);
        let mut bytes = [0; 48];
        headers.emit(4, &mut bytes);
        let (covered, stored) = bytes.split_at_mut(44);
        stored.copy_from_slice(&crate::Icrc::begin(covered).finish());
        bytes
    }

    #[test]
    fn the_effect_is_known_from_the_second_packet_on() {
        let mut memo = IcrcMemo::default();
        let known = |memo: &IcrcMemo| memo.entries.iter().filter(|entry| entry.effect.is_some()).count();
        for (psn, want) in [(1, 0), (2, 1), (3, 1)] {
            let bytes = packet(psn);
            assert!(memo.icrc_ok(&Packet::new_checked(&bytes, &[]).unwrap()));
            assert_eq!(known(&memo), want, "after PSN {psn}");
        }
    }

    #[test]
    fn a_bad_packet_teaches_nothing() {
        let mut memo = IcrcMemo::default();
        let mut bytes = packet(1);
        bytes[42] ^= 1;
        for _ in 0..3 {
            assert!(!memo.icrc_ok(&Packet::new_checked(&bytes, &[]).unwrap()));
        }
        assert!(memo.entries.iter().all(|entry| entry.effect.is_none()));
    }
}
