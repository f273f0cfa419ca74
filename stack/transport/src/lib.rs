//! The InfiniBand transport, without I/O.
//!
//! In: packets, posted work, the time. Out: packets to send, deadlines, completions.
#![warn(missing_docs)]
// Three files are let off, where they are declared: memory/region.rs, wq/ring.rs and cq/ring.rs;
// and the tests of memory, which vouch for theirs.
#![deny(unsafe_code)]

pub mod cq;
pub mod instant;
pub mod memory;
pub mod qp;
mod sync;
pub mod timer;
pub mod wc;
pub mod wq;
pub mod wr;
