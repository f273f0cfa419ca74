//! Two ports joined by preallocated rings, and nothing between.
//!
//! What enters: frames committed at one end. What leaves: the same buffers at the other end, in order, none lost. No
//! lock, no clock, no model, no allocation after set-up: for benches of what stands above, and for two engines in one
//! process.

use std::borrow::Cow;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rtrb::{Consumer, Producer, RingBuffer};

use super::NodeError;
use super::frame::{Frame, RX_SPLIT_MIN, Split, VLAN_FRAME_OVERHEAD, lend_mut};
use super::port::default_reserve;
use crate::wake::Wake;
use crate::{Capabilities, LinkChange, Port, PortCounters, RxFrame, TxClass, TxFrame};

/// How both ends of a pipe are built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipeConfig {
    /// Bytes of the largest IP packet, 68 to 65535.
    pub mtu: u32,
    /// Frames each direction holds, 2 or more: committed, in the ring, or lent at the other end.
    pub ring: usize,
    /// Frames of `ring` kept for [`TxClass::Response`]; less than `ring`. `None`: an eighth of it, at most 64.
    pub response_reserve: Option<usize>,
    /// As [`NodeConfig::split_at`](super::NodeConfig::split_at).
    pub split_at: Option<usize>,
}

impl Default for PipeConfig {
    fn default() -> PipeConfig {
        PipeConfig { mtu: 4200, ring: 1024, response_reserve: None, split_at: None }
    }
}

impl PipeConfig {
    fn reserve(&self) -> usize {
        self.response_reserve.unwrap_or_else(|| default_reserve(self.ring))
    }

    fn check(&self) -> Result<(), NodeError> {
        let range = |field, value, ok: bool, want| {
            if ok { Ok(()) } else { Err(NodeError::Range { field, value, want }) }
        };
        range("mtu", self.mtu as usize, (68..=65535).contains(&self.mtu), "68 to 65535 bytes")?;
        range("ring", self.ring, self.ring >= 2, "at least 2")?;
        range("response_reserve", self.reserve(), self.reserve() < self.ring, "less than ring")?;
        let split = self.split_at.unwrap_or(RX_SPLIT_MIN);
        range("split_at", split, split >= RX_SPLIT_MIN, "at least 128, so that headers lie in the head")
    }
}

/// A sleeper and who wakes it.
#[derive(Debug)]
struct Sleeper {
    asleep: AtomicBool,
    /// The other end was dropped.
    alone: AtomicBool,
    wake: Wake,
}

/// One end of a [`loop_pair`].
#[derive(Debug)]
pub struct PipePort {
    capabilities: Capabilities,
    split: Split,
    response_reserve: usize,
    /// To the other end, and its buffers back.
    out: Producer<Frame>,
    back: Consumer<Box<[u8]>>,
    /// From the other end, and its buffers back.
    inward: Consumer<Frame>,
    give_back: Producer<Box<[u8]>>,
    free: Vec<Box<[u8]>>,
    pending: Vec<Frame>,
    lent: Vec<Frame>,
    reserved: usize,
    counters: PortCounters,
    me: Arc<Sleeper>,
    other: Arc<Sleeper>,
    told_gone: bool,
}

/// The two ends of a pipe. Their MACs are 02:00:00:00:00:01 and 02:00:00:00:00:02; addresses in frames are not looked
/// at.
///
/// # Errors
/// [`NodeError`] when a number is out of range or no descriptors to sleep on could be opened.
pub fn loop_pair(config: &PipeConfig) -> Result<(PipePort, PipePort), NodeError> {
    config.check()?;
    let (a_out, b_in) = RingBuffer::new(config.ring);
    let (b_out, a_in) = RingBuffer::new(config.ring);
    let (a_give, b_back) = RingBuffer::new(config.ring);
    let (b_give, a_back) = RingBuffer::new(config.ring);
    let sleeper = || -> Result<Arc<Sleeper>, NodeError> {
        let (asleep, alone) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Arc::new(Sleeper { asleep, alone, wake: Wake::new()? }))
    };
    let (a_sleeper, b_sleeper) = (sleeper()?, sleeper()?);
    let a = PipePort::new(config, 1, (a_out, a_back), (a_in, a_give), (Arc::clone(&a_sleeper), Arc::clone(&b_sleeper)));
    let b = PipePort::new(config, 2, (b_out, b_back), (b_in, b_give), (b_sleeper, a_sleeper));
    Ok((a, b))
}

