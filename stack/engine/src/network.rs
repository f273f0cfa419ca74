//! The network around a port: its own addresses and the way to others.
//!
//! In: the kernel's tables, or a list fixed at the start for ports that have no netdev. Out: GIDs, next hops, the state of
//! the link.
#![forbid(unsafe_code)]

use crate::gid::GidTable;
use crate::netdev::{AddressState, InterfaceAddress, Mac, Monitor, MonitorError, Netdev, PortState};
use crate::nexthop::{DEFAULT_HOP_LIMIT, NextHop, NextHopKind, ResolveError, Resolver};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use xroce_wire::Gid;

/// The names of all interfaces of the calling thread's network namespace.
///
/// # Errors
/// What the kernel says.
pub fn interface_names() -> io::Result<Vec<String>> {
    crate::sys::interface_names()
}

/// The network of a port that belongs to no netdev: every station is on the link and known by name.
#[derive(Clone, Debug, Default)]
pub struct FixedNetwork {
    /// The name reported for the device.
    pub name: String,
    /// Our own MAC address.
    pub mac: Mac,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// Our own addresses, in the order of their GID indices.
    pub addresses: Vec<IpAddr>,
    /// The other stations.
    pub neighbours: HashMap<IpAddr, Mac>,
    /// Where frames to stations that are not listed go; None: there are no others.
    pub others: Option<Mac>,
}

/// Where next hops come from.
#[derive(Debug)]
enum Hops {
    Kernel(Resolver),
    Fixed(FixedNetwork),
}

/// What changes while the device is open.
#[derive(Debug)]
pub struct NetworkState {
    /// The interface's name.
    pub name: String,
    /// Our addresses.
    pub gids: GidTable,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// Whether frames can pass.
    pub port_state: PortState,
    /// Times the kernel said that the link went down.
    pub link_downed: u64,
}

/// The network around a port.
#[derive(Debug)]
pub struct Network {
    hops: Hops,
    vlan: Option<u16>,
    state: RwLock<NetworkState>,
}

impl Network {
    /// The network as the kernel knows it, and the watch on it.
    ///
    /// # Errors
    /// The kernel cannot be asked, or the netdev's monitor was taken before.
    pub fn of_netdev(netdev: &Netdev) -> Result<(Network, Monitor), MonitorError> {
        let monitor = netdev.monitor()?;
        let facts = monitor.facts();
        let state = NetworkState {
            name: facts.name.clone(),
            gids: monitor.gids().clone(),
            mtu: facts.mtu,
            port_state: facts.state,
            link_downed: 0,
        };
        let vlan = facts.vlan_id();
        Ok((Network { hops: Hops::Kernel(netdev.resolver()), vlan, state: RwLock::new(state) }, monitor))
    }

    /// A network without a kernel behind it.
    pub fn fixed(fixed: FixedNetwork) -> Network {
        let addresses: Vec<InterfaceAddress> = fixed.addresses.iter().map(|address| usable(*address)).collect();
        let state = NetworkState {
            name: fixed.name.clone(),
            gids: GidTable::new(&addresses),
            mtu: fixed.mtu,
            port_state: PortState::Active,
            link_downed: 0,
        };
        Network { hops: Hops::Fixed(fixed), vlan: None, state: RwLock::new(state) }
    }

    /// The VLAN that every frame of the device carries.
    pub fn vlan(&self) -> Option<u16> {
        self.vlan
    }

    /// The kernel's look-up, where there is a kernel behind the network.
    pub(crate) fn resolver(&self) -> Option<&Resolver> {
        match &self.hops {
            Hops::Kernel(resolver) => Some(resolver),
            Hops::Fixed(_) => None,
        }
    }

