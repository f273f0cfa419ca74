//! Network namespaces for tests: made by `ip`, with a name unique to the process, removed when dropped.

#![allow(dead_code)] // every test program uses another part of it

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use xroce_engine::netdev::{Change, Monitor, Netdev};
use xroce_wire::Gid;

/// A namespace of its own, with the loopback interface up and duplicate address detection off.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// None, after a line that says why, where namespaces cannot be made.
    pub fn new(test: &str) -> Option<Namespace> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("netlink-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        match Command::new("ip").args(["netns", "add", &name]).output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => return skip(test, text(&output).trim()),
            Err(error) => return skip(test, &format!("cannot run ip: {error}")),
        }
        let namespace = Namespace { name };
        namespace.ip("link set lo up");
        namespace.sysctl("net/ipv6/conf/default/accept_dad", "0");
        Some(namespace)
    }

    /// Runs `ip -n <this namespace>` with space-separated arguments.
    #[track_caller]
    pub fn ip(&self, arguments: &str) {
        let output = self.try_ip(arguments);
        assert!(output.status.success(), "ip -n {} {arguments}: {}", self.name, text(&output));
    }

    pub fn try_ip(&self, arguments: &str) -> Output {
        let all = ["-n", &self.name].into_iter().chain(arguments.split_whitespace());
        Command::new("ip").args(all).output().expect("ip can be run: it made this namespace")
    }

    /// Runs many `ip` commands, one a line, at once.
    #[track_caller]
    pub fn ip_batch(&self, commands: &str) {
        use std::io::Write;
        let mut command = Command::new("ip");
        command.args(["-n", &self.name, "-batch", "-"]).stdin(std::process::Stdio::piped());
        let mut child = command.spawn().expect("ip can be run: it made this namespace");
        child.stdin.take().expect("it is piped").write_all(commands.as_bytes()).expect("ip reads its commands");
        let status = child.wait().expect("ip ends");
        assert!(status.success(), "ip -batch: {status}");
    }

    /// Runs `f` on a thread inside the namespace.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("the namespace exists");
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                // SAFETY: `setns` takes two integers; the descriptor is open, and only this thread is moved.
                let rc = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(rc, 0, "setns: {}", std::io::Error::last_os_error());
                f()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Opens an interface of the namespace. The calling thread stays where it is.
    #[track_caller]
    pub fn open(&self, interface: &str) -> Netdev {
        self.run(|| Netdev::open(interface)).expect("the interface exists")
    }

    pub fn sysctl(&self, key: &str, value: &str) {
        self.run(|| std::fs::write(format!("/proc/sys/{key}"), value)).unwrap_or_else(|e| panic!("{key}: {e}"));
    }

    /// Makes a veth pair between two namespaces, both ends up.
    pub fn veth(&self, here: &str, other: &Namespace, there: &str) {
        self.ip(&format!("link add {here} type veth peer name {there} netns {}", other.name));
        self.ip(&format!("link set {here} up"));
        other.ip(&format!("link set {there} up"));
    }

    /// Sends a datagram from inside, so that the kernel there talks to `to`.
    pub fn send_datagram(&self, to: IpAddr) {
        self.run(|| {
            let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
            let socket = std::net::UdpSocket::bind((any, 0)).expect("a port is free");
            socket.send_to(b"x", (to, 9)).expect("there is a route");
        });
    }
}

/// Takes every effective capability from the calling thread.
pub fn drop_capabilities() {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    let none = [0u32; 6];
    // SAFETY: the two structures are those of `capset(2)` version 3 (a header, twice three words), live and only read.
    let rc = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    assert_eq!(rc, 0, "capset: {}", std::io::Error::last_os_error());
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Also on panic. Interfaces inside go with it.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// Prints the one line that tells that a test did not run.
pub fn skip<T>(test: &str, why: &str) -> Option<T> {
    println!("SKIP {test}: {why}");
    None
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub fn gid(text: &str) -> Gid {
    Gid::from_ip(text.parse().expect("an IP address"))
}

/// Polls until `wanted` is among the changes; answers all that came on the way.
#[track_caller]
pub fn poll_until(monitor: &mut Monitor, wanted: impl Fn(&Change) -> bool) -> Vec<Change> {
    let start = Instant::now();
    let mut all = Vec::new();
    while start.elapsed() < Duration::from_secs(10) {
        all.extend(monitor.poll().expect("the kernel answers"));
        if all.iter().any(&wanted) {
            return all;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the change did not come within 10 s; there were: {all:?}");
}

/// Tries until `done`, for 20 seconds.
#[track_caller]
pub fn eventually(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "it did not come about within 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The interface's link-local GID, once it has one.
#[track_caller]
pub fn link_local(monitor: &mut Monitor) -> Gid {
    let listed = |monitor: &Monitor| monitor.gids().iter().find(|e| e.gid.is_link_local()).map(|e| e.gid);
    if listed(monitor).is_none() {
        poll_until(monitor, |c| matches!(c, Change::GidAdded { gid, .. } if gid.is_link_local()));
    }
    listed(monitor).expect("it was just added")
}
