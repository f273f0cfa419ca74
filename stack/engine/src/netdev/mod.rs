//! Facts of one network interface, and the watch on them. In: an interface name. Out: [`Netdev`] with MAC, MTU, port
//! state, kind, queues and offloads; a [`Monitor`] that tells what changes.
//!
//! Everything belongs to the network namespace of the thread that calls [`Netdev::open`]: the sockets opened there stay
//! there, so two instances with the same interface name and index in two namespaces do not mix, and the thread may move
//! on. The interface is held by index; a new name does not matter.

#![deny(unsafe_code)]

mod address;
pub(crate) mod kernel;
pub(crate) mod link;
mod mac;
mod monitor;
mod sys;

use std::sync::{Arc, Mutex, PoisonError};

use xroce_wire::PathMtu;

pub use self::address::{AddressState, InterfaceAddress};
pub use self::kernel::NetlinkError;
pub use self::mac::{BadMac, Mac};
pub use self::monitor::{Change, Monitor, MonitorError};

use self::kernel::Kernel;
use self::link::LinkFacts;
use self::monitor::Subscription;
use crate::nexthop::Resolver;

/// Port state as verbs report it (`IBV_PORT_ACTIVE`, `IBV_PORT_DOWN`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortState {
    /// Up, and the link carries.
    Active,
    /// Set down, without carrier, or gone.
    Down,
}

/// What sort of interface it is, as far as that matters to a NIC in software.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetdevKind {
    /// One end of a veth pair. Its ring has 256 places, and what does not fit is dropped without a word.
    Veth,
    /// An Ethernet device whose other end is a file descriptor.
    Tap,
    /// An IP device whose other end is a file descriptor: no Ethernet, no neighbours.
    Tun,
    /// A VLAN on top of another interface. Its frames leave by the parent, with a tag.
    Vlan {
        /// Interface index of the parent, in the parent's namespace.
        parent: u32,
        /// Name of the parent; none when it lives in another network namespace.
        parent_name: Option<String>,
        /// VLAN identifier, 1..=4094.
        id: u16,
    },
    /// A bond: frames leave by one of its members.
    Bond,
    /// The loopback interface: every destination is local.
    Loopback,
    /// A virtio NIC.
    Virtio,
    /// Hardware, or what looks like it.
    Physical,
    /// Another software device, with its rtnetlink kind ("bridge", "macvlan", "dummy").
    Other(String),
}

/// Facts of one interface, as they were when read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetdevFacts {
    /// Interface index, the handle that stays.
    pub ifindex: u32,
    /// Name at the time of reading.
    pub name: String,
    /// MAC address; zero where the interface has none (tun).
    pub mac: Mac,
    /// Bytes of the largest IP packet; the Ethernet header is not counted.
    pub mtu: u32,
    /// Whether frames can pass.
    pub state: PortState,
    /// Sort of interface.
    pub kind: NetdevKind,
    /// Frames start with an Ethernet header.
    pub ethernet: bool,
    /// Driver name by ethtool ("veth", "mlx5_core"); empty where there is none to ask.
    pub driver: String,
    /// Receive queues in use, at least 1.
    pub rx_queues: u32,
    /// The NIC takes VLAN tags out of received frames (`rxvlan` of ethtool): XDP does not see them, so a VLAN cannot be
    /// served while this is on. On a veth the flag is without effect for frames that carry their tag as bytes.
    pub rx_vlan_stripped: bool,
    /// Received packets may come merged (`lro` of ethtool): must be off, for the ICRC covers single packets.
    pub lro: bool,
}

impl NetdevFacts {
    /// It is one end of a veth pair (small ring, copy mode only).
    pub fn is_veth(&self) -> bool {
        self.kind == NetdevKind::Veth
    }

    /// VLAN identifier of the frames of this interface.
    pub fn vlan_id(&self) -> Option<u16> {
        if let NetdevKind::Vlan { id, .. } = self.kind { Some(id) } else { None }
    }

    /// The path MTU the port offers (`active_mtu` of verbs): the largest whose packets with every header fit the
    /// interface MTU. None when not even 256 bytes do.
    pub fn port_mtu(&self) -> Option<PathMtu> {
        PathMtu::largest_for_netdev(self.mtu)
    }

    fn apply(&mut self, link: &LinkFacts) {
        self.name.clone_from(&link.name);
        self.mac = link.mac;
        self.mtu = link.mtu;
        self.state = link.port_state();
    }
}

/// Why an interface cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is no such interface in this network namespace.
    #[error("no network interface {name:?} in this network namespace; there are: {}", existing.join(", "))]
    UnknownNetdev {
        /// The name asked for.
        name: String,
        /// The names there are.
        existing: Vec<String>,
    },
    /// The kernel could not be asked.
    #[error("network interface {name:?}: {source}")]
    Netlink {
        /// The name asked for.
        name: String,
        /// What failed.
        source: NetlinkError,
    },
}

/// An interface and the handles on its network namespace.
#[derive(Debug)]
pub struct Netdev {
    kernel: Arc<Kernel>,
    facts: NetdevFacts,
    /// Opened with the rest, so that it belongs to the same namespace and misses nothing that happens after the facts
    /// were read. Taken by [`Netdev::monitor`].
    subscription: Mutex<Option<Subscription>>,
}

