//! Devices on real interfaces: AF_XDP on the two ends of a veth, each in a network namespace of its own, both called eth0.
//! Needs the rights to make namespaces and AF_XDP sockets; skipped with a line that says so without.

mod common;

use common::netns::{Namespace, TIMEOUT, connect, connect_with, exercise, expect_event, joined, open_both, skip};
use common::{Side, options};
use std::time::Duration;
use xroce::{AsyncEventKind, ConnectOptions, Context, Device, PathMtu, PortState, Progress, QpType, SendOp, WcStatus};

/// Report H30.
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

/// Report H40.
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
    // A second address can be used as soon as it is there: the XDP program knows it too.
    for (end, last) in ends.iter().zip([1, 2]) {
        end.ip(&format!("addr add 10.9.1.{last}/24 dev eth0"));
    }
    expect_event(&ca, AsyncEventKind::GidChange);
    expect_event(&cb, AsyncEventKind::GidChange);
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
    expect_event(&ca, AsyncEventKind::PortErr);
    assert_eq!(ca.query_port().state, PortState::Down);
    b.recv(1, &[b.sge(0, 8)]);
    a.send(2, SendOp::Send, &[a.sge(0, 8)]);
    std::thread::sleep(Duration::from_millis(50));
    ends[1].ip("link set eth0 up");
    expect_event(&ca, AsyncEventKind::PortActive);
    a.success(&b, 2);
    b.success(&a, 1);
    exercise(&a, &b, 1 << 17);

    // The address goes: the peer's packets find nobody.
    ends[1].ip("addr del 10.9.1.2/24 dev eth0");
    while cb.gid_table().iter().any(|entry| entry.address.to_string() == "10.9.1.2") {
        expect_event(&cb, AsyncEventKind::GidChange);
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
