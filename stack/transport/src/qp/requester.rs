//! The requester: which packet a queue pair sends next (IBTA, requester).
//!
//! In: posted work, acknowledged PSNs, orders to go back. Out: one request packet at a time, built from the work
//! request and registered memory; nothing that was sent is kept, a retry builds it again.
//!
//! `next` is the whole state of sending: a PSN inside a started request means "that packet of that request", the PSN
//! behind the last one means "start the next request". Going back is setting `next`.

use xroce_wire::{AtomicEthRepr, Extension, Fields, Operation, Psn, PsnWindow, Qpn, RethRepr};

use crate::context::Context;
use crate::emit;
use crate::instant::Instant;
use crate::io::{Transmit, TxClass, TxSink};
use crate::memory::Pd;
use crate::mutation::{self, Mutation};
use crate::qp::credit::Credits;
use crate::qp::peer::{Peer, opcode};
use crate::qp::segment::{self, Position};
use crate::qp::sge;
use crate::qp::state::QpType;
use crate::qp::unacked::{Answer, Entry, Unacked, psns};
use crate::wc::WcStatus;
use crate::wq::{SendWqe, SqConsumer, WqePos};
use crate::wr::{SendFlags, SendOp};

/// PSNs that may be unacknowledged at most: half the space (IBTA, PSN).
const MAX_PSN_SPAN: u32 = 1 << 23;

/// What sending needs to know of its queue pair.
pub(crate) struct Sending<'a> {
    pub(crate) qpn: Qpn,
    pub(crate) kind: QpType,
    pub(crate) pd: Pd,
    pub(crate) peer: &'a Peer,
    pub(crate) max_rd_atomic: u32,
    /// New messages may start (RTS); else only those begun go on (SQD).
    pub(crate) may_start: bool,
}

/// What one call of [`Requester::poll`] did.
#[derive(Debug)]
pub(crate) enum Step {
    /// A packet was written. `ended`: the last one of its message. `again`: it had been sent before.
    Sent { transmit: Transmit, ended: bool, again: bool },
    /// Nothing to send now.
    Idle,
    /// The port has no room.
    Blocked,
    /// The oldest request cannot be sent for a local fault.
    Fault(WcStatus),
}

/// Where sending stands.
pub(crate) struct SendingAt {
    pub(crate) next: Psn,
    pub(crate) sent_end: Psn,
    pub(crate) in_flight: u32,
}

/// A work request that was taken from the queue and waits for its turn.
#[derive(Clone, Copy, Debug)]
struct Staged {
    wqe: WqePos,
    answer: Answer,
    psns: u32,
    len: u32,
    fence: bool,
    takes_recv: bool,
    fault: Option<WcStatus>,
}

#[derive(Debug)]
pub(crate) struct Requester {
    next: Psn,
    /// One behind the highest PSN ever sent: what lies at or behind it cannot be acknowledged yet.
    sent_end: Psn,
    /// Number of the request that `next` lies in, while it lies in one.
    cursor: u32,
    staged: Option<Staged>,
    since_ack_req: u32,
    /// The next packet carries AckReq whatever follows it.
    asking: bool,
    /// Nothing is sent before this: RNR wait, pacing.
    not_before: Option<Instant>,
    pub(crate) credits: Credits,
}

impl Requester {
    pub(crate) fn new() -> Requester {
        let zero = Psn::new(0);
        Requester {
            next: zero,
            sent_end: zero,
            cursor: 0,
            staged: None,
            since_ack_req: 0,
            asking: false,
            not_before: None,
            credits: Credits::default(),
        }
    }

    /// The first packet will carry `sq_psn`.
    pub(crate) fn reset(&mut self, sq_psn: Psn) {
        *self = Requester { next: sq_psn, sent_end: sq_psn, ..Requester::new() };
    }

    /// Where sending stands, for those who look on.
    pub(crate) fn sending(&self, unacked: &Unacked) -> SendingAt {
        SendingAt { next: self.next, sent_end: self.sent_end, in_flight: self.in_flight(unacked) }
    }

    /// PSNs that are on the wire or were, and that nothing has acknowledged.
    pub(crate) fn outstanding(&self, unacked: &Unacked) -> PsnWindow {
        PsnWindow { start: unacked.una(), len: psns(unacked.una(), self.sent_end) }
    }

    /// Until when nothing may be sent.
    pub(crate) fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// The wait is over if `now` has reached its end.
    // rule: rc.req.rnr.not-shortened
    pub(crate) fn wait_ended(&mut self, now: Instant) -> bool {
        match self.not_before {
            Some(at) if at <= now => {
                self.not_before = None;
                true
            }
            _ => false,
        }
    }

