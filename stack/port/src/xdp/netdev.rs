//! Facts about the netdev. What enters: its name. What leaves: index, MTU, hardware address, queue counts and driver,
//! from ioctl(2) calls in the network namespace of the thread that opened the port.

#![allow(unsafe_code)]

use super::error::OpenError;
use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 0x0000_0003;
const ETHTOOL_GFLAGS: u32 = 0x0000_0025;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
const ETH_FLAG_LRO: u32 = 1 << 15;
const ETHTOOL_GCHANNELS: u32 = 0x0000_003c;

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
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

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct EthtoolDrvinfo {
    cmd: u32,
    driver: [u8; 32],
    others: [u8; 32 * 4 + 12],
    counts: [u32; 5],
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    cmd: u32,
    data: u32,
}

/// What is known of a netdev.
#[derive(Debug)]
pub(super) struct Netdev {
    pub(super) name: String,
    pub(super) ifindex: u32,
    pub(super) mtu: u32,
    pub(super) mac: [u8; 6],
    pub(super) rx_queues: u32,
    pub(super) tx_queues: u32,
    pub(super) driver: String,
    pub(super) hides_vlan_tags: bool,
    mtu_now: u32,
    control: OwnedFd,
}

impl Netdev {
    pub(super) fn query(name: &str) -> Result<Netdev, OpenError> {
        Self::query_io(name).map_err(|e| OpenError::Interface {
            ifname: name.to_owned(),
            detail: match e.raw_os_error() {
                Some(libc::ENODEV | libc::ENXIO) => "there is no such interface in this network namespace".to_owned(),
                _ => e.to_string(),
            },
        })
    }

    fn query_io(name: &str) -> io::Result<Netdev> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a name has 1 to 15 bytes"));
        }
        let c_name = CString::new(name)?;
        // SAFETY: `c_name` is a NUL-terminated string that lives through the call.
        let ifindex = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        if ifindex == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just handed us this descriptor and nobody else owns it.
        let control = unsafe { OwnedFd::from_raw_fd(fd) };

        let mtu = mtu(&control, request_for(name))?;
        let mut request = request_for(name);
        ioctl(&control, libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: the kernel filled the `hwaddr` member; every bit pattern is valid bytes.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        let mac = std::array::from_fn(|i| address.sa_data[i] as u8);
        let (rx_queues, tx_queues) = channels(&control, name).unwrap_or((1, 1));
        let driver = driver(&control, name).unwrap_or_default();
        let flags = offload_flags(&control, name).unwrap_or(0);
        if flags & ETH_FLAG_LRO != 0 {
            tracing::warn!(ifname = name, "LRO is on: it merges packets before XDP (`ethtool -K {name} lro off`)");
        }
        let hides_vlan_tags = flags & ETH_FLAG_RXVLAN != 0;
        let name = name.to_owned();
        Ok(Netdev { name, ifindex, mtu, mac, rx_queues, tx_queues, driver, hides_vlan_tags, mtu_now: mtu, control })
    }

    /// A request block that carries the name the netdev has now: the one it had may be another's. `None` when it is gone.
    fn request_now(&self) -> Option<libc::ifreq> {
        let mut request = request_for("");
        request.ifr_ifru.ifru_ifindex = libc::c_int::try_from(self.ifindex).ok()?;
        ioctl(&self.control, libc::SIOCGIFNAME, &mut request).ok()?;
        Some(request)
    }

    /// Whether the netdev is administratively up now; `None` when it cannot be told (removed).
    pub(super) fn is_up(&self) -> Option<bool> {
        let mut request = self.request_now()?;
        ioctl(&self.control, libc::SIOCGIFFLAGS, &mut request).ok()?;
        // SAFETY: the kernel filled the `flags` member; every bit pattern is a valid integer.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Some(i32::from(flags) & libc::IFF_UP != 0)
    }

    /// The MTU before and now, when it is another one than at the last look.
    pub(super) fn mtu_change(&mut self) -> Option<(u32, u32)> {
        let now = mtu(&self.control, self.request_now()?).ok()?;
        let before = std::mem::replace(&mut self.mtu_now, now);
        (before != now).then_some((before, now))
    }

    /// Both ends of the pair hand frames over through a short ring that drops silently.
    pub(super) fn is_veth(&self) -> bool {
        self.driver == "veth"
    }
}

/// A request block that carries the interface's name. The caller has checked the name's length.
fn request_for(name: &str) -> libc::ifreq {
    // SAFETY: all-zero is a valid value of this C struct of bytes, integers and pointers (null).
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn ioctl(control: &OwnedFd, code: u64, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `request` lives through the call and is what these codes read and write.
    match unsafe { libc::ioctl(control.as_raw_fd(), code as _, &raw mut *request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn ethtool<T>(control: &OwnedFd, name: &str, command: &mut T) -> io::Result<()> {
    const SIOCETHTOOL: u64 = 0x8946; // linux/sockios.h
    let mut request = request_for(name);
    request.ifr_ifru.ifru_data = (&raw mut *command).cast();
    ioctl(control, SIOCETHTOOL, &mut request)
}

fn mtu(control: &OwnedFd, mut request: libc::ifreq) -> io::Result<u32> {
    ioctl(control, libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the kernel filled the `mtu` member; every bit pattern is a valid integer.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}

fn offload_flags(control: &OwnedFd, name: &str) -> io::Result<u32> {
    let mut answer = EthtoolValue { cmd: ETHTOOL_GFLAGS, data: 0 };
    ethtool(control, name, &mut answer)?;
    Ok(answer.data)
}

/// Receive and transmit queues in use. A driver that does not tell has the number that sysfs shows, or one.
fn channels(control: &OwnedFd, name: &str) -> Option<(u32, u32)> {
    let mut answer = EthtoolChannels { cmd: ETHTOOL_GCHANNELS, ..Default::default() };
    match ethtool(control, name, &mut answer) {
        Ok(()) => {
            Some(((answer.rx_count + answer.combined_count).max(1), (answer.tx_count + answer.combined_count).max(1)))
        }
        Err(_) => sysfs_queues(name),
    }
}

/// The queue folders of `/sys/class/net`. They are of the namespace sysfs was mounted in, so this is a second choice.
fn sysfs_queues(name: &str) -> Option<(u32, u32)> {
    let (mut rx, mut tx) = (0, 0);
    for entry in std::fs::read_dir(format!("/sys/class/net/{name}/queues")).ok()?.flatten() {
        let file = entry.file_name();
        rx += u32::from(file.to_string_lossy().starts_with("rx-"));
        tx += u32::from(file.to_string_lossy().starts_with("tx-"));
    }
    (rx > 0 && tx > 0).then_some((rx, tx))
}

fn driver(control: &OwnedFd, name: &str) -> Option<String> {
    let mut answer =
        EthtoolDrvinfo { cmd: ETHTOOL_GDRVINFO, driver: [0; 32], others: [0; 32 * 4 + 12], counts: [0; 5] };
    ethtool(control, name, &mut answer).ok()?;
    let end = answer.driver.iter().position(|&b| b == 0).unwrap_or(answer.driver.len());
    Some(String::from_utf8_lossy(&answer.driver[..end]).into_owned())
}
