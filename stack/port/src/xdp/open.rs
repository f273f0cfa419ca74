//! Opening the sockets of a port. What enters: a checked configuration and the netdev's facts. What leaves: one bound
//! socket a queue with its fill ring full, and how it was bound.

#![allow(unsafe_code)]

use super::config::{XdpConfig, ZeroCopy};
use super::error::{OpenError, explain_umem};
use super::netdev::Netdev;
use super::queue::{CHUNK, PIECE_MAX, Queue, QueueParts};
use super::sys;
use std::ffi::CString;
use std::io;
use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};
use xsk_rs::config::{BindFlags, FrameSize, Interface, LibxdpFlags, QueueSize, SocketConfig, UmemConfig};
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, Socket, TxQueue, Umem};

/// How long a bind that the kernel answers with EBUSY is tried again, in milliseconds. The kernel frees a closed socket
/// late.
const BUSY_WAIT_MS: u64 = 1_000;
const BUSY_PAUSE_FIRST_MS: u64 = 2;
const BUSY_PAUSE_MAX_MS: u64 = 50;
/// The send buffer: all frames of a large ring, each with the kernel's overhead.
const SEND_BUFFER_BYTES: libc::c_int = 8 << 20;

/// One way to bind a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BindWay {
    pub(super) zero_copy: bool,
    pub(super) multi_buffer: bool,
}

impl BindWay {
    fn flags(self) -> BindFlags {
        let copy = if self.zero_copy { BindFlags::XDP_ZEROCOPY } else { BindFlags::XDP_COPY };
        let pieces = if self.multi_buffer { BindFlags::XDP_USE_SG } else { BindFlags::empty() };
        copy | pieces | BindFlags::XDP_USE_NEED_WAKEUP
    }

    fn text(self) -> &'static str {
        match (self.zero_copy, self.multi_buffer) {
            (true, true) => "in zero-copy mode with multi-buffer",
            (true, false) => "in zero-copy mode",
            (false, true) => "in copy mode with multi-buffer",
            (false, false) => "in copy mode",
        }
    }
}

/// Whether a socket has to take frames in pieces (multi-buffer).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pieces {
    /// Kernel or configuration has no multi-buffer.
    Impossible,
    /// Every frame of the netdev fits one chunk.
    Spare,
    /// The netdev has frames longer than a chunk.
    Needed,
}

impl Pieces {
    /// For a netdev whose longest frame has `longest` bytes; `possible`: kernel and configuration have multi-buffer.
    pub(super) fn for_frames(longest: usize, possible: bool) -> Pieces {
        match possible {
            false => Pieces::Impossible,
            true if longest <= PIECE_MAX => Pieces::Spare,
            true => Pieces::Needed,
        }
    }
}

/// The ways to try, best first. Where frames longer than a chunk may come, multi-buffer weighs more than zero-copy:
/// without it path MTU 4096 does not pass. Elsewhere it gains nothing, and drivers such as virtio_net have zero-copy
/// without multi-buffer only.
pub(super) fn ways(zero_copy: ZeroCopy, native: bool, pieces: Pieces) -> Vec<BindWay> {
    let copies: &[bool] = match zero_copy {
        ZeroCopy::Force => &[true],
        ZeroCopy::Auto if native => &[true, false],
        _ => &[false],
    };
    let multi: &[bool] = if pieces == Pieces::Impossible { &[false] } else { &[true, false] };
    let way = |zero_copy, multi_buffer| BindWay { zero_copy, multi_buffer };
    if pieces == Pieces::Needed {
        multi.iter().flat_map(|&m| copies.iter().map(move |&c| way(c, m))).collect()
    } else {
        copies.iter().flat_map(|&c| multi.iter().map(move |&m| way(c, m))).collect()
    }
}

/// Opens queue `id`, which is to stand at `place` in the port's list. `frames` is the number of chunks. The first of
/// `ways` that the kernel takes is returned.
pub(super) fn open_queue(
    config: &XdpConfig,
    netdev: &Netdev,
    (place, id): (usize, u32),
    frames: u32,
    ways: &[BindWay],
) -> Result<(Queue, BindWay), OpenError> {
    let (umem, descs, huge_pages) = make_umem(config, &netdev.name, id, frames)?;
    let mut last = None;
    for &way in ways {
        match bind(config, &netdev.name, id, &umem, way) {
            Ok((tx, rx, fill, completion)) => {
                let fd = std::os::fd::AsRawFd::as_raw_fd(tx.fd());
                if let Err(error) = sys::raise_send_buffer(fd, SEND_BUFFER_BYTES) {
                    tracing::warn!(ifname = netdev.name, queue = id, %error, "send buffer stays at its default");
                }
                let got = BindWay { zero_copy: sys::is_zero_copy(fd), ..way };
                let (rx_ring, tx_ring) = (config.rx_ring, config.tx_ring);
                let parts =
                    QueueParts { id, place, umem, descs, tx, rx, fill, completion, rx_ring, tx_ring, huge_pages };
                return Ok((Queue::new(parts), got));
            }
            Err(errno) if errno.raw_os_error() == Some(libc::EBUSY) => {
                let ifname = netdev.name.clone();
                return Err(OpenError::QueueInUse { ifname, queue: id, waited_ms: BUSY_WAIT_MS });
            }
            Err(errno) => {
                tracing::debug!(ifname = netdev.name, queue = id, %errno, "not bound {}", way.text());
                last = Some((way, errno));
            }
        }
    }
    let (way, errno) = last.expect("there is always a way to try");
    Err(match errno.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::ENOBUFS | libc::ENOMEM) => {
            explain_umem(&errno, &netdev.name, id, frames as usize * CHUNK)
        }
        _ => OpenError::Bind { ifname: netdev.name.clone(), queue: id, how: way.text(), errno: errno.to_string() },
    })
}