impl Netdev {
    /// Opens the interface `name` (or one of its alternative names) in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`OpenError::UnknownNetdev`] lists the interfaces there are; [`OpenError::Netlink`] when the kernel refuses.
    pub fn open(name: &str) -> Result<Netdev, OpenError> {
        let failed = |source| OpenError::Netlink { name: name.to_owned(), source };
        let subscription = Subscription::open().map_err(failed)?;
        let kernel = Kernel::open().map_err(failed)?;
        let link = match kernel.link_by_name(name) {
            Ok(message) => LinkFacts::parse(&message),
            // ERANGE, EINVAL: longer than a name can be, or empty.
            Err(e) if matches!(e.errno(), Some(libc::ENODEV | libc::ERANGE | libc::EINVAL)) => {
                let existing = kernel.links().map_err(failed)?;
                let existing = existing.iter().map(|l| LinkFacts::parse(l).name).collect();
                return Err(OpenError::UnknownNetdev { name: name.to_owned(), existing });
            }
            Err(source) => return Err(failed(source)),
        };
        kernel.bind_datagrams(link.ifindex).map_err(failed)?;
        let facts = read_facts(&kernel, &link);
        Ok(Netdev { kernel: Arc::new(kernel), facts, subscription: Mutex::new(Some(subscription)) })
    }

    /// The facts read by [`Netdev::open`] or the last [`Netdev::refresh`].
    pub fn facts(&self) -> &NetdevFacts {
        &self.facts
    }

    /// Reads the facts again.
    ///
    /// # Errors
    /// `ENODEV` when the interface is gone or has moved to another namespace.
    pub fn refresh(&mut self) -> Result<&NetdevFacts, NetlinkError> {
        let link = LinkFacts::parse(&self.kernel.link_by_index(self.facts.ifindex)?);
        self.facts = read_facts(&self.kernel, &link);
        Ok(&self.facts)
    }

    /// The interface's addresses in the kernel's order, usable or not.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn addresses(&self) -> Result<Vec<InterfaceAddress>, NetlinkError> {
        addresses_of(&self.kernel, Some(self.facts.ifindex))
    }

    /// The watch on this interface and its GID table. There is one.
    ///
    /// # Errors
    /// [`MonitorError::Taken`] on the second call; otherwise when the kernel cannot be asked.
    pub fn monitor(&self) -> Result<Monitor, MonitorError> {
        let subscription = self.subscription.lock().unwrap_or_else(PoisonError::into_inner).take();
        let subscription = subscription.ok_or(MonitorError::Taken)?;
        Monitor::new(Arc::clone(&self.kernel), subscription, self.facts.clone())
    }

    /// Next-hop look-up through this interface.
    pub fn resolver(&self) -> Resolver {
        Resolver::new(Arc::clone(&self.kernel), self.facts.ifindex)
    }
}

/// The addresses of one interface, or of all.
pub(crate) fn addresses_of(kernel: &Kernel, ifindex: Option<u32>) -> Result<Vec<InterfaceAddress>, NetlinkError> {
    let all = kernel.addresses()?;
    let parsed = all.iter().filter_map(InterfaceAddress::parse);
    Ok(parsed.filter(|a| ifindex.is_none_or(|i| a.ifindex == i)).collect())
}

fn read_facts(kernel: &Kernel, link: &LinkFacts) -> NetdevFacts {
    // Each of the three may be unsupported, which says: no driver, no offload, as many queues as the kernel made.
    let driver = sys::driver_name(kernel.ioctl_fd(), &link.name).unwrap_or_default();
    let offloads = sys::offload_flags(kernel.ioctl_fd(), &link.name).unwrap_or(0);
    let rx_queues = sys::rx_channels(kernel.ioctl_fd(), &link.name).ok().filter(|&n| n > 0).or(link.rx_queues);
    NetdevFacts {
        ifindex: link.ifindex,
        name: link.name.clone(),
        mac: link.mac,
        mtu: link.mtu,
        state: link.port_state(),
        kind: kind(kernel, link, &driver),
        ethernet: link.is_ethernet(),
        driver,
        rx_queues: rx_queues.unwrap_or(1).max(1),
        rx_vlan_stripped: offloads & sys::ETH_FLAG_RXVLAN != 0,
        lro: offloads & sys::ETH_FLAG_LRO != 0,
    }
}

fn kind(kernel: &Kernel, link: &LinkFacts, driver: &str) -> NetdevKind {
    let name_of = |ifindex| kernel.link_by_index(ifindex).ok().map(|l| LinkFacts::parse(&l).name);
    match (link.kind.as_deref(), link.lower, link.vlan_id) {
        (Some("vlan"), Some(parent), Some(id)) => {
            let parent_name = if link.lower_elsewhere { None } else { name_of(parent) };
            NetdevKind::Vlan { parent, parent_name, id }
        }
        (Some("veth"), ..) => NetdevKind::Veth,
        (Some("tun"), ..) if link.is_ethernet() => NetdevKind::Tap,
        (Some("tun"), ..) => NetdevKind::Tun,
        (Some("bond"), ..) => NetdevKind::Bond,
        (Some(other), ..) => NetdevKind::Other(other.to_owned()),
        (None, ..) if link.is_loopback() => NetdevKind::Loopback,
        (None, ..) if driver == "virtio_net" => NetdevKind::Virtio,
        (None, ..) => NetdevKind::Physical,
    }
}
