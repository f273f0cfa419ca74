//! What the AF_XDP tests share: network namespaces that nobody has to clean up, frames made by hand, a time limit.
//!
//! A namespace here has no name: it is held by a descriptor and gone, with its veths, when the test ends in whatever
//! way. Each test runs in a thread of its own, since namespaces are a thread's.

#![allow(dead_code, unsafe_code, clippy::undocumented_unsafe_blocks, missing_docs)]

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use xroce_port::xdp::{XdpConfig, XdpPort};
use xroce_port::{Port, TxClass};

/// One test at a time: they measure, and the machine may be small.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a test body in its own thread with a limit on its time, or prints why it cannot run here.
pub fn run(name: &str, limit: Duration, body: impl FnOnce() + Send + 'static) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(why) = cannot_run() {
        return skip(name, &why);
    }
    let (done, wait) = channel::<()>();
    let worker = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _done_when_dropped = done;
        body();
    });
    let worker = worker.expect("a thread for the test");
    match wait.recv_timeout(limit) {
        Err(RecvTimeoutError::Timeout) => panic!("{name} ran longer than {limit:?}"),
        _ => {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Says that a test does not run, past the harness's capture, which shows nothing of a test that passes.
pub fn skip(name: &str, why: &str) {
    writeln!(std::io::stdout().lock(), "SKIP {name}: {why}").expect("stdout");
}

/// Why AF_XDP tests cannot run here.
fn cannot_run() -> Option<String> {
    if unsafe { libc::geteuid() } != 0 {
        return Some("not root".to_owned());
    }
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Some(format!("no AF_XDP sockets: {}", std::io::Error::last_os_error()));
    }
    unsafe { libc::close(fd) };
    if Command::new("ip").arg("-V").output().is_err() {
        return Some("no `ip` command (iproute2)".to_owned());
    }
    thread::spawn(|| {
        (unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0)
            .then(|| format!("no network namespaces: {}", std::io::Error::last_os_error()))
    })
    .join()
    .expect("the probe does not panic")
}

/// A network namespace, gone when this is dropped.
pub struct Namespace(File);

impl Namespace {
    fn new() -> Namespace {
        let file = thread::spawn(|| {
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", std::io::Error::last_os_error());
            File::open("/proc/thread-self/ns/net").expect("the namespace just made")
        });
        Namespace(file.join().expect("a namespace"))
    }

    /// This thread, and the processes it starts, are in the namespace from now on.
    pub fn enter(&self) {
        let status = unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// Two namespaces and a veth pair between them: `va` with 10.9.9.1 and fd99::1 in `a`, `vb` with .2 and ::2 in `b`.
pub struct Net {
    pub a: Namespace,
    pub b: Namespace,
}

pub const IP_A: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 1);
pub const IP_B: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 2);
pub const MAC_A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
pub const MAC_B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];

impl Net {
    pub fn new(mtu: u32) -> Net {
        Net::with_queues(mtu, 1)
    }

    pub fn with_queues(mtu: u32, queues: u32) -> Net {
        let net = Net { a: Namespace::new(), b: Namespace::new() };
        net.a.enter();
        let q = format!("numrxqueues {queues} numtxqueues {queues}");
        ip(&format!(
            "link add va mtu {mtu} address 02:00:00:00:00:0a {q} type veth \
             peer name vb mtu {mtu} address 02:00:00:00:00:0b {q} netns {}",
            net.b.path()
        ));
        ip("link set lo up");
        // No traffic but ours: the counts of the tests are exact.
        no_ipv6("va");
        ip("addr add 10.9.9.1/24 dev va");
        ip("neigh add 10.9.9.2 lladdr 02:00:00:00:00:0b dev va");
        ip("link set va up");
        net.b.enter();
        no_ipv6("vb");
        ip("link set lo up");
        ip("addr add 10.9.9.2/24 dev vb");
        ip("neigh add 10.9.9.1 lladdr 02:00:00:00:00:0a dev vb");
        ip("link set vb up");
        net
    }

    /// A port on `va`, for frames to 10.9.9.1.
    pub fn port_a(&self, change: impl FnOnce(&mut XdpConfig)) -> XdpPort {
        self.a.enter();
        open("va", IP_A, change)
    }

    /// A port on `vb`, for frames to 10.9.9.2.
    pub fn port_b(&self, change: impl FnOnce(&mut XdpConfig)) -> XdpPort {
        self.b.enter();
        open("vb", IP_B, change)
    }
}

