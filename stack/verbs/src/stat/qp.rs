//! A queue pair at one moment, as a value that can leave the process.
//!
//! In: what it is set to, and what it is in the middle of. Out: both in plain numbers and texts.
#![forbid(unsafe_code)]

use xroce_transport::qp::state::QpState;
use xroce_transport::qp::{NakState, QpInfo, QpSnapshot};
use xroce_wire::Qpn;

use super::Numbers;

/// A queue pair at one moment. Before RTR there is no peer, and PSNs say nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "stat", derive(serde::Serialize, serde::Deserialize))]
pub struct QpStat {
    /// Its number.
    pub qpn: u32,
    /// RC or UC.
    pub qp_type: String,
    /// RESET, INIT, RTR, RTS, SQD, SQE or ERR.
    pub state: String,
    /// The shard it lives on.
    pub shard: u32,
    /// The peer's queue pair.
    pub dest_qpn: Option<u32>,
    /// The peer's address.
    pub peer: Option<String>,
    /// Our address.
    pub local: Option<String>,
    /// Bytes of payload of one packet.
    pub path_mtu: Option<u32>,
    /// PSN of the next packet to send; it steps back when packets are sent again.
    pub sq_psn: u32,
    /// Oldest PSN that is not acknowledged.
    pub una_psn: u32,
    /// One behind the highest PSN that was ever sent.
    pub sent_end_psn: u32,
    /// PSN that the next new request of the peer has.
    pub epsn: u32,
    /// Messages of the peer carried out, modulo 2^24; none for UC.
    pub msn: Option<u32>,
    /// Send requests that are started and not done.
    pub outstanding: u32,
    /// Send requests that wait to be started.
    pub waiting: u32,
    /// RECVs that are posted.
    pub recvs: u32,
    /// Request packets sent and not acknowledged.
    pub in_flight: u32,
    /// How many there may be.
    pub window: u32,
    /// READs and atomics that wait for an answer.
    pub rd_atomics: u32,
    /// How many there may be.
    pub max_rd_atomic: u32,
    /// The ACK timer, 4.096 µs * 2^timeout; 0 for none.
    pub timeout: u8,
    /// The ACK timer runs: an answer is awaited.
    pub ack_awaited: bool,
    /// An RNR NAK asked to wait.
    pub rnr_waiting: bool,
    /// Resends left until the request fails.
    pub retries_left: u8,
    /// Of so many.
    pub retry_cnt: u8,
    /// RNR waits left; 7 stays 7.
    pub rnr_retries_left: u8,
    /// Of so many.
    pub rnr_retry: u8,
    /// The NAK after which the responder is silent until the expected PSN comes: none, sequence or rnr.
    pub nak: String,
    /// Responses that wait to be sent.
    pub responses: u32,
    /// Why it failed, if it did.
    pub last_error: Option<String>,
    /// What it has counted.
    pub counters: Numbers,
}

impl QpStat {
    pub(super) fn new(shard: usize, info: &QpInfo, snapshot: &QpSnapshot) -> QpStat {
        let (requester, responder) = (&snapshot.requester, &snapshot.responder);
        QpStat {
            qpn: info.qpn.value(),
            qp_type: info.kind.to_string(),
            state: snapshot.state.to_string(),
            shard: shard as u32,
            dest_qpn: info.path.and(info.attr.dest_qp_num).map(Qpn::value),
            peer: info.path.map(|path| path.dst.to_ip().to_string()),
            local: info.path.map(|path| path.src.to_ip().to_string()),
            path_mtu: info.attr.path_mtu.map(|mtu| mtu.bytes() as u32),
            sq_psn: requester.next_psn.value(),
            una_psn: requester.oldest_unacked.value(),
            sent_end_psn: requester.sent_end.value(),
            epsn: responder.epsn.value(),
            msn: responder.msn.map(|msn| msn.value()),
            outstanding: snapshot.outstanding,
            waiting: snapshot.waiting,
            recvs: snapshot.recvs,
            in_flight: requester.in_flight,
            window: requester.window,
            rd_atomics: requester.rd_atomics,
            max_rd_atomic: requester.max_rd_atomic,
            timeout: info.attr.timeout.unwrap_or(0),
            ack_awaited: requester.ack_deadline.is_some(),
            rnr_waiting: requester.rnr_wait.is_some(),
            retries_left: requester.retries_left,
            retry_cnt: info.attr.retry_cnt.unwrap_or(0),
            rnr_retries_left: requester.rnr_retries_left,
            rnr_retry: info.attr.rnr_retry.unwrap_or(0),
            nak: match responder.nak {
                NakState::None => "none",
                NakState::Sequence => "sequence",
                NakState::Rnr => "rnr",
            }
            .to_owned(),
            responses: responder.responses,
            last_error: snapshot.fault.map(|fault| fault.to_string()),
            counters: info.counters.iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }

    /// Messages that this end has sent and seen completed.
    pub fn messages_sent(&self) -> u64 {
        self.counter("rdma_sends")
    }

    /// Messages that the peer has had carried out: RECVs, WRITEs, READs and atomics.
    pub fn messages_received(&self) -> u64 {
        // A WRITE with immediate data counts as a WRITE and as a RECV.
        ["rdma_recvs", "rx_write_requests", "rx_read_requests", "rx_atomic_requests"]
            .map(|name| self.counter(name))
            .iter()
            .sum()
    }

    /// A counter by its name; 0 for one that there is not.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// It has failed.
    pub fn is_in_error(&self) -> bool {
        [QpState::Err, QpState::Sqe].iter().any(|state| self.state == state.to_string())
    }
}
