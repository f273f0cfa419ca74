//! Facts of real interfaces, in namespaces of the test's own.

mod netdev_netns;

use netdev_netns::{Namespace, poll_until, skip, text};
use xroce_engine::netdev::{Change, Mac, Netdev, NetdevKind, OpenError, PortState};
use xroce_wire::PathMtu;

#[test]
fn veth_facts_are_those_of_ip_link() {
    let Some(ns) = Namespace::new("veth_facts_are_those_of_ip_link") else { return };
    ns.ip("link add eth0 address 02:00:00:00:00:01 mtu 1800 numrxqueues 4 type veth peer name eth1");
    let netdev = ns.open("eth0");
    let facts = netdev.facts();
    assert_eq!((facts.name.as_str(), facts.mac, facts.mtu), ("eth0", Mac([2, 0, 0, 0, 0, 1]), 1800));
    assert_eq!((&facts.kind, facts.driver.as_str()), (&NetdevKind::Veth, "veth"));
    assert!(facts.is_veth() && facts.ethernet && !facts.lro);
    assert_eq!((facts.state, facts.rx_queues, facts.vlan_id()), (PortState::Down, 4, None));
}

#[test]
fn loopback_tap_and_tun_are_told_apart() {
    let Some(ns) = Namespace::new("loopback_tap_and_tun_are_told_apart") else { return };
    assert_eq!(ns.open("lo").facts().kind, NetdevKind::Loopback);
    let made = ns.try_ip("tuntap add dev tap0 mode tap");
    if !made.status.success() {
        skip::<()>("loopback_tap_and_tun_are_told_apart", text(&made).trim());
        return;
    }
    ns.ip("tuntap add dev tun0 mode tun");
    let tap = ns.open("tap0");
    assert_eq!((&tap.facts().kind, tap.facts().ethernet), (&NetdevKind::Tap, true));
    let tun = ns.open("tun0");
    assert_eq!((&tun.facts().kind, tun.facts().ethernet, tun.facts().mac), (&NetdevKind::Tun, false, Mac::ZERO));
}

#[test]
fn vlan_names_its_parent_and_id() {
    let test = "vlan_names_its_parent_and_id";
    let Some(ns) = Namespace::new(test) else { return };
    ns.ip("link add eth0 type veth peer name eth1");
    let made = ns.try_ip("link add link eth0 name eth0.20 type vlan id 20");
    if !made.status.success() {
        skip::<()>(test, &format!("no VLAN devices in this kernel: {}", text(&made).trim()));
        return;
    }
    let parent = ns.open("eth0").facts().ifindex;
    let vlan = ns.open("eth0.20");
    assert_eq!(vlan.facts().kind, NetdevKind::Vlan { parent, parent_name: Some("eth0".into()), id: 20 });
    assert_eq!(vlan.facts().vlan_id(), Some(20));
}

#[test]
fn every_name_of_an_interface_opens_it() {
    let test = "every_name_of_an_interface_opens_it";
    let Some(ns) = Namespace::new(test) else { return };
    // They differ in the last byte that a name can have.
    let names = ["fifteen-bytes-a", "fifteen-bytes-b"];
    ns.ip(&format!("link add {} type veth peer name {}", names[0], names[1]));
    let others = ["short", "a-name-longer-than-an-interface-can-have"];
    for other in others {
        let made = ns.try_ip(&format!("link property add dev {} altname {other}", names[1]));
        if !made.status.success() {
            skip::<()>(test, &format!("no alternative names in this kernel: {}", text(&made).trim()));
            return;
        }
    }
    for (name, real) in [(names[0], names[0]), (names[1], names[1]), (others[0], names[1]), (others[1], names[1])] {
        assert_eq!(ns.open(name).facts().name, real, "{name}");
    }
}

#[test]
fn unknown_name_lists_the_existing_ones() {
    let Some(ns) = Namespace::new("unknown_name_lists_the_existing_ones") else { return };
    ns.ip("link add eth0 type veth peer name eth1");
    for name in ["eth9", "", "a-name-longer-than-an-interface-can-have"] {
        let error = ns.run(|| Netdev::open(name)).expect_err("no such interface");
        let OpenError::UnknownNetdev { existing, .. } = &error else { panic!("{name:?}: {error}") };
        for there in ["lo", "eth0", "eth1"] {
            assert!(existing.iter().any(|e| e == there), "{error}");
            assert!(error.to_string().contains(there), "{error}");
        }
    }
}

/// The largest path MTU whose packets with all headers fit the interface MTU (IBTA annex A17; 96 bytes are kept).
#[test]
fn port_mtu_follows_the_interface_mtu() {
    let Some(ns) = Namespace::new("port_mtu_follows_the_interface_mtu") else { return };
    ns.ip("link add eth0 type veth peer name eth1");
    let mut netdev = ns.open("eth0");
    let mut monitor = netdev.monitor().unwrap();
    let table = [
        (576, Some(PathMtu::Mtu256)),
        (1500, Some(PathMtu::Mtu1024)),
        (2200, Some(PathMtu::Mtu2048)),
        (4200, Some(PathMtu::Mtu4096)),
        (9000, Some(PathMtu::Mtu4096)),
        (300, None),
    ];
    for (mtu, expected) in table {
        ns.ip(&format!("link set eth0 mtu {mtu}"));
        assert_eq!(netdev.refresh().unwrap().port_mtu(), expected, "MTU {mtu}");
        if mtu != 1500 {
            poll_until(&mut monitor, |c| *c == Change::MtuChanged { mtu });
            assert_eq!(monitor.facts().port_mtu(), expected, "MTU {mtu}");
        }
    }
}

