//! The ICRC against an independent CRC, over any bytes in any pieces, for IPv4 and IPv6.
//!
//! In: a byte for the family, four bytes that say where to cut, and the packet. Out: nothing.

use crc::{CRC_32_ISO_HDLC, Crc};
use xroce_wire::Icrc;

const ORACLE: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// What [`Icrc::begin`] must be given at least.
const SHORTEST: [usize; 2] = [20 + 8 + 12, 40 + 8 + 12];

/// Computes the ICRC in pieces and compares.
pub fn check(data: &[u8]) {
    let Some((&[family, a, b, c, d], packet)) = data.split_first_chunk::<5>() else { return };
    let v6 = family & 1 == 1;
    let mut packet = packet.to_vec();
    let shortest = SHORTEST[usize::from(v6)];
    if packet.len() < shortest {
        return;
    }
    packet[0] = packet[0] & 0x0F | if v6 { 0x60 } else { 0x40 };
    // The first piece holds the headers, with as much of what follows as it likes.
    let mut at = (shortest + usize::from(a)).min(packet.len());
    let mut icrc = Icrc::begin(&packet[..at]);
    for len in [b, c, d].map(usize::from) {
        let end = (at + len).min(packet.len());
        icrc.update(&packet[at..end]);
        at = end;
    }
    icrc.update(&packet[at..]);
    assert_eq!(icrc.finish(), oracle(&packet, v6), "{packet:02x?}");
}

/// By the letter: ones, then the packet with its variant fields made ones.
fn oracle(packet: &[u8], v6: bool) -> [u8; 4] {
    let mut masked = packet.to_vec();
    let ip: &[usize] = if v6 { &[1, 2, 3, 7] } else { &[1, 8, 10, 11] };
    let udp = if v6 { 40 } else { 20 };
    if v6 {
        masked[0] |= 0x0F;
    }
    for at in ip.iter().copied().chain([udp + 6, udp + 7, udp + 8 + 4]) {
        masked[at] = 0xFF;
    }
    let mut digest = ORACLE.digest();
    digest.update(&[0xFF; 8]);
    digest.update(&masked);
    digest.finalize().to_le_bytes()
}
