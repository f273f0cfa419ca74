//! The network: what becomes of each frame.
//!
//! In: frames by sender, receiver and identity. Out: when they arrive, and unharmed or not. The dice of a frame depend on
//! the seed and on what the frame is (which queue pair, which packet, sent for the how-manieth time) and on nothing else,
//! so that taking something out of a scenario leaves the fate of the rest as it was.

use std::collections::BTreeMap;

use xroce_port::sim::{LinkModel, Rng};

use crate::plan::Outage;

/// What a frame is, for its dice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Identity {
    /// Index of the end that sends it, and its session.
    pub(crate) end: usize,
    pub(crate) session: u32,
    pub(crate) opcode: u8,
    pub(crate) psn: u32,
}

/// What becomes of a frame.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    Lost,
    Arrives {
        at: u64,
        /// When a second copy arrives.
        again: Option<u64>,
        /// Dice that say which of how many bits are flipped.
        corrupt: Option<(Rng, u32)>,
        /// It may be overtaken.
        held: bool,
    },
}

pub(crate) struct Net {
    seed: u64,
    weather: LinkModel,
    outages: Vec<Outage>,
    nodes: usize,
    /// Per pair of nodes: nothing that is not held back arrives before this.
    last_arrival: Vec<u64>,
    times_sent: BTreeMap<Identity, u64>,
    healed: bool,
}

impl Net {
    pub(crate) fn new(seed: u64, weather: LinkModel, outages: Vec<Outage>, nodes: usize) -> Net {
        let last_arrival = vec![0; nodes * nodes];
        Net { seed, weather, outages, nodes, last_arrival, times_sent: BTreeMap::new(), healed: false }
    }

    /// From now on frames are only delayed.
    pub(crate) fn heal(&mut self) {
        self.healed = true;
    }

    /// The longest that a frame can be under way, in nanoseconds.
    pub(crate) fn slowest(&self) -> u64 {
        self.weather.delay_max_ns + self.weather.reorder_hold_ns
    }

    /// Frames between two queue pairs arrive in order, and once.
    pub(crate) fn is_orderly(&self) -> bool {
        self.weather.reorder == 0.0 && self.weather.duplicate == 0.0
    }

    pub(crate) fn fate(&mut self, now: u64, from: usize, to: usize, identity: Identity) -> Fate {
        let times = self.times_sent.entry(identity).or_insert(0);
        *times += 1;
        let place = (identity.end as u64) << 56 ^ u64::from(identity.session) << 48 ^ u64::from(identity.opcode) << 40;
        let mut dice =
            Rng::stream(self.seed ^ times.wrapping_mul(0xD134_2543_DE82_EF95), place ^ u64::from(identity.psn));
        let weather = &self.weather;
        let lost = dice.chance(weather.loss);
        let again = dice.chance(weather.duplicate);
        let corrupt = dice.chance(weather.corrupt);
        let bits = dice.between(1, u64::from(weather.corrupt_bits_max)) as u32;
        let delay = dice.between(weather.delay_min_ns, weather.delay_max_ns);
        let second_delay = dice.between(weather.delay_min_ns, weather.delay_max_ns);
        let held = dice.chance(weather.reorder) && !self.healed;
        let outage = dice.chance(self.outage(now, from, to));
        if !self.healed && (lost || outage) {
            return Fate::Lost;
        }
        let last = &mut self.last_arrival[from * self.nodes + to];
        let in_order = (now + delay).max(*last);
        let at = if held { in_order + weather.reorder_hold_ns } else { in_order };
        if !held {
            *last = in_order;
        }
        let again = (again && !self.healed).then(|| {
            *last = (*last).max(now + second_delay);
            *last
        });
        let corrupt = (corrupt && !self.healed).then_some((dice, bits));
        Fate::Arrives { at, again, corrupt, held }
    }

    fn outage(&self, now: u64, from: usize, to: usize) -> f64 {
        let hit = |o: &&Outage| o.from == from && o.to == to && (o.start..o.end).contains(&now);
        self.outages.iter().filter(hit).map(|o| o.loss).fold(0.0, f64::max)
    }
}
