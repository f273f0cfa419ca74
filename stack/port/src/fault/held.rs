//! Frames kept back, and when they may go.

use crate::{RxFrame, TxClass};

/// A frame of our own: a copy that outlives the burst or the reservation it came from.
#[derive(Debug)]
pub(super) struct OwnFrame {
    bytes: Vec<u8>,
    head_len: usize,
    /// Of a transmitted frame.
    pub(super) class: TxClass,
    /// A second one of a frame that passed: it was not held, it only waits for room.
    pub(super) duplicate: bool,
}

impl OwnFrame {
    pub(super) fn copy_of(frame: &RxFrame<'_>, class: TxClass) -> OwnFrame {
        let mut bytes = Vec::with_capacity(frame.len());
        bytes.extend_from_slice(frame.head);
        bytes.extend_from_slice(frame.tail);
        OwnFrame { bytes, head_len: frame.head.len(), class, duplicate: false }
    }

    pub(super) fn into_duplicate(self) -> OwnFrame {
        OwnFrame { duplicate: true, ..self }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(super) fn lend(&self) -> RxFrame<'_> {
        let (head, tail) = self.bytes.split_at(self.head_len);
        RxFrame { head, tail }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// It only waits for room.
    Room,
    /// On the port's clock.
    Ns(u64),
    /// So many later frames of the direction.
    Frames(u32),
}

#[derive(Debug)]
struct Held {
    until: Until,
    frame: OwnFrame,
}

/// The frames of one direction that are kept back, oldest first.
#[derive(Debug, Default)]
pub(super) struct Hold(Vec<Held>);

impl Hold {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn keep(&mut self, frame: OwnFrame, until: Until) {
        self.0.push(Held { until, frame });
    }

    /// A later frame has passed.
    pub(super) fn frame_passed(&mut self) {
        for held in &mut self.0 {
            if let Until::Frames(left) = &mut held.until {
                *left -= 1;
                if *left == 0 {
                    held.until = Until::Room;
                }
            }
        }
    }

    /// Frames whose time has come wait only for room from now on.
    pub(super) fn clock(&mut self, now_ns: u64) {
        for held in &mut self.0 {
            if matches!(held.until, Until::Ns(at_ns) if at_ns <= now_ns) {
                held.until = Until::Room;
            }
        }
    }

    /// A frame that may go waits for room.
    pub(super) fn has_ready(&self) -> bool {
        self.0.iter().any(|held| held.until == Until::Room)
    }

    /// The oldest frame that may go.
    pub(super) fn pop_ready(&mut self) -> Option<OwnFrame> {
        let at = self.0.iter().position(|held| held.until == Until::Room)?;
        Some(self.0.remove(at).frame)
    }

    /// It could not go after all.
    pub(super) fn put_back(&mut self, frame: OwnFrame) {
        self.0.insert(0, Held { until: Until::Room, frame });
    }

    /// The earliest time at which one may go.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let times = self.0.iter().filter_map(|held| match held.until {
            Until::Ns(at_ns) => Some(at_ns),
            Until::Room | Until::Frames(_) => None,
        });
        times.min()
    }
}
