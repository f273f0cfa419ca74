//! A packet that is lost in the middle of a message, and one that is lost at the end.

use super::{A, At, B, Damage, Op, Play, Scenario, Setup, US, recv, send};

pub(super) static SCENARIO: Scenario = Scenario {
    name: "lost-packet",
    title: "A lost packet: by a gap, or by silence",
    about: &[
        "RC numbers every request packet. The responder takes them only in order: what comes ahead of its expected PSN (ePSN) is \
         dropped, and a NAK with ePSN tells the requester where to go on.",
        "A gap shows only if something follows. When the last packet of all is lost, the responder knows of nothing and says \
         nothing. Then the requester's ACK timer finds out.",
    ],
    look: &[
        "The first message loses its MIDDLE packet: LAST arrives ahead of ePSN, one NAK comes back, two packets go out again.",
        "The second message loses its only packet: nothing happens until the ACK timer expires.",
        "Compare what each loss costs: one round trip, or a whole timeout.",
    ],
    play,
    notes: &[
        (At::Sent(A, 2), "This packet will not arrive. A cannot know, and goes on."),
        (
            At::Arrives(A, 3),
            "PSN 102, but ePSN is 101: something is missing. B drops the packet and says once where to go on.",
        ),
        (At::Arrives(B, 1), "The NAK takes A's next PSN back to 101, and acknowledges PSN 100."),
        (At::Arrives(A, 5), "LAST has come in order: the message is whole and the RECV completes."),
        (At::Sent(A, 6), "Lost as well, and nothing follows that could show a gap."),
        (At::Timer(A, 1), "A whole timeout later. One of the retries is spent."),
        (At::Arrives(B, 3), "Progress: all retries are there again."),
    ],
};

fn play() -> Play {
    let acts = vec![
        (0, B, recv(1, 4096)),
        (0, B, recv(2, 4096)),
        (0, A, send(1, Op::Send, 3000)),
        (200 * US, A, send(2, Op::Send, 500)),
    ];
    Play::new(Setup::default(), acts).with(A, (2, 2), Damage::Lose).with(A, (6, 6), Damage::Lose)
}