fn no_ipv6(ifname: &str) {
    // A kernel without IPv6 has no such file and no such traffic.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{ifname}/disable_ipv6"), "1");
}

fn open(ifname: &str, address: Ipv4Addr, change: impl FnOnce(&mut XdpConfig)) -> XdpPort {
    let mut config = config(ifname, address);
    change(&mut config);
    XdpPort::open(&config).unwrap_or_else(|e| panic!("{e}"))
}

/// A configuration with one address.
pub fn config(ifname: &str, address: Ipv4Addr) -> XdpConfig {
    let mut config = XdpConfig::new(ifname);
    config.addresses = vec![IpAddr::V4(address)];
    config
}

/// Runs `ip` in this thread's namespace.
pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("the ip command");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What `ip` prints in this thread's namespace.
pub fn ip_text(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("the ip command");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub const HEADERS: usize = 14 + 20 + 8;

/// An Ethernet + IPv4 + UDP/4791 frame of `len` bytes in all; the rest is a pattern that `number` decides.
pub fn frame(to_b: bool, number: u32, len: usize) -> Vec<u8> {
    frame_to(if to_b { IP_B } else { IP_A }, to_b, 4791, number, len)
}

pub fn frame_to(to: Ipv4Addr, to_b: bool, port: u16, number: u32, len: usize) -> Vec<u8> {
    assert!(len >= HEADERS + 4);
    let (dst, src, from) = if to_b { (MAC_B, MAC_A, IP_A) } else { (MAC_A, MAC_B, IP_B) };
    let mut f = Vec::with_capacity(len);
    f.extend(dst);
    f.extend(src);
    f.extend([8, 0]);
    let ip_len = (len - 14) as u16;
    f.extend([0x45, 0]);
    f.extend(ip_len.to_be_bytes());
    f.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    f.extend(from.octets());
    f.extend(to.octets());
    let sum = f[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    f.extend(0xc000u16.to_be_bytes());
    f.extend(port.to_be_bytes());
    f.extend((ip_len - 20).to_be_bytes());
    f.extend([0, 0]);
    f.extend(number.to_be_bytes());
    let mut x = number.wrapping_mul(2_654_435_761) | 1;
    while f.len() < len {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f.push((x >> 24) as u8);
    }
    f
}

/// Writes a frame into the port; false when it has no room now.
pub fn try_send(port: &mut XdpPort, bytes: &[u8], class: TxClass) -> bool {
    let Some(frame) = port.tx_reserve(bytes.len(), class) else { return false };
    assert_eq!(frame.len(), bytes.len());
    let (head, tail) = bytes.split_at(frame.head.len());
    frame.head.copy_from_slice(head);
    frame.tail.copy_from_slice(tail);
    port.tx_commit(bytes.len());
    true
}

/// Writes a frame into the port, flushing until there is room.
pub fn send(port: &mut XdpPort, bytes: &[u8]) {
    let limit = Instant::now() + Duration::from_secs(5);
    while !try_send(port, bytes, TxClass::Request) {
        port.tx_flush();
        assert!(Instant::now() < limit, "no room for a frame within 5 s");
    }
}

/// Copies of all frames that are there now.
pub fn take(port: &mut XdpPort) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let got = port.rx_burst(64);
        for i in 0..got {
            let frame = port.rx_frame(i);
            assert!(!frame.is_empty());
            out.push([frame.head, frame.tail].concat());
        }
        port.rx_release();
        if got == 0 {
            return out;
        }
    }
}

/// Receives until `count` frames came or `limit` passed.
pub fn take_within(port: &mut XdpPort, count: usize, limit: Duration) -> Vec<Vec<u8>> {
    let end = Instant::now() + limit;
    let mut out = Vec::new();
    while out.len() < count && Instant::now() < end {
        out.extend(take(port));
    }
    out
}

/// The frames are these, in this order. Says which one differs, not all its bytes.
#[track_caller]
pub fn assert_frames(got: &[Vec<u8>], expected: &[Vec<u8>]) {
    let lengths = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lengths(got), lengths(expected), "lengths of the frames");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let differs = got.iter().zip(expected).position(|(g, e)| g != e);
        assert_eq!(differs, None, "frame {i} of {} bytes differs from this byte on", got.len());
    }
}

/// The sum of chunks holds on a port.
pub fn assert_account(port: &mut XdpPort) {
    let account = port.frame_account();
    assert!(account.adds_up(), "{account:?}");
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
