//! From a destination to the next station on the wire. In: source and destination GID. Out: [`NextHop`], or an error that
//! says what to do.
//!
//! The kernel decides: its routing tables choose interface and gateway, its neighbour table knows the MAC addresses. What
//! is added here are the checks a NIC bound to one interface needs: the way must leave by our interface, must not give a
//! MAC address that no single other station has, and a link-local address stays on its link.

#![forbid(unsafe_code)]

mod error;
mod neighbour;
mod route;

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use xroce_wire::Gid;

pub use self::error::{Refusal, ResolveError};
pub(crate) use self::neighbour::NeighbourEntry;

use self::route::{Query, Route, Unicast};
use crate::netdev::kernel::Kernel;
use crate::netdev::link::LinkFacts;
use crate::netdev::{AddressState, InterfaceAddress, Mac, addresses_of};

/// Hop limit (IPv4: TTL) where neither route nor application says otherwise.
pub const DEFAULT_HOP_LIMIT: u8 = 64;

/// First pause between two looks at the neighbour table; each further one is twice as long. On a LAN the answer comes
/// within a fraction of a millisecond.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
/// Longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// What the next station is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHopKind {
    /// The destination is an address of our own interface: packets to it loop inside and never go on the wire.
    Local,
    /// The destination itself.
    OnLink,
    /// A router.
    Gateway(IpAddr),
}

/// Where frames to a destination go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextHop {
    /// What the next station is.
    pub kind: NextHopKind,
    /// Address whose MAC this is: the destination's or the gateway's.
    pub neighbour: IpAddr,
    /// Destination MAC address of the frames. Zero for [`NextHopKind::Local`].
    pub dst_mac: Mac,
    /// Source MAC address of the frames: that of our interface.
    pub src_mac: Mac,
    /// VLAN identifier of the frames, where our interface is a VLAN.
    pub vlan: Option<u16>,
    /// Hop limit to send with: that of the route, or [`DEFAULT_HOP_LIMIT`].
    pub hop_limit: u8,
    /// Bytes of the largest IP packet: the interface MTU, or less where the route says so.
    pub mtu: u32,
}

/// A look at the tables that does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The next hop is known.
    Known(NextHop),
    /// Everything but the MAC address, which is zero: the kernel was made to ask for it, and the answer comes as
    /// [`Change::NeighbourChanged`](crate::netdev::Change::NeighbourChanged).
    Asked(NextHop),
}

/// Looks up next hops through one interface. Made by [`Netdev::resolver`](crate::netdev::Netdev::resolver).
///
/// Its calls are system calls that the kernel answers at once, unless somebody holds its lock over the network
/// configuration (a driver reset can for seconds): use it from a control thread, not from the poll loop.
#[derive(Debug, Clone)]
pub struct Resolver {
    kernel: Arc<Kernel>,
    ifindex: u32,
}

/// The routing part of the answer.
enum Way {
    Local { ifindex: u32 },
    Out(Unicast),
}

impl Resolver {
    pub(crate) fn new(kernel: Arc<Kernel>, ifindex: u32) -> Resolver {
        Resolver { kernel, ifindex }
    }

