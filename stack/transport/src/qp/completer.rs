//! The completer: what responses do to the requests on the wire (IBTA, requester).
//!
//! In: ACKs, NAKs, READ and atomic responses, the ACK timer. Out: completions of requests that are done, and a
//! [`Verdict`]: whether the requester goes back, waits, or the oldest request has failed.

use std::sync::Arc;

use xroce_wire::{AethRepr, NakCode, Packet, PathMtu, Psn, Qpn, RnrTimer, Syndrome};

use crate::context::Context;
use crate::counters::QpCounters;
use crate::cq::Cq;
use crate::drop::DropReason;
use crate::instant::Instant;
use crate::memory::Pd;
use crate::mutation::{self, Mutation};
use crate::qp::requester::Requester;
use crate::qp::segment;
use crate::qp::sge;
use crate::qp::unacked::{Answer, Unacked};
use crate::wc::{Wc, WcOpcode, WcStatus};
use crate::wq::{SqConsumer, WqePos};
use crate::wr::{SendFlags, SendOp};

/// The value of `rnr_retry` that means "for ever" (IBTA, RNR NAK). `retry_cnt` has no such value.
// rule: rc.req.rnr.forever
const RNR_RETRY_INFINITE: u8 = 7;

/// The ACK timer doubles with each timeout in a row up to this power of two: 4T, the most there may be.
const MAX_BACKOFF_SHIFT: u32 = 2;

/// How many ACK timeouts a responder that is still sending what it was asked before may keep us waiting without progress.
const PATIENCE: u64 = 16;

/// What a response or a timeout asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing more.
    Done,
    /// The packet had no effect.
    Dropped(DropReason),
    /// Send again from this PSN, but not before the given time.
    GoBack { psn: Psn, not_before: Option<Instant> },
    /// The oldest request ends with this status and the queue pair goes to ERR.
    Fail { status: WcStatus, psn: Psn, syndrome: u8 },
}

/// The parts of a queue pair that the completer works on.
pub(crate) struct Completing<'a> {
    pub(crate) qpn: Qpn,
    pub(crate) pd: Pd,
    pub(crate) mtu: PathMtu,
    pub(crate) peer_qpn: Qpn,
    pub(crate) send_cq: &'a Arc<Cq>,
    pub(crate) sig_all: bool,
    pub(crate) sq: &'a mut SqConsumer,
    pub(crate) unacked: &'a mut Unacked,
    /// Told what was acknowledged and granted; asked what was sent.
    pub(crate) requester: &'a mut Requester,
    pub(crate) counters: &'a mut QpCounters,
}

#[derive(Debug, Default)]
pub(crate) struct Completer {
    retry_cnt: u8,
    rnr_retry: u8,
    retries_left: u8,
    rnr_left: u8,
    /// When the first retry since progress was due, for a failed completion's detail.
    first_retry: Option<Instant>,
    /// The same for the first RNR NAK.
    first_rnr: Option<Instant>,
    /// The PSN that a NAK or a gap last sent us back to, until progress: its echoes are ignored.
    restarted_at: Option<Psn>,
    /// Between an RNR NAK and the first packet after its wait.
    rnr_wait_for: Option<Psn>,
    /// 4.096 µs * 2^timeout, 0 for no timer.
    timeout_ns: u64,
    ack_deadline: Option<Instant>,
    /// ACK timeouts since progress, as far as they make the next one later.
    timeouts: u32,
    /// Until when signs of life may put the ACK timer off; `None` until the first one since progress.
    patience_ends: Option<Instant>,
}

impl Completer {
    /// Settings from RTR to RTS; counters start full.
    // rule: rc.req.timer, rc.req.timer.off
    pub(crate) fn configure(&mut self, timeout: u8, retry_cnt: u8, rnr_retry: u8) {
        // The 5-bit code of the local ACK timeout; 0 switches the timer off.
        self.timeout_ns = if timeout == 0 { 0 } else { 4096 << timeout };
        (self.retry_cnt, self.rnr_retry) = (retry_cnt, rnr_retry);
        (self.retries_left, self.rnr_left) = (retry_cnt, rnr_retry);
    }

