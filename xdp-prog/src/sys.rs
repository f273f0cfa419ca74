//! The few BPF system calls that libbpf-rs has no safe door for. What enters: owned descriptors and plain values. What
//! leaves: owned descriptors, plain values, and `std::io::Error` with the kernel's errno.

#![allow(unsafe_code)]

use libbpf_rs::libbpf_sys;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Attaches an XDP program to an interface of the calling thread's network namespace by a BPF link (kernel
/// `net/core/dev.c`, `bpf_xdp_link_attach`). `flags` are `XDP_FLAGS_*_MODE`.
pub(crate) fn link_create_xdp(program: BorrowedFd<'_>, ifindex: i32, flags: u32) -> io::Result<OwnedFd> {
    // SAFETY: all-zero is a valid value of this C struct of integers, pointers (null) and a union of the same.
    let mut opts: libbpf_sys::bpf_link_create_opts = unsafe { mem::zeroed() };
    opts.sz = mem::size_of_val(&opts) as libbpf_sys::size_t;
    opts.flags = flags;
    // SAFETY: `opts` lives through the call and its `sz` is its own size.
    let fd = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex, libbpf_sys::BPF_XDP, &raw const opts) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just handed us this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The interface a link is attached to; 0 once the link was detached or the interface removed.
pub(crate) fn link_ifindex(link: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: all-zero is a valid value of this C struct of integers, pointers (null) and a union of the same.
    let mut info: libbpf_sys::bpf_link_info = unsafe { mem::zeroed() };
    let mut len = mem::size_of_val(&info) as u32;
    // SAFETY: `info` and `len` live through the call and `len` is the size of `info`.
    let status = unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut len) };
    if status < 0 {
        return Err(io::Error::from_raw_os_error(-status));
    }
    // SAFETY: the descriptor is an XDP link, so the kernel filled the `xdp` member; every bit pattern is a valid u32.
    Ok(unsafe { info.__bindgen_anon_1.xdp.ifindex })
}

/// The id of an XDP program on an interface in the mode that `flags` names; 0 when there is none.
pub(crate) fn query_program_id(ifindex: i32, flags: u32) -> io::Result<u32> {
    let mut id = 0u32;
    // SAFETY: `id` lives through the call.
    let status = unsafe { libbpf_sys::bpf_xdp_query_id(ifindex, flags as i32, &raw mut id) };
    if status < 0 {
        return Err(io::Error::from_raw_os_error(-status));
    }
    Ok(id)
}

/// Runs a program once over `frame` (BPF_PROG_TEST_RUN) and returns its action; `out` receives the frame as the
/// program left it and its length is returned.
pub(crate) fn test_run(program: BorrowedFd<'_>, frame: &[u8], out: &mut [u8]) -> io::Result<(u32, usize)> {
    let mut opts = libbpf_sys::bpf_test_run_opts::default();
    opts.sz = mem::size_of_val(&opts) as libbpf_sys::size_t;
    opts.data_in = frame.as_ptr().cast();
    opts.data_size_in = frame.len() as u32;
    opts.data_out = out.as_mut_ptr().cast();
    opts.data_size_out = out.len() as u32;
    opts.repeat = 1;
    // SAFETY: the pointers are to live slices of the lengths given, and the kernel writes only to `data_out`.
    let status = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut opts) };
    if status < 0 {
        return Err(io::Error::from_raw_os_error(-status));
    }
    Ok((opts.retval, opts.data_size_out as usize))
}

/// The soft limit of RLIMIT_MEMLOCK in bytes, `None` for unlimited.
pub(crate) fn memlock_soft_limit() -> io::Result<Option<u64>> {
    // SAFETY: all-zero is a valid value of this C struct of two integers.
    let mut limit: libc::rlimit = unsafe { mem::zeroed() };
    // SAFETY: `limit` lives through the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur))
}
