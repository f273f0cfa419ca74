//! A packet with a flipped bit.

use super::{A, At, B, Damage, Op, Play, Scenario, Setup, recv, send};

pub(super) static SCENARIO: Scenario = Scenario {
    name: "bad-icrc",
    title: "A corrupted packet: the ICRC is wrong",
    about: &[
        "Every packet ends with the invariant CRC: a CRC-32 over everything that no router may change, from the IP header to the \
         pad. Fields that routers do change (traffic class, TTL, header checksum, UDP checksum, and the BTH byte of FECN and BECN) \
         are replaced by ones in the calculation.",
        "A packet with a wrong ICRC is dropped without a word: nothing in it can be trusted, not even the PSN. To the requester \
         it is as good as lost.",
    ],
    look: &[
        "Select the corrupted packet and its bytes: which are covered by the ICRC, which are masked, and where the flipped bit is.",
        "No NAK says \"bad CRC\". The gap behind it does the work.",
    ],
    play,
    notes: &[
        (
            At::Arrives(A, 1),
            "One bit of the payload is not what was sent. The CRC over the packet is not the one at its end: \
             dropped and counted, and nothing changes.",
        ),
        (At::Arrives(A, 2), "ePSN is still 100: the gap shows, and the NAK says so."),
        (At::Sent(A, 4), "A builds the packet again from its memory, and with it the right ICRC."),
    ],
};

/// A bit of the payload: the 1,024 bytes begin behind IPv4 (20), UDP (8) and BTH (12).
const FLIPPED: usize = (40 + 5) * 8 + 6;

fn play() -> Play {
    let acts = vec![(0, B, recv(1, 4096)), (0, A, send(1, Op::Send, 2500))];
    Play::new(Setup::default(), acts).with(A, (1, 1), Damage::FlipBit(FLIPPED))
}
