//! The table of paths: what stands in front of every packet to a peer. In: next hops, and what changes about them. Out:
//! prebuilt link headers, one indexed load away from the poll loop.
//!
//! Queue pairs with the same source, destination and service level share a path, so a gateway that changes touches one
//! entry. The table itself asks nobody: [`PathTable::due`] says what to look up, [`Resolver::answer`] asks the kernel
//! (on a control thread, for that may take a while), [`PathTable::complete`] takes the answer in. [`PathTable::refresh`]
//! is the three in one, for whoever has table and resolver in one hand.

#![forbid(unsafe_code)]

mod header;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use xroce_wire::Gid;

pub use self::header::L2Header;
pub use xroce_transport::PathId;

use crate::netdev::{Change, Mac};
use crate::nexthop::{Lookup, NextHop, NextHopKind, ResolveError, Resolver};

/// Pause between two attempts to find the next hop of an unresolved path.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long a next hop is used before the kernel is asked again. Our frames pass the kernel by, so it does not notice by
/// itself that a neighbour is in use; the look-up makes it check an entry that has gone stale. The same span as the
/// kernel's `base_reachable_time` (RFC 4861 10).
pub const CONFIRM_INTERVAL: Duration = Duration::from_secs(30);

/// Shortest time between two immediate checks of a path's neighbour, see [`PathTable::suspect`]. A neighbour on the link
/// answers within some milliseconds; the usual retries of a queue pair take less than two seconds in all.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(200);

/// Paths that one call of [`PathTable::due`] names at most; the others wait for the next call.
pub const MAX_DUE: usize = 64;

/// What the poll loop does with a packet of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route<'a> {
    /// Onto the wire, behind this link header (14 bytes, 18 with a VLAN tag).
    Wire(&'a L2Header),
    /// Back into the stack: the destination is an address of our own interface.
    Local,
}

/// Whether a path can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathState {
    /// Frames can be sent.
    Ready,
    /// Packets loop inside the stack.
    Local,
    /// Nothing can be sent now.
    Unresolved {
        /// Since when.
        since: Instant,
    },
}

/// A question about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathQuery {
    id: PathId,
    src: Gid,
    dst: Gid,
    /// Neighbour to check at once.
    probe: Option<IpAddr>,
    /// News that the path had had when the question was put.
    news: u32,
}

/// The kernel's answer to a [`PathQuery`].
#[derive(Debug, Clone)]
pub struct PathAnswer {
    query: PathQuery,
    outcome: Result<Lookup, ResolveError>,
}

impl Resolver {
    /// Asks the kernel what a path needs to know. Does not wait for neighbours.
    pub fn answer(&self, query: &PathQuery) -> PathAnswer {
        if let Some(neighbour) = query.probe
            && let Err(error) = self.probe(neighbour)
        {
            // Most likely the kernel has forgotten it; the look-up then asks anew.
            tracing::debug!(%neighbour, %error, "neighbour not checked");
        }
        PathAnswer { query: *query, outcome: self.look_up(query.src, query.dst) }
    }
}

/// The paths of a port. Control calls take `&mut self`; [`PathTable::route`] is the poll loop's.
#[derive(Debug, Default)]
pub struct PathTable {
    /// What the poll loop reads, by path index; apart from the rest so that many paths stay in the cache.
    hot: Vec<Hot>,
    cold: Vec<Option<Cold>>,
    by_key: HashMap<Key, u32>,
    free: Vec<u32>,
    /// Where the next search for due paths starts, so that each gets its turn.
    cursor: usize,
}

#[derive(Debug, Clone, Copy)]
enum Hot {
    Closed,
    Local,
    Wire(L2Header),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    src: Gid,
    dst: Gid,
    sl: u8,
}

#[derive(Debug)]
struct Cold {
    key: Key,
    users: u32,
    state: PathState,
    /// The last next hop heard of; its MAC address is zero while that is not known.
    hop: Option<NextHop>,
    why: Option<ResolveError>,
    /// Something changed that may concern the path.
    dirty: bool,
    suspect: bool,
    /// Counts what came to the path by other ways than an answer, so that an answer that was overtaken is known as such.
    news: u32,
    asked: Option<Instant>,
    probed: Option<Instant>,
}

