//! One shard's state and one step of its loop.
//!
//! In: frames, bells, time. Out: frames, completions, events, wake-ups. Everything here is reached only by the holder of the
//! shard's token. Work per step is bounded by [`Budget`]; nothing here allocates or makes a system call but the port's kick
//! and the wake-up of an armed completion channel.
#![forbid(unsafe_code)]

use crate::clock::Clock;
use crate::cqs::CqTable;
use crate::doorbell::Doorbell;
use crate::event::{AsyncEvent, AsyncEventKind};
use crate::handover::Inbox;
use crate::l2::{self, NotForUs};
use crate::loopback::Loopback;
use crate::notify::Notices;
use crate::path::PathTable;
use crate::progress::STALL_NS;
use crate::shard::Mailbox;
use crate::sink::Sink;
use crate::sys::EventFd;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use xroce_port::{LinkChange, Port, PortCounters};
use xroce_transport::instant::Instant;
use xroce_transport::memory::Reader;
use xroce_transport::{DropReason, Endpoint, RxMeta, RxPacket};
use xroce_wire::Qpn;

/// What one step may do at most. The units are frames, bells and events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Frames taken from the port, and as many from the inner wire and from other shards.
    pub rx: usize,
    /// Packets sent in one kick; a step has one for what was posted, if anything was, and one after what has come in. What is behind
    /// a lost packet in the same kick goes for nothing: the NAK is seen after it. The kernel takes 32 frames in one call
    /// (TX_BATCH_SIZE, net/xdp/xsk.c), so that longer kicks save nothing.
    pub tx: usize,
    /// Doorbells looked at.
    pub bells: usize,
    /// Asynchronous events and wake-ups handed on, each.
    pub events: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { rx: 64, tx: 32, bells: 64, events: 64 }
    }
}

/// What a step came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Something was done, so that another step may find more to do.
    pub worked: bool,
    /// There are packets to send and no frame to put them in.
    pub stalled: bool,
    /// When the transport wants to be called again even if nothing arrives.
    pub deadline: Option<Instant>,
    /// The time the step worked with.
    pub now: Instant,
}

/// What became of frames in front of the transport, and hand-overs. Frames unless the name says otherwise.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ShardCounters {
    /// Steps run, by whomever.
    pub steps: u64,
    /// Received frames shorter than their own headers.
    pub rx_truncated: u64,
    /// Received frames for another station.
    pub rx_other_station: u64,
    /// Received frames that are not IP.
    pub rx_not_ip: u64,
    /// Received frames of a VLAN that is not the device's, or untagged ones on a device in a VLAN.
    pub rx_other_vlan: u64,
    /// Received frames and inner packets of queue pairs of another shard, handed over.
    pub handed_over: u64,
    /// The same, dropped because the other shard's inbox was full.
    pub hand_over_drops: u64,
    /// Packets written for a path without a next hop, and lost.
    pub no_next_hop: u64,
    /// Packets that went over the inner wire.
    pub local: u64,
    /// Steps that had something to send and no frame for it.
    pub tx_stalls: u64,
    /// Asynchronous events that found their queue full.
    pub events_lost: u64,
    /// Times the port said that its link went down, where nobody watches the netdev.
    pub link_downed: u64,
}

impl ShardCounters {
    /// Adds those of another shard.
    pub fn add(&mut self, other: &ShardCounters) {
        macro_rules! sum {
            ($($field:ident)*) => { $(self.$field += other.$field;)* };
        }
        sum! {
            steps rx_truncated rx_other_station rx_not_ip rx_other_vlan handed_over hand_over_drops no_next_hop local tx_stalls
            events_lost link_downed
        }
    }
}

/// Which queue pairs belong to this shard: those whose index is `offset` modulo `stride`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// This shard's number.
    pub offset: u32,
    /// How many shards there are.
    pub stride: u32,
}

