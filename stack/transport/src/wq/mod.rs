//! Work queues: the rings between the application that posts and the shard that carries out.
//!
//! In: work requests, checked here as far as a post can. Out: the same, in order, read in place.
//!
//! An entry is a header, its arguments and then either the SGEs or the inline bytes, in units of 16 bytes and in one
//! piece: where it would not fit before the end of the ring, a skip mark sends the reader to the start. The ring is made
//! so large that `depth` entries of the largest size and one skip always fit; so the producer only counts entries.
//! One producer, one consumer: `posted` is written by the first, `retired` by the second, each on its own line.
//! The memory and all `unsafe` are in `ring`, the layout of entries in `entry`, the checks of a post in `post`.

mod entry;
mod post;
#[allow(unsafe_code, reason = "ring memory")]
mod ring;

#[cfg(test)]
mod tests;

pub use entry::SendWqe;
pub use post::{RqProducer, SqProducer};

use crate::qp::state::QpType;
use crate::wr::{QpCap, Sge, WrId};
use ring::{Consumer, Ring};

/// Makes the send queue of a QP of service `kind`. Capacities beyond [`QpCap::MAX`] are cut to it; see
/// [`QpCap::check`].
pub fn send_queue(kind: QpType, cap: &QpCap) -> (SqProducer, SqConsumer) {
    let cap = cap.clamped();
    let (producer, consumer) = Ring::pair(cap.max_send_wr, entry::max_send_units(kind, &cap));
    (SqProducer::new(producer, kind, cap.max_send_sge, cap.max_inline_data), SqConsumer { ring: consumer })
}

/// Makes the receive queue of a QP. Capacities beyond [`QpCap::MAX`] are cut to it; see [`QpCap::check`].
pub fn recv_queue(cap: &QpCap) -> (RqProducer, RqConsumer) {
    let cap = cap.clamped();
    let (producer, consumer) = Ring::pair(cap.max_recv_wr, entry::max_recv_units(&cap));
    (RqProducer::new(producer, cap.max_recv_sge), RqConsumer { ring: consumer })
}

/// The place of a work request is free again. A completion needs it: whoever sees the completion may post in that place, from another
/// thread, before the one that wrote it does anything more.
#[derive(Debug)]
pub struct Freed(());

/// Where an entry of a send queue stands. Good until it is retired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WqePos {
    /// How many entries were posted before it, modulo 2^32.
    number: u32,
    /// Its first unit.
    unit: u32,
}

/// The reading end of a send queue.
pub struct SqConsumer {
    ring: Consumer,
}

impl SqConsumer {
    /// The next entry that was posted and not taken; it counts as taken from now on.
    #[inline]
    pub fn take(&mut self) -> Option<WqePos> {
        let (number, unit) = self.ring.take()?;
        Some(WqePos { number, unit })
    }

    /// Whether [`take`](SqConsumer::take) would give something.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.ring.has_more()
    }

    /// How many entries are posted and not retired.
    pub fn len(&self) -> u32 {
        self.ring.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many entries are taken and not retired.
    pub fn taken(&self) -> u32 {
        self.ring.taken()
    }

    /// The entry at `pos`.
    ///
    /// # Panics
    /// If it was retired: its units may be another entry's by now.
    #[inline]
    pub fn wqe(&self, pos: WqePos) -> SendWqe<'_> {
        SendWqe::new(self.ring.units(pos.number, pos.unit))
    }

    /// Frees the oldest entry that was taken. Does nothing if none is.
    #[inline]
    pub fn retire(&mut self) -> Freed {
        self.ring.retire();
        Freed(())
    }

    /// Forgets all entries, taken or not, without completing them (the QP goes to RESET).
    pub fn reset(&mut self) {
        self.ring.reset();
    }
}

/// The reading end of a receive queue.
pub struct RqConsumer {
    ring: Consumer,
}

/// A receive work request in the queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvWqe<'a> {
    /// The application's number.
    pub wr_id: WrId,
    /// Bytes it can take: the sum of its SGEs.
    pub length: u64,
    sges: &'a [Sge],
}

impl<'a> RecvWqe<'a> {
    /// The scatter list.
    #[inline]
    pub fn sges(&self) -> &'a [Sge] {
        self.sges
    }
}

impl RqConsumer {
    /// The oldest entry.
    #[inline]
    pub fn front(&self) -> Option<RecvWqe<'_>> {
        self.ring.front().map(entry::read_recv)
    }

    /// Frees the oldest entry. Does nothing if there is none.
    #[inline]
    pub fn pop(&mut self) -> Freed {
        if self.ring.take().is_some() {
            self.ring.retire();
        }
        Freed(())
    }

    /// How many entries there are.
    #[inline]
    pub fn len(&self) -> u32 {
        self.ring.len()
    }

    /// Whether there is no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all entries without completing them (the QP goes to RESET).
    pub fn reset(&mut self) {
        self.ring.reset();
    }
}
