//! The counters under the names by which `rdma_rxe` and mlx5 tools ask for them.
//!
//! In: what the device has counted. Out: one number a name. Nothing is counted twice: a name is a view of what the transport,
//! the engine and the port count anyway. Names and meanings are those of the files in `hw_counters` that
//! `drivers/infiniband/sw/rxe/rxe_hw_counters.c` and the kernel's page on mlx5 counters list.
#![forbid(unsafe_code)]

use xroce_engine::core::ShardCounters;
use xroce_port::PortCounters;
use xroce_transport::{Counters, DropReason};

/// Everything a device has counted, all shards together.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Of the transport.
    pub transport: Counters,
    /// Of the poll loop.
    pub shard: ShardCounters,
    /// Of the ports.
    pub port: PortCounters,
    /// Times the link went down.
    pub link_downed: u64,
}

/// Whose name it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// `rdma_rxe`.
    Rxe,
    /// mlx5.
    Mlx5,
    /// Both.
    Both,
    /// Our own: of what neither of them counts.
    Xroce,
}

impl Family {
    /// As in the documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Rxe => "rxe",
            Family::Mlx5 => "mlx5",
            Family::Both => "rxe, mlx5",
            Family::Xroce => "xroce",
        }
    }
}

/// A counter with its name.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Snake case.
    pub name: &'static str,
    /// Whose name it is.
    pub family: Family,
    /// What is counted, in one line.
    pub help: &'static str,
    /// The fields it is made of, as the code has them.
    pub source: &'static str,
    value: fn(&Totals) -> u64,
}

impl Named {
    /// Its value.
    pub fn of(&self, totals: &Totals) -> u64 {
        (self.value)(totals)
    }
}

macro_rules! names {
    ($($family:ident $name:literal, $help:literal, |$t:ident| $value:expr;)*) => {
        /// Every name, rxe's and mlx5's first.
        pub const NAMES: &[Named] = &[$(Named {
            name: $name,
            family: Family::$family,
            help: $help,
            source: stringify!($value),
            value: |$t| $value,
        },)*];
    };
}

