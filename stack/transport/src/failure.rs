//! Why something failed, in one line that a person can act upon.
//!
//! In: a completion with an error. Out: [`Failure`], its facts with their types, and a sentence that names the request, both
//! ends, the packet that decided, what the peer said about it and how long it was tried.

use core::fmt;

use xroce_wire::{Gid, Psn, Qpn, Syndrome};

use crate::drop::DropReason;
use crate::wc::{Wc, WcOpcode, WcStatus};
use crate::wr::WrId;

/// Why a queue pair is in ERR (UC: or in SQE).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum QpFault {
    /// A work request failed. What was flushed after it is not meant.
    Completion(Failure),
    /// The peer sent a request that was refused for good, and no RECV was there to tell by.
    Refused {
        /// PSN of the request packet.
        psn: Psn,
        /// What was wrong with it.
        reason: DropReason,
    },
}

/// A work request that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The application's number of the request.
    pub wr_id: WrId,
    /// How it ended.
    pub status: WcStatus,
    /// What it was. A RECV is [`WcOpcode::Recv`] whatever was coming in.
    pub opcode: WcOpcode,
    /// The local queue pair.
    pub qpn: Qpn,
    /// The peer's queue pair and address; `None` for what was flushed.
    pub peer: Option<(Qpn, Gid)>,
    /// PSN of the packet that decided.
    pub psn: Psn,
    /// What the peer said, if that decided.
    pub syndrome: Option<Syndrome>,
    /// How often the request was sent again.
    pub retries: u8,
    /// Nanoseconds from the first of these retries to the failure, to the microsecond.
    pub retried_ns: u64,
    /// The ACK timer of the queue pair, nanoseconds; 0 if it had none.
    pub ack_timeout_ns: u64,
}

impl Wc {
    /// The facts of a completion that is no success.
    pub fn failure(&self) -> Option<Failure> {
        let detail = &self.detail;
        (!self.status.is_success()).then(|| Failure {
            wr_id: self.wr_id,
            status: self.status,
            opcode: self.opcode,
            qpn: self.qpn,
            peer: detail.peer.map(|gid| (self.src_qp, gid)),
            psn: detail.psn,
            syndrome: (detail.syndrome != 0).then(|| Syndrome::from_byte(detail.syndrome)),
            retries: detail.retries,
            retried_ns: u64::from(detail.retried_us) * 1000,
            ack_timeout_ns: if detail.timeout == 0 { 0 } else { 4096 << detail.timeout },
        })
    }
}

/// Nanoseconds as people say them.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000_000 => write!(f, "{} µs", self.0 / 1000),
            1_000_000..1_000_000_000 => write!(f, "{:.1} ms", self.0 as f64 / 1e6),
            _ => write!(f, "{:.2} s", self.0 as f64 / 1e9),
        }
    }
}

impl WcOpcode {
    /// The verb, as in the specification.
    pub const fn name(self) -> &'static str {
        match self {
            WcOpcode::Send => "SEND",
            WcOpcode::RdmaWrite => "WRITE",
            WcOpcode::RdmaRead => "READ",
            WcOpcode::CompSwap => "CMP_SWAP",
            WcOpcode::FetchAdd => "FETCH_ADD",
            WcOpcode::Recv => "RECV",
            WcOpcode::RecvRdmaWithImm => "RECV of a WRITE with immediate",
        }
    }
}

impl Failure {
    /// "after 7 retries in 1.61 s", with what stands before it; nothing without retries.
    fn retried(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retries {
            0 => Ok(()),
            1 => write!(f, " after 1 retry in {}", Time(self.retried_ns)),
            n => write!(f, " after {n} retries in {}", Time(self.retried_ns)),
        }
    }

    /// What the peer said, and in which byte.
    fn said(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.syndrome {
            Some(syndrome) => write!(f, "{syndrome} (syndrome {:#04x})", syndrome.byte()),
            None => f.write_str(self.status.as_str()),
        }
    }

