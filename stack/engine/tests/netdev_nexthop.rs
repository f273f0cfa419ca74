//! Next hops against the kernel's routing and neighbour tables.

mod netdev_netns;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use netdev_netns::{Namespace, gid, link_local, poll_until, skip, text};
use xroce_engine::netdev::{BadMac, Change, Mac};
use xroce_engine::nexthop::{DEFAULT_HOP_LIMIT, NextHopKind, Refusal, ResolveError};

const PATIENCE: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(150);

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an IP address")
}

/// Two hosts on one link.
fn two_hosts(test: &str) -> Option<(Namespace, Namespace)> {
    let [a, b] = Namespace::several(test)?;
    a.veth("eth0", &b, "eth0");
    for (ns, n) in [(&a, 1), (&b, 2)] {
        ns.ip(&format!("addr add 192.0.2.{n}/24 dev eth0"));
        ns.ip(&format!("addr add fd00::{n}/64 dev eth0"));
    }
    Some((a, b))
}

#[test]
fn on_link_destinations_resolve_to_the_peers_mac() {
    let Some((a, b)) = two_hosts("on_link_destinations_resolve_to_the_peers_mac") else { return };
    let (here, there) = (a.open("eth0"), b.open("eth0"));
    for (src, dst) in [("192.0.2.1", "192.0.2.2"), ("fd00::1", "fd00::2")] {
        let hop = here.resolver().resolve(gid(src), gid(dst), PATIENCE).unwrap();
        assert_eq!((hop.kind, hop.neighbour), (NextHopKind::OnLink, ip(dst)));
        assert_eq!((hop.dst_mac, hop.src_mac), (there.facts().mac, here.facts().mac));
        assert_eq!((hop.vlan, hop.hop_limit, hop.mtu), (None, DEFAULT_HOP_LIMIT, 1500));
    }
}

#[test]
fn link_local_destinations_resolve_both_ways() {
    let Some((a, b)) = two_hosts("link_local_destinations_resolve_both_ways") else { return };
    // A second link with link-local addresses on both hosts: the right one must be chosen.
    a.veth("eth1", &b, "eth1");
    let (here, there) = (a.open("eth0"), b.open("eth0"));
    let (mut watch_here, mut watch_there) = (here.monitor().unwrap(), there.monitor().unwrap());
    let (local_here, local_there) = (link_local(&mut watch_here), link_local(&mut watch_there));
    let forth = here.resolver().resolve(local_here, local_there, PATIENCE).unwrap();
    assert_eq!((forth.kind, forth.dst_mac), (NextHopKind::OnLink, there.facts().mac));
    let back = there.resolver().resolve(local_there, local_here, PATIENCE).unwrap();
    assert_eq!((back.kind, back.dst_mac), (NextHopKind::OnLink, here.facts().mac));
}

/// Three namespaces, the middle one forwards.
fn with_router(test: &str) -> Option<(Namespace, Namespace, Namespace)> {
    let [a, router, b] = Namespace::several(test)?;
    a.veth("eth0", &router, "west");
    b.veth("eth0", &router, "east");
    for (ns, interface, net, n) in
        [(&a, "eth0", 1, 1), (&router, "west", 1, 254), (&router, "east", 2, 254), (&b, "eth0", 2, 2)]
    {
        ns.ip(&format!("addr add 10.0.{net}.{n}/24 dev {interface}"));
        ns.ip(&format!("addr add fd00:{net}::{n}/64 dev {interface}"));
    }
    a.ip("route add default via 10.0.1.254");
    a.ip("-6 route add default via fd00:1::254");
    Some((a, router, b))
}

/// Report H11.
#[test]
fn off_link_destinations_go_to_the_gateway() {
    let Some((a, router, _b)) = with_router("off_link_destinations_go_to_the_gateway") else { return };
    let gateway = router.open("west").facts().mac;
    let here = a.open("eth0");
    let cases = [("10.0.1.1", "10.0.2.2", "10.0.1.254"), ("fd00:1::1", "fd00:2::2", "fd00:1::254")];
    for (src, dst, via) in cases {
        let hop = here.resolver().resolve(gid(src), gid(dst), PATIENCE).unwrap();
        assert_eq!((hop.kind, hop.neighbour), (NextHopKind::Gateway(ip(via)), ip(via)));
        assert_eq!(hop.dst_mac, gateway);
        assert!(hop.hop_limit > 1);
    }
}

