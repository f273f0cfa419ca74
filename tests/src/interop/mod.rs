//! xroce against a real Linux rdma_rxe.
//!
//! Enters: a booted guest, one operation with its length. Leaves: whether both ends saw exactly what verbs promises.
//!
//! A [`Station`] is the guest with one agent, and our device on the netdev before it; it serves any number of cases. A
//! [`Link`] is one connected pair of QPs over it, whose two sides are used by the same calls, so that each case is written
//! once and run in both directions. What rxe does otherwise than the specification is in [`Known`], and nowhere else.

pub mod edges;
pub mod errors;
pub mod exchange;
pub mod killed;
mod known;
mod link;
pub mod losses;
mod memory;
pub mod scripts;
mod station;
pub mod streams;
pub mod table;
pub mod victim;

pub mod pingpong;
pub use known::Known;
pub use link::{Link, LinkSpec, Pair, Side, WAIT};
pub use memory::Guarded;
pub use station::{BUF_LEN, Family, PeerSide, Station};
