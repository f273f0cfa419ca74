//! The words of a script and what they stand for.

use xroce_transport::EventKind;
use xroce_transport::memory::Access;
use xroce_transport::qp::state::QpState;
use xroce_transport::wc::{WcOpcode, WcStatus};
use xroce_wire::Operation;

/// A word and its meaning.
pub type Table<T> = &'static [(&'static str, T)];

/// The meaning of `word`.
pub fn find<T: Copy>(table: Table<T>, word: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
}

/// The word for `value`.
pub fn name<T: Copy + PartialEq>(table: Table<T>, value: T) -> &'static str {
    table.iter().find(|(_, v)| *v == value).map_or("?", |(name, _)| name)
}

/// Packets, beside those with an AETH of their own ([`ANSWERS`]).
pub const PACKETS: Table<Operation> = &[
    ("SEND_FIRST", Operation::SendFirst),
    ("SEND_MIDDLE", Operation::SendMiddle),
    ("SEND_LAST", Operation::SendLast),
    ("SEND_LAST_IMM", Operation::SendLastImm),
    ("SEND_ONLY", Operation::SendOnly),
    ("SEND_ONLY_IMM", Operation::SendOnlyImm),
    ("SEND_LAST_INV", Operation::SendLastInv),
    ("SEND_ONLY_INV", Operation::SendOnlyInv),
    ("WRITE_FIRST", Operation::WriteFirst),
    ("WRITE_MIDDLE", Operation::WriteMiddle),
    ("WRITE_LAST", Operation::WriteLast),
    ("WRITE_LAST_IMM", Operation::WriteLastImm),
    ("WRITE_ONLY", Operation::WriteOnly),
    ("WRITE_ONLY_IMM", Operation::WriteOnlyImm),
    ("READ_REQUEST", Operation::ReadRequest),
    ("READ_RESPONSE_FIRST", Operation::ReadResponseFirst),
    ("READ_RESPONSE_MIDDLE", Operation::ReadResponseMiddle),
    ("READ_RESPONSE_LAST", Operation::ReadResponseLast),
    ("READ_RESPONSE_ONLY", Operation::ReadResponseOnly),
    ("ATOMIC_ACK", Operation::AtomicAcknowledge),
    ("COMPARE_SWAP", Operation::CompareSwap),
    ("FETCH_ADD", Operation::FetchAdd),
    ("FLUSH", Operation::Flush),
    ("ATOMIC_WRITE", Operation::AtomicWrite),
];

/// Kinds of ACKNOWLEDGE packet, by the upper bits of the syndrome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// `ACK`: all is well.
    Ack,
    /// `RNR_NAK`: no RECV, wait.
    RnrNak,
    /// `NAK` with a code.
    Nak,
    /// `AETH`: any syndrome, given as a number.
    Any,
}

/// ACKNOWLEDGE packets by their syndrome.
pub const ANSWERS: Table<Answer> =
    &[("ACK", Answer::Ack), ("RNR_NAK", Answer::RnrNak), ("NAK", Answer::Nak), ("AETH", Answer::Any)];

/// NAK codes.
pub const NAK_CODES: Table<u8> = &[("sequence", 0), ("invalid", 1), ("access", 2), ("operational", 3)];

/// What the application posts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names of SendOp")]
pub enum PostOp {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    Read,
    CmpSwap,
    FetchAdd,
}

/// Operations of `post_send`.
pub const POSTS: Table<PostOp> = &[
    ("SEND", PostOp::Send),
    ("SEND_IMM", PostOp::SendImm),
    ("SEND_INV", PostOp::SendInv),
    ("WRITE", PostOp::Write),
    ("WRITE_IMM", PostOp::WriteImm),
    ("READ", PostOp::Read),
    ("CMP_SWAP", PostOp::CmpSwap),
    ("FETCH_ADD", PostOp::FetchAdd),
];

/// Completion statuses.
pub const STATUSES: Table<WcStatus> = &[
    ("success", WcStatus::Success),
    ("loc_len", WcStatus::LocLenErr),
    ("loc_qp_op", WcStatus::LocQpOpErr),
    ("loc_prot", WcStatus::LocProtErr),
    ("flushed", WcStatus::WrFlushErr),
    ("bad_resp", WcStatus::BadRespErr),
    ("loc_access", WcStatus::LocAccessErr),
    ("rem_inv_req", WcStatus::RemInvReqErr),
    ("rem_access", WcStatus::RemAccessErr),
    ("rem_op", WcStatus::RemOpErr),
    ("retry_exc", WcStatus::RetryExcErr),
    ("rnr_retry_exc", WcStatus::RnrRetryExcErr),
];

/// Completion opcodes.
pub const WC_OPCODES: Table<WcOpcode> = &[
    ("SEND", WcOpcode::Send),
    ("WRITE", WcOpcode::RdmaWrite),
    ("READ", WcOpcode::RdmaRead),
    ("CMP_SWAP", WcOpcode::CompSwap),
    ("FETCH_ADD", WcOpcode::FetchAdd),
    ("RECV", WcOpcode::Recv),
    ("RECV_IMM", WcOpcode::RecvRdmaWithImm),
];

/// States of a queue pair.
pub const STATES: Table<QpState> = &[
    ("RESET", QpState::Reset),
    ("INIT", QpState::Init),
    ("RTR", QpState::Rtr),
    ("RTS", QpState::Rts),
    ("SQD", QpState::Sqd),
    ("SQE", QpState::Sqe),
    ("ERR", QpState::Err),
];

/// Rights of a memory region or a queue pair.
pub const RIGHTS: Table<Access> = &[
    ("lw", Access::LOCAL_WRITE),
    ("rw", Access::REMOTE_WRITE),
    ("rr", Access::REMOTE_READ),
    ("ra", Access::REMOTE_ATOMIC),
    ("inv", Access::REMOTE_INVALIDATE),
    ("none", Access::empty()),
];

/// Asynchronous events, and the waking of a completion channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventName {
    /// An asynchronous event.
    Async(EventKind),
    /// An armed CQ got a completion that its sleeper waits for.
    Wakeup,
}

/// Events.
pub const EVENTS: Table<EventName> = &[
    ("COMM_EST", EventName::Async(EventKind::CommEst)),
    ("SQ_DRAINED", EventName::Async(EventKind::SqDrained)),
    ("QP_FATAL", EventName::Async(EventKind::QpFatal)),
    ("QP_REQ_ERR", EventName::Async(EventKind::QpReqErr)),
    ("QP_ACCESS_ERR", EventName::Async(EventKind::QpAccessErr)),
    ("CQ_ERR", EventName::Async(EventKind::CqErr)),
    ("CQ_WAKEUP", EventName::Wakeup),
];
