//! The data side of applications: posting, polling, and holding every completion against the model.
//!
//! In: requests of the plan, completions. Out: posted work, violations.

use xroce_transport::Instant;
use xroce_transport::qp::state::{QpState, QpType};
use xroce_transport::wc::{Wc, WcStatus};
use xroce_transport::wr::{PostError, RecvWr, SendFlags, SendOp, SendWr, Sge, WrId};
use xroce_wire::{ImmData, Lkey, Rkey};

use crate::buffer::{UNTOUCHED, message};
use crate::end::{RECV_ID, Slot, Use, iova};
use crate::generate::OWN_WORDS;
use crate::model::{Check, Keys, Op, Outcome, Rule, Violation, broken};
use crate::node::SHARED_VA;
use crate::plan::{Act, Area, Flaw, Verb, Work};
use crate::world::World;

impl World<'_> {
    /// The application of a machine takes all completions and posts what it can.
    pub(crate) fn poll(&mut self, node: usize) -> Check {
        if !self.nodes[node].alive {
            return Ok(());
        }
        let mut busy = false;
        loop {
            while let Some(wc) = self.nodes[node].cq.poll_one() {
                self.completion(node, &wc)?;
                busy = true;
            }
            if self.nodes[node].cq.is_overrun() {
                // It tells the sleeper so whenever it is armed, and nothing more.
                self.overrun(node);
                break;
            }
            // Armed: what came before this must be seen now, what comes later wakes.
            if !self.plan.nodes[node].armed || !self.nodes[node].cq.arm(false) {
                break;
            }
        }
        for end in 0..self.ends.len() {
            if self.ends[end].plan.node == node {
                busy |= self.work(end)?;
            }
        }
        // Whoever found nothing to do looks again when something happens.
        if busy && !self.plan.nodes[node].armed {
            self.poll_later(node);
        }
        Ok(())
    }

    /// Completions were lost: whoever completes there may fail.
    pub(crate) fn overrun(&mut self, node: usize) {
        for end in 0..self.ends.len() {
            if self.ends[end].plan.node == node {
                self.excuse(self.ends[end].id.conn);
            }
        }
    }

    /// Posts RECVs and requests. Whether there were any.
    pub(crate) fn work(&mut self, index: usize) -> Result<bool, Violation> {
        let end = &self.ends[index];
        if end.holding || matches!(end.state(), QpState::Reset | QpState::Init | QpState::Rtr) {
            return Ok(false);
        }
        let recvs = self.post_recvs(index);
        let mut sends = false;
        while let Some(step) = self.ends[index].todo.front().copied() {
            if !self.post(index, step) {
                break;
            }
            self.ends[index].todo.pop_front();
            sends = true;
        }
        let end = &self.ends[index];
        if let Some(handle) = end.handle.as_ref().filter(|_| recvs || sends) {
            let (node, qpn) = (end.plan.node, handle.qpn);
            self.nodes[node].endpoint.doorbell(Instant(self.now), qpn);
            self.after(node)?;
        }
        Ok(recvs || sends)
    }

    fn post_recvs(&mut self, index: usize) -> bool {
        let len = self.plan.conns[self.ends[index].id.conn].recv_len;
        let end = &mut self.ends[index];
        if self.now < end.plan.recv_from && !self.healed {
            return false;
        }
        let failed = matches!(end.state(), QpState::Err | QpState::Sqe);
        if failed && (end.next_recv & 3) != 0 {
            // Some are posted after the failure, to see them flushed, but not for ever.
            return false;
        }
        let mut any = false;
        while end.recvs.len() < end.recv_depth {
            let Some(slot) = end.slots.iter().position(|slot| *slot != Slot::Posted) else { break };
            let at = end.slot_at(slot);
            end.buffer.write(at, &vec![UNTOUCHED; len as usize]);
            let va = iova(index, Area::Recv) + (at - end.layout.recv.start) as u64;
            let sges = split(va, len, 1 + (end.next_recv & 1) as u32, end.recv_key);
            let id = end.next_recv;
            let Some(handle) = &mut end.handle else { break };
            if handle.rq.post(&RecvWr { wr_id: WrId(id), sges: &sges }).is_err() {
                break;
            }
            end.next_recv += 1;
            end.slots[slot] = Slot::Posted;
            end.recvs.push_back((id, slot));
            any = true;
            if failed {
                break;
            }
        }
        any
    }

    /// Posts the request of a step. `false` if the queue is full.
    fn post(&mut self, index: usize, step: usize) -> bool {
        let Act::Post { work, .. } = &self.plan.steps[step].act else { return true };
        let mut work = work.clone();
        // Unsignaled requests must never fill the queue: nothing would tell that there is room again.
        work.signaled |= (self.ends[index].quiet + 1) * 2 > self.ends[index].plan.send_depth;
        let work = &work;
        let op = self.prepare(index, self.plan.steps[step].id, work);
        let conn = self.ends[index].id.conn;
        let sent = self.wire_op(index, &op);
        let end = &mut self.ends[index];
        let local = iova(index, Area::Local) + (op.local - end.layout.local.start) as u64;
        let sges = if work.inline { Vec::new() } else { split(local, work.len, work.pieces, end.local_key) };
        let bytes = if work.inline { end.buffer.copy(op.local..op.local + work.len as usize) } else { Vec::new() };
        let (front, back) = bytes.split_at(bytes.len() / 2);
        let inline: &[&[u8]] = if work.inline { &[front, back] } else { &[] };
        let wr = SendWr { wr_id: WrId(op.id), op: sent, flags: flags(work), sges: &sges, inline };
        let Some(handle) = &mut end.handle else { return true };
        match handle.sq.post(&wr, 1 << 31) {
            Ok(()) => {}
            Err(PostError::QueueFull { .. }) => {
                end.buffer.write(op.local, &vec![UNTOUCHED; work.len as usize]);
                return false;
            }
            Err(error) => panic!("request {} of the plan cannot be posted: {error}", op.id),
        }
        if work.inline {
            // Free at once: the application uses the memory for something else.
            end.buffer.write(op.local, &vec![0x11; work.len as usize]);
        }
        self.trace.line(self.now, || format!("end {index} posts {}: {work:?}", op.id));
        self.remember(index, work, op);
        if work.flaw != Flaw::None {
            self.excuse(conn);
        }
        true
    }

    /// The model's idea of a request.
    fn prepare(&mut self, index: usize, id: u64, work: &Work) -> Op {
        let (at, va) = self.place(index, work);
        let peer = self.ends[index].peer;
        let inv = if work.verb == Verb::SendInv {
            let node = &self.nodes[self.ends[peer].plan.node];
            self.ends[peer].key_to_invalidate(node)
        } else {
            0
        };
        let (compare, operand) = self.operands(index, id, work.verb);
        let end = &self.ends[index];
        Op {
            id,
            verb: work.verb,
            len: work.len,
            signaled: work.signaled || end.plan.sig_all,
            fence: work.fence,
            solicited: work.solicited,
            flaw: work.flaw,
            psns: 0,
            first: 0,
            va,
            at,
            imm: id as u32 ^ 0xA5A5_0000,
            inv,
            local: end.next_local,
            compare,
            operand,
            expect: Vec::new(),
            outcome: Outcome::Open,
        }
        .with_source(end, work)
    }

    /// Where a request goes at the peer: offset in its area, and address.
    fn place(&self, index: usize, work: &Work) -> (usize, u64) {
        let peer = &self.ends[self.ends[index].peer];
        let remote = peer.layout.remote.len();
        let at = match work.verb {
            Verb::Write(at) | Verb::WriteImm(at) | Verb::ReadTarget(at) => 8 * OWN_WORDS as usize + at as usize,
            Verb::ReadStock(at) => peer.layout.stock + at as usize,
            Verb::CmpSwap { word, .. } | Verb::FetchAdd { word } => 8 * word as usize,
            _ => 0,
        };
        let at = match work.flaw {
            // The alignment of an atomic is looked at before its range.
            Flaw::PastEnd if work.verb.is_atomic() => remote & !7,
            Flaw::PastEnd => remote + 1 - work.len.max(1) as usize,
            Flaw::Misaligned => at + 4,
            _ => at,
        };
        let shared = matches!(work.verb, Verb::SharedAdd { .. });
        let base = if shared { SHARED_VA } else { iova(self.ends[index].peer, Area::Remote) };
        (at, base + at as u64)
    }

    fn operands(&self, index: usize, id: u64, verb: Verb) -> (u64, u64) {
        let value = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        match verb {
            Verb::CmpSwap { word, hit } => {
                let believed = self.flows[index].words[word as usize];
                (if hit { believed } else { believed ^ 1 }, value)
            }
            Verb::FetchAdd { .. } => (0, value | 1),
            Verb::SharedAdd { bit } => (0, 1 << (2 * bit)),
            _ => (0, 0),
        }
    }

    /// The request in the transport's words.
    fn wire_op(&mut self, index: usize, op: &Op) -> SendOp {
        let peer = self.ends[index].peer;
        let node = self.ends[peer].plan.node;
        let mut rkey = Rkey(self.ends[peer].remote_key);
        if let Verb::SharedAdd { .. } = op.verb {
            rkey = Rkey(self.nodes[node].shared_key);
        }
        if op.flaw == Flaw::Key {
            rkey = Rkey(rkey.0 ^ 0x0101_0101);
        }
        let (va, imm) = (op.va, ImmData(op.imm));
        match op.verb {
            Verb::Send => SendOp::Send,
            Verb::SendImm => SendOp::SendImm(imm),
            Verb::SendInv => SendOp::SendInv(Rkey(op.inv)),
            Verb::Write(_) => SendOp::Write { va, rkey },
            Verb::WriteImm(_) => SendOp::WriteImm { va, rkey, imm },
            Verb::ReadStock(_) | Verb::ReadTarget(_) => SendOp::Read { va, rkey },
            Verb::CmpSwap { .. } => SendOp::CmpSwap { va, rkey, compare: op.compare, swap: op.operand },
            Verb::FetchAdd { .. } | Verb::SharedAdd { .. } => SendOp::FetchAdd { va, rkey, add: op.operand },
        }
    }

    fn remember(&mut self, index: usize, work: &Work, op: Op) {
        let end = &mut self.ends[index];
        end.quiet = if op.signaled { 0 } else { end.quiet + 1 };
        let at = end.take_local(work.len as usize);
        let usage = match work.verb {
            _ if work.inline => Use::Answer(Some(vec![0x11; work.len as usize])),
            verb if verb.is_rd_atomic() => Use::Answer(None),
            _ => Use::Source { id: op.id },
        };
        end.used.push((at, work.len as usize, usage));
        if let Verb::SharedAdd { bit } = op.verb {
            let node = self.ends[self.ends[index].peer].plan.node;
            self.shared[node].push((bit, index, false));
        }
        if op.verb == Verb::SendInv {
            let peer = self.ends[index].peer;
            self.ends[peer].spare_key = None;
        }
        self.flows[index].posted(op);
        self.totals.posted += 1;
    }

    fn completion(&mut self, node: usize, wc: &Wc) -> Check {
        let Some(end) = self.nodes[node].end_of(wc.qpn) else {
            return broken(Rule::Completion, format!("a completion of {}, which does not exist", wc.qpn));
        };
        self.trace.line(self.now, || {
            let (kind, id) =
                if wc.wr_id.0 & RECV_ID != 0 { ("RECV ", wc.wr_id.0 & !RECV_ID) } else { ("", wc.wr_id.0) };
            format!("end {end} completes {kind}{id}: {} ({} bytes)", wc.status, wc.byte_len)
        });
        if wc.wr_id.0 & RECV_ID != 0 { self.received(end, wc) } else { self.sent(end, wc) }
    }

    fn received(&mut self, index: usize, wc: &Wc) -> Check {
        let end = &mut self.ends[index];
        let Some((id, slot)) = end.recvs.pop_front() else {
            return broken(Rule::Completion, format!("RECV {} completes, which is not posted", wc.wr_id));
        };
        if id != wc.wr_id.0 {
            return broken(Rule::Completion, format!("RECV {} completes before {:#x}", wc.wr_id, id));
        }
        end.slots[slot] = Slot::Free;
        let peer = end.peer;
        match wc.status {
            WcStatus::Success => self.delivered(index, peer, slot, wc),
            WcStatus::WrFlushErr if self.excused[self.ends[index].id.conn] => Ok(()),
            WcStatus::LocLenErr if self.flows[peer].next_message().is_some_and(|op| op.flaw == Flaw::TooLong) => Ok(()),
            WcStatus::LocProtErr if self.ends[index].rekeyed[Area::Recv as usize] => Ok(()),
            status => broken(Rule::Status, format!("a RECV of end {index} ends with \"{status}\"")),
        }
    }

    fn delivered(&mut self, index: usize, from: usize, slot: usize, wc: &Wc) -> Check {
        let end = &self.ends[index];
        let (at, len) = (end.slot_at(slot), self.plan.conns[end.id.conn].recv_len as usize);
        let content = end.buffer.copy(at..at + len);
        let flow = &mut self.flows[from];
        let found = flow.delivers(wc, &content)?;
        self.totals.delivered += 1;
        let (id, verb, inv) = (flow.ops[found].id, flow.ops[found].verb, flow.ops[found].inv);
        let used = if matches!(verb, Verb::WriteImm(_)) { 0 } else { wc.byte_len as usize };
        if flow.kind == QpType::Rc {
            if content[used..].iter().any(|byte| *byte != UNTOUCHED) {
                return broken(Rule::Memory, format!("RECV {} has bytes behind its message", wc.wr_id));
            }
            flow.advance(found + 1);
        } else if matches!(verb, Verb::WriteImm(_)) {
            flow.check_allowed(found)?;
            self.check_uc_write(index, from, found)?;
        }
        self.ends[index].slots[slot] = Slot::Holds { id, len: used as u32 };
        if verb == Verb::SendInv {
            let node = &self.nodes[self.ends[index].plan.node];
            if node.memory.invalidate_remote(node.pd, Rkey(inv)).is_ok() {
                return broken(
                    Rule::Memory,
                    format!("the key of request {id} is alive after its SEND with Invalidate"),
                );
            }
        }
        self.check_flow_area(from)
    }

    fn check_uc_write(&self, index: usize, from: usize, found: usize) -> Check {
        let (end, op) = (&self.ends[index], &self.flows[from].ops[found]);
        let at = end.layout.remote.start + op.at;
        if end.buffer.copy(at..at + op.len as usize) != message(op.id, op.len as usize) {
            return broken(Rule::Delivery, format!("WRITE {} is delivered without all its bytes", op.id));
        }
        Ok(())
    }

    fn sent(&mut self, index: usize, wc: &Wc) -> Check {
        let before = self.flows[index].ops.len() - self.flows[index].open().len();
        let found = self.flows[index].completes(wc)?;
        for quiet in before..found {
            self.succeeded(index, quiet)?;
        }
        let conn = self.ends[index].id.conn;
        match wc.status {
            WcStatus::Success => self.succeeded(index, found),
            WcStatus::WrFlushErr if self.excused[conn] => Ok(()),
            WcStatus::WrFlushErr => broken(Rule::Status, format!("request {} is flushed without a cause", wc.wr_id)),
            status => {
                let peer = self.ends[self.ends[index].peer].rekeyed;
                let keys = Keys {
                    local: self.ends[index].rekeyed[Area::Local as usize],
                    remote: peer[Area::Remote as usize],
                    recv: peer[Area::Recv as usize],
                    rights: self.ends[self.ends[index].peer].rights_changed,
                };
                if !matches!(self.ends[self.ends[index].peer].state(), QpState::Rtr | QpState::Rts | QpState::Sqd) {
                    // Nobody answers there, and what waited to be answered is gone.
                    self.disturb(conn);
                }
                self.flows[index].check_failure(found, status, keys)?;
                self.excuse(conn);
                Ok(())
            }
        }
    }

    /// A request is done: what it should have done is there.
    pub(crate) fn succeeded(&mut self, index: usize, found: usize) -> Check {
        self.totals.succeeded += 1;
        let flow = &mut self.flows[index];
        flow.check_success(found)?;
        if flow.kind == QpType::Uc {
            return Ok(());
        }
        flow.advance(found + 1);
        let (local, len, verb, id) = {
            let op = &flow.ops[found];
            (op.local, op.len as usize, op.verb, op.id)
        };
        if verb.is_rd_atomic() {
            let got = self.ends[index].buffer.copy(local..local + len);
            self.flows[index].check_answer(found, &got)?;
            if let Verb::SharedAdd { bit } = verb {
                self.shared_done(index, bit, &got, id)?;
            }
            let usage = self.ends[index].used.iter_mut().find(|(at, ..)| *at == local);
            if let Some((_, _, answer)) = usage {
                *answer = Use::Answer(Some(got));
            }
        }
        self.check_flow_area(index)
    }

    fn shared_done(&mut self, index: usize, bit: u32, got: &[u8], id: u64) -> Check {
        let node = self.ends[self.ends[index].peer].plan.node;
        if let Some(entry) = self.shared[node].iter_mut().find(|(b, by, _)| (*b, *by) == (bit, index)) {
            entry.2 = true;
        }
        let mut bytes = [0; 8];
        bytes.copy_from_slice(got);
        if u64::from_ne_bytes(bytes) & (3 << (2 * bit)) != 0 {
            return broken(Rule::Result, format!("atomic {id} finds its own effect: it happened twice"));
        }
        Ok(())
    }

    /// What the requests of an end have made of the peer's memory.
    pub(crate) fn check_flow_area(&mut self, index: usize) -> Check {
        let peer = &self.ends[self.ends[index].peer];
        let flow = &mut self.flows[index];
        if flow.peer_gone || peer.buffer.len() < peer.layout.len {
            return Ok(());
        }
        flow.check_area(&peer.buffer.copy(peer.layout.remote.clone()))
    }
}

impl Op {
    /// Writes the message into the application's memory.
    fn with_source(self, end: &crate::end::End, work: &Work) -> Op {
        if !work.verb.is_rd_atomic() {
            end.buffer.write(self.local, &message(self.id, work.len as usize));
        }
        self
    }
}

fn flags(work: &Work) -> SendFlags {
    let mut flags = SendFlags::empty();
    flags.set(SendFlags::SIGNALED, work.signaled);
    flags.set(SendFlags::FENCE, work.fence);
    flags.set(SendFlags::SOLICITED, work.solicited);
    flags.set(SendFlags::INLINE, work.inline);
    flags
}

/// `len` bytes at `va` as a list of `pieces`, some of which may be empty.
fn split(va: u64, len: u32, pieces: u32, lkey: u32) -> Vec<Sge> {
    let cut = |i: u32| (u64::from(len) * u64::from(i * i) / u64::from(pieces * pieces)) as u32;
    (0..pieces).map(|i| Sge { addr: va + u64::from(cut(i)), length: cut(i + 1) - cut(i), lkey: Lkey(lkey) }).collect()
}