    /// The ACK timer has another length while a queue pair is drained: it begins anew where answers are awaited, or stops.
    pub(crate) fn retime(&mut self, now: Instant, awaited: bool) {
        let runs = awaited && self.rnr_wait_for.is_none() && self.timeout_ns != 0;
        self.ack_deadline = runs.then(|| now.add_ns(self.timeout_ns));
    }

    /// Forgets timers and restarts.
    pub(crate) fn reset(&mut self) {
        (self.retries_left, self.rnr_left) = (self.retry_cnt, self.rnr_retry);
        (self.restarted_at, self.rnr_wait_for, self.ack_deadline) = (None, None, None);
        (self.patience_ends, self.timeouts) = (None, 0);
    }

    pub(crate) fn ack_deadline(&self) -> Option<Instant> {
        self.ack_deadline
    }

    /// What is left of `retry_cnt` and of `rnr_retry`.
    pub(crate) fn retries_left(&self) -> (u8, u8) {
        (self.retries_left, self.rnr_left)
    }

    /// Retries of the kind that `status` is about since the last progress, and when the first was due, for a failed
    /// completion's detail.
    pub(crate) fn retried(&self, status: WcStatus) -> (u8, Option<Instant>) {
        match status {
            WcStatus::RnrRetryExcErr => (self.rnr_retry - self.rnr_left, self.first_rnr),
            _ if self.retries_left == self.retry_cnt && status != WcStatus::RetryExcErr => (0, None),
            _ => (self.retry_cnt - self.retries_left, self.first_retry),
        }
    }

