//! A packet lost on an unreliable connection.

use xroce_transport::qp::state::QpType;

use super::{A, At, B, Damage, Op, Play, Scenario, Setup, recv, send};

pub(super) static SCENARIO: Scenario = Scenario {
    name: "uc-gap",
    title: "UC: a gap loses one message",
    about: &[
        "UC has no ACK, no NAK and no retry. A send request is complete when its last packet is handed to the port. The receiver \
         counts PSNs only to see gaps: a message with a gap is forgotten, and the next FIRST or ONLY begins a new one, whatever \
         its PSN is.",
        "So UC delivers whole messages or none. Who needs to know must ask a layer above.",
    ],
    look: &[
        "No packet comes back, and A has no timer and no window.",
        "A gets three completions with success, B two.",
        "The RECV of the lost message is not consumed: the next message takes it.",
    ],
    play,
    notes: &[
        (At::Sent(A, 3), "The last packet has left: the request is complete, whatever becomes of it."),
        (At::Arrives(A, 3), "PSN 102 where 101 was due: the open message is forgotten. Its RECV stays."),
        (At::Arrives(A, 4), "FIRST begins a new message, whatever its PSN is. RECV 1 serves it."),
        (At::Arrives(A, 5), "RECV 1 completes with the second message. B's application never hears of the first."),
    ],
};

fn play() -> Play {
    let setup = Setup { kind: QpType::Uc, ..Setup::default() };
    let acts = vec![
        (0, B, recv(1, 4096)),
        (0, B, recv(2, 4096)),
        (0, A, send(1, Op::Send, 3000)),
        (0, A, send(2, Op::Send, 2000)),
        (0, A, send(3, Op::Send, 100)),
    ];
    Play::new(setup, acts).with(A, (2, 2), Damage::Lose)
}
