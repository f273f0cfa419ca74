//! The script's end of the wire: an AF_XDP port without a NIC behind it.
//!
//! In: packets from the IP header on, right or bent. Out: the same as frames to the peer; and the RoCE packets that come for
//! our addresses.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use xroce::port::pcap::Pcap;
use xroce::port::xdp::{self, XdpConfig, XdpPort};
use xroce::port::{LinkChange, Port, TxClass};
use xroce::{Gid, GidEntry, ResolveError};
use xroce_engine::gid::GidTable;
use xroce_engine::netdev::{self, Netdev, NetlinkError};
use xroce_script::live::Wire;
use xroce_wire::ethernet::EthernetRepr;
use xroce_wire::{EtherType, PathMtu};

use crate::commands::doctor;
use crate::device::CaptureFile;

/// Frames taken from the port at a time.
const BURST: usize = 64;
/// How long a full transmit ring may stay full.
const STUCK: Duration = Duration::from_secs(1);
/// How long the peer's MAC address is waited for.
const RESOLVE: Duration = Duration::from_secs(3);

/// Why there is no wire.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// No netdev was named and none can be chosen.
    #[error("no netdev here is up and can carry RoCE; name one with -d (`xroce doctor` says what is missing)")]
    None,
    /// The netdev.
    #[error(transparent)]
    Netdev(#[from] netdev::OpenError),
    /// Its addresses.
    #[error("the addresses of {name}: {source}")]
    Addresses {
        /// The netdev.
        name: String,
        /// What the kernel says.
        source: NetlinkError,
    },
    /// Scripts make whole frames, without tags.
    #[error("{name} is a VLAN interface: play scripts over a netdev whose frames carry no tag")]
    Vlan {
        /// The netdev.
        name: String,
    },
    /// AF_XDP.
    #[error(transparent)]
    Xdp(#[from] xdp::OpenError),
    /// The way to the peer.
    #[error(transparent)]
    NextHop(#[from] ResolveError),
}

/// An open netdev.
pub struct XdpWire {
    port: Box<dyn Port>,
    netdev: Netdev,
    gids: Vec<GidEntry>,
    /// Headers of frames to the peer: of IPv4, of IPv6.
    headers: [Option<EthernetRepr>; 2],
    inbox: VecDeque<Vec<u8>>,
}

impl XdpWire {
    /// Opens a netdev; `None`: the first that can be used.
    pub fn open(name: Option<&str>, capture: Option<&CaptureFile>) -> Result<XdpWire, WireError> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => doctor::candidates().into_iter().next().ok_or(WireError::None)?,
        };
        let netdev = Netdev::open(&name)?;
        if netdev.facts().vlan_id().is_some() {
            return Err(WireError::Vlan { name });
        }
        let addresses = netdev.addresses().map_err(|source| WireError::Addresses { name: name.clone(), source })?;
        let gids: Vec<GidEntry> = GidTable::new(&addresses).iter().copied().collect();
        let mut config = XdpConfig::new(&name);
        config.addresses = gids.iter().map(|entry| entry.address).collect();
        let port: Box<dyn Port> = Box::new(XdpPort::open(&config)?);
        let port: Box<dyn Port> = match capture {
            Some(capture) => Box::new(Pcap::new(port, capture.handle(), &name)),
            None => port,
        };
        Ok(XdpWire { port, netdev, gids, headers: [None, None], inbox: VecDeque::new() })
    }

    /// The netdev's name.
    pub fn name(&self) -> &str {
        &self.netdev.facts().name
    }

    /// Our addresses.
    pub fn gids(&self) -> &[GidEntry] {
        &self.gids
    }

    /// The largest payload that passes our end, in bytes; 0 if none does.
    pub fn path_mtu(&self) -> usize {
        let room = self.port.capabilities().max_ip_packet(0) as u32;
        let netdev = self.netdev.facts().port_mtu();
        netdev.min(PathMtu::largest_for_netdev(room)).map_or(0, PathMtu::bytes)
    }

    /// Finds out where frames from `src` to `dst` go.
    pub fn connect(&mut self, src: Gid, dst: Gid) -> Result<(), WireError> {
        let hop = self.netdev.resolver().resolve(src, dst, RESOLVE)?;
        let ipv6 = !dst.is_v4_mapped();
        let ethertype = if ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
        self.headers[usize::from(ipv6)] = Some(EthernetRepr { dst: hop.dst_mac.0, src: hop.src_mac.0, ethertype });
        Ok(())
    }

    /// The header of a frame with this packet. The way is that of the other family where its own is not known, as for a
    /// packet that is bent into it.
    fn header(&self, packet: &[u8]) -> Option<EthernetRepr> {
        let ipv6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let own = self.headers[usize::from(ipv6)];
        let ethertype = if ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
        own.or(self.headers[usize::from(!ipv6)].map(|header| EthernetRepr { ethertype, ..header }))
    }

    fn check_link(&mut self) -> Result<(), String> {
        while let Some(change) = self.port.link() {
            if let LinkChange::Gone(why) = change {
                return Err(why.into_owned());
            }
        }
        Ok(())
    }
}

impl Wire for XdpWire {
    fn send(&mut self, packet: &[u8]) -> Result<(), String> {
        let header = self.header(packet).ok_or("no way to the peer is known")?;
        let mut bytes = vec![0; EthernetRepr::LEN + packet.len()];
        header.emit(&mut bytes);
        bytes[EthernetRepr::LEN..].copy_from_slice(packet);
        let start = Instant::now();
        loop {
            if let Some(frame) = self.port.tx_reserve(bytes.len(), TxClass::Response) {
                let (head, tail) = bytes.split_at(frame.head.len());
                frame.head.copy_from_slice(head);
                frame.tail.copy_from_slice(tail);
                self.port.tx_commit(bytes.len());
                return Ok(());
            }
            self.flush()?;
            if bytes.len() > self.port.capabilities().max_frame {
                return Err(format!("a frame of {} bytes does not pass this netdev", bytes.len()));
            }
            if start.elapsed() > STUCK {
                return Err("frames are not sent: is the link up?".into());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        self.port.tx_flush();
        self.check_link()
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>, String> {
        if self.inbox.is_empty() {
            let came = self.port.rx_burst(BURST);
            for i in 0..came {
                let frame = self.port.rx_frame(i);
                let bytes = [frame.head, frame.tail].concat();
                // The program lets nothing but IP through, with or without tags, of which we use none.
                if let Some(packet) = bytes.get(EthernetRepr::LEN..) {
                    self.inbox.push_back(packet.to_vec());
                }
            }
            self.port.rx_release();
            // What was sent is done with, so that its buffers come back.
            self.port.tx_flush();
            self.check_link()?;
        }
        Ok(self.inbox.pop_front())
    }
}
