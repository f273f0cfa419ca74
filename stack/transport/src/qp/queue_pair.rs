//! One queue pair: its parts, and how packets, timers and doorbells reach them.

use std::sync::Arc;

use xroce_wire::{Operation, Packet, Psn, Qpn, RnrTimer, Syndrome};

use crate::context::Context;
use crate::counters::QpCounters;
use crate::cq::Cq;
use crate::drop::DropReason;
use crate::event::EventKind;
use crate::failure::QpFault;
use crate::instant::Instant;
use crate::io::{QpPath, Transmit, TxSink};
use crate::memory::{Access, Pd};
use crate::mutation::{self, Mutation};
use crate::qp::completer::{self, Completer, Completing, Verdict};
use crate::qp::inbound::Receiving;
use crate::qp::peer::Peer;
use crate::qp::requester::{Requester, Sending, Step};
use crate::qp::responder::{self, Handled, Responder};
use crate::qp::responses::{Answering, Reply};
use crate::qp::state::{QpAttr, QpState, QpType, SharedState};
use crate::qp::uc::UcReceiver;
use crate::qp::unacked::Unacked;
use crate::trace::{QpSpan, qp_event};
use crate::wq::{RqConsumer, RqProducer, SqConsumer, SqProducer, recv_queue, send_queue};
use crate::wr::QpCap;

/// What a queue pair is made from.
#[derive(Clone)]
pub struct QpInit {
    /// RC or UC.
    pub kind: QpType,
    /// Its protection domain: only memory of this domain can be reached, from either side.
    pub pd: Pd,
    /// Where send completions go.
    pub send_cq: Arc<Cq>,
    /// Where RECV completions go; may be the same.
    pub recv_cq: Arc<Cq>,
    /// Depths and sizes of its queues.
    pub cap: QpCap,
    /// Every send request makes a completion, whatever its flags.
    pub sq_sig_all: bool,
}

/// What the application's side holds of a queue pair.
pub struct QpHandle {
    /// Its number.
    pub qpn: Qpn,
    /// Where send requests are posted. One thread at a time.
    pub sq: SqProducer,
    /// Where receive requests are posted. One thread at a time.
    pub rq: RqProducer,
    /// Its state, for the checks of a post.
    pub state: Arc<SharedState>,
    /// What was granted: at least what was asked for.
    pub cap: QpCap,
}

/// What `query_qp` tells.
#[derive(Clone, Copy, Debug)]
pub struct QpInfo {
    /// Its number.
    pub qpn: Qpn,
    /// RC or UC.
    pub kind: QpType,
    /// Every attribute that has been set; `qp_state`, `sq_psn` and `rq_psn` as they are now.
    pub attr: QpAttr,
    /// What was granted.
    pub cap: QpCap,
    /// The resolved path, once in RTR.
    pub path: Option<QpPath>,
    /// What it has done.
    pub counters: QpCounters,
}

/// What a poll for a packet did.
#[derive(Debug)]
pub(crate) enum Polled {
    Sent(Transmit),
    Idle,
    Blocked,
}

/// The receiving half, by transport service.
#[derive(Debug)]
pub(crate) enum Inward {
    Rc(Responder),
    Uc(UcReceiver),
}

pub(crate) struct Qp {
    pub(crate) qpn: Qpn,
    pub(crate) kind: QpType,
    pub(crate) pd: Pd,
    pub(crate) cap: QpCap,
    pub(super) sig_all: bool,
    pub(super) state: QpState,
    pub(super) shared: Arc<SharedState>,
    pub(super) attr: QpAttr,
    pub(super) access: Access,
    pub(super) peer: Option<Peer>,
    pub(super) send_cq: Arc<Cq>,
    pub(super) recv_cq: Arc<Cq>,
    pub(super) sq: SqConsumer,
    pub(super) rq: RqConsumer,
    pub(super) unacked: Unacked,
    pub(super) requester: Requester,
    pub(super) completer: Completer,
    pub(super) inward: Inward,
    pub(crate) counters: QpCounters,
    pub(super) span: QpSpan,
    /// Why it failed, if it did since RESET.
    pub(crate) fault: Option<QpFault>,
    /// COMM_EST was raised: once in RTR.
    pub(super) established: bool,
    /// SQD: SQ_DRAINED is still to be raised.
    pub(super) notify_drained: bool,
    /// Standing in the endpoint's list of those with requests, or responses, to send.
    pub(crate) listed: Listed,
    /// The deadline that the endpoint's wheel knows.
    pub(crate) armed: Option<Instant>,
}

