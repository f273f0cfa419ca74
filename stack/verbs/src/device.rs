//! Opening a device.
//!
//! In: the name of a netdev in the caller's network namespace, addresses of this host, or a port and the network around it. Out: a
//! [`Context`].
#![forbid(unsafe_code)]

use crate::context::Context;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use xroce_engine::engine::StartError;
use xroce_engine::netdev::{self, Mac, MonitorError, Netdev, NetdevKind};
use xroce_engine::network::{FixedNetwork, Network};
use xroce_engine::privilege::{DropError, User, drop_to};
use xroce_engine::watch::WatchConfig;
use xroce_engine::{Engine, EngineConfig, Progress};
use xroce_port::Port;
use xroce_port::udp::{self, UdpConfig, UdpPort};
use xroce_port::xdp::{self, AddressFilter, XdpConfig, XdpPort};
use xroce_transport::Limits;
use xroce_wire::Gid;

/// A netdev that could be opened (`ibv_device`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    name: String,
}

/// Why a device was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The netdev is not there or cannot be asked.
    #[error(transparent)]
    Netdev(#[from] netdev::OpenError),
    /// The kernel's news of the netdev cannot be had.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The netdev carries no Ethernet frames.
    #[error("{name} is not an Ethernet interface: it has no MAC addresses and cannot carry RoCE v2 over AF_XDP")]
    NotEthernet {
        /// The netdev.
        name: String,
    },
    /// The VLAN's parent is out of reach.
    #[error("{name} is a VLAN whose parent interface lives in another network namespace; open the device from there")]
    NoParent {
        /// The netdev.
        name: String,
    },
    /// The NIC hides the VLAN tags that tell the VLAN's frames apart.
    #[error(
        "{name} is a VLAN on {parent}, which takes VLAN tags out of received frames before XDP sees them; turn that off: \
         `ethtool -K {parent} rxvlan off`"
    )]
    VlanStripped {
        /// The netdev.
        name: String,
        /// The interface below it.
        parent: String,
    },
    /// The AF_XDP port does not open.
    #[error(transparent)]
    Xdp(#[from] xdp::OpenError),
    /// The UDP port does not open.
    #[error(transparent)]
    Udp(#[from] udp::UdpOpenError),
    /// The addresses cannot be given to the XDP program.
    #[error(transparent)]
    Addresses(#[from] xdp::MapError),
    /// The engine does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The rights could not be given up: [`DeviceBuilder::drop_privileges`].
    #[error(transparent)]
    Drop(#[from] DropError),
}

/// Wraps the port before it is used: a capture, a fault injector, a trace.
type Wrap = Box<dyn FnOnce(Box<dyn Port>) -> Box<dyn Port> + Send>;

enum Source {
    Netdev(XdpConfig),
    Udp { addresses: Vec<IpAddr> },
    Ports { ports: Vec<Box<dyn Port>>, network: FixedNetwork },
}

/// How to open a device.
#[must_use = "nothing happens before `open`"]
pub struct DeviceBuilder {
    source: Source,
    config: EngineConfig,
    wraps: Vec<Wrap>,
    user: Option<String>,
}

impl Device {
    /// The netdevs of the caller's network namespace (`ibv_get_device_list`), whether or not they can be opened.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn list() -> io::Result<Vec<Device>> {
        Ok(xroce_engine::interface_names()?.into_iter().map(|name| Device { name }).collect())
    }

    /// The netdev's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens the netdev `name` of the caller's network namespace with everything at its default: all receive queues, the best
    /// AF_XDP mode there is, inline progress with a helper.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(name: &str) -> Result<Context, OpenError> {
        Device::builder(name).open()
    }

    /// Opens the netdev `name` with options.
    pub fn builder(name: &str) -> DeviceBuilder {
        DeviceBuilder::new(Source::Netdev(XdpConfig::new(name)))
    }

    /// A device on plain UDP sockets, one for each of these addresses of this host: needs no rights, and costs a system call for
    /// each packet. It is called `udp:` and the first of them. Over IPv4 not all of the ICRC can be checked against every sender; see [`udp`].
    pub fn on_udp(addresses: &[IpAddr]) -> DeviceBuilder {
        let mut builder = DeviceBuilder::new(Source::Udp { addresses: addresses.to_vec() });
        builder.config.limits.window_packets = builder.config.limits.window_packets.min(UDP_WINDOW_PACKETS);
        builder
    }

    /// A device on a port of the caller's, for tests and simulations: no netdev, no kernel tables. `addresses` are its own, in
    /// the order of their GID indices; other stations are made known by [`neighbour`](DeviceBuilder::neighbour).
    pub fn on_port(port: Box<dyn Port>, addresses: &[IpAddr]) -> DeviceBuilder {
        Device::on_ports(vec![port], addresses)
    }

    /// As [`on_port`](Device::on_port) with several ports of the same station, each run by a shard of its own.
    pub fn on_ports(ports: Vec<Box<dyn Port>>, addresses: &[IpAddr]) -> DeviceBuilder {
        let (mac, mtu) = ports.first().map_or(([0; 6], 0), |port| (port.capabilities().mac, port.capabilities().mtu));
        let network = FixedNetwork {
            name: "sim0".to_owned(),
            mac: Mac(mac),
            mtu,
            addresses: addresses.to_vec(),
            neighbours: HashMap::new(),
            others: None,
        };
        DeviceBuilder::new(Source::Ports { ports, network })
    }
}

impl DeviceBuilder {
    fn new(source: Source) -> DeviceBuilder {
        DeviceBuilder { source, config: EngineConfig::default(), wraps: Vec::new(), user: None }
    }

    /// Who runs the device's poll loop.
    pub fn progress(mut self, progress: Progress) -> DeviceBuilder {
        self.config.progress = progress;
        self
    }

    /// What one queue pair, queue or message may ask for.
    pub fn limits(mut self, limits: Limits) -> DeviceBuilder {
        self.config.limits = limits;
        self
    }

    /// How long the step to RTR waits for the next hop. Default: 3 s.
    pub fn resolve_wait(mut self, wait: Duration) -> DeviceBuilder {
        self.config.resolve_wait = wait;
        self
    }

    /// Every other setting of the engine.
    pub fn engine(mut self, change: impl FnOnce(&mut EngineConfig)) -> DeviceBuilder {
        change(&mut self.config);
        self
    }

    /// Settings of the AF_XDP port: queues, modes, rings. Without effect on a port of the caller's.
    pub fn xdp(mut self, change: impl FnOnce(&mut XdpConfig)) -> DeviceBuilder {
        if let Source::Netdev(config) = &mut self.source {
            change(config);
        }
        self
    }

    /// Makes another station known to a device on a port of the caller's. Without effect on a netdev, whose kernel knows them.
    pub fn neighbour(mut self, address: IpAddr, mac: [u8; 6]) -> DeviceBuilder {
        if let Source::Ports { network, .. } = &mut self.source {
            network.neighbours.insert(address, Mac(mac));
        }
        self
    }

    /// Puts something around the port (the first, where there are several) before it is used: a capture, a fault injector.
    /// Called again, it goes around that.
    pub fn wrap(mut self, wrap: impl FnOnce(Box<dyn Port>) -> Box<dyn Port> + Send + 'static) -> DeviceBuilder {
        self.wraps.push(Box::new(wrap));
        self
    }

    /// The whole process becomes `user` and gives up all capabilities, for good, once the port is open and before the device's
    /// threads start: see [`drop_privileges`](crate::drop_privileges), which does the same later.
    pub fn drop_privileges(mut self, user: &str) -> DeviceBuilder {
        self.user = Some(user.to_owned());
        self
    }

    /// Opens the device (`ibv_open_device`).
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(self) -> Result<Context, OpenError> {
        let DeviceBuilder { source, config, wraps, user } = self;
        // A wrong name is told before anything has happened.
        let user = user.as_deref().map(User::named).transpose()?;
        let (mut ports, network, watch) = match source {
            Source::Netdev(xdp) => open_netdev(xdp)?,
            Source::Udp { addresses } => open_udp(&addresses)?,
            Source::Ports { ports, network } => (ports, Network::fixed(network), None),
        };
        if !ports.is_empty() {
            let first = ports.remove(0);
            ports.insert(0, wraps.into_iter().fold(first, |port, wrap| wrap(port)));
        }
        if let Some(user) = &user {
            drop_to(user)?;
        }
        Ok(Context::new(Engine::start(ports, network, watch, config)?))
    }
}

impl std::fmt::Debug for DeviceBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The whole process becomes `user` and gives up all capabilities, for good: every thread, those of open devices too. Opening a
/// device takes rights (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF); an open one needs none:
///
/// | goes on without rights | takes rights |
/// |---|---|
/// | the data path, queue pairs and memory, timers | opening a device: [`OpenError::Xdp`] then names what is missing |
/// | addresses that come and go, in the GID table and the XDP program | reopening one whose port is gone (netdev removed, program taken off) |
/// | the link going down and up, MTU, MAC and route changes | |
/// | neighbours: the kernel is made to ask by a datagram to the discard port, in place of a netlink call | |
///
/// Where the process already runs as `user` (a binary with file capabilities), only the calling thread can be relieved of its
/// capabilities: then [`DeviceBuilder::drop_privileges`] has to be used, which comes before the device's threads.
///
/// # Errors
/// See [`DropError`].
pub fn drop_privileges(user: &str) -> Result<(), DropError> {
    drop_to(&User::named(user)?)
}

type Opened = (Vec<Box<dyn Port>>, Network, Option<WatchConfig>);

fn open_netdev(mut xdp: XdpConfig) -> Result<Opened, OpenError> {
    let netdev = Netdev::open(&xdp.ifname)?;
    xdp.ifname = port_name(&netdev)?;
    if netdev.facts().lro {
        tracing::warn!(
            name = netdev.facts().name,
            "the NIC merges received packets (LRO), which breaks RoCE: `ethtool -K {} lro off`",
            netdev.facts().name
        );
    }
    let (network, monitor) = Network::of_netdev(&netdev)?;
    let addresses: Vec<IpAddr> = network.state().gids.iter().map(|entry| entry.address).collect();
    xdp.addresses.clone_from(&addresses);
    let port = XdpPort::open(&xdp)?;
    let mut filter = Filter { map: port.addresses().try_clone()?, known: addresses };
    let on_addresses = Box::new(move |gids: &[Gid]| filter.set(gids));
    let watch = WatchConfig { monitor, on_addresses: Some(on_addresses) };
    Ok((vec![Box::new(port)], network, Some(watch)))
}

/// A socket holds some 200 KiB by default; more packets on the way would be lost there whenever we are late to read.
const UDP_WINDOW_PACKETS: u32 = 32;
/// Carries path MTU 4096; more would only make buffers larger.
const UDP_MTU_MAX: u32 = 4200;

fn open_udp(addresses: &[IpAddr]) -> Result<Opened, OpenError> {
    let mtu = addresses.iter().map(|address| mtu_towards(*address)).min().unwrap_or(UDP_MTU_MAX);
    let port = UdpPort::open(&UdpConfig { mtu, ..UdpConfig::new(addresses) })?;
    let network = FixedNetwork {
        name: addresses.first().map_or_else(|| "udp".to_owned(), |first| format!("udp:{first}")),
        mac: Mac(port.capabilities().mac),
        mtu,
        addresses: addresses.to_vec(),
        neighbours: HashMap::new(),
        // The kernel finds the way.
        others: Some(Mac(udp::THEIR_MAC)),
    };
    Ok((vec![Box::new(port)], Network::fixed(network), None))
}

/// MTU of the interface that has this address.
fn mtu_towards(address: IpAddr) -> u32 {
    let has = |netdev: &Netdev| netdev.addresses().is_ok_and(|all| all.iter().any(|a| a.address == address));
    let names = xroce_engine::interface_names().unwrap_or_default();
    let mut netdevs = names.iter().filter_map(|name| Netdev::open(name).ok());
    // 127.0.0.2 is ours too, though no interface lists it: the loopback takes all of 127.0.0.0/8.
    netdevs.find(has).map_or(UDP_MTU_MAX, |netdev| netdev.facts().mtu.min(UDP_MTU_MAX))
}

/// The interface whose frames the port carries: the parent of a VLAN, else the netdev itself.
fn port_name(netdev: &Netdev) -> Result<String, OpenError> {
    let facts = netdev.facts();
    let name = facts.name.clone();
    if !facts.ethernet {
        return Err(OpenError::NotEthernet { name });
    }
    let NetdevKind::Vlan { parent_name, .. } = &facts.kind else { return Ok(name) };
    let parent = parent_name.clone().ok_or_else(|| OpenError::NoParent { name: name.clone() })?;
    let below = Netdev::open(&parent)?;
    if below.facts().rx_vlan_stripped && !below.facts().is_veth() {
        return Err(OpenError::VlanStripped { name, parent });
    }
    Ok(parent)
}

/// The XDP program's set of our addresses, kept like the GID table.
struct Filter {
    map: AddressFilter,
    known: Vec<IpAddr>,
}

impl Filter {
    fn set(&mut self, gids: &[Gid]) {
        let wanted: Vec<IpAddr> = gids.iter().map(|gid| gid.to_ip()).collect();
        for address in wanted.iter().filter(|a| !self.known.contains(a)) {
            if let Err(error) = self.map.add(*address) {
                tracing::error!(%address, %error, "frames to this address stay with the kernel");
            }
        }
        for address in self.known.iter().filter(|a| !wanted.contains(a)) {
            if let Err(error) = self.map.remove(*address) {
                tracing::warn!(%address, %error, "frames to this address are still taken from the kernel");
            }
        }
        self.known = wanted;
    }
}
