//! Loading the program. What enters: how many queues the netdev has, and which faults a test wants. What leaves: a
//! [`Program`] with its maps, not yet on any netdev.

use crate::addresses::AddressFilter;
use crate::attach::{AttachError, AttachMode, Attachment};
use crate::counters::Counters;
use crate::privilege::{Capability, explain_denied, holds_all, memlock_limit};
use crate::skel::RoceSkelBuilder;
use crate::sys;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, PrintLevel};
use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Faults the program injects into frames that it would redirect, for tests. All off by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// The chance to drop a frame, in 1/65536.
    pub drop_per_64k: u16,
    /// The chance to flip one bit behind the BTH, in 1/65536.
    pub corrupt_per_64k: u16,
    /// Drop this frame, counted from 1, once; 0 for none.
    pub drop_nth: u32,
}

/// How to load the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramConfig {
    /// Receive queues of the netdev, 1 or more: the size of the socket map.
    pub queues: u32,
    /// Load the form that takes frames in several pieces when the kernel has it (5.18).
    pub multi_buffer: bool,
    /// Faults to inject.
    pub faults: Faults,
}

/// Why the program could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The thread may not load programs or make maps.
    #[error("loading the XDP program was refused: {why}")]
    Denied {
        /// What is missing.
        why: String,
    },
    /// The kernel could not lock the memory of the maps.
    #[error(
        "no memory for the XDP program's maps: RLIMIT_MEMLOCK is {limit} bytes and kernels before 5.11 count maps \
         against it; raise it (`ulimit -l unlimited`)"
    )]
    Memlock {
        /// The soft limit in bytes.
        limit: u64,
    },
    /// The kernel does not take the program.
    #[error("the kernel did not take the XDP program (5.12 or later is needed): {detail}")]
    Refused {
        /// The error and what libbpf and the verifier had to say.
        detail: String,
    },
}

/// Why a map of the program could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[error("could not {action} the XDP program's {map} map: {detail}")]
pub struct MapError {
    action: &'static str,
    map: &'static str,
    detail: String,
}

impl MapError {
    pub(crate) fn new(action: &'static str, map: &'static str, error: libbpf_rs::Error) -> MapError {
        MapError { action, map, detail: format!("{error:#}") }
    }
}

/// What a test run of the program gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRun {
    /// The XDP action: 0 aborted, 1 drop, 2 pass, 3 transmit, 4 redirect (`enum xdp_action`, linux/bpf.h).
    pub action: u32,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
}

/// The loaded program and its maps.
#[derive(Debug)]
pub struct Program {
    program: OwnedFd,
    sockets: MapHandle,
    counts: MapHandle,
    addresses: AddressFilter,
    multi_buffer: bool,
}