/// Until INIT to RTR sets another: what verbs programs use most, 0.64 ms.
const DEFAULT_RNR_TIMER: RnrTimer = match RnrTimer::new(12) {
    Some(timer) => timer,
    None => unreachable!(),
};

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Listed {
    pub(crate) requests: bool,
    pub(crate) responses: bool,
}

impl Qp {
    /// In RESET, with the rings that the application posts to.
    pub(crate) fn new(qpn: Qpn, init: QpInit) -> (Qp, QpHandle) {
        let (sq_producer, sq) = send_queue(init.kind, &init.cap);
        let (rq_producer, rq) = recv_queue(&init.cap);
        let shared = Arc::new(SharedState::new(QpState::Reset));
        let qp = Qp {
            qpn,
            kind: init.kind,
            pd: init.pd,
            cap: init.cap,
            sig_all: init.sq_sig_all,
            state: QpState::Reset,
            shared: Arc::clone(&shared),
            attr: QpAttr::default(),
            access: Access::empty(),
            peer: None,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            sq,
            rq,
            unacked: Unacked::new(init.cap.max_send_wr),
            requester: Requester::new(),
            completer: Completer::default(),
            inward: match init.kind {
                QpType::Rc => Inward::Rc(Responder::new(DEFAULT_RNR_TIMER)),
                QpType::Uc => Inward::Uc(UcReceiver::new()),
            },
            counters: QpCounters::default(),
            span: QpSpan::new(qpn),
            fault: None,
            established: false,
            notify_drained: false,
            listed: Listed::default(),
            armed: None,
        };
        let handle = QpHandle { qpn, sq: sq_producer, rq: rq_producer, state: shared, cap: init.cap };
        (qp, handle)
    }

    pub(crate) fn cqs(&self) -> [&Arc<Cq>; 2] {
        [&self.send_cq, &self.recv_cq]
    }

    pub(crate) fn info(&self) -> QpInfo {
        let mut attr = self.attr;
        attr.qp_state = Some(self.state);
        if self.state != QpState::Reset && self.peer.is_some() {
            attr.sq_psn = attr.sq_psn.map(|_| self.unacked.end());
            attr.rq_psn = Some(match &self.inward {
                Inward::Rc(responder) => responder.epsn(),
                Inward::Uc(receiver) => receiver.epsn(),
            });
        }
        QpInfo {
            qpn: self.qpn,
            kind: self.kind,
            attr,
            cap: self.cap,
            path: self.peer.as_ref().map(|p| p.path),
            counters: self.counters,
        }
    }

    /// The next time at which [`handle_timeout`](Self::handle_timeout) has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match (self.completer.ack_deadline(), self.requester.not_before()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// There may be a request packet to send; asking [`poll_request`](Self::poll_request) tells.
    pub(crate) fn has_requests(&self) -> bool {
        match self.state {
            QpState::Rts | QpState::Sqd => {
                self.requester.in_message(&self.unacked) || self.requester.is_staged() || self.sq.has_more()
            }
            _ => false,
        }
    }

    /// There is a response packet to send.
    pub(crate) fn has_responses(&self) -> bool {
        matches!(&self.inward, Inward::Rc(responder) if !responder.responses.is_empty())
    }

    /// The one response to send is an ACK: no NAK, and nothing that the peer needs to go on.
    pub(crate) fn owes_ack_only(&self) -> bool {
        matches!(&self.inward, Inward::Rc(responder) if responder.responses.is_one_ack())
    }

