//! A node's port on a simulated network.
//!
//! What enters: frames from the network, frames from the engine. What leaves: the same. Frames are moved, not copied:
//! a buffer goes from the sender to the network to the receiver and back to the network's pool.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::frame::{Frame, RX_SPLIT_MIN, Split, VLAN_FRAME_OVERHEAD, lend_mut};
use super::net::Shared;
use super::{NodeError, NodeId, SimNet};
use crate::wake::Wake;
use crate::{Capabilities, LinkChange, Port, PortCounters, RxFrame, TxClass, TxFrame};

/// Buffers fetched from the network's pool at a time.
const REFILL: usize = 64;

/// Slots kept for responses where the caller did not say.
pub(super) fn default_reserve(slots: usize) -> usize {
    (slots / 8).min(64)
}

/// How a node is attached. The default is a generous netdev with MTU 4200, which carries path MTU 4096.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// Hardware address; `None`: 02:00:00:00 and the node's number.
    pub mac: Option<[u8; 6]>,
    /// Bytes of the largest IP packet, 68 to 65535.
    pub mtu: u32,
    /// Frames the receive ring holds, 1 or more; more are lost.
    pub rx_ring: usize,
    /// Frames that may be committed and wait for a kick, 1 or more.
    pub tx_ring: usize,
    /// Frames that may be committed or wait for the wire of a link with a rate, 1 or more.
    pub in_flight_max: usize,
    /// Slots of both bounds kept for [`TxClass::Response`]; less than either bound. `None`: an eighth of the smaller
    /// bound, at most 64.
    pub response_reserve: Option<usize>,
    /// Frames one `rx_burst` gives at most, 1 or more.
    pub rx_burst_max: usize,
    /// Frames one kick takes at most, 1 or more: a copy-mode AF_XDP socket takes 32.
    pub kick_max: usize,
    /// Where frames are cut in two pieces: receive frames here ([`RX_SPLIT_MIN`] or more), transmit frames here but
    /// not below [`TX_HEAD_MIN`](crate::TX_HEAD_MIN). `None`: one piece.
    pub split_at: Option<usize>,
}

impl Default for NodeConfig {
    fn default() -> NodeConfig {
        NodeConfig {
            mac: None,
            mtu: 4200,
            rx_ring: 4096,
            tx_ring: 1024,
            in_flight_max: 4096,
            response_reserve: None,
            rx_burst_max: usize::MAX,
            kick_max: usize::MAX,
            split_at: None,
        }
    }
}

impl NodeConfig {
    fn reserve(&self) -> usize {
        self.response_reserve.unwrap_or_else(|| default_reserve(self.tx_ring.min(self.in_flight_max)))
    }

    fn check(&self) -> Result<(), NodeError> {
        let range = |field, value, ok: bool, want| {
            if ok { Ok(()) } else { Err(NodeError::Range { field, value, want }) }
        };
        range("mtu", self.mtu as usize, (68..=65535).contains(&self.mtu), "68 to 65535 bytes")?;
        for (field, value) in [
            ("rx_ring", self.rx_ring),
            ("tx_ring", self.tx_ring),
            ("in_flight_max", self.in_flight_max),
            ("rx_burst_max", self.rx_burst_max),
            ("kick_max", self.kick_max),
        ] {
            range(field, value, value >= 1, "at least 1")?;
        }
        let bound = self.tx_ring.min(self.in_flight_max);
        let reserve = self.reserve();
        range(
            "response_reserve",
            reserve,
            reserve < bound,
            "less than tx_ring and in_flight_max, or no request passes",
        )?;
        let split = self.split_at.unwrap_or(RX_SPLIT_MIN);
        range("split_at", split, split >= RX_SPLIT_MIN, "at least 128, so that headers lie in the head")
    }
}

/// One node's end of a [`SimNet`]. Dropped, it leaves the network: frames to it are lost.
pub struct SimPort {
    shared: Arc<Shared>,
    id: NodeId,
    capabilities: Capabilities,
    config: NodeConfig,
    split: Split,
    response_reserve: usize,
    /// Frames of the last burst.
    lent: Vec<Frame>,
    /// Committed, not kicked.
    pending: VecDeque<Frame>,
    /// Committed and taken by a kick, but not by the wire, as of the last flush.
    in_flight: usize,
    free: Vec<Box<[u8]>>,
    /// The buffer that `tx_reserve` lends, and how much of it is reserved; 0: nothing.
    writing: Box<[u8]>,
    reserved: usize,
    counters: PortCounters,
    changed: Arc<AtomicBool>,
    wake: Option<Arc<Wake>>,
    gone: bool,
}

impl fmt::Debug for SimPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimPort").field("id", &self.id).field("config", &self.config).finish_non_exhaustive()
    }
}

