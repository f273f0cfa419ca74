//! The handle on a simulated network.
//!
//! What enters: nodes, link models, time. What leaves: ports, counters, the time of the next event, and events for
//! those who look on.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::switch::{Clock, Switch};
use super::{LinkModel, ModelError, NetCounters, NetEvent, NodeConfig, NodeError, SimPort};
use crate::LinkChange;

/// A node of a network: nodes are numbered from 0 in the order they joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    #[allow(clippy::cast_possible_truncation, reason = "add_node refuses more than NODES_MAX nodes")]
    pub(super) fn new(index: usize) -> NodeId {
        NodeId(index as u32)
    }

    /// The number, from 0.
    #[must_use]
    pub fn index(self) -> u32 {
        self.0
    }

    pub(super) fn at(self) -> usize {
        self.0 as usize
    }
}

/// Nodes a network may have: every pair of them has a link of its own.
const NODES_MAX: usize = 4096;

/// A switched network in memory. Clones are handles on the same network; it lives as long as one of them or a port.
///
/// A frame goes to the node with its destination MAC, or to all others when that is a group address. On its way it
/// passes the link from sender to receiver ([`SimNet::set_link`]), then the receiver's downlink, which all senders
/// share ([`SimNet::set_downlink`]): a rate there makes incast. Both are perfect unless told otherwise.
///
/// In virtual time frames with no delay are in the receiver's ring when `tx_flush` returns; the others arrive when
/// [`SimNet::advance_to`] passes their time.
#[derive(Clone)]
pub struct SimNet {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    switch: Mutex<Switch>,
    now_ns: Arc<AtomicU64>,
    real_time: bool,
}

impl Shared {
    /// A panic of an observer leaves no half-done work that would matter: the lock outlives it.
    pub(super) fn lock(&self) -> MutexGuard<'_, Switch> {
        self.switch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn virtual_now(&self) -> Option<u64> {
        (!self.real_time).then(|| self.now_ns.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for SimNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = self.shared.lock();
        f.debug_struct("SimNet")
            .field("now_ns", &switch.now_ns())
            .field("nodes", &switch.nodes.len())
            .field("counters", &switch.counters())
            .finish_non_exhaustive()
    }
}

impl SimNet {
    /// A network in virtual time that starts at 0 ns. The seed decides everything that is left to chance.
    #[must_use]
    pub fn new(seed: u64) -> SimNet {
        SimNet::with_clock(seed, Clock::Virtual)
    }

    /// A network that follows the system's monotonic clock, read by its ports, or the caller's clock once
    /// [`SimNet::set_now`] was called. Its ports have descriptors to sleep on. A run cannot be repeated: chance is
    /// seeded, the order in which threads come is not.
    #[must_use]
    pub fn real_time(seed: u64) -> SimNet {
        SimNet::with_clock(seed, Clock::System(Instant::now()))
    }

    fn with_clock(seed: u64, clock: Clock) -> SimNet {
        let now_ns = Arc::new(AtomicU64::new(0));
        let real_time = !matches!(clock, Clock::Virtual);
        let switch = Mutex::new(Switch::new(seed, clock, Arc::clone(&now_ns)));
        SimNet { shared: Arc::new(Shared { switch, now_ns, real_time }) }
    }

    /// Adds a node and gives its port.
    ///
    /// # Errors
    /// [`NodeError`] when the MAC is taken or not a unicast address, a number of the configuration is out of range, or
    /// (real time only) no descriptors could be opened.
    pub fn add_node(&self, config: &NodeConfig) -> Result<SimPort, NodeError> {
        SimPort::join(&self.shared, config)
    }

    pub(super) fn check_room(nodes: usize) -> Result<(), NodeError> {
        if nodes < NODES_MAX {
            return Ok(());
        }
        Err(NodeError::Range { field: "nodes", value: nodes + 1, want: "a network has at most 4096" })
    }

    /// Sets the model of the link from one node to another, this direction only.
    ///
    /// # Errors
    /// [`ModelError`] when the model makes no sense or a node is not of this network.
    pub fn set_link(&self, from: NodeId, to: NodeId, model: &LinkModel) -> Result<(), ModelError> {
        model.check()?;
        let mut switch = self.locked_for(from.max(to))?;
        switch.link_mut(from, to).set_model(model.clone());
        Ok(())
    }

    /// Sets the model of both directions between two nodes.
    ///
    /// # Errors
    /// As [`SimNet::set_link`].
    pub fn set_links(&self, a: NodeId, b: NodeId, model: &LinkModel) -> Result<(), ModelError> {
        self.set_link(a, b, model)?;
        self.set_link(b, a, model)
    }