    /// An ACK or NAK is next to leave: of a message, or of a failure, that the application may know of.
    pub(crate) fn owes_acknowledge(&self) -> bool {
        matches!(&self.inward, Inward::Rc(responder) if responder.responses.owes_acknowledge())
    }

    /// A packet for this queue pair whose headers are well-formed. Checks in the order that the specification has: none
    /// of those before the ICRC changes anything or answers.
    // rule: rx.transport, rx.state, rx.address, rx.pkey, rx.icrc, qp.init, qp.rtr, qp.comm-est
    pub(crate) fn receive(&mut self, packet: &Packet<'_>, ctx: &mut Context<'_>) -> Result<(), DropReason> {
        let opcode = packet.opcode();
        let operation = match (self.kind, opcode) {
            (QpType::Rc, xroce_wire::Opcode::Rc(operation)) | (QpType::Uc, xroce_wire::Opcode::Uc(operation)) => {
                operation
            }
            _ => return Err(DropReason::WrongTransport),
        };
        let takes = match self.state {
            QpState::Rts | QpState::Sqd => true,
            QpState::Rtr | QpState::Sqe => operation.is_request(),
            QpState::Reset | QpState::Init | QpState::Err => false,
        };
        if !takes {
            return Err(DropReason::WrongState);
        }
        let peer = self.peer.as_ref().ok_or(DropReason::WrongState)?;
        if !packet.is_between(&peer.path.dst, &peer.path.src) {
            return Err(DropReason::WrongAddress);
        }
        if !packet.pkey().matches(peer.pkey) {
            return Err(DropReason::WrongPKey);
        }
        if !ctx.icrcs.icrc_ok(packet) && !mutation::is(Mutation::IcrcNotChecked) {
            return Err(DropReason::BadIcrc);
        }
        self.counters.rcvd_pkts += 1;
        self.counters.rcvd_bytes += packet.ip_len() as u64;
        if packet.is_ce() {
            self.counters.np_ecn_marked_roce_packets += 1;
        }
        if self.state == QpState::Rtr && !self.established {
            self.established = true;
            ctx.outbox.event(EventKind::CommEst, self.qpn);
        }
        if operation.is_request() {
            self.receive_request(operation, packet, ctx)
        } else {
            self.receive_response(operation, packet, ctx)
        }
    }

    /// A packet changed nothing.
    #[cold]
    pub(crate) fn tell_drop(&self, reason: DropReason, packet: &Packet<'_>) {
        let _ = (reason, packet);
        qp_event!(self.span, DEBUG, reason = reason.name(), psn = %packet.psn(), opcode = %packet.opcode(), "packet dropped");
    }

    // rule: rc.resp.fatal, rc.resp.fatal.event
    fn receive_request(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let peer = self.peer.as_ref().ok_or(DropReason::WrongState)?;
        let mut r = Receiving {
            qpn: self.qpn,
            peer_qpn: peer.qpn,
            pd: self.pd,
            mtu: peer.mtu,
            access: self.access,
            recv_cq: &self.recv_cq,
            rq: &mut self.rq,
            counters: &mut self.counters,
        };
        let handled = match &mut self.inward {
            Inward::Rc(responder) => responder.handle_request(operation, packet, &mut r, ctx),
            Inward::Uc(receiver) => receiver.handle_request(operation, packet, &mut r, ctx),
        };
        match handled {
            Handled::Done => Ok(()),
            Handled::Dropped(reason) => Err(reason),
            Handled::Fatal { reason, recv, event } => {
                self.fault = Some(QpFault::Refused { psn: packet.psn(), reason });
                qp_event!(self.span, INFO, psn = %packet.psn(), reason = reason.name(), "request refused");
                match recv {
                    Some(status) => self.fail_recv(status, packet.psn(), ctx),
                    None => ctx.outbox.event(event, self.qpn),
                }
                self.enter_error(ctx, true);
                Err(reason)
            }
        }
    }