    /// The next hop from `src`, a GID of this interface, to `dst`. Waits up to `deadline` for the neighbour to answer
    /// ARP or neighbour discovery; a neighbour that the kernel gave up on is asked for again. An entry that the kernel
    /// holds but has not confirmed of late is used, as the kernel does, and a check of it is set off.
    ///
    /// # Errors
    /// Each [`ResolveError`] names addresses and interface. Nothing is remembered: the call may be repeated.
    pub fn resolve(&self, src: Gid, dst: Gid, deadline: Duration) -> Result<NextHop, ResolveError> {
        let start = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let neighbour = match self.look_up(src, dst)? {
                Lookup::Known(next_hop) => return Ok(next_hop),
                Lookup::Asked(next_hop) => next_hop.neighbour,
            };
            let waited = start.elapsed();
            let Some(left) = deadline.checked_sub(waited).filter(|left| !left.is_zero()) else {
                let interface = self.link()?.name;
                return Err(ResolveError::NoAnswer { neighbour, interface, dst, waited });
            };
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The same without waiting: where the MAC address is not known, the kernel is made to ask for it.
    ///
    /// # Errors
    /// As [`Resolver::resolve`], but for [`ResolveError::NoAnswer`].
    // rule: path.next-hop
    pub fn look_up(&self, src: Gid, dst: Gid) -> Result<Lookup, ResolveError> {
        let link = self.link()?;
        let unicast = match self.way(&link, src, dst)? {
            Way::Local { ifindex } if ifindex == self.ifindex => return Ok(Lookup::Known(local(&link, dst))),
            Way::Local { ifindex } => {
                return Err(ResolveError::LocalElsewhere { dst, holder: self.name_of(ifindex), interface: link.name });
            }
            Way::Out(unicast) => unicast,
        };
        if !link.is_ethernet() {
            return Err(ResolveError::NotEthernet { interface: link.name });
        }
        let neighbour = unicast.gateway.unwrap_or(dst.to_ip());
        let mut next_hop = NextHop {
            kind: unicast.gateway.map_or(NextHopKind::OnLink, NextHopKind::Gateway),
            neighbour,
            dst_mac: Mac::ZERO,
            src_mac: link.mac,
            vlan: link.vlan_id,
            hop_limit: unicast.hop_limit.unwrap_or(DEFAULT_HOP_LIMIT),
            mtu: unicast.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)),
        };
        let Some(mac) = self.mac_of(neighbour)? else { return Ok(Lookup::Asked(next_hop)) };
        let interface = link.name;
        mac.check_next_hop(link.mac).map_err(|why| ResolveError::BadMac { neighbour, interface, mac, why })?;
        next_hop.dst_mac = mac;
        Ok(Lookup::Known(next_hop))
    }

    /// Makes the kernel check at once that a neighbour is still there, as when packets to it go unanswered. A change or
    /// a loss comes as [`Change::NeighbourChanged`](crate::netdev::Change::NeighbourChanged). Called again while the check is
    /// unanswered, it makes the kernel give the neighbour up, so that the next look-up asks for it anew.
    ///
    /// # Errors
    /// When the kernel refuses. A neighbour that it does not know, or that was set by hand, is not checked.
    pub fn probe(&self, neighbour: IpAddr) -> Result<(), ResolveError> {
        Ok(neighbour::probe(&self.kernel, neighbour, self.ifindex)?)
    }

    /// The neighbour's MAC address, if known. Otherwise sees to it that the kernel is asking.
    fn mac_of(&self, address: IpAddr) -> Result<Option<Mac>, ResolveError> {
        let entry = neighbour::look_up(&self.kernel, address, self.ifindex)?;
        if let Some(entry) = entry
            && (entry.asking || (entry.mac.is_some() && !entry.stale))
        {
            return Ok(entry.mac);
        }
        neighbour::solicit(&self.kernel, address, self.ifindex)?;
        if let Some(mac) = entry.and_then(|entry| entry.mac) {
            return Ok(Some(mac));
        }
        // A link without address resolution has its entry at once.
        Ok(neighbour::look_up(&self.kernel, address, self.ifindex)?.and_then(|entry| entry.mac))
    }

    fn way(&self, link: &LinkFacts, src: Gid, dst: Gid) -> Result<Way, ResolveError> {
        let (source, destination) = (src.to_ip(), dst.to_ip());
        check_destination(dst)?;
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(ResolveError::MixedFamilies { src, dst });
        }
        let addresses = addresses_of(&self.kernel, None)?;
        if !addresses.iter().any(|a| self.holds(a, source) && a.state == AddressState::Usable) {
            return Err(ResolveError::SourceNotOurs { gid: src, interface: link.name.clone() });
        }
        if let Some(ifindex) = self.local_holder(&addresses, destination) {
            return Ok(Way::Local { ifindex });
        }
        let refused = |refusal| ResolveError::Refused { dst, interface: link.name.clone(), refusal };
        if !link.is_up() {
            return Err(refused(Refusal::InterfaceDown));
        }
        match self.route(source, destination)? {
            Route::Local { oif } => Ok(Way::Local { ifindex: oif }),
            Route::NotUnicast(what) => Err(ResolveError::NotUnicast { gid: dst, what }),
            Route::Refused(refusal) => Err(refused(refusal)),
            Route::Unicast(unicast) if unicast.oif != self.ifindex => Err(ResolveError::WrongInterface {
                dst,
                interface: link.name.clone(),
                takes: self.name_of(unicast.oif),
            }),
            Route::Unicast(unicast) => {
                check_scope(link, src, dst, unicast)?;
                Ok(Way::Out(unicast))
            }
        }
    }

    /// The kernel's choice. Where that does not lead through our interface, its choice among the ways that do, if there
    /// are any: two interfaces in one subnet each reach the peers on their own link, and a rule for one interface
    /// (policy routing, VRF) counts.
    fn route(&self, source: IpAddr, destination: IpAddr) -> Result<Route, ResolveError> {
        let ours = Query { source: Some(source), oif: Some(self.ifindex) };
        if is_link_local(destination) {
            return Ok(route::look_up(&self.kernel, destination, ours)?);
        }
        let free = route::look_up(&self.kernel, destination, Query { oif: None, ..ours })?;
        let leads_elsewhere = match free {
            Route::Unicast(unicast) => unicast.oif != self.ifindex,
            Route::Refused(_) => true,
            Route::Local { .. } | Route::NotUnicast(_) => false,
        };
        if !leads_elsewhere || !route::exists(&self.kernel, destination, self.ifindex)? {
            return Ok(free);
        }
        // With a source an IPv6 look-up only prefers the interface; without, it insists.
        let source = Some(source).filter(IpAddr::is_ipv4);
        Ok(route::look_up(&self.kernel, destination, Query { source, ..ours })?)
    }

    fn holds(&self, held: &InterfaceAddress, address: IpAddr) -> bool {
        held.ifindex == self.ifindex && held.address == address
    }

    /// The interface of this host that holds `destination`. A link-local address of another interface is another
    /// station's as far as our link is concerned.
    fn local_holder(&self, addresses: &[InterfaceAddress], destination: IpAddr) -> Option<u32> {
        let mut holders = addresses.iter().filter(|a| a.address == destination).map(|a| a.ifindex);
        if is_link_local(destination) {
            return holders.find(|&ifindex| ifindex == self.ifindex);
        }
        // Our own interface before any other that has the same address.
        let holders: Vec<u32> = holders.collect();
        holders.iter().copied().find(|&i| i == self.ifindex).or_else(|| holders.first().copied())
    }

    fn link(&self) -> Result<LinkFacts, ResolveError> {
        Ok(LinkFacts::parse(&self.kernel.link_by_index(self.ifindex)?))
    }

    fn name_of(&self, ifindex: u32) -> String {
        match self.kernel.link_by_index(ifindex) {
            Ok(link) => LinkFacts::parse(&link).name,
            Err(_) => format!("interface {ifindex}"),
        }
    }
}

