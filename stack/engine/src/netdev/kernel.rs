//! Questions to the kernel over rtnetlink. In: request messages. Out: the kernel's answers, parsed.
//!
//! The sockets belong to the network namespace of the thread that called [`Kernel::open`] and stay there, wherever the
//! threads that use them go later.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTIPART, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};

use super::sys;

/// The discard port of RFC 863: where a datagram goes whose only purpose is that its sender looks up a MAC address.
const DISCARD_PORT: u16 = 9;

/// Times a dump is started anew because the table changed while it was read (`NLM_F_DUMP_INTR`).
const DUMP_RETRIES: u32 = 3;

/// The kernel refused or garbled a netlink request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetlinkError {
    /// A system call failed or the kernel answered with an error.
    #[error("{doing}: {}", io::Error::from_raw_os_error(*errno))]
    Os {
        /// What was asked.
        doing: &'static str,
        /// The `errno` value, positive.
        errno: i32,
    },
    /// An answer could not be read.
    #[error("{doing}: answer of the kernel not understood: {detail}")]
    Decode {
        /// What was asked.
        doing: &'static str,
        /// What is wrong with the answer.
        detail: String,
    },
}

impl NetlinkError {
    /// The `errno` value where the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            NetlinkError::Os { errno, .. } => Some(*errno),
            NetlinkError::Decode { .. } => None,
        }
    }

    pub(crate) fn io(doing: &'static str, error: &io::Error) -> NetlinkError {
        match error.raw_os_error() {
            Some(errno) => NetlinkError::Os { doing, errno },
            None => NetlinkError::Decode { doing, detail: error.to_string() },
        }
    }
}

/// The handles on one network namespace that facts and look-ups share.
#[derive(Debug)]
pub(crate) struct Kernel {
    requests: Mutex<Requests>,
    /// Handle for interface ioctls; also sends the datagrams that make the kernel resolve an IPv4 neighbour.
    datagram_v4: UdpSocket,
    /// The same for IPv6; none where the kernel has no IPv6.
    datagram_v6: Option<UdpSocket>,
}

#[derive(Debug)]
struct Requests {
    socket: Socket,
    sequence: u32,
}

impl Kernel {
    /// Opens the handles in the calling thread's network namespace.
    pub(crate) fn open() -> Result<Kernel, NetlinkError> {
        let doing = "open an rtnetlink socket";
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(|e| NetlinkError::io(doing, &e))?;
        socket.bind_auto().map_err(|e| NetlinkError::io(doing, &e))?;
        // The kernel answers inside the send call, so an answer is either there or will never come: never block.
        socket.set_non_blocking(true).map_err(|e| NetlinkError::io(doing, &e))?;
        let v4 = sys::datagram_socket(false).map_err(|e| NetlinkError::io("open a datagram socket", &e))?;
        Ok(Kernel {
            requests: Mutex::new(Requests { socket, sequence: 0 }),
            datagram_v4: v4.into(),
            datagram_v6: sys::datagram_socket(true).ok().map(UdpSocket::from),
        })
    }

