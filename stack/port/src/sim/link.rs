//! One direction of one link: its model, and what it remembers from frame to frame.
//!
//! What enters: a frame's bytes and the time. What leaves: when it has left the sender, and whether and when it arrives.

use super::frame::ip_len;
use super::{LinkModel, Loss, Rng, WIRE_OVERHEAD};

const NS_PER_S: u128 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Link {
    model: LinkModel,
    /// No dice, no time: decided once per model, asked per frame.
    perfect: bool,
    rng: Rng,
    /// State of the burst model.
    bad: bool,
    /// When the wire is free again.
    busy_until_ns: u64,
    /// What the wire's time was rounded down by, in units of 1 / rate nanoseconds.
    busy_rest: u128,
    /// The latest arrival of a frame that was not held back: none behind it may be earlier.
    last_arrival_ns: u64,
}

/// What a link makes of a frame.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Offer {
    /// When the frame is off the sender's hands, in nanoseconds.
    pub(super) departs_ns: u64,
    pub(super) fate: Fate,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fate {
    Lost(Loss),
    Passes {
        arrives_ns: u64,
        /// When a copy arrives, if there is one.
        copy_arrives_ns: Option<u64>,
        /// How many bits to flip and the dice that say which.
        corrupt: Option<(u32, Rng)>,
        held_back: bool,
    },
}

impl Link {
    pub(super) fn new(model: LinkModel, rng: Rng) -> Link {
        let perfect = model.is_perfect();
        Link { model, perfect, rng, bad: false, busy_until_ns: 0, busy_rest: 0, last_arrival_ns: 0 }
    }

    pub(super) fn model(&self) -> &LinkModel {
        &self.model
    }

    /// Frames already on their way keep their fate, and those that follow do not overtake them.
    pub(super) fn set_model(&mut self, model: LinkModel) {
        self.perfect = model.is_perfect();
        self.model = model;
    }

    pub(super) fn offer(&mut self, now_ns: u64, frame: &[u8]) -> Offer {
        if self.perfect && self.last_arrival_ns <= now_ns {
            let fate = Fate::Passes { arrives_ns: now_ns, copy_arrives_ns: None, corrupt: None, held_back: false };
            return Offer { departs_ns: now_ns, fate };
        }
        if !self.model.up {
            return Offer { departs_ns: now_ns, fate: Fate::Lost(Loss::Down) };
        }
        if self.model.mtu.is_some_and(|mtu| ip_len(frame) > mtu as usize) {
            return Offer { departs_ns: now_ns, fate: Fate::Lost(Loss::Mtu) };
        }
        let Some(departs_ns) = self.transmit(now_ns, frame.len()) else {
            return Offer { departs_ns: now_ns, fate: Fate::Lost(Loss::Queue) };
        };
        Offer { departs_ns, fate: self.roll(departs_ns) }
    }

    /// When the frame is off the wire, or `None` when the queue has no room for it.
    fn transmit(&mut self, now_ns: u64, len: usize) -> Option<u64> {
        let Some(rate) = self.model.rate_bps.map(u128::from) else {
            // The rate may just have been taken away: what was queued goes first.
            return Some(self.busy_until_ns.max(now_ns));
        };
        let wire_bits = (len + WIRE_OVERHEAD) as u128 * 8;
        if self.busy_until_ns <= now_ns {
            self.busy_until_ns = now_ns;
            self.busy_rest = 0;
        }
        let backlog_bytes = u128::from(self.busy_until_ns - now_ns) * rate / (8 * NS_PER_S);
        if self.model.queue_bytes.is_some_and(|limit| backlog_bytes + wire_bits / 8 > u128::from(limit)) {
            return None;
        }
        let work = wire_bits * NS_PER_S + self.busy_rest;
        self.busy_rest = work % rate;
        self.busy_until_ns = self.busy_until_ns.saturating_add(u64::try_from(work / rate).unwrap_or(u64::MAX));
        Some(self.busy_until_ns)
    }

