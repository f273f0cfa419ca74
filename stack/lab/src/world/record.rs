//! Who writes down what happens: what an end was before a step and is after it becomes a step of the ladder.

use xroce_transport::qp::QpSnapshot;
use xroce_transport::{DropReason, EventKind, QpCounters};

use super::World;
use crate::ladder::{Effect, Step, What};

/// An end before a step.
pub(super) struct Before {
    qp: QpSnapshot,
    counters: QpCounters,
    memory: Option<u64>,
}

impl World {
    pub(super) fn before(&self, end: usize) -> Before {
        let node = &self.nodes[end];
        Before { qp: node.snapshot(), counters: self.counters(end), memory: node.memory() }
    }

    fn counters(&self, end: usize) -> QpCounters {
        self.nodes[end].endpoint.qp_counters(self.nodes[end].qpn()).unwrap_or_default()
    }

    /// Writes a step down: what followed from it stands in the completion queue, the events, and what has changed.
    pub(super) fn record(&mut self, end: usize, what: What, before: Before, first: Option<Effect>) {
        let mut effects: Vec<Effect> = first.into_iter().collect();
        let after = self.before(end);
        if after.counters.duplicate_request > before.counters.duplicate_request {
            effects.push(Effect::Duplicate);
        }
        if let (Some(from), Some(to)) = (before.memory, after.memory)
            && from != to
        {
            effects.push(Effect::Memory { from, to });
        }
        let node = &mut self.nodes[end];
        for recv in [false, true] {
            while let Some(wc) = node.cqs[usize::from(recv)].poll_one() {
                node.completed(recv, wc.wr_id.0, wc.status);
                let (status, success) = (wc.status.to_string(), wc.status.is_success());
                effects.push(Effect::Completion { wr_id: wc.wr_id.0, recv, status, success });
            }
        }
        if before.qp.state != after.qp.state {
            effects.push(Effect::State { from: before.qp.state, to: after.qp.state });
        }
        while let Some(event) = node.endpoint.poll_event() {
            effects.push(Effect::Event(event_name(event.kind)));
        }
        let states = [0, 1].map(|end| Some(self.nodes[end].state()));
        let at_ns = self.net.now();
        self.ladder.steps.push(Step { at_ns, end, what, effects, note: None, states });
    }

    /// Which timer ran out, if one did.
    pub(super) fn expired(&self, end: usize, before: &Before) -> Option<String> {
        let after = self.before(end);
        let q = &after.qp.requester;
        let back = format!("back to PSN {}", q.next_psn.value());
        if after.counters.retry_exceeded_err > before.counters.retry_exceeded_err {
            Some("ACK timer expired: no retry left".into())
        } else if after.counters.local_ack_timeout_err > before.counters.local_ack_timeout_err {
            Some(format!("ACK timer expired: {back}"))
        } else if before.qp.requester.rnr_wait.is_some() && q.rnr_wait.is_none() {
            Some(format!("RNR wait is over: {back}"))
        } else {
            None
        }
    }

    /// The packet just made had been sent before.
    pub(super) fn resent(&self, end: usize, before: &Before) -> bool {
        self.counters(end).resent_pkts > before.counters.resent_pkts
    }
}

/// Why a packet was dropped, for people.
pub(super) fn reason_words(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Malformed => "malformed",
        DropReason::Cnp => "congestion notification, not acted upon",
        DropReason::UnknownQp => "no such queue pair",
        DropReason::WrongTransport => "opcode of another transport",
        DropReason::WrongState => "the state of the queue pair takes no such packet",
        DropReason::WrongAddress => "not the peer's address",
        DropReason::WrongPKey => "P_Key does not match",
        DropReason::BadIcrc => "ICRC is wrong",
        DropReason::PsnAhead => "PSN is ahead of ePSN",
        DropReason::DuplicateTooOld => "duplicate, too old to be answered",
        DropReason::UcOutOfSequence => "belongs to no open message",
        DropReason::InvalidRequest => "invalid request",
        DropReason::ReceiverNotReady => "no RECV",
        DropReason::BadLength => "lengths do not agree",
        DropReason::RemoteAccess => "R_Key, range or right",
        DropReason::LocalFault => "the RECV's buffer cannot be written",
        DropReason::StaleResponse => "response to what is acknowledged",
        DropReason::GhostResponse => "response to what was never sent",
        DropReason::ReservedSyndrome => "reserved syndrome",
        DropReason::NakIgnored => "acted upon before",
        DropReason::ResponseGap => "a response before it is missing",
        DropReason::BadResponse => "does not fit the request",
        _ => "for another reason",
    }
}

/// As `ibv_event_type_str` and `enum ibv_event_type` call it.
fn event_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::CommEst => "COMM_EST",
        EventKind::SqDrained => "SQ_DRAINED",
        EventKind::QpFatal => "QP_FATAL",
        EventKind::QpReqErr => "QP_REQ_ERR",
        EventKind::QpAccessErr => "QP_ACCESS_ERR",
        EventKind::CqErr => "CQ_ERR",
        _ => "another event",
    }
}