impl PathTable {
    /// Takes the path for packets from `src` to `dst` at service level `sl` (0..=15; the VLAN priority is its low three
    /// bits). A new one starts unresolved and is due at once; one that is there gets one more user.
    pub fn add(&mut self, src: Gid, dst: Gid, sl: u8, now: Instant) -> PathId {
        let key = Key { src, dst, sl };
        if let Some(&index) = self.by_key.get(&key) {
            if let Some(cold) = self.cold_mut(PathId(index)) {
                cold.users += 1;
            }
            return PathId(index);
        }
        let cold = Cold {
            key,
            users: 1,
            state: PathState::Unresolved { since: now },
            hop: None,
            why: None,
            dirty: true,
            suspect: false,
            news: 0,
            asked: None,
            probed: None,
        };
        let index = self.free.pop().unwrap_or(self.hot.len() as u32);
        let at = index as usize;
        if at == self.hot.len() {
            self.hot.push(Hot::Closed);
            self.cold.push(Some(cold));
        } else {
            self.hot[at] = Hot::Closed;
            self.cold[at] = Some(cold);
        }
        self.by_key.insert(key, index);
        PathId(index)
    }

    /// The same with a next hop that was looked up before: the path can be used at once. It is due all the same, for what
    /// changed between the look-up and this call went past the table.
    pub fn insert(&mut self, src: Gid, dst: Gid, sl: u8, hop: &NextHop, now: Instant) -> PathId {
        let id = self.add(src, dst, sl, now);
        self.update(id, hop, now);
        self.mark(id);
        id
    }

    /// Gives a path back. With its last user it is gone, and its id may be given to another path.
    pub fn remove(&mut self, id: PathId) {
        let Some(cold) = self.cold_mut(id) else { return };
        cold.users -= 1;
        if cold.users == 0 {
            let key = cold.key;
            self.by_key.remove(&key);
            self.cold[id.0 as usize] = None;
            self.hot[id.0 as usize] = Hot::Closed;
            self.free.push(id.0);
        }
    }

