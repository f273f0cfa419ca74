//! Copies: what a capture has more than once because it was taken at more than one place.
//!
//! In: packets. Out: each once, as it was seen first. `tcpdump -i any` sees a packet at each interface that it crosses, and captures may be
//! merged into one. A copy is the same from the BTH to the ICRC; so is a packet that its requester sends again, which only comes later.
//! Nothing is taken for a copy unless most packets have one.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::Captured;

/// Between places that can be told apart a packet takes no longer than so.
const PLACES_NS: i128 = 10_000_000;
/// Copies that come closer than so need not be told from packets that are sent again: nobody is so fast.
const AT_ONCE_NS: i128 = 20_000;
/// Nobody captures at more places that look the same.
const TIMES_MAX: usize = 4;
/// Where places cannot be told apart, copies that come within this time are looked for in any case: no ACK timer is so short.
const TOGETHER_NS: i128 = 200_000;
/// Of fewer packets nobody can say that most have copies: where places can be told apart, and where not.
const LEAST: [usize; 2] = [3, 8];

/// What was left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Copies {
    /// Interfaces that saw the same packets as another.
    pub(super) interfaces: usize,
    /// Packets of one interface that are there again.
    pub(super) packets: usize,
    /// How often one of these is there, at most.
    pub(super) times: usize,
}

/// Two addresses, the lower first.
type Ends = (IpAddr, IpAddr);
/// An interface and what it saw.
type Seen<'a> = (u32, HashSet<&'a [u8]>);
/// Indices of packets that may be one, in the order of time.
type Group = Vec<usize>;

/// Takes copies out of packets, which are in the order of time.
pub(super) fn leave_out(packets: &mut Vec<Captured>) -> Copies {
    let mut copies = Copies { interfaces: keep_one_interface(packets), ..Copies::default() };
    let mut superfluous: HashSet<usize> = HashSet::new();
    let mut ends: Vec<Ends> = packets.iter().map(ends_of).collect();
    ends.sort_unstable();
    ends.dedup();
    for (a, b) in ends {
        for group in copied(packets, [(a, b), (b, a)]) {
            copies.times = copies.times.max(group.len());
            superfluous.extend(&group[1..]);
        }
    }
    copies.packets = superfluous.len();
    let mut index = 0;
    packets.retain(|_| {
        index += 1;
        !superfluous.contains(&(index - 1))
    });
    copies
}

fn ends_of(packet: &Captured) -> Ends {
    (packet.src.min(packet.dst), packet.src.max(packet.dst))
}

/// What no router changes: from the BTH to the ICRC, which covers what is before it, too.
fn lasting(packet: &Captured) -> &[u8] {
    let bytes = &packet.bytes;
    let word = |at: usize| bytes.get(at..at + 2).map_or(0, |two| usize::from(u16::from_be_bytes([two[0], two[1]])));
    let (ip, end) = match bytes.first().map_or(0, |byte| byte >> 4) {
        6 => (40, 40 + word(4)),
        _ => (usize::from(bytes.first().map_or(0, |byte| byte & 15)) * 4, word(2)),
    };
    bytes.get(ip + 8..end.min(bytes.len())).unwrap_or(bytes)
}

/// Where a packet was seen, as far as it tells: interface, link layer, and how many routers it has behind it.
fn place(packet: &Captured) -> (u32, &[u8], Option<&u8>) {
    let hops = if packet.bytes.first().is_some_and(|byte| byte >> 4 == 6) { 7 } else { 8 };
    (packet.interface, &packet.link, packet.bytes.get(hops))
}

/// Where several interfaces saw the same packets, only the one that saw most of them is kept. Gives how many were left out.
fn keep_one_interface(packets: &mut Vec<Captured>) -> usize {
    let mut seen: HashMap<Ends, Vec<Seen<'_>>> = HashMap::new();
    for packet in packets.iter() {
        let interfaces = seen.entry(ends_of(packet)).or_default();
        let at = interfaces.iter().position(|(interface, _)| *interface == packet.interface).unwrap_or_else(|| {
            interfaces.push((packet.interface, HashSet::new()));
            interfaces.len() - 1
        });
        interfaces[at].1.insert(lasting(packet));
    }
    let mut others: HashSet<(Ends, u32)> = HashSet::new();
    let mut most = 0;
    for (ends, interfaces) in &seen {
        // Of equals the first to appear.
        let Some((best, its)) = interfaces.iter().rev().max_by_key(|(_, own)| own.len()) else { continue };
        let same = |own: &HashSet<&[u8]>| own.intersection(its).count() * 2 >= own.len();
        let left_out: Vec<u32> = interfaces.iter().filter(|(i, own)| i != best && same(own)).map(|(i, _)| *i).collect();
        most = most.max(left_out.len());
        others.extend(left_out.into_iter().map(|interface| (*ends, interface)));
    }
    packets.retain(|packet| !others.contains(&(ends_of(packet), packet.interface)));
    most
}