names! {
    Rxe "sent_pkts", "Packets sent.", |t| t.transport.qp.sent_pkts;
    Rxe "rcvd_pkts", "Packets received that reached a queue pair.", |t| t.transport.qp.rcvd_pkts;
    Both "duplicate_request", "Requests received again.", |t| t.transport.qp.duplicate_request;
    Rxe "out_of_seq_request", "Requests received ahead of the expected PSN.", |t| t.transport.qp.out_of_seq_request;
    Mlx5 "out_of_sequence", "Requests received ahead of the expected PSN.", |t| t.transport.qp.out_of_seq_request;
    Rxe "rcvd_rnr_err", "RNR NAKs received.", |t| t.transport.qp.rcvd_rnr_err;
    Mlx5 "rnr_nak_retry_err", "RNR NAKs received.", |t| t.transport.qp.rcvd_rnr_err;
    Rxe "send_rnr_err", "RNR NAKs sent.", |t| t.transport.qp.send_rnr_err;
    Mlx5 "out_of_buffer", "Messages that found no RECV.", |t| t.transport.drops.get(DropReason::ReceiverNotReady);
    Rxe "rcvd_seq_err", "Sequence NAKs received.", |t| t.transport.qp.rcvd_seq_err;
    Mlx5 "packet_seq_err", "Sequence NAKs received.", |t| t.transport.qp.rcvd_seq_err;
    Mlx5 "implied_nak_seq_err", "Responses that skipped an unanswered READ or atomic.",
        |t| t.transport.qp.implied_nak_seq_err;
    Mlx5 "local_ack_timeout_err", "ACK timers that ran out.", |t| t.transport.qp.local_ack_timeout_err;
    Rxe "completer_retry_err", "Times requests were sent again, RNR waits apart.",
        |t| t.transport.qp.completer_retry_err;
    Rxe "retry_exceeded_err", "Requests that failed with retry_cnt spent.", |t| t.transport.qp.retry_exceeded_err;
    Rxe "retry_rnr_exceeded_err", "Requests that failed with rnr_retry spent.",
        |t| t.transport.qp.retry_rnr_exceeded_err;
    Rxe "ack_deferred", "Times ACKs were kept back for company.", |t| t.transport.ack_deferred;
    Rxe "send_err", "Packets that had no next hop, or that the port lost on their way out.",
        |t| t.shard.no_next_hop + t.port.tx_dropped + t.port.tx_errors;
    Rxe "link_downed", "Times the link went down.", |t| t.link_downed;
    Rxe "rdma_sends", "Send requests completed.", |t| t.transport.qp.rdma_sends;
    Rxe "rdma_recvs", "RECVs completed.", |t| t.transport.qp.rdma_recvs;
    Mlx5 "rx_write_requests", "WRITE messages carried out for peers.", |t| t.transport.qp.rx_write_requests;
    Mlx5 "rx_read_requests", "READ requests accepted from peers.", |t| t.transport.qp.rx_read_requests;
    Mlx5 "rx_atomic_requests", "Atomics carried out for peers.", |t| t.transport.qp.rx_atomic_requests;
    Mlx5 "req_cqe_error", "Send requests that ended with an error, flushed ones included.",
        |t| t.transport.qp.req_cqe_error;
    Mlx5 "req_cqe_flush_error", "Send requests that were flushed.", |t| t.transport.qp.req_cqe_flush_error;
    Mlx5 "resp_cqe_error", "RECVs that ended with an error, flushed ones included.",
        |t| t.transport.qp.resp_cqe_error;
    Mlx5 "resp_cqe_flush_error", "RECVs that were flushed.", |t| t.transport.qp.resp_cqe_flush_error;
    Mlx5 "req_remote_access_errors", "Requests of ours refused for key, range or right.",
        |t| t.transport.qp.req_remote_access_errors;
    Mlx5 "req_remote_invalid_request", "Requests of ours that the peer called invalid.",
        |t| t.transport.qp.req_remote_invalid_request;
    Mlx5 "resp_remote_access_errors", "Requests of peers refused for key, range or right.",
        |t| t.transport.qp.resp_remote_access_errors;
    Mlx5 "resp_local_length_error", "RECVs that were too short for their message.",
        |t| t.transport.qp.resp_local_length_error;
    Mlx5 "rx_icrc_encapsulated", "Packets with a wrong ICRC.", |t| t.transport.drops.get(DropReason::BadIcrc);
    Mlx5 "np_ecn_marked_roce_packets", "Packets that carried a congestion mark.",
        |t| t.transport.qp.np_ecn_marked_roce_packets;
    Mlx5 "rp_cnp_ignored", "Congestion notification packets received and not acted upon.",
        |t| t.transport.drops.get(DropReason::Cnp);
    Xroce "sent_bytes", "Bytes sent, from the IP header on.", |t| t.transport.qp.sent_bytes;
    Xroce "rcvd_bytes", "Bytes received that reached a queue pair, from the IP header on.",
        |t| t.transport.qp.rcvd_bytes;
    Xroce "resent_pkts", "Request packets sent again.", |t| t.transport.qp.resent_pkts;
    Xroce "acks_sent", "ACKs sent.", |t| t.transport.qp.acks_sent;
    Xroce "nak_seq_sent", "Sequence NAKs sent.", |t| t.transport.qp.nak_seq_sent;
    Xroce "uc_dropped_messages", "UC messages given up for a gap.", |t| t.transport.qp.uc_dropped_messages;
    Xroce "steps", "Rounds of the poll loop.", |t| t.shard.steps;
    Xroce "rx_truncated", "Frames shorter than their headers.", |t| t.shard.rx_truncated;
    Xroce "rx_other_station", "Frames for another station.", |t| t.shard.rx_other_station;
    Xroce "rx_not_ip", "Frames that are not IP.", |t| t.shard.rx_not_ip;
    Xroce "rx_other_vlan", "Frames of another VLAN.", |t| t.shard.rx_other_vlan;
    Xroce "handed_over", "Packets given to another shard.", |t| t.shard.handed_over;
    Xroce "hand_over_drops", "The same, lost because its inbox was full.", |t| t.shard.hand_over_drops;
    Xroce "no_next_hop", "Packets lost for want of a next hop.", |t| t.shard.no_next_hop;
    Xroce "local", "Packets that never left the device.", |t| t.shard.local;
    Xroce "tx_stalls", "Rounds that found no frame to send with.", |t| t.shard.tx_stalls;
    Xroce "events_lost", "Asynchronous events that found their queue full.", |t| t.shard.events_lost;
    Xroce "port_rx_frames", "Frames taken from the port.", |t| t.port.rx_frames;
    Xroce "port_rx_bytes", "Bytes of them.", |t| t.port.rx_bytes;
    Xroce "port_tx_frames", "Frames given to the port.", |t| t.port.tx_frames;
    Xroce "port_tx_bytes", "Bytes of them.", |t| t.port.tx_bytes;
    Xroce "port_rx_dropped_pieces", "Frames in more pieces than there may be.", |t| t.port.rx_dropped_pieces;
    Xroce "port_rx_dropped_invalid", "Descriptors that were invalid on arrival.", |t| t.port.rx_dropped_invalid;
    Xroce "port_rx_dropped_lower", "Frames dropped below the port: its receive ring was full, mostly.",
        |t| t.port.rx_dropped_lower;
    Xroce "port_rx_no_buffer", "Times the kernel found no buffer to receive into.", |t| t.port.rx_no_buffer;
    Xroce "port_tx_errors", "Frames that the kernel refused to send.", |t| t.port.tx_errors;
    Xroce "port_tx_dropped", "Frames dropped on their way out.", |t| t.port.tx_dropped;
    Xroce "port_tx_refused", "Times the port had no room for a frame.", |t| t.port.tx_refused;
    Xroce "port_kicks", "System calls made to send.", |t| t.port.kicks;
    Xroce "port_kicks_again", "Those of them that the kernel answered with EAGAIN.", |t| t.port.kicks_again;
    Xroce "port_rx_wakeups", "System calls made to wake the receive side.", |t| t.port.rx_wakeups;
    Xroce "port_rx_left_to_kernel", "Frames that the XDP program left to the kernel.", |t| t.port.rx_left_to_kernel;
    Xroce "port_rx_faults_dropped", "Frames dropped on purpose.", |t| t.port.rx_faults_dropped;
    Xroce "port_rx_faults_corrupted", "Frames corrupted on purpose.", |t| t.port.rx_faults_corrupted;
}

