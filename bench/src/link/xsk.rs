//! A raw AF_XDP socket: rings, UMEM and the kick, with nothing above. The yardstick, so as thin as it can be.
//!
//! In: a netdev of the calling thread's namespace. Out: descriptors to send and to receive, and bytes of the UMEM.
//!
//! All `unsafe` rests on two rules. The rings are mapped for the life of the socket at the offsets that the kernel gave, and
//! each has one producer and one consumer, of which the kernel is the other. UMEM bytes are reached through
//! [`Xsk::bytes`] and [`Xsk::bytes_mut`] only, which check that the range lies inside.
#![allow(unsafe_code, reason = "memory shared with the kernel")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

const SOL_XDP: i32 = 283;
/// Bytes of a chunk of the UMEM.
pub const CHUNK: usize = 4096;
/// Descriptors of each ring.
pub const RING: u32 = 2048;
/// XDP_PKT_CONTD: the frame goes on in the next descriptor.
pub const CONTINUES: u32 = 1;
/// XDP_COPY and XDP_USE_SG.
const BIND_FLAGS: u16 = 1 << 1 | 1 << 4;
/// Packets that wait in the veth count against the send buffer; with the usual one, sending stalls.
const SEND_BUFFER: i32 = 8 << 20;

/// A piece of a frame.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Desc {
    /// Offset in the UMEM.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// [`CONTINUES`] or 0.
    pub options: u32,
}

#[repr(C)]
#[derive(Default)]
struct UmemReg {
    addr: u64,
    len: u64,
    chunk_size: u32,
    headroom: u32,
    flags: u32,
    tx_metadata_len: u32,
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
struct RingOffset {
    producer: u64,
    consumer: u64,
    desc: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct MmapOffsets {
    rx: RingOffset,
    tx: RingOffset,
    fill: RingOffset,
    completion: RingOffset,
}

#[repr(C)]
struct SockaddrXdp {
    family: u16,
    flags: u16,
    ifindex: u32,
    queue_id: u32,
    shared_umem_fd: u32,
}

/// One ring, with our side's view of both counters.
pub struct Ring<T> {
    map: Mapping,
    offset: RingOffset,
    produced: u32,
    consumed: u32,
    of: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn counter(&self, at: u64) -> &AtomicU32 {
        // SAFETY: the kernel gave the offset of a 32-bit counter inside the mapping, which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.map.start.add(at as usize).cast()) }
    }

    fn entry(&self, number: u32) -> *mut T {
        let at = self.offset.desc as usize + (number & (RING - 1)) as usize * size_of::<T>();
        self.map.start.wrapping_add(at).cast()
    }

    /// As producer: entries that can be put.
    pub fn room(&mut self) -> u32 {
        self.consumed = self.counter(self.offset.consumer).load(Ordering::Acquire);
        RING - self.produced.wrapping_sub(self.consumed)
    }

    /// As producer: puts an entry, for which there must be room.
    pub fn put(&mut self, value: T) {
        debug_assert!(self.room() > 0);
        // SAFETY: an entry of the mapped ring (the index is masked), and ours until it is published.
        unsafe { self.entry(self.produced).write(value) };
        self.produced = self.produced.wrapping_add(1);
    }

    /// As producer: lets the kernel have what was put.
    pub fn publish(&self) {
        self.counter(self.offset.producer).store(self.produced, Ordering::Release);
    }

    /// As producer: entries that the kernel has not taken.
    pub fn pending(&self) -> u32 {
        self.produced.wrapping_sub(self.counter(self.offset.consumer).load(Ordering::Acquire))
    }

    /// As consumer: entries there are.
    pub fn waiting(&mut self) -> u32 {
        if self.produced == self.consumed {
            self.produced = self.counter(self.offset.producer).load(Ordering::Acquire);
        }
        self.produced.wrapping_sub(self.consumed)
    }

    /// As consumer: takes an entry, of those [`waiting`](Ring::waiting) has counted.
    pub fn take(&mut self) -> T {
        debug_assert_ne!(self.produced, self.consumed);
        // SAFETY: an entry of the mapped ring, published by the kernel (`waiting` loaded its counter) and not given back.
        let value = unsafe { self.entry(self.consumed).read() };
        self.consumed = self.consumed.wrapping_add(1);
        value
    }

