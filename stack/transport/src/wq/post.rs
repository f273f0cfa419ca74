//! The posting ends: what is wrong with a work request is said here, before it enters the queue.
//!
//! In: a work request. Out: an entry in the ring, whole, or an error that names limit and value.
#![forbid(unsafe_code)]

use super::entry;
use super::ring::Producer;
use crate::qp::state::QpType;
use crate::wr::{MAX_MESSAGE, PostError, RecvWr, SendFlags, SendWr};

/// The posting end of a send queue.
pub struct SqProducer {
    ring: Producer,
    kind: QpType,
    max_sge: u32,
    max_inline: u32,
    max_rd_atomic: u8,
}

impl SqProducer {
    pub(super) fn new(ring: Producer, kind: QpType, max_sge: u32, max_inline: u32) -> SqProducer {
        SqProducer { ring, kind, max_sge, max_inline, max_rd_atomic: u8::MAX }
    }

    /// Work requests the queue holds.
    pub fn depth(&self) -> u32 {
        self.ring.depth()
    }

    /// Tells the queue what the QP was connected with: with 0, READs and atomics are refused at post, because they could
    /// never start (IBTA 9.4.4). Until this is called they are not refused.
    pub fn set_max_rd_atomic(&mut self, max: u8) {
        self.max_rd_atomic = max;
    }

    /// Posts a work request: all of it or nothing. `max_msg` is the longest message of the port, in bytes; the protocol's
    /// own limit of 2^31 holds anyway. Inline bytes are copied before this returns.
    ///
    /// The state of the QP is the caller's to check, and so is ringing the doorbell.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post(&mut self, wr: &SendWr<'_>, max_msg: u64) -> Result<(), PostError> {
        self.check_operation(wr)?;
        let length = self.check_data(wr, max_msg)?;
        self.check_atomic(wr, length)?;
        let posted = self.ring.push(entry::send_units(wr, length), |units| entry::write_send(wr, length, units));
        if posted { Ok(()) } else { Err(PostError::QueueFull { depth: self.depth() }) }
    }

    // rule: rc.req.max-rd-atomic.zero, uc.operations
    fn check_operation(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        let op = wr.op.name();
        let unknown = wr.flags.bits() & !SendFlags::all().bits();
        if unknown != 0 {
            return Err(PostError::UnknownFlags { bits: unknown });
        }
        if !wr.op.allowed_on(self.kind) {
            return Err(PostError::NotOnThisQp { op, kind: self.kind });
        }
        if wr.op.is_read_or_atomic() {
            if self.max_rd_atomic == 0 {
                return Err(PostError::NoReadAtomic { op });
            }
            if wr.flags.contains(SendFlags::INLINE) {
                return Err(PostError::InlineNotAllowed { op });
            }
        }
        Ok(())
    }

    /// Checks pieces and lengths; gives the length of the message.
    // rule: rc.req.inline, rc.req.local-fault
    fn check_data(&self, wr: &SendWr<'_>, max_msg: u64) -> Result<u32, PostError> {
        let (sges, pieces) = (wr.sges.len(), wr.inline.len());
        let inline = wr.flags.contains(SendFlags::INLINE);
        if (inline && sges > 0) || (!inline && pieces > 0) {
            return Err(PostError::InlineMixed { sges, pieces });
        }
        if sges > self.max_sge as usize {
            return Err(PostError::TooManySges { given: sges, max: self.max_sge });
        }
        let length = if inline {
            wr.inline.iter().fold(0u64, |sum, piece| sum.saturating_add(piece.len() as u64))
        } else {
            wr.sges.iter().map(|sge| u64::from(sge.length)).sum()
        };
        if inline && length > u64::from(self.max_inline) {
            return Err(PostError::InlineTooLong { length, max: self.max_inline });
        }
        let max = max_msg.min(MAX_MESSAGE);
        if length > max {
            return Err(PostError::MessageTooLong { length, max });
        }
        Ok(length as u32)
    }

    fn check_atomic(&self, wr: &SendWr<'_>, length: u32) -> Result<(), PostError> {
        use crate::wr::SendOp::{CmpSwap, FetchAdd};
        let (CmpSwap { .. } | FetchAdd { .. }) = wr.op else { return Ok(()) };
        let op = wr.op.name();
        if wr.sges.len() != 1 || length != 8 {
            return Err(PostError::BadAtomicSge { op, sges: wr.sges.len(), length: length.into() });
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.ring.memory() + size_of::<Self>() - size_of::<Producer>()
    }
}

/// The posting end of a receive queue.
pub struct RqProducer {
    ring: Producer,
    max_sge: u32,
}

impl RqProducer {
    pub(super) fn new(ring: Producer, max_sge: u32) -> RqProducer {
        RqProducer { ring, max_sge }
    }

    /// Work requests the queue holds.
    pub fn depth(&self) -> u32 {
        self.ring.depth()
    }

    /// Posts a work request: all of it or nothing.
    ///
    /// # Errors
    /// [`PostError::TooManySges`] and [`PostError::QueueFull`].
    pub fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let given = wr.sges.len();
        if given > self.max_sge as usize {
            return Err(PostError::TooManySges { given, max: self.max_sge });
        }
        let posted = self.ring.push(entry::recv_units(wr), |units| entry::write_recv(wr, units));
        if posted { Ok(()) } else { Err(PostError::QueueFull { depth: self.depth() }) }
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.ring.memory() + size_of::<Self>() - size_of::<Producer>()
    }
}
