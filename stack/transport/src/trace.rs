//! A `tracing` span for each queue pair, and events in it, with the feature `trace`; without it nothing, not one instruction.
//!
//! In: what happens to a queue pair off the path of packets that are good: states, NAKs, RNR waits, timeouts, going back, drops,
//! failures. Out: events of the target [`TARGET`] inside a span `qp` with the fields `qpn`, `dest_qpn` and `peer`. Spans are
//! never entered: an event names its span, so that a packet costs nothing either way.

use xroce_wire::Qpn;

use crate::io::QpPath;

/// The target of spans and events, for filters.
pub const TARGET: &str = "xroce::qp";

/// The span of one queue pair.
#[derive(Debug, Clone)]
pub(crate) struct QpSpan(#[cfg(feature = "trace")] pub(crate) tracing::Span);

impl QpSpan {
    /// Of a queue pair without a peer.
    pub(crate) fn new(qpn: Qpn) -> QpSpan {
        #[cfg(not(feature = "trace"))]
        let _ = qpn;
        QpSpan(
            #[cfg(feature = "trace")]
            tracing::info_span!(
                target: TARGET,
                parent: None,
                "qp",
                %qpn,
                dest_qpn = tracing::field::Empty,
                peer = tracing::field::Empty
            ),
        )
    }

    /// It has a peer now.
    pub(crate) fn connected(&self, dest_qpn: Qpn, path: &QpPath) {
        #[cfg(feature = "trace")]
        {
            self.0.record("dest_qpn", tracing::field::display(dest_qpn));
            self.0.record("peer", tracing::field::display(path.dst.to_ip()));
        }
        #[cfg(not(feature = "trace"))]
        let _ = (dest_qpn, path);
    }
}

/// An event in the span of a queue pair: `qp_event!(span, LEVEL, fields, "text")`.
macro_rules! qp_event {
    ($span:expr, $level:ident, $($rest:tt)+) => {{
        #[cfg(feature = "trace")]
        tracing::event!(target: $crate::trace::TARGET, parent: &$span.0, tracing::Level::$level, $($rest)+);
    }};
}

pub(crate) use qp_event;
