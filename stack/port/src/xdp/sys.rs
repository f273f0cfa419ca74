//! Socket calls that xsk-rs has no door for. What enters: an AF_XDP socket's descriptor. What leaves: the kick's
//! errno, the mode the kernel chose, a pending socket error.

#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::ptr;

// linux/if_xdp.h
const XDP_OPTIONS: libc::c_int = 8;
const XDP_OPTIONS_ZEROCOPY: u32 = 1;

/// Has the kernel send what is in the TX ring (af_xdp.rst, "XDP_USE_NEED_WAKEUP").
pub(super) fn kick(fd: RawFd) -> io::Result<()> {
    // SAFETY: an empty message; no pointer is read.
    let sent = unsafe { libc::sendto(fd, ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn read_option<T: Copy>(fd: RawFd, level: libc::c_int, option: libc::c_int, mut value: T) -> io::Result<T> {
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` and `len` live through the call and `len` is the size of `value`.
    let status = unsafe { libc::getsockopt(fd, level, option, (&raw mut value).cast(), &raw mut len) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

fn write_option(fd: RawFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` lives through the call and `len` is its size.
    let status = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), len) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the kernel bound the socket in zero-copy mode.
pub(super) fn is_zero_copy(fd: RawFd) -> bool {
    read_option(fd, libc::SOL_XDP, XDP_OPTIONS, 0u32).is_ok_and(|flags| flags & XDP_OPTIONS_ZEROCOPY != 0)
}

/// The socket's pending error, which this call clears; 0 for none.
pub(super) fn take_socket_error(fd: RawFd) -> libc::c_int {
    read_option(fd, libc::SOL_SOCKET, libc::SO_ERROR, 0 as libc::c_int).unwrap_or(0)
}

/// Raises the send buffer to `bytes`, past the system's limit where the process may (CAP_NET_ADMIN). In copy mode the
/// frames that wait in the peer's ring count against it.
pub(super) fn raise_send_buffer(fd: RawFd, bytes: libc::c_int) -> io::Result<()> {
    write_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
        .or_else(|_| write_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))
}
