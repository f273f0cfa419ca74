//! What a link message says about an interface. In: rtnetlink link messages. Out: [`LinkFacts`].

#![forbid(unsafe_code)]

use netlink_packet_route::link::{InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage};

use super::{Mac, PortState};

/// The part of an interface's facts that the kernel announces with every change of the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkFacts {
    pub ifindex: u32,
    pub name: String,
    pub mac: Mac,
    pub mtu: u32,
    pub flags: LinkFlags,
    pub layer: LinkLayerType,
    /// Link kind of rtnetlink ("veth", "vlan"); none for hardware.
    pub kind: Option<String>,
    /// The interface below: a VLAN's parent, a veth's peer.
    pub lower: Option<u32>,
    /// The interface below lives in another network namespace.
    pub lower_elsewhere: bool,
    pub vlan_id: Option<u16>,
    pub rx_queues: Option<u32>,
}

impl LinkFacts {
    pub(crate) fn parse(message: &LinkMessage) -> LinkFacts {
        let mut facts = LinkFacts {
            ifindex: message.header.index,
            name: String::new(),
            mac: Mac::ZERO,
            mtu: 0,
            flags: message.header.flags,
            layer: message.header.link_layer_type,
            kind: None,
            lower: None,
            lower_elsewhere: false,
            vlan_id: None,
            rx_queues: None,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => facts.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => facts.mtu = *mtu,
                LinkAttribute::Link(lower) => facts.lower = (*lower != 0).then_some(*lower),
                LinkAttribute::LinkNetNsId(_) => facts.lower_elsewhere = true,
                LinkAttribute::NumRxQueues(n) => facts.rx_queues = Some(*n),
                LinkAttribute::Address(bytes) => facts.mac = Mac::from_slice(bytes).unwrap_or(Mac::ZERO),
                LinkAttribute::LinkInfo(infos) => facts.read_kind(infos),
                _ => {}
            }
        }
        facts
    }

    fn read_kind(&mut self, infos: &[LinkInfo]) {
        for info in infos {
            match info {
                LinkInfo::Kind(kind) => self.kind = Some(kind.to_string()),
                LinkInfo::Data(InfoData::Vlan(vlan)) => {
                    self.vlan_id = vlan.iter().find_map(|v| if let InfoVlan::Id(id) = v { Some(*id) } else { None });
                }
                _ => {}
            }
        }
    }

    /// ACTIVE needs the administrator's "up" and a link that carries (`IFF_RUNNING`, which the kernel derives from
    /// carrier and operational state: `netif_oper_up`).
    pub(crate) fn port_state(&self) -> PortState {
        if self.flags.contains(LinkFlags::Up | LinkFlags::Running) { PortState::Active } else { PortState::Down }
    }

    /// Frames on it start with an Ethernet header, so next hops have MAC addresses.
    pub(crate) fn is_ethernet(&self) -> bool {
        self.layer == LinkLayerType::Ether
    }

    /// Set up by the administrator; it may still lack a carrier.
    pub(crate) fn is_up(&self) -> bool {
        self.flags.contains(LinkFlags::Up)
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.flags.contains(LinkFlags::Loopback)
    }
}