#[test]
fn hop_limit_and_mtu_of_the_route_count() {
    let Some((a, _router, _b)) = with_router("hop_limit_and_mtu_of_the_route_count") else { return };
    a.ip("route add 10.0.2.0/24 via 10.0.1.254 hoplimit 17 mtu 1300");
    a.ip("-6 route add fd00:2::/64 via fd00:1::254 hoplimit 18 mtu 1310");
    let resolver = a.open("eth0").resolver();
    let v4 = resolver.resolve(gid("10.0.1.1"), gid("10.0.2.2"), PATIENCE).unwrap();
    assert_eq!((v4.hop_limit, v4.mtu), (17, 1300));
    let v6 = resolver.resolve(gid("fd00:1::1"), gid("fd00:2::2"), PATIENCE).unwrap();
    assert_eq!((v6.hop_limit, v6.mtu), (18, 1310));
}

#[test]
fn a_v4_route_over_a_v6_gateway_resolves() {
    let Some((a, router, _b)) = with_router("a_v4_route_over_a_v6_gateway_resolves") else { return };
    a.ip("route add 10.0.2.0/24 via inet6 fd00:1::254 dev eth0");
    let hop = a.open("eth0").resolver().resolve(gid("10.0.1.1"), gid("10.0.2.2"), PATIENCE).unwrap();
    assert_eq!((hop.kind, hop.dst_mac), (NextHopKind::Gateway(ip("fd00:1::254")), router.open("west").facts().mac));
}

/// Report H05.
#[test]
// rule: path.link-local
fn link_local_does_not_cross_a_router() {
    let Some((a, _router, b)) = with_router("link_local_does_not_cross_a_router") else { return };
    let (here, there) = (a.open("eth0"), b.open("eth0"));
    let local_here = link_local(&mut here.monitor().unwrap());
    let local_there = link_local(&mut there.monitor().unwrap());
    // As source: known at once.
    let start = Instant::now();
    let error = here.resolver().resolve(local_here, gid("fd00:2::2"), PATIENCE).unwrap_err();
    assert!(matches!(&error, ResolveError::LinkLocalRouted { gid, .. } if *gid == local_here), "{error}");
    assert!(error.to_string().contains(&local_here.to_string()), "{error}");
    assert!(start.elapsed() < Duration::from_secs(1));
    // As destination: whoever is not on this link does not answer.
    let error = here.resolver().resolve(local_here, local_there, SHORT).unwrap_err();
    assert!(matches!(error, ResolveError::NoAnswer { .. }), "{error}");
    assert!(error.to_string().contains(&local_there.to_string()), "{error}");
    // By a route somebody made.
    a.ip(&format!("-6 route add {}/128 via fd00:1::254 dev eth0", local_there));
    let error = here.resolver().resolve(gid("fd00:1::1"), local_there, PATIENCE).unwrap_err();
    assert!(matches!(&error, ResolveError::LinkLocalRouted { gid, .. } if *gid == local_there), "{error}");
}

/// The wait ends in time with the address and interface in the text; later the same call works.
/// Report H10.
#[test]
fn an_unused_address_fails_in_time_and_works_once_the_peer_is_there() {
    let Some((a, b)) = two_hosts("an_unused_address_fails_in_time_and_works_once_the_peer_is_there") else { return };
    let resolver = a.open("eth0").resolver();
    for (src, dst) in [("192.0.2.1", "192.0.2.99"), ("fd00::1", "fd00::99")] {
        let start = Instant::now();
        let error = resolver.resolve(gid(src), gid(dst), SHORT).unwrap_err();
        let took = start.elapsed();
        assert!(took >= SHORT && took < SHORT + Duration::from_secs(1), "{took:?}");
        assert!(matches!(error, ResolveError::NoAnswer { .. }), "{error}");
        let told = error.to_string();
        assert!(told.contains(dst) && told.contains("eth0"), "{told}");
    }
    b.ip("addr add 192.0.2.99/24 dev eth0");
    b.ip("addr add fd00::99/64 dev eth0");
    let peer = b.open("eth0").facts().mac;
    for (src, dst) in [("192.0.2.1", "192.0.2.99"), ("fd00::1", "fd00::99")] {
        assert_eq!(resolver.resolve(gid(src), gid(dst), PATIENCE).unwrap().dst_mac, peer);
    }
}

