//! The endpoint: the queue pairs of one shard, and the transport's only public door.
//!
//! In: packets, doorbells, the time, control calls. Out: packets to send, deadlines, events, CQs to wake. It finds the
//! queue pair a packet is for, keeps the lists of those that have something to send, and the timing wheel.

use std::collections::VecDeque;
use std::sync::Arc;

use thiserror::Error;
use xroce_wire::{IcrcMemo, Opcode, Packet, Qpn};

use crate::config::{EndpointConfig, QPN_GENERATION_BITS, QPN_INDEX_BITS};
use crate::context::{Context, Outbox};
use crate::counters::{Counters, QpCounters};
use crate::cq::Cq;
use crate::drop::DropReason;
use crate::event::Event;
use crate::instant::Instant;
use crate::io::{PathId, QpPath, RxMeta, RxPacket, Transmit, TxSink};
use crate::memory::{Lookup, Memory, PdError, Recent};
use crate::prefetch;
use crate::qp::state::QpAttr;
use crate::qp::{ModifyQpError, Polled, Qp, QpHandle, QpInfo, QpInit, QpSnapshot};
use crate::timer::Wheel;
use crate::wr::CapError;

/// Request packets in a row before responses get their turn, and the other way round.
const TURN_PACKETS: u32 = 32;
/// Packets in a row of one queue pair before the next one gets its turn.
const QP_TURN_PACKETS: u32 = 16;

/// Queue pairs that stay in the cache as they are: with more, those whose turn comes soon are fetched ahead.
const CACHED_QPS: usize = 64;
/// How many turns ahead.
const FETCH_AHEAD: usize = 3;

/// Slots that rest before one is used again: with the generations, a QPN comes back after 31 times as many queue pairs.
const RESTING_SLOTS: usize = 64;

/// Generations of an index: 1 to 31, as 0 is left out.
const GENERATIONS: u32 = (1 << QPN_GENERATION_BITS) - 1;

