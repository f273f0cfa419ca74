//! A SEND for which there is no RECV.

use super::{A, At, B, Op, Play, Scenario, Setup, US, recv, send};

pub(super) static SCENARIO: Scenario = Scenario {
    name: "rnr",
    title: "RNR: the receiver is not ready",
    about: &[
        "A SEND needs a RECV at the other side. If none is posted, the responder answers with an RNR NAK, whose syndrome carries a \
         code: how long the requester has to wait before it tries again (min_rnr_timer of the responder).",
        "Each wait costs one of rnr_retry; 7 means for ever. Progress gives them back.",
    ],
    look: &[
        "The RNR NAK has the PSN of the SEND: nothing was taken, ePSN stays.",
        "The second SEND was on the wire already. B drops it in silence, since a NAK is pending.",
        "During the wait A sends nothing and its ACK timer is off.",
        "The first wait ends before B has posted its RECV, so there is a second one.",
    ],
    play,
    notes: &[
        (At::Arrives(A, 1), "No RECV: B takes nothing, ePSN stays 100. The RNR NAK carries timer code 8, 0.16 ms."),
        (At::Arrives(A, 2), "Ahead of ePSN, and a NAK is pending: no further answer."),
        (
            At::Arrives(B, 1),
            "A stops. Nothing goes out before the wait is over, and the ACK timer is off. One RNR retry is spent.",
        ),
        (At::Timer(A, 1), "The coded time has passed. A sends both again."),
        (At::Call(B, 1), "The RECVs come while A waits. Nothing tells A: only the next try will find them."),
        (At::Arrives(A, 5), "Now there is a RECV."),
        (At::Arrives(B, 3), "One ACK for both, and all RNR retries are there again."),
    ],
};

fn play() -> Play {
    let acts = vec![
        (0, A, send(1, Op::Send, 800)),
        (0, A, send(2, Op::Send, 800)),
        (300 * US, B, recv(1, 1024)),
        (300 * US, B, recv(2, 1024)),
    ];
    Play::new(Setup::default(), acts)
}