/// The kernel gives up after three requests; the wait goes on and asks again.
/// Report H10.
#[test]
fn a_peer_that_comes_up_after_the_kernel_gave_up_is_found_within_the_wait() {
    let Some((a, b)) = two_hosts("a_peer_that_comes_up_after_the_kernel_gave_up_is_found_within_the_wait") else {
        return;
    };
    // A request every 50 ms, so that three of them are over soon.
    a.sysctl("net/ipv4/neigh/eth0/retrans_time_ms", "50");
    let here = a.open("eth0");
    let mut monitor = here.monitor().unwrap();
    let dst = "192.0.2.99";
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| here.resolver().resolve(gid("192.0.2.1"), gid(dst), PATIENCE));
        poll_until(&mut monitor, |c| *c == Change::NeighbourChanged { address: ip(dst), mac: None });
        b.ip(&format!("addr add {dst}/24 dev eth0"));
        let hop = waiting.join().unwrap().unwrap();
        assert_eq!(hop.dst_mac, b.open("eth0").facts().mac);
    });
}

/// IPv6 link-local included: an address of our own never goes on the wire.
#[test]
fn h08_destinations_on_this_host_are_local() {
    let Some((a, _b)) = two_hosts("h08_destinations_on_this_host_are_local") else { return };
    a.ip("link add other type veth peer name other-peer");
    a.ip("link set other up");
    a.ip("link set other-peer up");
    a.ip("addr add 198.51.100.1/24 dev other");
    a.ip("addr add fd99::1/64 dev other");
    let here = a.open("eth0");
    let local = link_local(&mut here.monitor().unwrap());
    for address in [gid("192.0.2.1"), gid("fd00::1"), local] {
        let hop = here.resolver().resolve(address, address, PATIENCE).unwrap();
        assert_eq!((hop.kind, hop.dst_mac), (NextHopKind::Local, Mac::ZERO), "{address}");
    }
    // What another interface holds is refused with its name: nobody would hear a packet that loops inside.
    for (src, dst, holder) in [
        (gid("192.0.2.1"), gid("198.51.100.1"), "other"),
        (gid("fd00::1"), gid("fd99::1"), "other"),
        (gid("192.0.2.1"), gid("127.0.0.1"), "lo"),
        (gid("192.0.2.1"), gid("127.1.2.3"), "lo"),
    ] {
        let error = here.resolver().resolve(src, dst, PATIENCE).unwrap_err();
        assert!(matches!(&error, ResolveError::LocalElsewhere { holder: h, .. } if h == holder), "{dst}: {error}");
    }
}

/// Both ends of a link in one namespace: the other end's addresses are this host's, its link-local one is a station on
/// our link.
#[test]
fn h08_a_link_between_two_interfaces_of_one_host() {
    let Some(ns) = Namespace::new("h08_a_link_between_two_interfaces_of_one_host") else { return };
    ns.veth("left", &ns, "right");
    ns.ip("addr add 192.0.2.1/24 dev left");
    ns.ip("addr add 192.0.2.2/24 dev right");
    let (left, right) = (ns.open("left"), ns.open("right"));
    let error = left.resolver().resolve(gid("192.0.2.1"), gid("192.0.2.2"), PATIENCE).unwrap_err();
    assert!(matches!(&error, ResolveError::LocalElsewhere { holder, .. } if holder == "right"), "{error}");
    let local_left = link_local(&mut left.monitor().unwrap());
    let local_right = link_local(&mut right.monitor().unwrap());
    let hop = left.resolver().resolve(local_left, local_right, PATIENCE).unwrap();
    assert_eq!((hop.kind, hop.dst_mac), (NextHopKind::OnLink, right.facts().mac));
}