    fn receive_response(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let (completer, mut p) = self.completing().ok_or(DropReason::WrongState)?;
        let verdict = match operation {
            Operation::Acknowledge => match packet.aeth() {
                Some(aeth) => completer.handle_ack(packet.psn(), aeth, &mut p, ctx),
                None => Verdict::Dropped(DropReason::Malformed),
            },
            Operation::AtomicAcknowledge => completer.handle_atomic_response(packet, &mut p, ctx),
            _ => completer.handle_read_response(packet, &mut p, ctx),
        };
        if cfg!(feature = "trace") && verdict != Verdict::Done {
            self.tell_nak(packet);
        }
        let outcome = match &verdict {
            Verdict::Dropped(reason) => Err(*reason),
            Verdict::GoBack { .. } if operation != Operation::Acknowledge => Err(DropReason::ResponseGap),
            Verdict::Fail { .. } if operation != Operation::Acknowledge => Err(DropReason::BadResponse),
            _ => Ok(()),
        };
        self.obey(verdict, ctx);
        outcome
    }

    /// What the peer's answer says, if it is no ACK.
    fn tell_nak(&self, packet: &Packet<'_>) {
        if let Some(aeth) = packet.aeth().filter(|aeth| !matches!(aeth.syndrome, Syndrome::Ack { .. })) {
            let _ = aeth;
            qp_event!(self.span, DEBUG, psn = %packet.psn(), syndrome = %aeth.syndrome, "NAK received");
        }
    }

    /// The completer, and the parts that it works on. `None` before RTR.
    fn completing(&mut self) -> Option<(&mut Completer, Completing<'_>)> {
        let peer = self.peer.as_ref()?;
        let parts = Completing {
            qpn: self.qpn,
            pd: self.pd,
            mtu: peer.mtu,
            peer_qpn: peer.qpn,
            send_cq: &self.send_cq,
            sig_all: self.sig_all,
            sq: &mut self.sq,
            unacked: &mut self.unacked,
            requester: &mut self.requester,
            counters: &mut self.counters,
        };
        Some((&mut self.completer, parts))
    }

    fn obey(&mut self, verdict: Verdict, ctx: &mut Context<'_>) {
        match verdict {
            Verdict::Done | Verdict::Dropped(_) => self.check_drained(ctx),
            Verdict::GoBack { psn, not_before } => {
                self.counters.completer_retry_err += u64::from(not_before.is_none());
                self.tell_go_back(psn, not_before, ctx.now);
                self.requester.go_back(&self.unacked, psn, not_before);
            }
            Verdict::Fail { status, psn, syndrome } => self.fail_oldest(status, psn, syndrome, ctx),
        }
    }

    /// Packets are sent again, or will be.
    fn tell_go_back(&self, psn: Psn, not_before: Option<Instant>, now: Instant) {
        let _ = (psn, now);
        if let (true, Some(at)) = (cfg!(feature = "trace"), not_before) {
            let _ = at;
            qp_event!(self.span, DEBUG, %psn, wait_ns = at.since_ns(now), "RNR wait");
        } else {
            qp_event!(self.span, DEBUG, %psn, retries_left = self.completer.retries_left().0, "rewind");
        }
    }

