//! One tracing event per frame.
//!
//! What enters: frames in both directions. What leaves: the same frames, and for each an event at level TRACE with
//! target [`TARGET`]: port, direction, length, virtual time where there is one, and a line that the caller's function
//! writes. While nobody listens to the target, a burst costs one look at the filter.

#![forbid(unsafe_code)]

use std::fmt;

use tracing::Level;

use crate::staging::Staging;
use crate::{Direction, Layer, Port, RxFrame, TxClass, TxFrame};

/// The events' target, for filters.
pub const TARGET: &str = "xroce_port::frame";

/// Writes one line about a frame, without a newline. It must not fail on frames that are short or malformed.
pub type Summary = fn(&RxFrame<'_>, &mut fmt::Formatter<'_>) -> fmt::Result;

/// A port that tells of every frame.
#[derive(Debug)]
pub struct Trace<P> {
    port: P,
    name: String,
    summary: Summary,
    staging: Staging,
}

impl<P: Port> Trace<P> {
    /// Wraps `port`. `name` stands in every event; `summary` writes its line: [`ethernet_summary`] for one.
    pub fn new(port: P, name: impl Into<String>, summary: Summary) -> Trace<P> {
        let staging = Staging::for_frames_up_to(port.capabilities().max_frame);
        Trace { port, name: name.into(), summary, staging }
    }

    /// The port below.
    pub fn get_ref(&self) -> &P {
        &self.port
    }

    /// The port below, again by itself.
    pub fn into_inner(self) -> P {
        self.port
    }

    fn emit(&self, direction: Direction, frame: &RxFrame<'_>) {
        tracing::event!(
            target: TARGET,
            Level::TRACE,
            port = self.name,
            dir = direction.as_str(),
            len = frame.len(),
            at_ns = self.port.now_hint(),
            "{}",
            Line { frame, summary: self.summary }
        );
    }
}

fn is_heard() -> bool {
    tracing::enabled!(target: TARGET, Level::TRACE)
}

struct Line<'a> {
    frame: &'a RxFrame<'a>,
    summary: Summary,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.summary)(self.frame, f)
    }
}

/// Addresses and ethertype of an Ethernet frame: `02:00:00:00:00:01 > 02:00:00:00:00:02 type 0x0800`.
///
/// # Errors
/// Only those of the formatter.
pub fn ethernet_summary(frame: &RxFrame<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some([d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1]) = frame.head.first_chunk::<14>() else {
        return write!(f, "{} bytes: no Ethernet header", frame.len());
    };
    write!(f, "{s0:02x}:{s1:02x}:{s2:02x}:{s3:02x}:{s4:02x}:{s5:02x} > ")?;
    write!(f, "{d0:02x}:{d1:02x}:{d2:02x}:{d3:02x}:{d4:02x}:{d5:02x} type 0x{t0:02x}{t1:02x}")
}

impl<P: Port> Layer for Trace<P> {
    type Below = P;

    fn below(&self) -> &P {
        &self.port
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.port
    }

    fn rx_burst(&mut self, max: usize) -> usize {
        let count = self.port.rx_burst(max);
        if count > 0 && is_heard() {
            for i in 0..count {
                self.emit(Direction::Rx, &self.port.rx_frame(i));
            }
        }
        count
    }

    fn tx_reserve(&mut self, len: usize, class: TxClass) -> Option<TxFrame<'_>> {
        if is_heard() {
            self.staging.reserve(&mut self.port, len, class)
        } else {
            self.staging.forget();
            self.port.tx_reserve(len, class)
        }
    }

    fn tx_commit(&mut self, len: usize) {
        if !self.staging.is_reserved() {
            return self.port.tx_commit(len);
        }
        let class = self.staging.take(len);
        self.emit(Direction::Tx, &self.staging.frame(len));
        self.staging.send_granted(&mut self.port, len, class);
    }
}
