//! The network's inside: nodes, links, the frames on their way, and the clock.
//!
//! What enters: frames from nodes, and time. What leaves: frames in the nodes' rings. Everything here runs under the
//! one lock of [`SimNet`](super::SimNet).

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use super::frame::Frame;
use super::link::{Fate, Link, Offer};
use super::{LinkModel, Loss, NetCounters, NetEvent, NodeId, Rng, What};
use crate::LinkChange;
use crate::wake::Wake;

/// Buffers kept for reuse; more are freed.
const POOL_MAX: usize = 1 << 16;

/// Stream number of a node's downlink: no node has it as its own number.
const DOWNLINK_STREAM: u64 = u32::MAX as u64;

pub(super) type Observer = Box<dyn FnMut(&NetEvent<'_>) + Send>;

/// Where time comes from.
pub(super) enum Clock {
    /// From `advance_to` alone.
    Virtual,
    /// Real, read here.
    System(Instant),
    /// Real, read by the caller, who tells by `set_now`.
    Fed,
}

pub(super) struct Node {
    pub(super) max_frame: usize,
    pub(super) ring: VecDeque<Frame>,
    pub(super) ring_max: usize,
    /// Frames sent that the wire has not taken yet.
    pub(super) in_flight: usize,
    pub(super) carrier: bool,
    pub(super) gone: bool,
    pub(super) changes: VecDeque<LinkChange>,
    /// Something is in `changes`: what the port asks each round without the lock.
    pub(super) changed: Arc<AtomicBool>,
    pub(super) rx_lost: u64,
    pub(super) wake: Option<Arc<Wake>>,
    /// When its sleeper will wake by itself; `None` when nobody sleeps.
    sleeps_until_ns: Option<u64>,
    /// From the switch to this node, shared by all who send to it.
    downlink: Link,
    /// From this node to each other.
    peers: Vec<Peer>,
}

struct Peer {
    link: Link,
    counters: NetCounters,
}

/// Where a frame stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hop {
    /// It has passed the link between the two nodes and is at the switch's port.
    Switch,
    /// It has passed the downlink too.
    Node,
}

enum Due {
    Arrival {
        hop: Hop,
        from: NodeId,
        to: NodeId,
        frame: Frame,
    },
    /// The wire has taken a frame of this node.
    Departure {
        node: NodeId,
    },
}

struct Scheduled {
    at_ns: u64,
    /// Breaks ties in the order of scheduling.
    serial: u64,
    due: Due,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Scheduled) -> Ordering {
        (self.at_ns, self.serial).cmp(&(other.at_ns, other.serial))
    }
}

pub(super) struct Switch {
    seed: u64,
    pub(super) clock: Clock,
    now_ns: u64,
    /// The same, for ports that do not hold the lock.
    shared_now: Arc<AtomicU64>,
    pub(super) nodes: Vec<Node>,
    by_mac: BTreeMap<[u8; 6], NodeId>,
    scheduled: BinaryHeap<Reverse<Scheduled>>,
    serial: u64,
    pool: Vec<Box<[u8]>>,
    default_model: LinkModel,
    unroutable: u64,
    pub(super) observer: Option<Observer>,
}

impl Switch {
    pub(super) fn new(seed: u64, clock: Clock, shared_now: Arc<AtomicU64>) -> Switch {
        Switch {
            seed,
            clock,
            now_ns: 0,
            shared_now,
            nodes: Vec::new(),
            by_mac: BTreeMap::new(),
            scheduled: BinaryHeap::new(),
            serial: 0,
            pool: Vec::new(),
            default_model: LinkModel::default(),
            unroutable: 0,
            observer: None,
        }
    }

    // Nodes and links.

    pub(super) fn owner_of(&self, mac: &[u8; 6]) -> Option<NodeId> {
        self.by_mac.get(mac).copied()
    }

