//! What the port knows of its link. What enters: outcomes of kicks and checks. What leaves: changes, each told once.

#![forbid(unsafe_code)]

use crate::port::LinkChange;
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// How long to leave a netdev that is down alone before the next kick.
const DOWN_PAUSE: Duration = Duration::from_millis(1);
/// How often the port looks whether netdev, program and sockets are still there, when no frame comes.
const CHECK_PERIOD: Duration = Duration::from_millis(20);
/// The clock is read at every so many calls of [`Link::check_due`].
const CALLS_A_CLOCK_READ: u32 = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Up,
    Down,
    Gone(Cow<'static, str>),
}

/// The link's state now, and what the engine was told last. A change and its reverse between two questions cancel.
#[derive(Debug)]
pub(super) struct Link {
    now: State,
    told: State,
    kick_after: Option<Instant>,
    next_check: Instant,
    /// A frame came since the last period began.
    alive: bool,
    calls: u32,
}

impl Link {
    pub(super) fn new() -> Link {
        Link { now: State::Up, told: State::Up, kick_after: None, next_check: Instant::now(), alive: false, calls: 0 }
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.now, State::Gone(_))
    }

    pub(super) fn up(&mut self) {
        if !self.is_gone() {
            self.now = State::Up;
            self.kick_after = None;
        }
    }

    pub(super) fn down(&mut self) {
        if !self.is_gone() {
            self.now = State::Down;
            self.kick_after = Some(Instant::now() + DOWN_PAUSE);
        }
    }

    pub(super) fn gone(&mut self, reason: impl Into<Cow<'static, str>>) {
        if !self.is_gone() {
            self.now = State::Gone(reason.into());
        }
    }

    /// A kick makes sense now. A netdev that is down is asked only now and then.
    pub(super) fn may_kick(&self) -> bool {
        !self.is_gone() && self.kick_after.is_none_or(|after| Instant::now() >= after)
    }

    /// Frames came: netdev, program and socket are there, so that nobody has to make system calls to find out.
    pub(super) fn received(&mut self) {
        self.alive = true;
    }

    /// It is time to look whether everything is still there. To be asked in every round.
    pub(super) fn check_due(&mut self, slept: bool) -> bool {
        if self.is_gone() {
            return false;
        }
        self.calls += 1;
        if self.calls < CALLS_A_CLOCK_READ && !slept {
            return false;
        }
        self.calls = 0;
        let now = Instant::now();
        if now < self.next_check {
            return false;
        }
        self.next_check = now + CHECK_PERIOD;
        let alive = std::mem::take(&mut self.alive);
        !alive || self.now != State::Up
    }

    /// The change since the last call.
    pub(super) fn change(&mut self) -> Option<LinkChange> {
        if self.now == self.told {
            return None;
        }
        self.told = self.now.clone();
        Some(match &self.now {
            State::Up => LinkChange::Up,
            State::Down => LinkChange::Down,
            State::Gone(reason) => LinkChange::Gone(reason.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once_and_gone_is_for_good() {
        let mut link = Link::new();
        assert_eq!(link.change(), None);
        link.down();
        link.down();
        assert!(!link.may_kick());
        assert_eq!(link.change(), Some(LinkChange::Down));
        assert_eq!(link.change(), None);
        link.up();
        assert!(link.may_kick());
        assert_eq!(link.change(), Some(LinkChange::Up));
        link.gone("removed");
        link.up();
        link.down();
        assert!(!link.may_kick());
        assert_eq!(link.change(), Some(LinkChange::Gone("removed".into())));
        assert_eq!(link.change(), None);
    }

    /// An engine goes on to ask, as often as before.
    #[test]
    fn who_is_gone_is_not_counted_on() {
        let mut link = Link::new();
        link.gone("removed");
        link.calls = u32::MAX;
        assert!(!link.check_due(false) && !link.check_due(true));
    }

    #[test]
    fn frames_that_come_spare_the_look() {
        let mut link = Link::new();
        let period_later = |link: &mut Link| link.next_check = Instant::now();
        assert!(link.check_due(true), "nothing has come yet");
        assert!(!link.check_due(true), "a period has not passed");
        link.received();
        period_later(&mut link);
        assert!(!link.check_due(true), "a frame came in this period");
        period_later(&mut link);
        assert!(link.check_due(true), "none came in this one");
        link.down();
        link.received();
        period_later(&mut link);
        assert!(link.check_due(true), "a frame from before does not tell when the netdev is up again");
    }
}
