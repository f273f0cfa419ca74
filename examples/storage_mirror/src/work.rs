//! What a completion belongs to, packed into the 64 bits of a work request's number.

use std::fmt;

/// A request of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A SEND on the channel to `peer`, from buffer `slot`.
    Sent {
        /// Index of the node.
        peer: u32,
        /// Index of the buffer.
        slot: u32,
    },
    /// A RECV on that channel, into buffer `slot`.
    Received {
        /// Index of the node.
        peer: u32,
        /// Index of the buffer.
        slot: u32,
    },
    /// A WRITE of `block` into the copy that `peer` keeps.
    Block {
        /// Index of the node.
        peer: u32,
        /// Number of the block.
        block: u32,
    },
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Sent { peer, .. } => write!(f, "SEND to node {peer}"),
            Work::Received { peer, .. } => write!(f, "RECV from node {peer}"),
            Work::Block { peer, block } => write!(f, "WRITE of block {block} to node {peer}"),
        }
    }
}

impl Work {
    /// As a work request's number: kind in the top 8 bits, node in the next 24, the rest below.
    pub fn id(self) -> u64 {
        let (kind, peer, low) = match self {
            Work::Sent { peer, slot } => (1, peer, slot),
            Work::Received { peer, slot } => (2, peer, slot),
            Work::Block { peer, block } => (3, peer, block),
        };
        kind << 56 | u64::from(peer & 0xff_ffff) << 32 | u64::from(low)
    }

    /// Back from a completion.
    pub fn of(id: u64) -> Option<Work> {
        let (peer, low) = ((id >> 32) as u32 & 0xff_ffff, id as u32);
        match id >> 56 {
            1 => Some(Work::Sent { peer, slot: low }),
            2 => Some(Work::Received { peer, slot: low }),
            3 => Some(Work::Block { peer, block: low }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back() {
        for work in [
            Work::Sent { peer: 0, slot: 1 },
            Work::Received { peer: 0xff_ffff, slot: u32::MAX },
            Work::Block { peer: 7, block: 0 },
        ] {
            assert_eq!(Work::of(work.id()), Some(work));
        }
        assert_eq!(Work::of(0), None);
    }
}
