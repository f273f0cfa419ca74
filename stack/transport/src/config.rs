//! Limits and settings of an endpoint.
//!
//! In: what a device is set up with. Out: what posts and queue pairs are checked against.

use thiserror::Error;

use crate::wr::QpCap;

/// What one device allows. `query_device` reports these values and posts are checked against them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Work requests per queue.
    pub max_qp_wr: u32,
    /// Scatter/gather entries per work request.
    pub max_sge: u32,
    /// Bytes that a work request may carry inline.
    pub max_inline_data: u32,
    /// Entries per completion queue.
    pub max_cqe: u32,
    /// READs and atomics of a peer that a QP serves at a time (`max_dest_rd_atomic`).
    pub max_qp_rd_atom: u8,
    /// READs and atomics that a QP may have outstanding (`max_rd_atomic`).
    pub max_qp_init_rd_atom: u8,
    /// Bytes of the longest message (IBTA, RETH: at most 2^31).
    pub max_msg_sz: u64,
    /// Request packets that a QP may have unacknowledged (a READ counts one).
    pub window_packets: u32,
    /// A request packet carries AckReq when this many went before it without.
    pub ack_req_every: u32,
}

/// A limit with which nothing would move, or that the protocol does not allow.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("{name} is {value}; it must be {min} to {max}")]
pub struct LimitError {
    /// The field of [`Limits`].
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// The smallest there may be.
    pub min: u64,
    /// The largest there may be.
    pub max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_qp_wr: 16384,
            max_sge: 32,
            max_inline_data: 512,
            max_cqe: 1 << 20,
            max_qp_rd_atom: 16,
            max_qp_init_rd_atom: 16,
            max_msg_sz: 1 << 31,
            window_packets: 256,
            ack_req_every: 16,
        }
    }
}

impl Limits {
    /// Whether something can be done within these limits.
    ///
    /// # Errors
    /// Names the first limit that is out of its range.
    pub fn check(&self) -> Result<(), LimitError> {
        let per_queue = u64::from(u32::MAX);
        let ranges = [
            ("max_qp_wr", u64::from(self.max_qp_wr), 1, per_queue),
            ("max_sge", u64::from(self.max_sge), 1, per_queue),
            ("max_cqe", u64::from(self.max_cqe), 1, per_queue),
            // IBTA, RETH.
            ("max_msg_sz", self.max_msg_sz, 1, 1 << 31),
            // Half the PSN space (IBTA, PSN).
            ("window_packets", u64::from(self.window_packets), 1, 1 << 23),
            ("ack_req_every", u64::from(self.ack_req_every), 1, per_queue),
        ];
        match ranges.into_iter().find(|(_, value, min, max)| !(min..=max).contains(&value)) {
            Some((name, value, min, max)) => Err(LimitError { name, value, min, max }),
            None => Ok(()),
        }
    }

    /// The largest capacities of a queue pair.
    pub fn qp_cap(&self) -> QpCap {
        QpCap {
            max_send_wr: self.max_qp_wr,
            max_recv_wr: self.max_qp_wr,
            max_send_sge: self.max_sge,
            max_recv_sge: self.max_sge,
            max_inline_data: self.max_inline_data,
        }
        .clamped()
    }
}

/// Which QPNs an endpoint hands out.
///
/// A QPN is `process slot (3 bits) | generation (5 bits) | index (16 bits)`. The index is `offset + k * stride`, so
/// that the shard of a packet follows from its QPN; the generation starts at random and changes when an index is used again, so that late
/// packets for the former owner miss. The generation is never 0, which keeps QP0 and QP1 free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpnSpace {
    /// Which of up to eight processes on the netdev; 0 as long as one process owns it.
    pub process_slot: u8,
    /// First index, less than `stride`.
    pub offset: u32,
    /// Distance of indices: the number of shards.
    pub stride: u32,
}

impl Default for QpnSpace {
    fn default() -> Self {
        QpnSpace { process_slot: 0, offset: 0, stride: 1 }
    }
}

/// Bits of a QPN that hold the index.
pub const QPN_INDEX_BITS: u32 = 16;
/// Bits of a QPN that hold the generation.
pub const QPN_GENERATION_BITS: u32 = 5;

/// Settings of one endpoint (one shard of a device).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// The QPNs this endpoint hands out.
    pub qpns: QpnSpace,
    /// Queue pairs at the most.
    pub max_qp: u32,
    /// The device's limits.
    pub limits: Limits,
    /// Decides with which generation each index begins. Random in each life of a process: a peer that does not know of a
    /// restart then misses the queue pairs of the new life, which on UC nothing else would tell apart.
    pub seed: u64,
    /// Announce the number of free RECVs in ACKs (IBTA, end-to-end credits) in place of "no credits given". Off by default, as
    /// most peers ignore it.
    pub credits: bool,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        EndpointConfig {
            qpns: QpnSpace::default(),
            max_qp: 1 << 16,
            limits: Limits::default(),
            seed: 0,
            credits: false,
        }
    }
}