    /// Sends again from `psn` on, but nothing before `not_before`.
    // rule: rc.req.timer.resend, rc.req.nak-seq, rc.req.rnr.position
    pub(crate) fn go_back(&mut self, unacked: &Unacked, psn: Psn, not_before: Option<Instant>) {
        if let Some(number) = unacked.find(psn).filter(|_| !mutation::is(Mutation::NoRewind)) {
            (self.next, self.cursor) = (psn, number);
            (self.since_ack_req, self.asking) = (0, false);
            self.not_before = not_before;
        }
    }

    /// Skips what was acknowledged while it stood to be sent again.
    pub(crate) fn acknowledged(&mut self, unacked: &Unacked) {
        if self.next.distance_from(unacked.una()) < 0 {
            self.next = unacked.una();
            if let Some(number) = unacked.find(self.next) {
                self.cursor = number;
            }
        }
    }

    /// Takes the staged request out, for the flush.
    pub(crate) fn unstage(&mut self) -> Option<WqePos> {
        self.staged.take().map(|s| s.wqe)
    }

    /// A request was taken from the queue and waits for its turn.
    pub(crate) fn is_staged(&self) -> bool {
        self.staged.is_some()
    }

    /// A request that was started has packets to send, for the first time or again.
    pub(crate) fn in_message(&self, unacked: &Unacked) -> bool {
        self.next != unacked.end()
    }

    /// Writes the next packet, if there is one and it may go.
    // rule: rc.req.psn, rc.req.segment.order
    pub(crate) fn poll<S: TxSink>(
        &mut self,
        qp: &Sending<'_>,
        sq: &mut SqConsumer,
        unacked: &mut Unacked,
        ctx: &mut Context<'_>,
        sink: &mut S,
    ) -> Step {
        if self.not_before.is_some_and(|at| at > ctx.now) {
            return Step::Idle;
        }
        if self.next == unacked.end() {
            self.stage(qp, sq, ctx);
            let staged = self.staged;
            match staged {
                Some(Staged { fault: Some(status), .. }) if qp.may_start && unacked.is_empty() => {
                    return Step::Fault(status);
                }
                Some(staged) if self.may_start(&staged, qp, unacked, ctx) => self.start(staged, unacked),
                _ if self.ask_again(qp, unacked) => {}
                _ => return Step::Idle,
            }
        } else if !self.window_open(qp, unacked, ctx) && !self.asking {
            return Step::Idle;
        }
        loop {
            match self.transmit(qp, sq, unacked, ctx, sink) {
                // The memory is gone. What is older still has its own outcome first, and has to be asked for it.
                Step::Fault(_) if !self.at_oldest(unacked) => {
                    if !self.ask_again(qp, unacked) {
                        return Step::Idle;
                    }
                }
                step => return step,
            }
        }
    }

    /// The packet at `next` belongs to the oldest request.
    fn at_oldest(&self, unacked: &Unacked) -> bool {
        unacked.front().is_some_and(|front| front.index_of(self.next).is_some())
    }

    /// The last packet went without AckReq because the next request was to follow at once and ask, and now it does not (SQD,
    /// fewer credits, memory gone): steps back to that packet, to send it once more and ask; or further, if that one cannot be
    /// built any more either.
    // rule: rc.req.ackreq
    fn ask_again(&mut self, qp: &Sending<'_>, unacked: &Unacked) -> bool {
        if qp.kind != QpType::Rc || (self.since_ack_req == 0 && !self.asking) {
            return false;
        }
        let last = self.next.sub(1);
        let Some(number) = unacked.find(last).filter(|n| unacked.get(*n).is_some_and(|e| e.answer == Answer::Ack))
        else {
            return false;
        };
        (self.next, self.cursor, self.since_ack_req, self.asking) = (last, number, 0, true);
        true
    }

