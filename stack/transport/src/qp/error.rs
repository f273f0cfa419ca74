//! How a queue pair fails: one request with a status of its own, everything behind it flushed in order
//! (IBTA, ERR state).

use xroce_wire::{Psn, Qpn};

use crate::context::Context;
use crate::failure::QpFault;
use crate::instant::Instant;
use crate::mutation::{self, Mutation};
use crate::qp::completer::failure;
use crate::qp::queue_pair::{Inward, Qp};
use crate::qp::state::{QpState, QpType};
use crate::trace::qp_event;
use crate::wc::{Wc, WcDetail, WcOpcode, WcStatus};
use crate::wq::SqConsumer;

impl Qp {
    /// The oldest send request ends with `status`. RC goes to ERR; on UC only the send queue does (SQE).
    // rule: rc.req.flush, uc.sqe
    pub(super) fn fail_oldest(&mut self, status: WcStatus, psn: Psn, syndrome: u8, ctx: &mut Context<'_>) {
        let wqe = match self.unacked.pop() {
            Some(entry) => Some(entry.wqe),
            None => self.requester.unstage(),
        };
        // Before the completion: whoever sees that finds the state that it means.
        self.set_state(match self.kind {
            QpType::Rc => QpState::Err,
            QpType::Uc => QpState::Sqe,
        });
        if let Some(wqe) = wqe {
            let wc = self.failed(status, psn, syndrome, ctx.now);
            let wc = failure((&mut self.sq, &self.send_cq), ctx, wqe, wc);
            self.keep(&wc);
            self.counters.req_cqe_error += 1;
            self.counters.req_remote_access_errors += u64::from(status == WcStatus::RemAccessErr);
            self.counters.req_remote_invalid_request += u64::from(status == WcStatus::RemInvReqErr);
        }
        match self.kind {
            QpType::Rc => self.enter_error(ctx, false),
            QpType::Uc => {
                if !mutation::is(Mutation::SqeNotFlushed) {
                    self.flush_sends(ctx);
                }
            }
        }
    }

    /// The RECV in use ends with `status`, and the queue pair is in ERR before the completion can be seen.
    pub(super) fn fail_recv(&mut self, status: WcStatus, psn: Psn, ctx: &mut Context<'_>) {
        self.set_state(QpState::Err);
        let wc = self.failed(status, psn, 0, ctx.now);
        if let Some(wc) = self.end_recv(wc, ctx) {
            self.keep(&wc);
            self.counters.resp_cqe_error += 1;
            self.counters.resp_local_length_error += u64::from(status == WcStatus::LocLenErr);
        }
    }

    /// To ERR: timers stop, everything posted is flushed. `answer`: the NAK that waits, and what waits before it, still
    /// leaves.
    // rule: rc.resp.fatal, qp.err
    pub(super) fn enter_error(&mut self, ctx: &mut Context<'_>, answer: bool) {
        self.set_state(QpState::Err);
        self.flush_sends(ctx);
        match &mut self.inward {
            Inward::Rc(responder) => {
                responder.inbound.forget();
                if !answer {
                    responder.responses.clear();
                }
            }
            Inward::Uc(receiver) => {
                receiver.inbound.forget();
            }
        }
        self.flush_recvs(ctx);
    }

    pub(super) fn set_state(&mut self, state: QpState) {
        if state == self.state {
            return;
        }
        qp_event!(self.span, DEBUG, from = %self.state, to = %state, "state");
        self.state = state;
        self.shared.store(state);
    }

    /// Every send request that is on the wire, staged or posted ends with a flush error, oldest first.
    // rule: rc.req.flush, qp.err, qp.sqe
    pub(super) fn flush_sends(&mut self, ctx: &mut Context<'_>) {
        self.completer.reset();
        let flushed = self.flushed();
        let mut flush = |sq: &mut SqConsumer, wqe| {
            failure((sq, &self.send_cq), ctx, wqe, flushed);
            self.counters.req_cqe_error += 1;
            self.counters.req_cqe_flush_error += 1;
        };
        if mutation::is(Mutation::FlushOutOfOrder)
            && let Some(wqe) = self.requester.unstage()
        {
            flush(&mut self.sq, wqe);
        }
        while let Some(entry) = self.unacked.pop() {
            flush(&mut self.sq, entry.wqe);
        }
        if let Some(wqe) = self.requester.unstage() {
            flush(&mut self.sq, wqe);
        }
        self.requester.reset(self.unacked.end());
        while let Some(wqe) = self.sq.take() {
            flush(&mut self.sq, wqe);
        }
    }

    /// Every RECV ends with a flush error, oldest first.
    pub(super) fn flush_recvs(&mut self, ctx: &mut Context<'_>) {
        let flushed = self.flushed();
        while self.end_recv(flushed, ctx).is_some() {
            self.counters.resp_cqe_error += 1;
            self.counters.resp_cqe_flush_error += 1;
        }
    }

    /// The RECV at the front, if there is one, ends with an error: `wc` with what the RECV adds.
    fn end_recv(&mut self, wc: Wc, ctx: &mut Context<'_>) -> Option<Wc> {
        let recv = self.rq.front()?;
        let wc = Wc { wr_id: recv.wr_id, opcode: WcOpcode::Recv, ..wc };
        let freed = self.rq.pop();
        ctx.complete(freed, &self.recv_cq, wc, true);
        Some(wc)
    }

    /// Keeps why the queue pair failed.
    fn keep(&mut self, wc: &Wc) {
        let Some(failure) = wc.failure() else { return };
        qp_event!(self.span, INFO, %failure, "request failed");
        self.fault = Some(QpFault::Completion(failure));
    }

    /// The status of what was posted and not carried out when the queue pair failed.
    fn flushed(&self) -> Wc {
        Wc { status: WcStatus::WrFlushErr, qpn: self.qpn, ..Wc::default() }
    }

    /// What a completion says whose request decided about the queue pair.
    fn failed(&self, status: WcStatus, psn: Psn, syndrome: u8, now: Instant) -> Wc {
        let (retries, since) = self.completer.retried(status);
        let retried_us = since.map_or(0, |since| u32::try_from(now.since_ns(since) / 1000).unwrap_or(u32::MAX));
        let detail = WcDetail {
            peer: self.peer.as_ref().map(|p| p.path.dst),
            psn,
            syndrome,
            retries,
            timeout: self.attr.timeout.unwrap_or(0),
            retried_us,
        };
        let src_qp = self.peer.as_ref().map_or(Qpn::new(0), |p| p.qpn);
        Wc { status, qpn: self.qpn, src_qp, detail, ..Wc::default() }
    }
}
