//! What public reports tell of other stacks, tried here over AF_XDP between network namespaces. docs/regressions.md lists the
//! reports; the number of each begins the name of its test.

mod common;

use common::netns::{
    Namespace, Seen, TIMEOUT, connect_by, exercise, expect_event, gid_index, host, hosts, index_of, joined, open, veth,
    watch_tx,
};
use common::{PATIENCE, Side, options};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use xroce::xdp::MultiBuffer;
use xroce::{
    AsyncEventKind, ConnectOptions, Context, Device, DeviceBuilder, DropReason, Limits, PathMtu, PortState, Progress,
    QpState, QpType, SendOp, WcStatus,
};
use xroce_port::xdp::{Faults, FrameAccount, XdpConfig, XdpPort};
use xroce_port::{Layer, Port, RxFrame};
use xroce_wire::{Link, Packet, Qpn};

fn event_driven() -> DeviceBuilder {
    Device::builder("eth0").progress(Progress::Event)
}

/// The IPv4 devices of two joined namespaces.
fn two(test: &str, mtu: u32) -> Option<([Namespace; 2], [Context; 2])> {
    let ends = joined(test, mtu)?;
    let contexts = [open(test, &ends[0], event_driven())?, open(test, &ends[1], event_driven())?];
    Some((ends, contexts))
}

fn sides([a, b]: &[Context; 2], bytes: usize) -> (Side, Side) {
    (Side::new(a, QpType::Rc, bytes), Side::new(b, QpType::Rc, bytes))
}

/// One SEND of `len` bytes; the status at the sender.
#[track_caller]
fn send_once(a: &Side, b: &Side, len: usize) -> WcStatus {
    b.recv(1, &[b.sge(0, len)]);
    a.send(2, SendOp::Send, &[a.sge(0, len)]);
    a.wc(b).status
}

/// Netdev MTUs and the path MTUs they have room for: the active one is told, more is refused at RTR, and no frame is longer than
/// the netdev takes.
#[test]
// rule: mtu.active
fn h02_path_mtus_of_real_netdevs() {
    const TEST: &str = "h02_path_mtus_of_real_netdevs";
    for (mtu, active) in [(576, 256), (1500, 1024), (2200, 2048), (4200, 4096), (9000, 4096)] {
        let Some([a, b]) = hosts(TEST) else { return };
        veth((&a, "eth0", mtu), (&b, "eth0", mtu));
        a.ip("addr add 10.9.0.1/24 dev eth0");
        b.ip("addr add 10.9.0.2/24 dev eth0");
        let longest = Seen::default();
        let builder = watch_tx(event_driven(), &longest, |frame| frame.len());
        let Some(ca) = open(TEST, &a, builder) else { return };
        let Some(cb) = open(TEST, &b, event_driven()) else { return };
        let multi_buffer = ca.query_device().xdp.is_some_and(|xdp| xdp.multi_buffer);
        let active = if mtu > 3500 && !multi_buffer { 2048 } else { active };
        assert_eq!(ca.query_port().active_mtu.map(PathMtu::bytes), Some(active), "netdev MTU {mtu}");
        let of = [gid_index(&ca, true), gid_index(&cb, true)];
        for path_mtu in PathMtu::ALL {
            let (a, b) = sides(&[ca.clone(), cb.clone()], 1 << 17);
            if path_mtu.bytes() > active {
                let options = ConnectOptions { gid_index: of[0], path_mtu: Some(path_mtu), ..options(1) };
                let error = a.qp.connect(&b.qp.endpoint(&options).unwrap(), &options).unwrap_err().to_string();
                assert!(error.contains(&format!("the largest is {active}")), "{error}");
                assert_eq!(a.qp.state(), QpState::Init);
                continue;
            }
            connect_by(&a, &b, of, |o| o.path_mtu = Some(path_mtu));
            if path_mtu.bytes() == active {
                exercise(&a, &b, 1 << 16);
            } else {
                assert_eq!(send_once(&a, &b, 1 << 14), WcStatus::Success, "{path_mtu:?} at {mtu}");
            }
        }
        let longest = longest.lock().unwrap().iter().copied().max().unwrap();
        assert!(longest > active && longest <= mtu as usize + 14, "{longest} bytes at netdev MTU {mtu}");
    }
}

