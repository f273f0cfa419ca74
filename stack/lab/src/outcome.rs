//! What follows from a step, in words: timers that ran out, reasons of drops, names of events.
//!
//! In: what a queue pair was before and is after, and what the transport says. Out: text for people.

use xroce_transport::qp::QpSnapshot;
use xroce_transport::{DropReason, EventKind, QpCounters};

/// Which timer of a queue pair ran out, if one did, between two moments.
pub(crate) fn expired(before: (&QpSnapshot, &QpCounters), after: (&QpSnapshot, &QpCounters)) -> Option<String> {
    let q = &after.0.requester;
    let back = format!("back to PSN {}", q.next_psn.value());
    if after.1.retry_exceeded_err > before.1.retry_exceeded_err {
        Some("ACK timer expired: no retry left".into())
    } else if after.1.local_ack_timeout_err > before.1.local_ack_timeout_err {
        Some(format!("ACK timer expired: {back}"))
    } else if before.0.requester.rnr_wait.is_some() && q.rnr_wait.is_none() {
        Some(format!("RNR wait is over: {back}"))
    } else {
        None
    }
}

/// Why a packet was dropped, for people.
pub(crate) fn reason_words(reason: DropReason) -> &'static str {
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
pub(crate) fn event_name(kind: EventKind) -> &'static str {
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
