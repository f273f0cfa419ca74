//! The system calls of the netdev room that std and the netlink crates do not offer. In: a socket, an interface name or
//! index. Out: plain values.
//!
//! This is the only file of the room with `unsafe`: `socket`, `setsockopt(SO_BINDTOIFINDEX)` and `ioctl(SIOCETHTOOL)`.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `ETHTOOL_GDRVINFO` of `include/uapi/linux/ethtool.h`.
const ETHTOOL_GDRVINFO: u32 = 0x0000_0003;
/// `ETHTOOL_GFLAGS`: the offload flags that had a bit of their own before feature strings existed.
const ETHTOOL_GFLAGS: u32 = 0x0000_0025;
/// `ETHTOOL_GCHANNELS`: numbers of queues.
const ETHTOOL_GCHANNELS: u32 = 0x0000_003c;

/// `ETH_FLAG_RXVLAN`: the NIC takes the VLAN tag out of received frames.
pub(super) const ETH_FLAG_RXVLAN: u32 = 1 << 8;
/// `ETH_FLAG_LRO`: the NIC or driver merges received packets.
pub(super) const ETH_FLAG_LRO: u32 = 1 << 15;

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    cmd: u32,
    driver: [u8; 32],
    version: [u8; 32],
    fw_version: [u8; 32],
    bus_info: [u8; 32],
    erom_version: [u8; 32],
    reserved2: [u8; 12],
    n_priv_flags: u32,
    n_stats: u32,
    testinfo_len: u32,
    eedump_len: u32,
    regdump_len: u32,
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    cmd: u32,
    data: u32,
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}

/// Opens an unbound datagram socket of the calling thread's network namespace: the handle for interface ioctls, and the
/// means to make the kernel look for a neighbour.
pub(super) fn datagram_socket(v6: bool) -> io::Result<OwnedFd> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: `socket` takes three integers and touches no memory of ours.
    let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just returned by `socket`, is open, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a socket send through one interface only, whatever the routes say (`SO_BINDTOIFINDEX`, Linux 5.1; needs no
/// privilege on a socket that is not bound yet).
pub(super) fn bind_to_ifindex(socket: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    // Not in every version of the libc crate; the value is that of asm-generic/socket.h.
    const SO_BINDTOIFINDEX: libc::c_int = 62;
    let index = ifindex as libc::c_int;
    // SAFETY: the pointer and length describe `index`, which lives until the call returns; the kernel only reads it.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_BINDTOIFINDEX,
            (&raw const index).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Name of the interface's driver ("veth", "mlx5_core", "virtio_net").
///
/// # Errors
/// `EOPNOTSUPP` where the driver does not say, `ENODEV` when the interface is gone.
pub(super) fn driver_name(socket: BorrowedFd<'_>, ifname: &str) -> io::Result<String> {
    // SAFETY: all-zero bytes are a valid `DriverInfo`: it consists of integers and byte arrays.
    let mut info: DriverInfo = unsafe { std::mem::zeroed() };
    info.cmd = ETHTOOL_GDRVINFO;
    ethtool(socket, ifname, &mut info)?;
    let len = info.driver.iter().position(|&b| b == 0).unwrap_or(info.driver.len());
    Ok(String::from_utf8_lossy(&info.driver[..len]).into_owned())
}

/// The `ETH_FLAG_*` bits that are on.
///
/// # Errors
/// As [`driver_name`].
pub(super) fn offload_flags(socket: BorrowedFd<'_>, ifname: &str) -> io::Result<u32> {
    let mut value = Value { cmd: ETHTOOL_GFLAGS, data: 0 };
    ethtool(socket, ifname, &mut value)?;
    Ok(value.data)
}

/// Number of receive queues in use: the RX-only channels and the combined ones.
///
/// # Errors
/// As [`driver_name`]; many virtual interfaces have no channels.
pub(super) fn rx_channels(socket: BorrowedFd<'_>, ifname: &str) -> io::Result<u32> {
    let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
    ethtool(socket, ifname, &mut channels)?;
    Ok(channels.rx_count.saturating_add(channels.combined_count))
}

/// One ethtool command. `T` is the command's `repr(C)` structure of `linux/ethtool.h`, with `cmd` filled in; the three
/// callers above are the only ones, each with the structure that belongs to its command.
fn ethtool<T>(socket: BorrowedFd<'_>, ifname: &str, command: &mut T) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `ifreq`: integers, byte arrays and a null pointer.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if ifname.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(ifname.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut *command).cast();
    // SAFETY: `request` is a valid `ifreq` with a NUL-terminated name, and its data pointer is a live, writable `T` of
    // the size the kernel reads and writes for its `cmd`. Both outlive the call, which keeps neither pointer.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