/// Both ends take large frames and the bridge between them does not: small messages pass, a large one ends with status 12 after
/// its retries, and small ones go on passing on a fresh queue pair.
#[test]
fn h03_a_path_narrower_than_its_ends() {
    const TEST: &str = "h03_a_path_narrower_than_its_ends";
    let Some([a, bridge, b]) = hosts(TEST) else { return };
    for (end, port, last) in [(&a, "west", 1), (&b, "east", 2)] {
        veth((end, "eth0", 4300), (&bridge, port, 1500));
        end.ip(&format!("addr add 10.9.0.{last}/24 dev eth0"));
    }
    bridge.ip("link add br0 type bridge");
    bridge.ip("link set br0 up");
    bridge.ip("link set west master br0");
    bridge.ip("link set east master br0");
    let Some(ca) = open(TEST, &a, event_driven()) else { return };
    let Some(cb) = open(TEST, &b, event_driven()) else { return };
    let of = [gid_index(&ca, true), gid_index(&cb, true)];
    let Some(mtu) = ca.query_port().active_mtu.filter(|mtu| mtu.bytes() > 1500) else { panic!("no large path MTU") };
    let contexts = [ca, cb];
    let (a, b) = sides(&contexts, 8192);
    // T is 67 ms: three resends after T, 2T and 4T, and the last wait is 4T again.
    connect_by(&a, &b, of, |o| (o.path_mtu, o.timeout, o.retry_cnt) = (Some(mtu), 14, 3));
    assert_eq!(send_once(&a, &b, 64), WcStatus::Success);
    b.success(&a, 1);
    let start = Instant::now();
    assert_eq!(send_once(&a, &b, 4096), WcStatus::RetryExcErr);
    let (took, t) = (start.elapsed(), Duration::from_nanos(4096 << 14));
    assert!(took >= 4 * t && took < 16 * t + Duration::from_secs(3), "{took:?} with T = {t:?}");
    assert!(b.cq.poll_one().unwrap().is_none(), "nothing was delivered");
    let (a, b) = sides(&contexts, 8192);
    connect_by(&a, &b, of, |o| o.path_mtu = Some(mtu));
    assert_eq!(send_once(&a, &b, 64), WcStatus::Success);
}

