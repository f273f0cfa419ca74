//! The rules in force, and what they have done.
//!
//! What enters: rules, and each frame once. What leaves: what to do to it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::rule::{Action, Rule, RuleError, When};
use crate::sim::Rng;
use crate::{Direction, RxFrame};

/// What was done to the frames of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Frames looked at: those that came while a rule was in force.
    pub seen: u64,
    /// Frames lost by [`Action::Drop`].
    pub dropped: u64,
    /// Frames that passed twice.
    pub duplicated: u64,
    /// Frames held by [`Action::DelayNs`] or [`Action::HoldFrames`].
    pub held: u64,
    /// Those of them that have passed since: `held - released` are held now.
    pub released: u64,
    /// Frames with flipped bits.
    pub corrupted: u64,
    /// Faults that could not be done: no room for the copy of a transmitted frame, or a frame too short for
    /// [`Action::FlipBit`]. The frame itself passed.
    pub skipped: u64,
}

/// What a [`Fault`](super::Fault) has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// To received frames.
    pub rx: FaultCounts,
    /// To transmitted frames.
    pub tx: FaultCounts,
}

impl FaultCounters {
    pub(super) fn of(&mut self, direction: Direction) -> &mut FaultCounts {
        match direction {
            Direction::Rx => &mut self.rx,
            Direction::Tx => &mut self.tx,
        }
    }
}

/// A rule in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleId(u64);

/// How often a rule was asked and answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuleCounts {
    /// Frames that matched its predicate.
    pub matched: u64,
    /// Those of them that were meant, and to which its action was done unless an earlier rule had acted.
    pub fired: u64,
}

/// The remote control of a [`Fault`](super::Fault): it works from any thread, also after the port was given away.
#[derive(Debug, Clone)]
pub struct Faults(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// A rule is in force, or a frame is held: asked per burst without the lock.
    active: AtomicBool,
    next_release_ns: AtomicU64,
    plan: Mutex<Plan>,
}

#[derive(Debug)]
struct Plan {
    rng: Rng,
    rules: Vec<Armed>,
    next_id: u64,
    counters: FaultCounters,
}

#[derive(Debug)]
struct Armed {
    id: RuleId,
    rule: Rule,
    name: Arc<str>,
    counts: RuleCounts,
}

/// What is to be done to a frame, by which rule, and the dice that say where.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    pub(super) action: Action,
    pub(super) rule: Arc<str>,
    pub(super) dice: Rng,
}

impl Faults {
    pub(super) fn new(seed: u64) -> Faults {
        let plan = Plan { rng: Rng::new(seed), rules: Vec::new(), next_id: 0, counters: FaultCounters::default() };
        Faults(Arc::new(Shared {
            active: AtomicBool::new(false),
            next_release_ns: AtomicU64::new(u64::MAX),
            plan: Mutex::new(plan),
        }))
    }

    /// Puts a rule in force. Where several are meant for one frame, the first that was added acts, and all count.
    ///
    /// # Errors
    /// [`RuleError`] when the rule makes no sense.
    pub fn add(&self, rule: Rule) -> Result<RuleId, RuleError> {
        rule.check()?;
        let mut plan = self.plan();
        let id = RuleId(plan.next_id);
        plan.next_id += 1;
        let name = Arc::from(rule.name.as_str());
        plan.rules.push(Armed { id, rule, name, counts: RuleCounts::default() });
        self.0.active.store(true, Ordering::Release);
        Ok(id)
    }

    /// Takes a rule out of force: what it had done, or `None` when it was not in force.
    pub fn remove(&self, id: RuleId) -> Option<RuleCounts> {
        let mut plan = self.plan();
        let at = plan.rules.iter().position(|armed| armed.id == id)?;
        let removed = plan.rules.remove(at);
        self.0.active.store(!plan.rules.is_empty(), Ordering::Release);
        Some(removed.counts)
    }

    /// Takes all rules out of force. Frames that are held pass when their time comes.
    pub fn clear(&self) {
        self.plan().rules.clear();
        self.0.active.store(false, Ordering::Release);
    }

    /// What a rule has done; `None` when it is not in force.
    #[must_use]
    pub fn rule(&self, id: RuleId) -> Option<RuleCounts> {
        self.plan().rules.iter().find(|armed| armed.id == id).map(|armed| armed.counts)
    }

    /// What was done in all.
    #[must_use]
    pub fn counters(&self) -> FaultCounters {
        self.plan().counters
    }

    /// When the next frame held by [`Action::DelayNs`] passes, on the port's clock. A driver of virtual time must
    /// stop there, as the network below knows nothing of it.
    #[must_use]
    pub fn next_release(&self) -> Option<u64> {
        Some(self.0.next_release_ns.load(Ordering::Acquire)).filter(|at| *at != u64::MAX)
    }

    pub(super) fn set_next_release(&self, at_ns: Option<u64>) {
        self.0.next_release_ns.store(at_ns.unwrap_or(u64::MAX), Ordering::Release);
    }

    pub(super) fn in_force(&self) -> bool {
        self.0.active.load(Ordering::Acquire)
    }

    pub(super) fn count(&self, direction: Direction, change: impl FnOnce(&mut FaultCounts)) {
        change(self.plan().counters.of(direction));
    }

    /// Shows a frame to every rule.
    pub(super) fn judge(&self, direction: Direction, frame: &RxFrame<'_>) -> Option<Verdict> {
        let mut plan = self.plan();
        let Plan { rng, rules, counters, .. } = &mut *plan;
        counters.of(direction).seen += 1;
        let mut verdict = None;
        for armed in rules.iter_mut().filter(|armed| armed.rule.direction == direction) {
            if armed.rule.predicate.as_mut().is_some_and(|matches| !matches(frame)) {
                continue;
            }
            armed.counts.matched += 1;
            let n = armed.counts.matched;
            let meant = match armed.rule.when {
                When::Always => true,
                When::Nth(nth) => n == nth,
                When::Range { first, last } => (first..=last).contains(&n),
                When::Every(every) => n.is_multiple_of(every),
                When::Chance(p) => rng.chance(p),
            };
            if meant {
                armed.counts.fired += 1;
                verdict.get_or_insert_with(|| Verdict {
                    action: armed.rule.action,
                    rule: Arc::clone(&armed.name),
                    dice: Rng::new(rng.draw()),
                });
            }
        }
        verdict
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
