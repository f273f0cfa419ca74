//! RoCE over plain UDP sockets: no rights, no netdev of its own, one system call a packet.
//!
//! What enters: datagrams to port 4791 of our addresses, and frames that the engine writes. What leaves: the same in the other
//! direction. The kernel keeps the IP header to itself, so the port makes up what the engine expects in front of a datagram
//! (`headers`), and fits the ICRC of what is sent to the headers that the kernel will write.
//!
//! What is checked, and what not: over IPv6 the ICRC is checked whole, since an IPv6 header holds nothing that the socket does not
//! tell. Over IPv4 the identification field is unknown. Senders that leave it 0 (xroce, hardware mostly) are checked whole; of
//! others that count it (`rdma_rxe`) the port solves for it (`ident`), and of the 32 bits of the ICRC 16 still check. A sender
//! that does not set "don't fragment" is not understood. TTL, traffic class and flow label are outside the ICRC and read as 64, 0, 0.

#![forbid(unsafe_code)]

mod headers;
mod ident;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use thiserror::Error;

pub use self::headers::THEIR_MAC;
use self::headers::{HEADERS_MAX, Outgoing};
use crate::sockopt::take_without_checksum;
use crate::{Capabilities, LinkChange, Port, PortCounters, RxFrame, TxClass, TxFrame};

/// The UDP port of RoCE v2.
pub const ROCE_PORT: u16 = 4791;

/// What the kernel is asked to hold for us, in bytes; it grants what `net.core.rmem_max` allows.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Slots kept for responses: an eighth, as in the other ports.
const RESPONSE_SHARE: usize = 8;

/// How the port is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpConfig {
    /// Our addresses, one socket each. Link-local ones are refused: they need an interface beside the address.
    pub addresses: Vec<IpAddr>,
    /// Bytes of the largest IP packet, 576 to 65535.
    pub mtu: u32,
    /// Frames in each direction, 16 or more.
    pub ring: usize,
}

impl UdpConfig {
    /// On these addresses, with an MTU that carries path MTU 4096, and 512 frames each way.
    #[must_use]
    pub fn new(addresses: &[IpAddr]) -> UdpConfig {
        UdpConfig { addresses: addresses.to_vec(), mtu: 4200, ring: 512 }
    }
}

/// Why there is no port.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UdpOpenError {
    /// No address was given.
    #[error("a UDP port needs at least one address of this host")]
    NoAddress,
    /// An address that says nothing without an interface.
    #[error("{address} is link-local: use a routable address")]
    LinkLocal {
        /// The address.
        address: IpAddr,
    },
    /// A number out of range.
    #[error("{field} is {value}; it must be {want}")]
    Range {
        /// Which.
        field: &'static str,
        /// What was given.
        value: usize,
        /// What may be.
        want: &'static str,
    },
    /// Somebody has the port.
    #[error(
        "UDP port 4791 of {address} is in use: by another RoCE endpoint, or by the kernel's rdma_rxe (rdma link); stop it or use \
         another address"
    )]
    InUse {
        /// The address.
        address: IpAddr,
    },
    /// The address is not ours.
    #[error("{address} is no address of this host (ip address lists them)")]
    NotOurs {
        /// The address.
        address: IpAddr,
    },
    /// Anything else that the kernel says.
    #[error("no UDP socket on {address}: {source}")]
    Socket {
        /// The address.
        address: IpAddr,
        /// What it said.
        source: io::Error,
    },
}

#[derive(Debug)]
struct Socket {
    address: IpAddr,
    socket: UdpSocket,
}

/// A buffer and where the frame lies in it.
#[derive(Debug)]
struct Held {
    buf: Box<[u8]>,
    start: usize,
    end: usize,
}

/// A port on UDP sockets.
#[derive(Debug)]
pub struct UdpPort {
    capabilities: Capabilities,
    sockets: Vec<Socket>,
    /// Which socket a burst begins with, so that a busy address does not starve the others.
    first: usize,
    rx_free: Vec<Box<[u8]>>,
    lent: Vec<Held>,
    tx_free: Vec<Box<[u8]>>,
    reserved: usize,
    pending: VecDeque<(Box<[u8]>, usize)>,
    response_reserve: usize,
    counters: PortCounters,
}

impl UdpPort {
    /// Opens a socket on port 4791 of each address.
    ///
    /// # Errors
    /// See [`UdpOpenError`].
    pub fn open(config: &UdpConfig) -> Result<UdpPort, UdpOpenError> {
        let range = |field, value, ok: bool, want| {
            if ok { Ok(()) } else { Err(UdpOpenError::Range { field, value, want }) }
        };
        range("mtu", config.mtu as usize, (576..=65535).contains(&config.mtu), "576 to 65535 bytes")?;
        range("ring", config.ring, config.ring >= 16, "at least 16 frames")?;
        if config.addresses.is_empty() {
            return Err(UdpOpenError::NoAddress);
        }
        let sockets = config.addresses.iter().map(|address| bind(*address)).collect::<Result<Vec<_>, _>>()?;
        let len = HEADERS_MAX + config.mtu as usize;
        let buffers = || (0..config.ring).map(|_| vec![0; len].into()).collect();
        Ok(UdpPort {
            capabilities: Capabilities {
                mtu: config.mtu,
                max_frame: headers::ETHERNET + config.mtu as usize,
                queues: 1,
                mac: headers::OUR_MAC,
                xdp: None,
            },
            sockets,
            first: 0,
            rx_free: buffers(),
            lent: Vec::with_capacity(config.ring),
            tx_free: buffers(),
            reserved: 0,
            pending: VecDeque::with_capacity(config.ring),
            response_reserve: config.ring / RESPONSE_SHARE,
            counters: PortCounters::default(),
        })
    }

