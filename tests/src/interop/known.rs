//! What the kernel's rdma_rxe does otherwise than the specification: the only differences that are tolerated.

use std::fmt;

/// A known fault of rdma_rxe, seen in kernels 6.1, 6.12 and 7.3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Known {
    /// As responder it answers a SEND longer than the RECV by a NAK of remote operational error (WC 11 at the requester), not
    /// of invalid request (WC 9).
    LongSendIsOperationalError,
    /// Its own RECV then ends with WC 2 (local QP operation), not WC 1 (local length).
    LongSendRecvIsQpOperation,
    /// Its RECV of a SEND with invalidate has the kernel's flag 4 in wc_flags, not verbs' 8.
    InvalidateFlagIsFour,
    /// A QP that goes from SQD to RTS does not begin what was posted before: the next post does.
    SqdForgetsItsQueue,
    /// A QP in SQD whose last requests were all acknowledged by one packet has no event of it until the next post: its
    /// completer looks whether everything is acknowledged before it counts the packet it has before it, and nothing looks
    /// again (complete_ack in rxe_comp.c).
    SqdTellsAtTheNextPost,
    /// UC: after a SEND that lost a packet it drops the next message too.
    UcForgetsTheNextMessage,
    /// UC: after a WRITE that lost a packet it takes no message of one packet more.
    UcDeafAfterLostWrite,
    /// 6.1 says max_msg_sz 8 MiB, so the longest message is that long and not 64 MiB.
    MessageSizeOf8MiB,
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LongSendIsOperationalError => "rxe: SEND longer than the RECV is NAK 3 (WC 11), not NAK 1 (WC 9)",
            Self::LongSendRecvIsQpOperation => "rxe: RECV shorter than the SEND ends with WC 2, not WC 1",
            Self::InvalidateFlagIsFour => "rxe: wc_flags of a SEND with invalidate is 4, not 8",
            Self::SqdForgetsItsQueue => "rxe: RTS after SQD begins nothing until the next post",
            Self::SqdTellsAtTheNextPost => "rxe: that SQD has drained is said at the next post only",
            Self::UcForgetsTheNextMessage => "rxe: a lost packet of a UC SEND takes the next message along",
            Self::UcDeafAfterLostWrite => "rxe: a lost packet of a UC WRITE makes it deaf for messages of one packet",
            Self::MessageSizeOf8MiB => "rxe 6.1: max_msg_sz is 8 MiB, so no 64 MiB",
        })
    }
}
