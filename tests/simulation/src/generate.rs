//! From a seed to a plan.
//!
//! In: a seed. Out: a [`Plan`]. Each seed first decides which kinds of trouble there are at all, so that some runs are
//! clean, some have one fault and some have all: a bug that two faults hide from each other still shows.

use xroce_port::sim::{LinkModel, Rng};
use xroce_transport::qp::state::QpType;
use xroce_wire::PathMtu;

use crate::plan::{
    Act, Area, Change, ConnPlan, EndId, EndPlan, Flaw, MIN_SPLIT, NodePlan, Outage, Plan, Rereg, Step, Tune, Verb, Work,
};

/// Bits of the shared word that adds use: every second one, so that an add that happens twice shows.
pub(crate) const SHARED_BITS: u32 = 32;

/// Own words at each end.
pub(crate) const OWN_WORDS: u32 = 4;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Which kinds of trouble a seed has.
struct Trouble {
    weather: bool,
    loss: bool,
    duplicate: bool,
    corrupt: bool,
    reorder: bool,
    outages: bool,
    rings: bool,
    slow: bool,
    scarce_recvs: bool,
    odd_limits: bool,
    flaws: bool,
    rekey: bool,
    changes: bool,
    restarts: bool,
    overrun: bool,
}

struct Generator {
    dice: Rng,
    trouble: Trouble,
    /// Nanoseconds over which the steps are spread.
    span: u64,
    next_id: u64,
    /// Next free bit of each node's shared word.
    bits: Vec<u32>,
    /// Next free byte of each end's target, for UC.
    targets: Vec<[u32; 2]>,
}

/// The scenario of a seed.
pub fn generate(seed: u64) -> Plan {
    let mut dice = Rng::stream(seed, 1);
    let trouble = Trouble::roll(&mut dice);
    let span = [0, 50 * US, MS, 20 * MS][dice.between(0, 3) as usize];
    Generator { dice, trouble, span, next_id: 1, bits: Vec::new(), targets: Vec::new() }.plan(seed)
}

impl Trouble {
    fn roll(dice: &mut Rng) -> Trouble {
        let calm = dice.chance(0.15);
        let mut has = |p: f64| dice.chance(p) && !calm;
        let weather = has(0.7);
        Trouble {
            weather,
            loss: has(0.6) && weather,
            duplicate: has(0.4) && weather,
            corrupt: has(0.3) && weather,
            reorder: has(0.4) && weather,
            outages: has(0.25),
            rings: has(0.3),
            slow: has(0.4),
            scarce_recvs: has(0.4),
            odd_limits: has(0.5),
            flaws: has(0.25),
            rekey: has(0.2),
            changes: has(0.25),
            restarts: has(0.1),
            overrun: has(0.04),
        }
    }
}

impl Generator {
    fn plan(mut self, seed: u64) -> Plan {
        let nodes = if self.dice.chance(0.6) { 2 } else { self.up_to(2, 5) as usize };
        let conns = if self.dice.chance(0.1) { self.up_to(6, 12) } else { self.up_to(1, 4) } as usize;
        self.bits = vec![0; nodes];
        let node_plans = (0..nodes).map(|_| self.node()).collect();
        let mut conns: Vec<ConnPlan> = (0..conns).map(|_| self.conn(nodes)).collect();
        self.targets = vec![[0, 0]; conns.len()];
        let mut steps = self.works(&conns);
        self.disturb(&conns, nodes, &mut steps);
        // Dice of their own, so that what was there before comes out as it did.
        let other = Rng::stream(seed, 2);
        let dice = std::mem::replace(&mut self.dice, other);
        self.adjust(&conns, &mut steps);
        self.dice = dice;
        for (conn, used) in conns.iter_mut().zip(&self.targets) {
            if conn.kind == QpType::Uc {
                conn.target = used[0].max(used[1]).max(8);
            }
        }
        steps.sort_by_key(|step| (step.at, step.id));
        let heal_at = self.span + self.up_to(0, 4) * 500 * US + 1;
        let outages = self.outages(nodes, heal_at);
        let weather = self.weather();
        let ipv6 = self.dice.chance(0.25);
        let mut plan = Plan { seed, nodes: node_plans, conns, weather, outages, steps, heal_at, ipv6 };
        plan.fit_recvs();
        plan
    }

