//! What a device in virtual time does and has done to it, moment by moment, for those who look on.
//!
//! In: each deed as it happens, from [`LocalTarget::watched`](crate::LocalTarget::watched). Out: the list of them, each with what
//! the queue pair is in the middle of after it. Times are nanoseconds since the script began.

use xroce_transport::qp::{QpHandle, QpSnapshot};
use xroce_transport::wc::Wc;
use xroce_transport::{DropReason, Endpoint, Instant, QpCounters};

use crate::model::{CqSide, Step};
use crate::names::EventName;

/// One deed, and the queue pair after it.
#[derive(Clone, Debug)]
pub struct Moment {
    /// When, in nanoseconds since the script began.
    pub at_ns: u64,
    /// What.
    pub deed: Deed,
    /// The queue pair, with times that count from the same start.
    pub qp: QpSnapshot,
    /// What it has counted.
    pub counters: QpCounters,
}

/// What can happen.
#[derive(Clone, Debug)]
pub enum Deed {
    /// The application made the call of this step, or the script looked at something; with the words of a refusal.
    Step(Box<Step>, Option<String>),
    /// A packet, from the IP header on, reached the device, and was dropped if a reason says so.
    Received(Vec<u8>, Option<DropReason>),
    /// The device sent a packet, given from the IP header on.
    Sent(Vec<u8>),
    /// The device looked at its timers.
    Timers,
    /// A completion is visible.
    Completed(CqSide, Wc),
    /// An event is.
    Event(EventName),
}

/// Writes the moments down.
#[derive(Default)]
pub(crate) struct History {
    moments: Vec<Moment>,
    /// The device refused the call that is being made.
    pub(crate) refused: Option<String>,
}

impl History {
    pub(crate) fn moments(self) -> Vec<Moment> {
        self.moments
    }

    /// `start` is when the script began.
    pub(crate) fn record(
        &mut self,
        endpoint: &Endpoint,
        handle: &QpHandle,
        (start, now): (Instant, Instant),
        deed: Deed,
    ) {
        let Some(mut qp) = endpoint.snapshot_qp(handle.qpn) else { return };
        for time in [&mut qp.requester.ack_deadline, &mut qp.requester.rnr_wait] {
            *time = time.map(|at| Instant(at.since_ns(start)));
        }
        let counters = endpoint.qp_counters(handle.qpn).unwrap_or_default();
        self.moments.push(Moment { at_ns: now.since_ns(start), deed, qp, counters });
    }
}