impl SimPort {
    pub(super) fn join(shared: &Arc<Shared>, config: &NodeConfig) -> Result<SimPort, NodeError> {
        config.check()?;
        let wake = shared.virtual_now().is_none().then(Wake::new).transpose()?.map(Arc::new);
        let mut switch = shared.lock();
        SimNet::check_room(switch.nodes.len())?;
        let [_, _, hi, lo] = NodeId::new(switch.nodes.len() + 1).index().to_be_bytes();
        let mac = config.mac.unwrap_or([2, 0, 0, 0, hi, lo]);
        if mac[0] & 1 == 1 || mac == [0; 6] {
            return Err(NodeError::MacNotUnicast { mac });
        }
        if let Some(node) = switch.owner_of(&mac) {
            return Err(NodeError::MacTaken { mac, node: node.index() });
        }
        let max_frame = config.mtu as usize + VLAN_FRAME_OVERHEAD;
        let (id, changed) = switch.add_node(mac, max_frame, config.rx_ring, wake.clone());
        drop(switch);
        Ok(SimPort {
            shared: Arc::clone(shared),
            id,
            capabilities: Capabilities { mtu: config.mtu, max_frame, queues: 1, mac, xdp: None },
            split: Split(config.split_at),
            response_reserve: config.reserve(),
            lent: Vec::with_capacity(config.rx_ring),
            pending: VecDeque::with_capacity(config.tx_ring),
            in_flight: 0,
            free: Vec::with_capacity(REFILL),
            writing: vec![0; max_frame].into(),
            reserved: 0,
            counters: PortCounters::default(),
            changed,
            wake,
            gone: false,
            config: config.clone(),
        })
    }

    /// Which node of the network this is.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Slots left under both bounds.
    fn slots(&self) -> usize {
        let ring = self.config.tx_ring - self.pending.len();
        ring.min(self.config.in_flight_max.saturating_sub(self.pending.len() + self.in_flight))
    }

    /// A buffer for the next frame to be written, in place of the one just committed.
    fn fresh_buffer(&mut self) -> Box<[u8]> {
        if self.free.is_empty() {
            self.shared.lock().take_buffers(&mut self.free, REFILL);
        }
        match self.free.pop() {
            Some(buf) if buf.len() >= self.capabilities.max_frame => buf,
            _ => vec![0; self.capabilities.max_frame].into(),
        }
    }
}

impl Port for SimPort {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn rx_burst(&mut self, max: usize) -> usize {
        let mut switch = self.shared.lock();
        switch.refresh();
        for frame in self.lent.drain(..) {
            switch.give_buffer(frame.buf);
        }
        let ring = &mut switch.nodes[self.id.at()].ring;
        let count = max.min(self.config.rx_burst_max).min(ring.len());
        self.lent.extend(ring.drain(..count));
        drop(switch);
        self.counters.rx_frames += count as u64;
        self.counters.rx_bytes += self.lent.iter().map(|frame| frame.len as u64).sum::<u64>();
        count
    }

    fn rx_frame(&self, i: usize) -> RxFrame<'_> {
        self.lent[i].lend(self.split)
    }

    fn rx_release(&mut self) {
        // This port sends from what it received, before it asks the pool.
        let keep = REFILL.saturating_sub(self.free.len()).min(self.lent.len());
        self.free.extend(self.lent.drain(..keep).map(|frame| frame.buf));
        if !self.lent.is_empty() {
            let mut switch = self.shared.lock();
            for frame in self.lent.drain(..) {
                switch.give_buffer(frame.buf);
            }
        }
    }

    fn tx_reserve(&mut self, len: usize, class: TxClass) -> Option<TxFrame<'_>> {
        self.reserved = 0;
        let kept = match class {
            TxClass::Request => self.response_reserve,
            TxClass::Response => 0,
        };
        if self.gone || len == 0 || len > self.capabilities.max_frame || self.slots() <= kept {
            self.counters.tx_refused += 1;
            return None;
        }
        self.reserved = len;
        Some(lend_mut(&mut self.writing, len, self.split))
    }

    fn tx_commit(&mut self, len: usize) {
        assert!(self.reserved > 0, "tx_commit without a reserved frame");
        assert!((1..=self.reserved).contains(&len), "tx_commit of {len} bytes, reserved were {}", self.reserved);
        self.reserved = 0;
        let next = self.fresh_buffer();
        let buf = std::mem::replace(&mut self.writing, next);
        self.pending.push_back(Frame { buf, len });
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
    }

    fn tx_flush(&mut self) {
        if self.pending.is_empty() && self.in_flight == 0 {
            return;
        }
        let mut switch = self.shared.lock();
        switch.refresh();
        let count = self.pending.len().min(self.config.kick_max);
        for frame in self.pending.drain(..count) {
            if !switch.send(self.id, frame) {
                self.counters.tx_dropped += 1;
            }
        }
        self.in_flight = switch.nodes[self.id.at()].in_flight;
        self.counters.kicks += u64::from(count > 0);
    }

    fn tx_idle(&self) -> bool {
        self.pending.is_empty()
    }

    fn wait_fds(&self, out: &mut Vec<RawFd>) {
        if let Some(wake) = &self.wake {
            wake.fds(out);
        }
    }

    fn before_wait(&mut self) {
        if self.wake.is_some() {
            self.shared.lock().sleep(self.id);
        }
    }

    fn after_wait(&mut self) {
        if self.wake.is_some() {
            self.shared.lock().wake_up(self.id);
        }
    }

    fn counters(&self) -> PortCounters {
        let rx_lost = self.shared.lock().nodes[self.id.at()].rx_lost;
        PortCounters { rx_dropped_lower: rx_lost, ..self.counters }
    }

    fn link(&mut self) -> Option<LinkChange> {
        if !self.changed.load(Ordering::Acquire) {
            return None;
        }
        let mut switch = self.shared.lock();
        let changes = &mut switch.nodes[self.id.at()].changes;
        let change = changes.pop_front();
        if changes.is_empty() {
            self.changed.store(false, Ordering::Release);
        }
        self.gone |= matches!(change, Some(LinkChange::Gone(_)));
        change
    }

    fn now_hint(&self) -> Option<u64> {
        self.shared.virtual_now()
    }
}

impl Drop for SimPort {
    fn drop(&mut self) {
        self.shared.lock().nodes[self.id.at()].gone = true;
    }
}
