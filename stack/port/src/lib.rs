//! Where frames enter and leave.
//!
//! What enters: Ethernet frames from a wire (a netdev's receive queues, or a network in memory), and frames that the
//! engine writes. What leaves: the same, in the other direction. A [`Port`] is the object an engine holds for that; it
//! is used a burst at a time and never blocks. [`xdp`] is the port that sits on a netdev.

#![warn(missing_docs)]
#![deny(unsafe_code)]

mod port;
pub mod xdp;

pub use port::{Capabilities, Layer, LinkChange, Port, PortCounters, RxFrame, TX_HEAD_MIN, TxClass, TxFrame, XdpMode};