/// What the shards of a device share.
#[derive(Debug)]
pub struct Common {
    /// Completion queues, for wake-ups.
    pub cqs: CqTable,
    /// Asynchronous events.
    pub events: Notices<AsyncEvent>,
    /// A thread hears from the kernel when the link goes down and comes up, and tells it. A port finds out later and by itself: its
    /// word counts where there is no such thread, or each change would be told twice, the second time when it is no longer true.
    pub watched: bool,
    /// The inboxes of all shards.
    pub mailboxes: Box<[Mailbox]>,
    /// Completion queues that overran so far. A shard that sees another number lets the queue pairs that complete into one of
    /// them fail; whoever counts up wakes the shards.
    pub dead_cqs: AtomicU64,
    /// Wakes the thread that watches the netdev: paths are due to be looked up.
    pub attention: EventFd,
    /// A shard's thread has ended in a panic, and the event that says so is in its queue: no further one comes.
    pub over: AtomicBool,
    /// The device's end was told.
    pub fatal: AtomicBool,
}

impl Common {
    /// Tells that the device is of no more use: once, whoever finds out first (each shard, the thread that watches the netdev).
    /// Whether it can be read, now or from the first time.
    pub(crate) fn tell_fatal(&self) -> bool {
        self.fatal.swap(true, Ordering::SeqCst) || self.events.push(AsyncEvent::of_port(AsyncEventKind::DeviceFatal))
    }
}

/// The state of one shard.
pub struct Core {
    port: Box<dyn Port>,
    /// Queue pairs of this shard.
    pub endpoint: Endpoint,
    /// Next hops of this shard's queue pairs.
    pub paths: PathTable,
    loopback: Loopback,
    void: Box<[u8]>,
    /// Away only during a step, so that one that panics drops it, which unpins it: nobody then waits for ever for memory
    /// that this shard will not touch again.
    reader: Option<Reader>,
    clock: Clock,
    owner: Owner,
    mac: [u8; 6],
    vlan: Option<u16>,
    stalled: bool,
    /// The port is dead for good.
    gone: bool,
    /// There will be a next step soon, whatever the application does.
    acks_may_wait: bool,
    /// As many dead completion queues were looked for as there were.
    dead_cqs: u64,
    counters: ShardCounters,
}

/// How many frames ahead queue pairs and regions are fetched into the cache, where they are many.
const FRAMES_AHEAD: usize = 4;
/// The same for doorbells: so many are heard at once.
const BELLS_AHEAD: usize = 8;

/// Packets the inner wire holds.
const LOOPBACK_SLOTS: usize = 256;

/// The longest packet of the transport: path MTU 4096, every header there is, pad and ICRC, rounded up.
pub(crate) const MAX_PACKET_LEN: usize = 4096 + 128;

impl Core {
    /// `vlan`: the VLAN that the device's frames carry.
    pub(crate) fn new(
        port: Box<dyn Port>,
        endpoint: Endpoint,
        reader: Reader,
        clock: Clock,
        owner: Owner,
        vlan: Option<u16>,
    ) -> Core {
        let mac = port.capabilities().mac;
        Core {
            port,
            endpoint,
            paths: PathTable::default(),
            loopback: Loopback::new(LOOPBACK_SLOTS, MAX_PACKET_LEN),
            void: vec![0; MAX_PACKET_LEN].into_boxed_slice(),
            reader: Some(reader),
            clock,
            owner,
            mac,
            vlan,
            stalled: false,
            gone: false,
            acks_may_wait: false,
            dead_cqs: 0,
            counters: ShardCounters::default(),
        }
    }

    /// The time at this shard's port.
    pub fn now(&self) -> Instant {
        self.clock.at(&*self.port)
    }

    /// The port, to ask what it is.
    pub fn port(&self) -> &dyn Port {
        &*self.port
    }

    /// What the port has counted.
    pub fn port_counters(&self) -> PortCounters {
        self.port.counters()
    }

    /// What this shard has counted in front of the transport.
    pub fn counters(&self) -> ShardCounters {
        self.counters
    }

    /// The interface has another MAC address now.
    pub fn set_mac(&mut self, mac: [u8; 6]) {
        self.mac = mac;
    }

