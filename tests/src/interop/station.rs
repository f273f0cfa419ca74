//! The guest with one agent, and our device before it. Enters: which kernel. Leaves: memory and addresses on both sides.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::mpsc;

use xroce::{Access, Context, Device, Pd, Progress};
use xroce_port::Port;
use xroce_port::fault::{Fault, Faults};

use super::memory::Guarded;
use crate::rxe::{self, Guest, Kernel, Mtu, Options, PeerAgent, in_namespace};

/// Bytes of the memory that every case uses, on either side: 1 MiB and what lies around a message.
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
    gids: (u8, u8),
    /// What is to go wrong at our port.
    pub faults: Faults,
    /// Known differences that cases have met, by name.
    pub tolerated: Vec<super::Known>,
    pub(super) links: u32,
}

impl Station {
    /// A guest with path MTU 4096, an agent, and our device on the interface before it.
    ///
    /// # Errors
    /// This machine can have no guest, or no AF_XDP socket.
    ///
    /// # Panics
    /// What should work did not.
    pub fn boot(kernel: Kernel) -> Result<Self, String> {
        let guest = Guest::boot_with(&Options::new(kernel, Mtu::RDMA)).map_err(|skip| skip.to_string())?;
        let (device, faults) =
            in_namespace(guest.namespace(), || OurSide::open(&guest.interface())).expect("its namespace");
        let peer = peer_side(guest.agent().expect("the agent answers")).expect("rxe0 is usable");
        let addresses = guest.host_addresses();
        let gids = (device.gid_index(addresses.0.into()), device.gid_index(addresses.1.into()));
        Ok(Self { guest, peer, device: Some(device), gids, faults, tolerated: Vec::new(), links: 0 })
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
        f(self);
        let (device, faults) = OurSide::open(&self.guest.interface());
        (self.device, self.faults) = (Some(device), faults);
    }

    /// Our address and the guest's.
    pub fn addresses(&self, family: Family) -> (IpAddr, IpAddr) {
        let (host, guest) = (self.guest.host_addresses(), self.guest.addresses());
        match family {
            Family::V4 => (host.0.into(), guest.0.into()),
            Family::V6 => (host.1.into(), guest.1.into()),
        }
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
    fn open(interface: &str) -> (Self, Faults) {
        let (context, faults) = open(interface);
        let pd = context.alloc_pd().expect("a protection domain");
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let memory = Guarded::new(&pd, BUF_LEN, rights).expect("memory");
        (Self { context, pd, memory }, faults)
    }

    fn gid_index(&self, address: IpAddr) -> u8 {
        let table = self.context.gid_table();
        let found = table.iter().find(|entry| entry.address == address);
        found.unwrap_or_else(|| panic!("{address} is not in our GID table: {table:?}")).index
    }
}

fn open(interface: &str) -> (Context, Faults) {
    let (tell, told) = mpsc::channel();
    let context = Device::builder(interface)
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

fn peer_side(mut agent: PeerAgent) -> Result<PeerSide, rxe::AgentError> {
    let ctx = agent.open("rxe0")?;
    let pd = agent.alloc_pd(ctx)?;
    let buf = agent.alloc_shifted(BUF_LEN as u64, 3, None)?;
    let mr = agent.reg_mr(pd, buf, rxe::Access::all() - rxe::Access::ZERO_BASED)?;
    Ok(PeerSide { agent, ctx, pd, buf, mr })
}

/// A station, or `None` after a line "SKIP TEST: reason", which `make test` counts. With XROCE_REQUIRE_RXE=1, as in CI, a
/// machine that cannot is a failure.
///
/// # Panics
/// As [`Station::boot`], and for a skip that is not allowed.
pub fn station_or_skip(name: &str, kernel: Kernel) -> Option<Station> {
    match Station::boot(kernel) {
        Ok(station) => Some(station),
        Err(why) if std::env::var_os("XROCE_REQUIRE_RXE").is_some_and(|v| v == "1") => panic!("{name}: {why}"),
        Err(why) => {
            // Not by a macro: those are silent in a test that passes.
            let _ = writeln!(io::stderr(), "SKIP {name}: {why}");
            None
        }
    }
}
