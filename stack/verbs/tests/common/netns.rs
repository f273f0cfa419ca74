//! Network namespaces, veths between them and devices on those. Namespaces have names unique to the process and are removed
//! when dropped.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use xroce::{AsyncEventKind, ConnectOptions, Context, Device, DeviceBuilder, OpenError, PathMtu, Progress, SendOp};
use xroce_port::RxFrame;
use xroce_port::fault::{Action, Fault, Rule};

use super::{PATIENCE, Side, options, pattern};

/// A network namespace, removed when dropped.
pub struct Namespace(pub String);

impl Namespace {
    pub fn new(test: &str) -> Option<Namespace> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("engine-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let made = Command::new("ip").args(["netns", "add", &name]).output();
        let why = match made {
            Ok(output) if output.status.success() => return Some(Namespace(name)),
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => format!("cannot run ip: {error}"),
        };
        skip(test, why.trim())
    }

    #[track_caller]
    pub fn ip(&self, arguments: &str) {
        self.try_ip(arguments).unwrap_or_else(|why| panic!("ip {arguments}: {why}"));
    }

    pub fn try_ip(&self, arguments: &str) -> Result<(), String> {
        let all = ["-n", &self.0].into_iter().chain(arguments.split_whitespace());
        let output = Command::new("ip").args(all).output().expect("ip can be run: it made this namespace");
        let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(()) } else { Err(said()) }
    }

    /// Runs `f` on a thread inside the namespace.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.0)).expect("the namespace exists");
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

    pub fn open(&self, name: &str, progress: Progress) -> Result<Context, OpenError> {
        self.run(|| Device::builder(name).progress(progress).open())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

/// Past the capture of the test harness, which would hide it in a test that passes.
pub fn skip<T>(test: &str, why: &str) -> Option<T> {
    let _ = writeln!(std::io::stdout(), "SKIP {test}: {why}");
    None
}

/// Two namespaces joined by a veth whose ends are both called eth0, with IPv4 and IPv6 addresses.
pub fn joined(test: &str, mtu: u32) -> Option<[Namespace; 2]> {
    let (a, b) = (Namespace::new(test)?, Namespace::new(test)?);
    for namespace in [&a, &b] {
        // No waiting for duplicates: until its link-local address is free for use, the kernel sends no neighbour solicitation.
        let path = "/proc/sys/net/ipv6/conf/default/accept_dad";
        namespace.run(|| std::fs::write(path, "0")).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    a.ip(&format!("link add eth0 mtu {mtu} type veth peer name eth0 mtu {mtu} netns {}", b.0));
    for (namespace, last) in [(&a, 1), (&b, 2)] {
        namespace.ip("link set lo up");
        namespace.ip("link set eth0 up");
        namespace.ip(&format!("addr add 10.9.0.{last}/24 dev eth0"));
        namespace.ip(&format!("addr add fd09::{last}/64 dev eth0 nodad"));
    }
    Some([a, b])
}

/// Both devices; None, after a line that says why, where AF_XDP is not to be had.
pub fn open_both(test: &str, ends: &[Namespace; 2], name: &str, progress: Progress) -> Option<[Context; 2]> {
    let open = |end: &Namespace| match end.open(name, progress) {
        Ok(context) => Some(context),
        Err(error @ OpenError::Xdp(_)) => skip(test, &error.to_string()),
        Err(error) => panic!("{error}"),
    };
    Some([open(&ends[0])?, open(&ends[1])?])
}

/// Half a second: on a loaded machine a thread may well not run for the usual 67 ms, which would look like a loss.
pub const TIMEOUT: u8 = 17;

/// The index of the first GID that is (or is not) an IPv4 address and can be routed.
pub fn gid_index(context: &Context, v4: bool) -> u8 {
    let routable = |entry: &xroce::GidEntry| !entry.gid.is_link_local() && entry.address.is_ipv4() == v4;
    context.gid_table().into_iter().find(routable).expect("an address of each family was given").index
}

pub fn connect(a: &Side, b: &Side, v4: bool, mtu: PathMtu) {
    connect_with(a, b, v4, mtu, TIMEOUT);
}

pub fn connect_with(a: &Side, b: &Side, v4: bool, mtu: PathMtu, timeout: u8) {
    let of = |side: &Side, psn| ConnectOptions {
        gid_index: gid_index(&side.context, v4),
        path_mtu: Some(mtu),
        timeout,
        ..options(psn)
    };
    let (of_a, of_b) = (of(a, 0xff_fff0), of(b, 77));
    let (at_a, at_b) = (a.qp.endpoint(&of_a).unwrap(), b.qp.endpoint(&of_b).unwrap());
    a.qp.connect(&at_b, &of_a).unwrap();
    b.qp.connect(&at_a, &of_b).unwrap();
}

/// SEND, WRITE and READ of several lengths, bytes compared.
pub fn exercise(a: &Side, b: &Side, half: usize) {
    for (i, len) in [1, 4095, 65_536, half].into_iter().enumerate() {
        let bytes = pattern(i as u8, len);
        a.mr.write_at(0, &bytes).unwrap();
        b.recv(1, &[b.sge(0, half)]);
        a.send(2, SendOp::Send, &[a.sge(0, len)]);
        b.success(a, 1);
        a.success(b, 2);
        assert_eq!(b.mr.to_vec(0..len).unwrap(), bytes, "SEND of {len}");
        let (va, rkey) = (b.mr.addr() + half as u64, b.mr.rkey());
        a.send(3, SendOp::Write { va, rkey }, &[a.sge(0, len)]);
        a.success(b, 3);
        assert_eq!(b.mr.to_vec(half..half + len).unwrap(), bytes, "WRITE of {len}");
        a.send(4, SendOp::Read { va, rkey }, &[a.sge(half, half + len)]);
        a.success(b, 4);
        assert_eq!(a.mr.to_vec(half..half + len).unwrap(), bytes, "READ of {len}");
    }
}

/// Waits for an asynchronous event, past all others.
#[track_caller]
pub fn expect_event(context: &Context, wanted: AsyncEventKind) {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match context.get_async_event(Some(Duration::from_secs(1))).unwrap() {
            Some(event) if event.kind == wanted => return,
            _ => {}
        }
    }
    panic!("no {wanted:?}");
}

/// A namespace with the loopback interface up, where IPv6 addresses are good for use at once.
pub fn host(test: &str) -> Option<Namespace> {
    let namespace = Namespace::new(test)?;
    let path = "/proc/sys/net/ipv6/conf/default/accept_dad";
    namespace.run(|| std::fs::write(path, "0")).unwrap_or_else(|e| panic!("{path}: {e}"));
    namespace.ip("link set lo up");
    Some(namespace)
}

/// Several hosts; None, after one line that says why, where they cannot be had.
pub fn hosts<const N: usize>(test: &str) -> Option<[Namespace; N]> {
    let made: Vec<Namespace> = (0..N).map_while(|_| host(test)).collect();
    made.try_into().ok()
}

/// A veth between two hosts, both ends up, each end with its own MTU.
pub fn veth((a, name_a, mtu_a): (&Namespace, &str, u32), (b, name_b, mtu_b): (&Namespace, &str, u32)) {
    a.ip(&format!("link add {name_a} mtu {mtu_a} type veth peer name {name_b} mtu {mtu_b} netns {}", b.0));
    a.ip(&format!("link set {name_a} up"));
    b.ip(&format!("link set {name_b} up"));
}

/// What a device sent, as far as a test wants to know it.
pub type Seen<T> = Arc<Mutex<Vec<T>>>;

/// Puts a look at every frame that leaves around the device's port.
pub fn watch_tx<T: Send + 'static>(
    builder: DeviceBuilder,
    seen: &Seen<T>,
    look: impl Fn(&RxFrame<'_>) -> T + Send + 'static,
) -> DeviceBuilder {
    let seen = seen.clone();
    builder.wrap(move |port| {
        let fault = Fault::new(port, 1);
        // A rule that looks at every frame and never acts.
        let rule = Rule::tx(Action::Drop).matching(move |frame| {
            seen.lock().unwrap().push(look(frame));
            false
        });
        fault.faults().add(rule).unwrap();
        Box::new(fault)
    })
}

/// Opens a device in a namespace; None, after a line that says why, where AF_XDP is not to be had.
pub fn open(test: &str, end: &Namespace, builder: DeviceBuilder) -> Option<Context> {
    match end.run(|| builder.open()) {
        Ok(context) => Some(context),
        Err(error @ OpenError::Xdp(_)) => skip(test, &error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

/// The index of the GID of an address.
#[track_caller]
pub fn index_of(context: &Context, address: &str) -> u8 {
    let wanted = super::ip(address);
    let table = context.gid_table();
    table.iter().find(|entry| entry.address == wanted).unwrap_or_else(|| panic!("no {address} in {table:?}")).index
}

/// Connects two queue pairs by the GIDs at these indices, with settings as `change` makes them.
pub fn connect_by(a: &Side, b: &Side, [of_a, of_b]: [u8; 2], change: impl Fn(&mut ConnectOptions)) {
    let of = |psn, gid_index| {
        let mut options = ConnectOptions { gid_index, timeout: TIMEOUT, ..options(psn) };
        change(&mut options);
        options
    };
    let (of_a, of_b) = (of(0xff_fff0, of_a), of(77, of_b));
    let (at_a, at_b) = (a.qp.endpoint(&of_a).unwrap(), b.qp.endpoint(&of_b).unwrap());
    a.qp.connect(&at_b, &of_a).unwrap();
    b.qp.connect(&at_a, &of_b).unwrap();
}

impl Namespace {
    /// What `ip` prints for an interface, split into words.
    fn words(&self, arguments: &str) -> Vec<String> {
        let all = ["-n", &self.0].into_iter().chain(arguments.split_whitespace());
        let output = Command::new("ip").args(all).output().expect("ip can be run: it made this namespace");
        String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
    }

    /// Has nftables take rules; an error where it is not installed or the kernel has none of it.
    pub fn nft(&self, rules: &str) -> Result<(), String> {
        let run = || Command::new("nft").arg(rules).output();
        let output = self.run(run).map_err(|error| format!("cannot run nft: {error}"))?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
    }

    /// The MAC address of an interface.
    pub fn mac(&self, interface: &str) -> Vec<u8> {
        let words = self.words(&format!("link show dev {interface}"));
        let at = words.iter().position(|word| word == "link/ether").expect("an Ethernet interface");
        words[at + 1].split(':').map(|byte| u8::from_str_radix(byte, 16).expect("a MAC address")).collect()
    }

    /// The addresses of an interface, without prefix lengths.
    pub fn addresses(&self, interface: &str) -> Vec<String> {
        let words = self.words(&format!("addr show dev {interface}"));
        let is_family = |word: &String| word == "inet" || word == "inet6";
        let pairs = words.windows(2).filter(|pair| is_family(&pair[0]));
        pairs.map(|pair| pair[1].split('/').next().unwrap_or_default().to_owned()).collect()
    }
}
