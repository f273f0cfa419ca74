//! The poll loop of the software RNIC: shards, next hops, GID table.
//!
//! In: ports (frames), the application's control calls and doorbells, the kernel's link, address and neighbour news.
//! Out: frames, completions in the application's queues, wake-ups of those who sleep.
//!
//! A [`Shard`] is a token, not a thread: whoever takes it may run one bounded step of the loop. See [`progress`] for
//! who does.
#![deny(unsafe_code)]

pub mod clock;
pub mod doorbell;
pub mod handover;
pub mod loopback;
pub mod notify;
pub mod sleep;
mod sys;
pub mod token;
