//! Scenarios: what two applications do, what the network does to their packets, and what somebody who learns should notice.
//!
//! In: nothing, or the name of one. Out: a [`Ladder`]. One scenario a file; what they have in common is here.

mod bad_icrc;
mod bad_rkey;
mod credits;
mod duplicate_atomic;
mod go_back_n;
mod life_cycle;
mod lost_packet;
mod psn_wrap;
mod read_split;
mod retry_exhausted;
mod rnr;
mod uc_gap;

use xroce_transport::qp::state::{QpState, QpType};
use xroce_wire::{PathMtu, RnrTimer};

use crate::ladder::{Ladder, What, time};
use crate::world;

/// The requester of most scenarios.
pub(crate) const A: usize = 0;
/// The responder of most scenarios.
pub(crate) const B: usize = 1;

const US: u64 = 1_000;

/// All there are, in the order in which one would learn them.
pub static SCENARIOS: [&Scenario; 12] = [
    &life_cycle::SCENARIO,
    &lost_packet::SCENARIO,
    &go_back_n::SCENARIO,
    &rnr::SCENARIO,
    &read_split::SCENARIO,
    &duplicate_atomic::SCENARIO,
    &psn_wrap::SCENARIO,
    &credits::SCENARIO,
    &bad_icrc::SCENARIO,
    &bad_rkey::SCENARIO,
    &retry_exhausted::SCENARIO,
    &uc_gap::SCENARIO,
];

/// Something to learn.
#[derive(Debug)]
pub struct Scenario {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// What happens and why, a paragraph each.
    about: &'static [&'static str],
    /// What to look at.
    look: &'static [&'static str],
    play: fn() -> Play,
    /// What to notice, and at which step.
    notes: &'static [(At, &'static str)],
}

impl Scenario {
    /// The one with this name.
    pub fn find(name: &str) -> Option<&'static Scenario> {
        SCENARIOS.iter().find(|s| s.name == name).copied()
    }

    /// Runs it without its words, with each first PSN so much further on.
    #[cfg(test)]
    pub(crate) fn run_further(&self, by: u32) -> Ladder {
        let mut play = (self.play)();
        play.setup.psns = play.setup.psns.map(|psn| xroce_wire::Psn::new(psn).add(by).value());
        world::run(&play)
    }

    /// Runs it.
    ///
    /// # Panics
    /// If a note is for a step that did not take place: scenario and notes belong together.
    pub fn run(&self) -> Ladder {
        let mut ladder = world::run(&(self.play)());
        let words = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect();
        (ladder.name, ladder.title) = (self.name.into(), self.title.into());
        (ladder.about, ladder.look) = (words(self.about), words(self.look));
        for (at, text) in self.notes {
            let index = at.find(&ladder).unwrap_or_else(|| panic!("{}: no step {at:?}", self.name));
            let note = &mut ladder.steps[index].note;
            assert!(note.is_none(), "{}: two notes at step {at:?}", self.name);
            *note = Some((*text).to_owned());
        }
        ladder
    }
}

/// A step of a ladder. Packets of an end count from 1, in the order in which it sent them.
#[derive(Debug, Clone, Copy)]
enum At {
    /// An end sends its n-th packet.
    Sent(usize, usize),
    /// The n-th packet of an end arrives at the other.
    Arrives(usize, usize),
    /// The network's copy of it does.
    CopyArrives(usize, usize),
    /// The n-th timer of an end runs out.
    Timer(usize, usize),
    /// The n-th verbs call of an end.
    Call(usize, usize),
}

impl At {
    fn find(self, ladder: &Ladder) -> Option<usize> {
        let packet = |from: usize, nth: usize| {
            let mut own = ladder.packets.iter().enumerate().filter(|(_, p)| p.from == from);
            own.nth(nth - 1).map(|(index, _)| index)
        };
        let step = |what: What| ladder.steps.iter().position(|s| s.what == what);
        let nth_of = |end: usize, nth: usize, is: fn(&What) -> bool| {
            let mut own = ladder.steps.iter().enumerate().filter(|(_, s)| s.end == end && is(&s.what));
            own.nth(nth - 1).map(|(index, _)| index)
        };
        match self {
            At::Sent(end, nth) => step(What::Sent(packet(end, nth)?)),
            At::Arrives(end, nth) => step(What::Arrived { packet: packet(end, nth)?, copy: false }),
            At::CopyArrives(end, nth) => step(What::Arrived { packet: packet(end, nth)?, copy: true }),
            At::Timer(end, nth) => nth_of(end, nth, |what| matches!(what, What::Timer(_))),
            At::Call(end, nth) => nth_of(end, nth, |what| matches!(what, What::Call(_))),
        }
    }
}

