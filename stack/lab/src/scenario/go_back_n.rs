//! Several messages on the wire, one packet lost: everything behind it goes again.

use super::{A, At, B, Damage, Op, Play, Scenario, Setup, send};

pub(super) static SCENARIO: Scenario = Scenario {
    name: "go-back-n",
    title: "NAK and go-back-N",
    about: &[
        "A NAK with PSN n says two things: all before n has arrived, and n has not. The requester completes what lies before, goes \
         back to n, and sends everything from there again, though most of it had arrived once.",
        "The responder sends one NAK for a gap and then stays silent until the expected PSN comes. Otherwise each packet behind \
         the gap would start a resend of its own.",
    ],
    look: &[
        "Three WRITEs, one packet of the second is lost. The NAK also acknowledges the first WRITE.",
        "How many packets B drops that had arrived unharmed: the price of go-back-N, which grows with the round trip.",
        "Packets that go again keep their PSN and their opcode. A MIDDLE has no RETH the second time either.",
    ],
    play,
    notes: &[
        (At::Sent(A, 4), "PSN 103, in the second WRITE, is lost."),
        (At::Arrives(A, 5), "The first packet ahead of ePSN: one NAK. It carries ePSN, 103."),
        (At::Arrives(A, 6), "Ahead as well. B stays silent, since a NAK is pending."),
        (At::Arrives(B, 1), "The NAK acknowledges PSN 100 to 102, so WR 1 is complete. The next PSN goes back to 103."),
        (At::Sent(A, 8), "The same PSN and opcode, built anew from memory: nothing that was sent is kept."),
        (At::Arrives(A, 8), "ePSN has come: no NAK is pending any more."),
        (At::Arrives(B, 2), "One ACK acknowledges everything up to its PSN: both WRITEs complete."),
    ],
};

fn play() -> Play {
    let acts =
        vec![(0, A, send(1, Op::Write, 1500)), (0, A, send(2, Op::Write, 4000)), (0, A, send(3, Op::Write, 700))];
    Play::new(Setup::default(), acts).with(A, (4, 4), Damage::Lose)
}
