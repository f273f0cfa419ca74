//! Where every frame went.

use super::Loss;

/// Frames lost, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LossCounters {
    /// [`Loss::Random`].
    pub random: u64,
    /// [`Loss::Burst`].
    pub burst: u64,
    /// [`Loss::Queue`].
    pub queue: u64,
    /// [`Loss::Mtu`].
    pub mtu: u64,
    /// [`Loss::Down`].
    pub down: u64,
    /// [`Loss::Unroutable`].
    pub unroutable: u64,
    /// [`Loss::RxRing`].
    pub rx_ring: u64,
    /// [`Loss::TooLong`].
    pub too_long: u64,
}

impl LossCounters {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.random + self.burst + self.queue + self.mtu + self.down + self.unroutable + self.rx_ring + self.too_long
    }

    fn add(&mut self, other: &LossCounters) {
        self.random += other.random;
        self.burst += other.burst;
        self.queue += other.queue;
        self.mtu += other.mtu;
        self.down += other.down;
        self.unroutable += other.unroutable;
        self.rx_ring += other.rx_ring;
        self.too_long += other.too_long;
    }

    pub(super) fn count(&mut self, loss: Loss) {
        *match loss {
            Loss::Random => &mut self.random,
            Loss::Burst => &mut self.burst,
            Loss::Queue => &mut self.queue,
            Loss::Mtu => &mut self.mtu,
            Loss::Down => &mut self.down,
            Loss::Unroutable => &mut self.unroutable,
            Loss::RxRing => &mut self.rx_ring,
            Loss::TooLong => &mut self.too_long,
        } += 1;
    }
}

/// Where every frame went: of the whole network, or of the frames between two nodes. At any moment
/// `sent + duplicated == delivered + lost.total() + in_flight`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetCounters {
    /// Frames sent. A group frame counts once for each node it goes to.
    pub sent: u64,
    /// Copies made by the models.
    pub duplicated: u64,
    /// Frames put into a receiver's ring.
    pub delivered: u64,
    /// Frames lost.
    pub lost: LossCounters,
    /// Frames on their way now.
    pub in_flight: u64,
    /// Frames with flipped bits; they are delivered or lost beside that.
    pub corrupted: u64,
    /// Frames held back; they are delivered or lost beside that.
    pub held_back: u64,
}

impl NetCounters {
    /// Every frame is accounted for.
    #[must_use]
    pub fn balances(&self) -> bool {
        self.sent + self.duplicated == self.delivered + self.lost.total() + self.in_flight
    }

    pub(super) fn add(&mut self, other: &NetCounters) {
        self.sent += other.sent;
        self.duplicated += other.duplicated;
        self.delivered += other.delivered;
        self.lost.add(&other.lost);
        self.in_flight += other.in_flight;
        self.corrupted += other.corrupted;
        self.held_back += other.held_back;
    }
}
