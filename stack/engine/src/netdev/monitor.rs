//! The watch on an interface. In: the kernel's notifications. Out: [`Change`]s, and the facts and GID table they lead to.

#![forbid(unsafe_code)]

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use xroce_wire::Gid;

use super::kernel::{Kernel, NetlinkError, split};
use super::link::LinkFacts;
use super::{Mac, NetdevFacts, PortState, addresses_of};
use crate::gid::{GidChange, GidTable};
use crate::nexthop::NeighbourEntry;

/// Datagrams read in one [`Monitor::poll`]; the rest waits for the next.
const MAX_DATAGRAMS: usize = 256;

/// Receive buffer of the subscription in bytes. A full one loses notifications, which costs a full re-read.
const RECEIVE_BUFFER: usize = 1 << 20;

/// `RTNLGRP_NEXTHOP` of `linux/rtnetlink.h`, not in every libc crate.
const GROUP_NEXTHOP: u32 = 32;

/// Multicast groups whose news concern an interface, its addresses, neighbours and routes.
const GROUPS: [u32; 9] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_RULE,
    GROUP_NEXTHOP,
];

/// Something about the interface or its surroundings is different now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A GID can be used.
    GidAdded {
        /// Its place in the table.
        index: u8,
        /// The GID.
        gid: Gid,
    },
    /// A GID can no longer be used: its address is gone.
    GidRemoved {
        /// The place it had.
        index: u8,
        /// The GID.
        gid: Gid,
    },
    /// The port is ACTIVE.
    LinkUp,
    /// The port is DOWN.
    LinkDown,
    /// The interface MTU changed.
    MtuChanged {
        /// New MTU, bytes of IP packet.
        mtu: u32,
    },
    /// The interface has another MAC address.
    MacChanged {
        /// The new one.
        mac: Mac,
    },
    /// The kernel learned, confirmed or lost a neighbour on this interface.
    NeighbourChanged {
        /// IP address of the neighbour.
        address: IpAddr,
        /// Its MAC address; none when it did not answer.
        mac: Option<Mac>,
    },
    /// The kernel dropped a neighbour entry, as it does with old ones: the neighbour may be as well as ever.
    NeighbourForgotten {
        /// IP address of the neighbour.
        address: IpAddr,
    },
    /// Some route, rule or address of the host changed: look every path up again.
    RouteChanged,
    /// The kernel lost notifications. Facts and GIDs are already read anew; neighbours and routes must be looked up.
    Overrun,
    /// The interface was removed or moved to another network namespace. Nothing follows.
    Gone,
}

/// Why there is no monitor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MonitorError {
    /// An interface has one monitor, and it was taken before.
    #[error("the monitor of this interface was taken already; open the interface again for another")]
    Taken,
    /// The kernel could not be asked.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// A socket that gets the notifications of one network namespace.
#[derive(Debug)]
pub(super) struct Subscription(Socket);

impl Subscription {
    /// Subscribes in the calling thread's network namespace.
    pub(super) fn open() -> Result<Subscription, NetlinkError> {
        let failed = |e: io::Error| NetlinkError::io("subscribe to rtnetlink notifications", &e);
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        socket.set_non_blocking(true).map_err(failed)?;
        // More than the system's limit allows is cut to the limit without an error.
        socket.set_rx_buf_sz(RECEIVE_BUFFER as libc::c_int).map_err(failed)?;
        for group in GROUPS {
            match socket.add_membership(group) {
                Ok(()) => {}
                Err(e) if group == GROUP_NEXTHOP && e.raw_os_error() == Some(libc::EINVAL) => {} // before Linux 5.3
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(Subscription(socket))
    }
}

/// Watches one interface. Sleep on its file descriptor (readable: there is news), then call [`Monitor::poll`].
#[derive(Debug)]
pub struct Monitor {
    kernel: Arc<Kernel>,
    subscription: Subscription,
    facts: NetdevFacts,
    gids: GidTable,
    /// Notifications were lost, or a re-read failed: the next poll reads everything anew.
    resync: bool,
    gone: bool,
    /// Changes found by a poll that failed half-way; the next one delivers them.
    undelivered: Vec<Change>,
}

/// What one burst of notifications adds up to.
#[derive(Default)]
struct News {
    changes: Vec<Change>,
    addresses: bool,
    routes: bool,
    overrun: bool,
}

impl Monitor {
    pub(super) fn new(
        kernel: Arc<Kernel>,
        subscription: Subscription,
        facts: NetdevFacts,
    ) -> Result<Monitor, MonitorError> {
        let gids = GidTable::new(&addresses_of(&kernel, Some(facts.ifindex))?);
        Ok(Monitor { kernel, subscription, facts, gids, resync: false, gone: false, undelivered: Vec::new() })
    }

    /// The facts as of the last [`Monitor::poll`]. Driver, queues and offloads stay as they were when the interface was
    /// opened: the kernel does not announce them.
    pub fn facts(&self) -> &NetdevFacts {
        &self.facts
    }

    /// The GID table as of the last [`Monitor::poll`].
    pub fn gids(&self) -> &GidTable {
        &self.gids
    }

    /// Takes in what the kernel announced. Never blocks for news; reads a bounded number of notifications.
    ///
    /// # Errors
    /// When the kernel cannot be asked. Nothing is lost: the next call reads everything anew and delivers what this one
    /// found.
    pub fn poll(&mut self) -> Result<Vec<Change>, NetlinkError> {
        let changes = std::mem::take(&mut self.undelivered);
        let mut news = News { changes, overrun: std::mem::take(&mut self.resync), ..News::default() };
        let read = self.read(&mut news);
        match read.and_then(|()| self.settle(&mut news)) {
            Ok(()) => Ok(news.changes),
            Err(error) => {
                self.resync = true;
                self.undelivered = news.changes;
                Err(error)
            }
        }
    }

    fn read(&mut self, news: &mut News) -> Result<(), NetlinkError> {
        for _ in 0..MAX_DATAGRAMS {
            match self.subscription.0.recv_from_full() {
                Ok((bytes, from)) if from.port_number() == 0 => {
                    for message in split(&bytes) {
                        self.take(message, news);
                    }
                }
                Ok(_) => {} // not from the kernel
                Err(e) => match e.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(()),
                    Some(libc::EINTR) => {}
                    Some(libc::ENOBUFS) => news.overrun = true,
                    _ => return Err(NetlinkError::io("read rtnetlink notifications", &e)),
                },
            }
        }
        Ok(())
    }

    fn take(&mut self, message: &[u8], news: &mut News) {
        if self.gone {
            return;
        }
        match u16::from_ne_bytes([message[4], message[5]]) {
            libc::RTM_NEWLINK | libc::RTM_DELLINK | libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
                match NetlinkMessage::<RouteNetlinkMessage>::deserialize(message).map(|m| m.payload) {
                    Ok(NetlinkPayload::InnerMessage(inner)) => self.take_parsed(inner, news),
                    Ok(_) => {}
                    // It may have been about us: look for ourselves.
                    Err(error) => {
                        tracing::debug!(%error, "notification not understood");
                        news.overrun = true;
                    }
                }
            }
            libc::RTM_NEWADDR | libc::RTM_DELADDR => news.addresses = true,
            // Routes, rules, next-hop objects.
            _ => news.routes = true,
        }
    }

