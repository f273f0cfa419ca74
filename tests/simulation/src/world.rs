//! A run: machines, network, applications and model, driven by events in virtual time.
//!
//! In: a [`Plan`]. Out: nothing, or the first [`Violation`]. Between two events everything that can be sent is sent, and
//! everything that can be checked is checked.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use xroce_transport::qp::state::QpState;
use xroce_transport::{DropReason, EventKind, Instant, RxMeta, RxPacket, Transmit};
use xroce_wire::Packet;

use crate::end::End;
use crate::model::{Check, Flow, Rule, Violation, broken};
use crate::net::{Fate, Identity, Net};
use crate::node::{Frame, Node};
use crate::plan::{EndId, Plan};
use crate::trace::Trace;

/// More events than any scenario needs.
const MAX_EVENTS: u64 = 2_000_000;

/// Something that is due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// The plan's step of this index.
    Step(usize),
    /// A frame reaches a machine.
    Arrival { to: usize, frame: OnWire },
    /// The wire has taken a frame of a machine.
    Departure(usize),
    /// The application of a machine looks at its CQ.
    Poll(usize),
    /// A machine comes back.
    Revival(usize),
    /// All faults end.
    Heal,
}

/// A frame on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OnWire {
    pub(crate) bytes: Vec<u8>,
    /// As it was sent, if bits were flipped.
    pub(crate) original: Option<Vec<u8>>,
    /// The end that sent it, in which session, when.
    pub(crate) end: usize,
    pub(crate) session: u32,
    pub(crate) sent_at: u64,
}

/// What a run has done, to see that it does something.
#[derive(Clone, Copy, Default, Debug)]
pub struct Totals {
    /// Frames handed to the wire.
    pub frames: u64,
    /// Requests posted.
    pub posted: u64,
    /// Requests that succeeded.
    pub succeeded: u64,
    /// Messages that RECVs got.
    pub delivered: u64,
    /// Events.
    pub events: u64,
}

pub(crate) struct World<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) now: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ends: Vec<End>,
    /// Per end: what it sends.
    pub(crate) flows: Vec<Flow>,
    /// Per connection: something was done to it after which queue pairs may fail.
    pub(crate) excused: Vec<bool>,
    /// Per machine: bits of its shared word that posted requests add, and whether they succeeded.
    pub(crate) shared: Vec<Vec<(u32, usize, bool)>>,
    pub(crate) net: Net,
    pub(crate) healed: bool,
    pub(crate) trace: Trace,
    pub(crate) totals: Totals,
    heap: BinaryHeap<Reverse<(u64, u64, Due)>>,
    serial: u64,
    frame: Frame,
    lives: u64,
}