    /// Takes datagrams from socket `i` until it has no more, `max` are lent, or no buffer is free.
    fn receive(&mut self, i: usize, max: usize) {
        while self.lent.len() < max {
            let Some(mut buf) = self.rx_free.pop() else { return };
            let Socket { address, socket } = &self.sockets[i];
            match socket.recv_from(&mut buf[HEADERS_MAX..]) {
                Ok((len, from)) => {
                    let (start, end) = headers::put_in_front(&mut buf, len, from, *address);
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += (end - start) as u64;
                    self.lent.push(Held { buf, start, end });
                }
                Err(e) => {
                    self.rx_free.push(buf);
                    // Anything else is news of an earlier datagram (ICMP): the socket is still good.
                    if e.kind() == io::ErrorKind::WouldBlock {
                        return;
                    }
                    self.counters.rx_dropped_invalid += 1;
                    return;
                }
            }
        }
    }

    /// Sends one frame; false when the kernel has no room now.
    fn send(&mut self, buf: &[u8], len: usize) -> bool {
        let Some(Outgoing { from, to, datagram }) = headers::strip(&buf[..len]) else {
            self.counters.tx_errors += 1;
            return true;
        };
        let Some(Socket { socket, .. }) = self.sockets.iter().find(|s| s.address == from) else {
            self.counters.tx_errors += 1;
            return true;
        };
        self.counters.kicks += 1;
        match socket.send_to(datagram, (to, ROCE_PORT)) {
            Ok(_) => true,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock) || e.raw_os_error() == Some(libc::ENOBUFS) => {
                self.counters.kicks_again += 1;
                false
            }
            // No route, too long for the way, refused by the peer's kernel: lost, as on any wire.
            Err(_) => {
                self.counters.tx_dropped += 1;
                true
            }
        }
    }
}

fn bind(address: IpAddr) -> Result<Socket, UdpOpenError> {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if link_local {
        return Err(UdpOpenError::LinkLocal { address });
    }
    let open = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((address, ROCE_PORT))?;
        socket.set_nonblocking(true)?;
        // The kernel then sets DF and leaves the identification 0, as the ICRC has it, and refuses what does not fit.
        match address {
            IpAddr::V4(_) => sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?,
            IpAddr::V6(_) => {
                sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?;
                take_without_checksum(&socket)?;
            }
        }
        sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
        Ok(socket)
    };
    match open() {
        Ok(socket) => Ok(Socket { address, socket }),
        Err(e) => Err(match e.kind() {
            io::ErrorKind::AddrInUse => UdpOpenError::InUse { address },
            io::ErrorKind::AddrNotAvailable => UdpOpenError::NotOurs { address },
            _ => UdpOpenError::Socket { address, source: e },
        }),
    }
}

impl Port for UdpPort {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn rx_burst(&mut self, max: usize) -> usize {
        self.rx_release();
        let count = self.sockets.len();
        for k in 0..count {
            self.receive((self.first + k) % count, max);
        }
        self.first = (self.first + 1) % count;
        self.lent.len()
    }

    fn rx_frame(&self, i: usize) -> RxFrame<'_> {
        let Held { buf, start, end } = &self.lent[i];
        RxFrame { head: &buf[*start..*end], tail: &[] }
    }

    fn rx_release(&mut self) {
        self.rx_free.extend(self.lent.drain(..).map(|held| held.buf));
    }

    fn tx_reserve(&mut self, len: usize, class: TxClass) -> Option<TxFrame<'_>> {
        self.reserved = 0;
        let kept = match class {
            TxClass::Request => self.response_reserve,
            TxClass::Response => 0,
        };
        if len == 0 || len > self.capabilities.max_frame || self.tx_free.len() <= kept {
            self.counters.tx_refused += 1;
            return None;
        }
        self.reserved = len;
        self.tx_free.last_mut().map(|buf| TxFrame { head: &mut buf[..len], tail: &mut [] })
    }

    fn tx_commit(&mut self, len: usize) {
        assert!(self.reserved > 0, "tx_commit without a reserved frame");
        assert!((1..=self.reserved).contains(&len), "tx_commit of {len} bytes, reserved were {}", self.reserved);
        self.reserved = 0;
        let mut buf = self.tx_free.pop().expect("the reserved buffer is the last free one");
        headers::fit_to_socket(&mut buf[..len]);
        self.pending.push_back((buf, len));
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
    }

    fn tx_flush(&mut self) {
        while let Some((buf, len)) = self.pending.pop_front() {
            if !self.send(&buf, len) {
                self.pending.push_front((buf, len));
                return;
            }
            self.tx_free.push(buf);
        }
    }

    fn tx_idle(&self) -> bool {
        self.pending.is_empty()
    }

    fn wait_fds(&self, out: &mut Vec<RawFd>) {
        out.extend(self.sockets.iter().map(|s| s.socket.as_raw_fd()));
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn link(&mut self) -> Option<LinkChange> {
        // Sockets outlive every change of the interfaces below them.
        None
    }
}
