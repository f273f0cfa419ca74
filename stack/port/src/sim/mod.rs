//! Networks in memory.
//!
//! What enters: frames that engines commit to a [`SimPort`] or a [`PipePort`], link models, and time. What leaves: the
//! same frames at the ports they are addressed to, or their loss, delay, copy or corruption as the models say.
//!
//! - [`SimNet`] is a switch with a [`LinkModel`] between any two nodes. It lives in virtual time by default: nothing
//!   happens but by [`SimNet::advance_to`], and one seed with the same calls gives the same run. Built with
//!   [`SimNet::real_time`] it follows the clock and wakes sleepers, for engines that run in threads of one process.
//! - [`loop_pair`] joins two ports by preallocated rings, with no model between: what is left is the engine's cost.

#![forbid(unsafe_code)]

mod counters;
mod error;
mod frame;
mod link;
mod model;
mod net;
mod pipe;
mod port;
mod rng;
mod switch;
mod watch;

pub use counters::{LossCounters, NetCounters};
pub use error::{ModelError, NodeError};
pub use frame::{RX_SPLIT_MIN, VLAN_FRAME_OVERHEAD};
pub use model::{BurstLoss, LinkModel, WIRE_OVERHEAD};
pub use net::{NodeId, SimNet, pair};
pub use pipe::{PipeConfig, PipePort, loop_pair};
pub use port::{NodeConfig, SimPort};
pub use rng::Rng;
pub use watch::{Loss, NetEvent, TraceHash, What, into_capture};
