//! One machine: an endpoint, its memory table, its CQ, and a port with few places.
//!
//! In: frames. Out: frames, taken one by one from the endpoint as the port has room.

use std::collections::BTreeMap;
use std::sync::Arc;

use xroce_transport::cq::Cq;
use xroce_transport::memory::{Memory, Pd};
use xroce_transport::{Endpoint, EndpointConfig, Instant, Limits, PathId, Transmit, TxClass, TxPacket, TxSink};
use xroce_wire::{Gid, Qpn};

use crate::buffer::Buffer;
use crate::plan::NodePlan;

/// What lives and dies with a machine.
pub(crate) struct Node {
    /// First, so that it is gone before the bytes it may write to.
    pub(crate) endpoint: Endpoint,
    pub(crate) memory: Arc<Memory>,
    pub(crate) pd: Pd,
    /// A domain without queue pairs.
    pub(crate) other_pd: Pd,
    pub(crate) cq: Arc<Cq>,
    /// The word that all atomics on this machine share, and its key.
    pub(crate) shared: Buffer,
    pub(crate) shared_key: u32,
    /// Which end a queue pair belongs to.
    pub(crate) ends: BTreeMap<u32, usize>,
    pub(crate) gid: Gid,
    pub(crate) alive: bool,
    pub(crate) born: u64,
    /// Places of the port that are taken.
    pub(crate) tx_used: usize,
    /// When the wire has taken all frames of the port.
    pub(crate) tx_free_at: u64,
    /// The application will look at the CQ then.
    pub(crate) poll_at: Option<u64>,
    /// Something happened to the CQ since the application armed it, and it was not told.
    pub(crate) armed: bool,
}

/// First address of the shared word.
pub(crate) const SHARED_VA: u64 = 0x5000;

impl Node {
    /// Switched on at `now`. `incarnation` tells its lives apart.
    pub(crate) fn new(plan: &NodePlan, index: usize, ipv6: bool, now: u64, incarnation: u64) -> Node {
        use xroce_transport::memory::Access;
        let n = index as u8 + 1;
        let gid = match ipv6 {
            true => Gid([0xfd, 0, 0, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n]),
            false => Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, n]),
        };
        let memory = Arc::new(Memory::new([u64::from(n), incarnation], 4096, 0));
        let pd = memory.alloc_pd().expect("a first domain");
        let other_pd = memory.alloc_pd().expect("a second domain");
        let limits = Limits { window_packets: plan.window, ack_req_every: plan.ack_every, ..Limits::default() };
        let seed = u64::from(n) << 32 | incarnation;
        let config = EndpointConfig { limits, seed, credits: plan.credits, ..EndpointConfig::default() };
        let shared = Buffer::new(8);
        shared.write(0, &[0; 8]);
        let rights = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
        let shared_key = shared.register(&memory, pd, 0..8, SHARED_VA, rights).0;
        Node {
            endpoint: Endpoint::new(config, Arc::clone(&memory)),
            memory,
            pd,
            other_pd,
            cq: Cq::new(index as u64, plan.cqe).expect("a size that there is"),
            shared,
            shared_key,
            ends: BTreeMap::new(),
            gid,
            alive: true,
            born: now,
            tx_used: 0,
            tx_free_at: now,
            poll_at: None,
            armed: false,
        }
    }

    /// The next packet of the endpoint, into `frame`.
    pub(crate) fn next_packet(&mut self, now: u64, plan: &NodePlan, frame: &mut Frame) -> Option<Transmit> {
        let mut sink = Sink { frame, room: plan.tx_slots.saturating_sub(self.tx_used), split: plan.split };
        self.endpoint.poll_transmit(Instant(now), &mut sink)
    }

    pub(crate) fn end_of(&self, qpn: Qpn) -> Option<usize> {
        self.ends.get(&qpn.value()).copied()
    }
}

/// Scratch memory for one packet in two pieces.
#[derive(Default)]
pub(crate) struct Frame {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Frame {
    /// The packet in one piece.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [&self.head[..], &self.tail[..]].concat()
    }
}

/// A port with `room` free places. The last one is kept for responses, as ports do.
struct Sink<'a> {
    frame: &'a mut Frame,
    room: usize,
    split: usize,
}

impl TxSink for Sink<'_> {
    fn reserve(&mut self, _path: PathId, len: usize, class: TxClass) -> Option<TxPacket<'_>> {
        let kept = usize::from(class == TxClass::Request);
        if self.room <= kept {
            return None;
        }
        let at = len.min(self.split);
        // Old bytes, to see that every byte of a packet is written.
        self.frame.head.clear();
        self.frame.head.resize(at, 0xA5);
        self.frame.tail.clear();
        self.frame.tail.resize(len - at, 0xA5);
        Some(TxPacket { head: &mut self.frame.head, tail: &mut self.frame.tail })
    }
}