#[test]
fn link_and_mac_changes_are_told() {
    let Some(ns) = Namespace::new("link_and_mac_changes_are_told") else { return };
    ns.ip("link add eth0 type veth peer name eth1");
    let netdev = ns.open("eth0");
    let mut monitor = netdev.monitor().unwrap();
    assert_eq!(monitor.poll().unwrap(), []);

    ns.ip("link set eth0 up");
    ns.ip("link set eth1 up");
    poll_until(&mut monitor, |c| *c == Change::LinkUp);
    assert_eq!(monitor.facts().state, PortState::Active);

    // The other end goes down: up by the administrator's will, but without carrier.
    ns.ip("link set eth1 down");
    poll_until(&mut monitor, |c| *c == Change::LinkDown);
    assert_eq!(monitor.facts().state, PortState::Down);

    ns.ip("link set eth0 address 02:00:00:00:00:77");
    poll_until(&mut monitor, |c| *c == Change::MacChanged { mac: Mac([2, 0, 0, 0, 0, 0x77]) });

    ns.ip("link del eth0");
    let changes = poll_until(&mut monitor, |c| *c == Change::Gone);
    assert_eq!(changes.iter().filter(|c| **c == Change::Gone).count(), 1);
    assert!(monitor.gids().is_empty());
    assert_eq!(monitor.poll().unwrap(), []);
}

#[test]
fn a_renamed_interface_stays_itself() {
    let Some(ns) = Namespace::new("a_renamed_interface_stays_itself") else { return };
    ns.ip("link add eth0 type veth peer name eth1");
    let mut netdev = ns.open("eth0");
    let ifindex = netdev.facts().ifindex;
    ns.ip("link set eth0 name roce0");
    assert_eq!(netdev.refresh().unwrap().name, "roce0");
    assert_eq!((netdev.facts().ifindex, netdev.facts().driver.as_str()), (ifindex, "veth"));
}

/// Leaving a bridge is announced with a message that reads like the removal of the interface.
#[test]
fn leaving_a_bridge_is_not_the_end() {
    let test = "leaving_a_bridge_is_not_the_end";
    let Some(ns) = Namespace::new(test) else { return };
    ns.ip("link add eth0 type veth peer name eth1");
    let made = ns.try_ip("link add br0 type bridge");
    if !made.status.success() {
        skip::<()>(test, &format!("no bridges in this kernel: {}", text(&made).trim()));
        return;
    }
    let netdev = ns.open("eth0");
    let mut monitor = netdev.monitor().unwrap();
    ns.ip("link set eth0 master br0");
    ns.ip("link set eth0 nomaster");
    ns.ip("link set eth0 mtu 1400");
    let changes = poll_until(&mut monitor, |c| *c == Change::MtuChanged { mtu: 1400 });
    assert!(!changes.contains(&Change::Gone), "{changes:?}");
}

#[test]
fn an_interface_that_moves_to_another_namespace_is_gone() {
    let test = "an_interface_that_moves_to_another_namespace_is_gone";
    let Some([ns, other]) = Namespace::several(test) else { return };
    ns.ip("link add eth0 type veth peer name eth1");
    let mut netdev = ns.open("eth0");
    let mut monitor = netdev.monitor().unwrap();
    ns.ip(&format!("link set eth0 netns {}", other.name()));
    poll_until(&mut monitor, |c| *c == Change::Gone);
    assert_eq!(netdev.refresh().unwrap_err().errno(), Some(libc::ENODEV));
}

#[test]
fn the_monitor_can_be_taken_once() {
    let Some(ns) = Namespace::new("the_monitor_can_be_taken_once") else { return };
    let netdev = ns.open("lo");
    assert!(netdev.monitor().is_ok());
    let second = netdev.monitor().map(drop).unwrap_err();
    assert!(second.to_string().contains("taken already"), "{second}");
}

/// The same interface name (and here the same index) in two namespaces: each instance stays with its own, whatever
/// thread uses it.
#[test]
fn h30_two_namespaces_with_the_same_interface_name_do_not_mix() {
    let test = "h30_two_namespaces_with_the_same_interface_name_do_not_mix";
    let Some([a, b]) = Namespace::several(test) else { return };
    for (ns, mtu, address) in [(&a, 1600, "192.0.2.1"), (&b, 1700, "192.0.2.2")] {
        ns.ip(&format!("link add eth0 index 50 mtu {mtu} type veth peer name eth1"));
        ns.ip("link set eth0 up");
        ns.ip(&format!("addr add {address}/24 dev eth0"));
    }
    let (mut one, mut two) = (a.open("eth0"), b.open("eth0"));
    assert_eq!(one.facts().ifindex, two.facts().ifindex);
    let (mut watch_one, watch_two) = (one.monitor().unwrap(), two.monitor().unwrap());

    // This thread is in neither namespace; a thread inside the other one must not matter either.
    b.run(|| assert_eq!(one.refresh().unwrap().mtu, 1600));
    a.run(|| assert_eq!(two.refresh().unwrap().mtu, 1700));
    let addresses = |m: &xroce_engine::netdev::Monitor| -> Vec<String> {
        m.gids().iter().filter(|e| e.address.is_ipv4()).map(|e| e.address.to_string()).collect()
    };
    assert_eq!(addresses(&watch_one), ["192.0.2.1"]);
    assert_eq!(addresses(&watch_two), ["192.0.2.2"]);

    // A change in b is not seen in a.
    b.ip("link set eth0 mtu 1111");
    a.ip("link set eth0 mtu 1222");
    let changes = poll_until(&mut watch_one, |c| matches!(c, Change::MtuChanged { .. }));
    assert!(changes.contains(&Change::MtuChanged { mtu: 1222 }), "{changes:?}");
}