    pub(super) fn add_node(
        &mut self,
        mac: [u8; 6],
        max_frame: usize,
        ring_max: usize,
        wake: Option<Arc<Wake>>,
    ) -> (NodeId, Arc<AtomicBool>) {
        let id = NodeId::new(self.nodes.len());
        for (from, node) in self.nodes.iter_mut().enumerate() {
            node.peers.push(Peer::new(self.seed, NodeId::new(from), id, &self.default_model));
        }
        let peers =
            (0..=self.nodes.len()).map(|to| Peer::new(self.seed, id, NodeId::new(to), &self.default_model)).collect();
        let changed = Arc::new(AtomicBool::new(false));
        let downlink_rng = link_rng(self.seed, u64::from(id.index()), DOWNLINK_STREAM);
        self.nodes.push(Node {
            max_frame,
            ring: VecDeque::with_capacity(ring_max),
            ring_max,
            in_flight: 0,
            carrier: true,
            gone: false,
            changes: VecDeque::new(),
            changed: Arc::clone(&changed),
            rx_lost: 0,
            wake,
            sleeps_until_ns: None,
            downlink: Link::new(LinkModel::default(), downlink_rng),
            peers,
        });
        self.by_mac.insert(mac, id);
        (id, changed)
    }

    pub(super) fn link_mut(&mut self, from: NodeId, to: NodeId) -> &mut Link {
        &mut self.nodes[from.at()].peers[to.at()].link
    }

    pub(super) fn downlink_mut(&mut self, to: NodeId) -> &mut Link {
        &mut self.nodes[to.at()].downlink
    }

    /// Also for the links of nodes that join later.
    pub(super) fn set_every_link(&mut self, model: &LinkModel) {
        for peer in self.nodes.iter_mut().flat_map(|node| node.peers.iter_mut()) {
            peer.link.set_model(model.clone());
        }
        self.default_model = model.clone();
    }

    pub(super) fn counters_between(&self, from: NodeId, to: NodeId) -> NetCounters {
        self.nodes[from.at()].peers[to.at()].counters
    }

    pub(super) fn counters(&self) -> NetCounters {
        let mut all = NetCounters { sent: self.unroutable, ..NetCounters::default() };
        all.lost.unroutable = self.unroutable;
        for one in self.nodes.iter().flat_map(|node| node.peers.iter().map(|peer| &peer.counters)) {
            all.add(one);
        }
        all
    }

    // Time.

    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(super) fn next_event(&self) -> Option<u64> {
        self.scheduled.peek().map(|Reverse(next)| next.at_ns)
    }

