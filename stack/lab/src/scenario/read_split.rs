//! A READ whose answer takes several packets, one of which is lost.

use super::{A, At, B, Damage, Op, Play, Scenario, Setup, send};

pub(super) static SCENARIO: Scenario = Scenario {
    name: "read-split",
    title: "A READ whose response is split",
    about: &[
        "A READ is one request packet, but it takes as many PSNs as its response has packets: the responses carry these PSNs. The \
         next request starts behind them.",
        "Responses are not acknowledged. If one is lost, the next shows it (an implied NAK) and the requester asks again, from the \
         missing PSN on: the address moved on by what has come, the length reduced. READs change nothing, so they may be \
         executed twice.",
    ],
    look: &[
        "READ_REQUEST has PSN 100 and a length of 4,000: it stands for PSN 100 to 103. The WRITE behind it has PSN 104.",
        "FIRST and LAST of the response carry an AETH, MIDDLE does not.",
        "The second READ_REQUEST: PSN, VA and DMA length say what is missing.",
        "The WRITE had arrived, but its ACK came behind a READ that was not complete. It waits until the READ is done.",
    ],
    play,
    notes: &[
        (At::Sent(A, 1), "One packet, four PSNs: 100 to 103. A's next PSN is 104."),
        (At::Arrives(A, 1), "B's ePSN moves on by four at once. MSN counts the READ at its request."),
        (At::Sent(B, 2), "The response with PSN 101 is lost."),
        (
            At::Arrives(B, 1),
            "The first 1,024 bytes are in place. The oldest unacknowledged PSN is that of the next response.",
        ),
        (
            At::Arrives(B, 3),
            "PSN 102 where 101 was due: an implied NAK. A drops it, and asks again for what is missing.",
        ),
        (At::Sent(A, 3), "PSN 101, VA moved on by 1,024, DMA length 2,976: the rest of the READ, not all of it."),
        (
            At::Arrives(B, 5),
            "The ACK of the WRITE stands behind a READ that is not complete: it acknowledges nothing yet.",
        ),
        (
            At::Arrives(A, 3),
            "A duplicate READ inside one that B remembers: its answer goes out again, ePSN and MSN stay.",
        ),
        (At::Arrives(A, 4), "The WRITE was executed before. It is acknowledged once more."),
        (At::Arrives(B, 8), "LAST: the READ is complete, by its own response."),
    ],
};

fn play() -> Play {
    let acts = vec![(0, A, send(1, Op::Read, 4000)), (0, A, send(2, Op::Write, 100))];
    Play::new(Setup::default(), acts).with(B, (2, 2), Damage::Lose)
}
