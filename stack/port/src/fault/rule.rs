//! What is to go wrong, and when.

use std::fmt;

use thiserror::Error;

use crate::{Direction, RxFrame};

/// What is done to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// It is lost.
    Drop,
    /// It passes twice.
    Duplicate,
    /// It passes so many nanoseconds later; frames behind it overtake.
    DelayNs(u64),
    /// It passes after so many later frames of its direction, 1 or more. When fewer follow it never does.
    HoldFrames(u32),
    /// So many of its bits are flipped, 1 or more, anywhere in it.
    CorruptBits(u32),
    /// This bit of it is flipped, counted from bit 0 of byte 0; nothing happens to a frame that is too short.
    FlipBit(usize),
}

/// Which of the frames that match are meant. Frames count from 1, in the order the direction carries them.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum When {
    /// All.
    Always,
    /// This one.
    Nth(u64),
    /// From `first` to `last`, both included.
    Range {
        /// 1 or more.
        first: u64,
        /// Not less than `first`.
        last: u64,
    },
    /// Each `n`-th.
    Every(u64),
    /// Each with this probability.
    Chance(f64),
}

/// A rule that makes no sense.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A probability outside 0.0 to 1.0, or not a number.
    #[error("rule {name:?}: probability {value} does not lie between 0.0 and 1.0")]
    Probability {
        /// The rule.
        name: String,
        /// The probability.
        value: f64,
    },
    /// A frame number, interval, range, hold or bit count that is empty.
    #[error("rule {name:?}: {what} means no frame or no change; frames count from 1")]
    Empty {
        /// The rule.
        name: String,
        /// The part of it.
        what: String,
    },
}

type Predicate = Box<dyn FnMut(&RxFrame<'_>) -> bool + Send>;

/// One thing that is to go wrong: an action on some of the frames of a direction.
pub struct Rule {
    pub(super) name: String,
    pub(super) direction: Direction,
    pub(super) action: Action,
    pub(super) when: When,
    pub(super) predicate: Option<Predicate>,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("name", &self.name)
            .field("direction", &self.direction)
            .field("action", &self.action)
            .field("when", &self.when)
            .finish_non_exhaustive()
    }
}

impl Rule {
    /// Does `action` to every frame of `direction`; narrow it down with the methods below.
    #[must_use]
    pub fn new(direction: Direction, action: Action) -> Rule {
        let name = format!("{} {action:?}", direction.as_str());
        Rule { name, direction, action, when: When::Always, predicate: None }
    }

    /// Does `action` to received frames.
    #[must_use]
    pub fn rx(action: Action) -> Rule {
        Rule::new(Direction::Rx, action)
    }

    /// Does `action` to transmitted frames.
    #[must_use]
    pub fn tx(action: Action) -> Rule {
        Rule::new(Direction::Tx, action)
    }

    /// Only frames for which `predicate` holds; only they are counted. It sees each frame of the direction once.
    #[must_use]
    pub fn matching(self, predicate: impl FnMut(&RxFrame<'_>) -> bool + Send + 'static) -> Rule {
        Rule { predicate: Some(Box::new(predicate)), ..self }
    }

    /// Only those of the frames that match.
    #[must_use]
    pub fn when(self, when: When) -> Rule {
        Rule { when, ..self }
    }

    /// Only the `n`-th frame that matches, from 1.
    #[must_use]
    pub fn nth(self, n: u64) -> Rule {
        self.when(When::Nth(n))
    }

    /// Each frame that matches, with probability `p`.
    #[must_use]
    pub fn chance(self, p: f64) -> Rule {
        self.when(When::Chance(p))
    }

    /// The name that stands in captures and events.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Rule {
        Rule { name: name.into(), ..self }
    }

    pub(super) fn check(&self) -> Result<(), RuleError> {
        if let When::Chance(value) = self.when
            && !(0.0..=1.0).contains(&value)
        {
            return Err(RuleError::Probability { name: self.name.clone(), value });
        }
        let empty_when = match self.when {
            When::Nth(n) | When::Every(n) => n == 0,
            When::Range { first, last } => first == 0 || last < first,
            When::Always | When::Chance(_) => false,
        };
        if empty_when {
            return Err(RuleError::Empty { name: self.name.clone(), what: format!("{:?}", self.when) });
        }
        if matches!(self.action, Action::HoldFrames(0) | Action::CorruptBits(0)) {
            return Err(RuleError::Empty { name: self.name.clone(), what: format!("{:?}", self.action) });
        }
        Ok(())
    }
}