fn make_umem(
    config: &XdpConfig,
    ifname: &str,
    queue: u32,
    frames: u32,
) -> Result<(Umem, Vec<FrameDesc>, bool), OpenError> {
    let size = |value| QueueSize::new(value).map_err(|e| OpenError::Config(e.to_string()));
    let umem_config = UmemConfig::builder()
        .frame_size(FrameSize::new(CHUNK as u32).map_err(|e| OpenError::Config(e.to_string()))?)
        .fill_queue_size(size(config.rx_ring)?)
        .comp_queue_size(size(config.tx_ring)?)
        .build()
        .map_err(|e| OpenError::Config(e.to_string()))?;
    if config.huge_pages
        && let Some(rounded) = frames_in_huge_pages(frames)
    {
        match Umem::new(umem_config, rounded, true) {
            Ok((umem, descs)) => return Ok((umem, descs, true)),
            Err(error) => tracing::debug!(ifname, queue, errno = %errno_of(&error), "no huge pages for the UMEM"),
        }
    }
    let count = NonZeroU32::new(frames).ok_or_else(|| OpenError::Config("frames is 0".to_owned()))?;
    let (umem, descs) = Umem::new(umem_config, count, false)
        .map_err(|e| explain_umem(&errno_of(&e), ifname, queue, frames as usize * CHUNK))?;
    Ok((umem, descs, false))
}

/// `frames` rounded up to whole huge pages, when enough of them are free now (proc_meminfo(5)).
fn frames_in_huge_pages(frames: u32) -> Option<NonZeroU32> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let field = |name: &str| -> Option<usize> {
        meminfo.lines().find_map(|l| l.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    let page = field("Hugepagesize:")? * 1024;
    let pages = (frames as usize * CHUNK).div_ceil(page);
    (field("HugePages_Free:")? >= pages).then(|| NonZeroU32::new((pages * page / CHUNK) as u32)).flatten()
}

type Rings = (TxQueue, RxQueue, FillQueue, CompQueue);

/// Binds one way, again and again while the kernel says the queue is busy.
fn bind(config: &XdpConfig, ifname: &str, queue: u32, umem: &Umem, way: BindWay) -> io::Result<Rings> {
    let interface = Interface::new(CString::new(ifname)?);
    let size = |value| QueueSize::new(value).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e.to_string()));
    let socket_config = SocketConfig::builder()
        .rx_queue_size(size(config.rx_ring)?)
        .tx_queue_size(size(config.tx_ring)?)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .bind_flags(way.flags())
        .build();
    let give_up = Instant::now() + Duration::from_millis(BUSY_WAIT_MS);
    let mut pause = BUSY_PAUSE_FIRST_MS;
    loop {
        // SAFETY: the UMEM is not shared between sockets, and libxdp loads no program.
        match unsafe { Socket::new(socket_config, umem, &interface, queue) } {
            Ok((tx, rx, Some((fill, completion)))) => return Ok((tx, rx, fill, completion)),
            Ok((_, _, None)) => return Err(io::Error::other("the UMEM already belongs to a socket")),
            Err(error) => {
                let errno = errno_of(&error);
                if errno.raw_os_error() != Some(libc::EBUSY) || Instant::now() >= give_up {
                    return Err(errno);
                }
                thread::sleep(Duration::from_millis(pause));
                pause = (pause * 2).min(BUSY_PAUSE_MAX_MS);
            }
        }
    }
}

/// The errno inside an xsk-rs error.
fn errno_of(error: &dyn std::error::Error) -> io::Error {
    error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error)
        .map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(zero_copy: bool, multi_buffer: bool) -> BindWay {
        BindWay { zero_copy, multi_buffer }
    }

    #[test]
    fn frames_longer_than_a_chunk_give_up_multi_buffer_last() {
        let needed = Pieces::Needed;
        assert_eq!(
            ways(ZeroCopy::Auto, true, needed),
            [way(true, true), way(false, true), way(true, false), way(false, false)]
        );
        assert_eq!(ways(ZeroCopy::Off, true, needed), [way(false, true), way(false, false)]);
        assert_eq!(ways(ZeroCopy::Auto, false, needed), [way(false, true), way(false, false)], "generic mode copies");
        assert_eq!(ways(ZeroCopy::Force, true, needed), [way(true, true), way(true, false)]);
    }

    #[test]
    fn frames_of_one_chunk_give_up_zero_copy_last() {
        assert_eq!(
            ways(ZeroCopy::Auto, true, Pieces::Spare),
            [way(true, true), way(true, false), way(false, true), way(false, false)]
        );
        assert_eq!(ways(ZeroCopy::Auto, true, Pieces::Impossible), [way(true, false), way(false, false)]);
        assert_eq!(ways(ZeroCopy::Force, true, Pieces::Impossible), [way(true, false)]);
        assert_eq!(ways(ZeroCopy::Auto, false, Pieces::Impossible), [way(false, false)]);
    }

    #[test]
    fn the_longest_frame_decides_on_pieces() {
        assert_eq!(Pieces::for_frames(1518, true), Pieces::Spare);
        assert_eq!(Pieces::for_frames(3840, true), Pieces::Spare);
        assert_eq!(Pieces::for_frames(3841, true), Pieces::Needed);
        assert_eq!(Pieces::for_frames(9018, false), Pieces::Impossible);
    }
}
