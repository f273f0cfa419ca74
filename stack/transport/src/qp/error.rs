//! How a queue pair fails: one request with a status of its own, everything behind it flushed in order
//! (IBTA, ERR state).

use std::sync::Arc;

use xroce_wire::Psn;

use crate::context::Context;
use crate::cq::Cq;
use crate::mutation::{self, Mutation};
use crate::qp::completer::failure;
use crate::qp::queue_pair::{Inward, Qp};
use crate::qp::state::{QpState, QpType};
use crate::wc::{Wc, WcDetail, WcOpcode, WcStatus};

impl Qp {
    /// The oldest send request ends with `status`. RC goes to ERR; on UC only the send queue does (SQE).
    // rule: rc.req.flush, uc.sqe
    pub(super) fn fail_oldest(&mut self, status: WcStatus, psn: Psn, syndrome: u8, ctx: &mut Context<'_>) {
        let wqe = match self.unacked.pop() {
            Some(entry) => Some(entry.wqe),
            None => self.requester.unstage(),
        };
        if let Some(wqe) = wqe {
            let detail = self.detail(psn, syndrome);
            failure((&mut self.sq, &self.send_cq), ctx, wqe, (self.qpn, status), detail);
        }
        match self.kind {
            QpType::Rc => self.enter_error(ctx, false),
            QpType::Uc => {
                self.set_state(QpState::Sqe);
                if !mutation::is(Mutation::SqeNotFlushed) {
                    self.flush_sends(ctx);
                }
            }
        }
    }

    /// The RECV in use ends with `status`.
    pub(super) fn fail_recv(&mut self, status: WcStatus, psn: Psn, ctx: &mut Context<'_>) {
        let detail = self.detail(psn, 0);
        self.end_recv(status, detail, ctx);
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
        self.state = state;
        self.shared.store(state);
    }

    /// Every send request that is on the wire, staged or posted ends with a flush error, oldest first.
    // rule: rc.req.flush, qp.err, qp.sqe
    pub(super) fn flush_sends(&mut self, ctx: &mut Context<'_>) {
        self.completer.reset();
        let flushed = (self.qpn, Qp::FLUSHED);
        if mutation::is(Mutation::FlushOutOfOrder)
            && let Some(wqe) = self.requester.unstage()
        {
            failure((&mut self.sq, &self.send_cq), ctx, wqe, flushed, WcDetail::default());
        }
        while let Some(entry) = self.unacked.pop() {
            failure((&mut self.sq, &self.send_cq), ctx, entry.wqe, flushed, WcDetail::default());
        }
        if let Some(wqe) = self.requester.unstage() {
            failure((&mut self.sq, &self.send_cq), ctx, wqe, flushed, WcDetail::default());
        }
        let end = self.unacked.end();
        self.requester.reset(end);
        while let Some(wqe) = self.sq.take() {
            failure((&mut self.sq, &self.send_cq), ctx, wqe, flushed, WcDetail::default());
        }
    }

    /// Every RECV ends with a flush error, oldest first.
    pub(super) fn flush_recvs(&mut self, ctx: &mut Context<'_>) {
        while self.end_recv(Qp::FLUSHED, WcDetail::default(), ctx) {}
    }

    /// The RECV at the front ends with an error. `false` if there was none.
    fn end_recv(&mut self, status: WcStatus, detail: WcDetail, ctx: &mut Context<'_>) -> bool {
        let Some(recv) = self.rq.front() else { return false };
        let wc = Wc { wr_id: recv.wr_id, status, opcode: WcOpcode::Recv, qpn: self.qpn, detail, ..Wc::default() };
        self.rq.pop();
        let cq: &Arc<Cq> = &self.recv_cq;
        ctx.complete(cq, wc, true);
        true
    }

    fn detail(&self, psn: Psn, syndrome: u8) -> WcDetail {
        let peer = self.peer.map(|p| p.path.dst);
        WcDetail { peer, psn, syndrome, retries: self.completer.retries_used() }
    }
}
