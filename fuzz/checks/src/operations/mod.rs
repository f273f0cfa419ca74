//! Verbs in any order on two endpoints joined by a link with faults.
//!
//! In: bytes that become a sequence of verbs calls and of what happens to frames. Out: nothing. What must hold:
//!
//! - nothing panics, and a call that fails changes nothing;
//! - each request completes at most once, in the order of its queue, and exactly once when its queue pair is put in error;
//!   after an error in a queue comes no success;
//! - a RECV completes with one message that was sent, whole; on an RC, with the next one;
//! - memory holds what WRITEs, READs and atomics of the sequence can have put there, and nothing around it changes;
//! - when all is taken down nothing is left.
//!
//! The simulation (`tests/simulation`) asks more of well-formed scenarios; this asks less of any.

mod queue;
mod side;
mod world;

use arbitrary::{Arbitrary, Unstructured};
use world::World;

/// Acts of one run.
const MAX_ACTS: usize = 128;

/// A queue pair: which connection, which side.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Which {
    conn: u8,
    side: bool,
}

/// A send request.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Send {
    verb: u8,
    len: u16,
    at: u16,
    flags: u8,
}

/// A modify call: the state, which attributes come along, and a value for all of them.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Modify {
    to: u8,
    /// Take what the step requires.
    full: bool,
    extra: u32,
    value: u8,
}

/// How both ends are set up.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Setup {
    mtu: u8,
    cqe: [u8; 2],
    window: u8,
    credits: bool,
    v6: bool,
    split: u8,
}

/// How a connection is made.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Connect {
    conn: u8,
    uc: bool,
    depth: u8,
    rd_atomic: u8,
    retries: u8,
    timeout: u8,
    sig_all: bool,
}

#[derive(Arbitrary, Debug)]
enum Act {
    Connect(Connect),
    Send(Which, Send),
    /// So many small SENDs.
    Sends(Which, u8),
    Recv(Which, u16),
    /// So many RECVs that take any message.
    Recvs(Which, u8),
    Modify(Which, Modify),
    Destroy(Which),
    /// The keys of an area are taken back and given anew.
    Rekey {
        side: bool,
        area: u8,
    },
    Poll {
        side: bool,
        most: u8,
    },
    Arm {
        side: bool,
        solicited: bool,
    },
    /// So many frames arrive.
    Deliver(u8),
    Drop(u8),
    Twice(u8),
    /// A frame is overtaken by all others.
    Late(u8),
    Flip(u8, u16),
    Pass(u16),
    Tick,
}

/// Plays the acts, then takes all down.
pub fn check(data: &[u8]) {
    let mut source = Unstructured::new(data);
    let Ok(setup) = Setup::arbitrary(&mut source) else { return };
    let mut world = World::new(setup);
    for _ in 0..MAX_ACTS {
        if source.is_empty() {
            break;
        }
        let Ok(act) = Act::arbitrary(&mut source) else { break };
        match act {
            Act::Connect(how) => world.connect(how),
            Act::Send(which, send) => world.send(which, send),
            Act::Sends(which, n) => {
                (0..n % 32).for_each(|i| world.send(which, Send { verb: 1, len: i.into(), at: 0, flags: i }));
            }
            Act::Recv(which, len) => world.recv(which, usize::from(len) % 2000),
            Act::Recvs(which, n) => (0..n % 32).for_each(|_| world.recv(which, side::LONGEST)),
            Act::Modify(which, modify) => world.modify(which, modify),
            Act::Destroy(which) => world.destroy(which),
            Act::Rekey { side, area } => world.rekey(side, area),
            Act::Poll { side, most } => world.poll(side, most.into()),
            Act::Arm { side, solicited } => world.arm(side, solicited),
            Act::Deliver(n) => world.deliver(n.into()),
            Act::Drop(at) => world.lose(at),
            Act::Twice(at) => world.twice(at),
            Act::Late(at) => world.late(at),
            Act::Flip(at, bit) => world.flip(at, bit),
            Act::Pass(us) => world.pass(u64::from(us) * 1_000),
            Act::Tick => world.tick(),
        }
    }
    world.finish();
}
