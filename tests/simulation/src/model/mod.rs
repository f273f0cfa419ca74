//! The independent model: what a pair of queue pairs owes its users, written from the rules and not from the code.
//!
//! In: what applications post, which packets were handed to the wire and which arrived, and every completion. Out: nothing,
//! or a [`Violation`]. [`flow`] is one direction of a connection: its requests, and the memory of the peer that they
//! change. [`wire`] is what the packets of that direction tell to somebody who only reads them.

mod flow;
mod wire;

pub(crate) use flow::{Flow, Keys, Op, Outcome};
pub(crate) use wire::{Limits, WireView};

use thiserror::Error;

/// A rule that was broken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rule {
    /// Each request completes exactly once and in order.
    Completion,
    /// A status fits what happened.
    Status,
    /// A RECV gets one message, in order, unharmed.
    Delivery,
    /// Memory holds what the requests of its writers make of it, and nothing else changed.
    Memory,
    /// A READ or atomic brings back what was there when it was its turn; an atomic happens exactly once.
    Result,
    /// Packets carry the right PSN, opcode and length.
    Segmentation,
    /// Limits: packets in flight, READs and atomics in flight, retries.
    Limit,
    /// Nothing is sent while a queue pair waits, is drained or is fenced.
    Wait,
    /// Nothing is sent again without a cause.
    Resend,
    /// After the faults everything finishes.
    Liveness,
    /// Nothing is left over when all is taken down.
    Leak,
    /// The transport panicked.
    Panic,
}

/// What was seen that must not be.
#[derive(Clone, Debug, Error)]
#[error("{rule:?} at {at_ns} ns: {what}")]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// When, in virtual time.
    pub at_ns: u64,
    /// What exactly.
    pub what: String,
}

/// The outcome of a check; the time is filled in by whoever knows it.
pub(crate) type Check = Result<(), Violation>;

/// A violation without its time.
pub(crate) fn broken<T>(rule: Rule, what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { rule, at_ns: 0, what: what.into() })
}
