//! Devices on real interfaces: AF_XDP on the two ends of a veth, each in a network namespace of its own, both called eth0.
//! Needs the rights to make namespaces and AF_XDP sockets; skipped with a line that says so without.

mod common;

use common::{PATIENCE, Side, options, pattern};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use xroce::{
    AsyncEventKind, ConnectOptions, Context, Device, OpenError, PathMtu, PortState, Progress, QpType, SendOp, WcStatus,
};

/// A network namespace, removed when dropped.
struct Namespace(String);

impl Namespace {
    fn new(test: &str) -> Option<Namespace> {
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
    fn ip(&self, arguments: &str) {
        self.try_ip(arguments).unwrap_or_else(|why| panic!("ip {arguments}: {why}"));
    }

    fn try_ip(&self, arguments: &str) -> Result<(), String> {
        let all = ["-n", &self.0].into_iter().chain(arguments.split_whitespace());
        let output = Command::new("ip").args(all).output().expect("ip can be run: it made this namespace");
        let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(()) } else { Err(said()) }
    }

    /// Runs `f` on a thread inside the namespace.
    fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
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

    fn open(&self, name: &str, progress: Progress) -> Result<Context, OpenError> {
        self.run(|| Device::builder(name).progress(progress).open())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

/// Past the capture of the test harness, which would hide it in a test that passes.
fn skip<T>(test: &str, why: &str) -> Option<T> {
    let _ = writeln!(std::io::stdout(), "SKIP {test}: {why}");
    None
}

/// Two namespaces joined by a veth whose ends are both called eth0, with IPv4 and IPv6 addresses.
fn joined(test: &str, mtu: u32) -> Option<[Namespace; 2]> {
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
fn open_both(test: &str, ends: &[Namespace; 2], name: &str, progress: Progress) -> Option<[Context; 2]> {
    let open = |end: &Namespace| match end.open(name, progress) {
        Ok(context) => Some(context),
        Err(error @ OpenError::Xdp(_)) => skip(test, &error.to_string()),
        Err(error) => panic!("{error}"),
    };
    Some([open(&ends[0])?, open(&ends[1])?])
}

/// Half a second: on a loaded machine a thread may well not run for the usual 67 ms, which would look like a loss.
const TIMEOUT: u8 = 17;

/// The index of the first GID that is (or is not) an IPv4 address and can be routed.
fn gid_index(context: &Context, v4: bool) -> u8 {
    let routable = |entry: &xroce::GidEntry| !entry.gid.is_link_local() && entry.address.is_ipv4() == v4;
    context.gid_table().into_iter().find(routable).expect("an address of each family was given").index
}

fn connect(a: &Side, b: &Side, v4: bool, mtu: PathMtu) {
    connect_with(a, b, v4, mtu, TIMEOUT);
}

fn connect_with(a: &Side, b: &Side, v4: bool, mtu: PathMtu, timeout: u8) {
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
fn exercise(a: &Side, b: &Side, half: usize) {
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

#[test]
fn rc_over_af_xdp_between_namespaces() {
    const TEST: &str = "rc_over_af_xdp_between_namespaces";
    const HALF: usize = 1 << 20;
    for progress in [Progress::default(), Progress::Event, Progress::Adaptive { cpu: None, spin_ns: 20_000 }] {
        let Some(ends) = joined(TEST, 4300) else { return };
        let Some([ca, cb]) = open_both(TEST, &ends, "eth0", progress) else { return };
        let mtu = ca.query_port().active_mtu.unwrap();
        for (v4, mtu) in [(true, mtu), (false, PathMtu::Mtu1024)] {
            let (a, b) = (Side::new(&ca, QpType::Rc, 2 * HALF), Side::new(&cb, QpType::Rc, 2 * HALF));
            connect(&a, &b, v4, mtu);
            exercise(&a, &b, HALF);
        }
        let [(port, shard, ref counters)] = ca.counters().unwrap()[..] else { panic!("one shard") };
        assert!(port.tx_frames > 2000 && port.kicks < port.tx_frames, "{port:?}");
        assert_eq!((shard.no_next_hop, counters.qp.local_ack_timeout_err), (0, 0), "{progress:?}: {counters:?}");
    }
}

#[test]
fn a_vlan_of_the_interface() {
    const TEST: &str = "a_vlan_of_the_interface";
    let Some(ends) = joined(TEST, 1500) else { return };
    for (end, last) in ends.iter().zip([1, 2]) {
        match end.try_ip("link add link eth0 name eth0.5 type vlan id 5") {
            Err(why) if why.contains("Unknown device type") => {
                return skip(TEST, "this kernel has no VLANs").unwrap_or_default();
            }
            made => made.unwrap(),
        }
        end.ip("link set eth0.5 up");
        end.ip(&format!("addr add 10.9.5.{last}/24 dev eth0.5"));
        end.ip(&format!("addr add fd09:5::{last}/64 dev eth0.5 nodad"));
    }
    let Some([ca, cb]) = open_both(TEST, &ends, "eth0.5", Progress::default()) else { return };
    let (a, b) = (Side::new(&ca, QpType::Rc, 1 << 18), Side::new(&cb, QpType::Rc, 1 << 18));
    connect(&a, &b, true, PathMtu::Mtu1024);
    exercise(&a, &b, 1 << 17);
    assert_eq!(cb.counters().unwrap()[0].1.rx_other_vlan, 0);
}

#[test]
fn addresses_and_the_link_come_and_go() {
    const TEST: &str = "addresses_and_the_link_come_and_go";
    let Some(ends) = joined(TEST, 1500) else { return };
    let Some([ca, cb]) = open_both(TEST, &ends, "eth0", Progress::Event) else { return };
    let expect = |context: &Context, wanted: AsyncEventKind| {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match context.get_async_event(Some(Duration::from_secs(1))).unwrap() {
                Some(event) if event.kind == wanted => return,
                _ => {}
            }
        }
        panic!("no {wanted:?}");
    };
    // A second address can be used as soon as it is there: the XDP program knows it too.
    for (end, last) in ends.iter().zip([1, 2]) {
        end.ip(&format!("addr add 10.9.1.{last}/24 dev eth0"));
    }
    expect(&ca, AsyncEventKind::GidChange);
    expect(&cb, AsyncEventKind::GidChange);
    let index = |context: &Context| {
        let table = context.gid_table();
        table.iter().find(|entry| entry.address.to_string().starts_with("10.9.1.")).expect("it was added").index
    };
    let (a, b) = (Side::new(&ca, QpType::Rc, 1 << 18), Side::new(&cb, QpType::Rc, 1 << 18));
    let (of_a, of_b) = (
        ConnectOptions { gid_index: index(&ca), timeout: TIMEOUT, ..options(1) },
        ConnectOptions { gid_index: index(&cb), timeout: TIMEOUT, ..options(2) },
    );
    a.qp.connect(&b.qp.endpoint(&of_b).unwrap(), &of_a).unwrap();
    b.qp.connect(&a.qp.endpoint(&of_a).unwrap(), &of_b).unwrap();
    exercise(&a, &b, 1 << 17);

    // A pause of the link costs resends, not the connection.
    ends[1].ip("link set eth0 down");
    expect(&ca, AsyncEventKind::PortErr);
    assert_eq!(ca.query_port().state, PortState::Down);
    b.recv(1, &[b.sge(0, 8)]);
    a.send(2, SendOp::Send, &[a.sge(0, 8)]);
    std::thread::sleep(Duration::from_millis(50));
    ends[1].ip("link set eth0 up");
    expect(&ca, AsyncEventKind::PortActive);
    a.success(&b, 2);
    b.success(&a, 1);
    exercise(&a, &b, 1 << 17);

    // The address goes: the peer's packets find nobody.
    ends[1].ip("addr del 10.9.1.2/24 dev eth0");
    while cb.gid_table().iter().any(|entry| entry.address.to_string() == "10.9.1.2") {
        expect(&cb, AsyncEventKind::GidChange);
    }
    b.recv(1, &[b.sge(0, 8)]);
    a.send(2, SendOp::Send, &[a.sge(0, 8)]);
    assert_eq!(a.wc(&b).status, WcStatus::RetryExcErr);
}

/// Two namespaces with a router between them: 10.9.1.1 at its interface `west`, 10.9.2.1 at `east`.
fn routed(test: &str) -> Option<([Namespace; 2], Namespace)> {
    let (ends, router) = ([Namespace::new(test)?, Namespace::new(test)?], Namespace::new(test)?);
    let path = "/proc/sys/net/ipv4/ip_forward";
    router.run(|| std::fs::write(path, "1")).unwrap_or_else(|e| panic!("{path}: {e}"));
    for (end, (name, net)) in ends.iter().zip([("west", 1), ("east", 2)]) {
        end.ip(&format!("link add eth0 mtu 1500 type veth peer name {name} mtu 1500 netns {}", router.0));
        end.ip("link set lo up");
        end.ip("link set eth0 up");
        router.ip(&format!("link set {name} up"));
        router.ip(&format!("addr add 10.9.{net}.1/24 dev {name}"));
        end.ip(&format!("addr add 10.9.{net}.2/24 dev eth0"));
        end.ip(&format!("route add default via 10.9.{net}.1"));
    }
    Some((ends, router))
}

/// The router's interface gets another MAC address and tells nobody. What the kernel knew stays wrong until somebody asks it
/// to look again, and our frames pass it by.
#[test]
fn a_flow_outlives_a_silent_change_of_the_neighbours_mac() {
    const TEST: &str = "a_flow_outlives_a_silent_change_of_the_neighbours_mac";
    for progress in [Progress::default(), Progress::Event] {
        let Some((ends, router)) = routed(TEST) else { return };
        let Some([ca, cb]) = open_both(TEST, &ends, "eth0", progress) else { return };
        let (a, b) = (Side::new(&ca, QpType::Rc, 1 << 16), Side::new(&cb, QpType::Rc, 1 << 16));
        // A quarter of a second: seven retries last longer than a loaded machine takes to find the neighbour.
        connect_with(&a, &b, true, PathMtu::Mtu1024, 16);
        let (va, rkey) = (b.mr.addr(), b.mr.rkey());
        let mut next = 0;
        let mut write = |count: u64| {
            for id in next..next + count {
                a.send(id, SendOp::Write { va, rkey }, &[a.sge(0, 8192)]);
                a.success(&b, id);
            }
            next += count;
        };
        write(50);
        // All is acknowledged: nothing makes the router talk to us by itself.
        router.ip("link set west address 02:00:00:00:00:77");
        write(200);
        let counters = &ca.counters().unwrap()[0].2;
        assert!(counters.qp.local_ack_timeout_err > 0, "the change was noticed: {counters:?}");
    }
}

#[test]
fn a_wrong_name_is_answered_with_the_names_there_are() {
    let text = Device::open("no-such-if").unwrap_err().to_string();
    assert!(text.contains("no-such-if") && text.contains("lo"), "{text}");
}
