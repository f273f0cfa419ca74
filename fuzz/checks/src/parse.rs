//! Frames from anywhere: nothing panics, and where etherparse reads them too, both read the same.
//!
//! In: a byte of options, then a frame or an IP packet. Out: nothing. Options let mutated bytes get past lengths and
//! checksums, which a fuzzer cannot guess.

use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use xroce_wire::{Field, Gid, Headers, Icrc, Ipv4, Link, Packet, ROCE_PORT, WireError, dissect};

/// The first byte: the frame begins with Ethernet.
const ETHERNET: u8 = 1;
/// IP and UDP lengths are set to what is there.
const FIX_LENGTHS: u8 = 2;
/// The IPv4 header checksum is set right.
const FIX_CHECKSUM: u8 = 4;
/// The ICRC is set right.
const FIX_ICRC: u8 = 8;
/// The rest of the byte: where the packet is cut in two, in steps of this.
const CUT_SHIFT: u32 = 4;
const CUT_STEP: usize = 13;

/// Reads the frame in every way there is.
pub fn check(data: &[u8]) {
    let Some((&options, frame)) = data.split_first() else { return };
    let mut bytes = frame.to_vec();
    let at = if options & ETHERNET == 0 { 0 } else { link(frame) };
    fix(options, &mut bytes[at..]);
    let ip = &bytes[at..];
    read(ip);
    pieces(ip, usize::from(options >> CUT_SHIFT) * CUT_STEP);
    let outcome = Packet::new_checked(ip, &[]);
    compare(ip, outcome);
    agrees_with_dissection(ip, outcome);
}

/// The link header; where IP begins, or 0 if there is none.
fn link(frame: &[u8]) -> usize {
    let parsed = Link::parse(frame);
    if let Ok(link) = parsed {
        let mut again = vec![0; link.header_len()];
        link.emit(&mut again);
        let reread = Link::parse(&again);
        // The types of tags are normalised; a third tag keeps the header from being read back alone.
        assert!(link.ethertype.is_tag() || reread == Ok(link), "{link:?} is read back as {reread:?}");
    }
    match Link::parse_ip(frame) {
        Ok(link) => {
            assert_eq!(parsed, Ok(link));
            link.header_len()
        }
        Err(error) => {
            let _ = error.to_string();
            0
        }
    }
}