/// What is to happen.
pub(crate) struct Play {
    pub(crate) setup: Setup,
    /// When (in nanoseconds), at which end, what the application does. In the order of time.
    pub(crate) acts: Vec<(u64, usize, Act)>,
    /// What the network does to packets.
    pub(crate) damages: Vec<OnPackets>,
    /// The first word of the memory of this end is shown, and holds this value at first.
    pub(crate) watch: Option<(usize, u64)>,
}

/// What the network does to some packets of an end.
pub(crate) struct OnPackets {
    pub(crate) from: usize,
    /// The first and the last of them, counted from 1 as the end sends them.
    pub(crate) nth: (u32, u32),
    pub(crate) damage: Damage,
}

/// What the network can do to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    Lose,
    Duplicate,
    /// Flips this bit, counted from the most significant bit of the IP header's first byte.
    FlipBit(usize),
}

/// What an application does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    Send { id: u64, op: Op, len: u32 },
    Recv { id: u64, len: u32 },
    Modify(QpState),
}

/// A send request, as far as scenarios need one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Send,
    Write,
    /// A WRITE that names a key which is not the peer's.
    WriteWithKey(u32),
    Read,
    FetchAdd(u64),
}

impl Op {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::Send => "SEND",
            Op::Write | Op::WriteWithKey(_) => "WRITE",
            Op::Read => "READ",
            Op::FetchAdd(_) => "FETCH_ADD",
        }
    }
}

/// How the two queue pairs are set up.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) kind: QpType,
    pub(crate) mtu: PathMtu,
    /// `sq_psn` of either end.
    pub(crate) psns: [u32; 2],
    /// Code of the ACK timeout.
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    /// `max_rd_atomic` and `max_dest_rd_atomic`.
    pub(crate) rd_atomic: u8,
    /// Free RECVs are told in ACKs.
    pub(crate) credits: bool,
    /// Both ends are in RTS when the ladder begins.
    pub(crate) connected: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            kind: QpType::Rc,
            mtu: PathMtu::Mtu1024,
            psns: [100, 500],
            timeout: 8,
            retry_cnt: 3,
            rnr_retry: 3,
            min_rnr_timer: 8,
            rd_atomic: 4,
            credits: false,
            connected: true,
        }
    }
}

impl Setup {
    /// What a page tells of it.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let rc = self.kind == QpType::Rc;
        let micros = |ns: u64| format!("{} µs", time(ns));
        let timeout = format!("{} ({})", self.timeout, micros(4096 << self.timeout));
        let rnr = RnrTimer::new(self.min_rnr_timer).map_or(0, RnrTimer::ns);
        let facts = [
            ("service", if rc { "RC" } else { "UC" }.to_owned()),
            ("path MTU", self.mtu.bytes().to_string()),
            ("sq_psn", format!("A {}, B {}", self.psns[0], self.psns[1])),
            ("timeout", timeout),
            ("retry_cnt", self.retry_cnt.to_string()),
            ("rnr_retry", self.rnr_retry.to_string()),
            ("min_rnr_timer", format!("{} ({})", self.min_rnr_timer, micros(rnr))),
            ("max_rd_atomic", self.rd_atomic.to_string()),
            ("link", "1 Gbit/s, 10 µs".to_owned()),
        ];
        let on_uc = ["service", "path MTU", "sq_psn", "link"];
        facts.into_iter().filter(|(name, _)| rc || on_uc.contains(name)).collect()
    }
}

impl Play {
    fn new(setup: Setup, acts: Vec<(u64, usize, Act)>) -> Play {
        Play { setup, acts, damages: Vec::new(), watch: None }
    }

    fn with(mut self, from: usize, nth: (u32, u32), damage: Damage) -> Play {
        self.damages.push(OnPackets { from, nth, damage });
        self
    }

    /// What the network does to the `nth` packet of an end.
    pub(crate) fn damage(&self, from: usize, nth: u32) -> Option<Damage> {
        let meant = |d: &&OnPackets| d.from == from && (d.nth.0..=d.nth.1).contains(&nth);
        self.damages.iter().find(meant).map(|d| d.damage)
    }
}

const fn send(id: u64, op: Op, len: u32) -> Act {
    Act::Send { id, op, len }
}

const fn recv(id: u64, len: u32) -> Act {
    Act::Recv { id, len }
}