    /// The handle for interface ioctls.
    pub(crate) fn ioctl_fd(&self) -> BorrowedFd<'_> {
        self.datagram_v4.as_fd()
    }

    /// One request, one answer.
    pub(crate) fn get(
        &self,
        doing: &'static str,
        message: RouteNetlinkMessage,
    ) -> Result<RouteNetlinkMessage, NetlinkError> {
        let mut requests = self.requests();
        requests.send(doing, message, NLM_F_REQUEST)?;
        match requests.receive(doing)?.into_iter().next() {
            Some(answer) => Ok(answer),
            None => Err(NetlinkError::Decode { doing, detail: "empty".into() }),
        }
    }

    /// A whole table. Entries that the netlink crate cannot read are left out.
    pub(crate) fn dump(
        &self,
        doing: &'static str,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        let mut requests = self.requests();
        let mut tries_left = DUMP_RETRIES;
        loop {
            requests.send(doing, message.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            let (answers, interrupted) = requests.receive_dump(doing)?;
            if !interrupted || tries_left == 0 {
                return Ok(answers);
            }
            tries_left -= 1;
        }
    }

    /// A request that changes something; the kernel answers with an acknowledgement only.
    pub(crate) fn change(
        &self,
        doing: &'static str,
        message: RouteNetlinkMessage,
        how: Mode,
    ) -> Result<(), NetlinkError> {
        let flags = match how {
            Mode::Create => NLM_F_CREATE,
            Mode::Replace => NLM_F_REPLACE,
        };
        let mut requests = self.requests();
        requests.send(doing, message, NLM_F_REQUEST | NLM_F_ACK | flags)?;
        requests.receive(doing).map(drop)
    }

    /// Binds the datagram sockets to an interface. Once only: without privilege a bound socket cannot be bound anew.
    pub(crate) fn bind_datagrams(&self, ifindex: u32) -> Result<(), NetlinkError> {
        let failed = |e: io::Error| NetlinkError::io("bind a datagram socket to the interface", &e);
        for socket in [Some(&self.datagram_v4), self.datagram_v6.as_ref()].into_iter().flatten() {
            sys::bind_to_ifindex(socket.as_fd(), ifindex).map_err(failed)?;
        }
        Ok(())
    }

    /// Makes the kernel look for the neighbour `address` on the interface bound to, `ifindex`, by sending it an empty datagram to the
    /// discard port: the way that needs no capability.
    pub(crate) fn send_discard(&self, address: IpAddr, ifindex: u32) -> Result<(), NetlinkError> {
        let doing = "send a datagram to the discard port";
        let unsupported = || NetlinkError::Os { doing, errno: libc::EAFNOSUPPORT };
        let (socket, to) = match address {
            IpAddr::V4(a) => (&self.datagram_v4, SocketAddr::new(a.into(), DISCARD_PORT)),
            IpAddr::V6(a) => (self.datagram_v6.as_ref().ok_or_else(unsupported)?, scoped(a, ifindex)),
        };
        socket.send_to(&[], to).map(drop).map_err(|e| NetlinkError::io(doing, &e))
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        // A panic elsewhere leaves at most unread answers behind, and those are told apart by their sequence number.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link with this name.
    pub(crate) fn link_by_name(&self, name: &str) -> Result<LinkMessage, NetlinkError> {
        // linux/if_link.h: one of the alternative names (`ip link property add`), which may be too long for the other attribute.
        const IFLA_ALT_IFNAME: u16 = 53;
        let mut message = LinkMessage::default();
        message.attributes.push(if name.len() < libc::IFNAMSIZ {
            LinkAttribute::IfName(name.to_owned())
        } else {
            LinkAttribute::Other(DefaultNla::new(IFLA_ALT_IFNAME, [name.as_bytes(), &[0]].concat()))
        });
        self.link(message)
    }

    /// The link with this index.
    pub(crate) fn link_by_index(&self, ifindex: u32) -> Result<LinkMessage, NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        self.link(message)
    }

    fn link(&self, message: LinkMessage) -> Result<LinkMessage, NetlinkError> {
        let doing = "read the interface";
        match self.get(doing, RouteNetlinkMessage::GetLink(message))? {
            RouteNetlinkMessage::NewLink(link) => Ok(link),
            other => Err(unexpected(doing, &other)),
        }
    }

    /// All links of the namespace.
    pub(crate) fn links(&self) -> Result<Vec<LinkMessage>, NetlinkError> {
        let answers = self.dump("list the interfaces", RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        Ok(answers
            .into_iter()
            .filter_map(|m| if let RouteNetlinkMessage::NewLink(link) = m { Some(link) } else { None })
            .collect())
    }

    /// All addresses of the namespace, IPv4 before IPv6, in the kernel's order.
    pub(crate) fn addresses(&self) -> Result<Vec<AddressMessage>, NetlinkError> {
        let answers = self.dump("list the addresses", RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        Ok(answers
            .into_iter()
            .filter_map(|m| if let RouteNetlinkMessage::NewAddress(address) = m { Some(address) } else { None })
            .collect())
    }
}

/// How a change treats an entry that is there already or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Make the entry where there is none; keep what an existing one says.
    Create,
    /// Change an existing entry; fail where there is none.
    Replace,
}

/// Error for an answer of the wrong type.
pub(crate) fn unexpected(doing: &'static str, message: &RouteNetlinkMessage) -> NetlinkError {
    NetlinkError::Decode { doing, detail: format!("message of another type: {message:?}") }
}

fn scoped(address: Ipv6Addr, ifindex: u32) -> SocketAddr {
    let scope = if address.is_unicast_link_local() { ifindex } else { 0 };
    SocketAddrV6::new(address, DISCARD_PORT, 0, scope).into()
}

impl Requests {
    fn send(&mut self, doing: &'static str, message: RouteNetlinkMessage, flags: u16) -> Result<(), NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        let kernel = NetlinkAddr::new(0, 0);
        self.socket.send_to(&bytes, &kernel, 0).map(drop).map_err(|e| NetlinkError::io(doing, &e))
    }

    /// The answer to a request that has one, or the acknowledgement (no message). The kernel's error becomes ours.
    fn receive(&mut self, doing: &'static str) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        loop {
            let part = self.receive_datagram(doing)?;
            if part.seen {
                return Ok(part.messages);
            }
        }
    }

    /// A whole dump, and whether the kernel says that the table changed under it.
    fn receive_dump(&mut self, doing: &'static str) -> Result<(Vec<RouteNetlinkMessage>, bool), NetlinkError> {
        let mut all = Vec::new();
        let mut interrupted = false;
        loop {
            let mut part = self.receive_datagram(doing)?;
            interrupted |= part.interrupted;
            all.append(&mut part.messages);
            if part.done {
                return Ok((all, interrupted));
            }
        }
    }

    fn receive_datagram(&mut self, doing: &'static str) -> Result<Datagram, NetlinkError> {
        let (bytes, from) = self.socket.recv_from_full().map_err(|e| NetlinkError::io(doing, &e))?;
        let mut datagram = Datagram::default();
        if from.port_number() != 0 {
            return Ok(datagram); // not from the kernel
        }
        for part in split(&bytes).filter(|part| sequence_of(part) == self.sequence) {
            datagram.seen = true;
            datagram.interrupted |= flags_of(part) & NLM_F_DUMP_INTR != 0;
            match NetlinkMessage::<RouteNetlinkMessage>::deserialize(part).map(|message| message.payload) {
                Ok(NetlinkPayload::InnerMessage(message)) => datagram.messages.push(message),
                Ok(NetlinkPayload::Done(_)) => datagram.done = true,
                Ok(NetlinkPayload::Error(error)) if error.raw_code() != 0 => {
                    return Err(NetlinkError::Os { doing, errno: error.raw_code().saturating_abs() });
                }
                Ok(_) => {}
                Err(error) if flags_of(part) & NLM_F_MULTIPART != 0 => {
                    tracing::debug!(%error, "{doing}: left out an entry that cannot be read");
                }
                Err(error) => return Err(NetlinkError::Decode { doing, detail: error.to_string() }),
            }
        }
        Ok(datagram)
    }
}

