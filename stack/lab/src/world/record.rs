//! Who writes down what happens: what an end was before a step and is after it becomes a step of the ladder.

use xroce_transport::QpCounters;
use xroce_transport::qp::QpSnapshot;

use super::World;
use crate::ladder::{Effect, Step, What};
use crate::outcome;

/// An end before a step.
pub(super) struct Before {
    qp: QpSnapshot,
    counters: QpCounters,
    memory: Option<u64>,
}

impl World {
    pub(super) fn before(&self, end: usize) -> Before {
        let node = &self.nodes[end];
        Before { qp: node.snapshot(), counters: self.counters(end), memory: node.memory() }
    }

    fn counters(&self, end: usize) -> QpCounters {
        self.nodes[end].endpoint.qp_counters(self.nodes[end].qpn()).unwrap_or_default()
    }

    /// Writes a step down: what followed from it stands in the completion queue, the events, and what has changed.
    pub(super) fn record(&mut self, end: usize, what: What, before: Before, first: Option<Effect>) {
        let mut effects: Vec<Effect> = first.into_iter().collect();
        let after = self.before(end);
        if after.counters.duplicate_request > before.counters.duplicate_request {
            effects.push(Effect::Duplicate);
        }
        if let (Some(from), Some(to)) = (before.memory, after.memory)
            && from != to
        {
            effects.push(Effect::Memory { from, to });
        }
        let node = &mut self.nodes[end];
        for recv in [false, true] {
            while let Some(wc) = node.cqs[usize::from(recv)].poll_one() {
                node.completed(recv, wc.wr_id.0, wc.status);
                let (status, success) = (wc.status.to_string(), wc.status.is_success());
                effects.push(Effect::Completion { wr_id: wc.wr_id.0, recv, status, success });
            }
        }
        if before.qp.state != after.qp.state {
            effects.push(Effect::State { from: before.qp.state, to: after.qp.state });
        }
        while let Some(event) = node.endpoint.poll_event() {
            effects.push(Effect::Event(outcome::event_name(event.kind)));
        }
        let states = [0, 1].map(|end| Some(self.nodes[end].state()));
        let at_ns = self.net.now();
        self.ladder.steps.push(Step { at_ns, end, what, effects, note: None, states });
    }

    /// Which timer ran out, if one did.
    pub(super) fn expired(&self, end: usize, before: &Before) -> Option<String> {
        let after = self.before(end);
        outcome::expired((&before.qp, &before.counters), (&after.qp, &after.counters))
    }

    /// The packet just made had been sent before.
    pub(super) fn resent(&self, end: usize, before: &Before) -> bool {
        self.counters(end).resent_pkts > before.counters.resent_pkts
    }
}