    /// As consumer: gives back what was taken.
    pub fn release(&self) {
        self.counter(self.offset.consumer).store(self.consumed, Ordering::Release);
    }
}

/// Memory that is unmapped when dropped.
struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: memory of the process, reached by whoever owns the mapping.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(len: usize, flags: i32, fd: i32, offset: i64) -> io::Result<Mapping> {
        // SAFETY: a fresh mapping wherever the kernel likes; nothing is replaced.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_POPULATE,
                fd,
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Mapping { start: start.cast(), len })
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and whole, and nobody has a reference into it any more.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// The socket, with twice as many chunks as a ring has places: the first half to receive into, the second to send from.
pub struct Xsk {
    /// Received pieces.
    pub rx: Ring<Desc>,
    /// Pieces to send.
    pub tx: Ring<Desc>,
    /// Chunks to receive into.
    pub fill: Ring<u64>,
    /// Chunks that have been sent.
    pub completion: Ring<u64>,
    fd: OwnedFd,
    umem: Mapping,
}

impl Xsk {
    /// On queue 0 of `netdev`, copy mode, frames in several pieces.
    ///
    /// # Errors
    /// What the kernel says, and to what.
    pub fn open(netdev: &str) -> io::Result<Xsk> {
        // SAFETY: three integers; the descriptor that comes back is ours alone.
        let fd = unsafe {
            let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(named("socket(AF_XDP)"));
            }
            OwnedFd::from_raw_fd(fd)
        };
        let umem = Mapping::new(2 * RING as usize * CHUNK, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
        let reg =
            UmemReg { addr: umem.start as u64, len: umem.len as u64, chunk_size: CHUNK as u32, ..UmemReg::default() };
        set(&fd, SOL_XDP, 4, &reg, "XDP_UMEM_REG")?;
        for (option, what) in
            [(5, "XDP_UMEM_FILL_RING"), (6, "XDP_UMEM_COMPLETION_RING"), (2, "XDP_RX_RING"), (3, "XDP_TX_RING")]
        {
            set(&fd, SOL_XDP, option, &RING, what)?;
        }
        let mut offsets = MmapOffsets::default();
        let mut len = size_of::<MmapOffsets>() as u32;
        // SAFETY: the call writes at most `len` bytes to `offsets`, which is made of integers.
        if unsafe { libc::getsockopt(fd.as_raw_fd(), SOL_XDP, 1, (&raw mut offsets).cast(), &raw mut len) } != 0 {
            return Err(named("XDP_MMAP_OFFSETS"));
        }
        let rx = ring(&fd, offsets.rx, 0)?;
        let tx = ring(&fd, offsets.tx, 0x8000_0000)?;
        let mut fill: Ring<u64> = ring(&fd, offsets.fill, 0x1_0000_0000)?;
        let completion = ring(&fd, offsets.completion, 0x1_8000_0000)?;
        set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER, "SO_SNDBUFFORCE")?;
        bind(&fd, netdev)?;
        for chunk in 0..RING {
            fill.put(u64::from(chunk) * CHUNK as u64);
        }
        fill.publish();
        Ok(Xsk { rx, tx, fill, completion, fd, umem })
    }

    /// The descriptor, for the map of the XDP program.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The offset of the first of `RING` chunks to send from.
    pub fn send_area() -> u64 {
        u64::from(RING) * CHUNK as u64
    }

    /// `len` bytes of the UMEM, of a frame that was received and not given back.
    pub fn bytes(&self, addr: u64, len: usize) -> &[u8] {
        assert!(addr as usize + len <= self.umem.len);
        // SAFETY: inside the UMEM; the kernel writes only into chunks of the fill ring, where this one is not.
        unsafe { std::slice::from_raw_parts(self.umem.start.add(addr as usize), len) }
    }

    /// `len` bytes of the UMEM, of a chunk to send from that is not out for sending.
    pub fn bytes_mut(&mut self, addr: u64, len: usize) -> &mut [u8] {
        assert!(addr as usize + len <= self.umem.len);
        // SAFETY: as in `bytes`; the borrow of `self` keeps the slices apart.
        unsafe { std::slice::from_raw_parts_mut(self.umem.start.add(addr as usize), len) }
    }

    /// Has the kernel send what is in the ring; over a veth, mostly receive too. False: it wants to be asked again.
    pub fn kick(&self) -> bool {
        // SAFETY: no bytes are given.
        unsafe { libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) >= 0 }
    }
}

fn named(what: &str) -> io::Error {
    let error = io::Error::last_os_error();
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn set<T>(fd: &OwnedFd, level: i32, option: i32, value: &T, what: &str) -> io::Result<()> {
    let len = size_of::<T>() as u32;
    // SAFETY: the call reads `len` bytes of `value`.
    let failed = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len) } != 0;
    if failed { Err(named(what)) } else { Ok(()) }
}

fn ring<T>(fd: &OwnedFd, offset: RingOffset, page_offset: i64) -> io::Result<Ring<T>> {
    let len = offset.desc as usize + RING as usize * size_of::<T>();
    let map = Mapping::new(len, libc::MAP_SHARED, fd.as_raw_fd(), page_offset)?;
    Ok(Ring { map, offset, produced: 0, consumed: 0, of: std::marker::PhantomData })
}

/// Binds to queue 0; the queue is busy for a moment after another socket on it was closed.
fn bind(fd: &OwnedFd, netdev: &str) -> io::Result<()> {
    let address = SockaddrXdp {
        family: libc::AF_XDP as u16,
        flags: BIND_FLAGS,
        ifindex: ifindex(netdev)?,
        queue_id: 0,
        shared_umem_fd: 0,
    };
    for _ in 0..100 {
        // SAFETY: the call reads an address of the size given.
        let rc = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<SockaddrXdp>() as u32) };
        if rc == 0 {
            return Ok(());
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EBUSY) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Err(named("bind(AF_XDP)"))
}

/// The index of a netdev of this thread's namespace.
///
/// # Errors
/// There is none of that name.
pub fn ifindex(netdev: &str) -> io::Result<u32> {
    let name = CString::new(netdev)?;
    // SAFETY: a string that ends with 0.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(named(netdev)),
        index => Ok(index),
    }
}
