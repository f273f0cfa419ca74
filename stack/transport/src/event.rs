//! Asynchronous events (`ibv_get_async_event`).

use xroce_wire::Qpn;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// The first packet arrived in RTR (`IBV_EVENT_COMM_EST`).
    CommEst,
    /// SQD: all begun messages are acknowledged (`IBV_EVENT_SQ_DRAINED`).
    SqDrained,
    /// A queue pair failed for a reason that no completion tells (`IBV_EVENT_QP_FATAL`).
    QpFatal,
    /// A peer sent an invalid request (`IBV_EVENT_QP_REQ_ERR`).
    QpReqErr,
    /// A peer's key, range or right was refused (`IBV_EVENT_QP_ACCESS_ERR`).
    QpAccessErr,
    /// A completion queue overran (`IBV_EVENT_CQ_ERR`).
    CqErr,
}

/// An event and what it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The queue pair, for events of one.
    pub qpn: Option<Qpn>,
    /// The id of the completion queue, for [`EventKind::CqErr`].
    pub cq: Option<u64>,
}