    /// Whether an ACK may wait for the next step: only where one comes without the application's doing.
    pub(crate) fn let_acks_wait(&mut self, may_wait: bool) {
        self.acks_may_wait = may_wait;
    }

    /// One round: what was posted leaves; then receive, timers, send, events, wake-ups, kick.
    pub(crate) fn step(&mut self, common: &Common, bells: &Doorbell, budget: &Budget) -> Outcome {
        self.counters.steps += 1;
        let mut now = self.now();
        let reader = self.reader.take();
        if let Some(reader) = &reader {
            reader.pin();
        }
        let mut work = self.hear(bells, now, budget.bells);
        if work > 0 {
            // Whoever posted waits for the answer, and nobody for what has come in: mostly the ACK of the message before.
            work += self.send(now, budget.tx);
            self.port.tx_flush();
        }
        work += self.receive(common, &mut now, budget.rx);
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
            self.suspect_neighbours(common);
            work += 1;
        }
        let sent = self.send(now, budget.tx);
        self.bury_cqs(common, now);
        if let Some(reader) = &reader {
            reader.unpin();
        }
        self.reader = reader;
        work += sent + self.tell(common, budget.events);
        self.port.tx_flush();
        self.watch_link(common);
        Outcome { worked: work > 0, stalled: self.stalled, deadline: self.endpoint.poll_timeout(), now }
    }

    /// Looks at the queue pairs whose doorbells rang, at most `max`.
    fn hear(&mut self, bells: &Doorbell, now: Instant, max: usize) -> usize {
        let mut heard = 0;
        let mut some = [Qpn::new(0); BELLS_AHEAD];
        while heard < max {
            let mut count = 0;
            while count < some.len().min(max - heard)
                && let Some(qpn) = bells.pop()
            {
                some[count] = qpn;
                count += 1;
                if self.endpoint.fetches_ahead() {
                    self.endpoint.expect(qpn);
                }
            }
            if count == 0 {
                break;
            }
            some[..count].iter().for_each(|qpn| self.endpoint.doorbell(now, *qpn));
            heard += count;
        }
        heard
    }

    /// Frame `i` of the burst comes soon.
    fn expect(&self, i: usize) {
        let frame = self.port.rx_frame(i);
        if let Ok(l2) = l2::parse(frame.head, self.mac)
            && let packet = (RxPacket { head: &frame.head[l2.len..], tail: frame.tail })
            && let Some(qpn) = l2::peek_dest_qp(packet.head)
        {
            self.endpoint.expect_packet(qpn, packet);
        }
    }

    /// How many packets there were. The time `now` advances to one at which all of them had come: what is due so long after a
    /// packet, as a request is after an RNR NAK, must not be early by what the step has done before.
    // rule: path.vlan
    fn receive(&mut self, common: &Common, now: &mut Instant, max: usize) -> usize {
        let from_wire = self.port.rx_burst(max);
        if from_wire > 0 || self.has_been_given(common) {
            *now = self.now();
        }
        let now = *now;
        let mut expected = if self.endpoint.fetches_ahead() { 0 } else { from_wire };
        for i in 0..from_wire {
            while expected < from_wire.min(i + FRAMES_AHEAD) {
                self.expect(expected);
                expected += 1;
            }
            let frame = self.port.rx_frame(i);
            match l2::parse(frame.head, self.mac) {
                Ok(l2) if l2.vlan != self.vlan => {
                    self.counters.rx_other_vlan += 1;
                    self.port.rx_dropped(i, "other_vlan");
                }
                Ok(l2) => {
                    let meta = RxMeta { vlan: l2.vlan, local: false };
                    let packet = RxPacket { head: &frame.head[l2.len..], tail: frame.tail };
                    let taken = deliver(&mut self.endpoint, self.owner, &mut self.counters, common, now, &meta, packet);
                    if let Err(reason) = taken {
                        self.port.rx_dropped(i, reason.name());
                    }
                }
                Err(why) => self.not_for_us(i, why),
            }
        }
        if from_wire > 0 {
            self.port.rx_release();
        }
        from_wire + self.receive_local(common, now, max) + self.receive_handed_over(common, now, max)
    }

    /// Frame `i` does not reach the transport.
    #[cold]
    fn not_for_us(&mut self, i: usize, why: NotForUs) {
        let (counter, reason) = match why {
            NotForUs::Truncated => (&mut self.counters.rx_truncated, "truncated"),
            NotForUs::OtherStation => (&mut self.counters.rx_other_station, "other_station"),
            NotForUs::NotIp => (&mut self.counters.rx_not_ip, "not_ip"),
        };
        *counter += 1;
        self.port.rx_dropped(i, reason);
    }

    fn receive_local(&mut self, common: &Common, now: Instant, max: usize) -> usize {
        // Only what is there now: the answers to these are sent, and looped, later in the step.
        let waiting = self.loopback.len().min(max);
        for _ in 0..waiting {
            let Some(head) = self.loopback.front() else { break };
            let meta = RxMeta { vlan: None, local: true };
            let packet = RxPacket { head, tail: &[] };
            // Why it was dropped, if it was, the endpoint has counted.
            let _ = deliver(&mut self.endpoint, self.owner, &mut self.counters, common, now, &meta, packet);
            self.loopback.pop();
            self.counters.local += 1;
        }
        waiting
    }

    /// Whether another shard has handed packets over.
    fn has_been_given(&self, common: &Common) -> bool {
        self.owner.stride > 1 && !common.mailboxes[self.owner.offset as usize].inbox.is_empty()
    }

    fn receive_handed_over(&mut self, common: &Common, now: Instant, max: usize) -> usize {
        if !self.has_been_given(common) {
            return 0;
        }
        let inbox = &common.mailboxes[self.owner.offset as usize].inbox;
        let mut taken = 0;
        while taken < max
            && let Some(packet) = inbox.take()
        {
            let meta = RxMeta { vlan: packet.vlan, local: packet.local };
            // Why it was dropped, if it was, the endpoint has counted.
            let _ = self.endpoint.handle_packet(now, &meta, RxPacket { head: packet.bytes(), tail: &[] });
            inbox.release(packet);
            taken += 1;
        }
        taken
    }

    fn send(&mut self, now: Instant, max: usize) -> usize {
        // An ACK waits one step for company: a kick of its own costs more than all else about it, and the application, which
        // sees its completion first, often answers by then.
        self.endpoint.let_acks_wait(self.acks_may_wait && !self.endpoint.holds_acks());
        let mut sink = Sink::new(&mut *self.port, &self.paths, &mut self.loopback, &mut self.void, self.gone);
        let mut sent = 0;
        while sent < max
            && let Some(transmit) = self.endpoint.poll_transmit(now, &mut sink)
        {
            sink.commit(transmit.len);
            sent += 1;
        }
        self.stalled = sink.refused();
        self.counters.no_next_hop += sink.voided();
        self.counters.tx_stalls += u64::from(self.stalled);
        sent
    }

    /// Paths on which an ACK timer ran out: the neighbour may have another MAC address and never have said so. One `write`
    /// when there is something new to find out.
    fn suspect_neighbours(&mut self, common: &Common) {
        let mut suspect = false;
        while let Some(path) = self.endpoint.poll_unanswered() {
            suspect |= self.paths.suspect(path);
        }
        if suspect {
            common.attention.signal();
        }
    }

    /// A completion queue that overran fails all queue pairs that complete into it, those of other shards too.
    fn bury_cqs(&mut self, common: &Common, now: Instant) {
        if self.owner.stride == 1 {
            return;
        }
        let dead = common.dead_cqs.load(Ordering::Acquire);
        if dead != self.dead_cqs {
            self.dead_cqs = dead;
            self.endpoint.fail_users_of_dead_cqs(now);
        }
        if self.endpoint.take_cq_death() {
            common.dead_cqs.fetch_add(1, Ordering::Release);
            for mailbox in &common.mailboxes {
                mailbox.sleeper.wake();
            }
        }
    }

    /// Hands on events and wakes armed channels.
    fn tell(&mut self, common: &Common, max: usize) -> usize {
        let mut told = 0;
        while told < max
            && let Some(event) = self.endpoint.poll_event()
        {
            if !common.events.push(event.into()) {
                self.counters.events_lost += 1;
            }
            told += 1;
        }
        let mut woken = 0;
        while woken < max
            && let Some(cq) = self.endpoint.poll_wakeup()
        {
            common.cqs.wake(cq.id());
            woken += 1;
        }
        told + woken
    }

    fn watch_link(&mut self, common: &Common) {
        while let Some(change) = self.port.link() {
            let kind = match change {
                LinkChange::Up | LinkChange::Down if common.watched => continue,
                LinkChange::Up => AsyncEventKind::PortActive,
                LinkChange::Down => {
                    self.counters.link_downed += 1;
                    AsyncEventKind::PortErr
                }
                LinkChange::Gone(reason) => {
                    tracing::error!(%reason, "the port is gone");
                    self.gone = true;
                    self.counters.events_lost += u64::from(!common.tell_fatal());
                    continue;
                }
            };
            self.counters.events_lost += u64::from(!common.events.push(AsyncEvent::of_port(kind)));
        }
    }

    /// Whether there is nothing to do right now but wait for frames, for room for them, for bells and the deadline.
    pub(crate) fn is_idle(&self, common: &Common) -> bool {
        self.loopback.is_empty()
            // A step ends with its budget, whoever runs it, and what is left then makes itself heard by nothing.
            && !self.endpoint.has_news()
            && (self.stalled || !self.endpoint.may_have_packets())
            && common.mailboxes[self.owner.offset as usize].inbox.is_empty()
            && (self.owner.stride == 1 || common.dead_cqs.load(Ordering::Acquire) == self.dead_cqs)
    }

    /// When the next step is due, whoever runs it, if nothing is heard before: now, where the last one left something.
    pub(crate) fn next_step(&self, common: &Common, last: &Outcome) -> Option<Instant> {
        if self.waits_for_room() || !self.is_idle(common) { Some(last.now) } else { last.deadline }
    }

    /// Room for frames comes back without a descriptor that would say so.
    fn waits_for_room(&self) -> bool {
        self.stalled || !self.port.tx_idle()
    }

    /// When to wake at the latest, and the time now; the descriptors to sleep on are appended to `fds`.
    pub(crate) fn prepare_to_sleep(&mut self, fds: &mut Vec<RawFd>) -> (Option<Instant>, Instant) {
        let now = self.now();
        self.port.wait_fds(fds);
        self.port.before_wait();
        let deadline = self.endpoint.poll_timeout();
        if self.waits_for_room() {
            let look_again = now.add_ns(STALL_NS);
            return (Some(deadline.map_or(look_again, |at| at.min(look_again))), now);
        }
        (deadline, now)
    }

    pub(crate) fn after_sleep(&mut self) {
        self.port.after_wait();
    }
}

/// Gives a packet to the endpoint, or to the shard that owns its queue pair, which keeps to itself why it dropped it.
#[inline]
fn deliver(
    endpoint: &mut Endpoint,
    owner: Owner,
    counters: &mut ShardCounters,
    common: &Common,
    now: Instant,
    meta: &RxMeta,
    packet: RxPacket<'_>,
) -> Result<(), DropReason> {
    if owner.stride > 1
        && let Some(qpn) = l2::peek_dest_qp(packet.head)
        && let shard = (qpn.value() & 0xffff) % owner.stride
        && shard != owner.offset
    {
        let mailbox = &common.mailboxes[shard as usize];
        if hand_over(&mailbox.inbox, meta, packet) {
            mailbox.sleeper.wake();
            counters.handed_over += 1;
        } else {
            counters.hand_over_drops += 1;
        }
        return Ok(());
    }
    endpoint.handle_packet(now, meta, packet)
}

fn hand_over(inbox: &Arc<Inbox>, meta: &RxMeta, packet: RxPacket<'_>) -> bool {
    inbox.put(packet.head, packet.tail, meta.vlan, meta.local)
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("owner", &self.owner).field("counters", &self.counters).finish_non_exhaustive()
    }
}
