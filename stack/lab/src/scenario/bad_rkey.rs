//! A WRITE with a key that is not the peer's.

use super::{A, At, B, Op, Play, Scenario, Setup, recv, send};

pub(super) static SCENARIO: Scenario = Scenario {
    name: "bad-rkey",
    title: "A wrong R_Key ends the connection",
    about: &[
        "A WRITE names memory of the peer by address and R_Key. The responder checks key, protection domain, range and rights. If \
         one fails it answers \"remote access error\" and goes to ERR: who guesses keys gets one guess.",
        "The requester completes what lies before the NAK with success, the request it belongs to with \"remote access error\", \
         everything behind it as flushed, and goes to ERR as well. Both must be reset and connected anew.",
    ],
    look: &[
        "The first WRITE succeeds: the NAK acknowledges it.",
        "MSN of the NAK: the failed request does not count.",
        "The third WRITE was on the wire. B is in ERR and drops it; at A it is flushed.",
        "B's waiting RECV is flushed too. Its application also learns by the event QP_ACCESS_ERR.",
    ],
    play,
    notes: &[
        (
            At::Arrives(A, 2),
            "B has no region with this key. It answers, goes to ERR and flushes its RECV. No request of B's own \
             failed, so its application learns by an event.",
        ),
        (At::Arrives(A, 3), "In ERR every packet is dropped without an answer."),
        (
            At::Arrives(B, 1),
            "Success for WR 1, which lies before the PSN of the NAK; the error for WR 2; a flush for WR 3.",
        ),
    ],
};

fn play() -> Play {
    let acts = vec![
        (0, B, recv(1, 512)),
        (0, A, send(1, Op::Write, 300)),
        (0, A, send(2, Op::WriteWithKey(0x0BAD_0BAD), 300)),
        (0, A, send(3, Op::Write, 300)),
    ];
    Play::new(Setup::default(), acts)
}
