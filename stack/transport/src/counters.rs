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
        /// Times the requester went back to send again, RNR waits apart (rxe).
        completer_retry_err,
        /// WRITE messages carried out for the peer (mlx5).
        rx_write_requests,
        /// READ requests accepted from the peer (mlx5).
        rx_read_requests,
        /// Atomics carried out for the peer (mlx5).
        rx_atomic_requests,
        /// Send requests that ended with an error, flushed ones included (mlx5).
        req_cqe_error,
        /// Send requests that were flushed (mlx5).
        req_cqe_flush_error,
        /// RECVs that ended with an error, flushed ones included (mlx5).
        resp_cqe_error,
        /// RECVs that were flushed (mlx5).
        resp_cqe_flush_error,
        /// Send requests that the peer refused for key, range or right (mlx5).
        req_remote_access_errors,
        /// Send requests that the peer called invalid (mlx5).
        req_remote_invalid_request,
        /// RECVs that were too short for their message (mlx5).
        resp_local_length_error,
    }
}

/// Counters of an endpoint.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Sums over all queue pairs, those destroyed included.
    pub qp: QpCounters,
    /// Dropped packets by reason.
    pub drops: DropCounters,
    /// Packets given to `handle_packet`.
    pub packets_in: u64,
    /// Packets that `poll_transmit` made.
    pub packets_out: u64,
    /// Times that ACKs were kept back for company.
    pub ack_deferred: u64,
}

impl Counters {
    /// Adds those of another endpoint.
    pub fn add(&mut self, other: &Counters) {
        self.qp.add(&other.qp);
        self.drops.add(&other.drops);
        self.packets_in += other.packets_in;
        self.packets_out += other.packets_out;
        self.ack_deferred += other.ack_deferred;
    }
}
