//! A shard: queue pairs, a set of port queues, and the token that says who may work on them now.
//!
//! In: threads that want to step it, control calls, doorbells. Out: bounded steps, one at a time.
#![forbid(unsafe_code)]

use crate::core::{Budget, Common, Core, Outcome};
use crate::doorbell::Doorbell;
use crate::handover::Inbox;
use crate::sleep::Sleeper;
use crate::token::{Broken, Token};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use xroce_transport::instant::Instant;
use xroce_wire::Qpn;

/// Where other shards leave packets for a shard and wake it.
#[derive(Clone, Debug)]
pub struct Mailbox {
    /// The packets.
    pub inbox: Arc<Inbox>,
    /// The bed of the shard's thread.
    pub sleeper: Arc<Sleeper>,
}

/// Steps that a control call runs at most to have the peer paid what it is owed: enough for the turns of some hundred queue pairs,
/// and an end where no frame leaves.
const PAYING_STEPS: usize = 64;

/// A shard. Shared by everybody who may step it, post to it or control it.
#[derive(Debug)]
pub struct Shard {
    index: usize,
    token: Token<Core>,
    common: Arc<Common>,
    bells: Doorbell,
    sleeper: Arc<Sleeper>,
    budget: Budget,
    /// Steps run by the application.
    inline_steps: AtomicU64,
    /// The application came by to step while somebody else did.
    turned_away: AtomicBool,
}

impl Shard {
    pub(crate) fn new(index: usize, core: Core, common: Arc<Common>, bells: Doorbell, budget: Budget) -> Shard {
        let sleeper = common.mailboxes[index].sleeper.clone();
        let (inline_steps, turned_away) = (AtomicU64::new(0), AtomicBool::new(false));
        Shard { index, token: Token::new(core), common, bells, sleeper, budget, inline_steps, turned_away }
    }

    /// Its number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Runs one step if nobody else is doing so. None: somebody is, or a control call waits, or the shard is broken.
    #[inline]
    pub fn step(&self) -> Option<Outcome> {
        let mut core = self.token.try_take()?;
        let outcome = core.step(&self.common, &self.bells, &self.budget);
        Some(outcome)
    }

    /// As [`step`](Shard::step), by the application's own thread: the helper then knows that somebody polls, and is woken if
    /// the step left work, or a deadline before the time it wakes by itself. The application may never step again, and has
    /// taken the frames that would have woken the helper.
    #[inline]
    pub fn step_inline(&self) -> Option<Outcome> {
        let Some(mut core) = self.token.try_take() else {
            // Read first: one that spins here would keep the line from whoever steps.
            if !self.turned_away.load(Ordering::Relaxed) {
                self.turned_away.store(true, Ordering::Relaxed);
            }
            return None;
        };
        let outcome = core.step(&self.common, &self.bells, &self.budget);
        self.inline_steps.fetch_add(1, Ordering::Relaxed);
        // Under the token: a helper that lies down after this finds the work itself.
        if self.sleeper.is_asleep()
            && let Some(at) = core.next_step(&self.common, &outcome)
        {
            self.sleeper.wake_before(at);
        }
        Some(outcome)
    }

    /// Work was posted to `qpn`. A system call only if the shard's thread sleeps.
    #[inline]
    pub fn ring(&self, qpn: Qpn) {
        if self.bells.ring(qpn) {
            self.sleeper.wake();
        }
    }

    /// The bell at `qpn`'s place is `qpn`'s from now on.
    pub fn assign_bell(&self, qpn: Qpn) {
        self.bells.assign(qpn);
    }

    /// Somebody is about to wait for a completion queue, so the helper goes on duty at once.
    pub fn expect_waiter(&self) {
        self.sleeper.call();
    }

    /// Runs `change` with the token held, then one step, so that what the change brought about (flushed work, events, a nearer
    /// deadline) is seen at once.
    ///
    /// # Errors
    /// [`Broken`] after a step panicked.
    pub fn control<R>(&self, change: impl FnOnce(&mut Core, Instant) -> R) -> Result<R, Broken> {
        self.control_after(|core| core.endpoint.holds_acks(), change)
    }