    fn take_parsed(&mut self, message: RouteNetlinkMessage, news: &mut News) {
        match message {
            RouteNetlinkMessage::NewLink(link) if self.is_ours(&link) => {
                self.apply_link(&LinkFacts::parse(&link), news);
            }
            RouteNetlinkMessage::DelLink(link) if self.is_ours(&link) => self.leave(news),
            RouteNetlinkMessage::NewNeighbour(message) if message.header.ifindex == self.facts.ifindex => {
                let Some(entry) = NeighbourEntry::parse(&message) else { return };
                if entry.mac.is_some() || entry.failed {
                    news.changes.push(Change::NeighbourChanged { address: entry.address, mac: entry.mac });
                }
            }
            RouteNetlinkMessage::DelNeighbour(message) if message.header.ifindex == self.facts.ifindex => {
                if let Some(entry) = NeighbourEntry::parse(&message) {
                    news.changes.push(Change::NeighbourForgotten { address: entry.address });
                }
            }
            _ => {}
        }
    }

    /// Bridge ports announce their membership with link messages of another family, which are not about the link.
    fn is_ours(&self, link: &LinkMessage) -> bool {
        link.header.index == self.facts.ifindex && link.header.interface_family == AddressFamily::Unspec
    }

    fn apply_link(&mut self, link: &LinkFacts, news: &mut News) {
        let before = self.facts.clone();
        self.facts.apply(link);
        if self.facts.mac != before.mac {
            news.changes.push(Change::MacChanged { mac: self.facts.mac });
        }
        if self.facts.mtu != before.mtu {
            news.changes.push(Change::MtuChanged { mtu: self.facts.mtu });
        }
        match (before.state, self.facts.state) {
            (PortState::Down, PortState::Active) => news.changes.push(Change::LinkUp),
            (PortState::Active, PortState::Down) => news.changes.push(Change::LinkDown),
            _ => {}
        }
    }

    /// Reads what the notifications only pointed at.
    fn settle(&mut self, news: &mut News) -> Result<(), NetlinkError> {
        if self.gone {
            return Ok(());
        }
        if news.overrun {
            match self.kernel.link_by_index(self.facts.ifindex) {
                Ok(link) => self.apply_link(&LinkFacts::parse(&link), news),
                Err(e) if e.errno() == Some(libc::ENODEV) => {
                    self.leave(news);
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        if news.addresses || news.overrun {
            let addresses = addresses_of(&self.kernel, Some(self.facts.ifindex))?;
            self.update_gids(&addresses, news);
        }
        // An address of any interface decides which destinations are local.
        if news.routes || news.addresses {
            news.changes.push(Change::RouteChanged);
        }
        if news.overrun {
            news.changes.push(Change::Overrun);
        }
        Ok(())
    }

    fn update_gids(&mut self, addresses: &[super::InterfaceAddress], news: &mut News) {
        let changes = self.gids.update(addresses).into_iter();
        news.changes.extend(changes.map(|change| match change {
            GidChange::Added { index, gid } => Change::GidAdded { index, gid },
            GidChange::Removed { index, gid } => Change::GidRemoved { index, gid },
        }));
    }

    fn leave(&mut self, news: &mut News) {
        if self.gone {
            return;
        }
        self.gone = true;
        if self.facts.state == PortState::Active {
            self.facts.state = PortState::Down;
            news.changes.push(Change::LinkDown);
        }
        self.update_gids(&[], news);
        news.changes.push(Change::Gone);
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.subscription.0.as_fd()
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.subscription.0.as_raw_fd()
    }
}
