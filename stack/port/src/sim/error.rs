//! Why a simulated network could not be built as asked.

use thiserror::Error;

/// A [`LinkModel`](super::LinkModel) that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A probability outside 0.0 to 1.0, or not a number.
    #[error("{field} is {value}: a probability lies between 0.0 and 1.0")]
    Probability {
        /// The field of the model.
        field: &'static str,
        /// What it held.
        value: f64,
    },
    /// The shortest delay is longer than the longest.
    #[error("delay_min_ns ({min_ns}) is more than delay_max_ns ({max_ns}): swap them")]
    Delay {
        /// The model's `delay_min_ns`.
        min_ns: u64,
        /// The model's `delay_max_ns`.
        max_ns: u64,
    },
    /// A rate of zero: no frame would ever leave.
    #[error("rate_bps is 0: use None for no limit, or up = false for a link that carries nothing")]
    Rate,
    /// A corrupted frame with no flipped bit.
    #[error("corrupt_bits_max is 0 while corrupt is above 0: a corrupted frame has at least one flipped bit")]
    CorruptBits,
    /// No node with this number.
    #[error("no node {node} in this network: it has {nodes}")]
    NoSuchNode {
        /// The number asked for.
        node: u32,
        /// Nodes in the network.
        nodes: usize,
    },
}

/// A node that cannot join the network.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Another node has this address: the switch could not tell them apart.
    #[error("MAC {} is taken by node {node}", mac_text(mac))]
    MacTaken {
        /// The address.
        mac: [u8; 6],
        /// Who has it.
        node: u32,
    },
    /// A group address, or all zero.
    #[error("MAC {} is not a unicast address", mac_text(mac))]
    MacNotUnicast {
        /// The address.
        mac: [u8; 6],
    },
    /// A number out of its range.
    #[error("{field} is {value}: {want}")]
    Range {
        /// The field of the configuration.
        field: &'static str,
        /// What it held.
        value: usize,
        /// What it may hold.
        want: &'static str,
    },
    /// A real-time port needs descriptors to wake a sleeper, and the system gave none.
    #[error("no eventfd or timerfd for the port: {0}")]
    Descriptors(#[from] std::io::Error),
}

fn mac_text(mac: &[u8; 6]) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}
