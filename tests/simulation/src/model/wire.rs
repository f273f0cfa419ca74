//! One direction of a connection as its packets show it: what was sent, what was acknowledged, what must wait.
//!
//! In: request packets as they leave, responses as they arrive, frames that came to harm. Out: violations of the rules of
//! sending (IBTA, PSN, requester, NAK), and the evidence that completions are held against.
//!
//! Positions are PSNs made linear: 0 is the first PSN of the session, and nothing wraps.

use std::collections::VecDeque;

use xroce_transport::qp::state::QpType;
use xroce_wire::{Operation, Packet, Psn, Syndrome};

use super::{Check, Op, Rule, broken};
use crate::plan::Verb;

/// What a queue pair was configured with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) kind: QpType,
    pub(crate) mtu: usize,
    pub(crate) window: usize,
    pub(crate) max_rd_atomic: usize,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    /// The port may have no room for a packet.
    pub(crate) tight_port: bool,
    /// The ACK timer is so long, or off, that it cannot fire while an answer is under way.
    pub(crate) patient: bool,
}

/// What the packets tell.
#[derive(Clone, Debug)]
pub(crate) struct WireView {
    limits: Limits,
    start: Psn,
    /// Everything before was sent at least once.
    pub(crate) sent: u64,
    /// Everything before is acknowledged.
    pub(crate) acked: u64,
    /// Positions of request packets in flight.
    in_flight: VecDeque<u64>,
    /// READs and atomics without their (whole) answer: position that is expected next, and end.
    unanswered: VecDeque<(u64, u64)>,
    /// Nothing may leave before.
    rnr_until: Option<u64>,
    /// RNR NAKs since progress.
    pub(crate) rnr_naks: u32,
    /// RNR NAKs at all.
    rnr_ever: bool,
    /// Positions of packets that came to harm, from `acked` on.
    faults: Vec<u64>,
    /// A packet ever came to harm, or an end did.
    harmed: bool,
    /// One end was taken down, so that answers may fail to come.
    pub(crate) disturbed: bool,
    /// The queue pair said that its send queue is drained.
    pub(crate) drained: bool,
    /// Messages whose first packet left in SQD.
    begun_in_sqd: u32,
    /// What was to follow a packet may have become impossible (memory gone, SQD): it is sent again to ask for the answer.
    pub(crate) may_ask: bool,
    /// The request packet that reached the peer last.
    last_arrival: Option<i64>,
}

impl WireView {
    pub(crate) fn new(limits: Limits, start: Psn) -> WireView {
        WireView {
            limits,
            start,
            sent: 0,
            acked: 0,
            in_flight: VecDeque::new(),
            unanswered: VecDeque::new(),
            rnr_until: None,
            rnr_naks: 0,
            rnr_ever: false,
            faults: Vec::new(),
            harmed: false,
            disturbed: false,
            drained: false,
            begun_in_sqd: 0,
            may_ask: false,
            last_arrival: None,
        }
    }

    /// The linear position of a PSN, which is less than half the space away from what was sent last.
    pub(crate) fn position(&self, psn: Psn) -> i64 {
        let end = self.start.add((self.sent & 0xFF_FFFF) as u32);
        self.sent as i64 + i64::from(psn.distance_from(end))
    }

    /// A packet of this direction (`request`), or an answer to it, was lost, corrupted, doubled or held back.
    pub(crate) fn harm(&mut self, psn: Psn) {
        self.harmed = true;
        let at = self.position(psn);
        if at >= self.acked as i64 {
            self.faults.push(at as u64);
        }
    }

    /// One end was taken down or its memory taken away.
    pub(crate) fn disturb(&mut self) {
        self.harmed = true;
        self.disturbed = true;
    }

    /// The queue pair has other attributes now, and its retry counters are full. A timer that runs keeps its end.
    pub(crate) fn tuned(&mut self, limits: Limits) {
        self.limits = Limits {
            patient: limits.patient && self.limits.patient,
            // A READ that was begun while there were to be more of them may still wait for a place.
            max_rd_atomic: if limits.tight_port {
                limits.max_rd_atomic.max(self.limits.max_rd_atomic)
            } else {
                limits.max_rd_atomic
            },
            ..limits
        };
        self.rnr_naks = 0;
    }

    /// Sending goes on here after a failure (UC).
    pub(crate) fn resume(&mut self, at: u64) {
        (self.sent, self.acked) = (at, at);
    }

    /// Enough went wrong since the last progress to use up all retries.
    pub(crate) fn retries_may_be_spent(&self) -> bool {
        self.disturbed || !self.limits.patient || self.faults.len() > usize::from(self.limits.retry_cnt)
    }

    /// As many RNR NAKs arrived since the last progress as it takes.
    pub(crate) fn rnr_retries_may_be_spent(&self) -> bool {
        self.limits.rnr_retry < 7 && self.rnr_naks > u32::from(self.limits.rnr_retry)
    }