    /// As [`control`](Shard::control), for a change after which `qpn` may owe its peer nothing any more, or be gone: what its
    /// application has seen arrive is acknowledged first, also where the packets of others are before that.
    ///
    /// # Errors
    /// As for [`control`](Shard::control).
    pub fn control_qp<R>(&self, qpn: Qpn, change: impl FnOnce(&mut Core, Instant) -> R) -> Result<R, Broken> {
        self.control_after(|core| core.endpoint.holds_acks() || core.endpoint.owes_acknowledge(qpn), change)
    }

    fn control_after<R>(
        &self,
        owes: impl Fn(&Core) -> bool,
        change: impl FnOnce(&mut Core, Instant) -> R,
    ) -> Result<R, Broken> {
        let result = {
            let mut core = self.token.take()?;
            for _ in 0..PAYING_STEPS {
                if !owes(&core) {
                    break;
                }
                core.step(&self.common, &self.bells, &self.budget);
            }
            let now = core.now();
            let result = change(&mut core, now);
            core.step(&self.common, &self.bells, &self.budget);
            result
        };
        self.sleeper.wake();
        Ok(result)
    }

    /// Runs `look` with the token held and changes nothing.
    ///
    /// # Errors
    /// [`Broken`] after a step panicked.
    pub fn inspect<R>(&self, look: impl FnOnce(&Core) -> R) -> Result<R, Broken> {
        Ok(look(&*self.token.take()?))
    }

    /// Sends what the peers are owed, if anything waits. Whether nothing does any more.
    pub(crate) fn settle(&self) -> bool {
        let Some(mut core) = self.token.try_take() else { return false };
        if core.endpoint.owes_acknowledges() {
            core.step(&self.common, &self.bells, &self.budget);
        }
        !core.endpoint.owes_acknowledges()
    }

    /// Whether a step panicked.
    pub fn is_broken(&self) -> bool {
        self.token.is_broken()
    }

    /// Raises the event that says that the device is of no more use, and wakes whoever waits for a completion.
    pub(crate) fn tell_fatal(&self) {
        self.common.tell_fatal();
        self.common.over.store(true, Ordering::SeqCst);
        self.common.cqs.wake_all();
    }

    /// Steps the application has run so far.
    pub(crate) fn inline_steps(&self) -> u64 {
        self.inline_steps.load(Ordering::Relaxed)
    }

    /// Whether the application came by to step while somebody else did, since this was last asked.
    pub(crate) fn has_turned_away(&self) -> bool {
        self.turned_away.load(Ordering::Relaxed) && self.turned_away.swap(false, Ordering::Relaxed)
    }

    /// Whether work was posted that no step has heard of.
    pub(crate) fn has_bells(&self) -> bool {
        !self.bells.is_empty()
    }

    /// Whether somebody armed a completion queue and was not woken since.
    pub(crate) fn someone_waits(&self) -> bool {
        self.common.cqs.anyone_waits()
    }

    pub(crate) fn sleeper(&self) -> &Sleeper {
        &self.sleeper
    }

    /// For a thread that has said it lies down: the last look for work before it sleeps. None: there is work. Otherwise how
    /// long to sleep at most, with the port's descriptors in `fds`.
    pub(crate) fn prepare_to_sleep(&self, fds: &mut Vec<RawFd>) -> Option<Option<u64>> {
        // Somebody else holds the token: it may be making work for us this moment.
        let mut core = self.token.try_take()?;
        if !self.bells.is_empty() || !core.is_idle(&self.common) {
            return None;
        }
        let (until, now) = core.prepare_to_sleep(fds);
        // Under the token: whoever steps next sees it.
        self.sleeper.alarm(until);
        Some(until.map(|at| at.since_ns(now)))
    }

    /// As [`prepare_to_sleep`](Shard::prepare_to_sleep) for an application thread, which sleeps outside the bed.
    pub(crate) fn prepare_to_doze(&self, fds: &mut Vec<RawFd>) -> Option<Option<u64>> {
        let mut core = self.token.try_take()?;
        if !self.bells.is_empty() || !core.is_idle(&self.common) {
            return None;
        }
        let (until, now) = core.prepare_to_sleep(fds);
        Some(until.map(|at| at.since_ns(now)))
    }

    /// The thread has slept.
    pub(crate) fn after_sleep(&self) {
        if let Ok(mut core) = self.token.take() {
            core.after_sleep();
        }
    }
}
