//! What every queue pair of an endpoint shares while it handles one call: memory, limits, and the lists that the call
//! adds to.

use std::collections::VecDeque;
use std::sync::Arc;

use xroce_wire::{IcrcMemo, Qpn};

use crate::config::Limits;
use crate::cq::{Cq, Push};
use crate::event::{Event, EventKind};
use crate::instant::Instant;
use crate::io::PathId;
use crate::memory::Lookup;
use crate::wc::Wc;
use crate::wq::Freed;

/// Events that may wait for the engine; more are dropped, oldest kept. The engine drains the list at every step.
const MAX_EVENTS: usize = 4096;

/// Different paths with an ACK timeout that may wait for the engine.
const MAX_UNANSWERED: usize = 16;

/// What leaves an endpoint beside packets.
pub(crate) struct Outbox {
    pub(crate) events: VecDeque<Event>,
    pub(crate) wakeups: VecDeque<Arc<Cq>>,
    /// A CQ overran: queue pairs of other endpoints may complete into it too.
    pub(crate) cq_died: bool,
    /// Paths whose packets went unanswered for the time of an ACK timer.
    pub(crate) unanswered: VecDeque<PathId>,
}

impl Outbox {
    /// Empty.
    pub(crate) fn new() -> Outbox {
        Outbox {
            events: VecDeque::new(),
            wakeups: VecDeque::new(),
            cq_died: false,
            unanswered: VecDeque::with_capacity(MAX_UNANSWERED),
        }
    }

    pub(crate) fn event(&mut self, kind: EventKind, qpn: Qpn) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(Event { kind, qpn: Some(qpn), cq: None });
        }
    }

    /// An ACK timer ran out on this path. Those that find no room are forgotten: the timer comes again.
    pub(crate) fn unanswered(&mut self, path: PathId) {
        if self.unanswered.len() < self.unanswered.capacity() && !self.unanswered.contains(&path) {
            self.unanswered.push_back(path);
        }
    }
}

/// The world of one call.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) memory: Lookup<'a>,
    pub(crate) limits: &'a Limits,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) icrcs: &'a mut IcrcMemo,
    /// Announce free RECVs in ACKs.
    pub(crate) credits: bool,
    /// A completion did not fit its CQ in this call: the queue pair must go to ERR.
    pub(crate) overrun: bool,
    /// A CQ died of that, which happens once: the other queue pairs that complete into it must go to ERR too.
    pub(crate) cq_died: bool,
}

impl Context<'_> {
    /// Puts the completion of a work request, whose place is free, on its queue, and notes whom to wake.
    // rule: wc.overrun, rc.resp.cq-overrun
    pub(crate) fn complete(&mut self, _: Freed, cq: &Arc<Cq>, wc: Wc, solicited: bool) {
        match cq.push(wc, solicited) {
            Push::Quiet => {}
            Push::Notify => self.outbox.wakeups.push_back(Arc::clone(cq)),
            Push::Overrun => {
                self.overrun = true;
                let Some(wake) = cq.announce_overrun() else { return };
                (self.cq_died, self.outbox.cq_died) = (true, true);
                if self.outbox.events.len() < MAX_EVENTS {
                    let event = Event { kind: EventKind::CqErr, qpn: Some(wc.qpn), cq: Some(cq.id()) };
                    self.outbox.events.push_back(event);
                }
                if wake {
                    self.outbox.wakeups.push_back(Arc::clone(cq));
                }
            }
        }
    }
}
