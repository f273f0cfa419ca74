//! Atomics whose answer is lost, or which the network doubles.

use super::{A, At, B, Damage, Op, Play, Scenario, Setup, US, send};

pub(super) static SCENARIO: Scenario = Scenario {
    name: "duplicate-atomic",
    title: "A duplicate atomic is answered, not executed",
    about: &[
        "An atomic changes memory, so executing it twice would be wrong. The responder keeps the results of its last atomics \
         (as many as max_dest_rd_atomic) and, when a duplicate comes, sends the saved result once more.",
        "B's word begins at 40. A adds 2 and then 3 to it.",
    ],
    look: &[
        "The memory word of B: it grows once for each atomic, however often the packet arrives.",
        "The second ATOMIC_ACK for PSN 100 carries the same original value and the same MSN as the lost one.",
        "The network doubles the second FETCH_ADD. A gets two answers, and drops the second as stale.",
    ],
    play,
    notes: &[
        (At::Arrives(A, 1), "Executed: the word is 42. B keeps the original value, 40, beside PSN 100."),
        (
            At::Sent(B, 1),
            "The answer is lost. An atomic completes only by its own answer, so A's timer has to find out.",
        ),
        (
            At::Arrives(A, 2),
            "PSN 100 is behind ePSN 101: a duplicate. The word stays 42, and the saved 40 goes out again.",
        ),
        (At::Arrives(B, 2), "A has 40 in its buffer: the value before its addition."),
        (At::CopyArrives(A, 3), "The network's copy of the packet. Executed once, answered twice."),
        (At::Arrives(B, 4), "PSN 101 is acknowledged already: the answer is stale, and dropped."),
    ],
};

fn play() -> Play {
    let acts = vec![(0, A, send(1, Op::FetchAdd(2), 8)), (1500 * US, A, send(2, Op::FetchAdd(3), 8))];
    let mut play = Play::new(Setup::default(), acts).with(B, (1, 1), Damage::Lose).with(A, (3, 3), Damage::Duplicate);
    play.watch = Some((B, 40));
    play
}
