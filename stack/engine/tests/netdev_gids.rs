//! The GID table against real addresses.

mod netdev_netns;

use netdev_netns::{Namespace, gid, link_local, poll_until};
use xroce_engine::netdev::{AddressState, Change, Monitor};
use xroce_wire::Gid;

fn listing(monitor: &Monitor) -> Vec<(u8, Gid)> {
    monitor.gids().iter().map(|entry| (entry.index, entry.gid)).collect()
}

fn expect_gone(monitor: &mut Monitor, gid: Gid) {
    poll_until(monitor, |c| matches!(c, Change::GidRemoved { gid: g, .. } if *g == gid));
}

fn expect_added(monitor: &mut Monitor, gid: Gid) -> u8 {
    poll_until(monitor, |c| matches!(c, Change::GidAdded { gid: g, .. } if *g == gid));
    monitor.gids().index_of(gid).expect("it was just added")
}

#[test]
fn the_listing_has_link_local_first_then_v4_then_v6() {
    let Some(ns) = Namespace::new("the_listing_has_link_local_first_then_v4_then_v6") else { return };
    ns.veth("eth0", &ns, "eth1");
    ns.ip("addr add fd00::1/64 dev eth0");
    ns.ip("addr add fd00::2/64 dev eth0");
    ns.ip("addr add 192.0.2.1/24 dev eth0");
    ns.ip("addr add 192.0.2.2/24 dev eth0");
    let netdev = ns.open("eth0");
    let mut monitor = netdev.monitor().unwrap();
    let local = link_local(&mut monitor);
    let expected = [local, gid("192.0.2.1"), gid("192.0.2.2"), gid("fd00::1"), gid("fd00::2")];
    assert_eq!(listing(&monitor), (0u8..).zip(expected).collect::<Vec<_>>());
    assert_eq!(monitor.gids().get(1).unwrap().prefix_len, 24);
    assert_eq!(monitor.gids().get(3).unwrap().prefix_len, 64);
}

/// A link-local address that is not derived from the MAC is listed as it is, and none is made up where there is none.
/// Report H04.
#[test]
// rule: gid.table
fn only_addresses_the_interface_has_are_listed() {
    let Some(ns) = Namespace::new("only_addresses_the_interface_has_are_listed") else { return };
    ns.ip("link add eth0 type veth peer name eth1");
    ns.ip("link set eth0 addrgenmode none");
    ns.ip("link set eth1 up");
    ns.ip("link set eth0 up");
    ns.ip("addr add 192.0.2.1/24 dev eth0");
    let netdev = ns.open("eth0");
    let mut monitor = netdev.monitor().unwrap();
    assert_eq!(listing(&monitor), [(0, gid("192.0.2.1"))]);
    ns.ip("addr add fe80::1234/64 dev eth0");
    assert_eq!(expect_added(&mut monitor, gid("fe80::1234")), 1);
}

/// Report H06.
#[test]
// rule: gid.index
fn indices_stay_while_addresses_stay() {
    let Some(ns) = Namespace::new("indices_stay_while_addresses_stay") else { return };
    ns.veth("eth0", &ns, "eth1");
    let [a, b, c] = ["198.51.100.1", "198.51.100.2", "198.51.100.3"];
    for address in [a, b, c] {
        ns.ip(&format!("addr add {address}/32 dev eth0"));
    }
    let netdev = ns.open("eth0");
    let mut monitor = netdev.monitor().unwrap();
    let local = link_local(&mut monitor);
    assert_eq!(listing(&monitor), [(0, local), (1, gid(a)), (2, gid(b)), (3, gid(c))]);

    // Removed: the others keep their places.
    ns.ip(&format!("addr del {a}/32 dev eth0"));
    expect_gone(&mut monitor, gid(a));
    ns.ip(&format!("addr del {b}/32 dev eth0"));
    expect_gone(&mut monitor, gid(b));
    assert_eq!(listing(&monitor), [(0, local), (3, gid(c))]);
    assert_eq!(monitor.gids().get(1), None);

    // Added again in the other order: lowest free place first, so the two have changed places.
    ns.ip(&format!("addr add {b}/32 dev eth0"));
    assert_eq!(expect_added(&mut monitor, gid(b)), 1);
    ns.ip(&format!("addr add {a}/32 dev eth0"));
    assert_eq!(expect_added(&mut monitor, gid(a)), 2);
    assert_eq!(listing(&monitor), [(0, local), (1, gid(b)), (2, gid(a)), (3, gid(c))]);
}

