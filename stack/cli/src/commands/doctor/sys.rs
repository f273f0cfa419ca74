//! The kernel asked directly: may this process open an AF_XDP socket, make an XSKMAP, load an XDP program; what does
//! a netdev's driver say of itself. Nothing is attached or left behind: each descriptor is closed before the answer.
//!
//! The only file of this crate with `unsafe`: these calls have no safe wrapper among our dependencies.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// `BPF_F_XDP_HAS_FRAGS` of linux/bpf.h: the program takes frames in several buffers.
const XDP_HAS_FRAGS: u32 = 1 << 5;
/// Commands and types of linux/bpf.h.
const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
/// `r0 = XDP_PASS; exit`, each instruction in the byte order of this machine (linux/bpf.h `struct bpf_insn`).
const PASS: [Instruction; 2] = [
    Instruction { code: 0xB7, registers: 0, offset: 0, immediate: 2 },
    Instruction { code: 0x95, registers: 0, offset: 0, immediate: 0 },
];

/// Commands of linux/ethtool.h.
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GFLAGS: u32 = 0x25;

#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// The part of `union bpf_attr` that BPF_MAP_CREATE reads here.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

/// The part of `union bpf_attr` that BPF_PROG_LOAD reads here.
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    cmd: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    cmd: u32,
    data: u32,
}

/// Opens and closes an AF_XDP socket.
pub fn af_xdp_socket() -> io::Result<()> {
    socket(libc::AF_XDP, libc::SOCK_RAW).map(drop)
}

/// Makes and drops an XSKMAP of one entry.
pub fn xskmap() -> io::Result<()> {
    let attr = MapCreate { map_type: BPF_MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, max_entries: 1 };
    bpf(BPF_MAP_CREATE, &attr).map(drop)
}

/// Loads and drops the smallest XDP program, marked as one for frames in several buffers.
pub fn xdp_program() -> io::Result<()> {
    let license = c"Dual MIT/GPL";
    let attr = ProgLoad {
        prog_type: BPF_PROG_TYPE_XDP,
        insn_cnt: PASS.len() as u32,
        insns: PASS.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: XDP_HAS_FRAGS,
        prog_name: *b"xroce_doctor\0\0\0\0",
    };
    bpf(BPF_PROG_LOAD, &attr).map(drop)
}

/// The driver's name as `ethtool -i` prints it.
pub fn driver(netdev: &str) -> io::Result<String> {
    let mut info = DriverInfo { cmd: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    ethtool(netdev, &mut info)?;
    let name = CStr::from_bytes_until_nul(&info.driver).map_err(io::Error::other)?;
    Ok(name.to_string_lossy().into_owned())
}

/// Offloads that are on (`ethtool -k`), as bits of linux/ethtool.h `enum ethtool_flags`.
pub fn offloads(netdev: &str) -> io::Result<Offloads> {
    let mut value = EthtoolValue { cmd: ETHTOOL_GFLAGS, data: 0 };
    ethtool(netdev, &mut value)?;
    let on = |bit: u32| value.data & (1 << bit) != 0;
    Ok(Offloads { rxvlan: on(8), lro: on(15), ntuple: on(27) })
}

/// What [`offloads`] tells.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offloads {
    /// The netdev takes VLAN tags off received frames.
    pub rxvlan: bool,
    /// The netdev joins received packets.
    pub lro: bool,
    /// Flow steering rules are possible.
    pub ntuple: bool,
}

fn socket(family: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: socket(2) takes no pointer.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) };
    own(fd)
}

fn bpf<T>(command: libc::c_long, attr: &T) -> io::Result<OwnedFd> {
    let size = size_of::<T>() as libc::c_long;
    // SAFETY: `attr` is a `repr(C)` value without padding whose size is passed along; the kernel reads no further and
    // takes fields beyond it as zero. Addresses inside it are of values that outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size) };
    own(fd as RawFd)
}

fn own(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just returned to us by the kernel and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One SIOCETHTOOL request; `data` begins with its command and is as large as the command says.
fn ethtool<T>(netdev: &str, data: &mut T) -> io::Result<()> {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM)?;
    // SAFETY: `ifreq` is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if netdev.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(netdev.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(data).cast();
    // SAFETY: `request` outlives the call and points to `data`, which has the layout and size that its command names
    // (linux/ethtool.h), so the kernel writes only inside of it.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_kernels() {
        assert_eq!(size_of::<Instruction>(), 8);
        assert_eq!(size_of::<ProgLoad>(), 64);
        assert_eq!(size_of::<DriverInfo>(), 196);
        assert_eq!(size_of::<EthtoolValue>(), 8);
    }

    #[test]
    fn a_netdev_that_is_not_there_is_an_error() {
        assert!(driver("nosuchdev0").is_err());
        assert!(offloads("a-name-longer-than-the-kernel-takes").is_err());
    }
}
