//! The few system calls that these tests need and no crate of the workspace has.
//!
//! In: descriptors and plain values. Out: owned descriptors and `io::Error`. The only file here with `unsafe`.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

fn check(value: libc::c_int) -> io::Result<libc::c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the kernel has just handed us this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The calling thread is in this network namespace from now on.
///
/// # Errors
/// What `setns(2)` says.
pub fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: takes two integers; the descriptor is open.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Whether the process runs as root.
pub fn is_root() -> bool {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// A socket that puts frames on the wire as they are given (packet(7)).
#[derive(Debug)]
pub struct RawSocket {
    fd: OwnedFd,
}

/// Frames that one system call of [`RawSocket::send`] takes.
const SEND_BATCH: usize = 64;

impl RawSocket {
    /// On the interface `name` of the calling thread's network namespace.
    ///
    /// # Errors
    /// What `socket(2)` and `bind(2)` say.
    pub fn open(name: &str) -> io::Result<RawSocket> {
        let name = std::ffi::CString::new(name)?;
        // SAFETY: a NUL-terminated string that lives through the call.
        let ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if ifindex == 0 {
            return Err(io::Error::last_os_error());
        }
        // Protocol 0: it receives nothing.
        let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        // SAFETY: all-zero is a valid value of this C struct of integers.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as libc::c_ushort;
        address.sll_ifindex = ifindex as libc::c_int;
        let len = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` lives through the call and `len` is its size.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
        Ok(RawSocket { fd })
    }

    /// Sends all of `frames`; returns how many the kernel took.
    ///
    /// # Errors
    /// What `sendmmsg(2)` says, but for a queue that is full: then the rest is not sent.
    pub fn send(&self, frames: &[Vec<u8>]) -> io::Result<usize> {
        let mut sent = 0;
        for batch in frames.chunks(SEND_BATCH) {
            let mut pieces: Vec<libc::iovec> = batch
                .iter()
                .map(|frame| libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() })
                .collect();
            let mut messages: Vec<libc::mmsghdr> = pieces
                .iter_mut()
                .map(|piece| {
                    // SAFETY: all-zero is a valid value of this C struct of integers and pointers (null).
                    let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
                    (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (piece, 1);
                    message
                })
                .collect();
            // SAFETY: `messages` and what they point at live through the call, which only reads the frames.
            let taken = unsafe { libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), batch.len() as u32, 0) };
            match check(taken) {
                Ok(taken) => sent += taken as usize,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }
}

/// Asks `to` for an echo (ICMP, RFC 792) from the calling thread's network namespace; how long the answer took.
///
/// # Errors
/// What the kernel says; `TimedOut` when no answer came within `patience`.
pub fn ping(to: Ipv4Addr, patience: Duration) -> io::Result<Duration> {
    const ECHO_REQUEST: u8 = 8;
    let fd = socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)?;
    let id = std::process::id() as u16;
    let start = Instant::now();
    let token = (start.elapsed().as_nanos() as u16) ^ id.rotate_left(5);
    let mut request = [ECHO_REQUEST, 0, 0, 0, 0, 0, 0, 0];
    request[4..6].copy_from_slice(&id.to_be_bytes());
    request[6..8].copy_from_slice(&token.to_be_bytes());
    let sum: u32 = request.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    request[2..4].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    // SAFETY: all-zero is a valid value of this C struct of integers.
    let mut address: libc::sockaddr_in = unsafe { mem::zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_addr.s_addr = u32::from(to).to_be();
    let len = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: the buffer and the address live through the call and have the lengths given.
    let sent = unsafe {
        libc::sendto(fd.as_raw_fd(), request.as_ptr().cast(), request.len(), 0, (&raw const address).cast(), len)
    };
    check(sent as libc::c_int)?;
    loop {
        let left = patience.checked_sub(start.elapsed()).ok_or(io::ErrorKind::TimedOut)?;
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry that lives through the call.
        check(unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as libc::c_int + 1) })?;
        let mut answer = [0u8; 128];
        // SAFETY: the buffer lives through the call and has the length given.
        let got = unsafe { libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), libc::MSG_DONTWAIT) };
        // Behind an IP header of 20 bytes: type 0, our number, our token.
        if got >= 28 && answer[20] == 0 && answer[24..28] == request[4..8] {
            return Ok(start.elapsed());
        }
    }
}

/// A kind of object that the kernel's BPF keeps by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BpfKind {
    /// A program.
    Program,
    /// A map.
    Map,
    /// What holds a program to a netdev.
    Link,
}

impl BpfKind {
    /// Each kind, with the name of its number in `/proc/PID/fdinfo`.
    pub const ALL: [(BpfKind, &str); 3] =
        [(BpfKind::Program, "prog_id:"), (BpfKind::Map, "map_id:"), (BpfKind::Link, "link_id:")];

    /// `enum bpf_cmd` of linux/bpf.h: BPF_*_GET_FD_BY_ID.
    fn get_by_id(self) -> libc::c_long {
        match self {
            BpfKind::Program => 13,
            BpfKind::Map => 14,
            BpfKind::Link => 30,
        }
    }
}

/// Whether the kernel still has the BPF object with this number.
///
/// # Errors
/// What `bpf(2)` says but ENOENT.
pub fn bpf_exists(kind: BpfKind, id: u32) -> io::Result<bool> {
    // union bpf_attr begins with the number; the rest is zero.
    let attributes = [id, 0, 0, 0];
    let size = mem::size_of_val(&attributes);
    // SAFETY: `attributes` lives through the call and `size` is its size.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, kind.get_by_id(), attributes.as_ptr(), size) };
    match check(fd as libc::c_int) {
        Ok(fd) => {
            // SAFETY: the kernel has just handed us this descriptor and nobody else owns it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Ok(true)
        }
        // EAGAIN: a link whose last holder is gone and which is being torn down.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EAGAIN)) => Ok(false),
        Err(error) => Err(error),
    }
}