    /// Rolls all dice, in one order and all of them, on a stream of the frame's own: so a changed delay does not change
    /// which frames of the same seed are lost.
    fn roll(&mut self, departs_ns: u64) -> Fate {
        let mut dice = Rng::new(self.rng.draw());
        let model = &self.model;
        let lost = dice.chance(model.loss);
        let burst_move = dice.draw();
        let burst_loss = dice.draw();
        let duplicated = dice.chance(model.duplicate);
        let corrupted = dice.chance(model.corrupt);
        let bits = dice.between(1, u64::from(model.corrupt_bits_max));
        let delay_ns = dice.between(model.delay_min_ns, model.delay_max_ns);
        let copy_delay_ns = dice.between(model.delay_min_ns, model.delay_max_ns);
        let held_back = dice.chance(model.reorder);
        if let Some(burst) = model.burst {
            let moves = Rng::new(burst_move).chance(if self.bad { burst.to_good } else { burst.to_bad });
            self.bad ^= moves;
            let p = if self.bad { burst.loss_bad } else { burst.loss_good };
            if Rng::new(burst_loss).chance(p) {
                return Fate::Lost(Loss::Burst);
            }
        }
        if lost {
            return Fate::Lost(Loss::Random);
        }
        let in_order_ns = departs_ns.saturating_add(delay_ns).max(self.last_arrival_ns);
        let arrives_ns = if held_back {
            in_order_ns.saturating_add(self.model.reorder_hold_ns)
        } else {
            self.last_arrival_ns = in_order_ns;
            in_order_ns
        };
        let copy_arrives_ns = duplicated.then(|| {
            self.last_arrival_ns = self.last_arrival_ns.max(departs_ns.saturating_add(copy_delay_ns));
            self.last_arrival_ns
        });
        let corrupt = corrupted.then(|| (u32::try_from(bits).unwrap_or(u32::MAX), dice));
        Fate::Passes { arrives_ns, copy_arrives_ns, corrupt, held_back }
    }
}

#[cfg(test)]
mod tests {
    use super::super::BurstLoss;
    use super::*;

    fn link(model: LinkModel) -> Link {
        Link::new(model, Rng::new(1))
    }

    #[test]
    fn rate_spaces_frames_without_drift() {
        // 1000 bytes with overhead at 3 bit/ns is 2666.67 ns: three frames take 8000 ns, not 3 x 2666.
        let mut link = link(LinkModel { rate_bps: Some(3_000_000_000), ..LinkModel::default() });
        let frame = vec![0; 1000 - WIRE_OVERHEAD];
        let left: Vec<u64> = (0..3).map(|_| link.offer(500, &frame).departs_ns).collect();
        assert_eq!(left, [3166, 5833, 8500]);
        // Idle since: the wire does not save up time.
        assert_eq!(link.offer(100_000, &frame).departs_ns, 102_666);
    }

    #[test]
    fn queue_limit_drops_the_tail_and_drains() {
        let model = LinkModel { rate_bps: Some(8_000_000_000), queue_bytes: Some(2500), ..LinkModel::default() };
        let mut link = link(model);
        let frame = vec![0; 1000 - WIRE_OVERHEAD];
        let fates: Vec<bool> = (0..3).map(|_| matches!(link.offer(0, &frame).fate, Fate::Passes { .. })).collect();
        assert_eq!(fates, [true, true, false]);
        assert_eq!(link.offer(499, &frame).fate, Fate::Lost(Loss::Queue));
        assert!(matches!(link.offer(500, &frame).fate, Fate::Passes { arrives_ns: 3000, .. }));
    }

    #[test]
    fn a_changed_delay_does_not_change_who_is_lost() {
        let fates = |delay_max_ns| {
            let mut link = link(LinkModel { loss: 0.3, delay_max_ns, ..LinkModel::default() });
            (0..500).map(|_| matches!(link.offer(0, &[0; 60]).fate, Fate::Lost(_))).collect::<Vec<bool>>()
        };
        assert_eq!(fates(0), fates(1000));
    }

    #[test]
    fn bursts_are_as_long_as_the_model_says() {
        let burst = BurstLoss { to_bad: 0.01, to_good: 0.2, loss_bad: 1.0, loss_good: 0.0 };
        let mut link = link(LinkModel { burst: Some(burst), ..LinkModel::default() });
        let lost: Vec<bool> = (0..200_000).map(|_| matches!(link.offer(0, &[0; 60]).fate, Fate::Lost(_))).collect();
        let losses = lost.iter().filter(|l| **l).count() as f64;
        let bursts = lost.windows(2).filter(|w| !w[0] && w[1]).count() as f64;
        // Mean burst 1 / 0.2 = 5 frames; share of bad time 0.01 / (0.01 + 0.2).
        assert!((losses / bursts - 5.0).abs() < 0.5, "mean burst {}", losses / bursts);
        assert!((losses / 200_000.0 - 0.01 / 0.21).abs() < 0.006, "loss {}", losses / 200_000.0);
    }

    #[test]
    fn jitter_alone_keeps_the_order_also_when_the_model_changes() {
        let mut link = link(LinkModel { delay_max_ns: 5_000, ..LinkModel::default() });
        let mut last = 0;
        for now in (0..100_000).step_by(100) {
            if now == 50_000 {
                link.set_model(LinkModel::default());
            }
            let Fate::Passes { arrives_ns, .. } = link.offer(now, &[0; 60]).fate else { panic!("lost") };
            assert!(arrives_ns >= last, "{arrives_ns} overtakes {last}");
            last = arrives_ns;
        }
    }
}