#[test]
fn a_route_by_another_interface_is_refused_by_name() {
    let Some((a, _b)) = two_hosts("a_route_by_another_interface_is_refused_by_name") else { return };
    a.veth("mgmt0", &a, "mgmt1");
    a.ip("addr add 198.51.100.1/24 dev mgmt0");
    a.ip("addr add fd99::1/64 dev mgmt0");
    let resolver = a.open("eth0").resolver();
    for (src, dst) in [("192.0.2.1", "198.51.100.7"), ("fd00::1", "fd99::7")] {
        let error = resolver.resolve(gid(src), gid(dst), SHORT).unwrap_err();
        let ResolveError::WrongInterface { takes, .. } = &error else { panic!("{error}") };
        assert_eq!(takes, "mgmt0");
        assert!(error.to_string().contains(dst) && error.to_string().contains("eth0"), "{error}");
    }
}

/// Two interfaces in the same subnet: each reaches the peer on its own link, whichever route the kernel prefers.
#[test]
fn two_links_in_one_subnet_are_each_used_by_their_own_interface() {
    let Some((a, b)) = two_hosts("two_links_in_one_subnet_are_each_used_by_their_own_interface") else { return };
    a.veth("eth1", &b, "eth1");
    for (ns, n) in [(&a, 11), (&b, 12)] {
        ns.ip(&format!("addr add 192.0.2.{n}/24 dev eth1"));
        ns.ip(&format!("addr add fd00::{n}/64 dev eth1"));
    }
    for (interface, src, dst) in [("eth0", 1, 2), ("eth1", 11, 12)] {
        let peer = b.open(interface).facts().mac;
        let resolver = a.open(interface).resolver();
        for net in ["192.0.2.", "fd00::"] {
            let (src, dst) = (format!("{net}{src}"), format!("{net}{dst}"));
            let hop = resolver.resolve(gid(&src), gid(&dst), PATIENCE).unwrap();
            assert_eq!((hop.kind, hop.dst_mac), (NextHopKind::OnLink, peer), "{dst}");
        }
    }
}

/// A route that only packets out of this interface may take.
#[test]
fn routing_rules_for_the_interface_count() {
    let test = "routing_rules_for_the_interface_count";
    let Some((a, b)) = two_hosts(test) else { return };
    let made = a.try_ip("rule add oif eth0 lookup 100");
    if !made.status.success() {
        skip::<()>(test, &format!("no routing rules in this kernel: {}", text(&made).trim()));
        return;
    }
    a.ip("route add 203.0.113.0/24 via 192.0.2.2 table 100");
    a.ip("-6 rule add oif eth0 lookup 100");
    a.ip("-6 route add fd77::/64 via fd00::2 table 100");
    let resolver = a.open("eth0").resolver();
    let peer = b.open("eth0").facts().mac;
    for (src, dst, via) in [("192.0.2.1", "203.0.113.5", "192.0.2.2"), ("fd00::1", "fd77::5", "fd00::2")] {
        let hop = resolver.resolve(gid(src), gid(dst), PATIENCE).unwrap();
        assert_eq!((hop.kind, hop.dst_mac), (NextHopKind::Gateway(ip(via)), peer), "{dst}");
    }
}

/// Several next hops: one is taken, and it is one of them.
#[test]
fn a_multipath_route_gives_one_of_its_next_hops() {
    let Some((a, b)) = two_hosts("a_multipath_route_gives_one_of_its_next_hops") else { return };
    b.ip("addr add 192.0.2.3/24 dev eth0");
    b.ip("addr add fd00::3/64 dev eth0");
    a.ip("route add 203.0.113.0/24 nexthop via 192.0.2.2 nexthop via 192.0.2.3");
    a.ip("-6 route add fd77::/64 nexthop via fd00::2 nexthop via fd00::3");
    let resolver = a.open("eth0").resolver();
    let peer = b.open("eth0").facts().mac;
    for (src, dst, vias) in
        [("192.0.2.1", "203.0.113.5", ["192.0.2.2", "192.0.2.3"]), ("fd00::1", "fd77::5", ["fd00::2", "fd00::3"])]
    {
        let hop = resolver.resolve(gid(src), gid(dst), PATIENCE).unwrap();
        assert!(vias.map(ip).contains(&hop.neighbour), "{hop:?}");
        assert_eq!((hop.kind, hop.dst_mac), (NextHopKind::Gateway(hop.neighbour), peer));
    }
}

