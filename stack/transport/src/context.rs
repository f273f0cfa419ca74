//! What every queue pair of an endpoint shares while it handles one call: memory, limits, and the lists that the call
//! adds to.

use std::collections::VecDeque;
use std::sync::Arc;

use xroce_wire::Qpn;

use crate::config::Limits;
use crate::cq::{Cq, Push};
use crate::event::{Event, EventKind};
use crate::instant::Instant;
use crate::memory::Memory;
use crate::wc::Wc;

/// Events that may wait for the engine; more are dropped, oldest kept. The engine drains the list at every step.
const MAX_EVENTS: usize = 4096;

/// What leaves an endpoint beside packets.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) events: VecDeque<Event>,
    pub(crate) wakeups: Vec<Arc<Cq>>,
}

impl Outbox {
    pub(crate) fn event(&mut self, kind: EventKind, qpn: Qpn) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(Event { kind, qpn: Some(qpn), cq: None });
        }
    }
}

/// The world of one call.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) memory: &'a Memory,
    pub(crate) limits: &'a Limits,
    pub(crate) outbox: &'a mut Outbox,
    /// Announce free RECVs in ACKs.
    pub(crate) credits: bool,
    /// A completion did not fit its CQ in this call: the queue pair must go to ERR.
    pub(crate) overrun: bool,
}

impl Context<'_> {
    /// Puts a completion on its queue, and notes whom to wake.
    pub(crate) fn complete(&mut self, cq: &Arc<Cq>, wc: Wc, solicited: bool) {
        match cq.push(wc, solicited) {
            Push::Quiet => {}
            Push::Notify => self.outbox.wakeups.push(Arc::clone(cq)),
            Push::Overrun => {
                self.overrun = true;
                let Some(wake) = cq.announce_overrun() else { return };
                if self.outbox.events.len() < MAX_EVENTS {
                    let event = Event { kind: EventKind::CqErr, qpn: Some(wc.qpn), cq: Some(cq.id()) };
                    self.outbox.events.push_back(event);
                }
                if wake {
                    self.outbox.wakeups.push(Arc::clone(cq));
                }
            }
        }
    }
}
