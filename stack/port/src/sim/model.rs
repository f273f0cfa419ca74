//! What a link does to the frames it carries.

use super::ModelError;

/// Bytes a frame takes on the wire beside its own: preamble (8), FCS (4) and the gap between frames (12), IEEE 802.3.
pub const WIRE_OVERHEAD: usize = 24;

/// One direction of one link. The default carries every frame at once and unharmed.
///
/// A frame meets the parts in the order of the fields: up, MTU, queue, rate, loss, duplication, corruption, delay,
/// reordering. Loss and the rest happen behind the queue: a lost frame took its time on the wire.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkModel {
    /// The link carries frames. One that is down loses all, which its ends do not see: see
    /// [`SimNet::set_carrier`](super::SimNet::set_carrier) for what they see.
    pub up: bool,
    /// Bytes of the largest IP packet that passes; a longer one is lost. `None`: any.
    pub mtu: Option<u32>,
    /// Bits per second, counted with [`WIRE_OVERHEAD`]. `None`: no time is spent.
    pub rate_bps: Option<u64>,
    /// Bytes that may wait for the wire, the frame on it included; a frame that would not fit is lost (drop-tail).
    /// Without a rate nothing ever waits. `None`: any number.
    pub queue_bytes: Option<u64>,
    /// Probability that a frame is lost, each for itself.
    pub loss: f64,
    /// Loss in bursts, beside `loss`.
    pub burst: Option<BurstLoss>,
    /// Probability that a frame arrives twice. The copy has a delay of its own and is not corrupted.
    pub duplicate: f64,
    /// Probability that bits of a frame are flipped, anywhere in it.
    pub corrupt: f64,
    /// At most this many bits of a corrupted frame are flipped, and at least one; each number is as likely.
    pub corrupt_bits_max: u32,
    /// The shortest delay in nanoseconds.
    pub delay_min_ns: u64,
    /// The longest delay in nanoseconds. Delays between are equally likely, but never reorder frames: see `reorder`.
    pub delay_max_ns: u64,
    /// Probability that a frame is held back by `reorder_hold_ns`, so that those behind it may overtake.
    pub reorder: f64,
    /// Extra delay of a held frame, in nanoseconds.
    pub reorder_hold_ns: u64,
}

/// Loss in bursts: the model of Gilbert and Elliott, a link that is in a good or in a bad state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BurstLoss {
    /// Probability per frame to fall from good to bad.
    pub to_bad: f64,
    /// Probability per frame to recover from bad to good: a burst is 1 / `to_good` frames long in the mean.
    pub to_good: f64,
    /// Probability that a frame is lost in the bad state.
    pub loss_bad: f64,
    /// Probability that a frame is lost in the good state.
    pub loss_good: f64,
}

impl Default for LinkModel {
    fn default() -> LinkModel {
        LinkModel {
            up: true,
            mtu: None,
            rate_bps: None,
            queue_bytes: None,
            loss: 0.0,
            burst: None,
            duplicate: 0.0,
            corrupt: 0.0,
            corrupt_bits_max: 1,
            delay_min_ns: 0,
            delay_max_ns: 0,
            reorder: 0.0,
            reorder_hold_ns: 10_000,
        }
    }
}

impl LinkModel {
    /// A link with no flaw but a fixed delay in nanoseconds.
    #[must_use]
    pub fn with_delay_ns(delay_ns: u64) -> LinkModel {
        LinkModel { delay_min_ns: delay_ns, delay_max_ns: delay_ns, ..LinkModel::default() }
    }

    /// A link with no flaw but independent loss.
    #[must_use]
    pub fn with_loss(loss: f64) -> LinkModel {
        LinkModel { loss, ..LinkModel::default() }
    }

    /// Nothing can happen to a frame, and no dice need be rolled.
    #[must_use]
    pub fn is_perfect(&self) -> bool {
        let quiet = LinkModel {
            queue_bytes: self.queue_bytes,
            corrupt_bits_max: self.corrupt_bits_max,
            reorder_hold_ns: self.reorder_hold_ns,
            ..LinkModel::default()
        };
        *self == quiet
    }

    /// Looks for values that make no sense.
    ///
    /// # Errors
    /// [`ModelError`] names the first field that does not.
    pub fn check(&self) -> Result<(), ModelError> {
        let probability = |field, value: f64| {
            if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(ModelError::Probability { field, value }) }
        };
        probability("loss", self.loss)?;
        probability("duplicate", self.duplicate)?;
        probability("corrupt", self.corrupt)?;
        probability("reorder", self.reorder)?;
        if let Some(burst) = &self.burst {
            probability("burst.to_bad", burst.to_bad)?;
            probability("burst.to_good", burst.to_good)?;
            probability("burst.loss_bad", burst.loss_bad)?;
            probability("burst.loss_good", burst.loss_good)?;
        }
        if self.delay_min_ns > self.delay_max_ns {
            return Err(ModelError::Delay { min_ns: self.delay_min_ns, max_ns: self.delay_max_ns });
        }
        if self.rate_bps == Some(0) {
            return Err(ModelError::Rate);
        }
        if self.corrupt > 0.0 && self.corrupt_bits_max == 0 {
            return Err(ModelError::CorruptBits);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let bad = LinkModel { reorder: 1.5, ..LinkModel::default() };
        assert_eq!(bad.check(), Err(ModelError::Probability { field: "reorder", value: 1.5 }));
        assert!(LinkModel { loss: f64::NAN, ..LinkModel::default() }.check().is_err());
        assert_eq!(LinkModel { rate_bps: Some(0), ..LinkModel::default() }.check(), Err(ModelError::Rate));
        let delay = LinkModel { delay_min_ns: 2, delay_max_ns: 1, ..LinkModel::default() };
        assert_eq!(delay.check(), Err(ModelError::Delay { min_ns: 2, max_ns: 1 }));
        let bits = LinkModel { corrupt: 0.1, corrupt_bits_max: 0, ..LinkModel::default() };
        assert_eq!(bits.check(), Err(ModelError::CorruptBits));
        let burst = BurstLoss { to_bad: 0.1, to_good: -0.1, loss_bad: 1.0, loss_good: 0.0 };
        let bad = LinkModel { burst: Some(burst), ..LinkModel::default() };
        assert_eq!(bad.check(), Err(ModelError::Probability { field: "burst.to_good", value: -0.1 }));
    }

    #[test]
    fn perfect_means_that_nothing_happens() {
        assert!(LinkModel::default().is_perfect());
        assert!(LinkModel { queue_bytes: Some(1), reorder_hold_ns: 5, ..LinkModel::default() }.is_perfect());
        assert!(!LinkModel::with_delay_ns(1).is_perfect());
        assert!(!LinkModel::with_loss(1e-9).is_perfect());
        assert!(!LinkModel { up: false, ..LinkModel::default() }.is_perfect());
        assert!(!LinkModel { mtu: Some(1500), ..LinkModel::default() }.is_perfect());
    }
}
