//! What a queue pair is in the middle of, for those who look on.
//!
//! In: a queue pair, which does not change. Out: its sending and receiving side as values: PSNs, windows, timers, and the
//! requests that are not done. Made on demand by a control call; the data path knows nothing of it.

use xroce_wire::{Msn, Psn, Qpn};

use crate::failure::QpFault;
use crate::instant::Instant;
use crate::qp::completer::wc_opcode;
use crate::qp::queue_pair::{Inward, Qp};
use crate::qp::state::{QpState, QpType};
use crate::qp::unacked::psns;
use crate::wc::WcOpcode;
use crate::wr::WrId;

/// A queue pair at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpSnapshot {
    /// Its number.
    pub qpn: Qpn,
    /// RC or UC.
    pub kind: QpType,
    /// Its state.
    pub state: QpState,
    /// The side that sends requests.
    pub requester: RequesterSnapshot,
    /// The side that receives them.
    pub responder: ResponderSnapshot,
    /// How many requests have started and are not done.
    pub outstanding: u32,
    /// These requests, oldest first; empty for a mere glance.
    pub started: Vec<StartedRequest>,
    /// Send requests that are posted and have not started.
    pub waiting: u32,
    /// RECVs that are posted, the one of an open message included.
    pub recvs: u32,
    /// Why it failed, if it did since RESET.
    pub fault: Option<QpFault>,
}

/// The sending side. Before RTS, and for UC where it says so, there is nothing to tell and values are as after RESET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterSnapshot {
    /// PSN of the next packet to send. It lies before `sent_end` when packets are being sent again.
    pub next_psn: Psn,
    /// Oldest PSN that nothing has acknowledged; inside a READ, that of the next response packet.
    pub oldest_unacked: Psn,
    /// One behind the highest PSN that was ever sent, those of outstanding READ responses included.
    pub sent_end: Psn,
    /// Request packets sent and not acknowledged (a READ counts one), counted up to `next_psn`.
    pub in_flight: u32,
    /// How many there may be. UC has no such limit.
    pub window: u32,
    /// READs and atomics that wait for their response.
    pub rd_atomics: u32,
    /// How many there may be: `max_rd_atomic`.
    pub max_rd_atomic: u32,
    /// Requests started since RTS, modulo 2^24 (IBTA 9.7.7.2: SSN).
    pub ssn: u32,
    /// The SSN up to which requests that take a RECV may go, one probe beyond it allowed (IBTA 9.7.7.2: limit LSN); `None` as
    /// long as the peer gives no credits.
    pub credit_limit: Option<Msn>,
    /// When the ACK timer expires, if it runs.
    pub ack_deadline: Option<Instant>,
    /// When the wait that an RNR NAK asked for ends, if there is one.
    pub rnr_wait: Option<Instant>,
    /// Resends that are left until the request fails, of `retry_cnt`.
    pub retries_left: u8,
    /// RNR waits that are left, of `rnr_retry`; 7 stays 7 for ever.
    pub rnr_retries_left: u8,
}

/// The receiving side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderSnapshot {
    /// The PSN that the next new request has.
    pub epsn: Psn,
    /// Messages done (IBTA 9.7.7.1); `None` for UC, which does not count them.
    pub msn: Option<Msn>,
    /// Whether a NAK was sent and the expected PSN has not come since.
    pub nak: NakState,
    /// Bytes of the message that is coming in, if one is.
    pub open_message: Option<u64>,
    /// Responses that wait to be sent.
    pub responses: u32,
    /// READs and atomics whose answer can be given again.
    pub kept: u32,
}

/// After a NAK the responder is silent until the expected PSN comes (IBTA 9.7.4.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NakState {
    /// None is pending.
    None,
    /// It was a sequence NAK.
    Sequence,
    /// It was an RNR NAK.
    Rnr,
}

/// A send request that has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedRequest {
    /// The application's number.
    pub wr_id: WrId,
    /// What it does.
    pub opcode: WcOpcode,
    /// Bytes of the message.
    pub len: u32,
    /// PSN of its first packet.
    pub first_psn: Psn,
    /// PSNs that it takes: its packets, or the packets of its READ response.
    pub psns: u32,
    /// How many of them were sent at least once (for a READ: asked for).
    pub sent: u32,
    /// How many of them are acknowledged (for a READ: have come).
    pub acked: u32,
}

impl Qp {
    /// Everything but the requests.
    pub(crate) fn snapshot(&self, window: u32) -> QpSnapshot {
        let (msn, responses, kept) = match &self.inward {
            Inward::Rc(r) => (Some(r.msn()), r.responses.waiting(), r.responses.kept()),
            Inward::Uc(_) => (None, 0, 0),
        };
        let (epsn, nak, inbound) = match &self.inward {
            Inward::Rc(r) => (r.epsn(), r.nak_state(), &r.inbound),
            Inward::Uc(r) => (r.epsn(), NakState::None, &r.inbound),
        };
        let sending = self.requester.sending(&self.unacked);
        let (retries_left, rnr_retries_left) = self.completer.retries_left();
        QpSnapshot {
            qpn: self.qpn,
            kind: self.kind,
            state: self.state,
            requester: RequesterSnapshot {
                next_psn: sending.next,
                oldest_unacked: self.unacked.una(),
                sent_end: sending.sent_end,
                in_flight: sending.in_flight,
                window,
                rd_atomics: self.unacked.rd_atomics(),
                max_rd_atomic: self.attr.max_rd_atomic.unwrap_or(0).into(),
                ssn: self.requester.credits.ssn(),
                credit_limit: self.requester.credits.limit(),
                ack_deadline: self.completer.ack_deadline(),
                rnr_wait: self.requester.not_before(),
                retries_left,
                rnr_retries_left,
            },
            responder: ResponderSnapshot { epsn, msn, nak, open_message: inbound.open_bytes(), responses, kept },
            outstanding: self.unacked.len(),
            started: Vec::new(),
            waiting: self.sq.len().saturating_sub(self.unacked.len()),
            recvs: self.rq.len(),
            fault: self.fault,
        }
    }

    /// The requests that have started and are not done.
    pub(crate) fn started(&self) -> Vec<StartedRequest> {
        let sent_end = self.requester.sending(&self.unacked).sent_end;
        let within =
            |first: Psn, to: Psn, all: u32| if to.distance_from(first) < 0 { 0 } else { psns(first, to).min(all) };
        self.unacked
            .iter()
            .map(|entry| {
                let wqe = self.sq.wqe(entry.wqe);
                StartedRequest {
                    wr_id: wqe.wr_id(),
                    opcode: wc_opcode(&wqe.op()),
                    len: entry.len,
                    first_psn: entry.first,
                    psns: entry.psns,
                    sent: within(entry.first, sent_end, entry.psns),
                    acked: within(entry.first, self.unacked.una(), entry.psns),
                }
            })
            .collect()
    }
}