    /// What to do with a packet of this path. None: it cannot be sent now.
    #[inline]
    pub fn route(&self, id: PathId) -> Option<Route<'_>> {
        match self.hot.get(id.0 as usize)? {
            Hot::Wire(header) => Some(Route::Wire(header)),
            Hot::Local => Some(Route::Local),
            Hot::Closed => None,
        }
    }

    /// Whether the path can be used. None when there is no such path.
    pub fn state(&self, id: PathId) -> Option<PathState> {
        self.cold(id).map(|cold| cold.state)
    }

    /// Why the path is unresolved, where more is known than that nobody answered yet.
    pub fn why(&self, id: PathId) -> Option<&ResolveError> {
        self.cold(id)?.why.as_ref()
    }

    /// The next hop, with hop limit and MTU, once one was found. While its MAC address is not known, that is zero.
    pub fn next_hop(&self, id: PathId) -> Option<&NextHop> {
        self.cold(id)?.hop.as_ref()
    }

    /// The paths there are, with source and destination.
    pub fn ends(&self) -> Vec<(PathId, Gid, Gid)> {
        self.live().map(|(id, cold)| (id, cold.key.src, cold.key.dst)).collect()
    }

    /// Takes in a next hop that was looked up elsewhere.
    pub fn update(&mut self, id: PathId, hop: &NextHop, now: Instant) {
        self.overtake(id);
        self.settle(id, Ok(Lookup::Known(*hop)), now);
    }

    /// A neighbour has this MAC address (again, or now): every path through it sends there from here on.
    pub fn neighbour_changed(&mut self, address: IpAddr, mac: Mac, now: Instant) {
        for id in self.through(address) {
            let Some(mut hop) = self.cold(id).and_then(|cold| cold.hop) else { continue };
            if mac.check_next_hop(hop.src_mac).is_ok() {
                self.overtake(id);
                hop.dst_mac = mac;
                self.settle(id, Ok(Lookup::Known(hop)), now);
            } else {
                // The look-up says what is wrong with it.
                self.close(id, now);
            }
        }
    }

    /// Takes in a change that the monitor tells of. What follows from it at once is done; the rest becomes due.
    // rule: path.source
    pub fn apply(&mut self, change: &Change, now: Instant) {
        match *change {
            Change::NeighbourChanged { address, mac: Some(mac) } => self.neighbour_changed(address, mac, now),
            Change::NeighbourChanged { address, mac: None } => {
                for id in self.through(address) {
                    self.close(id, now);
                }
            }
            // The kernel tidies up; the neighbour is used as before while the look-up makes the kernel ask again.
            Change::NeighbourForgotten { address } => {
                for id in self.through(address) {
                    self.mark(id);
                }
            }
            Change::GidRemoved { gid, .. } => {
                // As a destination it was our own.
                for id in self.ids(|cold| cold.key.src == gid || cold.key.dst == gid) {
                    self.close(id, now);
                }
            }
            Change::MacChanged { mac } => self.own_mac_changed(mac, now),
            Change::Gone => {
                for id in self.ids(|_| true) {
                    self.close(id, now);
                }
            }
            // A link that goes down takes its routes along without a word about them.
            Change::LinkUp
            | Change::LinkDown
            | Change::GidAdded { .. }
            | Change::MtuChanged { .. }
            | Change::RouteChanged
            | Change::Overrun => {
                for id in self.ids(|_| true) {
                    self.mark(id);
                }
            }
        }
    }

    /// Packets of this path go unanswered: have the kernel check its neighbour at once instead of trusting what it knew.
    /// At most one check goes out every [`PROBE_INTERVAL`]. True when the path is due for that and was not before.
    pub fn suspect(&mut self, id: PathId) -> bool {
        match self.cold_mut(id) {
            // Others have no neighbour, or are being asked for anyway.
            Some(cold) if cold.state == PathState::Ready => !std::mem::replace(&mut cold.suspect, true),
            _ => false,
        }
    }

    /// What to look up now, at most [`MAX_DUE`] paths. A path asked about is not due again before its interval, or before
    /// something changes.
    pub fn due(&mut self, now: Instant) -> Vec<PathQuery> {
        let mut queries = Vec::new();
        let total = self.cold.len();
        for at in (self.cursor..total).chain(0..self.cursor.min(total)) {
            let Some(cold) = &mut self.cold[at] else { continue };
            if cold.due_at().is_some_and(|due| due > now) {
                continue;
            }
            if queries.len() == MAX_DUE {
                self.cursor = at;
                break;
            }
            let probe = cold.take_probe(now);
            cold.dirty = false;
            cold.asked = Some(now);
            let Key { src, dst, .. } = cold.key;
            queries.push(PathQuery { id: PathId(at as u32), src, dst, probe, news: cold.news });
        }
        queries
    }

    /// When the next look-up is due: the time to sleep to. None without paths; in the past when something is due now.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        self.live().map(|(_, cold)| cold.due_at().unwrap_or(now)).min()
    }

    /// Takes in an answer. One for a path that is gone is ignored; one that newer news overtook is not believed, and the
    /// path is due again.
    pub fn complete(&mut self, answer: PathAnswer, now: Instant) {
        let PathQuery { id, src, dst, news, .. } = answer.query;
        let Some(cold) = self.cold_mut(id) else { return };
        if (cold.key.src, cold.key.dst) != (src, dst) {
            return;
        }
        if cold.news == news {
            self.settle(id, answer.outcome, now);
        } else {
            cold.dirty = true;
        }
    }

    /// Looks up what is due, without waiting for neighbours: their answers come from the monitor, for
    /// [`PathTable::apply`]. Makes system calls, so it is for a control thread.
    pub fn refresh(&mut self, resolver: &Resolver, now: Instant) {
        for query in self.due(now) {
            self.complete(resolver.answer(&query), now);
        }
    }

    /// Brings the path to what a look-up found.
    fn settle(&mut self, id: PathId, outcome: Result<Lookup, ResolveError>, now: Instant) {
        let Some(cold) = self.cold_mut(id) else { return };
        let hot = match outcome {
            Ok(Lookup::Known(hop)) => {
                cold.why = None;
                cold.hop = Some(hop);
                cold.asked = Some(now);
                cold.open(&hop)
            }
            // The kernel no longer knows the neighbour that is in use, and asks for it: until it gives up, what was
            // true is as good as any guess.
            Ok(Lookup::Asked(hop)) if cold.uses_same_neighbour(&hop) => return,
            Ok(Lookup::Asked(hop)) => {
                cold.why = None;
                cold.hop = Some(hop);
                cold.shut(now)
            }
            Err(why) => {
                cold.why = Some(why);
                cold.hop = None;
                cold.shut(now)
            }
        };
        self.hot[id.0 as usize] = hot;
    }

    /// Stops sending until the next look-up.
    fn close(&mut self, id: PathId, now: Instant) {
        self.overtake(id);
        let Some(cold) = self.cold_mut(id) else { return };
        cold.dirty = true;
        if let Some(hop) = &mut cold.hop {
            hop.dst_mac = Mac::ZERO;
        }
        self.hot[id.0 as usize] = cold.shut(now);
    }

    /// Answers to questions put before this are out of date.
    fn overtake(&mut self, id: PathId) {
        if let Some(cold) = self.cold_mut(id) {
            cold.news = cold.news.wrapping_add(1);
        }
    }

    fn mark(&mut self, id: PathId) {
        if let Some(cold) = self.cold_mut(id) {
            cold.dirty = true;
        }
    }

    fn own_mac_changed(&mut self, mac: Mac, now: Instant) {
        for id in self.ids(|_| true) {
            self.mark(id);
            self.overtake(id);
            let Some(cold) = self.cold_mut(id) else { continue };
            let Some(hop) = &mut cold.hop else { continue };
            hop.src_mac = mac;
            let hop = *hop;
            if cold.state == PathState::Ready {
                self.settle(id, Ok(Lookup::Known(hop)), now);
            }
        }
    }

    fn cold(&self, id: PathId) -> Option<&Cold> {
        self.cold.get(id.0 as usize)?.as_ref()
    }

    fn cold_mut(&mut self, id: PathId) -> Option<&mut Cold> {
        self.cold.get_mut(id.0 as usize)?.as_mut()
    }

    fn live(&self) -> impl Iterator<Item = (PathId, &Cold)> {
        self.cold.iter().enumerate().filter_map(|(i, cold)| cold.as_ref().map(|cold| (PathId(i as u32), cold)))
    }

    fn ids(&self, wanted: impl Fn(&Cold) -> bool) -> Vec<PathId> {
        self.live().filter(|(_, cold)| wanted(cold)).map(|(id, _)| id).collect()
    }

    /// The paths whose frames go to this neighbour.
    fn through(&self, address: IpAddr) -> Vec<PathId> {
        let is_local = |hop: &NextHop| hop.kind == NextHopKind::Local;
        self.ids(|cold| cold.hop.as_ref().is_some_and(|hop| hop.neighbour == address && !is_local(hop)))
    }
}