#[test]
fn routes_that_refuse_are_told_as_such() {
    let Some((a, _b)) = two_hosts("routes_that_refuse_are_told_as_such") else { return };
    let resolver = a.open("eth0").resolver();
    let cases =
        [("blackhole", Refusal::Blackhole), ("unreachable", Refusal::Unreachable), ("prohibit", Refusal::Prohibited)];
    for (n, (kind, refusal)) in cases.into_iter().enumerate() {
        a.ip(&format!("route add {kind} 203.0.113.{n}/32"));
        a.ip(&format!("-6 route add {kind} fd77::{n}/128"));
        for (src, dst) in [("192.0.2.1", format!("203.0.113.{n}")), ("fd00::1", format!("fd77::{n}"))] {
            let error = resolver.resolve(gid(src), gid(&dst), SHORT).unwrap_err();
            assert!(
                matches!(&error, ResolveError::Refused { refusal: r, .. } if *r == refusal),
                "{kind} {dst}: {error}"
            );
            assert!(error.to_string().contains(kind), "{error}");
        }
    }
    for (src, dst) in [("192.0.2.1", "8.8.8.8"), ("fd00::1", "2001:db8::8")] {
        let error = resolver.resolve(gid(src), gid(dst), SHORT).unwrap_err();
        assert!(matches!(&error, ResolveError::Refused { refusal: Refusal::NoRoute, .. }), "{dst}: {error}");
    }
}

#[test]
fn sources_and_destinations_that_make_no_sense_are_refused() {
    let Some((a, _b)) = two_hosts("sources_and_destinations_that_make_no_sense_are_refused") else { return };
    let resolver = a.open("eth0").resolver();
    let resolve = |src: &str, dst: &str| resolver.resolve(gid(src), gid(dst), SHORT).unwrap_err();
    assert!(matches!(resolve("192.0.2.55", "192.0.2.2"), ResolveError::SourceNotOurs { .. }));
    assert!(matches!(resolve("192.0.2.1", "fd00::2"), ResolveError::MixedFamilies { .. }));
    for (src, dst) in
        [("192.0.2.1", "192.0.2.255"), ("192.0.2.1", "224.0.0.5"), ("fd00::1", "ff02::1"), ("fd00::1", "::")]
    {
        assert!(matches!(resolve(src, dst), ResolveError::NotUnicast { .. }), "{dst}");
    }
    // A removed address is no source any more.
    a.ip("addr del 192.0.2.1/24 dev eth0");
    assert!(matches!(resolve("192.0.2.1", "192.0.2.2"), ResolveError::SourceNotOurs { .. }));
}

#[test]
fn an_interface_that_is_down_is_told_as_such() {
    let Some((a, _b)) = two_hosts("an_interface_that_is_down_is_told_as_such") else { return };
    let resolver = a.open("eth0").resolver();
    a.ip("link set eth0 down");
    let error = resolver.resolve(gid("192.0.2.1"), gid("192.0.2.2"), SHORT).unwrap_err();
    assert!(matches!(&error, ResolveError::Refused { refusal: Refusal::InterfaceDown, .. }), "{error}");
    a.ip("link set eth0 up");
    assert!(resolver.resolve(gid("192.0.2.1"), gid("192.0.2.2"), PATIENCE).is_ok());
}