    /// Sets the model of every link, also of those to nodes that join later. Downlinks stay as they are.
    ///
    /// # Errors
    /// [`ModelError`] when the model makes no sense.
    pub fn set_every_link(&self, model: &LinkModel) -> Result<(), ModelError> {
        model.check()?;
        self.shared.lock().set_every_link(model);
        Ok(())
    }

    /// Sets the model of the last stretch to a node, which all senders share.
    ///
    /// # Errors
    /// As [`SimNet::set_link`].
    pub fn set_downlink(&self, to: NodeId, model: &LinkModel) -> Result<(), ModelError> {
        model.check()?;
        self.locked_for(to)?.downlink_mut(to).set_model(model.clone());
        Ok(())
    }

    /// The model of the link from one node to another.
    ///
    /// # Errors
    /// [`ModelError::NoSuchNode`].
    pub fn link(&self, from: NodeId, to: NodeId) -> Result<LinkModel, ModelError> {
        Ok(self.locked_for(from.max(to))?.link_mut(from, to).model().clone())
    }

    /// Takes a node's carrier away or gives it back. Its port reports the change; frames from and to it are lost while
    /// it is down.
    ///
    /// # Errors
    /// [`ModelError::NoSuchNode`].
    pub fn set_carrier(&self, node: NodeId, up: bool) -> Result<(), ModelError> {
        let mut switch = self.locked_for(node)?;
        let at = &mut switch.nodes[node.at()];
        if at.carrier != up && !at.gone {
            at.carrier = up;
            switch.tell(node, if up { LinkChange::Up } else { LinkChange::Down });
        }
        Ok(())
    }

    /// Takes a node away for good, as if its netdev were removed: its port reports [`LinkChange::Gone`] with `reason`.
    ///
    /// # Errors
    /// [`ModelError::NoSuchNode`].
    pub fn remove(&self, node: NodeId, reason: impl Into<Cow<'static, str>>) -> Result<(), ModelError> {
        let mut switch = self.locked_for(node)?;
        if !std::mem::replace(&mut switch.nodes[node.at()].gone, true) {
            switch.tell(node, LinkChange::Gone(reason.into()));
        }
        Ok(())
    }

    fn locked_for(&self, node: NodeId) -> Result<MutexGuard<'_, Switch>, ModelError> {
        let switch = self.shared.lock();
        let nodes = switch.nodes.len();
        if node.at() < nodes { Ok(switch) } else { Err(ModelError::NoSuchNode { node: node.0, nodes }) }
    }

    /// The network's time in nanoseconds. In real time it stands where it last looked at the clock.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.shared.now_ns.load(Ordering::Relaxed)
    }

    /// Lets everything happen that is due until `until_ns`, in order, and sets the clock there. A time that has passed
    /// changes nothing.
    pub fn advance_to(&self, until_ns: u64) {
        self.shared.lock().run_until(until_ns);
    }

    /// Feeds the caller's real clock, in nanoseconds since a start of the caller's choice: as [`SimNet::advance_to`],
    /// and from the first call on the network reads no clock itself.
    pub fn set_now(&self, now_ns: u64) {
        let mut switch = self.shared.lock();
        if matches!(switch.clock, Clock::System(_)) {
            switch.clock = Clock::Fed;
        }
        switch.run_until(now_ns);
    }

    /// When the next thing happens: a frame arrives, or the wire has taken one and its sender's slot is free. `None`
    /// when nothing is on its way.
    #[must_use]
    pub fn next_event(&self) -> Option<u64> {
        self.shared.lock().next_event()
    }

    /// Where the frames of the whole network went.
    #[must_use]
    pub fn counters(&self) -> NetCounters {
        self.shared.lock().counters()
    }

    /// Where the frames between two nodes went, this direction only.
    ///
    /// # Errors
    /// [`ModelError::NoSuchNode`].
    pub fn counters_between(&self, from: NodeId, to: NodeId) -> Result<NetCounters, ModelError> {
        Ok(self.locked_for(from.max(to))?.counters_between(from, to))
    }

    /// Has `observer` called for everything that happens to a frame; one at a time, a second replaces the first. It
    /// runs under the network's lock, so it must not call the network or a port of it.
    pub fn observe(&self, observer: impl FnMut(&NetEvent<'_>) + Send + 'static) {
        self.shared.lock().observer = Some(Box::new(observer));
    }
}

/// Two nodes with default configuration, joined by a perfect link in virtual time: the network, node 0, node 1.
#[must_use]
pub fn pair(seed: u64) -> (SimNet, SimPort, SimPort) {
    let net = SimNet::new(seed);
    let join = || net.add_node(&NodeConfig::default()).expect("the default configuration fits a new network");
    let (a, b) = (join(), join());
    (net, a, b)
}
