//! Work completions: what became of a work request.
//!
//! In: the outcome as the protocol sees it. Out: the record an application polls, with the verbs numbers and strings.
#![forbid(unsafe_code)]

use crate::wr::WrId;
use bitflags::bitflags;
use core::fmt;
use xroce_wire::{Gid, ImmData, Psn, Qpn, Rkey};

macro_rules! status {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $verbs:literal, $text:literal;)*) => {
        /// How a work request ended: the numbers of `enum ibv_wc_status` (rdma-core, libibverbs/verbs.h).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        // rule: wc.status
        pub enum WcStatus {
            $($(#[$doc])* #[doc = concat!("`", $text, "`")] $name = $value,)*
        }

        impl WcStatus {
            /// Every status, in the order of the numbers.
            pub const ALL: &'static [WcStatus] = &[$(WcStatus::$name),*];

            /// The text that `ibv_wc_status_str` gives.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(WcStatus::$name => $text,)*
                }
            }

            /// The name in verbs, without `IBV_WC_`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(WcStatus::$name => $verbs,)*
                }
            }
        }
    };
}

status! {
    Success = 0, "SUCCESS", "success";
    /// The message does not fit the RECV, or is longer than the port allows.
    LocLenErr = 1, "LOC_LEN_ERR", "local length error";
    /// The QP cannot do what was asked.
    LocQpOpErr = 2, "LOC_QP_OP_ERR", "local QP operation error";
    LocEecOpErr = 3, "LOC_EEC_OP_ERR", "local EE context operation error";
    /// A local key, range or right was wrong.
    LocProtErr = 4, "LOC_PROT_ERR", "local protection error";
    /// The QP was in error before this request was carried out.
    WrFlushErr = 5, "WR_FLUSH_ERR", "Work Request Flushed Error";
    MwBindErr = 6, "MW_BIND_ERR", "memory management operation error";
    /// The peer answered something else than was asked.
    BadRespErr = 7, "BAD_RESP_ERR", "bad response error";
    /// A right was missing for an incoming RDMA operation.
    LocAccessErr = 8, "LOC_ACCESS_ERR", "local access error";
    /// The peer says the request is invalid (NAK 1).
    RemInvReqErr = 9, "REM_INV_REQ_ERR", "remote invalid request error";
    /// The peer's key, range or rights forbid it (NAK 2).
    RemAccessErr = 10, "REM_ACCESS_ERR", "remote access error";
    /// The peer could not complete it (NAK 3).
    RemOpErr = 11, "REM_OP_ERR", "remote operation error";
    /// No answer after all retries.
    RetryExcErr = 12, "RETRY_EXC_ERR", "transport retry counter exceeded";
    /// The peer had no RECV after all RNR retries.
    RnrRetryExcErr = 13, "RNR_RETRY_EXC_ERR", "RNR retry counter exceeded";
    LocRddViolErr = 14, "LOC_RDD_VIOL_ERR", "local RDD violation error";
    RemInvRdReqErr = 15, "REM_INV_RD_REQ_ERR", "remote invalid RD request";
    RemAbortErr = 16, "REM_ABORT_ERR", "aborted error";
    InvEecnErr = 17, "INV_EECN_ERR", "invalid EE context number";
    InvEecStateErr = 18, "INV_EEC_STATE_ERR", "invalid EE context state";
    FatalErr = 19, "FATAL_ERR", "fatal error";
    RespTimeoutErr = 20, "RESP_TIMEOUT_ERR", "response timeout error";
    GeneralErr = 21, "GENERAL_ERR", "general error";
    TmErr = 22, "TM_ERR", "TM error";
    TmRndvIncomplete = 23, "TM_RNDV_INCOMPLETE", "TM software rendezvous";
}

impl WcStatus {
    /// Whether the request did what it should.
    pub const fn is_success(self) -> bool {
        matches!(self, WcStatus::Success)
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What kind of request ended: the numbers of `enum ibv_wc_opcode`. Meaningful on success only, as in verbs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum WcOpcode {
    /// A SEND of any kind.
    Send = 0,
    /// An RDMA WRITE, with or without immediate data.
    RdmaWrite = 1,
    /// An RDMA READ.
    RdmaRead = 2,
    /// A compare and swap.
    CompSwap = 3,
    /// A fetch and add.
    FetchAdd = 4,
    /// A RECV that took a SEND.
    Recv = 128,
    /// A RECV that took the immediate data of an RDMA WRITE.
    RecvRdmaWithImm = 129,
}

bitflags! {
    /// The numbers of `enum ibv_wc_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct WcFlags: u32 {
        /// The receive buffer begins with 40 bytes of routing header (datagram QPs).
        const GRH = 1;
        /// Immediate data came along.
        const WITH_IMM = 2;
        /// The peer invalidated the key in [`Wc::imm_or_rkey`].
        const WITH_INV = 8;
    }
}

/// What the protocol knows beyond the status. All zero and `None` on success.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WcDetail {
    /// Address of the peer.
    pub peer: Option<Gid>,
    /// PSN of the packet that decided.
    pub psn: Psn,
    /// AETH syndrome byte of the NAK that decided; 0 if none did.
    pub syndrome: u8,
    /// How often the request was sent again since anything was last acknowledged: for
    /// [`WcStatus::RnrRetryExcErr`] after RNR NAKs, else for want of an answer.
    pub retries: u8,
    /// The queue pair's ACK timer, 4.096 µs * 2^timeout; 0 if it had none.
    pub timeout: u8,
    /// Microseconds from the first of these retries to the failure; what does not fit is `u32::MAX`.
    pub retried_us: u32,
}

