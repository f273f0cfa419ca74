//! Why there is no next hop. In: what the look-up found. Out: text that names the addresses, the interface, and what to
//! do.

#![forbid(unsafe_code)]

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use xroce_wire::Gid;

use crate::netdev::{BadMac, Mac, NetlinkError};

/// Why the kernel's routing tables refuse a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No route matches.
    NoRoute,
    /// An `unreachable` route, or the host is known not to be there.
    Unreachable,
    /// A `prohibit` route.
    Prohibited,
    /// A `blackhole` route.
    Blackhole,
    /// The interface is down or gone.
    InterfaceDown,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NoRoute => "there is no route to it",
            Refusal::Unreachable => "its route says unreachable",
            Refusal::Prohibited => "its route says prohibit",
            Refusal::Blackhole => "its route says blackhole",
            Refusal::InterfaceDown => "the interface is down or gone",
        })
    }
}

/// Why a destination has no next hop. Nothing is remembered of a failure: the same call may work later.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The source GID is no usable address of the interface.
    #[error("source GID {gid} is not a usable address of {interface}; choose one of its GID table")]
    SourceNotOurs {
        /// The source GID.
        gid: Gid,
        /// Interface name.
        interface: String,
    },
    /// IPv4 and IPv6 mixed.
    #[error("source GID {src} and destination GID {dst} are not of the same IP version; choose another source GID")]
    MixedFamilies {
        /// The source GID.
        src: Gid,
        /// The destination GID.
        dst: Gid,
    },
    /// The destination is not a single host.
    #[error("destination GID {gid} is {what}: a connected QP needs the address of one host")]
    NotUnicast {
        /// The destination GID.
        gid: Gid,
        /// What it is.
        what: &'static str,
    },
    /// A link-local address would have to cross a router, which RFC 4291 2.5.6 forbids.
    #[error(
        "GID {gid} is link-local and valid on the link of {interface} only, but the way to {dst} leads through gateway \
         {gateway}; use a GID with a routable address"
    )]
    LinkLocalRouted {
        /// The link-local GID.
        gid: Gid,
        /// The destination GID.
        dst: Gid,
        /// The gateway.
        gateway: IpAddr,
        /// Interface name.
        interface: String,
    },
    /// The destination is an address of another interface of this host. Packets between two interfaces of one host do
    /// not leave it, and a device loops only what is for itself.
    #[error(
        "destination GID {dst} is an address of {holder}, another interface of this host, which {interface} does not \
         reach; put the two ends into network namespaces of their own, or connect to an address of {interface} itself"
    )]
    LocalElsewhere {
        /// The destination GID.
        dst: Gid,
        /// The interface that holds it.
        holder: String,
        /// Interface name.
        interface: String,
    },
    /// The routing tables have no way.
    #[error("destination GID {dst} cannot be reached from {interface}: {refusal}")]
    Refused {
        /// The destination GID.
        dst: Gid,
        /// Interface name.
        interface: String,
        /// What the tables say.
        refusal: Refusal,
    },
    /// The route leaves by another interface.
    #[error(
        "the route to {dst} leaves by {takes}, not by {interface}; open {takes} instead, or add a route through {interface}"
    )]
    WrongInterface {
        /// The destination GID.
        dst: Gid,
        /// Our interface.
        interface: String,
        /// The one the route takes.
        takes: String,
    },
    /// The interface has no MAC addresses.
    #[error("{interface} is not an Ethernet interface: it has no MAC addresses to send to")]
    NotEthernet {
        /// Interface name.
        interface: String,
    },
    /// The neighbour's MAC address is not one that frames can go to.
    #[error(
        "next hop {neighbour} on {interface} has MAC address {mac}: {why}; check `ip neigh` and the interface's arp flag"
    )]
    BadMac {
        /// Address of the next hop.
        neighbour: IpAddr,
        /// Interface name.
        interface: String,
        /// The MAC address.
        mac: Mac,
        /// What is wrong with it.
        why: BadMac,
    },
    /// Nobody answered ARP or neighbour discovery.
    #[error(
        "no answer from next hop {neighbour} on {interface} (for destination {dst}) within {} ms; \
         check that the peer is up and on this link, then try again", waited.as_millis()
    )]
    NoAnswer {
        /// Address that was asked for.
        neighbour: IpAddr,
        /// Interface name.
        interface: String,
        /// The destination GID.
        dst: Gid,
        /// How long.
        waited: Duration,
    },
    /// The kernel could not be asked.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}