    /// Catches up with the clock, where it is read here.
    pub(super) fn refresh(&mut self) {
        if let Clock::System(start) = self.clock {
            self.run_until(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Lets everything happen that is due until `until_ns`, in order. A time that has passed changes nothing.
    pub(super) fn run_until(&mut self, until_ns: u64) {
        while let Some(at_ns) = self.next_event().filter(|at| *at <= until_ns) {
            self.set_clock(at_ns);
            let Some(Reverse(next)) = self.scheduled.pop() else { break };
            match next.due {
                Due::Arrival { hop, from, to, frame } => self.arrive(hop, from, to, frame),
                Due::Departure { node } => self.nodes[node.at()].in_flight -= 1,
            }
        }
        self.set_clock(until_ns);
    }

    fn set_clock(&mut self, to_ns: u64) {
        self.now_ns = self.now_ns.max(to_ns);
        self.shared_now.store(self.now_ns, std::sync::atomic::Ordering::Relaxed);
    }

    fn schedule(&mut self, at_ns: u64, due: Due) {
        if let Due::Arrival { to, .. } = &due {
            self.shorten_sleep(*to, at_ns);
        }
        self.serial += 1;
        self.scheduled.push(Reverse(Scheduled { at_ns, serial: self.serial, due }));
    }

    // Buffers.

    pub(super) fn take_buffers(&mut self, into: &mut Vec<Box<[u8]>>, count: usize) {
        let from = self.pool.len().saturating_sub(count);
        into.extend(self.pool.drain(from..));
    }

    pub(super) fn give_buffer(&mut self, buf: Box<[u8]>) {
        if self.pool.len() < POOL_MAX {
            self.pool.push(buf);
        }
    }

    fn copy_of(&mut self, frame: &Frame) -> Frame {
        let mut buf = match self.pool.pop() {
            Some(buf) if buf.len() >= frame.len => buf,
            _ => vec![0; frame.buf.len()].into(),
        };
        buf[..frame.len].copy_from_slice(frame.bytes());
        Frame { buf, len: frame.len }
    }

    // Frames.

    /// Takes a frame from a node. `false` when the node's carrier is down or it is gone: nothing was sent then.
    pub(super) fn send(&mut self, from: NodeId, frame: Frame) -> bool {
        let node = &self.nodes[from.at()];
        if !node.carrier || node.gone {
            self.give_buffer(frame.buf);
            return false;
        }
        let target = frame.bytes().first_chunk::<6>().filter(|_| frame.len >= 14).copied();
        let departs_ns = match target {
            Some(mac) if mac[0] & 1 == 1 => self.send_to_all(from, frame),
            Some(mac) => match self.owner_of(&mac).filter(|to| *to != from) {
                Some(to) => self.send_to(from, to, frame),
                None => self.lose_unroutable(from, frame),
            },
            None => self.lose_unroutable(from, frame),
        };
        if departs_ns > self.now_ns {
            self.nodes[from.at()].in_flight += 1;
            self.schedule(departs_ns, Due::Departure { node: from });
        }
        true
    }

    fn send_to_all(&mut self, from: NodeId, frame: Frame) -> u64 {
        let mut departs_ns = self.now_ns;
        for to in (0..self.nodes.len()).map(NodeId::new).filter(|to| *to != from) {
            let copy = self.copy_of(&frame);
            departs_ns = departs_ns.max(self.send_to(from, to, copy));
        }
        self.give_buffer(frame.buf);
        departs_ns
    }

    fn send_to(&mut self, from: NodeId, to: NodeId, frame: Frame) -> u64 {
        let counters = self.counters_mut(from, to);
        counters.sent += 1;
        counters.in_flight += 1;
        self.watch(from, Some(to), What::Sent, &frame);
        let now_ns = self.now_ns;
        let offer = self.link_mut(from, to).offer(now_ns, frame.bytes());
        let departs_ns = offer.departs_ns;
        self.pass(Hop::Switch, from, to, frame, offer);
        departs_ns
    }

    /// Lets a link's verdict come true: the frame is lost, or it and its copy are at `hop` when their time comes.
    fn pass(&mut self, hop: Hop, from: NodeId, to: NodeId, mut frame: Frame, offer: Offer) {
        let (arrives_ns, copy_arrives_ns, corrupt, held_back) = match offer.fate {
            Fate::Lost(loss) => return self.lose(loss, from, to, frame),
            Fate::Passes { arrives_ns, copy_arrives_ns, corrupt, held_back } => {
                (arrives_ns, copy_arrives_ns, corrupt, held_back)
            }
        };
        let copy = copy_arrives_ns.map(|at| (at, self.copy_of(&frame)));
        if let Some((bits, mut dice)) = corrupt {
            dice.flip_bits(frame.bytes_mut(), bits);
            self.counters_mut(from, to).corrupted += 1;
            self.watch(from, Some(to), What::Corrupted(bits), &frame);
        }
        if held_back {
            self.counters_mut(from, to).held_back += 1;
            self.watch(from, Some(to), What::HeldBack, &frame);
        }
        if let Some((_, copy)) = &copy {
            let counters = self.counters_mut(from, to);
            counters.duplicated += 1;
            counters.in_flight += 1;
            self.watch(from, Some(to), What::Duplicated, copy);
        }
        self.arrive_at(arrives_ns, hop, from, to, frame);
        if let Some((at_ns, copy)) = copy {
            self.arrive_at(at_ns, hop, from, to, copy);
        }
    }

    /// What is due now happens at once, unless something else that is due now was there before.
    fn arrive_at(&mut self, at_ns: u64, hop: Hop, from: NodeId, to: NodeId, frame: Frame) {
        if at_ns <= self.now_ns && self.next_event().is_none_or(|next| next > self.now_ns) {
            self.arrive(hop, from, to, frame);
        } else {
            self.schedule(at_ns, Due::Arrival { hop, from, to, frame });
        }
    }

    fn arrive(&mut self, hop: Hop, from: NodeId, to: NodeId, frame: Frame) {
        match hop {
            Hop::Switch => {
                let now_ns = self.now_ns;
                let offer = self.downlink_mut(to).offer(now_ns, frame.bytes());
                self.pass(Hop::Node, from, to, frame, offer);
            }
            Hop::Node => self.deliver(from, to, frame),
        }
    }

    fn deliver(&mut self, from: NodeId, to: NodeId, frame: Frame) {
        let node = &self.nodes[to.at()];
        if !node.carrier || node.gone {
            return self.lose(Loss::Down, from, to, frame);
        }
        if frame.len > node.max_frame {
            return self.lose(Loss::TooLong, from, to, frame);
        }
        if node.ring.len() >= node.ring_max {
            return self.lose(Loss::RxRing, from, to, frame);
        }
        let counters = self.counters_mut(from, to);
        counters.in_flight -= 1;
        counters.delivered += 1;
        self.watch(from, Some(to), What::Delivered, &frame);
        let node = &mut self.nodes[to.at()];
        node.ring.push_back(frame);
        if node.sleeps_until_ns.take().is_some()
            && let Some(wake) = &node.wake
        {
            wake.signal();
        }
    }

    fn lose(&mut self, loss: Loss, from: NodeId, to: NodeId, frame: Frame) {
        let counters = self.counters_mut(from, to);
        counters.in_flight -= 1;
        counters.lost.count(loss);
        self.nodes[to.at()].rx_lost += 1;
        self.watch(from, Some(to), What::Lost(loss), &frame);
        self.give_buffer(frame.buf);
    }

    fn lose_unroutable(&mut self, from: NodeId, frame: Frame) -> u64 {
        self.unroutable += 1;
        self.watch(from, None, What::Lost(Loss::Unroutable), &frame);
        self.give_buffer(frame.buf);
        self.now_ns
    }

    fn counters_mut(&mut self, from: NodeId, to: NodeId) -> &mut NetCounters {
        &mut self.nodes[from.at()].peers[to.at()].counters
    }

    fn watch(&mut self, from: NodeId, to: Option<NodeId>, what: What, frame: &Frame) {
        if let Some(observer) = &mut self.observer {
            observer(&NetEvent { at_ns: self.now_ns, from, to, what, frame: frame.bytes() });
        }
    }

    // Sleepers, in real time.

    /// The node's thread is about to sleep: until a frame arrives, or until the next thing is due.
    pub(super) fn sleep(&mut self, id: NodeId) {
        self.refresh();
        let next = self.next_event();
        let now_ns = self.now_ns;
        let node = &mut self.nodes[id.at()];
        let Some(wake) = &node.wake else { return };
        wake.arm(next.map(|at| at.saturating_sub(now_ns)));
        if node.ring.is_empty() && node.changes.is_empty() {
            node.sleeps_until_ns = Some(next.unwrap_or(u64::MAX));
        } else {
            wake.signal();
        }
    }

    pub(super) fn wake_up(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.at()];
        node.sleeps_until_ns = None;
        if let Some(wake) = &node.wake {
            wake.drain();
        }
    }

    fn shorten_sleep(&mut self, id: NodeId, at_ns: u64) {
        let now_ns = self.now_ns;
        let node = &mut self.nodes[id.at()];
        if let (Some(wake), Some(until_ns)) = (&node.wake, &mut node.sleeps_until_ns)
            && at_ns < *until_ns
        {
            *until_ns = at_ns;
            wake.arm(Some(at_ns.saturating_sub(now_ns)));
        }
    }

    /// Tells a node's port of a change, and wakes who sleeps on it.
    pub(super) fn tell(&mut self, id: NodeId, change: LinkChange) {
        let node = &mut self.nodes[id.at()];
        node.changes.push_back(change);
        node.changed.store(true, std::sync::atomic::Ordering::Release);
        if let Some(wake) = &node.wake {
            wake.signal();
        }
    }
}

impl Peer {
    fn new(seed: u64, from: NodeId, to: NodeId, model: &LinkModel) -> Peer {
        let rng = link_rng(seed, u64::from(from.index()), u64::from(to.index()));
        Peer { link: Link::new(model.clone(), rng), counters: NetCounters::default() }
    }
}

/// Each link has a stream of its own: traffic elsewhere does not change what happens on it.
fn link_rng(seed: u64, from: u64, to: u64) -> Rng {
    Rng::stream(seed, from << 32 | to)
}
