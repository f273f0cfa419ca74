//! The table by itself: no kernel, time by hand.

use super::*;
use crate::netdev::NetlinkError;

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 3]);

fn gid(text: &str) -> Gid {
    Gid::from_ip(text.parse().unwrap())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn hop(neighbour: &str, dst_mac: Mac) -> NextHop {
    let neighbour = ip(neighbour);
    NextHop { kind: NextHopKind::OnLink, neighbour, dst_mac, src_mac: OWN, vlan: None, hop_limit: 64, mtu: 1500 }
}

/// A table with one ready path, and the time.
fn ready() -> (PathTable, PathId, Instant) {
    let now = Instant::now();
    let mut table = PathTable::default();
    let id = table.insert(gid("10.0.0.1"), gid("10.0.0.2"), 0, &hop("10.0.0.2", PEER), now);
    (table, id, now)
}

fn wire(table: &PathTable, id: PathId) -> &[u8] {
    match table.route(id) {
        Some(Route::Wire(header)) => header.as_bytes(),
        other => panic!("{other:?}"),
    }
}

/// Answers everything that is due with `outcome`, without a kernel.
fn answer(table: &mut PathTable, outcome: &Result<Lookup, ResolveError>, now: Instant) -> usize {
    let due = table.due(now);
    for query in &due {
        table.complete(PathAnswer { query: *query, outcome: outcome.clone() }, now);
    }
    due.len()
}

/// Report H40.
#[test]
fn headers_are_ethernet_with_a_tag_where_there_is_a_vlan() {
    let now = Instant::now();
    let mut table = PathTable::default();
    let v4 = table.insert(gid("10.0.0.1"), gid("10.0.0.2"), 5, &hop("10.0.0.2", PEER), now);
    assert_eq!(wire(&table, v4), [&PEER.0[..], &OWN.0, &[0x08, 0x00]].concat());
    let v6 = table.insert(gid("fd00::1"), gid("fd00::2"), 0, &hop("fd00::2", PEER), now);
    assert_eq!(wire(&table, v6), [&PEER.0[..], &OWN.0, &[0x86, 0xdd]].concat());
    let tagged = NextHop { vlan: Some(0x123), ..hop("fd00::2", PEER) };
    let tagged = table.insert(gid("fd00::1"), gid("fd00::2"), 5, &tagged, now);
    assert_eq!(wire(&table, tagged), [&PEER.0[..], &OWN.0, &[0x81, 0x00, 0xa1, 0x23, 0x86, 0xdd]].concat());
}

#[test]
fn equal_ends_share_a_path_until_the_last_user_goes() {
    let (mut table, first, now) = ready();
    let second = table.add(gid("10.0.0.1"), gid("10.0.0.2"), 0, now);
    assert_eq!(first, second);
    let other_level = table.add(gid("10.0.0.1"), gid("10.0.0.2"), 1, now);
    assert_ne!(first, other_level);
    table.remove(first);
    assert!(table.route(first).is_some());
    table.remove(first);
    assert_eq!((table.route(first), table.state(first)), (None, None));
    // The id is used again, for a path that starts anew.
    let reused = table.add(gid("10.0.0.1"), gid("10.0.0.9"), 0, now);
    assert_eq!((reused, table.route(reused)), (first, None));
    assert_eq!(table.ends().len(), 2);
    // More removals than users, and ids that never were, do no harm.
    table.remove(PathId(77));
    assert_eq!(table.route(PathId(77)), None);
}

#[test]
fn a_new_path_is_due_at_once_and_opens_when_the_answer_comes() {
    let now = Instant::now();
    let mut table = PathTable::default();
    let id = table.add(gid("10.0.0.1"), gid("10.0.0.2"), 0, now);
    assert_eq!(table.next_due(now), Some(now));
    let asked = Ok(Lookup::Asked(hop("10.0.0.2", Mac::ZERO)));
    assert_eq!(answer(&mut table, &asked, now), 1);
    assert_eq!((table.route(id), table.state(id)), (None, Some(PathState::Unresolved { since: now })));
    assert_eq!(table.due(now), []);
    table.apply(&Change::NeighbourChanged { address: ip("10.0.0.2"), mac: Some(PEER) }, now);
    assert_eq!((&wire(&table, id)[..6], table.state(id)), (&PEER.0[..], Some(PathState::Ready)));
}

#[test]
fn local_paths_loop() {
    let now = Instant::now();
    let mut table = PathTable::default();
    let local = NextHop { kind: NextHopKind::Local, ..hop("10.0.0.1", Mac::ZERO) };
    let id = table.insert(gid("10.0.0.1"), gid("10.0.0.1"), 0, &local, now);
    assert_eq!((table.route(id), table.state(id)), (Some(Route::Local), Some(PathState::Local)));
    // What the neighbour table says of our own address is nothing to a local path.
    table.apply(&Change::NeighbourChanged { address: ip("10.0.0.1"), mac: Some(PEER) }, now);
    assert_eq!(table.route(id), Some(Route::Local));
    table.apply(&Change::MacChanged { mac: OTHER }, now);
    assert_eq!(table.route(id), Some(Route::Local));
}

#[test]
fn a_gateways_new_mac_changes_every_path_through_it_and_no_other() {
    let now = Instant::now();
    let mut table = PathTable::default();
    let by_gateway = NextHop { kind: NextHopKind::Gateway(ip("10.0.0.254")), ..hop("10.0.0.254", PEER) };
    let far: Vec<PathId> =
        ["192.0.2.1", "192.0.2.2"].map(|dst| table.insert(gid("10.0.0.1"), gid(dst), 0, &by_gateway, now)).to_vec();
    let near = table.insert(gid("10.0.0.1"), gid("10.0.0.2"), 0, &hop("10.0.0.2", PEER), now);
    table.apply(&Change::NeighbourChanged { address: ip("10.0.0.254"), mac: Some(OTHER) }, now);
    for id in far {
        assert_eq!(wire(&table, id)[..6], OTHER.0);
    }
    assert_eq!(wire(&table, near)[..6], PEER.0);
}

#[test]
fn a_neighbour_that_does_not_answer_closes_the_path_and_is_asked_for_every_interval() {
    let (mut table, id, now) = ready();
    table.apply(&Change::NeighbourChanged { address: ip("10.0.0.2"), mac: None }, now);
    assert_eq!((table.route(id), table.state(id)), (None, Some(PathState::Unresolved { since: now })));
    let asked = Ok(Lookup::Asked(hop("10.0.0.2", Mac::ZERO)));
    assert_eq!(answer(&mut table, &asked, now), 1);
    let later = now + RETRY_INTERVAL;
    assert_eq!(table.next_due(now), Some(later));
    assert_eq!(answer(&mut table, &asked, later - Duration::from_nanos(1)), 0);
    assert_eq!(answer(&mut table, &asked, later), 1);
    // Unresolved since the first failure, whatever was tried in between.
    assert_eq!(table.state(id), Some(PathState::Unresolved { since: now }));
    table.apply(&Change::NeighbourChanged { address: ip("10.0.0.2"), mac: Some(PEER) }, later);
    assert_eq!(table.state(id), Some(PathState::Ready));
}

#[test]
fn a_forgotten_neighbour_is_used_on_while_the_kernel_asks_again() {
    let (mut table, id, now) = ready();
    table.apply(&Change::NeighbourForgotten { address: ip("10.0.0.2") }, now);
    assert_eq!(answer(&mut table, &Ok(Lookup::Asked(hop("10.0.0.2", Mac::ZERO))), now), 1);
    assert_eq!(wire(&table, id)[..6], PEER.0);
    // Another next hop that is not known yet is another matter.
    table.apply(&Change::RouteChanged, now);
    assert_eq!(answer(&mut table, &Ok(Lookup::Asked(hop("10.0.0.254", Mac::ZERO))), now), 1);
    assert_eq!(table.route(id), None);
    table.apply(&Change::NeighbourChanged { address: ip("10.0.0.254"), mac: Some(OTHER) }, now);
    assert_eq!(wire(&table, id)[..6], OTHER.0);
}

/// Report H09.
#[test]
fn mac_addresses_nobody_else_has_close_the_path() {
    for mac in [Mac::ZERO, Mac([0xff; 6]), OWN] {
        let (mut table, id, now) = ready();
        table.apply(&Change::NeighbourChanged { address: ip("10.0.0.2"), mac: Some(mac) }, now);
        assert_eq!(table.route(id), None, "{mac}");
        assert_eq!(table.due(now).len(), 1, "{mac}");
    }
}

#[test]
fn a_removed_source_address_closes_its_paths_at_once() {
    let (mut table, id, now) = ready();
    let other = table.insert(gid("10.0.0.7"), gid("10.0.0.2"), 0, &hop("10.0.0.2", PEER), now);
    assert_eq!(answer(&mut table, &Ok(Lookup::Known(hop("10.0.0.2", PEER))), now), 2);
    table.apply(&Change::GidRemoved { index: 0, gid: gid("10.0.0.1") }, now);
    assert_eq!(table.route(id), None);
    assert!(table.route(other).is_some());
    let why = ResolveError::SourceNotOurs { gid: gid("10.0.0.1"), interface: "eth0".into() };
    assert_eq!(answer(&mut table, &Err(why.clone()), now), 1);
    assert_eq!(table.why(id), Some(&why));
    // It comes back: the next look-up opens the path.
    table.apply(&Change::GidAdded { index: 1, gid: gid("10.0.0.1") }, now);
    assert_eq!(answer(&mut table, &Ok(Lookup::Known(hop("10.0.0.2", PEER))), now), 2);
    assert_eq!((table.state(id), table.why(id)), (Some(PathState::Ready), None));
}

#[test]
fn an_error_of_the_look_up_closes_the_path() {
    let (mut table, id, now) = ready();
    table.apply(&Change::LinkDown, now);
    assert!(table.route(id).is_some(), "only the look-up tells");
    let why = ResolveError::Netlink(NetlinkError::Os { doing: "look up the route", errno: libc::ENETUNREACH });
    answer(&mut table, &Err(why.clone()), now);
    assert_eq!((table.route(id), table.why(id), table.next_hop(id)), (None, Some(&why), None));
}

#[test]
fn our_own_new_mac_is_in_the_next_frame() {
    let (mut table, id, now) = ready();
    table.apply(&Change::MacChanged { mac: OTHER }, now);
    assert_eq!(wire(&table, id)[..12], [PEER.0, OTHER.0].concat());
    assert_eq!(table.due(now).len(), 1);
}

#[test]
fn a_ready_path_is_confirmed_now_and_then() {
    let (mut table, _, now) = ready();
    // Known from the look-up it was made with.
    let first = answer(&mut table, &Ok(Lookup::Known(hop("10.0.0.2", PEER))), now);
    assert_eq!(first, 1);
    assert_eq!(table.next_due(now), Some(now + CONFIRM_INTERVAL));
    assert_eq!(table.due(now + CONFIRM_INTERVAL - Duration::from_nanos(1)), []);
    assert_eq!(table.due(now + CONFIRM_INTERVAL).len(), 1);
}

#[test]
fn a_suspected_neighbour_is_probed_at_most_once_an_interval() {
    let (mut table, id, now) = ready();
    let known = Ok(Lookup::Known(hop("10.0.0.2", PEER)));
    answer(&mut table, &known, now);
    table.suspect(id);
    let probes = |table: &mut PathTable, now| table.due(now).iter().filter(|q| q.probe == Some(ip("10.0.0.2"))).count();
    assert_eq!(probes(&mut table, now), 1);
    table.suspect(id);
    assert_eq!(probes(&mut table, now + PROBE_INTERVAL - Duration::from_nanos(1)), 0);
    assert_eq!(table.next_due(now), Some(now + PROBE_INTERVAL));
    assert_eq!(probes(&mut table, now + PROBE_INTERVAL), 1);
    assert_eq!(probes(&mut table, now + 2 * PROBE_INTERVAL), 0);
}

#[test]
fn an_answer_for_a_path_that_is_gone_is_ignored() {
    let now = Instant::now();
    let mut table = PathTable::default();
    let id = table.add(gid("10.0.0.1"), gid("10.0.0.2"), 0, now);
    let query = table.due(now)[0];
    table.remove(id);
    let reused = table.add(gid("10.0.0.1"), gid("10.0.0.9"), 0, now);
    assert_eq!(reused, id);
    table.complete(PathAnswer { query, outcome: Ok(Lookup::Known(hop("10.0.0.2", PEER))) }, now);
    assert_eq!(table.route(reused), None);
}

#[test]
fn many_due_paths_get_their_turns() {
    let now = Instant::now();
    let mut table = PathTable::default();
    for n in 0..(2 * MAX_DUE + 5) {
        table.add(gid("10.0.0.1"), gid(&format!("10.1.{}.{}", n / 200, n % 200)), 0, now);
    }
    let mut asked: Vec<u32> = Vec::new();
    for expected in [MAX_DUE, MAX_DUE, 5, 0] {
        // Paths asked about before turn dirty again, and still the others come first.
        for id in asked.iter().take(10) {
            table.mark(PathId(*id));
        }
        let due: Vec<u32> = table.due(now).iter().map(|query| query.id.0).collect();
        let first_time = due.iter().filter(|id| !asked.contains(id)).count();
        assert_eq!(first_time, expected);
        asked.extend(due);
    }
}

#[test]
fn an_answer_that_news_overtook_is_not_believed() {
    let (mut table, id, now) = ready();
    let query = table.due(now)[0];
    let answer = PathAnswer { query, outcome: Ok(Lookup::Known(hop("10.0.0.2", PEER))) };
    table.apply(&Change::NeighbourChanged { address: ip("10.0.0.2"), mac: Some(OTHER) }, now);
    table.complete(answer, now);
    assert_eq!(wire(&table, id)[..6], OTHER.0);
    assert_eq!(table.due(now).len(), 1);
}

#[test]
fn nothing_is_sent_once_the_interface_is_gone() {
    let (mut table, id, now) = ready();
    table.apply(&Change::Gone, now);
    assert_eq!(table.route(id), None);
}

#[test]
fn a_second_user_with_an_old_look_up_makes_the_path_due_again() {
    let (mut table, id, now) = ready();
    let removed = Change::GidRemoved { index: 0, gid: gid("10.0.0.1") };
    table.apply(&removed, now);
    assert_eq!(
        answer(
            &mut table,
            &Err(ResolveError::Netlink(NetlinkError::Os { doing: "look up", errno: libc::ENETUNREACH })),
            now
        ),
        1
    );
    // Looked up before the address went, put in after.
    table.insert(gid("10.0.0.1"), gid("10.0.0.2"), 0, &hop("10.0.0.2", PEER), now);
    assert!(table.next_due(now).is_some_and(|due| due <= now));
    assert_eq!(table.due(now).len(), 1);
    assert_eq!(table.state(id), Some(PathState::Ready), "until the answer comes");
}
