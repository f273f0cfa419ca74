//! The guest with one agent, and our device before it. Enters: which kernel. Leaves: memory and addresses on both sides.

use std::mem;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;

use xroce::{Access, Context, Device, Gid, Pd, Progress, Psn, QpEndpoint, Qpn};
use xroce_port::Port;
use xroce_port::fault::{Fault, Faults};

use super::memory::Guarded;
use crate::rxe::{self, Guest, Kernel, Mtu, Options, PeerAgent, in_namespace};

/// Bytes of the memory that cases use, on either side: 1 MiB and what lies around a message.
pub const BUF_LEN: usize = (1 << 20) + (64 << 10);

/// Which IP carries the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4, in v4-mapped GIDs.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];
}

/// A guest's verbs objects.
pub struct PeerSide {
    /// The connection.
    pub agent: PeerAgent,
    /// rxe0.
    pub ctx: rxe::Ctx,
    /// All cases' domain.
    pub pd: rxe::Pd,
    /// All cases' memory, every right.
    pub buf: rxe::Buf,
    /// Its region.
    pub mr: rxe::Mr,
}

/// Our verbs objects.
pub struct OurSide {
    /// The device.
    pub context: Context,
    /// All cases' domain.
    pub pd: Pd,
    /// All cases' memory, every right.
    pub memory: Guarded,
}

/// Both ends of the wire, for any number of cases one after the other.
pub struct Station {
    /// The guest.
    pub guest: Guest,
    /// Its end.
    pub peer: PeerSide,
    /// Our end; `None` while another program has the netdev.
    device: Option<OurSide>,
    /// Bytes of the registered memory on either side.
    pub buf_len: usize,
    gids: (u8, u8),
    /// What is to go wrong at our port.
    pub faults: Faults,
    /// Known differences that cases have met, by name.
    pub tolerated: Vec<super::Known>,
    pub(super) links: usize,
}

impl Station {
    /// A guest with path MTU 4096, an agent, and our device on the interface before it.
    ///
    /// # Errors
    /// This machine can have no guest.
    ///
    /// # Panics
    /// What should work did not.
    pub fn boot(kernel: Kernel) -> Result<Self, String> {
        Self::boot_with(kernel, 1024, BUF_LEN)
    }

    /// The same with `guest_mib` MiB for the guest and `buf_len` bytes of registered memory on either side, at least
    /// [`BUF_LEN`].
    ///
    /// # Errors
    /// As [`Station::boot`].
    ///
    /// # Panics
    /// As [`Station::boot`].
    pub fn boot_with(kernel: Kernel, guest_mib: u32, buf_len: usize) -> Result<Self, String> {
        let options = Options { memory_mib: guest_mib, ..Options::new(kernel, Mtu::RDMA) };
        let guest = Guest::boot_with(&options).map_err(|skip| skip.to_string())?;
        let (device, faults) =
            in_namespace(guest.namespace(), || OurSide::open(&guest.interface(), buf_len)).expect("its namespace");
        let peer = peer_side(guest.agent().expect("the agent answers"), buf_len).expect("rxe0 is usable");
        let addresses = guest.host_addresses();
        let gids = (device.gid_index(addresses.0.into()), device.gid_index(addresses.1.into()));
        Ok(Self { guest, peer, device: Some(device), buf_len, gids, faults, tolerated: Vec::new(), links: 0 })
    }

    /// Our end.
    ///
    /// # Panics
    /// Inside [`Station::without_device`].
    pub fn ours(&self) -> &OurSide {
        self.device.as_ref().expect("the device is open")
    }

    /// Runs `f` while our device is closed, so that another program can have the netdev. To be called in its namespace.
    pub fn without_device(&mut self, f: impl FnOnce(&mut Self)) {
        self.device = None;
        let result = catch_unwind(AssertUnwindSafe(|| f(self)));
        let (device, faults) = OurSide::open(&self.guest.interface(), self.buf_len);
        (self.device, self.faults) = (Some(device), faults);
        if let Err(panic) = result {
            resume_unwind(panic);
        }
    }

    /// Frames that our receive ring had no room for since our device was opened; `None` while another program has the netdev.
    ///
    /// # Panics
    /// The device is broken.
    pub(super) fn lost_by_our_port(&self) -> Option<u64> {
        let counters = self.device.as_ref()?.context.counters().expect("the device works");
        let lost: u64 = counters.iter().map(|(port, ..)| port.rx_dropped_lower + port.rx_dropped_pieces).sum();
        // What a rule drops is counted there as well.
        Some(lost.saturating_sub(self.faults.counters().rx.dropped))
    }