    /// A deadline has passed.
    pub(crate) fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        self.requester.wait_ended(ctx.now);
        let now = ctx.now;
        let Some((completer, mut p)) = self.completing() else { return };
        let verdict = completer.handle_timeout(now, &mut p);
        if verdict != Verdict::Done
            && let Some(peer) = &self.peer
        {
            ctx.outbox.unanswered(peer.path.path);
            qp_event!(self.span, DEBUG, psn = %self.unacked.una(), "ACK timeout");
        }
        self.obey(verdict, ctx);
    }

    /// Work was posted. Only the error states have to act at once.
    // rule: qp.err, qp.sqe
    pub(crate) fn doorbell(&mut self, ctx: &mut Context<'_>) {
        match self.state {
            QpState::Err if mutation::is(Mutation::LatePostsNotFlushed) => {}
            QpState::Err => {
                self.flush_sends(ctx);
                self.flush_recvs(ctx);
            }
            QpState::Sqe => self.flush_sends(ctx),
            _ => {}
        }
    }

    /// Writes the next request packet.
    // rule: uc.no-answer
    pub(crate) fn poll_request<S: TxSink>(&mut self, ctx: &mut Context<'_>, sink: &mut S) -> Polled {
        let (Some(peer), QpState::Rts | QpState::Sqd) = (&self.peer, self.state) else { return Polled::Idle };
        let sending = Sending {
            qpn: self.qpn,
            kind: self.kind,
            pd: self.pd,
            peer,
            max_rd_atomic: u32::from(self.attr.max_rd_atomic.unwrap_or(0)),
            may_start: self.state == QpState::Rts,
        };
        match self.requester.poll(&sending, &mut self.sq, &mut self.unacked, ctx, sink) {
            Step::Sent { transmit, ended, again } => {
                self.counters.sent_pkts += 1;
                self.counters.sent_bytes += transmit.len as u64;
                self.counters.resent_pkts += u64::from(again);
                match self.kind {
                    QpType::Rc => self.completer.sent(ctx.now),
                    QpType::Uc => self.sent_unreliably(ended, ctx),
                }
                Polled::Sent(transmit)
            }
            Step::Idle => Polled::Idle,
            Step::Blocked => Polled::Blocked,
            Step::Fault(status) => {
                let psn = self.unacked.una();
                self.fail_oldest(status, psn, 0, ctx);
                Polled::Idle
            }
        }
    }

    /// UC: a packet counts as acknowledged, and a request as done, once it was handed to the port (IBTA, UC requester).
    // rule: uc.done
    fn sent_unreliably(&mut self, ended: bool, ctx: &mut Context<'_>) {
        if !ended {
            return;
        }
        if let Some(entry) = self.unacked.pop()
            && let Some((_, mut p)) = self.completing()
        {
            completer::success(&mut p, ctx, entry.wqe);
        }
        self.check_drained(ctx);
    }

    /// Writes the next response packet. Goes on in ERR until the NAK that ended the connection has left.
    // rule: rc.resp.read.vanishes
    pub(crate) fn poll_response<S: TxSink>(&mut self, ctx: &mut Context<'_>, sink: &mut S) -> Polled {
        let (Inward::Rc(responder), Some(peer)) = (&mut self.inward, &self.peer) else { return Polled::Idle };
        let answering = Answering { peer, pd: self.pd, access: self.access, done: responder::done(&self.rq, ctx) };
        match responder.responses.poll(&answering, ctx, sink) {
            Reply::Sent(transmit, syndrome) => {
                self.counters.sent_pkts += 1;
                self.counters.sent_bytes += transmit.len as u64;
                self.counters.acks_sent += u64::from(matches!(syndrome, Syndrome::Ack { .. }));
                if cfg!(feature = "trace") && matches!(syndrome, Syndrome::Nak(_) | Syndrome::RnrNak(_)) {
                    qp_event!(self.span, DEBUG, %syndrome, "NAK sent");
                }
                Polled::Sent(transmit)
            }
            Reply::Idle => Polled::Idle,
            Reply::Blocked => Polled::Blocked,
            Reply::ReadFault => {
                ctx.outbox.event(EventKind::QpAccessErr, self.qpn);
                self.enter_error(ctx, true);
                self.poll_response(ctx, sink)
            }
        }
    }

    /// SQD: all that was begun is acknowledged.
    // rule: rc.req.sqd, qp.sqd
    pub(super) fn check_drained(&mut self, ctx: &mut Context<'_>) {
        if self.notify_drained && self.state == QpState::Sqd && self.unacked.is_empty() {
            self.notify_drained = false;
            ctx.outbox.event(EventKind::SqDrained, self.qpn);
        }
    }

    /// The status of a completion that failed for want of a place in its CQ is lost; the queue pair must not go on. `false` if
    /// it had stopped before.
    pub(crate) fn overrun(&mut self, ctx: &mut Context<'_>) -> bool {
        let runs = !matches!(self.state, QpState::Reset | QpState::Err);
        if runs {
            ctx.outbox.event(EventKind::QpFatal, self.qpn);
            self.enter_error(ctx, false);
        }
        runs
    }
}
