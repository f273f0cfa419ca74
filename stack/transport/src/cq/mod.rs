//! Completion queues: where shards tell applications what became of their work.
//!
//! In: completions, from any number of shards. Out: the same in order, to any number of application threads; and when
//! a sleeper has to be woken.
//!
//! A bounded ring with a sequence number a slot, after Vyukov's queue. A producer claims a slot by one compare-and-swap
//! and never waits for a consumer: if there is no slot, the queue is overrun, which is an error that stays.
//! Consumers take turns by a spin lock that is held for the copying of one poll.
//!
//! Slot at position *p* of a ring of *n*: sequence `p` = free for the producer that claims *p*; `p + 1` = published;
//! `p + n` = taken, free for the next round.

#[allow(unsafe_code, reason = "ring memory")]
mod ring;

#[cfg(test)]
mod tests;

use crate::sync::{AtomicBool, AtomicU32, Ordering, OwnLine, fence};
use crate::wc::Wc;
use ring::Ring;
use std::sync::Arc;
use xroce_wire::Qpn;

/// Completions the largest queue holds.
pub const MAX_CQE: u32 = 1 << 22;

/// Not armed: nobody sleeps.
const QUIET: u32 = 0;
/// Armed for solicited completions and errors.
const SOLICITED: u32 = 1;
/// Armed for any completion.
const ANY: u32 = 2;

/// A completion queue.
pub struct Cq {
    id: u64,
    ring: Ring,
    overrun: AtomicBool,
    /// Somebody has seen to what follows from the overrun.
    announced: AtomicBool,
    uses: AtomicU32,
    /// Read by every producer, written when somebody arms.
    armed: OwnLine<AtomicU32>,
}

/// What a push leaves to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a sleeper may have to be woken"]
pub enum Push {
    /// Nothing.
    Quiet,
    /// Wake whoever sleeps on the queue; it is not armed any more.
    Notify,
    /// The completion is lost: the queue was full, or had been at an earlier push. Put the queue pairs of the queue in error,
    /// and ask [`announce_overrun`](Cq::announce_overrun) whether there is more to do.
    Overrun,
}

/// Why a completion queue was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CqError {
    /// No such size.
    #[error("a completion queue of {cqe} entries; it must be 1 to {MAX_CQE}")]
    BadSize {
        /// What was asked for.
        cqe: u32,
    },
}

impl Cq {
    /// Makes a queue for at least `cqe` completions (1 to [`MAX_CQE`]). `id` is the caller's name for it.
    ///
    /// # Errors
    /// [`CqError::BadSize`].
    pub fn new(id: u64, cqe: u32) -> Result<Arc<Cq>, CqError> {
        if cqe == 0 || cqe > MAX_CQE {
            return Err(CqError::BadSize { cqe });
        }
        Ok(Arc::new(Cq {
            id,
            ring: Ring::new(cqe),
            overrun: AtomicBool::new(false),
            announced: AtomicBool::new(false),
            uses: AtomicU32::new(0),
            armed: OwnLine(AtomicU32::new(QUIET)),
        }))
    }

    /// Appends a completion. `solicited` says that the peer asked for an event; an error counts as solicited
    /// (IBTA, request notification).
    pub fn push(&self, wc: Wc, solicited: bool) -> Push {
        let solicited = solicited || !wc.status.is_success();
        if self.is_overrun() || !self.ring.push(wc) {
            self.overrun.store(true, Ordering::Release);
            return Push::Overrun;
        }
        // Pairs with the fence in `arm`: either this push sees the queue armed, or who arms sees this completion.
        fence(Ordering::SeqCst);
        if self.disarm(solicited) { Push::Notify } else { Push::Quiet }
    }

    /// What is left to do after [`Push::Overrun`], for the first who asks: raise the CQ error event, and wake the sleeper if
    /// `Some(true)`. None for everybody after that.
    pub fn announce_overrun(&self) -> Option<bool> {
        if self.announced.swap(true, Ordering::AcqRel) {
            return None;
        }
        // Pairs with the fence in `arm`, as in `push`. An overrun is an error, which every sleeper wants to hear of.
        fence(Ordering::SeqCst);
        Some(self.disarm(true))
    }

    /// Disarms the queue if it is armed for such a completion; true for the one caller who did.
    // rule: rc.resp.solicited
    fn disarm(&self, solicited: bool) -> bool {
        let wakes = |level: u32| level == ANY || (level == SOLICITED && solicited);
        let mut level = self.armed.0.load(Ordering::Relaxed);
        while wakes(level) {
            match self.armed.0.compare_exchange_weak(level, QUIET, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => level = now,
            }
        }
        false
    }

    /// Takes up to `out.len()` completions, oldest first; gives how many.
    // rule: wc.fifo
    pub fn poll(&self, out: &mut [Wc]) -> usize {
        let mut ring = self.ring.lock();
        let mut count = 0;
        while count < out.len() {
            let Some(wc) = ring.pop() else { break };
            out[count] = wc;
            count += 1;
        }
        count
    }

    /// Takes the oldest completion.
    pub fn poll_one(&self) -> Option<Wc> {
        self.ring.lock().pop()
    }

    /// Asks that the next completion wakes the sleeper: any, or with `solicited_only` one that is solicited or an error.
    /// Asking for any overrules asking for solicited ones, not the other way round (IBTA, request notification).
    ///
    /// True if something may be in the queue already: poll again before sleeping. Whoever arms, polls until the queue is
    /// empty and then sleeps is woken by every completion that this poll has not seen.
    // rule: wc.arm
    pub fn arm(&self, solicited_only: bool) -> bool {
        self.armed.0.fetch_max(if solicited_only { SOLICITED } else { ANY }, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.ring.is_empty() {
            // No completion will come to a dead queue; the coming poll tells.
            return self.is_overrun();
        }
        if solicited_only && self.ring.has_unpublished() {
            // A producer that is about to publish hides what stands behind it from the coming poll, and it alone decides
            // whether to wake; let it, whatever it publishes.
            self.armed.0.fetch_max(ANY, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        true
    }

    /// Drops the completions of a queue pair that is reset or destroyed; those of others keep their order. Completions
    /// that the queue pair pushes during this call may stay.
    pub fn purge(&self, qpn: Qpn) {
        self.ring.lock().retain(|wc| wc.qpn != qpn);
    }

    /// The name given at [`new`](Cq::new).
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether a completion was ever lost. What was in the queue before can still be polled.
    pub fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Acquire)
    }

    /// Whether it is overrun and everything that was kept has been polled. Asked after a poll that found nothing: what was pushed
    /// since, or is not published yet, is still to come.
    pub fn is_spent(&self) -> bool {
        // In this order: who sees the overrun sees all that was claimed before it.
        self.is_overrun() && self.ring.is_empty()
    }

    /// Completions it holds: what was asked for, rounded up.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// Notes that a queue pair uses the queue.
    pub fn hold(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back a [`hold`](Cq::hold).
    pub fn release(&self) {
        // Release, so that who sees 0 sees all that the user did. A release too many stops at 0.
        let _ = self.uses.fetch_update(Ordering::Release, Ordering::Relaxed, |uses| uses.checked_sub(1));
    }

    /// How many queue pairs use it; it must not be destroyed before that is 0.
    pub fn uses(&self) -> u32 {
        self.uses.load(Ordering::Acquire)
    }
}