/// Puts right what the options ask for, as far as there are bytes for it.
fn fix(options: u8, ip: &mut [u8]) {
    let header = match ip.first().map(|b| b >> 4) {
        Some(4) => 20,
        Some(6) => 40,
        _ => return,
    };
    if ip.len() < header + 8 + 12 + 4 {
        return;
    }
    let len = ip.len().min(usize::from(u16::MAX));
    if options & FIX_LENGTHS != 0 {
        let (at, value) = if header == 20 { (2, len) } else { (4, len - header) };
        ip[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
        ip[header + 4..header + 6].copy_from_slice(&((len - header) as u16).to_be_bytes());
    }
    if options & FIX_CHECKSUM != 0 && header == 20 {
        Ipv4::new_unchecked(&mut *ip).fill_checksum();
    }
    if options & FIX_ICRC != 0 {
        let icrc = Icrc::begin(&ip[..len - 4]).finish();
        ip[len - 4..len].copy_from_slice(&icrc);
    }
}

/// Every getter, on the packet and on each capture of its first bytes.
fn read(ip: &[u8]) {
    use_all(Packet::new_checked(ip, &[]));
    for captured in [ip.len() / 2, ip.len().saturating_sub(1), ip.len()] {
        use_all(Packet::new_truncated(&ip[..captured]));
    }
}

fn use_all(outcome: Result<Packet<'_>, WireError>) {
    match outcome {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(packet) => {
            let headers = Headers::parse(&packet);
            assert!(headers.fit_opcode(), "{headers:?}");
            assert_eq!(packet.feth().is_some(), packet.opcode().name().contains("FLUSH"));
            let (head, tail) = packet.payload();
            assert!(head.len() + tail.len() <= packet.payload_len());
            assert_eq!(packet.icrc().is_some(), packet.missing() == 0);
            assert_eq!(packet.icrc_bytes().is_some(), packet.missing() == 0);
            let _ = (packet.icrc_ok(), packet.header_bytes(), packet.pad_is_right());
        }
    }
}

/// In two pieces the packet is the same, as long as its headers lie in the first.
fn pieces(ip: &[u8], cut: usize) {
    let Some((head, tail)) = ip.split_at_checked(cut) else { return };
    let (whole, cut) = (Packet::new_checked(ip, &[]), Packet::new_checked(head, tail));
    use_all(cut);
    let (Ok(whole), Ok(cut)) = (whole, cut) else {
        let headers = whole.map_or(usize::MAX, |p| p.header_bytes().len());
        assert!(whole.is_err() || head.len() < headers, "in one piece {whole:?}, in two {cut:?}");
        // IP, UDP and BTH that end in the first piece are judged like those of a whole packet; later fields may be refused
        // earlier, for being out of reach.
        assert!(whole.is_ok() || cut.is_err(), "in one piece {whole:?}, in two {cut:?}");
        return;
    };
    assert_eq!(Headers::parse(&whole), Headers::parse(&cut));
    let of = |p: &Packet<'_>| [p.payload().0, p.payload().1].concat();
    assert_eq!(of(&whole), of(&cut));
    assert_eq!((whole.icrc_ok(), whole.icrc_bytes()), (cut.icrc_ok(), cut.icrc_bytes()));
}

/// etherparse's view of the same bytes.
fn compare(ip: &[u8], ours: Result<Packet<'_>, WireError>) {
    let theirs = PacketHeaders::from_ip_slice(ip);
    let packet = match (ours, theirs) {
        (Ok(packet), Ok(theirs)) => {
            same(&packet, &theirs);
            return;
        }
        (Ok(packet), Err(error)) => panic!("{packet:?}, but etherparse says: {error}"),
        (Err(error), Ok(theirs)) => (error, theirs),
        (Err(_), Err(_)) => return,
    };
    // What etherparse takes for a plain UDP packet to our port, we refuse only for what is ours to judge.
    let (error, theirs) = packet;
    let Some(TransportHeader::Udp(udp)) = &theirs.transport else { return };
    if udp.destination_port != ROCE_PORT {
        return;
    }
    let fields_of_theirs = match &theirs.net {
        Some(NetHeaders::Ipv4(ip, extensions)) => {
            ip.options.is_empty() && ip.header_checksum == ip.calc_header_checksum() && extensions.auth.is_none()
        }
        Some(NetHeaders::Ipv6(_, extensions)) => extensions.is_empty(),
        _ => false,
    };
    let judged_by_both = [
        Field::IpVersion,
        Field::Ipv4Header,
        Field::Ipv4HeaderLength,
        Field::Ipv4Protocol,
        Field::Ipv6Header,
        Field::Ipv6NextHeader,
        Field::UdpDstPort,
    ];
    assert!(!fields_of_theirs || !judged_by_both.contains(&error.field), "{error}, but etherparse reads {theirs:?}");
}

fn same(packet: &Packet<'_>, theirs: &PacketHeaders<'_>) {
    let ip = packet.ip();
    match theirs.net.as_ref().expect("an IP header") {
        NetHeaders::Ipv4(their, _) => {
            assert!(packet.is_ipv4());
            assert_eq!(Gid::from_ipv4(their.source.into()), ip.src);
            assert_eq!(Gid::from_ipv4(their.destination.into()), ip.dst);
            assert_eq!(their.dscp.value() << 2 | their.ecn.value(), ip.traffic_class);
            assert_eq!(their.time_to_live, ip.hop_limit);
            assert_eq!(usize::from(their.total_len), packet.ip_len());
        }
        NetHeaders::Ipv6(their, _) => {
            assert!(!packet.is_ipv4());
            assert_eq!((Gid(their.source), Gid(their.destination)), (ip.src, ip.dst));
            assert_eq!((their.traffic_class, their.flow_label.value()), (ip.traffic_class, ip.flow_label));
            assert_eq!(their.hop_limit, ip.hop_limit);
            assert_eq!(usize::from(their.payload_length) + 40, packet.ip_len());
        }
        other => panic!("etherparse reads {other:?}"),
    }
    let Some(TransportHeader::Udp(udp)) = &theirs.transport else { panic!("etherparse finds no UDP: {theirs:?}") };
    assert_eq!((udp.source_port, udp.destination_port), (packet.udp_src_port(), ROCE_PORT));
    let behind_udp = theirs.payload.slice();
    let (head, tail) = packet.payload();
    assert!(tail.is_empty());
    let bth_and_more = packet.header_bytes().len() - (packet.ip_len() - behind_udp.len());
    assert_eq!(head, &behind_udp[bth_and_more..bth_and_more + packet.payload_len()]);
}

/// The decoder's reading of the same bytes.
fn agrees_with_dissection(ip: &[u8], outcome: Result<Packet<'_>, WireError>) {
    let seen = dissect(ip);
    if let Ok(packet) = outcome {
        assert_eq!(seen.ip, Some(packet.ip()));
        assert_eq!(seen.udp.map(|u| (u.src_port, u.dst_port)), Some((packet.udp_src_port(), ROCE_PORT)));
        assert_eq!(seen.bth.map(|b| b.opcode_byte()), Some(packet.opcode().byte()));
        assert!(seen.packet.is_ok_and(|p| p.missing() == 0));
    }
}
