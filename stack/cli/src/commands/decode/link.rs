//! Link layers: a frame and its link type enter, the bytes from the IP header on leave.

/// LINKTYPE values as in the registry of the pcap formats.
mod link_type {
    pub const ETHERNET: u32 = 1;
    pub const RAW: u32 = 101;
    pub const LINUX_SLL: u32 = 113;
    pub const IPV4: u32 = 228;
    pub const IPV6: u32 = 229;
    pub const LINUX_SLL2: u32 = 276;
}

/// What the error for a foreign link type lists.
pub const SUPPORTED: &str = "Ethernet (1), Linux SLL (113) and SLL2 (276), raw IP (101, 228, 229)";

/// What lies behind the link layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inner {
    /// IPv4 or IPv6 begins after so many bytes.
    Ip(usize),
    /// Some other protocol, or too short to tell.
    Other,
    /// The link type itself is not known here.
    UnknownLink,
}

/// Finds the IP header in a frame. VLAN tags are skipped, any number of them: 802.1Q, 802.1ad and the older 0x9100.
pub fn inner(link: u32, frame: &[u8]) -> Inner {
    match link {
        link_type::ETHERNET => by_ethertype(frame, 12),
        // Cooked captures end in the protocol (SLL: offset 14, then the packet) or begin with it (SLL2: 20 bytes in all).
        link_type::LINUX_SLL => by_ethertype(frame, 14),
        link_type::LINUX_SLL2 => match ethertype(frame, 0) {
            Some(tag) if is_vlan(tag) => by_ethertype(frame, 22),
            Some(0x0800 | 0x86DD) if frame.len() > 20 => Inner::Ip(20),
            _ => Inner::Other,
        },
        link_type::RAW | link_type::IPV4 | link_type::IPV6 if !frame.is_empty() => Inner::Ip(0),
        link_type::RAW | link_type::IPV4 | link_type::IPV6 => Inner::Other,
        _ => Inner::UnknownLink,
    }
}

/// What of the header before IP tells one place of a capture from another: addresses, VLANs, and of cooked captures interface and
/// direction. What lies behind a short address there was never written.
pub fn place(link: u32, header: &[u8]) -> &[u8] {
    let address_ends = |at: usize, len: Option<&u8>| at + usize::from(*len.unwrap_or(&0)).min(8);
    let range = match link {
        link_type::LINUX_SLL => 0..address_ends(6, header.get(5)),
        link_type::LINUX_SLL2 => 4..address_ends(12, header.get(11)),
        _ => 0..header.len(),
    };
    header.get(range).unwrap_or(header)
}

fn by_ethertype(frame: &[u8], mut at: usize) -> Inner {
    while let Some(kind) = ethertype(frame, at) {
        match kind {
            tag if is_vlan(tag) => at += 4,
            0x0800 | 0x86DD if frame.len() > at + 2 => return Inner::Ip(at + 2),
            _ => break,
        }
    }
    Inner::Other
}

fn ethertype(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]))
}

fn is_vlan(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88A8 | 0x9100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlan_tags_are_skipped_however_many() {
        let mut frame = vec![0; 12];
        for tag in [[0x88, 0xA8], [0x81, 0x00], [0x91, 0x00]] {
            frame.extend(tag);
            frame.extend([0, 20]);
        }
        frame.extend([0x86, 0xDD, 0x60]);
        assert_eq!(inner(1, &frame), Inner::Ip(26));
        assert_eq!(inner(1, &frame[..26]), Inner::Other, "nothing behind the ethertype");
        assert_eq!(inner(1, &frame[..13]), Inner::Other);
    }

    #[test]
    fn cooked_and_raw() {
        let mut sll = vec![0; 14];
        sll.extend([0x08, 0x00, 0x45]);
        assert_eq!(inner(113, &sll), Inner::Ip(16));
        let mut sll2 = vec![0x08, 0x00];
        sll2.extend([0; 18]);
        assert_eq!(inner(276, &sll2), Inner::Other);
        sll2.push(0x45);
        assert_eq!(inner(276, &sll2), Inner::Ip(20));
        let mut tagged = vec![0x81, 0x00];
        tagged.extend([0; 18]);
        tagged.extend([0, 20, 0x08, 0x00, 0x45]);
        assert_eq!(inner(276, &tagged), Inner::Ip(24));
        assert_eq!(inner(101, &[0x45]), Inner::Ip(0));
        assert_eq!(inner(228, &[]), Inner::Other);
        assert_eq!(inner(127, &sll), Inner::UnknownLink);
    }

    #[test]
    fn of_a_cooked_header_what_was_never_written_says_nothing_of_the_place() {
        let sll2 = [8, 0, 0, 0, 0, 0, 0, 17, 0, 1, 3, 6, 2, 0, 0, 0, 0, 1, 0xAB, 0xCD];
        assert_eq!(place(276, &sll2), &sll2[4..18]);
        let sll = [0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0xAB, 0xCD, 8, 0];
        assert_eq!(place(113, &sll), &sll[..12]);
        assert_eq!(place(1, &sll2), sll2);
        assert_eq!(place(276, &sll2[..15]), &sll2[..15], "shorter than it says");
    }

    #[test]
    fn other_protocols_are_passed_over() {
        let mut arp = vec![0; 12];
        arp.extend([0x08, 0x06, 0, 1]);
        assert_eq!(inner(1, &arp), Inner::Other);
    }
}