impl WcDetail {
    /// No detail: a success.
    pub const NONE: WcDetail =
        WcDetail { peer: None, psn: Psn::new(0), syndrome: 0, retries: 0, timeout: 0, retried_us: 0 };
}

impl Default for WcDetail {
    fn default() -> Self {
        Self::NONE
    }
}

/// A work completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wc {
    /// The application's number of the work request.
    pub wr_id: WrId,
    /// How it ended.
    pub status: WcStatus,
    /// What it was.
    pub opcode: WcOpcode,
    /// Bytes received or read. For a RECV of an RDMA WRITE with immediate data: the length of that WRITE.
    pub byte_len: u32,
    /// With [`WcFlags::WITH_IMM`] the immediate data, with [`WcFlags::WITH_INV`] the number of the key.
    pub imm: ImmData,
    /// The local queue pair.
    pub qpn: Qpn,
    /// The peer's queue pair. 0 for work that was flushed.
    pub src_qp: Qpn,
    /// What came along.
    pub flags: WcFlags,
    /// What the protocol knows beyond the status.
    pub detail: WcDetail,
}

// The completion ring copies these; a cache line each is the budget.
const _: () = assert!(size_of::<Wc>() <= 72);

impl Wc {
    /// The immediate data, or the number of the invalidated key, by [`Wc::flags`]. As in verbs the two share a place.
    pub const fn imm_or_rkey(&self) -> u32 {
        self.imm.0
    }

    /// The immediate data, if there is any.
    pub fn imm_data(&self) -> Option<ImmData> {
        self.flags.contains(WcFlags::WITH_IMM).then_some(self.imm)
    }

    /// The key that the peer invalidated, if it did.
    pub fn invalidated_rkey(&self) -> Option<Rkey> {
        self.flags.contains(WcFlags::WITH_INV).then_some(Rkey(self.imm.0))
    }
}

impl Default for Wc {
    /// A success with all numbers zero: something to poll into.
    fn default() -> Self {
        Wc {
            wr_id: WrId(0),
            status: WcStatus::Success,
            opcode: WcOpcode::Send,
            byte_len: 0,
            imm: ImmData(0),
            qpn: Qpn::new(0),
            src_qp: Qpn::new(0),
            flags: WcFlags::empty(),
            detail: WcDetail::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    // rule: wc.status
    fn numbers_and_texts_are_those_of_verbs() {
        assert!(WcStatus::ALL.iter().enumerate().all(|(i, status)| i == *status as usize));
        assert_eq!(WcStatus::ALL.len(), 24);
        assert_eq!(WcStatus::WrFlushErr.to_string(), "Work Request Flushed Error");
        assert_eq!(WcStatus::RetryExcErr as u8, 12);
        assert_eq!(WcStatus::RetryExcErr.as_str(), "transport retry counter exceeded");
        assert_eq!(WcStatus::RetryExcErr.name(), "RETRY_EXC_ERR");
        assert_eq!(WcStatus::GeneralErr as u8, 21);
        assert_eq!(WcOpcode::RecvRdmaWithImm as u8, 129);
        assert_eq!(WcFlags::WITH_INV.bits(), 8);
    }

    #[test]
    fn immediate_data_and_key_share_a_place() {
        let with = |flags| Wc { imm: ImmData(0x8765_4321), flags, ..Wc::default() };
        assert_eq!(with(WcFlags::WITH_IMM).imm_data(), Some(ImmData(0x8765_4321)));
        assert_eq!(with(WcFlags::WITH_IMM).invalidated_rkey(), None);
        assert_eq!(with(WcFlags::WITH_INV).invalidated_rkey(), Some(Rkey(0x8765_4321)));
        assert_eq!(with(WcFlags::WITH_INV).imm_data(), None);
        assert_eq!(with(WcFlags::empty()).imm_or_rkey(), 0x8765_4321);
    }
}