/// Why a queue pair was not made.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum CreateQpError {
    /// A capacity is more than the device has.
    #[error(transparent)]
    Cap(#[from] CapError),
    /// The protection domain does not exist (any more).
    #[error(transparent)]
    Pd(#[from] PdError),
    /// The device's queue pairs are all in use.
    #[error("all {max} queue pairs are in use: destroy one first")]
    TooMany {
        /// How many there are.
        max: u32,
    },
}

/// There is no queue pair with this number.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("there is no queue pair {0}")]
pub struct NoSuchQp(
    /// The number that was given.
    pub Qpn,
);

/// A place for a queue pair. The generation tells its successive owners apart.
struct Slot {
    generation: u32,
    qp: Option<Box<Qp>>,
}

/// Queue pairs that may have packets to send, each at most once, served in turn.
#[derive(Debug, Default)]
struct ReadyList {
    queue: VecDeque<u32>,
    in_a_row: u32,
}

impl ReadyList {
    /// The front has sent a packet: after some, it goes to the back.
    #[inline]
    fn sent(&mut self) {
        self.in_a_row += 1;
        if self.in_a_row >= QP_TURN_PACKETS {
            self.queue.rotate_left(1);
            self.in_a_row = 0;
        }
    }

    fn pop(&mut self) {
        self.queue.pop_front();
        self.in_a_row = 0;
    }

    /// Whose turn comes soon.
    fn soon(&self) -> Option<u32> {
        self.queue.get(FETCH_AHEAD).copied()
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Requests,
    Responses,
}

impl Turn {
    fn other(self) -> Turn {
        match self {
            Turn::Requests => Turn::Responses,
            Turn::Responses => Turn::Requests,
        }
    }
}

/// What becomes of ACKs that nothing else leaves with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Acks {
    /// They leave.
    Leave,
    /// They wait for the next round.
    Wait,
    /// They wait, and there is one.
    Held,
}

/// The transport of one shard. See the crate's head for the order in which its doors are drained.
pub struct Endpoint {
    config: EndpointConfig,
    memory: Arc<Memory>,
    recent: Recent,
    slots: Vec<Slot>,
    /// Free slots, longest free first.
    free: VecDeque<u32>,
    wheel: Wheel,
    requests: ReadyList,
    responses: ReadyList,
    turn: Turn,
    sent_in_turn: u32,
    acks: Acks,
    outbox: Outbox,
    icrcs: IcrcMemo,
    counters: Counters,
}

/// The context of one call, over disjoint fields of the endpoint, so that a queue pair can be borrowed beside it.
macro_rules! context {
    ($self:ident, $now:expr) => {
        Context {
            now: $now,
            memory: Lookup::new(&$self.memory, &$self.recent),
            limits: &$self.config.limits,
            outbox: &mut $self.outbox,
            icrcs: &mut $self.icrcs,
            credits: $self.config.credits,
            overrun: false,
            cq_died: false,
        }
    };
}

impl Endpoint {
    /// Without queue pairs.
    pub fn new(config: EndpointConfig, memory: Arc<Memory>) -> Endpoint {
        Endpoint {
            config,
            memory,
            recent: Recent::default(),
            slots: Vec::new(),
            free: VecDeque::new(),
            wheel: Wheel::new(),
            requests: ReadyList::default(),
            responses: ReadyList::default(),
            turn: Turn::Requests,
            sent_in_turn: 0,
            acks: Acks::Leave,
            outbox: Outbox::new(),
            icrcs: IcrcMemo::default(),
            counters: Counters::default(),
        }
    }

    /// The settings it was made with.
    pub fn config(&self) -> &EndpointConfig {
        &self.config
    }

    /// The memory that its queue pairs reach.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Makes a queue pair in RESET. Its protection domain and CQs count it as a user until it is destroyed.
    ///
    /// # Errors
    /// When a capacity is above the device's limit, the domain is gone, or all queue pairs are in use.
    // rule: qpn.special
    pub fn create_qp(&mut self, init: QpInit) -> Result<QpHandle, CreateQpError> {
        init.cap.within(&self.config.limits.qp_cap())?;
        let index = self.take_slot()?;
        if let Err(error) = self.memory.pd_hold(init.pd) {
            self.free.push_front(index);
            return Err(error.into());
        }
        init.send_cq.hold();
        init.recv_cq.hold();
        let generation = self.slots[index as usize].generation % GENERATIONS + 1;
        let (qp, handle) = Qp::new(self.qpn(index, generation), init);
        self.slots[index as usize] = Slot { generation, qp: Some(Box::new(qp)) };
        Ok(handle)
    }

    /// A slot for a new queue pair. New ones are made until some are free, so that a number comes back late.
    // rule: qpn.late
    fn take_slot(&mut self) -> Result<u32, CreateQpError> {
        let max = self.config.max_qp.min(self.index_space());
        if self.free.len() < RESTING_SLOTS && (self.slots.len() as u32) < max {
            let index = self.slots.len() as u32;
            self.slots.push(Slot { generation: self.first_generation(index), qp: None });
            self.grow_lists();
            return Ok(index);
        }
        self.free.pop_front().ok_or(CreateQpError::TooMany { max })
    }

    /// What the generation of a slot starts from: another one in each life of the process, so that packets for the queue
    /// pair that had this index before it died miss the one that has it now, but for one time in 31.
    fn first_generation(&self, index: u32) -> u32 {
        // The finalizer of SplitMix64: each index gets its own.
        let mut z = self.config.seed.wrapping_add(u64::from(index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) as u32 % GENERATIONS
    }

    /// Ends a queue pair in whatever state it is, without completions.
    ///
    /// # Errors
    /// When there is none with this number.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), NoSuchQp> {
        let index = self.index_of(qpn).ok_or(NoSuchQp(qpn))?;
        let Some(qp) = self.slots[index as usize].qp.take() else { return Err(NoSuchQp(qpn)) };
        self.counters.qp.add(&qp.counters);
        self.wheel.cancel(index);
        self.requests.queue.retain(|i| *i != index);
        self.responses.queue.retain(|i| *i != index);
        for cq in qp.cqs() {
            cq.release();
        }
        let released = self.memory.pd_release(qp.pd);
        debug_assert!(released.is_ok(), "the QP held its domain");
        self.free.push_back(index);
        Ok(())
    }

    /// Changes a queue pair's state or attributes. `path` is what `attr.ah_attr` resolves to, and needed with it.
    ///
    /// # Errors
    /// See [`ModifyQpError`]; nothing has changed then.
    pub fn modify_qp(
        &mut self,
        now: Instant,
        qpn: Qpn,
        attr: &QpAttr,
        path: Option<QpPath>,
    ) -> Result<(), ModifyQpError> {
        let index = self.index_of(qpn).ok_or(ModifyQpError::NoSuchQp)?;
        self.with_qp(now, index, |qp, ctx| qp.modify(attr, path, ctx)).unwrap_or(Err(ModifyQpError::NoSuchQp))
    }

    /// What a queue pair is and has done.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        self.qp(self.index_of(qpn)?).map(Qp::info)
    }

    /// What a queue pair is in the middle of.
    pub fn snapshot_qp(&self, qpn: Qpn) -> Option<QpSnapshot> {
        let qp = self.qp(self.index_of(qpn)?)?;
        Some(QpSnapshot { started: qp.started(), ..qp.snapshot(self.config.limits.window_packets) })
    }

    /// The same without the list of requests, which may be long: the time it takes does not depend on what is under way.
    pub fn glance_at_qp(&self, qpn: Qpn) -> Option<QpSnapshot> {
        self.qp(self.index_of(qpn)?).map(|qp| qp.snapshot(self.config.limits.window_packets))
    }

    /// The numbers of all queue pairs.
    pub fn qpns(&self) -> impl Iterator<Item = Qpn> + '_ {
        self.slots.iter().filter_map(|slot| slot.qp.as_ref().map(|qp| qp.qpn))
    }

    /// Whether there are so many queue pairs or regions that [`expect`](Self::expect) and
    /// [`expect_packet`](Self::expect_packet) pay.
    #[inline]
    pub fn fetches_ahead(&self) -> bool {
        self.slots.len() > CACHED_QPS || self.memory.is_large()
    }

    /// A doorbell for this queue pair, or a packet, comes soon: fetches it into the cache. Changes nothing.
    #[inline]
    pub fn expect(&self, qpn: Qpn) {
        if let Some(qp) = self.place_of(qpn).and_then(|index| self.qp(index)) {
            prefetch::whole(qp);
        }
    }

    /// This packet for `qpn` will be handled soon: fetches what it needs into the cache. Changes nothing, whatever it says.
    pub fn expect_packet(&self, qpn: Qpn, frame: RxPacket<'_>) {
        self.expect(qpn);
        if self.memory.is_large()
            && let Ok(packet) = Packet::new_checked(frame.head, frame.tail)
            && let Some(reth) = packet.reth()
        {
            self.memory.expect(reth.rkey.0);
        }
    }

    /// Work was posted to a queue pair's rings.
    pub fn doorbell(&mut self, now: Instant, qpn: Qpn) {
        if let Some(index) = self.index_of(qpn) {
            self.with_qp(now, index, Qp::doorbell);
        }
    }

    /// A packet arrived. Malformed ones, and those that nobody waits for, are dropped and counted.
    ///
    /// # Errors
    /// Why the packet changed nothing. A sequence or RNR NAK may have been put up in answer.
    pub fn handle_packet(&mut self, now: Instant, _meta: &RxMeta, frame: RxPacket<'_>) -> Result<(), DropReason> {
        self.counters.packets_in += 1;
        let outcome = self.receive(now, frame);
        if let Err(reason) = outcome {
            self.counters.drops.count(reason);
        }
        outcome
    }

    // rule: rx.qpn, rx.cnp
    fn receive(&mut self, now: Instant, frame: RxPacket<'_>) -> Result<(), DropReason> {
        let packet = Packet::new_checked(frame.head, frame.tail)?;
        if packet.opcode() == Opcode::Cnp {
            return Err(DropReason::Cnp);
        }
        let index = self.index_of(packet.dest_qp()).ok_or(DropReason::UnknownQp)?;
        let receive = |qp: &mut Qp, ctx: &mut Context<'_>| {
            let outcome = qp.receive(&packet, ctx);
            if let (true, Err(reason)) = (cfg!(feature = "trace"), outcome) {
                qp.tell_drop(reason, &packet);
            }
            outcome
        };
        self.with_qp(now, index, receive).unwrap_or(Err(DropReason::UnknownQp))
    }

    /// Acts on every deadline up to `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(index) = self.wheel.expired(now) {
            if let Some(qp) = self.slots[index as usize].qp.as_deref_mut() {
                qp.armed = None;
            }
            self.with_qp(now, index, |qp, ctx| qp.handle_timeout(ctx));
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has to be called next; maybe a little early, never late.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.next()
    }

    /// Says what a round of [`poll_transmit`](Self::poll_transmit) that begins now does with ACKs when there is nothing else to
    /// send: with `may_wait` they stay, and [`holds_acks`](Self::holds_acks) tells; otherwise they leave, as they do if this is
    /// never called. One that leaves with the answer that the application is about to post costs no packet burst of its own.
    /// Whoever lets them wait calls again soon, and then without.
    pub fn let_acks_wait(&mut self, may_wait: bool) {
        self.acks = if may_wait { Acks::Wait } else { Acks::Leave };
    }

    /// An ACK was kept for the next round.
    pub fn holds_acks(&self) -> bool {
        self.acks == Acks::Held
    }

    /// Whether the next response of this queue pair is an ACK or NAK. Its application may have seen the completion of what that
    /// answers: it should leave before the queue pair goes.
    pub fn owes_acknowledge(&self, qpn: Qpn) -> bool {
        self.index_of(qpn).and_then(|index| self.qp(index)).is_some_and(Qp::owes_acknowledge)
    }

    /// Whether that is so of any queue pair: an ACK was kept for the next round, or did not get its turn in the last one.
    pub fn owes_acknowledges(&self) -> bool {
        self.responses.queue.iter().any(|index| self.qp(*index).is_some_and(Qp::owes_acknowledge))
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) may have something to write: a round of it was ended before it said that
    /// there is nothing.
    pub fn may_have_packets(&self) -> bool {
        !self.requests.queue.is_empty() || !self.responses.queue.is_empty()
    }

    /// Writes the next packet into a reservation of `sink`. `None`: nothing to send, or no room for what there is.
    ///
    /// Requests and responses take turns, so that neither direction starves the other; an ACK that is owed leaves
    /// behind the requests of the same round.
    pub fn poll_transmit<S: TxSink>(&mut self, now: Instant, sink: &mut S) -> Option<Transmit> {
        let mut idle = 0;
        while idle < 2 {
            if self.sent_in_turn < TURN_PACKETS
                && let Some(transmit) = self.poll_list(now, sink)
            {
                self.sent_in_turn += 1;
                self.acks = Acks::Leave;
                self.counters.packets_out += 1;
                return Some(transmit);
            }
            idle = if self.sent_in_turn == 0 { idle + 1 } else { 0 };
            self.sent_in_turn = 0;
            self.turn = self.turn.other();
        }
        self.turn = Turn::Requests;
        None
    }

    /// The next packet of the list whose turn it is.
    fn poll_list<S: TxSink>(&mut self, now: Instant, sink: &mut S) -> Option<Transmit> {
        loop {
            let list = match self.turn {
                Turn::Requests => &mut self.requests,
                Turn::Responses => &mut self.responses,
            };
            let index = *list.queue.front()?;
            let Some(qp) = self.slots[index as usize].qp.as_deref_mut() else {
                list.pop();
                continue;
            };
            if self.turn == Turn::Responses && self.acks != Acks::Leave && qp.owes_ack_only() {
                self.acks = Acks::Held;
                self.counters.ack_deferred += 1;
                return None;
            }
            let mut ctx = context!(self, now);
            let polled = match self.turn {
                Turn::Requests => qp.poll_request(&mut ctx, sink),
                Turn::Responses => qp.poll_response(&mut ctx, sink),
            };
            let failed = ctx.overrun && (qp.overrun(&mut ctx) || ctx.cq_died);
            if !matches!(polled, Polled::Blocked) {
                arm(&mut self.wheel, index, qp);
            }
            match polled {
                Polled::Sent(_) => list.sent(),
                Polled::Blocked => {}
                Polled::Idle => {
                    list.pop();
                    let soon = list.soon();
                    match self.turn {
                        Turn::Requests => qp.listed.requests = false,
                        Turn::Responses => qp.listed.responses = false,
                    }
                    if self.slots.len() > CACHED_QPS
                        && let Some(qp) = soon.and_then(|index| self.qp(index))
                    {
                        prefetch::whole(qp);
                    }
                }
            }
            if failed {
                self.fail_users_of_dead_cqs(now);
            }
            match polled {
                Polled::Sent(transmit) => return Some(transmit),
                Polled::Blocked => return None,
                Polled::Idle => {}
            }
        }
    }

    /// The next asynchronous event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outbox.events.pop_front()
    }

    /// The next path on which an ACK timer ran out since the last look: its neighbour may not be what it was.
    pub fn poll_unanswered(&mut self) -> Option<PathId> {
        self.outbox.unanswered.pop_front()
    }

    /// Whether a CQ overran since the last look. Other endpoints whose queue pairs complete into it must be told, by
    /// [`fail_users_of_dead_cqs`](Self::fail_users_of_dead_cqs).
    pub fn take_cq_death(&mut self) -> bool {
        std::mem::take(&mut self.outbox.cq_died)
    }

    /// The next CQ that was armed and got a completion, first come first served.
    pub fn poll_wakeup(&mut self) -> Option<Arc<Cq>> {
        self.outbox.wakeups.pop_front()
    }

    /// Whether there are events or wake-ups to hand on.
    pub fn has_news(&self) -> bool {
        !self.outbox.events.is_empty() || !self.outbox.wakeups.is_empty()
    }

    /// Sums over all queue pairs, and dropped packets by reason.
    pub fn counters(&self) -> Counters {
        let mut sum = self.counters.clone();
        for qp in self.slots.iter().filter_map(|slot| slot.qp.as_deref()) {
            sum.qp.add(&qp.counters);
        }
        sum
    }

    /// The counters of one queue pair.
    pub fn qp_counters(&self, qpn: Qpn) -> Option<QpCounters> {
        self.qp(self.index_of(qpn)?).map(|qp| qp.counters)
    }

    /// Runs `f` on a queue pair, then does what follows from it: the error state after a CQ overrun, the lists, the
    /// wheel.
    fn with_qp<R>(&mut self, now: Instant, index: u32, f: impl FnOnce(&mut Qp, &mut Context<'_>) -> R) -> Option<R> {
        let qp = self.slots.get_mut(index as usize)?.qp.as_deref_mut()?;
        let mut ctx = context!(self, now);
        let result = f(qp, &mut ctx);
        let failed = ctx.overrun && (qp.overrun(&mut ctx) || ctx.cq_died);
        if !qp.listed.requests && qp.has_requests() {
            qp.listed.requests = true;
            self.requests.queue.push_back(index);
        }
        if !qp.listed.responses && qp.has_responses() {
            qp.listed.responses = true;
            self.responses.queue.push_back(index);
        }
        arm(&mut self.wheel, index, qp);
        if failed {
            self.fail_users_of_dead_cqs(now);
        }
        Some(result)
    }

    /// A CQ is overrun: all queue pairs that complete into it fail, busy or not (IBTA, asynchronous events). What they have posted is
    /// flushed, which may kill a further CQ. Endpoints do so for themselves when the completion that was lost is their own.
    #[cold]
    // rule: rc.resp.cq-overrun, wc.overrun
    pub fn fail_users_of_dead_cqs(&mut self, now: Instant) {
        let mut failed = true;
        while failed {
            failed = false;
            for qp in self.slots.iter_mut().filter_map(|slot| slot.qp.as_deref_mut()) {
                if qp.cqs().iter().any(|cq| cq.is_overrun()) {
                    failed |= qp.overrun(&mut context!(self, now));
                }
            }
        }
    }

    /// Room in the lists for every slot, so that the data path never allocates.
    fn grow_lists(&mut self) {
        let n = self.slots.len();
        for list in [&mut self.requests.queue, &mut self.responses.queue] {
            list.reserve(n - list.len());
        }
        self.outbox.wakeups.reserve(2 * n - self.outbox.wakeups.len().min(2 * n));
        self.wheel.ensure(n as u32 - 1);
    }

    fn qp(&self, index: u32) -> Option<&Qp> {
        self.slots.get(index as usize)?.qp.as_deref()
    }

    /// How many indices this endpoint has.
    fn index_space(&self) -> u32 {
        let space = self.config.qpns;
        ((1u32 << QPN_INDEX_BITS) - space.offset).div_ceil(space.stride)
    }

    fn qpn(&self, index: u32, generation: u32) -> Qpn {
        let space = self.config.qpns;
        let wide = space.offset + index * space.stride;
        let process = u32::from(space.process_slot) << (QPN_INDEX_BITS + QPN_GENERATION_BITS);
        Qpn::new(process | generation << QPN_INDEX_BITS | wide)
    }

    /// The slot of the queue pair with exactly this number: another generation is another queue pair.
    fn index_of(&self, qpn: Qpn) -> Option<u32> {
        let index = self.place_of(qpn)?;
        (self.qp(index)?.qpn == qpn).then_some(index)
    }

    /// The slot that this number leads to, whoever is in it.
    fn place_of(&self, qpn: Qpn) -> Option<u32> {
        let wide = qpn.value() & ((1 << QPN_INDEX_BITS) - 1);
        let space = self.config.qpns;
        let place = wide.checked_sub(space.offset)?;
        // A division for every packet, where most devices have one shard.
        Some(if space.stride == 1 { place } else { place / space.stride })
    }
}

/// Lets the wheel know the queue pair's deadline. One that moved away is left to fire early: that costs less than moving it
/// with every packet.
#[inline]
fn arm(wheel: &mut Wheel, index: u32, qp: &mut Qp) {
    let Some(deadline) = qp.deadline() else { return };
    if qp.armed.is_none_or(|armed| deadline < armed) {
        qp.armed = Some(deadline);
        wheel.arm(index, deadline);
    }
}