/// While duplicate detection runs, the address is not listed, but its place is kept: nothing moves when it turns usable.
/// Report H04.
#[test]
fn a_tentative_address_is_not_listed_until_it_is_confirmed() {
    let Some(ns) = Namespace::new("a_tentative_address_is_not_listed_until_it_is_confirmed") else { return };
    ns.sysctl("net/ipv6/conf/default/accept_dad", "1");
    ns.veth("eth0", &ns, "eth1");
    // Ten probes take ten seconds: long enough to look.
    ns.sysctl("net/ipv6/conf/eth0/dad_transmits", "10");
    ns.ip("addr add fd00::1/64 dev eth0");
    ns.ip("addr add 192.0.2.1/24 dev eth0");
    let netdev = ns.open("eth0");
    let states = netdev.addresses().unwrap();
    let tentative = states.iter().find(|a| a.gid() == gid("fd00::1")).unwrap();
    assert_eq!(tentative.state, AddressState::Tentative);
    let mut monitor = netdev.monitor().unwrap();
    assert_eq!(monitor.gids().index_of(gid("fd00::1")), None);
    let v4 = monitor.gids().index_of(gid("192.0.2.1")).unwrap();

    ns.ip("addr del fd00::1/64 dev eth0");
    ns.ip("addr add fd00::1/64 dev eth0 nodad");
    let index = expect_added(&mut monitor, gid("fd00::1"));
    assert!(index > v4, "{index}");
    assert_eq!(monitor.gids().index_of(gid("192.0.2.1")), Some(v4));
}

/// The same address on both ends of a link: the second to come up must not use it.
/// Report H04.
#[test]
fn a_duplicate_address_is_not_listed() {
    let test = "a_duplicate_address_is_not_listed";
    let Some([a, b]) = Namespace::several(test) else { return };
    b.sysctl("net/ipv6/conf/default/accept_dad", "1");
    a.veth("eth0", &b, "eth0");
    a.ip("addr add fd00::1/64 dev eth0 nodad");
    let netdev = b.open("eth0");
    let mut monitor = netdev.monitor().unwrap();
    b.ip("addr add fd00::1/64 dev eth0");
    let start = std::time::Instant::now();
    let state_of = || netdev.addresses().unwrap().into_iter().find(|x| x.gid() == gid("fd00::1")).map(|x| x.state);
    while state_of() != Some(AddressState::Duplicate) {
        assert!(start.elapsed().as_secs() < 10, "{:?}", state_of());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let changes = monitor.poll().unwrap();
    assert!(!changes.iter().any(|c| matches!(c, Change::GidAdded { gid: g, .. } if *g == gid("fd00::1"))));
    assert_eq!(monitor.gids().index_of(gid("fd00::1")), None);
}

/// A port flap takes the IPv6 addresses away and brings the link-local one back, to its old place.
#[test]
fn a_flap_brings_the_link_local_gid_back_to_its_place() {
    let Some(ns) = Namespace::new("a_flap_brings_the_link_local_gid_back_to_its_place") else { return };
    ns.veth("eth0", &ns, "eth1");
    ns.ip("addr add 192.0.2.1/24 dev eth0");
    let netdev = ns.open("eth0");
    let mut monitor = netdev.monitor().unwrap();
    let local = link_local(&mut monitor);
    let before = listing(&monitor);
    ns.ip("link set eth0 down");
    expect_gone(&mut monitor, local);
    assert_eq!(listing(&monitor), before[1..]);
    ns.ip("link set eth0 up");
    assert_eq!(expect_added(&mut monitor, local), before[0].0);
    assert_eq!(listing(&monitor), before);
}