/// The packets between two ends that are there more than once, if most are: by where they were seen, or else by when.
fn copied(packets: &[Captured], paths: [Ends; 2]) -> Vec<Group> {
    let own = paths.map(|path| same(packets, path));
    let at_places = own.each_ref().map(|groups| by_place(packets, groups));
    let told = at_places.each_ref().map(|groups| mostly(groups, (1, 2)));
    let enough =
        at_places.iter().zip(told).filter(|(_, told)| *told).map(|(groups, _)| groups.len()).sum::<usize>() >= LEAST[0];
    let told = told.map(|told| told && enough);
    let mut copied: Vec<Group> =
        at_places.into_iter().zip(told).filter(|(_, told)| *told).flat_map(|(g, _)| g).collect();
    let rest: Vec<&Vec<Group>> =
        own.iter().zip(told).filter(|(groups, told)| !told && !groups.is_empty()).map(|(g, _)| g).collect();
    let (groups, usual_ns) = by_time(packets, &rest);
    // The answers to what is sent again are new ones: they show that it is no copy. Where there are none, only haste does.
    let sure = own.iter().all(|groups| !groups.is_empty()) || usual_ns <= AT_ONCE_NS;
    let together: usize = groups.iter().map(Vec::len).sum();
    if sure
        && together >= LEAST[1]
        && groups.iter().all(|groups| mostly(groups, (1, 2)))
        && mostly(&groups.concat(), (2, 3))
    {
        copied.extend(groups.into_iter().flatten());
    }
    copied
}

/// Packets of a path that are the same.
fn same(packets: &[Captured], path: Ends) -> Vec<Group> {
    let mut known: HashMap<&[u8], usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for (index, packet) in packets.iter().enumerate().filter(|(_, packet)| (packet.src, packet.dst) == path) {
        let at = *known.entry(lasting(packet)).or_insert(groups.len());
        if at == groups.len() {
            groups.push(Vec::new());
        }
        groups[at].push(index);
    }
    groups
}

/// Whether in this part of the groups there is more than one packet.
fn mostly(groups: &[Group], (part, whole): (usize, usize)) -> bool {
    let several = groups.iter().filter(|group| group.len() > 1).count();
    several > 0 && several * whole >= groups.len() * part
}

/// A packet is not seen twice at one place: there it was sent again.
fn by_place(packets: &[Captured], same: &[Group]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for all in same {
        let first = groups.len();
        for index in all {
            let packet = &packets[*index];
            let fits = |group: &&mut Group| {
                packet.time_ns - packets[group[0]].time_ns <= PLACES_NS
                    && group.iter().all(|other| place(&packets[*other]) != place(packet))
            };
            match groups[first..].iter_mut().rev().find(fits) {
                Some(group) => group.push(*index),
                None => groups.push(vec![*index]),
            }
        }
    }
    groups
}

/// Those nearest to each other are copies, no more of one than is usual. What is sent again comes later than a copy, since an answer
/// passes all places first. Gives the usual time between copies, too.
fn by_time(packets: &[Captured], paths: &[&Vec<Group>]) -> (Vec<Vec<Group>>, i128) {
    let gap = |pair: &[usize]| packets[pair[1]].time_ns - packets[pair[0]].time_ns;
    let all = || paths.iter().flat_map(|groups| groups.iter());
    let mut gaps: Vec<i128> = all().flat_map(|group| group.windows(2)).map(gap).collect();
    gaps.sort_unstable();
    let Some(usual_ns) = gaps.get(gaps.len() / 2).copied() else { return (Vec::new(), 0) };
    let most_ns = (4 * usual_ns).clamp(TOGETHER_NS, PLACES_NS);
    let mut sizes: HashMap<usize, usize> = HashMap::new();
    for cluster in all().flat_map(|group| group.chunk_by(|a, b| gap(&[*a, *b]) <= most_ns)) {
        *sizes.entry(cluster.len()).or_insert(0) += 1;
    }
    let usual = sizes.into_iter().max_by_key(|(size, n)| (*n, *size)).map_or(1, |(size, _)| size);
    let usual = if usual > TIMES_MAX { 1 } else { usual };
    let nearest = |group: &Group| joined(group, usual, (usual_ns, most_ns), gap);
    (paths.iter().map(|groups| groups.iter().flat_map(nearest).collect()).collect(), usual_ns)
}

/// Splits packets that are the same into groups of at most `usual`, joining the nearest first.
fn joined(same: &Group, usual: usize, (usual_ns, most_ns): (i128, i128), gap: impl Fn(&[usize]) -> i128) -> Vec<Group> {
    let mut order: Vec<usize> = (1..same.len()).filter(|at| gap(&same[at - 1..=*at]) <= most_ns).collect();
    // Of what is about as near, the first.
    let unit = usual_ns.max(1);
    order.sort_by_key(|at| (gap(&same[at - 1..=*at]) + unit / 2) / unit);
    // Whether each but the first goes with the one before it.
    let mut goes = vec![false; same.len()];
    for at in order {
        let before = goes[..at].iter().rev().take_while(|goes| **goes).count() + 1;
        let behind = goes[at + 1..].iter().take_while(|goes| **goes).count() + 1;
        goes[at] = before + behind <= usual;
    }
    let mut groups: Vec<Group> = Vec::new();
    for (index, goes) in same.iter().zip(goes) {
        match groups.last_mut().filter(|_| goes) {
            Some(group) => group.push(*index),
            None => groups.push(vec![*index]),
        }
    }
    groups
}
