//! Queue pairs.
//!
//! In: packets, work and time for one QP. Out: packets, completions and state changes.

pub mod state;
