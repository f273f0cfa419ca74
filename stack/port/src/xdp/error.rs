//! Why an AF_XDP port could not be opened. What enters: errno values and what was being tried. What leaves: an error
//! that names the thing and says what to do.

#![forbid(unsafe_code)]

use xroce_xdp_prog::{AttachError, Capability, LoadError, MapError, explain_denied, memlock_limit};

/// Why [`super::XdpPort::open`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A value of the configuration is out of range.
    #[error("AF_XDP port configuration: {0}")]
    Config(String),
    /// There is no such netdev, or it cannot be asked.
    #[error("network interface {ifname:?}: {detail}")]
    Interface {
        /// The name asked for.
        ifname: String,
        /// What went wrong.
        detail: String,
    },
    /// A queue was asked for that the netdev does not have.
    #[error(
        "queue {asked} was asked for, but {ifname} has {have} queues (0 to {}): `ethtool -L {ifname}` sets the number",
        have - 1
    )]
    NoSuchQueue {
        /// The netdev.
        ifname: String,
        /// The queue asked for.
        asked: u32,
        /// Receive queues that the netdev has.
        have: u32,
    },
    /// None of the asked queues can transmit.
    #[error("{ifname} has {have} transmit queues: at least one of the queues served must be below that")]
    NoTransmitQueue {
        /// The netdev.
        ifname: String,
        /// Transmit queues that the netdev has.
        have: u32,
    },
    /// The XDP program could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The XDP program could not be put on the netdev.
    #[error("{ifname}: {source}")]
    Attach {
        /// The netdev.
        ifname: String,
        /// Why.
        source: AttachError,
    },
    /// A map of the XDP program could not be filled.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The thread may not open AF_XDP sockets.
    #[error("opening an AF_XDP socket was refused: {why}")]
    Denied {
        /// What is missing.
        why: String,
    },
    /// The kernel has no AF_XDP.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS, Linux 4.18 or later)")]
    NoAfXdp,
    /// The frames' memory could not be had or locked.
    #[error(
        "{bytes} bytes of frame memory for queue {queue} of {ifname} were refused ({errno}): RLIMIT_MEMLOCK is \
         {limit}; raise it (`ulimit -l`, or LimitMEMLOCK= in a unit file), hold CAP_IPC_LOCK, or ask for fewer frames"
    )]
    Memory {
        /// The netdev.
        ifname: String,
        /// The queue.
        queue: u32,
        /// Bytes asked for.
        bytes: usize,
        /// RLIMIT_MEMLOCK as text.
        limit: String,
        /// The kernel's errno as text.
        errno: String,
    },
    /// Another socket holds the queue, and went on holding it.
    #[error(
        "queue {queue} of {ifname} is in use: another AF_XDP socket is bound to it (waited {waited_ms} ms for it to \
         go); `ss --xdp` lists them"
    )]
    QueueInUse {
        /// The netdev.
        ifname: String,
        /// The queue.
        queue: u32,
        /// How long the bind was tried again, in milliseconds.
        waited_ms: u64,
    },
    /// The socket could not be bound in any way that the configuration allows.
    #[error("queue {queue} of {ifname} could not be bound {how}: {errno}")]
    Bind {
        /// The netdev.
        ifname: String,
        /// The queue.
        queue: u32,
        /// What was asked of the kernel last.
        how: &'static str,
        /// The kernel's errno as text.
        errno: String,
    },
}

/// What an errno from opening a socket or registering its memory means.
pub(super) fn explain_umem(errno: &std::io::Error, ifname: &str, queue: u32, bytes: usize) -> OpenError {
    match errno.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => OpenError::Denied { why: explain_denied(&[Capability::NetRaw]) },
        Some(libc::EAFNOSUPPORT | libc::ESOCKTNOSUPPORT | libc::EPROTONOSUPPORT) => OpenError::NoAfXdp,
        _ => OpenError::Memory {
            ifname: ifname.to_owned(),
            queue,
            bytes,
            limit: memlock_limit().map_or_else(|| "unlimited".to_owned(), |limit| format!("{limit} bytes")),
            errno: errno.to_string(),
        },
    }
}
