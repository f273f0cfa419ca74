//! The poll loop of the software RNIC: shards, next hops, GID table.
//!
//! In: ports (frames), the application's control calls and doorbells, the kernel's link, address and neighbour news.
//! Out: frames, completions in the application's queues, wake-ups of those who sleep.
//!
//! A [`Shard`](shard::Shard) is a token, not a thread: whoever takes it may run one bounded step of the loop. See
//! [`progress`] for who does, and [`engine`] for the device that holds the shards together.
#![deny(unsafe_code)]

mod at_exit;
pub mod clock;
pub mod core;
pub mod cqs;
pub mod doorbell;
pub mod engine;
pub mod event;
pub mod gid;
pub mod handover;
pub mod l2;
pub mod loopback;
pub mod netdev;
pub mod network;
pub mod nexthop;
pub mod notify;
pub mod path;
pub mod privilege;
pub mod progress;
pub mod shard;
mod sink;
pub mod sleep;
mod sync;
mod sys;
pub mod token;
pub mod watch;

pub use engine::{Engine, EngineConfig};
pub use network::interface_names;
pub use progress::Progress;
