//! The IPv4 identification of a datagram, which a socket does not tell and the ICRC covers.
//!
//! A CRC is linear: flipping a bit of the identification flips the same bits of the ICRC, whatever else the packet holds. So the
//! difference between the ICRC that came and the one for identification 0 is a sum of sixteen known patterns, or the packet is
//! damaged. Sixteen unknowns of thirty-two bits leave sixteen bits that still check.
//!
//! In: a packet from the IP header on, with identification 0. Out: the identification for which its ICRC is right.

use xroce_wire::{ICRC_LEN, Ipv4Repr, UdpRepr};

use super::headers::icrc;

/// Where the identification lies in an IPv4 header.
const FIELD: std::ops::Range<usize> = 4..6;
/// IPv4, UDP, BTH and ICRC.
const SHORTEST: usize = Ipv4Repr::LEN + UdpRepr::LEN + 12 + ICRC_LEN;

/// The identification, or None where none fits. The field is left 0.
pub(super) fn solve(packet: &mut [u8]) -> Option<u16> {
    if packet.len() < SHORTEST {
        return None;
    }
    let came = u32::from_be_bytes(packet[packet.len() - ICRC_LEN..].try_into().ok()?);
    let with = |packet: &mut [u8], ident: u16| {
        packet[FIELD].copy_from_slice(&ident.to_be_bytes());
        u32::from_be_bytes(icrc(packet))
    };
    let at_zero = with(packet, 0);
    if at_zero == came {
        return Some(0);
    }
    // Each row: a combination of identification bits, and what it flips in the ICRC; no two rows share their top bit.
    let mut rows: Vec<(u32, u16)> = Vec::with_capacity(16);
    for bit in 0..16 {
        let ident = 1 << bit;
        let (flips, ident) = reduce(&rows, with(packet, ident) ^ at_zero, ident);
        if flips != 0 {
            rows.push((flips, ident));
        }
    }
    with(packet, 0);
    let (left, ident) = reduce(&rows, came ^ at_zero, 0);
    (left == 0).then_some(ident)
}

/// Takes away from `flips` what the rows explain.
fn reduce(rows: &[(u32, u16)], mut flips: u32, mut ident: u16) -> (u32, u16) {
    for (row, of) in rows {
        // Does this row hold the bit that is the row's highest?
        if flips & (1 << row.ilog2()) != 0 {
            flips ^= row;
            ident ^= of;
        }
    }
    (flips, ident)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xroce_wire::{Headers, IpRepr, Opcode, Operation};

    fn packet(payload: usize) -> Vec<u8> {
        let ip = IpRepr {
            src: xroce_wire::Gid::from_ipv4("192.0.2.1".parse().unwrap()),
            dst: xroce_wire::Gid::from_ipv4("192.0.2.2".parse().unwrap()),
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
        };
        let bth = xroce_wire::BthRepr {
            opcode: Opcode::Rc(Operation::SendOnly),
            solicited: false,
            migreq: true,
            pad: 0,
            pkey: xroce_wire::PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: xroce_wire::Qpn::new(0x11),
            ack_req: true,
            psn: xroce_wire::Psn::new(7),
        };
        let headers = Headers::new(ip, 0xc123, bth);
        let mut buf = vec![0; headers.packet_len(payload)];
        let data: Vec<u8> = (0..payload).map(|i| (i * 7) as u8).collect();
        let len = headers.emit_packet(&data, &mut buf);
        buf.truncate(len);
        buf
    }

    /// As a sender with a counted identification writes it, and as the socket's owner sees it.
    fn sent_with(ident: u16, payload: usize) -> Vec<u8> {
        let mut packet = packet(payload);
        packet[FIELD].copy_from_slice(&ident.to_be_bytes());
        let right = icrc(&packet);
        let end = packet.len();
        packet[end - ICRC_LEN..].copy_from_slice(&right);
        packet[FIELD].fill(0);
        packet
    }

    #[test]
    fn the_identification_is_found_for_every_length() {
        for payload in [0, 1, 3, 4, 255, 1024, 4096] {
            for ident in [0, 1, 2, 0x8000, 0xffff, 0x1234, 0xa55a] {
                let mut packet = sent_with(ident, payload);
                assert_eq!(solve(&mut packet), Some(ident), "{payload} bytes");
                assert_eq!(packet[FIELD], [0, 0]);
            }
        }
    }

    #[test]
    fn damage_is_still_seen() {
        let good = sent_with(0x4321, 64);
        let mut found = 0;
        // Every bit behind the addresses: covered by the ICRC, and no part of the identification.
        for bit in Ipv4Repr::LEN * 8..good.len() * 8 {
            let mut packet = good.clone();
            packet[bit / 8] ^= 1 << (bit % 8);
            found += u32::from(solve(&mut packet).is_some_and(|ident| ident != 0x4321));
        }
        // The UDP checksum and one byte of the BTH are not covered: they change nothing. One damage in 65,536 is mistaken.
        assert!(found <= 1, "{found}");
        for bit in [Ipv4Repr::LEN * 8 + 3, good.len() * 8 - 1, 60 * 8] {
            let mut packet = good.clone();
            packet[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(solve(&mut packet), Some(0x4321), "bit {bit}");
        }
    }

    #[test]
    fn what_is_too_short_has_none() {
        assert_eq!(solve(&mut [0; SHORTEST - 1]), None);
    }
}