thread_local! {
    static LIBBPF_SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

fn collect(_: PrintLevel, text: String) {
    LIBBPF_SAID.with_borrow_mut(|said| said.push_str(&text));
}

impl Program {
    /// Loads the program. With `multi_buffer`, a kernel that does not know `xdp.frags` gets the plain form:
    /// [`Program::takes_pieces`] says which.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(config: &ProgramConfig) -> Result<Program, LoadError> {
        if config.multi_buffer {
            match Self::load_form(config, true) {
                Err(LoadError::Refused { .. }) => {}
                loaded_or_denied => return loaded_or_denied,
            }
        }
        Self::load_form(config, false)
    }

    fn load_form(config: &ProgramConfig, multi_buffer: bool) -> Result<Program, LoadError> {
        LIBBPF_SAID.with_borrow_mut(String::clear);
        let printed_before = libbpf_rs::set_print(Some((PrintLevel::Warn, collect)));
        let loaded = Self::open_and_load(config, multi_buffer);
        libbpf_rs::set_print(printed_before);
        loaded.map_err(|e| explain_load_error(&e))
    }

    fn open_and_load(config: &ProgramConfig, multi_buffer: bool) -> libbpf_rs::Result<Program> {
        let mut storage = MaybeUninit::uninit();
        let mut open = RoceSkelBuilder::default().open(&mut storage)?;
        open.progs.roce_frags.set_autoload(multi_buffer);
        open.progs.roce_plain.set_autoload(!multi_buffer);
        open.maps.sockets.set_max_entries(config.queues.max(1))?;
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            constants.drop_per_64k = config.faults.drop_per_64k.into();
            constants.corrupt_per_64k = config.faults.corrupt_per_64k.into();
            constants.drop_nth = config.faults.drop_nth;
        }
        let skel = open.load()?;
        let program = if multi_buffer { &skel.progs.roce_frags } else { &skel.progs.roce_plain };
        // The descriptors outlive the skeleton, so that no borrow of it has to be kept.
        Ok(Program {
            program: program.as_fd().try_clone_to_owned()?,
            sockets: MapHandle::try_from(&skel.maps.sockets)?,
            counts: MapHandle::try_from(&skel.maps.counts)?,
            addresses: AddressFilter::new(
                MapHandle::try_from(&skel.maps.addresses_v4)?,
                MapHandle::try_from(&skel.maps.addresses_v6)?,
            ),
            multi_buffer,
        })
    }

    /// Puts the program on an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(&self, ifindex: u32, mode: AttachMode) -> Result<Attachment, AttachError> {
        Attachment::new(self.program.as_fd(), ifindex, mode)
    }

    /// The form that takes frames in several pieces is loaded.
    #[must_use]
    pub fn takes_pieces(&self) -> bool {
        self.multi_buffer
    }

    /// The set of our addresses; empty at first.
    #[must_use]
    pub fn addresses(&self) -> &AddressFilter {
        &self.addresses
    }

    /// Frames that arrive on receive queue `queue` go to `socket` (an AF_XDP socket bound to that queue) from now on.
    /// The entry goes when the socket is closed.
    ///
    /// # Errors
    /// When `queue` is not less than [`ProgramConfig::queues`], or the descriptor is no AF_XDP socket.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), MapError> {
        self.sockets
            .update(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| MapError::new("add to", "socket", e))
    }

    /// What became of the frames the program saw, all CPUs together. One system call.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn counters(&self) -> Result<Counters, MapError> {
        let per_cpu = self
            .counts
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| MapError::new("read", "counter", e))?;
        let mut sum = Counters::default();
        for value in per_cpu.iter().flatten() {
            sum += Counters::from_value(value).unwrap_or_default();
        }
        Ok(sum)
    }

    /// Runs the program once over `frame` as if it had arrived on queue 0, without any netdev (BPF_PROG_TEST_RUN).
    /// The counters count it.
    ///
    /// # Errors
    /// The kernel's errno: EINVAL for a frame shorter than 14 bytes.
    pub fn test_run(&self, frame: &[u8]) -> io::Result<TestRun> {
        let mut out = vec![0; frame.len()];
        let (action, len) = sys::test_run(self.program.as_fd(), frame, &mut out)?;
        out.truncate(len);
        Ok(TestRun { action, frame: out })
    }
}

fn explain_load_error(error: &libbpf_rs::Error) -> LoadError {
    let needed = [Capability::NetAdmin, Capability::Bpf];
    let said = LIBBPF_SAID.take();
    // The verifier's refusal is EACCES, which is a "permission" too.
    let by_verifier = said.contains("BEGIN PROG LOAD LOG");
    if error.kind() != ErrorKind::PermissionDenied || by_verifier {
        return LoadError::Refused { detail: format!("{error:#}; libbpf: {}", said.trim()) };
    }
    match memlock_limit() {
        // Kernels before 5.11 answer EPERM for a low limit, too: libbpf then speaks of it, but also at every other EPERM.
        Some(limit) if said.contains("RLIMIT_MEMLOCK") && holds_all(&needed) => LoadError::Memlock { limit },
        _ => LoadError::Denied { why: explain_denied(&needed) },
    }
}
