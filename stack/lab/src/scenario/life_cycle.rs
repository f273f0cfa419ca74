//! Two queue pairs from RESET to RESET.

use xroce_transport::qp::state::QpState::{Err, Init, Reset, Rtr, Rts, Sqd};

use super::{A, Act, At, B, Op, Play, Scenario, Setup, US, recv, send};

pub(super) static SCENARIO: Scenario = Scenario {
    name: "life-cycle",
    title: "The life cycle of a queue pair",
    about: &[
        "A queue pair is made in RESET and moved on by modify_qp: INIT (it has a port and rights), RTR (it knows its peer and \
         serves requests), RTS (it sends its own). RTR and RTS are separate because each end needs the other's number and first \
         PSN before it can receive.",
        "SQD lets requests on the wire finish and starts no new one: a quiet moment to change attributes. ERR flushes everything \
         that is posted, each with a completion. RESET forgets everything, without any.",
    ],
    look: &[
        "What each state allows: a SEND is refused before RTS, a RECV before INIT.",
        "B serves a request in RTR, before it may send one itself, and learns by COMM_EST that the connection works.",
        "In SQD the second SEND stays posted; RTS starts it.",
        "ERR completes the waiting RECV with a flush error; after RESET nothing is left.",
    ],
    play,
    notes: &[
        (At::Call(A, 1), "In RESET nothing may be posted: the call fails, and nothing else happens."),
        (At::Call(B, 2), "From INIT on RECVs may be posted, so that they are there when the first message comes."),
        (
            At::Call(A, 5),
            "RTS: sq_psn was the last thing to be set. A's next PSN is B's ePSN, as the two have told each other.",
        ),
        (At::Arrives(A, 1), "B is only in RTR, and serves the request. The first packet raises the event COMM_EST."),
        (At::Call(A, 7), "Nothing is on the wire, so SQ_DRAINED comes at once."),
        (At::Call(A, 8), "In SQD a post is taken, but the request does not start: it waits in the send queue."),
        (At::Call(A, 9), "Back in RTS the waiting request starts by itself."),
        (
            At::Call(B, 6),
            "Everything posted completes with a flush error, in order. The status says nothing about why.",
        ),
        (
            At::Call(B, 7),
            "RESET forgets: ePSN, MSN and queues begin anew. A must be reset as well before the two can be connected again.",
        ),
    ],
};

fn play() -> Play {
    let setup = Setup { connected: false, ..Setup::default() };
    let to = Act::Modify;
    let acts = vec![
        (0, A, send(1, Op::Send, 64)),
        (10 * US, A, to(Init)),
        (20 * US, B, to(Init)),
        (30 * US, B, recv(1, 256)),
        (40 * US, B, recv(2, 256)),
        (50 * US, B, recv(3, 256)),
        (60 * US, B, to(Rtr)),
        (70 * US, A, to(Rtr)),
        (80 * US, A, send(2, Op::Send, 64)),
        (90 * US, A, to(Rts)),
        (100 * US, A, send(3, Op::Send, 64)),
        (150 * US, A, to(Sqd)),
        (160 * US, A, send(4, Op::Send, 64)),
        (200 * US, A, to(Rts)),
        (250 * US, B, to(Err)),
        (260 * US, B, to(Reset)),
        (270 * US, A, to(Reset)),
    ];
    Play::new(setup, acts)
}