    /// Takes the next posted request from the queue, if none is staged, and checks what can be checked before it starts.
    /// In SQD it is left where it is: what it needs may be made ready until then.
    // rule: rc.req.psn.read, rc.req.local-fault, rc.req.max-rd-atomic.zero
    fn stage(&mut self, qp: &Sending<'_>, sq: &mut SqConsumer, ctx: &Context<'_>) {
        if self.staged.is_some() || !qp.may_start {
            return;
        }
        let Some(pos) = sq.take() else { return };
        let wqe = sq.wqe(pos);
        let op = wqe.op();
        let answer = match op {
            SendOp::Read { .. } => Answer::Read,
            SendOp::CmpSwap { .. } | SendOp::FetchAdd { .. } => Answer::Atomic,
            _ => Answer::Ack,
        };
        let fault = if answer != Answer::Ack && (qp.kind == QpType::Uc || qp.max_rd_atomic == 0) {
            Some(WcStatus::LocQpOpErr)
        } else if wqe.inline().is_none() && sge::check(ctx.memory, qp.pd, wqe.sges(), answer != Answer::Ack).is_err() {
            Some(WcStatus::LocProtErr)
        } else {
            None
        };
        self.staged = Some(Staged {
            wqe: pos,
            answer,
            psns: if answer == Answer::Atomic { 1 } else { segment::packets(wqe.length(), qp.peer.mtu) },
            len: wqe.length(),
            fence: wqe.flags().contains(SendFlags::FENCE),
            takes_recv: !matches!(op, SendOp::Write { .. }) && answer == Answer::Ack,
            fault,
        });
    }

    /// The staged request may start now (IBTA: end-to-end credits; fence; 9.4.4, limits of READs and atomics).
    // rule: rc.req.fence, rc.req.max-rd-atomic, rc.req.psn.span, rc.req.credits
    fn may_start(&self, staged: &Staged, qp: &Sending<'_>, unacked: &Unacked, ctx: &Context<'_>) -> bool {
        let span = psns(unacked.una(), unacked.end());
        let rd_atomics = unacked.rd_atomics();
        (qp.may_start || mutation::is(Mutation::SqdIgnored))
            && staged.fault.is_none()
            && (!(staged.fence && rd_atomics > 0) || mutation::is(Mutation::FenceIgnored))
            && (staged.answer == Answer::Ack
                || rd_atomics < qp.max_rd_atomic + u32::from(mutation::is(Mutation::RdAtomicOneTooMany)))
            && self.window_open(qp, unacked, ctx)
            && span + staged.psns <= MAX_PSN_SPAN
            && (!staged.takes_recv || self.credits.allow())
    }

    fn start(&mut self, staged: Staged, unacked: &mut Unacked) {
        self.cursor = unacked.push(staged.wqe, staged.answer, staged.psns, staged.len);
        self.credits.started(staged.takes_recv);
        self.staged = None;
    }

    /// Request packets between the oldest unacknowledged and the next one; the places of READ responses do not count.
    fn in_flight(&self, unacked: &Unacked) -> u32 {
        let distance = self.next.distance_from(unacked.una());
        u32::try_from(distance).map_or(0, |d| d.saturating_sub(unacked.read_psns()))
    }

    // rule: rc.req.window
    fn window_open(&self, qp: &Sending<'_>, unacked: &Unacked, ctx: &Context<'_>) -> bool {
        let window = ctx.limits.window_packets + u32::from(mutation::is(Mutation::WindowOneTooMany));
        qp.kind == QpType::Uc || self.in_flight(unacked) < window
    }

    /// Writes the packet at `next`.
    // rule: rc.req.inline
    fn transmit<S: TxSink>(
        &mut self,
        qp: &Sending<'_>,
        sq: &mut SqConsumer,
        unacked: &Unacked,
        ctx: &mut Context<'_>,
        sink: &mut S,
    ) -> Step {
        let Some((entry, index)) = unacked.get(self.cursor).and_then(|e| e.index_of(self.next).map(|index| (e, index)))
        else {
            return Step::Idle;
        };
        let behind = if entry.answer == Answer::Read { entry.end() } else { self.next.next() };
        let ends = behind == entry.end();
        // Looks at the next request, so that AckReq can go on the last packet that can be sent now.
        if ends && behind == unacked.end() {
            self.stage(qp, sq, ctx);
        }
        let ack_req = entry.answer == Answer::Ack && self.wants_ack(qp, unacked, ctx, behind);

        let wqe = sq.wqe(entry.wqe);
        let (fields, payload) = request_fields(qp, &wqe, entry, index, self.next, ack_req);
        let len = qp.peer.template.packet_len(&fields, payload);
        let Some(out) = sink.reserve(qp.peer.path.path, len, TxClass::Request) else { return Step::Blocked };
        let mtu = if mutation::is(Mutation::WrongMtuOffset) { 1024 } else { qp.peer.mtu.bytes() };
        let offset = u64::from(index) * mtu as u64;
        let filled = emit::packet((&qp.peer.template, &fields), payload, out, |writer| match wqe.inline() {
            Some(bytes) => {
                writer.copy_slice(&bytes[offset as usize..offset as usize + payload]);
                Ok(())
            }
            None if payload == 0 => Ok(()),
            None => sge::gather(ctx.memory, qp.pd, wqe.sges(), offset, writer),
        });
        if filled.is_err() {
            // The memory went away since the request was staged.
            return Step::Fault(WcStatus::LocProtErr);
        }
        self.sent(unacked, behind, ends, ack_req, Transmit { path: qp.peer.path.path, len, qpn: qp.qpn })
    }

