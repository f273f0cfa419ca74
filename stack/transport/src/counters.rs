//! Counters of an endpoint and of each queue pair, under names that `rdma_rxe` and mlx5 drivers use for the same thing.

use crate::drop::DropCounters;

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name { $($(#[$fdoc])* pub $field: u64,)* }

        impl $name {
            /// Every counter with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }

            /// Adds `other` to every counter.
            pub fn add(&mut self, other: &$name) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    /// Counters of one queue pair.
    QpCounters {
        /// Packets sent.
        sent_pkts,
        /// Bytes sent, from the IP header on.
        sent_bytes,
        /// Packets received and accepted so far that the queue pair looked at them.
        rcvd_pkts,
        /// Bytes received in such packets, from the IP header on.
        rcvd_bytes,
        /// Duplicate requests received (rxe, mlx5).
        duplicate_request,
        /// Requests ahead of the expected PSN received (rxe: `out_of_seq_request`, mlx5: `out_of_sequence`).
        out_of_seq_request,
        /// RNR NAKs received (rxe).
        rcvd_rnr_err,
        /// RNR NAKs sent (rxe; mlx5: `out_of_buffer`).
        send_rnr_err,
        /// Sequence NAKs received (rxe: `rcvd_seq_err`, mlx5: `packet_seq_err`).
        rcvd_seq_err,
        /// Responses that skipped an unanswered READ or atomic (mlx5).
        implied_nak_seq_err,
        /// ACK timeouts (mlx5: `local_ack_timeout_err`).
        local_ack_timeout_err,
        /// Request packets sent again.
        resent_pkts,
        /// Requests that ended with retry_cnt spent (rxe).
        retry_exceeded_err,
        /// Requests that ended with rnr_retry spent (rxe).
        retry_rnr_exceeded_err,
        /// Acknowledgements sent.
        acks_sent,
        /// Sequence NAKs sent.
        nak_seq_sent,
        /// Messages sent and completed.
        rdma_sends,
        /// RECVs completed.
        rdma_recvs,
        /// Key guesses that missed: requests refused for key, range or right.
        resp_remote_access_errors,
        /// Packets that carried an ECN congestion mark.
        np_ecn_marked_roce_packets,
        /// UC messages that were given up for a gap.
        uc_dropped_messages,
    }
}

/// Counters of an endpoint.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Sums over all queue pairs, those destroyed included.
    pub qp: QpCounters,
    /// Dropped packets by reason.
    pub drops: DropCounters,
    /// Packets given to `handle_packet`.
    pub packets_in: u64,
    /// Packets that `poll_transmit` made.
    pub packets_out: u64,
}
