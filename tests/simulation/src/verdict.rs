//! The end of a run: everything is finished, nothing is left over, and all memory is what it must be.
//!
//! In: a world in which nothing happens any more. Out: violations.

use xroce_transport::qp::state::{QpState, QpType};
use xroce_wire::Lkey;

use crate::buffer::{UNTOUCHED, message};
use crate::end::{Slot, Use};
use crate::generate::SHARED_BITS;
use crate::model::{Check, Rule, broken};
use crate::plan::Area;
use crate::world::World;

impl World<'_> {
    /// All checks at the end, and the way down.
    pub(crate) fn finish(&mut self) -> Check {
        for end in self.live_ends() {
            self.check_finished(end)?;
        }
        self.check_all_memory()?;
        for end in self.live_ends() {
            self.excuse(self.ends[end].id.conn);
            self.ends[end].holding = true;
            if self.ends[end].state() != QpState::Reset {
                self.move_to(end, QpState::Err)?;
            }
        }
        for node in 0..self.nodes.len() {
            self.poll(node)?;
        }
        for end in self.live_ends() {
            self.check_ended(end)?;
        }
        self.check_all_memory()?;
        self.check_shared_words()?;
        self.take_all_down()
    }

    /// Ends that have a queue pair.
    pub(crate) fn live_ends(&self) -> Vec<usize> {
        (0..self.ends.len()).filter(|end| self.ends[*end].handle.is_some()).collect()
    }

    /// Completions of this end may be lost.
    fn lossy(&self, end: usize) -> bool {
        self.nodes[self.ends[end].plan.node].cq.is_overrun()
    }

    /// Requests that make no completion are done when the wire shows it, unless the completion of a failure may be lost.
    fn settle(&mut self, index: usize) -> Check {
        if self.lossy(index) {
            return Ok(());
        }
        for quiet in self.flows[index].settle_tail() {
            self.succeeded(index, quiet)?;
        }
        Ok(())
    }

    /// Safety is checked all along; this is liveness: with the faults gone, all work has come to an end.
    fn check_finished(&mut self, index: usize) -> Check {
        self.settle(index)?;
        let (end, flow) = (&self.ends[index], &self.flows[index]);
        if self.lossy(index) || matches!(end.state(), QpState::Reset) {
            return Ok(());
        }
        // Without a timer nobody notices that an answer was lost, or will never come.
        let answers = matches!(self.ends[end.peer].state(), QpState::Rtr | QpState::Rts | QpState::Sqd);
        let deaf = flow.kind == QpType::Rc && end.plan.timeout == 0 && (flow.wire.is_harmed() || !answers);
        if deaf {
            return Ok(());
        }
        if let Some(op) = flow.open().first() {
            return broken(Rule::Liveness, format!("request {} of end {index} never ends ({})", op.id, end.state()));
        }
        if !end.todo.is_empty() {
            return broken(Rule::Liveness, format!("end {index} never gets to post {} requests", end.todo.len()));
        }
        let conn = end.id.conn;
        let (delivered, sent) = flow.deliveries();
        let peer = &self.ends[end.peer];
        let certain = match flow.kind {
            QpType::Rc => !self.lossy(end.peer) && !flow.is_forgotten(),
            QpType::Uc => {
                let supplied = peer.plan.recv_from == 0 && sent <= peer.plan.recv_depth as usize;
                supplied && flow.orderly && !flow.wire.is_harmed() && !self.lossy(end.peer)
            }
        };
        if certain && !self.excused[conn] && delivered < sent {
            return broken(Rule::Liveness, format!("{delivered} of {sent} messages of end {index} arrived"));
        }
        Ok(())
    }

    /// A queue pair in ERR has nothing outstanding.
    pub(crate) fn check_ended(&mut self, index: usize) -> Check {
        self.settle(index)?;
        if self.lossy(index) || self.ends[index].state() == QpState::Reset {
            return Ok(());
        }
        self.check_sends_ended(index)?;
        if let Some((id, _)) = self.ends[index].recvs.front() {
            return broken(Rule::Completion, format!("RECV {id:#x} of end {index} is not flushed"));
        }
        Ok(())
    }

    /// A send queue in ERR or SQE has nothing outstanding.
    pub(crate) fn check_sends_ended(&self, index: usize) -> Check {
        match self.flows[index].open().first() {
            Some(op) => broken(Rule::Completion, format!("request {} of end {index} is not flushed", op.id)),
            None => Ok(()),
        }
    }

    fn check_all_memory(&mut self) -> Check {
        for index in self.live_ends() {
            self.check_flow_area(index)?;
            self.check_own_memory(index)?;
        }
        Ok(())
    }

    /// Sources, answers, RECV buffers, and the bytes between and around them.
    fn check_own_memory(&self, index: usize) -> Check {
        let end = &self.ends[index];
        let actual = end.buffer.copy(0..end.layout.len);
        let mut expected = vec![UNTOUCHED; end.layout.len];
        let mut keep = |at: usize, len: usize| expected[at..at + len].copy_from_slice(&actual[at..at + len]);
        // The target has its own check.
        keep(end.layout.remote.start, end.layout.remote.len());
        let len = self.plan.conns[end.id.conn].recv_len as usize;
        for (slot, holds) in end.slots.iter().enumerate() {
            let uc = self.plan.conns[end.id.conn].kind == QpType::Uc;
            if uc || !matches!(holds, Slot::Holds { .. }) {
                keep(end.slot_at(slot), len);
            }
        }
        for (at, len, usage) in &end.used {
            if let Use::Answer(None) = usage {
                keep(*at, *len);
            }
        }
        for (slot, holds) in end.slots.iter().enumerate() {
            if let Slot::Holds { id, len } = holds {
                let at = end.slot_at(slot);
                expected[at..at + *len as usize].copy_from_slice(&message(*id, *len as usize));
            }
        }
        for (at, len, usage) in &end.used {
            match usage {
                Use::Source { id } => expected[*at..*at + *len].copy_from_slice(&message(*id, *len)),
                Use::Answer(Some(bytes)) => expected[*at..*at + *len].copy_from_slice(bytes),
                Use::Answer(None) => {}
            }
        }
        match actual.iter().zip(&expected).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => broken(
                Rule::Memory,
                format!("end {index} has {:#x} for {:#x} at offset {at} ({:?})", actual[at], expected[at], end.layout),
            ),
        }
    }

    /// Every add that succeeded happened once, every other at most once.
    fn check_shared_words(&self) -> Check {
        for (node, adds) in self.shared.iter().enumerate() {
            let word = self.nodes[node].shared.word(0);
            for bit in 0..SHARED_BITS {
                let add = adds.iter().find(|(b, ..)| *b == bit);
                let count = word >> (2 * bit) & 3;
                let fits = match add {
                    None => count == 0,
                    Some((_, _, true)) => count == 1,
                    Some((_, _, false)) => count <= 1,
                };
                if !fits {
                    return broken(Rule::Result, format!("the add of bit {bit} at node {node} happened {count} times"));
                }
            }
        }
        Ok(())
    }

    /// Everything is given back, and nothing is left.
    fn take_all_down(&mut self) -> Check {
        for index in self.live_ends() {
            self.destroy(index)?;
        }
        for index in 0..self.ends.len() {
            let end = &mut self.ends[index];
            let node = &self.nodes[end.plan.node];
            let mut keys = std::mem::take(&mut end.inv_keys);
            keys.extend([Area::Local, Area::Recv, Area::Remote].map(|area| *end.key_mut(area)));
            for key in keys.into_iter().filter(|key| *key != 0) {
                if let Err(error) = node.memory.deregister(Lkey(key)) {
                    return broken(Rule::Leak, error.to_string());
                }
            }
        }
        for node in &self.nodes {
            if let Err(error) = node.memory.deregister(Lkey(node.shared_key)) {
                return broken(Rule::Leak, error.to_string());
            }
            for pd in [node.pd, node.other_pd] {
                if let Err(error) = node.memory.dealloc_pd(pd) {
                    return broken(Rule::Leak, error.to_string());
                }
            }
            let (regions, users) = (node.memory.registered(), node.cq.uses());
            if regions != 0 || users != 0 {
                return broken(Rule::Leak, format!("{regions} regions and {users} users of the CQ are left"));
            }
        }
        Ok(())
    }
}