impl PipePort {
    fn new(
        config: &PipeConfig,
        number: u8,
        (out, back): (Producer<Frame>, Consumer<Box<[u8]>>),
        (inward, give_back): (Consumer<Frame>, Producer<Box<[u8]>>),
        (me, other): (Arc<Sleeper>, Arc<Sleeper>),
    ) -> PipePort {
        let max_frame = config.mtu as usize + VLAN_FRAME_OVERHEAD;
        let mac = [2, 0, 0, 0, 0, number];
        PipePort {
            capabilities: Capabilities { mtu: config.mtu, max_frame, queues: 1, mac, xdp: None },
            split: Split(config.split_at),
            response_reserve: config.reserve(),
            out,
            back,
            inward,
            give_back,
            free: (0..config.ring).map(|_| vec![0; max_frame].into()).collect(),
            pending: Vec::with_capacity(config.ring),
            lent: Vec::with_capacity(config.ring),
            reserved: 0,
            counters: PortCounters::default(),
            me,
            other,
            told_gone: false,
        }
    }

    fn collect_returned(&mut self) {
        let count = self.back.slots();
        if let Ok(returned) = self.back.read_chunk(count) {
            self.free.extend(returned);
        }
    }
}

impl Port for PipePort {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn rx_burst(&mut self, max: usize) -> usize {
        self.rx_release();
        let count = self.inward.slots().min(max);
        if let Ok(frames) = self.inward.read_chunk(count) {
            self.lent.extend(frames);
        }
        self.counters.rx_frames += self.lent.len() as u64;
        self.counters.rx_bytes += self.lent.iter().map(|frame| frame.len as u64).sum::<u64>();
        self.lent.len()
    }

    fn rx_frame(&self, i: usize) -> RxFrame<'_> {
        self.lent[i].lend(self.split)
    }

    fn rx_release(&mut self) {
        // The way back has room for every buffer of the direction, so the chunk is always granted.
        if let Ok(room) = self.give_back.write_chunk_uninit(self.lent.len()) {
            room.fill_from_iter(self.lent.drain(..).map(|frame| frame.buf));
        }
    }

    fn tx_reserve(&mut self, len: usize, class: TxClass) -> Option<TxFrame<'_>> {
        self.reserved = 0;
        let kept = match class {
            TxClass::Request => self.response_reserve,
            TxClass::Response => 0,
        };
        if len == 0 || len > self.capabilities.max_frame || self.free.len() <= kept {
            self.counters.tx_refused += 1;
            return None;
        }
        self.reserved = len;
        self.free.last_mut().map(|buf| lend_mut(buf, len, self.split))
    }

    fn tx_commit(&mut self, len: usize) {
        assert!(self.reserved > 0, "tx_commit without a reserved frame");
        assert!((1..=self.reserved).contains(&len), "tx_commit of {len} bytes, reserved were {}", self.reserved);
        self.reserved = 0;
        let buf = self.free.pop().expect("the reserved buffer is the last free one");
        self.pending.push(Frame { buf, len });
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
    }

    fn tx_flush(&mut self) {
        self.collect_returned();
        if self.pending.is_empty() {
            return;
        }
        // The ring has room for every buffer of the direction, so the chunk is always granted.
        if let Ok(room) = self.out.write_chunk_uninit(self.pending.len()) {
            room.fill_from_iter(self.pending.drain(..));
        }
        self.counters.kicks += 1;
        // Pairs with the fence in `before_wait`: either we see the sleeper, or it sees the frames.
        fence(Ordering::SeqCst);
        if self.other.asleep.load(Ordering::Relaxed) && self.other.asleep.swap(false, Ordering::Relaxed) {
            self.other.wake.signal();
        }
    }

    fn tx_idle(&self) -> bool {
        self.pending.is_empty()
    }

    fn wait_fds(&self, out: &mut Vec<RawFd>) {
        self.me.wake.fds(out);
    }

    fn before_wait(&mut self) {
        self.me.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !self.inward.is_empty() || (self.me.alone.load(Ordering::Relaxed) && !self.told_gone) {
            self.me.wake.signal();
        }
    }

    fn after_wait(&mut self) {
        self.me.asleep.store(false, Ordering::Relaxed);
        self.me.wake.drain();
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn link(&mut self) -> Option<LinkChange> {
        if self.told_gone || !self.me.alone.load(Ordering::Acquire) {
            return None;
        }
        self.told_gone = true;
        Some(LinkChange::Gone(Cow::Borrowed("the other end of the pipe was dropped")))
    }
}

impl Drop for PipePort {
    fn drop(&mut self) {
        self.other.alone.store(true, Ordering::Release);
        self.other.wake.signal();
    }
}