impl<'p> World<'p> {
    pub(crate) fn new(plan: &'p Plan, trace: Trace) -> World<'p> {
        let nodes: Vec<Node> =
            plan.nodes.iter().enumerate().map(|(i, node)| Node::new(node, i, plan.ipv6, 0, 0)).collect();
        let net = Net::new(plan.seed, plan.weather.clone(), plan.outages.clone(), nodes.len());
        let mut world = World {
            plan,
            now: 0,
            shared: vec![Vec::new(); nodes.len()],
            nodes,
            ends: Vec::new(),
            flows: Vec::new(),
            excused: vec![false; plan.conns.len()],
            net,
            healed: false,
            trace,
            totals: Totals::default(),
            heap: BinaryHeap::new(),
            serial: 0,
            frame: Frame::default(),
            lives: 0,
        };
        for (conn, conn_plan) in plan.conns.iter().enumerate() {
            for side in 0..2 {
                // A queue pair that is its own peer leaves the place of the other end to a twin that does nothing.
                let side = side.min(conn_plan.ends.len() - 1);
                world.ends.push(End::new(plan, conn * 2 + side, EndId { conn, side }));
            }
        }
        world
    }

    /// Runs to the end and checks everything.
    pub(crate) fn run(mut self) -> Result<Totals, Violation> {
        let outcome = self.run_to_silence().and_then(|()| self.finish());
        outcome.map_err(|violation| Violation { at_ns: self.now, ..violation }).map(|()| self.totals)
    }

    fn run_to_silence(&mut self) -> Check {
        for conn in 0..self.plan.conns.len() {
            self.connect(conn)?;
        }
        for (index, step) in self.plan.steps.iter().enumerate() {
            self.schedule(step.at, Due::Step(index));
        }
        self.schedule(self.plan.heal_at, Due::Heal);
        for node in 0..self.nodes.len() {
            self.poll_later(node);
        }
        while self.step()? {
            self.totals.events += 1;
            if self.totals.events > MAX_EVENTS {
                return broken(Rule::Liveness, "events without end");
            }
        }
        Ok(())
    }

    pub(crate) fn schedule(&mut self, at: u64, due: Due) {
        self.serial += 1;
        self.heap.push(Reverse((at, self.serial, due)));
    }

    /// The next event or timer. `false` when there is none.
    fn step(&mut self) -> Result<bool, Violation> {
        let event = self.heap.peek().map(|Reverse((at, ..))| *at);
        let timers = self.nodes.iter().enumerate().filter(|(_, node)| node.alive);
        let timer = timers.filter_map(|(i, node)| Some((node.endpoint.poll_timeout()?.0, i))).min();
        match (event, timer) {
            (None, None) => Ok(false),
            (event, Some((at, node))) if event.is_none_or(|event| at < event) => {
                self.now = self.now.max(at);
                self.nodes[node].endpoint.handle_timeout(Instant(self.now));
                self.after(node)?;
                Ok(true)
            }
            _ => {
                let Some(Reverse((at, _, due))) = self.heap.pop() else { return Ok(false) };
                self.now = self.now.max(at);
                self.handle(due)?;
                Ok(true)
            }
        }
    }

    fn handle(&mut self, due: Due) -> Check {
        match due {
            Due::Step(index) => self.act(index),
            Due::Arrival { to, frame } => self.arrive(to, &frame),
            Due::Departure(node) => {
                self.nodes[node].tx_used = self.nodes[node].tx_used.saturating_sub(1);
                self.after(node)
            }
            Due::Poll(node) if self.nodes[node].poll_at == Some(self.now) => {
                self.nodes[node].poll_at = None;
                self.poll(node)
            }
            Due::Poll(_) => Ok(()),
            Due::Revival(node) => self.revive(node),
            Due::Heal => self.heal(),
        }
    }

    /// What follows every call of an endpoint: events, wake-ups, packets.
    pub(crate) fn after(&mut self, node: usize) -> Check {
        self.pump(node)?;
        while let Some(event) = self.nodes[node].endpoint.poll_event() {
            let end = event.qpn.and_then(|qpn| self.nodes[node].end_of(qpn));
            self.trace.line(self.now, || format!("node {node}: event {:?} for end {end:?}", event.kind));
            match (event.kind, end) {
                (EventKind::SqDrained, Some(end)) => self.drained(end)?,
                (EventKind::CqErr, _) => self.overrun(node),
                _ => {}
            }
        }
        let mut woken = !self.plan.nodes[node].armed;
        while self.nodes[node].endpoint.poll_wakeup().is_some() {
            self.nodes[node].armed = false;
            woken = true;
        }
        if woken {
            self.poll_later(node);
        }
        Ok(())
    }

    pub(crate) fn poll_later(&mut self, node: usize) {
        if self.nodes[node].poll_at.is_none() && self.nodes[node].alive {
            let at = self.now + self.plan.nodes[node].poll_ns;
            self.nodes[node].poll_at = Some(at);
            self.schedule(at, Due::Poll(node));
        }
    }

    fn drained(&mut self, end: usize) -> Check {
        let wire = &mut self.flows[end].wire;
        if self.ends[end].state() != QpState::Sqd {
            return Ok(());
        }
        wire.drained = true;
        if wire.acked != wire.sent {
            let (acked, sent) = (wire.acked, wire.sent);
            return broken(Rule::Wait, format!("end {end} is drained with {acked} of {sent} packets acknowledged"));
        }
        Ok(())
    }

    /// Takes everything that a machine can send onto the wire.
    pub(crate) fn pump(&mut self, node: usize) -> Check {
        while self.nodes[node].alive {
            let mut frame = std::mem::take(&mut self.frame);
            let transmit = self.nodes[node].next_packet(self.now, &self.plan.nodes[node], &mut frame);
            let sent = transmit.map(|transmit| (transmit, frame.bytes()));
            self.frame = frame;
            let Some((transmit, bytes)) = sent else { break };
            self.send(node, transmit, bytes)?;
        }
        Ok(())
    }

    fn send(&mut self, node: usize, transmit: Transmit, bytes: Vec<u8>) -> Check {
        self.totals.frames += 1;
        if bytes.len() != transmit.len {
            return broken(Rule::Segmentation, "the length of a packet is not what was reserved");
        }
        let Ok(packet) = Packet::new_checked(&bytes, &[]) else {
            return broken(Rule::Segmentation, "a malformed packet is sent");
        };
        let Some(end) = self.nodes[node].end_of(transmit.qpn) else {
            return broken(Rule::Segmentation, format!("{} sends and does not exist", transmit.qpn));
        };
        let (psn, opcode) = (packet.psn(), packet.opcode());
        let request = opcode.operation().is_some_and(|operation| operation.is_request());
        self.trace.packet(self.now, "sends", end, self.ends[end].peer, &packet);
        if request {
            if !matches!(self.ends[self.ends[end].peer].state(), QpState::Rtr | QpState::Rts | QpState::Sqd) {
                // Nobody answers there, and what waited to be answered is gone.
                self.disturb(self.ends[end].id.conn);
            }
            let flow = &mut self.flows[end];
            flow.wire.request(self.now, &packet, &flow.ops, self.ends[end].state() == QpState::Sqd)?;
        } else if self.plan.nodes[node].tx_ns == 0 {
            // With a port that keeps responses back, this may be the answer to an earlier packet.
            self.flows[self.ends[end].peer].wire.answered(&packet)?;
        }
        let sender = &self.ends[end];
        let session = sender.session;
        let to = self.ends[sender.peer].plan.node;
        let leaves = self.departs(node);
        let identity = Identity { end, session, opcode: opcode.byte(), psn: psn.value() };
        // A machine reaches itself without a wire.
        let fate = if to == node {
            Fate::Arrives { at: leaves, again: None, corrupt: None, held: false }
        } else {
            self.net.fate(leaves, node, to, identity)
        };
        let flow = if request { end } else { self.ends[end].peer };
        let frame = OnWire { bytes, original: None, end, session, sent_at: self.now };
        self.dispatch(fate, flow, to, frame)
    }

    /// When a frame that is handed to the port now has left.
    fn departs(&mut self, node: usize) -> u64 {
        let plan = &self.plan.nodes[node];
        if plan.tx_ns == 0 {
            return self.now;
        }
        let port = &mut self.nodes[node];
        port.tx_used += 1;
        port.tx_free_at = port.tx_free_at.max(self.now) + plan.tx_ns;
        let at = port.tx_free_at;
        self.schedule(at, Due::Departure(node));
        at
    }

    fn dispatch(&mut self, fate: Fate, flow: usize, to: usize, mut frame: OnWire) -> Check {
        let psn = Packet::new_checked(&frame.bytes, &[]).map(|packet| packet.psn());
        let harm = |world: &mut Self, what: &str| {
            world.trace.line(world.now, || format!("    which is {what}"));
            if let Ok(psn) = psn {
                world.flows[flow].wire.harm(psn);
            }
        };
        match fate {
            Fate::Lost => harm(self, "lost"),
            Fate::Arrives { at, again, corrupt, held } => {
                if let Some(again) = again {
                    harm(self, "doubled");
                    self.schedule(again, Due::Arrival { to, frame: frame.clone() });
                }
                if held {
                    harm(self, "held back");
                }
                if let Some((mut dice, bits)) = corrupt {
                    harm(self, "corrupted");
                    frame.original = Some(frame.bytes.clone());
                    dice.flip_bits(&mut frame.bytes, bits);
                }
                self.schedule(at, Due::Arrival { to, frame });
            }
        }
        Ok(())
    }

    fn arrive(&mut self, to: usize, frame: &OnWire) -> Check {
        let node = &mut self.nodes[to];
        let conn = self.ends[frame.end].id.conn;
        // A machine that came back may by chance (one in 31) have a queue pair number that it had before: what was sent to that,
        // up to the moment in which everybody connects anew, must not reach it.
        let known = Packet::new_checked(&frame.bytes, &[]).is_ok_and(|p| node.ends.contains_key(&p.dest_qp().value()));
        let stale = known && node.born > 0 && frame.sent_at <= node.born;
        if !node.alive || stale {
            self.disturb(conn);
            return Ok(());
        }
        let cut = frame.bytes.len().min(self.plan.nodes[to].split);
        let (head, tail) = frame.bytes.split_at(cut);
        let outcome = node.endpoint.handle_packet(Instant(self.now), &RxMeta::default(), RxPacket { head, tail });
        if let Err(reason) = outcome {
            self.trace.line(self.now, || format!("    a frame of end {} is dropped: {}", frame.end, reason.name()));
        }
        if let Some(original) = &frame.original
            && damaged(original, &frame.bytes)
        {
            if outcome.is_ok() {
                return broken(Rule::Delivery, "a corrupted packet is accepted");
            }
            return self.after(to);
        }
        if frame.session == self.ends[frame.end].session {
            self.arrived(conn, frame, outcome)?;
        }
        self.after(to)
    }

    /// An unharmed packet of the present connection reached its end.
    fn arrived(&mut self, conn: usize, frame: &OnWire, outcome: Result<(), DropReason>) -> Check {
        let receiver = self.ends[frame.end].peer;
        let Ok(packet) = Packet::new_checked(&frame.bytes, &[]) else { return Ok(()) };
        let request = packet.opcode().operation().is_some_and(|operation| operation.is_request());
        let wire = &mut self.flows[if request { frame.end } else { receiver }].wire;
        match outcome {
            Err(DropReason::WrongState | DropReason::UnknownQp) => self.disturb(conn),
            Err(DropReason::BadIcrc | DropReason::Malformed) => {}
            Err(DropReason::PsnAhead) if wire.position(packet.psn()) < wire.acked as i64 => {
                return broken(Rule::Delivery, "a packet that was acknowledged long ago is taken for one ahead");
            }
            _ if request => {
                // One that is late costs those that came before it, too.
                if outcome == Err(DropReason::PsnAhead) && wire.is_harmed() {
                    wire.harm(packet.psn());
                }
                wire.request_arrives(&packet);
            }
            _ => {
                wire.response(self.now, &packet);
                self.trace.packet(self.now, "gets", receiver, frame.end, &packet);
            }
        }
        Ok(())
    }

    /// Both directions of a connection may fail from now on.
    pub(crate) fn disturb(&mut self, conn: usize) {
        for flow in self.flows.iter_mut().skip(conn * 2).take(2) {
            flow.wire.disturb();
        }
    }

    /// A number for the next life of a machine.
    pub(crate) fn next_life(&mut self) -> u64 {
        self.lives += 1;
        self.lives
    }
}

/// A flipped bit lies where the ICRC looks (annex A17: ToS, TTL, checksums, flow label and the congestion bits do not).
fn damaged(original: &[u8], bytes: &[u8]) -> bool {
    let v4 = original[0] >> 4 == 4;
    let open: &[usize] = if v4 { &[1, 8, 10, 11, 26, 27, 32] } else { &[1, 2, 3, 7, 46, 47, 52] };
    original.iter().zip(bytes).enumerate().any(|(i, (a, b))| {
        let seen = if !v4 && i == 0 { 0xF0 } else { 0xFF };
        !open.contains(&i) && (a ^ b) & seen != 0
    })
}