    /// A request packet left: the timer runs from the first unanswered one.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.rnr_wait_for = None;
        if self.ack_deadline.is_none() && self.timeout_ns != 0 {
            self.ack_deadline = Some(now.add_ns(self.timeout_ns << self.timeouts));
        }
    }

    /// The ACK timer, if it has expired: resend from the oldest unacknowledged PSN, or give up (IBTA, transport timer).
    // rule: rc.req.timer, rc.req.timer.backoff, rc.req.timer.resend
    pub(crate) fn handle_timeout(&mut self, now: Instant, p: &mut Completing<'_>) -> Verdict {
        if self.ack_deadline.is_none_or(|at| at > now) {
            return Verdict::Done;
        }
        self.ack_deadline = None;
        if p.unacked.is_empty() || mutation::is(Mutation::TimerIgnored) {
            return Verdict::Done;
        }
        p.counters.local_ack_timeout_err += 1;
        // The timer may run T to 4T. A peer that is slow to answer gets more time with each resend, so that
        // resends do not add up at it.
        self.timeouts = (self.timeouts + 1).min(MAX_BACKOFF_SHIFT);
        self.restarted_at = None;
        self.retry(p.unacked.una(), p, now)
    }

    /// A packet with an AETH and nothing else: ACK or NAK.
    // rule: rc.req.ack.stale, rc.req.ack.ghost, rc.req.ack.unasked, rc.req.ack.reserved, rc.req.credits.late
    pub(crate) fn handle_ack(
        &mut self,
        psn: Psn,
        aeth: AethRepr,
        p: &mut Completing<'_>,
        ctx: &mut Context<'_>,
    ) -> Verdict {
        let outstanding = p.requester.outstanding(p.unacked);
        if !outstanding.contains(psn) {
            // The newest acknowledged PSN once more may still bring credits (IBTA, unsolicited acknowledge).
            if psn.next() == p.unacked.una()
                && let Syndrome::Ack { credits } = aeth.syndrome
            {
                p.requester.credits.granted(aeth.msn, credits);
                return Verdict::Dropped(DropReason::StaleResponse);
            }
            return Verdict::Dropped(if psn.distance_from(p.unacked.una()) < 0 {
                DropReason::StaleResponse
            } else {
                DropReason::GhostResponse
            });
        }
        match aeth.syndrome {
            Syndrome::Ack { credits } => {
                p.requester.credits.granted(aeth.msn, credits);
                match self.acknowledge(psn.next(), p, ctx) {
                    Some(gap) => self.implied_nak(gap, p, ctx.now),
                    None => Verdict::Done,
                }
            }
            Syndrome::RnrNak(timer) => self.rnr_nak(psn, timer, p, ctx),
            Syndrome::Nak(code) => self.nak(psn, code, aeth.syndrome.byte(), p, ctx),
            Syndrome::Reserved(_) => Verdict::Dropped(DropReason::ReservedSyndrome),
        }
    }

    /// A READ response packet: placed by PSN, whatever its opcode says about its position.
    // rule: rc.req.read.order, rc.req.read.opcode, rc.req.read.length
    pub(crate) fn handle_read_response(
        &mut self,
        packet: &Packet<'_>,
        p: &mut Completing<'_>,
        ctx: &mut Context<'_>,
    ) -> Verdict {
        let psn = packet.psn();
        let aeth = packet.aeth();
        if aeth.is_some_and(|a| !matches!(a.syndrome, Syndrome::Ack { .. })) {
            return Verdict::Dropped(DropReason::ReservedSyndrome);
        }
        if let Err(verdict) = self.reach(psn, Answer::Read, p, ctx) {
            // A response to what was never asked is no sign of the peer's.
            if verdict != Verdict::Dropped(DropReason::GhostResponse) {
                self.sign_of_life(ctx.now);
            }
            return verdict;
        }
        let Some(entry) = p.unacked.front().copied() else { return Verdict::Dropped(DropReason::StaleResponse) };
        let Some(index) = entry.index_of(psn) else { return Verdict::Dropped(DropReason::StaleResponse) };
        let payload = packet.payload();
        let expected = segment::payload_len(entry.len, p.mtu, index);
        if payload.0.len() + payload.1.len() != expected {
            return Verdict::Fail { status: WcStatus::LocLenErr, psn, syndrome: 0 };
        }
        let offset = u64::from(index) * p.mtu.bytes() as u64;
        if sge::scatter(ctx.memory, p.pd, p.sq.wqe(entry.wqe).sges(), offset, payload).is_err() {
            return Verdict::Fail { status: WcStatus::LocProtErr, psn, syndrome: 0 };
        }
        if let Some(AethRepr { syndrome: Syndrome::Ack { credits }, msn }) = aeth {
            p.requester.credits.granted(msn, credits);
        }
        if index + 1 + u32::from(mutation::is(Mutation::ReadCompletesEarly)) >= entry.psns {
            self.complete_front(p, ctx);
        } else {
            p.unacked.advance(psn.next());
        }
        self.progress(p, ctx.now);
        Verdict::Done
    }

    /// The response to an atomic: the original value goes to the request's buffer.
    // rule: rc.req.atomic, rc.req.ack.by-response
    pub(crate) fn handle_atomic_response(
        &mut self,
        packet: &Packet<'_>,
        p: &mut Completing<'_>,
        ctx: &mut Context<'_>,
    ) -> Verdict {
        let psn = packet.psn();
        let (Some(aeth), Some(ack)) = (packet.aeth(), packet.atomic_ack()) else {
            return Verdict::Dropped(DropReason::Malformed);
        };
        let Syndrome::Ack { credits } = aeth.syndrome else {
            return Verdict::Dropped(DropReason::ReservedSyndrome);
        };
        if let Err(verdict) = self.reach(psn, Answer::Atomic, p, ctx) {
            return verdict;
        }
        let Some(entry) = p.unacked.front().copied() else { return Verdict::Dropped(DropReason::StaleResponse) };
        let original = ack.original.to_ne_bytes();
        if sge::scatter(ctx.memory, p.pd, p.sq.wqe(entry.wqe).sges(), 0, (&original, &[])).is_err() {
            return Verdict::Fail { status: WcStatus::LocProtErr, psn, syndrome: 0 };
        }
        p.requester.credits.granted(aeth.msn, credits);
        self.complete_front(p, ctx);
        self.progress(p, ctx.now);
        Verdict::Done
    }

    /// Completes what lies before the request that `psn` belongs to, so that this one is the oldest. Fails if the
    /// response is stale or a ghost, skips an unanswered request, or answers another kind of request.
    // rule: rc.req.ack.by-response, rc.req.read.gap, rc.req.read.kind
    fn reach(
        &mut self,
        psn: Psn,
        answer: Answer,
        p: &mut Completing<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<(), Verdict> {
        if !p.requester.outstanding(p.unacked).contains(psn) {
            let stale = psn.distance_from(p.unacked.una()) < 0;
            return Err(Verdict::Dropped(if stale { DropReason::StaleResponse } else { DropReason::GhostResponse }));
        }
        let first = match p.unacked.find(psn).and_then(|number| p.unacked.get(number)) {
            Some(entry) => entry.first,
            None => return Err(Verdict::Dropped(DropReason::GhostResponse)),
        };
        if first.distance_from(p.unacked.una()) > 0
            && let Some(gap) = self.acknowledge(first, p, ctx)
        {
            return Err(self.implied_nak(gap, p, ctx.now));
        }
        match p.unacked.front() {
            Some(front) if front.answer != answer => {
                Err(Verdict::Fail { status: WcStatus::BadRespErr, psn, syndrome: 0 })
            }
            // A response packet of this READ was lost.
            Some(_) if psn != p.unacked.una() => Err(self.implied_nak(p.unacked.una(), p, ctx.now)),
            Some(_) => Ok(()),
            None => Err(Verdict::Dropped(DropReason::StaleResponse)),
        }
    }

    /// Everything before `end` is acknowledged by something that is not its own response. Completes the SENDs and
    /// WRITEs in it; returns where it met a READ or atomic that is still unanswered.
    // rule: rc.req.ack.coalesced, rc.req.ack.middle, rc.req.ack.implied-nak, rc.req.msn
    fn acknowledge(&mut self, end: Psn, p: &mut Completing<'_>, ctx: &mut Context<'_>) -> Option<Psn> {
        let before = p.unacked.una();
        let mut gap = None;
        while let Some(entry) = p.unacked.front().copied() {
            if entry.first.distance_from(end) >= 0 {
                break;
            }
            if entry.answer != Answer::Ack && !mutation::is(Mutation::AckCompletesRead) {
                gap = Some(p.unacked.una());
                break;
            }
            if entry.end().distance_from(end) > 0 {
                if end.distance_from(p.unacked.una()) > 0 {
                    p.unacked.advance(end);
                }
                break;
            }
            self.complete_front(p, ctx);
        }
        if p.unacked.una() != before {
            self.progress(p, ctx.now);
        }
        gap
    }

    /// Newly acknowledged: retry counters are full again and the timer starts anew (IBTA, transport timer).
    // rule: rc.req.timer.restart, rc.req.retry.restored
    fn progress(&mut self, p: &mut Completing<'_>, now: Instant) {
        if !mutation::is(Mutation::RetriesNotRestored) {
            (self.retries_left, self.rnr_left) = (self.retry_cnt, self.rnr_retry);
        }
        (self.restarted_at, self.patience_ends, self.timeouts) = (None, None, 0);
        p.requester.acknowledged(p.unacked);
        // What was begun may not have found room at the port yet.
        let waiting = p.requester.outstanding(p.unacked).len > 0;
        let waiting = waiting && self.rnr_wait_for.is_none() && self.timeout_ns != 0;
        self.ack_deadline = waiting.then(|| now.add_ns(self.timeout_ns));
    }

    /// A READ response that is none we wait for: the responder is still busy with what it was asked before. What we asked
    /// since then comes behind that, so the timer begins again; asking once more would only make the queue longer.
    // rule: rc.req.timer.patience
    fn sign_of_life(&mut self, now: Instant) {
        if self.ack_deadline.is_some() {
            let ends = *self.patience_ends.get_or_insert(now.add_ns(self.timeout_ns * PATIENCE));
            self.ack_deadline = self.ack_deadline.max(Some(ends.min(now.add_ns(self.timeout_ns))));
        }
    }

    /// The oldest request succeeded.
    fn complete_front(&mut self, p: &mut Completing<'_>, ctx: &mut Context<'_>) {
        let Some(entry) = p.unacked.pop() else { return };
        success(p, ctx, entry.wqe);
    }

    /// A response came for something behind an unanswered request: its response was lost (IBTA, implied NAK).
    // rule: rc.req.ack.implied-nak
    fn implied_nak(&mut self, gap: Psn, p: &mut Completing<'_>, now: Instant) -> Verdict {
        p.counters.implied_nak_seq_err += 1;
        self.retry(gap, p, now)
    }

    /// Goes back to `psn` at the price of one retry, unless that was done already and nothing has changed since.
    // rule: rc.req.retry, rc.req.retry.seven, rc.req.nak-seq.once
    fn retry(&mut self, psn: Psn, p: &mut Completing<'_>, now: Instant) -> Verdict {
        if self.restarted_at == Some(psn) || self.rnr_wait_for.is_some() {
            return Verdict::Dropped(DropReason::NakIgnored);
        }
        if self.retries_left == self.retry_cnt {
            self.first_retry = Some(now);
        }
        if self.retries_left <= u8::from(mutation::is(Mutation::RetriesOneTooFew)) {
            p.counters.retry_exceeded_err += 1;
            return Verdict::Fail { status: WcStatus::RetryExcErr, psn, syndrome: 0 };
        }
        self.retries_left -= 1;
        self.restart(psn)
    }

    fn restart(&mut self, psn: Psn) -> Verdict {
        self.restarted_at = Some(psn);
        self.ack_deadline = None;
        Verdict::GoBack { psn, not_before: None }
    }

    /// NAK with a code (IBTA, NAK codes). It acknowledges what lies before its PSN.
    // rule: rc.req.nak-seq, rc.req.nak-seq.progress, rc.req.nak.fatal, rc.req.nak.read, rc.req.nak.unknown
    // rule: rc.req.rnr.behind
    fn nak(&mut self, psn: Psn, code: NakCode, syndrome: u8, p: &mut Completing<'_>, ctx: &mut Context<'_>) -> Verdict {
        let status = match code {
            NakCode::PsnSequenceError => None,
            NakCode::InvalidRequest => Some(WcStatus::RemInvReqErr),
            NakCode::RemoteAccessError => Some(WcStatus::RemAccessErr),
            NakCode::RemoteOperationalError => Some(WcStatus::RemOpErr),
            NakCode::InvalidRdRequest | NakCode::Reserved(_) => {
                return Verdict::Dropped(DropReason::ReservedSyndrome);
            }
        };
        let before = p.unacked.una();
        let end = psn.add(u32::from(mutation::is(Mutation::NakAcknowledgesItself)));
        if let Some(gap) = self.acknowledge(end, p, ctx) {
            // Inside the READ that it belongs to, a fatal NAK ends that READ; anything else must not skip a response.
            let own = p.unacked.front().is_some_and(|front| front.index_of(psn).is_some());
            if !own || status.is_none() {
                return self.implied_nak(gap, p, ctx.now);
            }
        }
        match status {
            Some(status) => Verdict::Fail { status, psn, syndrome },
            None => {
                p.counters.rcvd_seq_err += 1;
                if self.rnr_wait_for.is_some() {
                    Verdict::Dropped(DropReason::NakIgnored)
                } else if p.unacked.una() != before {
                    self.restart(psn)
                } else {
                    self.retry(psn, p, ctx.now)
                }
            }
        }
    }

    /// Receiver not ready (IBTA, RNR NAK): wait at least the coded time, then send again from `psn`.
    // rule: rc.req.rnr, rc.req.rnr.position, rc.req.rnr.retry, rc.req.rnr.second
    fn rnr_nak(&mut self, psn: Psn, timer: RnrTimer, p: &mut Completing<'_>, ctx: &mut Context<'_>) -> Verdict {
        p.counters.rcvd_rnr_err += 1;
        if let Some(gap) = self.acknowledge(psn, p, ctx) {
            return self.implied_nak(gap, p, ctx.now);
        }
        if self.rnr_wait_for.is_some() {
            return Verdict::Dropped(DropReason::NakIgnored);
        }
        if self.rnr_left == self.rnr_retry {
            self.first_rnr = Some(ctx.now);
        }
        if self.rnr_retry != RNR_RETRY_INFINITE && !mutation::is(Mutation::RnrRetriesEndless) {
            if self.rnr_left == 0 {
                p.counters.retry_rnr_exceeded_err += 1;
                let syndrome = Syndrome::RnrNak(timer).byte();
                return Verdict::Fail { status: WcStatus::RnrRetryExcErr, psn, syndrome };
            }
            self.rnr_left -= 1;
        }
        // Who says "not ready" is alive. And rdma_rxe answers the packets behind this one by sequence NAKs for the same PSN,
        // which may come after the wait: echoes too.
        (self.retries_left, self.timeouts) = (self.retry_cnt, 0);
        self.rnr_wait_for = Some(psn);
        self.restarted_at = Some(psn);
        self.ack_deadline = None;
        let wait_ns = if mutation::is(Mutation::RnrTimerIgnored) { 0 } else { timer.ns() };
        Verdict::GoBack { psn, not_before: Some(ctx.now.add_ns(wait_ns)) }
    }
}

