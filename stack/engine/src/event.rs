//! Asynchronous events: what happens to a device without anybody having asked.
//!
//! In: events of the transport, link and address news. Out: [`AsyncEvent`]s in a bounded queue with a descriptor.
#![forbid(unsafe_code)]

use xroce_transport::EventKind;
use xroce_wire::Qpn;

/// What happened; the names are those of `ibv_event_type`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AsyncEventKind {
    /// A completion queue overran (`IBV_EVENT_CQ_ERR`): it is dead, and so are the queue pairs that complete into it.
    CqErr,
    /// A queue pair went to ERR with nothing to complete that would say so (`IBV_EVENT_QP_FATAL`).
    QpFatal,
    /// The peer broke the protocol (`IBV_EVENT_QP_REQ_ERR`).
    QpReqErr,
    /// The peer asked for memory it has no right to (`IBV_EVENT_QP_ACCESS_ERR`).
    QpAccessErr,
    /// The first valid packet arrived at a queue pair in RTR (`IBV_EVENT_COMM_EST`).
    CommEst,
    /// A queue pair in SQD has sent and seen acknowledged what it had begun (`IBV_EVENT_SQ_DRAINED`).
    SqDrained,
    /// Frames pass again (`IBV_EVENT_PORT_ACTIVE`).
    PortActive,
    /// Frames do not pass; queue pairs keep retrying as they would over a lossy wire (`IBV_EVENT_PORT_ERR`).
    PortErr,
    /// The GID table changed (`IBV_EVENT_GID_CHANGE`). Queue pairs stay tied to the address they were given.
    GidChange,
    /// The device is gone for good (`IBV_EVENT_DEVICE_FATAL`).
    DeviceFatal,
}

/// One event and what it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: AsyncEventKind,
    /// The queue pair, for the kinds that name one.
    pub qpn: Option<Qpn>,
    /// The completion queue, for [`AsyncEventKind::CqErr`].
    pub cq: Option<u64>,
}

impl AsyncEvent {
    /// An event of the port or the whole device.
    pub fn of_port(kind: AsyncEventKind) -> AsyncEvent {
        AsyncEvent { kind, qpn: None, cq: None }
    }
}

impl From<xroce_transport::Event> for AsyncEvent {
    fn from(event: xroce_transport::Event) -> AsyncEvent {
        let kind = match event.kind {
            EventKind::CommEst => AsyncEventKind::CommEst,
            EventKind::SqDrained => AsyncEventKind::SqDrained,
            EventKind::QpFatal => AsyncEventKind::QpFatal,
            EventKind::QpReqErr => AsyncEventKind::QpReqErr,
            EventKind::QpAccessErr => AsyncEventKind::QpAccessErr,
            EventKind::CqErr => AsyncEventKind::CqErr,
            // What this version has no name for is at least not lost.
            _ => AsyncEventKind::QpFatal,
        };
        AsyncEvent { kind, qpn: event.qpn, cq: event.cq }
    }
}