#[test]
// rule: path.next-hop
fn h09_mac_addresses_that_no_other_single_station_has_are_errors() {
    let Some((a, _b)) = two_hosts("h09_mac_addresses_that_no_other_single_station_has_are_errors") else { return };
    let here = a.open("eth0");
    let own = here.facts().mac.to_string();
    let cases = [
        ("00:00:00:00:00:00", BadMac::Zero),
        ("ff:ff:ff:ff:ff:ff", BadMac::Group),
        ("01:00:5e:00:00:01", BadMac::Group),
        (own.as_str(), BadMac::Own),
    ];
    for (mac, expected) in cases {
        for (src, dst) in [("192.0.2.1", "192.0.2.66"), ("fd00::1", "fd00::66")] {
            a.ip(&format!("neigh replace {dst} dev eth0 lladdr {mac} nud permanent"));
            let error = here.resolver().resolve(gid(src), gid(dst), SHORT).unwrap_err();
            let ResolveError::BadMac { why, .. } = &error else { panic!("{dst} {mac}: {error}") };
            assert_eq!(*why, expected);
            assert!(error.to_string().contains(dst) && error.to_string().contains("eth0"), "{error}");
        }
    }
}

/// A link without address resolution: the kernel fills in the interface's own MAC address.
#[test]
fn h09_a_link_without_arp_is_an_error() {
    let Some((a, _b)) = two_hosts("h09_a_link_without_arp_is_an_error") else { return };
    a.ip("link set eth0 arp off");
    let error = a.open("eth0").resolver().resolve(gid("192.0.2.1"), gid("192.0.2.2"), SHORT).unwrap_err();
    assert!(matches!(&error, ResolveError::BadMac { why: BadMac::Own | BadMac::Zero, .. }), "{error}");
}

#[test]
fn h09_interfaces_without_ethernet_are_an_error() {
    let test = "h09_interfaces_without_ethernet_are_an_error";
    let Some(ns) = Namespace::new(test) else { return };
    let made = ns.try_ip("tuntap add dev tun0 mode tun");
    if !made.status.success() {
        skip::<()>(test, text(&made).trim());
        return;
    }
    ns.ip("link set tun0 up");
    ns.ip("addr add 192.0.2.1/24 dev tun0");
    let error = ns.open("tun0").resolver().resolve(gid("192.0.2.1"), gid("192.0.2.2"), SHORT).unwrap_err();
    assert!(matches!(&error, ResolveError::NotEthernet { interface } if interface == "tun0"), "{error}");
}

/// A dummy interface swallows what it is given: nobody answers.
#[test]
fn h09_nobody_answers_on_a_dummy_interface() {
    let test = "h09_nobody_answers_on_a_dummy_interface";
    let Some(ns) = Namespace::new(test) else { return };
    let made = ns.try_ip("link add dummy0 type dummy");
    if !made.status.success() {
        skip::<()>(test, &format!("no dummy interfaces in this kernel: {}", text(&made).trim()));
        return;
    }
    ns.ip("link set dummy0 up");
    ns.ip("addr add 192.0.2.1/24 dev dummy0");
    let error = ns.open("dummy0").resolver().resolve(gid("192.0.2.1"), gid("192.0.2.2"), SHORT).unwrap_err();
    assert!(matches!(&error, ResolveError::NoAnswer { .. } | ResolveError::BadMac { .. }), "{error}");
}

/// Without `CAP_NET_ADMIN` the kernel is made to ask by a datagram instead.
#[test]
fn a_neighbour_is_found_without_the_right_to_change_the_table() {
    let Some((a, b)) = two_hosts("a_neighbour_is_found_without_the_right_to_change_the_table") else { return };
    let peer = b.open("eth0").facts().mac;
    let local_peer = link_local(&mut b.open("eth0").monitor().unwrap());
    let local = link_local(&mut a.open("eth0").monitor().unwrap());
    a.run(|| {
        netdev_netns::drop_capabilities();
        let resolver = xroce_engine::netdev::Netdev::open("eth0").unwrap().resolver();
        for (src, dst) in [(gid("192.0.2.1"), gid("192.0.2.2")), (gid("fd00::1"), gid("fd00::2")), (local, local_peer)]
        {
            assert_eq!(resolver.resolve(src, dst, PATIENCE).unwrap().dst_mac, peer, "{dst}");
        }
    });
}