    /// What is so now.
    pub fn state(&self) -> RwLockReadGuard<'_, NetworkState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state_mut(&self) -> RwLockWriteGuard<'_, NetworkState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next hop from `src` to `dst`, waiting up to `wait` for a neighbour to answer.
    ///
    /// # Errors
    /// As [`Resolver::resolve`]; in a fixed network a station that is not listed does not answer.
    pub fn resolve(&self, src: Gid, dst: Gid, wait: Duration) -> Result<NextHop, ResolveError> {
        match &self.hops {
            Hops::Kernel(resolver) => resolver.resolve(src, dst, wait),
            Hops::Fixed(fixed) => fixed.resolve(src, dst),
        }
    }
}

impl FixedNetwork {
    fn resolve(&self, src: Gid, dst: Gid) -> Result<NextHop, ResolveError> {
        let (from, to) = (src.to_ip(), dst.to_ip());
        if from.is_ipv4() != to.is_ipv4() {
            return Err(ResolveError::MixedFamilies { src, dst });
        }
        let interface = || self.name.clone();
        if !self.addresses.contains(&from) {
            return Err(ResolveError::SourceNotOurs { gid: src, interface: interface() });
        }
        let (kind, dst_mac) = if self.addresses.contains(&to) {
            (NextHopKind::Local, Mac::ZERO)
        } else {
            let unknown =
                || ResolveError::NoAnswer { neighbour: to, interface: interface(), dst, waited: Duration::ZERO };
            (NextHopKind::OnLink, self.neighbours.get(&to).copied().or(self.others).ok_or_else(unknown)?)
        };
        Ok(NextHop {
            kind,
            neighbour: to,
            dst_mac,
            src_mac: self.mac,
            vlan: None,
            hop_limit: DEFAULT_HOP_LIMIT,
            mtu: self.mtu,
        })
    }
}

fn usable(address: IpAddr) -> InterfaceAddress {
    let prefix_len = if address.is_ipv4() { 24 } else { 64 };
    InterfaceAddress { ifindex: 0, address, prefix_len, state: AddressState::Usable }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> FixedNetwork {
        FixedNetwork {
            name: "sim0".into(),
            mac: Mac([2, 0, 0, 0, 0, 1]),
            mtu: 4200,
            addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            neighbours: HashMap::from([("192.0.2.2".parse().unwrap(), Mac([2, 0, 0, 0, 0, 2]))]),
            others: None,
        }
    }

    fn gid(text: &str) -> Gid {
        match text.parse().unwrap() {
            IpAddr::V4(v4) => Gid::from_ipv4(v4),
            IpAddr::V6(v6) => Gid::from_ipv6(v6),
        }
    }

    #[test]
    fn neighbours_self_and_strangers() {
        let n = network();
        let hop = n.resolve(gid("192.0.2.1"), gid("192.0.2.2")).unwrap();
        assert_eq!((hop.kind, hop.dst_mac.0), (NextHopKind::OnLink, [2, 0, 0, 0, 0, 2]));
        let own = n.resolve(gid("192.0.2.1"), gid("192.0.2.1")).unwrap();
        assert_eq!(own.kind, NextHopKind::Local);
        let stranger = n.resolve(gid("192.0.2.1"), gid("192.0.2.3"));
        assert!(matches!(stranger, Err(ResolveError::NoAnswer { .. })));
        let open = FixedNetwork { others: Some(Mac([2, 0, 0, 0, 0, 9])), ..network() };
        assert_eq!(open.resolve(gid("192.0.2.1"), gid("192.0.2.3")).unwrap().dst_mac.0[5], 9);
        assert_eq!(open.resolve(gid("192.0.2.1"), gid("192.0.2.2")).unwrap().dst_mac.0[5], 2);
        let mixed = n.resolve(gid("192.0.2.1"), gid("2001:db8::1"));
        assert!(matches!(mixed, Err(ResolveError::MixedFamilies { .. })));
        let foreign = n.resolve(gid("192.0.2.9"), gid("192.0.2.2"));
        assert!(matches!(foreign, Err(ResolveError::SourceNotOurs { .. })));
    }

    #[test]
    fn every_address_has_a_gid() {
        let n = Network::fixed(network());
        assert_eq!(n.state().gids.len(), 2);
        assert!(n.state().gids.index_of(gid("2001:db8::1")).is_some());
    }
}