    /// The longest message that the guest's device takes.
    pub fn peer_max_message(&mut self) -> u64 {
        let peer = &mut self.peer;
        peer.agent.query_port(peer.ctx).expect("asked")["max_msg_sz"]
    }

    /// Our address and the guest's.
    pub fn addresses(&self, family: Family) -> (IpAddr, IpAddr) {
        let (host, guest) = (self.guest.host_addresses(), self.guest.addresses());
        match family {
            Family::V4 => (host.0.into(), guest.0.into()),
            Family::V6 => (host.1.into(), guest.1.into()),
        }
    }

    /// Where a QP of the guest is, whose packets begin at `psn`.
    pub(super) fn peer_endpoint(&self, family: Family, qpn: u32, psn: u32) -> QpEndpoint {
        let gid = match self.addresses(family).1 {
            IpAddr::V4(ip) => Gid::from_ipv4(ip),
            IpAddr::V6(ip) => Gid::from_ipv6(ip),
        };
        QpEndpoint { gid, qpn: Qpn::new(qpn), psn: Psn::new(psn) }
    }

    /// A further process in the guest with verbs objects of its own, to be exchanged for [`Station::peer`] while a link
    /// to it is in use.
    ///
    /// # Panics
    /// The guest cannot.
    pub fn another_peer(&self) -> PeerSide {
        peer_side(self.guest.agent().expect("the agent answers"), BUF_LEN).expect("rxe0 is usable")
    }

    /// Runs `f` with `other` as the guest's end; it is given the usual one. Links of either are to be parked in between.
    pub fn with_peer<T>(&mut self, other: &mut PeerSide, f: impl FnOnce(&mut Self, &mut PeerSide) -> T) -> T {
        mem::swap(&mut self.peer, other);
        let result = catch_unwind(AssertUnwindSafe(|| f(self, other)));
        mem::swap(&mut self.peer, other);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Index of our address in our GID table, which a program on the same netdev has too.
    pub fn our_gid(&self, family: Family) -> u8 {
        match family {
            Family::V4 => self.gids.0,
            Family::V6 => self.gids.1,
        }
    }
}

impl OurSide {
    fn open(interface: &str, buf_len: usize) -> (Self, Faults) {
        let (context, faults) = open(interface, buf_len);
        let pd = context.alloc_pd().expect("a protection domain");
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let memory = Guarded::new(&pd, buf_len, rights).expect("memory");
        (Self { context, pd, memory }, faults)
    }

    fn gid_index(&self, address: IpAddr) -> u8 {
        let table = self.context.gid_table();
        let found = table.iter().find(|entry| entry.address == address);
        found.unwrap_or_else(|| panic!("{address} is not in our GID table: {table:?}")).index
    }
}

fn open(interface: &str, buf_len: usize) -> (Context, Faults) {
    let (tell, told) = mpsc::channel();
    // UC has no flow control. What the longest message of the guest puts on the wire must not be lost when this machine is
    // busy otherwise: 64 MiB at path MTU 4096 are 16,384 frames of two chunks, 1 MiB at 256 are 4096 of one.
    let rx_ring = if buf_len > BUF_LEN { 32_768 } else { 8192 };
    let context = Device::builder(interface)
        .xdp(|config| config.rx_ring = rx_ring)
        // The guest's CPUs are emulated on ours: nobody shall spin.
        .progress(Progress::Event)
        .wrap(move |port| {
            let port = Fault::new(port, 1);
            tell.send(port.faults()).expect("the other end waits");
            Box::new(port) as Box<dyn Port>
        })
        .open()
        .unwrap_or_else(|error| panic!("{interface}: {error}"));
    (context, told.recv().expect("opening has wrapped the port"))
}

fn peer_side(mut agent: PeerAgent, buf_len: usize) -> Result<PeerSide, rxe::AgentError> {
    let ctx = agent.open("rxe0")?;
    let pd = agent.alloc_pd(ctx)?;
    let buf = agent.alloc_shifted(buf_len as u64, 3, None)?;
    let mr = agent.reg_mr(pd, buf, rxe::Access::all() - rxe::Access::ZERO_BASED)?;
    Ok(PeerSide { agent, ctx, pd, buf, mr })
}