impl Cold {
    fn open(&mut self, hop: &NextHop) -> Hot {
        match hop.kind {
            NextHopKind::Local => {
                self.state = PathState::Local;
                Hot::Local
            }
            NextHopKind::OnLink | NextHopKind::Gateway(_) => {
                self.state = PathState::Ready;
                Hot::Wire(L2Header::new(hop, self.key.dst, self.key.sl))
            }
        }
    }

    fn shut(&mut self, now: Instant) -> Hot {
        if !matches!(self.state, PathState::Unresolved { .. }) {
            self.state = PathState::Unresolved { since: now };
        }
        Hot::Closed
    }

    fn uses_same_neighbour(&self, asked: &NextHop) -> bool {
        self.state == PathState::Ready && self.hop.is_some_and(|hop| hop.neighbour == asked.neighbour)
    }

    /// When to look up again; none for at once.
    fn due_at(&self) -> Option<Instant> {
        let asked = self.asked.filter(|_| !self.dirty)?;
        let by_age = match self.state {
            PathState::Unresolved { .. } => asked + RETRY_INTERVAL,
            PathState::Ready | PathState::Local => asked + CONFIRM_INTERVAL,
        };
        match (self.suspect, self.probed) {
            (false, _) => Some(by_age),
            (true, None) => None,
            (true, Some(probed)) => Some(by_age.min(probed + PROBE_INTERVAL)),
        }
    }

    /// The neighbour to check at once, if that was asked for and the last check is long enough ago.
    fn take_probe(&mut self, now: Instant) -> Option<IpAddr> {
        let rested = self.probed.is_none_or(|probed| now >= probed + PROBE_INTERVAL);
        if !(self.suspect && rested) {
            return None;
        }
        self.suspect = false;
        if self.state != PathState::Ready {
            return None;
        }
        self.probed = Some(now);
        self.hop.map(|hop| hop.neighbour)
    }
}

#[cfg(test)]
mod tests;
