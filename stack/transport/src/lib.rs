//! The InfiniBand transport of a RoCE v2 NIC, without I/O.
//!
//! In: packets, posted work, the time. Out: packets to send, deadlines, completions, events. There is no clock, no
//! socket, no thread and no global in here: whoever holds an [`Endpoint`] brings the world to it.
//!
//! Drain its doors in this order: [`Endpoint::handle_packet`] for what arrived, [`Endpoint::doorbell`] for what was
//! posted, [`Endpoint::handle_timeout`], then [`Endpoint::poll_transmit`] until it returns `None`,
//! [`Endpoint::poll_event`], [`Endpoint::poll_wakeup`]; and sleep no longer than [`Endpoint::poll_timeout`] says.

// Four files are let off, where they are declared: memory/region.rs, wq/ring.rs, cq/ring.rs and prefetch.rs.
#![deny(unsafe_code)]

mod config;
mod context;
mod counters;
pub mod cq;
mod drop;
mod emit;
mod endpoint;
mod event;
mod failure;
pub mod instant;
mod io;
pub mod memory;
#[cfg(not(feature = "mutations"))]
mod mutation;
#[cfg(feature = "mutations")]
pub mod mutation;
mod prefetch;
pub mod qp;
mod sync;
pub mod timer;
mod trace;
pub mod wc;
pub mod wq;
pub mod wr;

pub use config::{EndpointConfig, LimitError, Limits, QPN_GENERATION_BITS, QPN_INDEX_BITS, QpnSpace};
pub use counters::{Counters, QpCounters};
pub use drop::{DropCounters, DropReason};
pub use endpoint::{CreateQpError, Endpoint, NoSuchQp};
pub use event::{Event, EventKind};
pub use failure::{Failure, QpFault};
pub use instant::Instant;
pub use io::{PathId, QpPath, RxMeta, RxPacket, Transmit, TxClass, TxPacket, TxSink};
pub use trace::TARGET as TRACE_TARGET;
