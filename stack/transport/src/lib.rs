//! The InfiniBand transport, without I/O.
//!
//! In: packets, posted work, the time. Out: packets to send, deadlines, completions.
#![warn(missing_docs)]

pub mod cq;
pub mod instant;
pub mod memory;
pub mod qp;
mod sync;
pub mod timer;
pub mod wc;
pub mod wq;
pub mod wr;
