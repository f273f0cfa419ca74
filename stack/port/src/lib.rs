//! Where frames enter and leave.
//!
//! What enters: Ethernet frames from a wire (a netdev's receive queues, or a network in memory), and frames that the
//! engine writes. What leaves: the same, in the other direction. A [`Port`] is the object an engine holds for that; it
//! is used a burst at a time and never blocks. `xdp` is the port that sits on a netdev (feature `xdp`, on by default),
//! [`udp`] needs no rights, [`sim`] has networks in memory; [`pcap`], [`fault`] and [`trace`] are each a [`Layer`] around
//! any port, and stack.

#![warn(missing_docs)]
#![deny(unsafe_code)]

mod direction;
pub mod fault;
mod layer;
pub mod pcap;
mod port;
pub mod sim;
mod sockopt;
mod staging;
pub mod trace;
pub mod udp;
mod wake;
#[cfg(feature = "xdp")]
pub mod xdp;

pub use direction::Direction;
pub use layer::Layer;
pub use port::{Capabilities, LinkChange, Port, PortCounters, RxFrame, TX_HEAD_MIN, TxClass, TxFrame, XdpMode};
