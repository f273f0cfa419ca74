//! The InfiniBand transport of a RoCE v2 NIC, without I/O.
//!
//! In: packets, posted work, the time. Out: packets to send, deadlines, completions, events. There is no clock, no
//! socket, no thread and no global in here: whoever holds an [`Endpoint`] brings the world to it.
//!
//! Drain its doors in this order: [`Endpoint::handle_packet`] for what arrived, [`Endpoint::doorbell`] for what was
//! posted, [`Endpoint::handle_timeout`], then [`Endpoint::poll_transmit`] until it returns `None`,
//! [`Endpoint::poll_event`], [`Endpoint::poll_wakeup`]; and sleep no longer than [`Endpoint::poll_timeout`] says.

mod config;
mod context;
mod counters;
pub mod cq;
mod drop;
mod emit;
mod endpoint;
mod event;
mod instant;
mod io;
pub mod memory;
pub mod qp;
mod timer;
mod wc;
mod wq;
mod wr;