    fn up_to(&mut self, low: u64, high: u64) -> u64 {
        self.dice.between(low, high)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.dice.between(0, from.len() as u64 - 1) as usize]
    }

    fn node(&mut self) -> NodePlan {
        let tight = self.trouble.rings && self.dice.chance(0.7);
        let odd = self.trouble.odd_limits;
        NodePlan {
            tx_slots: if tight { self.up_to(2, 5) as usize } else { 1 << 20 },
            tx_ns: if tight { self.pick(&[50, 200, 1000]) } else { 0 },
            split: if self.dice.chance(0.3) { MIN_SPLIT + self.up_to(0, 600) as usize } else { usize::MAX },
            poll_ns: if self.trouble.slow { self.up_to(1, 2000) * US } else { self.up_to(0, 20) * US },
            armed: self.dice.chance(0.3),
            cqe: if self.trouble.overrun { self.up_to(1, 16) as u32 } else { 4096 },
            window: if odd { self.pick(&[1, 2, 3, 5, 16, 256]) } else { 256 },
            ack_every: if odd { self.pick(&[1, 2, 5, 16, 1000]) } else { 16 },
            credits: self.dice.chance(0.25),
        }
    }

    fn conn(&mut self, nodes: usize) -> ConnPlan {
        let kind = if self.dice.chance(0.7) { QpType::Rc } else { QpType::Uc };
        let mtu = self.pick(&[
            PathMtu::Mtu256,
            PathMtu::Mtu256,
            PathMtu::Mtu512,
            PathMtu::Mtu1024,
            PathMtu::Mtu1024,
            PathMtu::Mtu2048,
            PathMtu::Mtu4096,
        ]);
        let first = self.up_to(0, nodes as u64 - 1) as usize;
        let own_peer = self.dice.chance(0.05);
        let second =
            if self.dice.chance(0.05) { first } else { (first + self.up_to(1, nodes as u64 - 1) as usize) % nodes };
        let mut ends: Vec<EndPlan> = [first, second].iter().map(|node| self.end(*node)).collect();
        if own_peer {
            ends.truncate(1);
        }
        let depths: Vec<u8> = ends.iter().map(|end| end.max_rd_atomic).collect();
        let count = ends.len();
        for (i, end) in ends.iter_mut().enumerate() {
            // Enough for the peer, and sometimes more.
            end.max_dest_rd_atomic =
                depths[(i + 1) % count].max(1).saturating_add(self.dice.between(0, 2) as u8).min(16);
        }
        ConnPlan {
            kind,
            mtu,
            ends,
            by_reset: kind == QpType::Rc && self.dice.chance(0.5),
            target: mtu.bytes() as u32 * self.up_to(2, 5) as u32,
            recv_len: 0,
        }
    }

    fn end(&mut self, node: usize) -> EndPlan {
        let odd = self.trouble.odd_limits;
        let scarce = self.trouble.scarce_recvs && self.dice.chance(0.7);
        EndPlan {
            node,
            psn: self.first_psn(),
            timeout: if odd { self.pick(&[0, 1, 3, 5, 8, 10, 12, 14, 17, 20]) } else { self.up_to(9, 14) as u8 },
            retry_cnt: if odd { self.up_to(0, 7) as u8 } else { 7 },
            rnr_retry: if odd { self.up_to(0, 7) as u8 } else { 7 },
            min_rnr_timer: if odd { self.up_to(0, 31) as u8 } else { self.up_to(1, 14) as u8 },
            max_rd_atomic: if odd { self.pick(&[1, 2, 3, 5, 16]) } else { self.up_to(1, 8) as u8 },
            max_dest_rd_atomic: 1,
            send_depth: if odd { self.up_to(1, 8) as u32 } else { self.up_to(8, 64) as u32 },
            recv_depth: if scarce { self.up_to(1, 3) as u32 } else { self.up_to(4, 12) as u32 },
            recv_from: if scarce { self.up_to(0, 500) * US } else { 0 },
            sig_all: self.dice.chance(0.3),
        }
    }

    /// Near the wrap, near the middle, or anywhere.
    fn first_psn(&mut self) -> u32 {
        match self.up_to(0, 3) {
            0 | 1 => 0xFF_FFFF - self.up_to(0, 40) as u32,
            2 => 0x7F_FFFF - self.up_to(0, 40) as u32,
            _ => self.up_to(0, 0xFF_FFFF) as u32,
        }
    }

    fn weather(&mut self) -> LinkModel {
        let delay_min_ns = self.up_to(0, 10) * US;
        let jitter = if self.trouble.weather { self.up_to(0, 20) * US } else { 0 };
        let loss = self.pick(&[0.005, 0.02, 0.05, 0.15, 0.3]);
        let some = |on: bool, p: f64| if on { p } else { 0.0 };
        let duplicate = self.pick(&[0.01, 0.05, 0.2]);
        let corrupt = self.pick(&[0.01, 0.05]);
        let reorder = self.pick(&[0.01, 0.05, 0.2]);
        LinkModel {
            loss: some(self.trouble.loss, loss),
            duplicate: some(self.trouble.duplicate, duplicate),
            corrupt: some(self.trouble.corrupt, corrupt),
            corrupt_bits_max: 3,
            delay_min_ns,
            delay_max_ns: delay_min_ns + jitter,
            reorder: some(self.trouble.reorder, reorder),
            reorder_hold_ns: self.up_to(1, 60) * US,
            ..LinkModel::default()
        }
    }

    fn outages(&mut self, nodes: usize, heal_at: u64) -> Vec<Outage> {
        let count = if self.trouble.outages { self.up_to(1, 6) } else { 0 };
        (0..count)
            .map(|_| {
                let from = self.up_to(0, nodes as u64 - 1) as usize;
                let to = (from + self.up_to(1, nodes as u64 - 1) as usize) % nodes;
                let start = self.up_to(0, heal_at);
                let end = start + self.pick(&[5 * US, 50 * US, 500 * US, 5 * MS]);
                Outage { from, to, start, end, loss: self.pick(&[0.5, 0.9, 1.0, 1.0]) }
            })
            .collect()
    }

    fn step(&mut self, act: Act) -> Step {
        let id = self.next_id;
        self.next_id += 1;
        Step { id, at: self.dice.between(0, self.span), act }
    }

    fn any_end(&mut self, conns: &[ConnPlan]) -> EndId {
        let conn = self.up_to(0, conns.len() as u64 - 1) as usize;
        EndId { conn, side: self.up_to(0, conns[conn].ends.len() as u64 - 1) as usize }
    }

    fn works(&mut self, conns: &[ConnPlan]) -> Vec<Step> {
        let count = if self.dice.chance(0.1) { self.up_to(60, 160) } else { self.up_to(1, 50) };
        (0..count)
            .map(|_| {
                let end = self.any_end(conns);
                let work = self.work(end, &conns[end.conn]);
                self.step(Act::Post { end, work })
            })
            .collect()
    }

    fn work(&mut self, end: EndId, conn: &ConnPlan) -> Work {
        let len = self.length(conn.mtu);
        let peer = (end.side + 1) % conn.ends.len();
        let peer_node = conn.ends[peer].node;
        let mut verb =
            if conn.kind == QpType::Uc { self.uc_verb(end.conn, peer, len) } else { self.rc_verb(conn, len) };
        if let Verb::SharedAdd { .. } = verb {
            let bit = self.bits[peer_node];
            self.bits[peer_node] += 1;
            verb = if bit < SHARED_BITS { Verb::SharedAdd { bit } } else { Verb::FetchAdd { word: 0 } };
        }
        let len = if verb.is_atomic() { 8 } else { len };
        let mut work = Work {
            verb,
            len,
            pieces: if verb.is_atomic() { 1 } else { self.pick(&[1, 1, 1, 2, 3, 5]) },
            signaled: self.dice.chance(0.7),
            fence: self.dice.chance(0.15),
            solicited: self.dice.chance(0.2),
            inline: len <= INLINE_MAX && !verb.is_rd_atomic() && self.dice.chance(0.3),
            flaw: Flaw::None,
        };
        if self.trouble.flaws && self.dice.chance(0.1) {
            work.flaw = self.flaw(verb, conn.kind);
            work.inline &= work.flaw != Flaw::TooLong;
        }
        work
    }

    fn flaw(&mut self, verb: Verb, kind: QpType) -> Flaw {
        match verb {
            Verb::Send | Verb::SendImm | Verb::SendInv => Flaw::TooLong,
            Verb::CmpSwap { .. } | Verb::FetchAdd { .. } => self.pick(&[Flaw::Key, Flaw::PastEnd, Flaw::Misaligned]),
            Verb::SharedAdd { .. } => Flaw::None,
            _ if kind == QpType::Uc => self.pick(&[Flaw::Key, Flaw::PastEnd]),
            _ => self.pick(&[Flaw::Key, Flaw::PastEnd, Flaw::PastEnd]),
        }
    }

    /// Around the sizes at which something changes.
    fn length(&mut self, mtu: PathMtu) -> u32 {
        let p = mtu.bytes() as u32;
        match self.up_to(0, 9) {
            0 => 0,
            1 => self.up_to(1, 8) as u32,
            2 => p - 1 + self.up_to(0, 2) as u32,
            3 => p * self.up_to(1, 4) as u32,
            4 => p * self.up_to(1, 3) as u32 + 1,
            5 | 6 => self.up_to(1, u64::from(p)) as u32,
            7 if p == 256 => self.up_to(1, u64::from(longest(mtu))) as u32,
            _ => self.up_to(1, u64::from(p) * 4) as u32,
        }
    }

    fn uc_verb(&mut self, conn: usize, peer: usize, len: u32) -> Verb {
        match self.up_to(0, 3) {
            0 => Verb::Send,
            1 => Verb::SendImm,
            kind => {
                // A place of its own for every WRITE: which of them arrive cannot be known before.
                let at = self.targets[conn][peer];
                self.targets[conn][peer] += len + 8;
                if kind == 2 { Verb::Write(at) } else { Verb::WriteImm(at) }
            }
        }
    }

    fn rc_verb(&mut self, conn: &ConnPlan, len: u32) -> Verb {
        let at = self.up_to(0, u64::from(conn.target.saturating_sub(len))) as u32;
        let fits = len <= conn.target;
        match self.up_to(0, 12) {
            0 | 1 => Verb::Send,
            2 => Verb::SendImm,
            3 => Verb::SendInv,
            4 | 5 if fits => Verb::Write(at),
            6 if fits => Verb::WriteImm(at),
            7 | 8 => Verb::ReadStock(self.up_to(0, 63) as u32),
            9 if fits => Verb::ReadTarget(at),
            10 => Verb::CmpSwap { word: self.up_to(0, u64::from(OWN_WORDS) - 1) as u32, hit: self.dice.chance(0.7) },
            11 => Verb::FetchAdd { word: self.up_to(0, u64::from(OWN_WORDS) - 1) as u32 },
            12 => Verb::SharedAdd { bit: 0 },
            _ => Verb::Send,
        }
    }

    /// Registrations, rights and attributes that are changed in place, and ways out of SQD and SQE.
    fn adjust(&mut self, conns: &[ConnPlan], steps: &mut Vec<Step>) {
        let times = |dice: &mut Rng| if dice.chance(0.15) { dice.between(1, 4) } else { 0 };
        self.stumble(conns, steps);
        let [reregs, tunes, rights] = [(); 3].map(|()| times(&mut self.dice));
        for _ in 0..reregs {
            let (end, area) = (self.any_end(conns), self.pick(&[Area::Local, Area::Local, Area::Recv, Area::Remote]));
            let what = self.pick(&[Rereg::Rights, Rereg::Rights, Rereg::Domain, Rereg::Domain, Rereg::Translation]);
            steps.push(self.step(Act::Rereg { end, area, what }));
            // A local fault stops the send queue of a UC: on it goes.
            steps.push(self.step(Act::Change { end, to: Change::Rts }));
        }
        for _ in 0..tunes {
            let end = self.any_end(conns);
            let tune = Tune {
                timeout: self.up_to(8, 14) as u8,
                retry_cnt: self.up_to(1, 7) as u8,
                rnr_retry: self.up_to(1, 7) as u8,
                min_rnr_timer: self.up_to(1, 14) as u8,
                max_rd_atomic: self.up_to(1, 16) as u8,
            };
            let mut at: Vec<u64> = (0..3).map(|_| self.dice.between(0, self.span)).collect();
            at.sort_unstable();
            let acts =
                [Act::Change { end, to: Change::Sqd }, Act::Tune { end, tune }, Act::Change { end, to: Change::Rts }];
            for (act, at) in acts.into_iter().zip(at) {
                steps.push(Step { at, ..self.step(act) });
            }
        }
        for _ in 0..rights {
            let end = self.any_end(conns);
            steps.push(self.step(Act::Rights { end }));
        }
    }

    /// Ends of UCs lose their own memory for a while: their send queues stop, and go on once or twice.
    fn stumble(&mut self, conns: &[ConnPlan], steps: &mut Vec<Step>) {
        let ends = conns.iter().enumerate().filter(|(_, conn)| conn.kind == QpType::Uc);
        let ends: Vec<EndId> =
            ends.flat_map(|(conn, plan)| (0..plan.ends.len()).map(move |side| EndId { conn, side })).collect();
        if ends.is_empty() || !self.dice.chance(0.3) {
            return;
        }
        let (end, rereg) = (self.pick(&ends), Rereg::Domain);
        let mut at: Vec<u64> = (0..4).map(|_| self.dice.between(0, self.span)).collect();
        at.sort_unstable();
        let on = Act::Change { end, to: Change::Rts };
        let turn = Act::Rereg { end, area: Area::Local, what: rereg };
        for (act, at) in [turn.clone(), on.clone(), turn, on].into_iter().zip(at) {
            steps.push(Step { at, ..self.step(act) });
        }
    }

    /// State changes, dead keys, restarts, and new connections after them.
    fn disturb(&mut self, conns: &[ConnPlan], nodes: usize, steps: &mut Vec<Step>) {
        if self.trouble.rekey {
            for _ in 0..self.up_to(1, 4) {
                let (end, area) = (self.any_end(conns), self.pick(&[Area::Local, Area::Recv, Area::Remote]));
                steps.push(self.step(Act::Rekey { end, area }));
            }
        }
        if self.trouble.changes {
            for _ in 0..self.up_to(1, 4) {
                let end = self.any_end(conns);
                let to = self.pick(&[Change::Sqd, Change::Sqd, Change::Rts, Change::Rts, Change::Err, Change::Reset]);
                steps.push(self.step(Act::Change { end, to }));
            }
        }
        if self.trouble.restarts {
            for _ in 0..self.up_to(1, 2) {
                let node = self.up_to(0, nodes as u64 - 1) as usize;
                let down_ns = self.up_to(1, 2000) * US;
                steps.push(self.step(Act::Restart { node, down_ns }));
            }
        }
        let trouble = &self.trouble;
        let repair = trouble.changes || trouble.restarts || trouble.flaws || trouble.rekey || self.dice.chance(0.2);
        for _ in 0..if repair { self.up_to(0, 3) } else { 0 } {
            let conn = self.up_to(0, conns.len() as u64 - 1) as usize;
            steps.push(self.step(Act::Reconnect { conn }));
        }
    }
}

impl Plan {
    /// RECVs are as long as the longest message that may arrive, and what is too long is so by one byte.
    fn fit_recvs(&mut self) {
        for conn in 0..self.conns.len() {
            self.conns[conn].recv_len = self.longest_message(conn);
        }
        for step in &mut self.steps {
            if let Act::Post { end, work } = &mut step.act
                && work.flaw == Flaw::TooLong
            {
                work.len = self.conns[end.conn].recv_len + 1;
            }
        }
    }
}

/// Inline bytes that every send queue takes.
pub(crate) const INLINE_MAX: u32 = 64;

/// The longest message on a connection.
fn longest(mtu: PathMtu) -> u32 {
    match mtu {
        PathMtu::Mtu256 => 40 * 256,
        other => other.bytes() as u32 * 4 + 1,
    }
}