/// The completion opcode of a request.
pub(crate) fn wc_opcode(op: &SendOp) -> WcOpcode {
    match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => WcOpcode::Send,
        SendOp::Write { .. } | SendOp::WriteImm { .. } => WcOpcode::RdmaWrite,
        SendOp::Read { .. } => WcOpcode::RdmaRead,
        SendOp::CmpSwap { .. } => WcOpcode::CompSwap,
        SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
    }
}

/// The request at `pos`, the oldest of its queue, is done: a completion if it was asked for, and its place is free.
// rule: rc.req.unsignaled
pub(crate) fn success(p: &mut Completing<'_>, ctx: &mut Context<'_>, pos: WqePos) {
    p.counters.rdma_sends += 1;
    let wqe = p.sq.wqe(pos);
    let signaled =
        p.sig_all || wqe.flags().contains(SendFlags::SIGNALED) || mutation::is(Mutation::UnsignaledCompletes);
    let wc = signaled.then(|| Wc {
        wr_id: wqe.wr_id(),
        status: WcStatus::Success,
        opcode: wc_opcode(&wqe.op()),
        byte_len: wqe.length(),
        qpn: p.qpn,
        src_qp: p.peer_qpn,
        ..Wc::default()
    });
    let freed = p.sq.retire();
    if let Some(wc) = wc {
        ctx.complete(freed, p.send_cq, wc, false);
    }
}

/// The request at `pos`, the oldest of its queue, ends with an error: always a completion, `wc` with what the request adds.
pub(crate) fn failure((sq, send_cq): (&mut SqConsumer, &Arc<Cq>), ctx: &mut Context<'_>, pos: WqePos, wc: Wc) -> Wc {
    let wqe = sq.wqe(pos);
    let wc = Wc { wr_id: wqe.wr_id(), opcode: wc_opcode(&wqe.op()), ..wc };
    ctx.complete(sq.retire(), send_cq, wc, true);
    wc
}