    fn reason(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recv = matches!(self.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
        match self.status {
            WcStatus::WrFlushErr => f.write_str("not carried out, the queue pair had failed before"),
            WcStatus::RetryExcErr => {
                write!(f, "PSN {} not acknowledged", self.psn)?;
                self.retried(f)?;
                write!(f, " (ACK timeout {})", Time(self.ack_timeout_ns))
            }
            WcStatus::RnrRetryExcErr => {
                write!(f, "no RECV is posted there for PSN {}: ", self.psn)?;
                self.said(f)?;
                self.retried(f)
            }
            WcStatus::RemInvReqErr | WcStatus::RemAccessErr | WcStatus::RemOpErr => {
                write!(f, "PSN {} refused: ", self.psn)?;
                self.said(f)?;
                self.retried(f)
            }
            WcStatus::LocLenErr if recv => write!(f, "the message with PSN {} does not fit the RECV", self.psn),
            WcStatus::LocLenErr => write!(f, "the READ response with PSN {} has the wrong length", self.psn),
            WcStatus::LocProtErr => {
                write!(f, "an lkey, a range or a right of its own buffer is wrong, found at PSN {}", self.psn)
            }
            WcStatus::LocQpOpErr => f.write_str("a READ or atomic, but the queue pair's max_rd_atomic is 0"),
            WcStatus::BadRespErr => write!(f, "PSN {} was answered by a response of another kind", self.psn),
            WcStatus::LocAccessErr => write!(f, "PSN {} names a key to invalidate that it may not", self.psn),
            other => write!(f, "{other}, PSN {}", self.psn),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { wr_id, status, opcode, qpn, peer, .. } = self;
        write!(f, "{} (status {}): {} wr_id {}, QP {qpn}", status.name(), *status as u8, opcode.name(), wr_id.0)?;
        if let Some((peer_qpn, gid)) = peer {
            write!(f, " → {peer_qpn} at {}", gid.to_ip())?;
        }
        f.write_str(": ")?;
        self.reason(f)
    }
}

impl fmt::Display for QpFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QpFault::Completion(failure) => failure.fmt(f),
            QpFault::Refused { psn, reason } => {
                write!(f, "the peer's request with PSN {psn} was refused: {}", reason.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wc::WcDetail;
    use core::net::Ipv4Addr;

    fn wc(status: WcStatus, syndrome: u8) -> Wc {
        Wc {
            wr_id: WrId(7),
            status,
            opcode: WcOpcode::RdmaWrite,
            qpn: Qpn::new(0x12345),
            src_qp: Qpn::new(0x54321),
            detail: WcDetail {
                peer: Some(Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, 2))),
                psn: Psn::new(0xabcdef),
                syndrome,
                retries: 7,
                timeout: 14,
                retried_us: 1_610_612,
            },
            ..Wc::default()
        }
    }

    fn line(wc: &Wc) -> String {
        wc.failure().unwrap().to_string()
    }

    #[test]
    fn a_success_has_no_failure() {
        assert_eq!(Wc::default().failure(), None);
    }

    #[test]
    fn one_line_names_everything() {
        assert_eq!(
            line(&wc(WcStatus::RetryExcErr, 0)),
            "RETRY_EXC_ERR (status 12): WRITE wr_id 7, QP 0x012345 → 0x054321 at 10.0.0.2: PSN 0xabcdef not acknowledged after \
             7 retries in 1.61 s (ACK timeout 67.1 ms)"
        );
        assert_eq!(
            line(&wc(WcStatus::RnrRetryExcErr, 0x2c)),
            "RNR_RETRY_EXC_ERR (status 13): WRITE wr_id 7, QP 0x012345 → 0x054321 at 10.0.0.2: no RECV is posted there for PSN \
             0xabcdef: RNR NAK, wait 0.64 ms (syndrome 0x2c) after 7 retries in 1.61 s"
        );
        let refused = Wc {
            detail: WcDetail { retries: 0, ..wc(WcStatus::RemAccessErr, 0x62).detail },
            ..wc(WcStatus::RemAccessErr, 0)
        };
        assert_eq!(
            line(&refused),
            "REM_ACCESS_ERR (status 10): WRITE wr_id 7, QP 0x012345 → 0x054321 at 10.0.0.2: PSN 0xabcdef refused: NAK, remote \
             access error (syndrome 0x62)"
        );
    }

    #[test]
    fn what_was_flushed_names_no_peer() {
        let flushed = Wc { status: WcStatus::WrFlushErr, opcode: WcOpcode::Recv, qpn: Qpn::new(3), ..Wc::default() };
        assert_eq!(
            line(&flushed),
            "WR_FLUSH_ERR (status 5): RECV wr_id 0, QP 0x000003: not carried out, the queue pair had failed before"
        );
    }

    #[test]
    fn every_status_makes_one_line() {
        for status in WcStatus::ALL.iter().filter(|s| !s.is_success()) {
            let text = line(&wc(*status, 0));
            assert!(text.starts_with(status.name()) && !text.contains('\n') && !text.ends_with(": "), "{text}");
        }
    }

    #[test]
    fn times_are_short() {
        assert_eq!(
            [Time(0), Time(640_000), Time(67_108_864), Time(1 << 32)].map(|t| t.to_string()),
            ["0 µs", "640 µs", "67.1 ms", "4.29 s"]
        );
    }
}
