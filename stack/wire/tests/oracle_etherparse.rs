//! etherparse reads what we write, and we read what it writes: Ethernet, VLAN, IPv4, IPv6 and UDP.

mod common;

use common::{build, packet};
use etherparse::{
    EtherType as TheirType, Ethernet2Header, IpDscp, IpEcn, IpFragOffset, IpNumber, Ipv4Header, Ipv6FlowLabel,
    Ipv6Header, LinkExtHeader, LinkHeader, NetHeaders, PacketHeaders, SingleVlanHeader, TransportHeader, UdpHeader,
    VlanId, VlanPcp,
};
use proptest::prelude::*;
use xroce_wire::*;

type Tags = Vec<(u8, bool, u16)>;

fn tags() -> impl Strategy<Value = Tags> {
    proptest::collection::vec((0u8..8, any::<bool>(), 0u16..4096), 0..3)
}

fn our_link(macs: ([u8; 6], [u8; 6]), tags: &Tags, ethertype: EtherType) -> Link {
    let mut link = Link { dst: macs.0, src: macs.1, tags: [None; 2], ethertype };
    for (slot, &(pcp, dei, vid)) in link.tags.iter_mut().zip(tags) {
        *slot = Some(VlanRepr { pcp, dei, vid });
    }
    link
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn reads_what_we_write(macs: ([u8; 6], [u8; 6]), tags in tags(), (headers, payload) in packet()) {
        let v4 = headers.ip.is_ipv4();
        let link = our_link(macs, &tags, if v4 { EtherType::IPV4 } else { EtherType::IPV6 });
        let ip = build(&headers, &payload);
        let mut frame = vec![0; link.header_len()];
        link.emit(&mut frame);
        frame.extend(&ip);

        let theirs = PacketHeaders::from_ethernet_slice(&frame).unwrap();
        let Some(LinkHeader::Ethernet2(ethernet)) = theirs.link else { panic!("no Ethernet header") };
        prop_assert_eq!((ethernet.destination, ethernet.source), macs);
        let seen: Tags = theirs.link_exts.iter().map(|ext| match ext {
            LinkExtHeader::Vlan(tag) => (tag.pcp.value(), tag.drop_eligible_indicator, tag.vlan_id.value()),
            other => panic!("unexpected {other:?}"),
        }).collect();
        prop_assert_eq!(seen, tags);

        match theirs.net.unwrap() {
            NetHeaders::Ipv4(their, _) => {
                prop_assert!(v4);
                prop_assert_eq!(Gid::from_ipv4(their.source.into()), headers.ip.src);
                prop_assert_eq!(Gid::from_ipv4(their.destination.into()), headers.ip.dst);
                prop_assert_eq!(their.dscp.value() << 2 | their.ecn.value(), headers.ip.traffic_class);
                prop_assert_eq!(their.time_to_live, headers.ip.hop_limit);
                prop_assert_eq!(their.total_len as usize, ip.len());
                prop_assert_eq!(their.identification, 0);
                prop_assert!(their.dont_fragment && !their.more_fragments);
                prop_assert_eq!(their.fragment_offset, IpFragOffset::ZERO);
                prop_assert_eq!(their.header_checksum, their.calc_header_checksum());
            }
            NetHeaders::Ipv6(their, _) => {
                prop_assert!(!v4);
                prop_assert_eq!(Gid(their.source), headers.ip.src);
                prop_assert_eq!(Gid(their.destination), headers.ip.dst);
                prop_assert_eq!(their.traffic_class, headers.ip.traffic_class);
                prop_assert_eq!(their.flow_label.value(), headers.ip.flow_label);
                prop_assert_eq!(their.hop_limit, headers.ip.hop_limit);
                prop_assert_eq!(their.payload_length as usize, ip.len() - 40);
                prop_assert_eq!(their.next_header, IpNumber::UDP);
            }
            other => panic!("unexpected {other:?}"),
        }
        let Some(TransportHeader::Udp(udp)) = theirs.transport else { panic!("no UDP header") };
        prop_assert_eq!(udp.source_port, headers.udp_src_port);
        prop_assert_eq!(udp.destination_port, ROCE_PORT);
        prop_assert_eq!(udp.length as usize, ip.len() - headers.ip.header_len());
        prop_assert_eq!(udp.checksum, 0);
        prop_assert_eq!(theirs.payload.slice(), &ip[headers.ip.header_len() + 8..]);
    }

    #[test]
    fn we_read_what_it_writes(
        macs: ([u8; 6], [u8; 6]),
        tags in tags(),
        (headers, payload) in packet(),
        ident: u16,
        dont_fragment: bool,
        udp_checksum: u16,
    ) {
        let v4 = headers.ip.is_ipv4();
        let ours = build(&headers, &payload);
        let udp_bytes = &ours[headers.ip.header_len()..];
        let last = if v4 { TheirType::IPV4 } else { TheirType::IPV6 };

        let mut types: Vec<TheirType> = match tags.len() {
            0 => vec![],
            1 => vec![TheirType::VLAN_TAGGED_FRAME],
            _ => vec![TheirType::PROVIDER_BRIDGING, TheirType::VLAN_TAGGED_FRAME],
        };
        types.push(last);
        let mut frame = Ethernet2Header { destination: macs.0, source: macs.1, ether_type: types[0] }.to_bytes().to_vec();
        for (&(pcp, dei, vid), &ether_type) in tags.iter().zip(&types[1..]) {
            frame.extend(SingleVlanHeader {
                pcp: VlanPcp::try_new(pcp).unwrap(),
                drop_eligible_indicator: dei,
                vlan_id: VlanId::try_new(vid).unwrap(),
                ether_type,
            }.to_bytes());
        }
        let ip = headers.ip;
        if v4 {
            let (core::net::IpAddr::V4(src), core::net::IpAddr::V4(dst)) = (ip.src.to_ip(), ip.dst.to_ip()) else {
                panic!("not IPv4")
            };
            let mut header =
                Ipv4Header::new(udp_bytes.len() as u16, ip.hop_limit, IpNumber::UDP, src.octets(), dst.octets()).unwrap();
            header.dscp = IpDscp::try_new(ip.traffic_class >> 2).unwrap();
            header.ecn = IpEcn::try_new(ip.traffic_class & 3).unwrap();
            header.identification = ident;
            header.dont_fragment = dont_fragment;
            header.header_checksum = header.calc_header_checksum();
            frame.extend(header.to_bytes());
        } else {
            frame.extend(Ipv6Header {
                traffic_class: ip.traffic_class,
                flow_label: Ipv6FlowLabel::try_new(ip.flow_label).unwrap(),
                payload_length: udp_bytes.len() as u16,
                next_header: IpNumber::UDP,
                hop_limit: ip.hop_limit,
                source: ip.src.0,
                destination: ip.dst.0,
            }.to_bytes());
        }
        let udp_at = frame.len();
        frame.extend(UdpHeader {
            source_port: headers.udp_src_port,
            destination_port: ROCE_PORT,
            length: udp_bytes.len() as u16,
            checksum: udp_checksum,
        }.to_bytes());
        frame.extend(&udp_bytes[8..]);

        let link = Link::parse_ip(&frame).unwrap();
        let ethertype = if v4 { EtherType::IPV4 } else { EtherType::IPV6 };
        prop_assert_eq!(link, our_link(macs, &tags, ethertype));
        let packet = Packet::new_checked(&frame[link.header_len()..], &[]).unwrap();
        prop_assert_eq!(packet.ip(), ip);
        prop_assert_eq!(packet.udp_src_port(), headers.udp_src_port);
        prop_assert_eq!(packet.payload().0, &payload[..]);
        // Only the identification and the DF flag are inside the ICRC; the UDP checksum is not.
        prop_assert_eq!(packet.icrc_ok(), !v4 || (ident == 0 && dont_fragment));
        prop_assert_eq!(UdpRepr::parse(&frame[udp_at..]).unwrap().length as usize, udp_bytes.len());
        if v4 {
            let repr = Ipv4Repr::parse(&frame[link.header_len()..]).unwrap();
            prop_assert_eq!((repr.ident, repr.dont_fragment), (ident, dont_fragment));
            let mut again = [0; 20];
            repr.emit(&mut again);
            prop_assert_eq!(&again, &frame[link.header_len()..link.header_len() + 20]);
        } else {
            let repr = Ipv6Repr::parse(&frame[link.header_len()..]).unwrap();
            let mut again = [0; 40];
            repr.emit(&mut again);
            prop_assert_eq!(&again, &frame[link.header_len()..link.header_len() + 40]);
        }
    }

    #[test]
    fn ipv4_checksum_of_any_header(mut bytes: [u8; 20]) {
        bytes[0] = 0x45;
        let (their, _) = Ipv4Header::from_slice(&bytes).unwrap_or_else(|e| panic!("{e}"));
        let right = Ipv4::new_checked(&bytes[..]).unwrap().right_checksum();
        // etherparse rebuilds the header and so drops the reserved flag bit, which RFC 1071 sums like any other.
        if bytes[6] & 0x80 == 0 {
            prop_assert_eq!(right, their.calc_header_checksum());
        }
        Ipv4::new_unchecked(&mut bytes[..]).fill_checksum();
        let sum: u64 = bytes.chunks(2).map(|w| u64::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        prop_assert_eq!(sum % 0xFFFF, 0);
    }
}