    /// Whether anything ever went wrong here.
    pub(crate) fn is_harmed(&self) -> bool {
        self.harmed
    }

    /// A request packet leaves.
    pub(crate) fn request(&mut self, now: u64, packet: &Packet<'_>, ops: &[Op], sqd: bool) -> Check {
        let at = self.position(packet.psn());
        if at < self.acked as i64 || at > self.sent as i64 {
            let (acked, sent) = (self.acked, self.sent);
            return broken(
                Rule::Segmentation,
                format!("a packet at {at}, but {acked} are acknowledged and {sent} sent"),
            );
        }
        let at = at as u64;
        let index = ops.partition_point(|op| op.first <= at);
        let Some(op) = index.checked_sub(1).map(|i| &ops[i]).filter(|op| at < op.first + u64::from(op.psns)) else {
            return broken(Rule::Segmentation, format!("a packet at {at}, which belongs to no posted request"));
        };
        self.check_segment(packet, op, at - op.first)?;
        self.check_wait(now, op, at, sqd)?;
        self.rnr_until = None;
        if at < self.sent {
            return self.check_resend(packet, op, at);
        }
        self.sent += if op.verb.is_rd_atomic() { u64::from(op.psns) } else { 1 };
        self.in_flight.push_back(at);
        if op.verb.is_rd_atomic() {
            self.unanswered.push_back((at, self.sent));
        }
        self.check_limits(op)
    }

    /// For a packet of `op`, sent for the first time.
    fn check_limits(&mut self, op: &Op) -> Check {
        if self.limits.kind == QpType::Uc {
            self.acked = self.sent;
            self.in_flight.clear();
            return Ok(());
        }
        let (packets, window) = (self.in_flight.len(), self.limits.window);
        if packets > window {
            return broken(Rule::Limit, format!("{packets} packets in flight; the window is {window}"));
        }
        // A limit that is lowered in SQD leaves those alone that are under way: it counts when the next one begins.
        let (operations, max) = (self.unanswered.len(), self.limits.max_rd_atomic);
        if op.verb.is_rd_atomic() && operations > max {
            return broken(Rule::Limit, format!("{operations} READs and atomics in flight; max_rd_atomic is {max}"));
        }
        Ok(())
    }

    fn check_wait(&mut self, now: u64, op: &Op, at: u64, sqd: bool) -> Check {
        if let Some(until) = self.rnr_until
            && now < until
        {
            return broken(
                Rule::Wait,
                format!("request {} is sent {} ns before the RNR wait ends", op.id, until - now),
            );
        }
        if self.rnr_naks > u32::from(self.limits.rnr_retry) && self.limits.rnr_retry < 7 {
            return broken(Rule::Limit, format!("request {} is sent after {} RNR NAKs", op.id, self.rnr_naks));
        }
        let begins = at == op.first && at == self.sent;
        // A message whose first packet found no room in the port was begun, though nothing shows it.
        self.begun_in_sqd = if sqd { self.begun_in_sqd + u32::from(begins) } else { 0 };
        if self.drained || self.begun_in_sqd > u32::from(self.limits.tight_port) {
            return broken(Rule::Wait, format!("request {} is sent in SQD", op.id));
        }
        if begins && op.fence && !self.unanswered.is_empty() {
            return broken(Rule::Wait, format!("request {} has a fence and overtakes a READ or atomic", op.id));
        }
        Ok(())
    }

    fn check_resend(&self, packet: &Packet<'_>, op: &Op, at: u64) -> Check {
        if self.limits.kind == QpType::Uc {
            return broken(Rule::Resend, format!("UC sends position {at} of request {} again", op.id));
        }
        let asks = self.may_ask && packet.bth().ack_req;
        if !self.harmed && self.limits.patient && !self.rnr_ever && !asks {
            return broken(Rule::Resend, format!("request {} is sent again from {at} on a clean network", op.id));
        }
        Ok(())
    }

