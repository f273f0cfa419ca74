//! A requester that knows how many RECVs there are.

use super::{A, At, B, Op, Play, Scenario, Setup, US, recv, send};

pub(super) static SCENARIO: Scenario = Scenario {
    name: "credits",
    title: "Credit shortage: end-to-end flow control",
    about: &[
        "A responder may tell in each ACK how many RECVs it has left, as a 5-bit code. MSN plus credits is the limit sequence \
         number (LSN): SENDs up to it will find a RECV. The requester holds back what is further, but for one probe, so that it \
         learns when there are RECVs again.",
        "Code 31 means \"no credits given\": send freely, and risk an RNR NAK. Most RoCE devices say that; xroce does unless told \
         otherwise.",
    ],
    look: &[
        "Before the first ACK A knows of no limit.",
        "SSN counts the requests that A has started, LSN how far it may go. One beyond is the probe.",
        "The probe finds no RECV. Its RNR NAK paces A, and the ACK that follows the RECVs opens the gate.",
    ],
    play,
    notes: &[
        (At::Sent(A, 1), "No ACK has come yet: A knows of no limit."),
        (At::Arrives(B, 1), "MSN 1 and one credit: LSN 2. SSN 2 may go, SSN 3 is the probe, SSN 4 must wait."),
        (At::Sent(A, 3), "SSN 3 is one beyond LSN 2: the probe. It asks for an ACK, since nothing may follow it."),
        (At::Arrives(A, 3), "The probe finds no RECV."),
        (At::Arrives(B, 2), "An RNR NAK brings no credits: LSN stays 2. Its timer paces the probe."),
        (At::Timer(A, 1), "Three RECVs were posted meanwhile. The probe goes again."),
        (At::Arrives(B, 4), "MSN 3 and two credits: LSN 5. The gate is open for SSN 4 and 5."),
    ],
};

fn play() -> Play {
    let setup = Setup { credits: true, ..Setup::default() };
    let mut acts = vec![(0, B, recv(1, 512)), (0, B, recv(2, 512)), (0, A, send(1, Op::Send, 200))];
    acts.extend((2..=5).map(|id| (50 * US, A, send(id, Op::Send, 200))));
    acts.extend((3..=5).map(|id| (150 * US, B, recv(id, 512))));
    Play::new(setup, acts)
}
