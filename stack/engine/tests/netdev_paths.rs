//! The path table together with monitor and resolver, against a kernel whose tables change.

mod netdev_netns;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use netdev_netns::{Namespace, gid};
use xroce_engine::netdev::{Change, Mac, Monitor};
use xroce_engine::nexthop::{Refusal, ResolveError, Resolver};
use xroce_engine::path::{PathId, PathState, PathTable, Route};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an IP address")
}

/// A host `a` with its tables, a second router beside the first, and a host `b` behind both.
struct Lab {
    a: Namespace,
    first: Namespace,
    second: Namespace,
    _b: Namespace,
    monitor: Monitor,
    resolver: Resolver,
    paths: PathTable,
}

impl Lab {
    fn new(test: &str) -> Option<Lab> {
        let [a, first, second, b] = Namespace::several(test)?;
        // The link of a and the two routers is a bridge in the first router.
        first.ip("link add br0 type bridge");
        first.ip("link set br0 up");
        a.veth("eth0", &first, "to-a");
        second.veth("west", &first, "to-second");
        for port in ["to-a", "to-second"] {
            first.ip(&format!("link set {port} master br0"));
        }
        a.ip("addr add 10.0.1.1/24 dev eth0");
        first.ip("addr add 10.0.1.253/24 dev br0");
        second.ip("addr add 10.0.1.254/24 dev west");
        b.veth("eth0", &second, "east");
        b.ip("addr add 10.0.2.2/24 dev eth0");
        a.ip("route add default via 10.0.1.253");
        let netdev = a.open("eth0");
        let (monitor, resolver) = (netdev.monitor().unwrap(), netdev.resolver());
        Some(Lab { a, first, second, _b: b, monitor, resolver, paths: PathTable::default() })
    }

    fn add(&mut self, dst: &str) -> PathId {
        self.paths.add(gid("10.0.1.1"), gid(dst), 0, Instant::now())
    }

    /// One turn of what a control thread does.
    fn turn(&mut self) -> Vec<Change> {
        let now = Instant::now();
        let changes = self.monitor.poll().expect("the kernel answers");
        for change in &changes {
            self.paths.apply(change, now);
        }
        self.paths.refresh(&self.resolver, now);
        changes
    }