    /// Opcode, length and headers of packet `index` of `op` (IBTA, message operations, requester).
    fn check_segment(&self, packet: &Packet<'_>, op: &Op, index: u64) -> Check {
        let wrong = |what: &str| broken(Rule::Segmentation, format!("packet {index} of request {}: {what}", op.id));
        let Some(got) = packet.opcode().operation() else { return wrong("has no operation") };
        let offset = index * self.limits.mtu as u64;
        let rest = u64::from(op.len).saturating_sub(offset);
        if op.verb.is_rd_atomic() {
            let fits = match op.verb {
                Verb::CmpSwap { .. } => got == Operation::CompareSwap,
                Verb::FetchAdd { .. } | Verb::SharedAdd { .. } => got == Operation::FetchAdd,
                _ => {
                    let asked = packet.reth().map(|reth| (reth.va, u64::from(reth.len)));
                    got == Operation::ReadRequest && asked == Some((op.va + offset, rest))
                }
            };
            return if fits { Ok(()) } else { wrong("asks for something else") };
        }
        let (first, last) = (index == 0, index + 1 == u64::from(op.psns));
        let write = matches!(op.verb, Verb::Write(_) | Verb::WriteImm(_));
        if got.is_write() != write || got.begins_message() != first || got.ends_message() != last {
            return wrong("has the wrong opcode");
        }
        if packet.payload_len() as u64 != rest.min(self.limits.mtu as u64) {
            return wrong("has the wrong length");
        }
        let imm = matches!(op.verb, Verb::SendImm | Verb::WriteImm(_)).then_some(op.imm).filter(|_| last);
        if packet.imm().map(|imm| imm.0) != imm {
            return wrong("has the wrong immediate");
        }
        let solicited = last && op.solicited && op.verb.takes_recv();
        if packet.bth().solicited != solicited {
            return wrong("has the wrong SE bit");
        }
        match packet.reth() {
            Some(reth) if !write || !first || (reth.va, reth.len) != (op.va, op.len) => wrong("has the wrong RETH"),
            None if write && first => wrong("has no RETH"),
            _ => Ok(()),
        }
    }

    /// A request packet arrives unharmed at the peer.
    pub(crate) fn request_arrives(&mut self, packet: &Packet<'_>) {
        self.last_arrival = Some(self.position(packet.psn()));
    }

    /// The peer answers the request that reached it last. An ACK for a duplicate must not reach past a READ or atomic
    /// behind it, whose answer may be lost (IBTA, duplicate requests).
    pub(crate) fn answered(&self, packet: &Packet<'_>) -> Check {
        let Some(Syndrome::Ack { .. }) = packet.aeth().map(|aeth| aeth.syndrome) else { return Ok(()) };
        let (Some(Operation::Acknowledge), Some(asked)) = (packet.opcode().operation(), self.last_arrival) else {
            return Ok(());
        };
        let at = self.position(packet.psn());
        match self.unanswered.iter().find(|(next, _)| (asked + 1..=at).contains(&(*next as i64))) {
            None => Ok(()),
            Some((read, _)) => broken(
                Rule::Wait,
                format!("packet {asked} is answered by an ACK of {at}, past the READ or atomic at {read}"),
            ),
        }
    }

    /// A response arrives unharmed at a queue pair that takes responses.
    pub(crate) fn response(&mut self, now: u64, packet: &Packet<'_>) {
        let at = self.position(packet.psn());
        if at < self.acked as i64 || at >= self.sent as i64 {
            return;
        }
        let at = at as u64;
        match packet.opcode().operation() {
            Some(Operation::Acknowledge) => self.acknowledge(now, at, packet),
            Some(Operation::AtomicAcknowledge) => self.answer(at, true),
            _ => self.answer(at, false),
        }
        while self.in_flight.front().is_some_and(|at| *at < self.acked) {
            self.in_flight.pop_front();
        }
    }

    /// Progress fills the retry counters again.
    fn reach(&mut self, position: u64) {
        if position > self.acked {
            self.acked = position;
            self.faults.retain(|at| *at >= position);
            self.rnr_naks = 0;
        }
    }

    /// Nothing at or behind an unanswered READ or atomic is acknowledged by anything but its own response.
    fn up_to(&mut self, end: u64) -> bool {
        let limit = self.unanswered.front().map_or(u64::MAX, |(next, _)| *next);
        self.reach(end.min(limit));
        end <= limit
    }

    fn acknowledge(&mut self, now: u64, at: u64, packet: &Packet<'_>) {
        match packet.aeth().map(|aeth| aeth.syndrome) {
            Some(Syndrome::Ack { .. }) => {
                self.up_to(at + 1);
            }
            Some(Syndrome::RnrNak(timer)) => {
                let reached = self.up_to(at);
                if reached && self.rnr_until.is_none() {
                    self.rnr_until = Some(now + timer.ns());
                    self.rnr_ever = true;
                    self.rnr_naks += 1;
                }
            }
            Some(Syndrome::Nak(_)) => {
                self.up_to(at);
            }
            _ => {}
        }
    }

    /// A response of a READ, which takes several, or an atomic.
    fn answer(&mut self, at: u64, atomic: bool) {
        let Some((next, end)) = self.unanswered.front_mut() else { return };
        if at != *next || (atomic && *end != at + 1) {
            let limit = *next;
            self.reach(limit.min(at));
            return;
        }
        *next += 1;
        let (reached, whole) = (*next, *next == *end);
        if whole {
            self.unanswered.pop_front();
        }
        self.reach(reached);
    }

    /// Everything up to and including `op` is acknowledged, or for UC was sent.
    pub(crate) fn shows_done(&self, op: &Op) -> bool {
        self.acked >= op.first + u64::from(op.psns)
    }
}