/// Link-local addresses that are not made from the MAC, and an interface without IPv6: the table lists what the interface has, and
/// every index of it connects.
#[test]
// rule: gid.table
fn h04_every_listed_gid_is_an_address_and_connects() {
    const TEST: &str = "h04_every_listed_gid_is_an_address_and_connects";
    for ipv6 in [true, false] {
        let Some(ends) = hosts::<2>(TEST) else { return };
        let [a, b] = &ends;
        a.ip(&format!("link add eth0 type veth peer name eth0 netns {}", b.0));
        for (end, last) in [(a, 1), (b, 2)] {
            if ipv6 {
                end.ip("link set eth0 addrgenmode random");
            } else {
                end.run(|| std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1")).unwrap();
            }
            end.ip("link set eth0 up");
            end.ip(&format!("addr add 10.9.0.{last}/24 dev eth0"));
            if ipv6 {
                end.ip(&format!("addr add fd09::{last}/64 dev eth0 nodad"));
                end.ip(&format!("addr add 2001:db8:9::{last}/64 dev eth0 nodad"));
            }
        }
        let Some(ca) = open(TEST, a, event_driven()) else { return };
        let Some(cb) = open(TEST, b, event_driven()) else { return };
        let wanted = if ipv6 { 4 } else { 1 };
        for context in [&ca, &cb] {
            let start = Instant::now();
            while context.gid_table().len() < wanted {
                assert!(start.elapsed() < PATIENCE, "{:?}", context.gid_table());
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let contexts = [ca, cb];
        for (context, end) in contexts.iter().zip(&ends) {
            let mut listed: Vec<String> = context.gid_table().iter().map(|e| e.address.to_string()).collect();
            let mut held = end.addresses("eth0");
            listed.sort();
            held.sort();
            assert_eq!(listed, held);
            let mac = context.raw_engine().capabilities().mac;
            let eui64 = [mac[3], mac[4], mac[5]];
            let made_of_mac = |entry: &xroce::GidEntry| entry.gid.is_link_local() && entry.gid.0[13..] == eui64;
            assert!(!context.gid_table().iter().any(made_of_mac), "a link-local address that nobody gave");
        }
        let mut connected = 0;
        for x in contexts[0].gid_table() {
            let fits = |y: &xroce::GidEntry| {
                y.address.is_ipv4() == x.address.is_ipv4() && y.gid.is_link_local() == x.gid.is_link_local()
            };
            for y in contexts[1].gid_table().into_iter().filter(fits) {
                let (a, b) = sides(&contexts, 64);
                connect_by(&a, &b, [x.index, y.index], |_| ());
                assert_eq!(send_once(&a, &b, 8), WcStatus::Success, "{x:?} to {y:?}");
                connected += 1;
            }
        }
        // Two global addresses at each end: four pairs.
        assert_eq!(connected, if ipv6 { 1 + 1 + 4 } else { 1 });
    }
}

/// The index of the link-local GID, once there is one.
fn link_local(context: &Context) -> u8 {
    let start = Instant::now();
    loop {
        if let Some(entry) = context.gid_table().into_iter().find(|e| e.gid.is_link_local()) {
            return entry.index;
        }
        assert!(start.elapsed() < PATIENCE, "no link-local address");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Link-local addresses work on their own segment in both directions.
#[test]
fn h05_link_local_addresses_on_one_segment() {
    const TEST: &str = "h05_link_local_addresses_on_one_segment";
    let Some((_ends, contexts)) = two(TEST, 1500) else { return };
    let of = [link_local(&contexts[0]), link_local(&contexts[1])];
    let (a, b) = sides(&contexts, 1 << 17);
    connect_by(&a, &b, of, |_| ());
    exercise(&a, &b, 1 << 16);
    exercise(&b, &a, 1 << 16);
}

/// Source address and destination queue pair of a frame.
fn source_of(frame: &RxFrame<'_>) -> (String, Qpn) {
    let link = Link::parse_ip(frame.head).expect("we send IP");
    let packet = Packet::new_checked(&frame.head[link.header_len()..], frame.tail).expect("we send RoCE");
    (packet.ip().src.to_ip().to_string(), packet.dest_qp())
}

/// Addresses come and go in another order, so that their indices change places: each queue pair sends from the address it was
/// given, or not at all.
#[test]
// rule: path.source, gid.index
fn h06_a_queue_pair_keeps_its_source_address() {
    const TEST: &str = "h06_a_queue_pair_keeps_its_source_address";
    const FIRST: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
    const SECOND: [&str; 2] = ["10.9.1.1", "10.9.1.2"];
    let Some(ends) = joined(TEST, 1500) else { return };
    for (end, address) in ends.iter().zip(SECOND) {
        end.ip(&format!("addr add {address}/24 dev eth0"));
    }
    let sources = Seen::default();
    let Some(ca) = open(TEST, &ends[0], watch_tx(event_driven(), &sources, source_of)) else { return };
    let Some(cb) = open(TEST, &ends[1], event_driven()) else { return };
    let contexts = [ca, cb];
    let by = |of: [&str; 2]| {
        let (a, b) = sides(&contexts, 1 << 17);
        connect_by(&a, &b, [index_of(&contexts[0], of[0]), index_of(&contexts[1], of[1])], |o| {
            (o.timeout, o.retry_cnt) = (14, 2);
        });
        (a, b)
    };
    let (first, second) = (by(FIRST), by(SECOND));
    let before = [index_of(&contexts[0], FIRST[0]), index_of(&contexts[0], SECOND[0])];
    exercise(&first.0, &first.1, 1 << 16);
    exercise(&second.0, &second.1, 1 << 16);

    // The first address goes under way: its queue pair fails visibly, the other goes on.
    let gone = |address: &str| {
        let start = Instant::now();
        while contexts[0].gid_table().iter().any(|e| e.address.to_string() == address) {
            assert!(start.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    ends[0].ip("addr del 10.9.0.1/24 dev eth0");
    expect_event(&contexts[0], AsyncEventKind::GidChange);
    gone(FIRST[0]);
    assert_eq!(send_once(&first.0, &first.1, 8), WcStatus::RetryExcErr);
    exercise(&second.0, &second.1, 1 << 16);

    // Both go and come back in the other order.
    ends[0].ip("addr del 10.9.1.1/24 dev eth0");
    gone(SECOND[0]);
    ends[0].ip("addr add 10.9.1.1/24 dev eth0");
    let start = Instant::now();
    while !contexts[0].gid_table().iter().any(|e| e.address.to_string() == SECOND[0]) {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    ends[0].ip("addr add 10.9.0.1/24 dev eth0");
    let start = Instant::now();
    while !contexts[0].gid_table().iter().any(|e| e.address.to_string() == FIRST[0]) {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    let after = [index_of(&contexts[0], FIRST[0]), index_of(&contexts[0], SECOND[0])];
    assert_eq!((after[0], after[1]), (before[1], before[0]), "they have changed places");
    // The queue pair that was idle meanwhile works again, by its own address.
    exercise(&second.0, &second.1, 1 << 16);
    let again = by(FIRST);
    exercise(&again.0, &again.1, 1 << 16);

    let of = [(first.1.qp.qpn(), FIRST[0]), (second.1.qp.qpn(), SECOND[0]), (again.1.qp.qpn(), FIRST[0])];
    let sources = sources.lock().unwrap();
    for (qpn, address) in of {
        let seen: Vec<_> = sources.iter().filter(|(_, to)| *to == qpn).map(|(from, _)| from.as_str()).collect();
        assert!(!seen.is_empty() && seen.iter().all(|from| *from == address), "QP {qpn}: {seen:?}");
    }
}

/// The link goes down and comes up, idle and under load: queue pairs whose retries outlast the gap go on, others end with status
/// 12, new ones connect without opening the device again.
#[test]
fn h07_a_link_that_goes_and_comes_back() {
    const TEST: &str = "h07_a_link_that_goes_and_comes_back";
    let Some((ends, contexts)) = two(TEST, 1500) else { return };
    let of = [gid_index(&contexts[0], true), gid_index(&contexts[1], true)];
    // One pair for all gaps.
    let (idle_a, idle_b) = sides(&contexts, 1 << 17);
    connect_by(&idle_a, &idle_b, of, |_| ());
    // First our own link goes, then the peer's, then ours for so long that the kernel's neighbour entries grow stale.
    for (side, gap, outlasts, patience) in [(0, 50, true, TIMEOUT), (1, 2000, false, TIMEOUT), (0, 30_000, false, 19)] {
        // T of the patient ones is half a second, or two; it doubles up to 4T, so that seven resends take 27 T.
        let (patient_a, patient_b) = sides(&contexts, 1 << 17);
        connect_by(&patient_a, &patient_b, of, |o| (o.timeout, o.retry_cnt) = (patience, 7));
        exercise(&patient_a, &patient_b, 1 << 16);
        // T is 268 ms, or 4 ms, of which three resends take 28 ms.
        let (hasty_a, hasty_b) = sides(&contexts, 1 << 17);
        connect_by(&hasty_a, &hasty_b, of, |o| (o.timeout, o.retry_cnt) = if outlasts { (16, 7) } else { (10, 3) });
        // Under load: queues full of requests when the link goes. On a busy machine they may be done by then, so the last one
        // of those that are to fail comes while it is down.
        let (va, rkey) = (hasty_b.mr.addr(), hasty_b.mr.rkey());
        let (va_p, rkey_p) = (patient_b.mr.addr(), patient_b.mr.rkey());
        let hasty = |id| hasty_a.send(id, SendOp::Write { va, rkey }, &[hasty_a.sge(0, 1 << 16)]);
        (0..64).for_each(|id| {
            (id < 63).then(|| hasty(id));
            patient_a.send(id, SendOp::Write { va: va_p, rkey: rkey_p }, &[patient_a.sge(0, 1 << 16)]);
        });
        ends[side].ip("link set eth0 down");
        expect_event(&contexts[0], AsyncEventKind::PortErr);
        expect_event(&contexts[1], AsyncEventKind::PortErr);
        assert_eq!(contexts[0].query_port().state, PortState::Down);
        hasty(63);
        std::thread::sleep(Duration::from_millis(gap));
        ends[side].ip("link set eth0 up");
        expect_event(&contexts[0], AsyncEventKind::PortActive);
        expect_event(&contexts[1], AsyncEventKind::PortActive);
        assert_eq!(contexts[0].query_port().state, PortState::Active);
        let statuses = |side: &Side, peer: &Side| (0..64).map(|_| side.wc(peer).status).collect::<Vec<_>>();
        assert!(statuses(&patient_a, &patient_b).iter().all(|s| *s == WcStatus::Success), "{gap} ms");
        let hasty = statuses(&hasty_a, &hasty_b);
        let failed = hasty.iter().position(|s| *s != WcStatus::Success);
        assert_eq!(failed.is_none(), outlasts, "{gap} ms: {hasty:?}");
        if let Some(first) = failed {
            assert_eq!(hasty[first], WcStatus::RetryExcErr);
            assert!(hasty[first + 1..].iter().all(|s| *s == WcStatus::WrFlushErr), "{hasty:?}");
        }
        exercise(&idle_a, &idle_b, 1 << 16);
        let (new_a, new_b) = sides(&contexts, 1 << 17);
        connect_by(&new_a, &new_b, of, |_| ());
        exercise(&new_a, &new_b, 1 << 16);
        for context in &contexts {
            while let Some(event) = context.try_get_async_event() {
                assert_ne!(event.kind, AsyncEventKind::PortErr, "told once for each time that the link went");
            }
        }
    }
}

/// Both ends of a link in one namespace: an address of the other interface is this host's, and refused by the name of its holder;
/// its link-local address is a station on the link, and reached; our own loops inside. No frame goes to our own MAC.
#[test]
fn h08_two_interfaces_of_one_host() {
    const TEST: &str = "h08_two_interfaces_of_one_host";
    let Some(host) = host(TEST) else { return };
    veth((&host, "left", 1500), (&host, "right", 1500));
    for (end, last) in [("left", 1), ("right", 2)] {
        host.ip(&format!("addr add 10.9.0.{last}/24 dev {end}"));
        host.ip(&format!("addr add fd09::{last}/64 dev {end} nodad"));
    }
    let macs = Seen::default();
    let look = |frame: &RxFrame<'_>| (frame.head[..6].to_vec(), frame.head[6..12].to_vec());
    let event_driven = |name: &str| Device::builder(name).progress(Progress::Event);
    let Some(left) = open(TEST, &host, watch_tx(event_driven("left"), &macs, look)) else { return };
    let Some(right) = open(TEST, &host, watch_tx(event_driven("right"), &macs, look)) else { return };
    let contexts = [left, right];
    for (from, to) in [("10.9.0.1", "10.9.0.2"), ("fd09::1", "fd09::2")] {
        let (a, b) = sides(&contexts, 1 << 17);
        let options = ConnectOptions { gid_index: index_of(&contexts[0], from), ..options(1) };
        let there = ConnectOptions { gid_index: index_of(&contexts[1], to), ..options };
        let error = a.qp.connect(&b.qp.endpoint(&there).unwrap(), &options).unwrap_err().to_string();
        assert!(error.contains(to) && error.contains("right"), "{error}");
        assert_eq!(a.qp.state(), QpState::Init);
        // To itself.
        let a = Side::new(&contexts[0], QpType::Rc, 1 << 17);
        a.qp.connect(&a.qp.endpoint(&options).unwrap(), &options).unwrap();
        a.send(1, SendOp::Write { va: a.mr.addr() + 64, rkey: a.mr.rkey() }, &[a.sge(0, 64)]);
        a.success(&a, 1);
    }
    assert!(macs.lock().unwrap().is_empty(), "a frame went out for what is on this host");
    let (a, b) = sides(&contexts, 1 << 17);
    connect_by(&a, &b, [link_local(&contexts[0]), link_local(&contexts[1])], |_| ());
    exercise(&a, &b, 1 << 16);
    let own = [host.mac("left"), host.mac("right")];
    let macs = macs.lock().unwrap();
    assert!(!macs.is_empty() && macs.iter().all(|(to, from)| to != from && own.contains(to) && own.contains(from)));
}

/// The step to RTR towards nobody ends in time, names address and interface, and works once somebody is there.
#[test]
fn h10_a_peer_that_comes_later() {
    const TEST: &str = "h10_a_peer_that_comes_later";
    let Some(ends) = joined(TEST, 1500) else { return };
    let wait = Duration::from_millis(300);
    let Some(ca) = open(TEST, &ends[0], event_driven().resolve_wait(wait)) else { return };
    let Some(cb) = open(TEST, &ends[1], event_driven()) else { return };
    let contexts = [ca, cb];
    for (new, prefix, own) in [("10.9.0.77", 24, "10.9.0.1"), ("fd09::77", 64, "fd09::1")] {
        let (a, b) = sides(&contexts, 64);
        let options = ConnectOptions { gid_index: index_of(&contexts[0], own), timeout: TIMEOUT, ..options(3) };
        let mut peer = b.qp.endpoint(&options).unwrap();
        peer.gid = xroce::Gid::from_ip(common::ip(new));
        let start = Instant::now();
        let error = a.qp.connect(&peer, &options).unwrap_err().to_string();
        let took = start.elapsed();
        assert!(took >= wait && took < wait + Duration::from_secs(3), "{took:?}");
        assert!(error.contains(new) && error.contains("eth0"), "{error}");
        assert_eq!(a.qp.state(), QpState::Init);
        ends[1].ip(&format!("addr add {new}/{prefix} dev eth0"));
        let start = Instant::now();
        while !contexts[1].gid_table().iter().any(|e| e.address == common::ip(new)) {
            assert!(start.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(5));
        }
        let start = Instant::now();
        while let Err(error) = a.qp.connect(&peer, &options) {
            assert!(start.elapsed() < PATIENCE, "{error}");
            assert_eq!(a.qp.state(), QpState::Init);
        }
        let back = ConnectOptions { gid_index: index_of(&contexts[1], new), ..options };
        b.qp.connect(&a.qp.endpoint(&options).unwrap(), &back).unwrap();
        assert_eq!(send_once(&a, &b, 8), WcStatus::Success, "{new}");
    }
}

/// Through routers: frames go to the gateway's MAC, the ICRC outlives the hop, and another gateway takes over under way.
#[test]
// rule: path.next-hop
fn h11_across_routers() {
    const TEST: &str = "h11_across_routers";
    let Some([a, first, second, b]) = hosts(TEST) else { return };
    for (side, end, n) in [("west", &a, 1), ("east", &b, 2)] {
        // Each link is a bridge in the first router, to which the second is joined.
        first.ip(&format!("link add {side} type bridge"));
        first.ip(&format!("link set {side} up"));
        veth((end, "eth0", 1500), (&first, &format!("{side}0"), 1500));
        veth((&second, side, 1500), (&first, &format!("{side}1"), 1500));
        for port in 0..2 {
            first.ip(&format!("link set {side}{port} master {side}"));
        }
        end.ip(&format!("addr add 10.0.{n}.{n}/24 dev eth0"));
        first.ip(&format!("addr add 10.0.{n}.253/24 dev {side}"));
        second.ip(&format!("addr add 10.0.{n}.254/24 dev {side}"));
        end.ip(&format!("route add default via 10.0.{n}.253"));
    }
    for router in [&first, &second] {
        router.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
    }
    let macs = Seen::default();
    let look = |frame: &RxFrame<'_>| (frame.head[..6].to_vec(), frame.head[22]);
    // So few packets under way that no queue of the routers overflows.
    let gentle = || event_driven().limits(Limits { window_packets: 32, ..Limits::default() });
    let Some(ca) = open(TEST, &a, watch_tx(gentle(), &macs, look)) else { return };
    let Some(cb) = open(TEST, &b, gentle()) else { return };
    let contexts = [ca, cb];
    let (qp_a, qp_b) = sides(&contexts, 1 << 17);
    let of = [gid_index(&contexts[0], true), gid_index(&contexts[1], true)];
    connect_by(&qp_a, &qp_b, of, |_| ());
    exercise(&qp_a, &qp_b, 1 << 16);
    let (va, rkey) = (qp_b.mr.addr(), qp_b.mr.rkey());
    qp_a.send(1, SendOp::FetchAdd { va, rkey, add: 1 }, &[qp_a.sge(0, 8)]);
    qp_a.success(&qp_b, 1);
    let mac = |router: &Namespace| router.mac("west");
    assert!(macs.lock().unwrap().iter().all(|(to, ttl)| *to == mac(&first) && *ttl > 1));

    // Another gateway, while requests are under way.
    (0..20).for_each(|id| qp_a.send(id, SendOp::Write { va, rkey }, &[qp_a.sge(0, 1 << 16)]));
    a.ip("route replace default via 10.0.1.254");
    (0..20).for_each(|id| {
        qp_a.success(&qp_b, id);
    });
    let start = Instant::now();
    while macs.lock().unwrap().last().is_none_or(|(to, _)| *to != mac(&second)) {
        assert!(start.elapsed() < PATIENCE, "the new gateway is not used");
        qp_a.send(1, SendOp::Write { va, rkey }, &[qp_a.sge(0, 8)]);
        qp_a.success(&qp_b, 1);
    }
    exercise(&qp_a, &qp_b, 1 << 16);
}

/// A kernel between the two that translates addresses, both ways: it breaks the ICRC, which covers them. Nothing is delivered,
/// both ends count it, and each sender is told; the same kernel as a router hands everything on.
#[test]
fn h12_through_a_nat() {
    const TEST: &str = "h12_through_a_nat";
    let Some([a, between, b]) = hosts(TEST) else { return };
    for (end, side, n) in [(&a, "west", 1), (&b, "east", 2)] {
        veth((end, "eth0", 1500), (&between, side, 1500));
        end.ip(&format!("addr add 10.0.{n}.{n}/24 dev eth0"));
        between.ip(&format!("addr add 10.0.{n}.254/24 dev {side}"));
        end.ip(&format!("route add default via 10.0.{n}.254"));
    }
    between.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
    let Some(ca) = open(TEST, &a, event_driven()) else { return };
    let Some(cb) = open(TEST, &b, event_driven()) else { return };
    let contexts = [ca, cb];
    let of = [gid_index(&contexts[0], true), gid_index(&contexts[1], true)];
    let (plain_a, plain_b) = sides(&contexts, 1 << 17);
    connect_by(&plain_a, &plain_b, of, |_| ());
    exercise(&plain_a, &plain_b, 1 << 16);

    // From now on the one side is known to the other by the address of the translator.
    let rules = "table ip nat {
        chain out { type nat hook postrouting priority 100; oifname \"east\" udp dport 4791 snat to 10.0.2.254; }
        chain in { type nat hook prerouting priority -100; iifname \"east\" udp dport 4791 dnat to 10.0.1.1; }
        }";
    match between.nft(rules) {
        Ok(()) => {}
        Err(why) if why.contains("syntax error") => panic!("{why}"),
        Err(why) => return common::netns::skip(TEST, &why).unwrap_or_default(),
    }
    let by = |gid_index| ConnectOptions { gid_index, timeout: 14, retry_cnt: 2, ..options(5) };
    let (of_inner, of_outer) = (by(of[0]), by(of[1]));
    for outwards in [true, false] {
        let (inner, outer) = sides(&contexts, 64);
        let mut at_inner = inner.qp.endpoint(&of_inner).unwrap();
        at_inner.gid = xroce::Gid::from_ipv4([10, 0, 2, 254].into());
        inner.qp.connect(&outer.qp.endpoint(&of_outer).unwrap(), &of_inner).unwrap();
        outer.qp.connect(&at_inner, &of_outer).unwrap();
        let (from, to) = if outwards { (&inner, &outer) } else { (&outer, &inner) };
        let bad = || to.context.counters().unwrap().iter().map(|c| c.2.drops.get(DropReason::BadIcrc)).sum::<u64>();
        assert_eq!(bad(), 0);
        to.recv(1, &[to.sge(0, 64)]);
        from.send(2, SendOp::Send, &[from.sge(0, 8)]);
        assert_eq!(from.wc(to).status, WcStatus::RetryExcErr);
        assert_eq!(bad(), 3, "each try came, and was dropped");
        assert_eq!(to.cq.poll_one().unwrap().map(|wc| wc.wr_id), None, "nothing was delivered");
    }
    // Without the rules, connections that were not translated go on.
    between.nft("delete table ip nat").expect("it was there");
    exercise(&plain_a, &plain_b, 1 << 16);
}

/// The netdev is pulled out under full queues: the device says so, every request ends with an error and in order, and nothing
/// spins.
#[test]
fn h35_a_netdev_that_is_pulled_out() {
    const TEST: &str = "h35_a_netdev_that_is_pulled_out";
    let Some((ends, contexts)) = two(TEST, 1500) else { return };
    let of = [gid_index(&contexts[0], true), gid_index(&contexts[1], true)];
    // 1.6 GB in all: the netdev goes long before they have passed.
    let (a, b) = sides(&contexts, 1 << 24);
    connect_by(&a, &b, of, |o| (o.timeout, o.retry_cnt) = (13, 3));
    let (idle_a, idle_b) = sides(&contexts, 64);
    connect_by(&idle_a, &idle_b, of, |o| (o.timeout, o.retry_cnt) = (13, 3));
    let (va, rkey) = (b.mr.addr(), b.mr.rkey());
    (0..100).for_each(|id| a.send(id, SendOp::Write { va, rkey }, &[a.sge(0, 1 << 24)]));
    ends[0].ip("link del eth0");
    for context in &contexts {
        expect_event(context, AsyncEventKind::DeviceFatal);
    }
    let wcs: Vec<_> = (0..100).map(|_| a.wc(&b)).collect();
    assert!(wcs.iter().map(|wc| wc.wr_id.0).eq(0..100), "in order");
    let failed = wcs.iter().position(|wc| wc.status != WcStatus::Success).expect("not all can have passed");
    assert_eq!(wcs[failed].status, WcStatus::RetryExcErr);
    assert!(wcs[failed + 1..].iter().all(|wc| wc.status == WcStatus::WrFlushErr));
    // One that nobody had used is told too.
    let op = SendOp::Write { va: idle_b.mr.addr(), rkey: idle_b.mr.rkey() };
    idle_a.send(1, op, &[idle_a.sge(0, 64)]);
    assert_eq!(idle_a.wc(&idle_b).status, WcStatus::RetryExcErr);
    let steps = || contexts[0].counters().unwrap()[0].1.steps;
    let before = steps();
    std::thread::sleep(Duration::from_millis(500));
    assert!(steps() - before < 500, "{} steps in half a second of nothing", steps() - before);
    for context in &contexts {
        let rest = std::iter::from_fn(|| context.get_async_event(Some(Duration::ZERO)).unwrap());
        assert_eq!(rest.filter(|event| event.kind == AsyncEventKind::DeviceFatal).count(), 0, "told once");
    }
}

/// What fits is told and nothing above it is taken; a netdev whose MTU is lowered under a queue pair ends its requests with status
/// 12, not with endless resends.
#[test]
fn h36_frames_that_do_not_fit() {
    const TEST: &str = "h36_frames_that_do_not_fit";
    for (mtu, multi_buffer, active) in [
        (3498, MultiBuffer::Auto, 2048),
        (3520, MultiBuffer::Auto, 2048),
        (3520, MultiBuffer::Off, 2048),
        (9000, MultiBuffer::Auto, 4096),
        (9000, MultiBuffer::Off, 2048),
    ] {
        let Some(ends) = joined(TEST, mtu) else { return };
        let builder = || event_driven().xdp(|xdp| xdp.multi_buffer = multi_buffer);
        let Some(ca) = open(TEST, &ends[0], builder()) else { return };
        let Some(cb) = open(TEST, &ends[1], builder()) else { return };
        let told = ca.query_port().active_mtu.expect("there is room");
        let got = ca.query_device().xdp.is_some_and(|xdp| xdp.multi_buffer);
        if multi_buffer == MultiBuffer::Auto && mtu > 3822 && !got {
            assert_eq!(told, PathMtu::Mtu2048, "this kernel has no multi-buffer");
        } else {
            assert_eq!(told.bytes(), active, "netdev MTU {mtu}, {multi_buffer:?}");
        }
        let contexts = [ca, cb];
        let of = [gid_index(&contexts[0], true), gid_index(&contexts[1], true)];
        let (a, b) = sides(&contexts, 1 << 17);
        connect_by(&a, &b, of, |o| o.path_mtu = Some(told));
        exercise(&a, &b, 1 << 16);
        if told != PathMtu::Mtu4096 {
            let options = ConnectOptions { gid_index: of[0], path_mtu: Some(PathMtu::Mtu4096), ..options(1) };
            let a = Side::new(&contexts[0], QpType::Rc, 64);
            let error = a.qp.connect(&b.qp.endpoint(&options).unwrap(), &options).unwrap_err().to_string();
            assert!(error.contains("the largest is 2048"), "{error}");
            continue;
        }
        // Under a live queue pair.
        let (a, b) = sides(&contexts, 1 << 17);
        connect_by(&a, &b, of, |o| (o.path_mtu, o.timeout, o.retry_cnt) = (Some(told), 13, 3));
        assert_eq!(send_once(&a, &b, 1 << 14), WcStatus::Success);
        b.success(&a, 1);
        for end in &ends {
            end.ip("link set eth0 mtu 1500");
        }
        assert_eq!(send_once(&a, &b, 1 << 14), WcStatus::RetryExcErr);
        let start = Instant::now();
        while contexts[0].query_port().active_mtu != Some(PathMtu::Mtu1024) {
            assert!(start.elapsed() < PATIENCE, "{:?}", contexts[0].query_port());
            std::thread::sleep(Duration::from_millis(5));
        }
        let (a, b) = sides(&contexts, 1 << 17);
        connect_by(&a, &b, of, |_| ());
        exercise(&a, &b, 1 << 16);
    }
}

/// A port that tells at its end where its chunks were.
struct Audited {
    port: XdpPort,
    accounts: Arc<Mutex<Vec<FrameAccount>>>,
}

impl Drop for Audited {
    fn drop(&mut self) {
        self.port.rx_release();
        self.accounts.lock().unwrap().push(self.port.frame_account());
    }
}

impl Layer for Audited {
    type Below = XdpPort;

    fn below(&self) -> &XdpPort {
        &self.port
    }

    fn below_mut(&mut self) -> &mut XdpPort {
        &mut self.port
    }
}

/// Loss, link flaps and queue pairs that are destroyed with frames under way: at the end every chunk of frame memory is where it
/// should be. (In debug builds the sums are looked at in every round.)
#[test]
fn h38_no_chunk_is_lost_in_loss_flaps_and_destroys() {
    const TEST: &str = "h38_no_chunk_is_lost_in_loss_flaps_and_destroys";
    let Some(ends) = joined(TEST, 4300) else { return };
    let accounts = Arc::new(Mutex::new(Vec::new()));
    let macs = [ends[0].mac("eth0"), ends[1].mac("eth0")].map(|mac| <[u8; 6]>::try_from(mac).unwrap());
    let addresses = ["10.9.0.1", "10.9.0.2"].map(common::ip);
    let mut contexts = Vec::new();
    for (i, end) in ends.iter().enumerate() {
        let mut config = XdpConfig::new("eth0");
        config.addresses = vec![addresses[i]];
        config.faults = Faults { drop_per_64k: 650, ..Faults::default() };
        (config.rx_ring, config.tx_ring) = (256, 256);
        let port = match end.run(|| XdpPort::open(&config)) {
            Ok(port) => port,
            Err(error) => return common::netns::skip(TEST, &error.to_string()).unwrap_or_default(),
        };
        let port = Audited { port, accounts: accounts.clone() };
        let builder = Device::on_port(Box::new(port), &[addresses[i]]).neighbour(addresses[1 - i], macs[1 - i]);
        contexts.push(builder.progress(Progress::Event).open().unwrap());
    }
    let contexts: [Context; 2] = contexts.try_into().unwrap();
    let lost = || contexts.iter().map(|c| c.counters().unwrap()[0].2.qp.resent_pkts).sum::<u64>();
    let start = Instant::now();
    let mut rounds = 0;
    // Longer where the machine is busy with other things.
    while start.elapsed() < Duration::from_secs(3)
        || (start.elapsed() < common::PATIENCE && (rounds <= 5 || lost() == 0))
    {
        rounds += 1;
        let (a, b) = sides(&contexts, 1 << 18);
        connect_by(&a, &b, [0, 0], |o| (o.path_mtu, o.timeout) = (Some(PathMtu::Mtu4096), 12));
        let (va, rkey) = (b.mr.addr(), b.mr.rkey());
        (0..32).for_each(|id| {
            a.send(id, SendOp::Write { va, rkey }, &[a.sge(0, 1 << 16)]);
            a.send(id, SendOp::Read { va, rkey }, &[a.sge(1 << 17, 3 << 16)]);
        });
        if rounds % 3 == 0 {
            ends[rounds % 2].ip("link set eth0 down");
            ends[rounds % 2].ip("link set eth0 up");
        }
        if rounds % 2 == 0 {
            assert_eq!(a.wc(&b).status, WcStatus::Success);
        }
        // Destroyed with most of it under way.
    }
    assert!(rounds > 5 && lost() > 0, "{rounds} rounds, {} packets sent again", lost());
    drop(contexts);
    let accounts = accounts.lock().unwrap();
    assert_eq!(accounts.len(), 2);
    for account in accounts.iter() {
        assert!(account.adds_up(), "{account:?}");
        assert_eq!(account.held, 0, "{account:?}");
    }
}