fn local(link: &LinkFacts, dst: Gid) -> NextHop {
    NextHop {
        kind: NextHopKind::Local,
        neighbour: dst.to_ip(),
        dst_mac: Mac::ZERO,
        src_mac: link.mac,
        vlan: link.vlan_id,
        hop_limit: DEFAULT_HOP_LIMIT,
        mtu: link.mtu,
    }
}

fn check_destination(dst: Gid) -> Result<(), ResolveError> {
    let ip = dst.to_ip();
    let what = if ip.is_unspecified() {
        "the unspecified address"
    } else if ip.is_multicast() {
        "a multicast address"
    } else if matches!(ip, IpAddr::V4(v4) if v4.is_broadcast()) {
        "a broadcast address"
    } else {
        return Ok(());
    };
    Err(ResolveError::NotUnicast { gid: dst, what })
}

/// Keeps link-local addresses on their link (RFC 4291 2.5.6): as source or destination of a routed packet they are
/// useless beyond the first router.
// rule: path.link-local
fn check_scope(link: &LinkFacts, src: Gid, dst: Gid, unicast: Unicast) -> Result<(), ResolveError> {
    let Some(gateway) = unicast.gateway else { return Ok(()) };
    match [dst, src].into_iter().find(|gid| is_link_local(gid.to_ip())) {
        Some(gid) => Err(ResolveError::LinkLocalRouted { gid, dst, gateway, interface: link.name.clone() }),
        None => Ok(()),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_that_are_no_single_host_are_refused() {
        for text in ["0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1"] {
            let dst = Gid::from_ip(text.parse().unwrap());
            let refused = check_destination(dst);
            assert!(matches!(refused, Err(ResolveError::NotUnicast { gid, .. }) if gid == dst), "{text}: {refused:?}");
        }
        assert_eq!(check_destination(Gid::from_ip("192.0.2.1".parse().unwrap())), Ok(()));
    }
}
