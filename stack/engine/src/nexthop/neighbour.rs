//! The kernel's neighbour table (ARP, ND). In: an address on our link. Out: what the kernel knows of it; a nudge to find
//! out or to check.

#![forbid(unsafe_code)]

use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netdev::kernel::{Kernel, Mode, unexpected};
use crate::netdev::{Mac, NetlinkError};

/// An entry of the neighbour table, reduced to what a sender needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NeighbourEntry {
    pub address: IpAddr,
    /// The MAC address, in every state where the kernel itself would send to it (`NUD_VALID`).
    pub mac: Option<Mac>,
    /// The kernel asked and got no answer.
    pub failed: bool,
    /// The kernel is asking.
    pub asking: bool,
    /// Known, but not confirmed of late: a check is due before it is trusted for long.
    pub stale: bool,
    /// Known, and being checked; it has not answered yet.
    pub in_check: bool,
    /// Set by an administrator, or of a link without neighbours: never checked.
    pub fixed: bool,
}

impl NeighbourEntry {
    /// None for entries that are not IP neighbours (bridge forwarding entries use the same message) or proxies.
    pub(crate) fn parse(message: &NeighbourMessage) -> Option<NeighbourEntry> {
        if message.header.flags.contains(NeighbourFlags::Proxy) {
            return None;
        }
        let mut address = None;
        let mut mac = None;
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(a)) => address = Some(IpAddr::V4(*a)),
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(a)) => address = Some(IpAddr::V6(*a)),
                NeighbourAttribute::LinkLayerAddress(bytes) => mac = Mac::from_slice(bytes),
                _ => {}
            }
        }
        let state = message.header.state;
        let valid = matches!(
            state,
            NeighbourState::Reachable
                | NeighbourState::Stale
                | NeighbourState::Delay
                | NeighbourState::Probe
                | NeighbourState::Permanent
                | NeighbourState::Noarp
        );
        Some(NeighbourEntry {
            address: address?,
            mac: mac.filter(|_| valid),
            failed: state == NeighbourState::Failed,
            asking: state == NeighbourState::Incomplete,
            stale: state == NeighbourState::Stale,
            in_check: state == NeighbourState::Probe,
            fixed: matches!(state, NeighbourState::Permanent | NeighbourState::Noarp),
        })
    }
}

/// What the kernel knows of `address` on interface `ifindex`; none when it never heard of it.
pub(super) fn look_up(kernel: &Kernel, address: IpAddr, ifindex: u32) -> Result<Option<NeighbourEntry>, NetlinkError> {
    let doing = "look up a neighbour";
    match kernel.get(doing, RouteNetlinkMessage::GetNeighbour(request(address, ifindex))) {
        Ok(RouteNetlinkMessage::NewNeighbour(message)) => Ok(NeighbourEntry::parse(&message)),
        Ok(other) => Err(unexpected(doing, &other)),
        Err(e) if e.errno() == Some(libc::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Makes the kernel find out the MAC address, as if it had a packet to send (`NTF_USE` of `neigh_add` in
/// `net/core/neighbour.c`): an unknown or failed entry is asked for at once by broadcast or multicast, a stale one is
/// checked some seconds later. That needs `CAP_NET_ADMIN`; without, a datagram to the discard port has the same effect.
pub(super) fn solicit(kernel: &Kernel, address: IpAddr, ifindex: u32) -> Result<(), NetlinkError> {
    let mut message = request(address, ifindex);
    message.header.flags = NeighbourFlags::Use;
    match kernel.change("ask for a neighbour", RouteNetlinkMessage::NewNeighbour(message), Mode::Create) {
        Err(e) if e.errno() == Some(libc::EPERM) => kernel.send_discard(address, ifindex),
        result => result,
    }
}

/// Makes the kernel check at once that a neighbour it knows is still there. It asks by unicast first (`NUD_PROBE`); one that
/// has another MAC address by now cannot hear that, and the kernel gives up on it only after three seconds. So if such a check
/// is still unanswered, the entry is given up (`NUD_FAILED`), for the next look-up to ask everybody. Without `CAP_NET_ADMIN`
/// the kernel is asked to check soon.
pub(super) fn probe(kernel: &Kernel, address: IpAddr, ifindex: u32) -> Result<(), NetlinkError> {
    let next = match look_up(kernel, address, ifindex)? {
        Some(entry) if entry.in_check => NeighbourState::Failed,
        Some(entry) if entry.mac.is_some() && !entry.fixed => NeighbourState::Probe,
        // The look-up asks for one that is not known, and nobody asks for one that is set by hand.
        _ => return Ok(()),
    };
    let mut message = request(address, ifindex);
    message.header.state = next;
    match kernel.change("check a neighbour", RouteNetlinkMessage::NewNeighbour(message), Mode::Replace) {
        Err(e) if e.errno() == Some(libc::EPERM) => kernel.send_discard(address, ifindex),
        result => result,
    }
}

fn request(address: IpAddr, ifindex: u32) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.ifindex = ifindex;
    message.attributes.push(NeighbourAttribute::Destination(address.into()));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(state: NeighbourState, mac: Option<[u8; 6]>) -> NeighbourEntry {
        let mut message = request("10.0.0.9".parse().unwrap(), 3);
        message.header.state = state;
        message.attributes.extend(mac.map(|m| NeighbourAttribute::LinkLayerAddress(m.to_vec())));
        NeighbourEntry::parse(&message).unwrap()
    }

    #[test]
    fn the_mac_counts_only_in_states_the_kernel_would_send_in() {
        let mac = [2, 0, 0, 0, 0, 9];
        for state in [NeighbourState::Reachable, NeighbourState::Stale, NeighbourState::Permanent] {
            assert_eq!(entry(state, Some(mac)).mac, Some(Mac(mac)), "{state:?}");
        }
        for state in [NeighbourState::Incomplete, NeighbourState::Failed, NeighbourState::None] {
            assert_eq!(entry(state, Some(mac)).mac, None, "{state:?}");
        }
        assert!(entry(NeighbourState::Failed, None).failed);
        assert!(entry(NeighbourState::Stale, Some(mac)).stale);
    }

    #[test]
    fn proxy_entries_are_not_neighbours() {
        let mut message = request("10.0.0.9".parse().unwrap(), 3);
        message.header.flags = NeighbourFlags::Proxy;
        assert_eq!(NeighbourEntry::parse(&message), None);
    }
}