    /// Moves on behind a packet that was written.
    fn sent(&mut self, unacked: &Unacked, behind: Psn, ended: bool, ack_req: bool, transmit: Transmit) -> Step {
        let again = self.next != self.sent_end;
        self.since_ack_req = if ack_req { 0 } else { self.since_ack_req + 1 };
        self.asking = false;
        self.next = behind;
        if !again {
            self.sent_end = behind;
        }
        if ended && behind != unacked.end() {
            self.cursor = self.cursor.wrapping_add(1);
        }
        Step::Sent { transmit, ended, again }
    }

    /// AckReq on the last packet that can be sent now, every few packets, and before the window closes (IBTA, AckReq).
    // rule: rc.req.ackreq, uc.no-answer
    fn wants_ack(&self, qp: &Sending<'_>, unacked: &Unacked, ctx: &Context<'_>, behind: Psn) -> bool {
        if qp.kind != QpType::Rc {
            return false;
        }
        if self.asking
            || self.since_ack_req + 1 >= ctx.limits.ack_req_every
            || self.in_flight(unacked) + 1 >= ctx.limits.window_packets
        {
            return true;
        }
        behind == unacked.end() && !self.staged.is_some_and(|s| self.may_start(&s, qp, unacked, ctx))
    }
}

/// What packet `index` of a request has of its own, and the length of its payload.
// rule: rc.req.segment.headers, tx.solicited
#[inline(always)]
fn request_fields(
    qp: &Sending<'_>,
    wqe: &SendWqe<'_>,
    entry: &Entry,
    index: u32,
    psn: Psn,
    ack_req: bool,
) -> (Fields, usize) {
    let op = wqe.op();
    let position = Position::of(index, entry.psns);
    let operation = segment::request(&op, position);
    let payload = match entry.answer {
        Answer::Ack => segment::payload_len(entry.len, qp.peer.mtu, index),
        Answer::Read | Answer::Atomic => 0,
    };
    let extension = match op {
        SendOp::SendImm(imm) if position.ends() => Extension::Imm(imm),
        SendOp::SendInv(rkey) if position.ends() => Extension::Ieth(rkey),
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => Extension::None,
        SendOp::Write { va, rkey } if index == 0 => Extension::Reth(RethRepr { va, rkey, len: entry.len }),
        SendOp::Write { .. } => Extension::None,
        SendOp::WriteImm { va, rkey, imm } => match (index == 0, position.ends()) {
            (true, true) => Extension::RethImm(RethRepr { va, rkey, len: entry.len }, imm),
            (true, false) => Extension::Reth(RethRepr { va, rkey, len: entry.len }),
            (false, true) => Extension::Imm(imm),
            (false, false) => Extension::None,
        },
        // A READ that lost a response asks again from there on, up to the original end.
        SendOp::Read { va, rkey } => {
            let offset = u64::from(index) * qp.peer.mtu.bytes() as u64;
            let va = va + u64::from(index > 0 && mutation::is(Mutation::ReadResumesWrong));
            Extension::Reth(RethRepr { va: va.wrapping_add(offset), rkey, len: entry.len - offset as u32 })
        }
        SendOp::CmpSwap { va, rkey, compare, swap } => {
            Extension::AtomicEth(AtomicEthRepr { va, rkey, swap_add: swap, compare })
        }
        SendOp::FetchAdd { va, rkey, add } => {
            Extension::AtomicEth(AtomicEthRepr { va, rkey, swap_add: add, compare: 0 })
        }
    };
    let solicited = wqe.flags().contains(SendFlags::SOLICITED) && position.ends() && takes_recv_at_end(operation);
    (Fields { opcode: opcode(qp.kind, operation), solicited, ack_req, psn, extension }, payload)
}

/// Whether SE has a meaning on this opcode: it ends a SEND or a WRITE with immediate (IBTA, BTH).
fn takes_recv_at_end(operation: Operation) -> bool {
    operation.is_send() || (operation.is_write() && operation.has_imm())
}