/// The table for the documentation, in Markdown.
pub fn markdown() -> String {
    let row = |named: &Named| {
        // `t` is what all of it comes from.
        let words = named.source.split_whitespace().map(|word| word.strip_prefix("t.").unwrap_or(word));
        let source = words.collect::<Vec<_>>().join(" ");
        format!("| `{}` | {} | {} | `{source}` |\n", named.name, named.family.name(), named.help)
    };
    let rows: String = NAMES.iter().map(row).collect();
    format!("| name | of | counts | from |\n|---|---|---|---|\n{rows}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_fit_every_format() {
        for (i, named) in NAMES.iter().enumerate() {
            assert!(NAMES[..i].iter().all(|other| other.name != named.name), "{} twice", named.name);
            assert!(
                named.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{}",
                named.name
            );
            assert!(named.help.ends_with('.') && !named.help.contains('\n'), "{}", named.help);
        }
    }

    #[test]
    fn the_table_has_the_fields_of_totals() {
        let table = markdown();
        assert!(table.contains("| `sent_pkts` | rxe | Packets sent. | `transport.qp.sent_pkts` |\n"), "{table}");
        assert!(table.contains("`shard.no_next_hop + port.tx_dropped + port.tx_errors`"), "{table}");
    }

    /// Every counter that the transport keeps for queue pairs has a name: each is set to a value of its own and looked for.
    #[test]
    fn nothing_that_is_counted_is_without_a_name() {
        let source =
            |field: &str| NAMES.iter().any(|n| n.source.split([' ', '+']).any(|s| s.ends_with(&format!(".{field}"))));
        for (field, _) in Counters::default().qp.iter() {
            assert!(source(field), "{field} has no name");
        }
    }

    /// A name that a counter of the transport or of the port has, is of that counter.
    #[test]
    fn equal_names_are_equal_counters() {
        let transport: Vec<&str> = Counters::default().qp.iter().map(|(field, _)| field).collect();
        for named in NAMES {
            let field = match named.name.strip_prefix("port_") {
                Some(field) => field,
                None if transport.contains(&named.name) => named.name,
                None => continue,
            };
            assert!(named.source.ends_with(&format!(".{field}")), "{}: {}", named.name, named.source);
        }
    }

    #[test]
    fn a_name_is_a_view_of_the_counters() {
        let mut totals = Totals::default();
        totals.transport.qp.rcvd_rnr_err = 3;
        totals.shard.no_next_hop = 4;
        totals.port.tx_dropped = 5;
        totals.port.tx_errors = 6;
        totals.transport.drops.count(DropReason::BadIcrc);
        let value = |name: &str| NAMES.iter().find(|n| n.name == name).expect("a name").of(&totals);
        assert_eq!((value("rcvd_rnr_err"), value("rnr_nak_retry_err")), (3, 3));
        assert_eq!((value("send_err"), value("rx_icrc_encapsulated"), value("sent_pkts")), (15, 1, 0));
    }
}
