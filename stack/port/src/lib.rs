//! Where frames enter and leave.
//!
//! What enters: Ethernet frames from a wire (a netdev's receive queues, or a network in memory), and frames that the
//! engine writes. What leaves: the same, in the other direction. A [`Port`] is the object an engine holds for that; it
//! is used a burst at a time and never blocks.

mod direction;
pub mod fault;
pub mod pcap;
mod port;
pub mod sim;
mod staging;
pub mod trace;
mod wake;

pub use direction::Direction;
pub use port::{Capabilities, Layer, LinkChange, Port, PortCounters, RxFrame, TX_HEAD_MIN, TxClass, TxFrame, XdpMode};
