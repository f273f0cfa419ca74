//! The InfiniBand transport, without I/O.
//!
//! In: packets, posted work, the time. Out: packets to send, deadlines, completions.
