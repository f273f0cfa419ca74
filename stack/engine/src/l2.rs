//! The link layer of received frames.
//!
//! In: the first piece of a frame. Out: where the IP header begins and the VLAN it came with, or why it is not for us.
#![forbid(unsafe_code)]

use xroce_wire::{Field, Link, Qpn};

/// What stands in front of the IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct L2 {
    /// Bytes in front of the IP header.
    pub len: usize,
    /// The 12-bit VLAN identifier; None without a tag, and for a priority tag (VLAN 0).
    pub vlan: Option<u16>,
}

/// Why a frame stops here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotForUs {
    /// Shorter than its own headers.
    Truncated,
    /// Sent to another station (the interface may be promiscuous), or to a group: RoCE v2 unicast has no use for those.
    OtherStation,
    /// Neither IPv4 nor IPv6.
    NotIp,
}

/// Reads the link header. `own` is our MAC; all zero accepts every station (a port without MACs).
#[inline]
pub fn parse(head: &[u8], own: [u8; 6]) -> Result<L2, NotForUs> {
    // What nearly all frames are: for us, untagged, IP.
    if let Some((ethernet, _)) = head.split_first_chunk::<14>()
        && ethernet[..6] == own
        && matches!(ethernet[12..], [0x08, 0x00] | [0x86, 0xdd])
    {
        return Ok(L2 { len: 14, vlan: None });
    }
    parse_any(head, own)
}

#[inline(never)]
fn parse_any(head: &[u8], own: [u8; 6]) -> Result<L2, NotForUs> {
    let link = Link::parse_ip(head)
        .map_err(|e| if e.field == Field::EtherType { NotForUs::NotIp } else { NotForUs::Truncated })?;
    if link.dst != own && own != [0; 6] {
        return Err(NotForUs::OtherStation);
    }
    Ok(L2 { len: link.header_len(), vlan: link.vlan() })
}

/// The destination queue pair of a packet that begins with its IP header: enough to find the shard, checked by nobody yet.
#[inline]
pub fn peek_dest_qp(packet: &[u8]) -> Option<Qpn> {
    const UDP_LEN: usize = 8;
    const DEST_QP: usize = 5;
    let ip_len = match packet.first()? >> 4 {
        4 => usize::from(packet[0] & 0xf) * 4,
        6 => 40,
        _ => return None,
    };
    let at = ip_len + UDP_LEN + DEST_QP;
    let bytes = packet.get(at..at + 3)?;
    Some(Qpn::new(u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn frame(dst: [u8; 6], rest: &[u8]) -> Vec<u8> {
        [&dst[..], &[2, 0, 0, 0, 0, 9], rest].concat()
    }

    /// Report H40.
    #[test]
    fn plain_and_tagged_frames() {
        assert_eq!(parse(&frame(OWN, &[0x08, 0, 0x45]), OWN), Ok(L2 { len: 14, vlan: None }));
        assert_eq!(parse(&frame(OWN, &[0x86, 0xdd, 0x60]), OWN), Ok(L2 { len: 14, vlan: None }));
        let tagged = frame(OWN, &[0x81, 0, 0xe0, 0x64, 0x08, 0, 0x45]);
        assert_eq!(parse(&tagged, OWN), Ok(L2 { len: 18, vlan: Some(0x64) }));
        let priority = frame(OWN, &[0x81, 0, 0xe0, 0, 0x08, 0, 0x45]);
        assert_eq!(parse(&priority, OWN), Ok(L2 { len: 18, vlan: None }));
    }

    #[test]
    fn other_stations_and_protocols() {
        assert_eq!(parse(&frame([2, 0, 0, 0, 0, 2], &[0x08, 0]), OWN), Err(NotForUs::OtherStation));
        assert_eq!(parse(&frame([0xff; 6], &[0x08, 0]), OWN), Err(NotForUs::OtherStation));
        assert!(parse(&frame([0xff; 6], &[0x08, 0]), [0; 6]).is_ok());
        assert_eq!(parse(&frame(OWN, &[0x08, 0x06]), OWN), Err(NotForUs::NotIp));
    }

    #[test]
    fn no_cut_of_a_frame_panics() {
        let tagged = frame(OWN, &[0x81, 0, 0, 0x64, 0x08, 0]);
        for len in 0..tagged.len() {
            assert_eq!(parse(&tagged[..len], OWN), Err(NotForUs::Truncated), "{len}");
        }
    }

    #[test]
    fn the_destination_is_found_behind_both_ips() {
        let mut v4 = [0u8; 20 + 8 + 12];
        v4[0] = 0x45;
        v4[33..36].copy_from_slice(&[1, 2, 3]);
        assert_eq!(peek_dest_qp(&v4), Some(Qpn::new(0x010203)));
        let mut v6 = [0u8; 40 + 8 + 12];
        v6[0] = 0x60;
        v6[53..56].copy_from_slice(&[1, 2, 3]);
        assert_eq!(peek_dest_qp(&v6), Some(Qpn::new(0x010203)));
        assert_eq!(peek_dest_qp(&v6[..55]), None);
        assert_eq!(peek_dest_qp(&[]), None);
    }
}