    /// Turns until frames of the path go to `mac`, or none can be sent where that is none.
    #[track_caller]
    fn turn_until(&mut self, id: PathId, mac: Option<Mac>) {
        let start = Instant::now();
        while self.mac(id) != mac {
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}, not {mac:?}", self.mac(id));
            self.turn();
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn mac(&self, id: PathId) -> Option<Mac> {
        match self.paths.route(id)? {
            Route::Wire(header) => Mac::from_slice(&header.as_bytes()[..6]),
            Route::Local => None,
        }
    }
}

fn mac_of(ns: &Namespace, interface: &str) -> Option<Mac> {
    Some(ns.open(interface).facts().mac)
}

#[test]
fn paths_open_without_anybody_waiting() {
    let Some(mut lab) = Lab::new("paths_open_without_anybody_waiting") else { return };
    let (near, far) = (lab.add("10.0.1.254"), lab.add("10.0.2.2"));
    assert_eq!(lab.mac(near), None);
    let (first, second) = (mac_of(&lab.first, "br0"), mac_of(&lab.second, "west"));
    lab.turn_until(near, second);
    lab.turn_until(far, first);
    let own = lab.add("10.0.1.1");
    lab.turn();
    assert_eq!(lab.paths.state(own), Some(PathState::Local));
    assert_eq!(lab.paths.route(own), Some(Route::Local));
}

/// ECMP fail-over, a new default route: whatever moves the route.
/// Report H11.
#[test]
fn another_gateway_takes_over_its_paths() {
    let Some(mut lab) = Lab::new("another_gateway_takes_over_its_paths") else { return };
    let far = lab.add("10.0.2.2");
    let (first, second) = (mac_of(&lab.first, "br0"), mac_of(&lab.second, "west"));
    lab.turn_until(far, first);
    lab.a.ip("route replace default via 10.0.1.254");
    lab.turn_until(far, second);
    lab.a.ip("route del default");
    lab.turn_until(far, None);
    let why = lab.paths.why(far).cloned();
    assert!(matches!(why, Some(ResolveError::Refused { refusal: Refusal::NoRoute, .. })), "{why:?}");
    lab.a.ip("route add default via 10.0.1.253");
    lab.turn_until(far, first);
}

/// The gateway gets another MAC address and says something: the kernel learns, and so do we.
#[test]
fn a_gateways_new_mac_is_taken_over_when_the_kernel_learns_it() {
    let Some(mut lab) = Lab::new("a_gateways_new_mac_is_taken_over_when_the_kernel_learns_it") else { return };
    lab.a.ip("route replace default via 10.0.1.254");
    // The kernel does not let a second ARP answer within a second change an entry.
    lab.a.sysctl("net/ipv4/neigh/eth0/locktime", "0");
    let far = lab.add("10.0.2.2");
    let before = mac_of(&lab.second, "west");
    lab.turn_until(far, before);
    lab.second.ip("link set west address 02:00:00:00:00:99");
    lab.second.send_datagram(ip("10.0.1.1"));
    lab.turn_until(far, Some(Mac([2, 0, 0, 0, 0, 0x99])));
    let hop = lab.paths.next_hop(far).expect("it is known");
    assert_eq!(hop.neighbour, ip("10.0.1.254"));
}

/// The gateway gets another MAC address and keeps quiet: nobody tells, but packets go unanswered.
#[test]
fn a_suspected_gateway_with_a_new_mac_is_found_again() {
    let Some(mut lab) = Lab::new("a_suspected_gateway_with_a_new_mac_is_found_again") else { return };
    lab.a.ip("route replace default via 10.0.1.254");
    let far = lab.add("10.0.2.2");
    let before = mac_of(&lab.second, "west");
    lab.turn_until(far, before);
    lab.second.ip("link set west address 02:00:00:00:00:99");
    for _ in 0..5 {
        lab.turn();
    }
    assert_eq!(lab.mac(far), before, "nobody told");
    // As an ACK timer does. The kernel alone would take three seconds to give up what it knows, and then wait to be asked.
    let start = Instant::now();
    while lab.mac(far) != Some(Mac([2, 0, 0, 0, 0, 0x99])) {
        lab.paths.suspect(far);
        lab.turn();
        assert!(start.elapsed() < Duration::from_secs(20), "it is not found again");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_flap_does_not_cost_the_path() {
    let Some(mut lab) = Lab::new("a_flap_does_not_cost_the_path") else { return };
    let near = lab.add("10.0.1.254");
    let peer = mac_of(&lab.second, "west");
    lab.turn_until(near, peer);
    lab.a.ip("link set eth0 down");
    lab.turn_until(near, None);
    let why = lab.paths.why(near).cloned();
    assert!(matches!(why, Some(ResolveError::Refused { refusal: Refusal::InterfaceDown, .. })), "{why:?}");
    lab.a.ip("link set eth0 up");
    lab.turn_until(near, peer);
}

#[test]
fn a_removed_source_address_stops_its_paths_until_it_is_back() {
    let Some(mut lab) = Lab::new("a_removed_source_address_stops_its_paths_until_it_is_back") else { return };
    lab.a.ip("addr add 10.0.1.11/24 dev eth0");
    let near = lab.add("10.0.1.254");
    let peer = mac_of(&lab.second, "west");
    lab.turn_until(near, peer);
    lab.a.ip("addr del 10.0.1.1/24 dev eth0");
    lab.turn_until(near, None);
    let why = lab.paths.why(near).cloned();
    assert!(matches!(&why, Some(ResolveError::SourceNotOurs { gid: g, .. }) if *g == gid("10.0.1.1")), "{why:?}");
    lab.a.ip("addr add 10.0.1.1/24 dev eth0");
    lab.turn_until(near, peer);
}

#[test]
fn our_own_new_mac_is_the_source_of_the_next_frame() {
    let Some(mut lab) = Lab::new("our_own_new_mac_is_the_source_of_the_next_frame") else { return };
    let near = lab.add("10.0.1.254");
    let peer = mac_of(&lab.second, "west");
    lab.turn_until(near, peer);
    lab.a.ip("link set eth0 address 02:00:00:00:00:55");
    netdev_netns::eventually(|| {
        lab.turn();
        matches!(lab.paths.route(near), Some(Route::Wire(header)) if header.as_bytes()[6..12] == [2, 0, 0, 0, 0, 0x55])
    });
}

/// More notifications than the socket holds: the monitor says so and everything is read again.
#[test]
fn an_overrun_is_told_and_made_good() {
    let Some(mut lab) = Lab::new("an_overrun_is_told_and_made_good") else { return };
    let near = lab.add("10.0.1.254");
    let peer = mac_of(&lab.second, "west");
    lab.turn_until(near, peer);
    let mut overran = false;
    // Routes cost the least; the receive buffer holds some thousands of their notifications.
    for round in 0..20 {
        let batch: String = (0..2000)
            .map(|n| {
                format!(
                    "route {} 172.16.{}.{}/32 dev eth0\n",
                    if round % 2 == 0 { "add" } else { "del" },
                    n / 250,
                    n % 250
                )
            })
            .collect();
        lab.a.ip_batch(&batch);
    }
    lab.a.ip("addr add 10.0.1.77/24 dev eth0");
    netdev_netns::eventually(|| {
        overran |= lab.turn().contains(&Change::Overrun);
        lab.monitor.gids().index_of(gid("10.0.1.77")).is_some()
    });
    assert!(overran);
    assert_eq!(lab.mac(near), peer);
}
