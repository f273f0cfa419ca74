//! PSNs that go around.

use super::{A, At, B, Damage, Op, Play, Scenario, Setup, send};

pub(super) static SCENARIO: Scenario = Scenario {
    name: "psn-wrap",
    title: "PSNs wrap at 2^24",
    about: &[
        "A PSN has 24 bits: behind 16,777,215 comes 0. Before and behind are decided by distance: a PSN is ahead if it is less than \
         2^23 further on, else it is a duplicate. So no more than 2^23 PSNs may be unacknowledged.",
        "Both ends start at random PSNs in practice; here A starts two before the end.",
    ],
    look: &[
        "The PSNs of one WRITE: 16777214, 16777215, 0, 1, 2.",
        "PSN 0 is lost: PSN 1 is ahead of ePSN 0, and the NAK with PSN 0 acknowledges 16777214 and 16777215.",
        "MSN counts messages and does not wrap here: it is a counter of its own.",
    ],
    play,
    notes: &[
        (At::Sent(A, 3), "Behind 16777215 comes 0. This packet is lost."),
        (At::Arrives(A, 2), "ePSN has wrapped: it is 0."),
        (
            At::Arrives(A, 4),
            "PSN 1 is one further than ePSN 0: ahead. Compared as plain numbers 16777215 would be ahead of both.",
        ),
        (At::Arrives(B, 1), "The NAK with PSN 0 acknowledges what lies before it: 16777214 and 16777215."),
    ],
};

fn play() -> Play {
    let setup = Setup { psns: [0xFF_FFFE, 500], ..Setup::default() };
    Play::new(setup, vec![(0, A, send(1, Op::Write, 5000))]).with(A, (3, 3), Damage::Lose)
}
