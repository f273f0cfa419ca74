//! A peer that answers no more.

use super::{A, At, Damage, Op, Play, Scenario, Setup, US, send};

pub(super) static SCENARIO: Scenario = Scenario {
    name: "retry-exhausted",
    title: "The peer is gone: retries run out",
    about: &[
        "When no answer comes the ACK timer sends the requester back to the oldest unacknowledged PSN. Each time costs one of \
         retry_cnt. When none is left the request completes with \"transport retry counter exceeded\" and the queue pair goes to \
         ERR.",
        "The timer is 4.096 µs times 2 to the power of timeout; an implementation may let it run up to four times as long. xroce \
         waits T, 2T, 4T and stays there, so that a slow peer gets time. retry_cnt 2 means three transmissions in all.",
    ],
    look: &[
        "The first WRITE is acknowledged, then the link loses everything.",
        "Retries left and the ACK timer beside each step.",
        "The request that failed has the status that says why; the one behind it is only flushed.",
    ],
    play,
    notes: &[
        (At::Sent(A, 2), "From here on nothing arrives."),
        (At::Timer(A, 1), "T is over. One of the two retries is spent, both WRITEs go again."),
        (At::Timer(A, 2), "2T later: the second retry."),
        (
            At::Timer(A, 3),
            "4T later no retry is left. WR 2 fails and says why, WR 3 is flushed, the queue pair is in ERR.",
        ),
    ],
};

fn play() -> Play {
    let setup = Setup { retry_cnt: 2, ..Setup::default() };
    let acts = vec![
        (0, A, send(1, Op::Write, 64)),
        (100 * US, A, send(2, Op::Write, 64)),
        (100 * US, A, send(3, Op::Write, 64)),
    ];
    Play::new(setup, acts).with(A, (2, u32::MAX), Damage::Lose)
}
