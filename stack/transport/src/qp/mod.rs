//! Queue pairs.
//!
//! [`state`] is the state machine as a table; `queue_pair` holds the parts together. Sending: `requester` picks packets,
//! `unacked` knows what is on the wire, `completer` handles answers. Receiving: `responder` (RC) and `uc` decide,
//! `inbound` executes, `responses` answers; `snapshot` looks on. The parts do not reach into each other: what they share is passed.

mod completer;
mod credit;
mod error;
mod inbound;
mod peer;
mod queue_pair;
mod requester;
mod responder;
mod responses;
mod segment;
mod sge;
mod snapshot;
pub mod state;
mod transition;
mod uc;
mod unacked;

pub(crate) use queue_pair::{Polled, Qp};
pub use queue_pair::{QpHandle, QpInfo, QpInit};
pub use snapshot::{NakState, QpSnapshot, RequesterSnapshot, ResponderSnapshot, StartedRequest};
pub use transition::ModifyQpError;