/// What one datagram of the kernel holds for the last request.
#[derive(Default)]
struct Datagram {
    messages: Vec<RouteNetlinkMessage>,
    /// The dump ends here.
    done: bool,
    /// Something in it belongs to the last request; what is left over from an earlier, failed one does not.
    seen: bool,
    /// The dumped table changed meanwhile.
    interrupted: bool,
}

/// The messages of one datagram, each a slice from its header on. Ends at the first length that makes no sense.
pub(super) fn split(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
        if length < 16 {
            return None;
        }
        let message = bytes.get(..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    })
}

fn sequence_of(message: &[u8]) -> u32 {
    u32::from_ne_bytes([message[8], message[9], message[10], message[11]])
}

fn flags_of(message: &[u8]) -> u16 {
    u16::from_ne_bytes([message[6], message[7]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: u32, padding: usize) -> Vec<u8> {
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.resize(length as usize + padding, 0);
        bytes
    }

    #[test]
    fn split_follows_lengths_and_alignment() {
        let mut bytes = message(17, 3);
        bytes.extend(message(20, 0));
        assert_eq!(split(&bytes).map(<[u8]>::len).collect::<Vec<_>>(), [17, 20]);
    }

    #[test]
    fn split_stops_at_a_length_that_makes_no_sense() {
        for first in [message(0, 16), message(15, 1), 64u32.to_ne_bytes().to_vec(), vec![1, 0]] {
            assert_eq!(split(&first).count(), 0);
        }
    }
}
