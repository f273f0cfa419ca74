//! One direction of a connection: the requests of one queue pair, in order, and the memory of the peer that they change.
//!
//! In: requests as they are posted, completions of both ends. Out: violations. The peer's memory is kept as it must be
//! after the first `applied` requests; what it really holds must be that, or that and a beginning of what follows, packet
//! by packet, because requests of an RC are carried out in order (IBTA, operations by service).

use core::ops::Range;

use xroce_transport::qp::state::QpType;
use xroce_transport::wc::{Wc, WcFlags, WcOpcode, WcStatus};
use xroce_wire::Psn;

use super::{Check, Limits, Rule, WireView, broken};
use crate::buffer::pattern;
use crate::plan::{Flaw, Verb};

/// A posted request.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) id: u64,
    pub(crate) verb: Verb,
    pub(crate) len: u32,
    pub(crate) signaled: bool,
    pub(crate) fence: bool,
    pub(crate) solicited: bool,
    pub(crate) flaw: Flaw,
    /// PSNs it takes, and the position of its first.
    pub(crate) psns: u32,
    pub(crate) first: u64,
    /// Address at the peer.
    pub(crate) va: u64,
    /// The same as an offset in the peer's area.
    pub(crate) at: usize,
    pub(crate) imm: u32,
    /// The key of the peer that is to be invalidated.
    pub(crate) inv: u32,
    /// Offset of its bytes in the application's memory: source, or where the answer goes.
    pub(crate) local: usize,
    /// Compare and swap; or add.
    pub(crate) compare: u64,
    pub(crate) operand: u64,
    /// READ, atomic: what was there when it was its turn.
    pub(crate) expect: Vec<u8>,
    pub(crate) outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Open,
    Success,
    Failed,
}

impl Op {
    /// Bytes of the peer's area that it changes or reads.
    fn range(&self) -> Range<usize> {
        self.at..self.at + self.len as usize
    }

    fn writes(&self) -> bool {
        matches!(self.verb, Verb::Write(_) | Verb::WriteImm(_))
    }

    fn reads(&self) -> bool {
        matches!(self.verb, Verb::ReadStock(_) | Verb::ReadTarget(_))
    }

    /// An operation of no bytes looks at no key and no address (IBTA, RDMA WRITE).
    pub(crate) fn must_fail(&self) -> bool {
        match self.flaw {
            Flaw::None => false,
            Flaw::Key | Flaw::PastEnd => self.len > 0,
            Flaw::Misaligned | Flaw::TooLong => true,
        }
    }

    /// What an atomic leaves.
    fn after(&self, old: u64) -> u64 {
        match self.verb {
            Verb::CmpSwap { .. } if old != self.compare => old,
            Verb::CmpSwap { .. } => self.operand,
            _ => old.wrapping_add(self.operand),
        }
    }
}

/// One direction of a connection.
pub(crate) struct Flow {
    pub(crate) kind: QpType,
    mtu: usize,
    pub(crate) ops: Vec<Op>,
    /// Requests whose outcome is known.
    settled: usize,
    /// A request ended with an error: all that follow are flushed.
    pub(crate) failed: bool,
    /// What the packets show.
    pub(crate) wire: WireView,
    /// The peer's area after `ops[..applied]`. For UC: what every arrived request made of it is not known before.
    area: Vec<u8>,
    applied: usize,
    /// Requests that take a RECV, and how many of them arrived.
    messages: Vec<usize>,
    delivered: usize,
    /// The network neither reorders nor duplicates.
    pub(crate) orderly: bool,
    /// What the own words will be when all that is posted is done.
    pub(crate) words: Vec<u64>,
    /// The peer's machine died: its memory tells nothing.
    pub(crate) peer_gone: bool,
    /// The queue pair was reset or died: nothing that was outstanding completes.
    forgotten: bool,
    /// Position of the next request after a recovery; it need not be where the last one ended.
    resumes_at: Option<u64>,
    /// What is posted from here on finds the peer's memory without rights, or in another domain.
    pub(crate) memory_denied_from: Option<usize>,
    /// What is posted from here on finds the peer's queue pair without rights.
    pub(crate) rights_denied_from: Option<usize>,
}

impl Flow {
    /// Nothing posted; `area` is what the peer's memory holds.
    pub(crate) fn new(limits: Limits, start: Psn, area: Vec<u8>, orderly: bool, words: Vec<u64>) -> Flow {
        Flow {
            kind: limits.kind,
            mtu: limits.mtu,
            ops: Vec::new(),
            settled: 0,
            failed: false,
            wire: WireView::new(limits, start),
            area,
            applied: 0,
            messages: Vec::new(),
            delivered: 0,
            orderly,
            words,
            peer_gone: false,
            forgotten: false,
            resumes_at: None,
            memory_denied_from: None,
            rights_denied_from: None,
        }
    }

    /// The send queue goes on after a failure, with the PSN that the queue pair gives. What was flushed before it began took
    /// none; a message that was begun took all of its own, whether or not they were sent.
    pub(crate) fn recover(&mut self, psn: Psn) -> Check {
        let (at, sent) = (self.wire.position(psn), self.wire.sent);
        let lost = self.ops.iter().rev().take_while(|op| op.outcome == Outcome::Failed);
        let most = sent + lost.map(|op| u64::from(op.psns)).max().unwrap_or(0);
        if !(sent as i64..=most as i64).contains(&at) {
            return broken(Rule::Segmentation, format!("the queue goes on at {at}; {sent} are sent, {most} the most"));
        }
        let at = at as u64;
        for op in self.ops.iter_mut().rev().take_while(|op| op.outcome == Outcome::Failed && op.first >= sent) {
            (op.first, op.psns) = (at, 0);
        }
        self.wire.resume(at);
        (self.failed, self.resumes_at) = (false, Some(at));
        Ok(())
    }

    /// A request that reached the peer's memory must have been allowed to.
    pub(crate) fn check_allowed(&self, index: usize) -> Check {
        let op = &self.ops[index];
        let reaches = (op.writes() || op.reads() || op.verb.is_atomic()) && op.len > 0;
        let of_area = reaches && !matches!(op.verb, Verb::SharedAdd { .. });
        let denied = |from: Option<usize>| from.is_some_and(|from| index >= from);
        if (of_area && denied(self.memory_denied_from)) || (reaches && denied(self.rights_denied_from)) {
            return broken(Rule::Memory, format!("request {} reaches memory without the right to", op.id));
        }
        Ok(())
    }

    /// What is outstanding never completes; it may still have effects.
    pub(crate) fn forget(&mut self) {
        self.settled = self.ops.len();
        self.forgotten = true;
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        self.forgotten
    }

    /// A request was posted. Its place in the sequence of PSNs follows (IBTA, PSN).
    pub(crate) fn posted(&mut self, mut op: Op) {
        op.psns = if op.verb.is_atomic() { 1 } else { op.len.div_ceil(self.mtu as u32).max(1) };
        let behind = self.ops.last().map_or(0, |last| last.first + u64::from(last.psns));
        op.first = self.resumes_at.take().unwrap_or(behind);
        if let Verb::CmpSwap { word, .. } | Verb::FetchAdd { word } = op.verb
            && op.flaw == Flaw::None
        {
            self.words[word as usize] = op.after(self.words[word as usize]);
        }
        if op.verb.takes_recv() {
            self.messages.push(self.ops.len());
        }
        self.ops.push(op);
    }

    /// Requests without an outcome.
    pub(crate) fn open(&self) -> &[Op] {
        &self.ops[self.settled..]
    }

    /// Index of the request a completion is for; those before it that make none on success have succeeded.
    pub(crate) fn completes(&mut self, wc: &Wc) -> Result<usize, super::Violation> {
        let open = &self.ops[self.settled..];
        let Some(ahead) = open.iter().position(|op| op.id == wc.wr_id.0) else {
            return broken(Rule::Completion, format!("{} completes, which is not outstanding", wc.wr_id));
        };
        let index = self.settled + ahead;
        let success = wc.status.is_success();
        if self.failed && (ahead > 0 || success) {
            return broken(
                Rule::Completion,
                format!("{} completes out of order after an error: {}", wc.wr_id, wc.status),
            );
        }
        if let Some(skipped) = open[..ahead].iter().find(|op| op.signaled) {
            return broken(Rule::Completion, format!("{} completes before request {}", wc.wr_id, skipped.id));
        }
        if success && !self.ops[index].signaled {
            return broken(Rule::Completion, format!("{} is unsignaled and completes", wc.wr_id));
        }
        for op in &mut self.ops[self.settled..index] {
            op.outcome = Outcome::Success;
        }
        self.ops[index].outcome = if success { Outcome::Success } else { Outcome::Failed };
        self.failed |= !success;
        self.settled = index + 1;
        Ok(index)
    }

    /// Nothing is outstanding and no error came: the unsignaled tail has succeeded, if the wire shows it.
    pub(crate) fn settle_tail(&mut self) -> Range<usize> {
        let from = self.settled;
        while !self.failed
            && self.settled < self.ops.len()
            && !self.ops[self.settled].signaled
            && self.wire.shows_done(&self.ops[self.settled])
        {
            self.ops[self.settled].outcome = Outcome::Success;
            self.settled += 1;
        }
        from..self.settled
    }

    /// A request succeeded: the wire shows it, and it was one that can.
    pub(crate) fn check_success(&self, index: usize) -> Check {
        let op = &self.ops[index];
        if op.must_fail() && self.kind == QpType::Rc {
            return broken(Rule::Status, format!("request {} has {:?} and succeeds", op.id, op.flaw));
        }
        if !self.wire.shows_done(op) {
            return broken(Rule::Completion, format!("request {} completes before it was acknowledged", op.id));
        }
        if self.kind == QpType::Rc { self.check_allowed(index) } else { Ok(()) }
    }

    /// The first `count` requests are known to be carried out.
    pub(crate) fn advance(&mut self, count: usize) {
        while self.applied < count {
            let (area, op) = (&mut self.area, &mut self.ops[self.applied]);
            self.applied += 1;
            if op.must_fail() || self.kind == QpType::Uc {
                continue;
            }
            match op.verb {
                _ if op.writes() => fill(&mut area[op.at..], op.id, 0..op.len as usize),
                _ if op.reads() => op.expect = area[op.range()].to_vec(),
                Verb::CmpSwap { .. } | Verb::FetchAdd { .. } => {
                    let old = word(area, op.at);
                    op.expect = old.to_ne_bytes().to_vec();
                    let new = op.after(old);
                    area[op.range()].copy_from_slice(&new.to_ne_bytes());
                }
                _ => {}
            }
        }
    }

    /// The peer's area really holds `actual`: what is known to be done, and a beginning of what follows.
    pub(crate) fn check_area(&mut self, actual: &[u8]) -> Check {
        if self.kind == QpType::Uc {
            return self.check_uc_area(actual);
        }
        if self.area == actual {
            return Ok(());
        }
        let mut trial = self.area.clone();
        let mut wrong = trial.iter().zip(actual).filter(|(a, b)| a != b).count();
        for op in self.ops[self.applied..].iter().take_while(|op| !op.must_fail()) {
            for packet in 0..if op.writes() { op.psns as usize } else { 1 } {
                let Some((range, bytes)) = self.effect(op, packet, &trial) else { continue };
                let differ = |area: &[u8]| range.clone().filter(|i| area[*i] != actual[*i]).count();
                wrong -= differ(&trial);
                trial[range.clone()].copy_from_slice(&bytes);
                wrong += differ(&trial);
                if wrong == 0 {
                    return Ok(());
                }
            }
        }
        let at = self.area.iter().zip(actual).position(|(a, b)| a != b).unwrap_or(0);
        let (done, posted) = (self.applied, self.ops.len());
        broken(
            Rule::Memory,
            format!("the target is not what the first {done} to {posted} requests make of it (differs at offset {at})"),
        )
    }

    /// What packet `packet` of a request changes in the peer's area.
    fn effect(&self, op: &Op, packet: usize, area: &[u8]) -> Option<(Range<usize>, Vec<u8>)> {
        match op.verb {
            _ if op.writes() => {
                let (from, to) = (packet * self.mtu, ((packet + 1) * self.mtu).min(op.len as usize));
                Some((op.at + from..op.at + to, (from..to).map(|i| pattern(op.id, i)).collect()))
            }
            Verb::CmpSwap { .. } | Verb::FetchAdd { .. } => {
                Some((op.range(), op.after(word(area, op.at)).to_ne_bytes().to_vec()))
            }
            _ => None,
        }
    }

    /// UC: every WRITE has a place of its own, which holds whole packets of it from the front, or nothing.
    fn check_uc_area(&self, actual: &[u8]) -> Check {
        let mut expected = self.area.clone();
        for op in self.ops.iter().filter(|op| op.writes() && !op.must_fail()) {
            let arrived = |packet: usize| {
                let (range, bytes) = self.effect(op, packet, &expected)?;
                (actual[range.clone()] == bytes).then_some((range, bytes))
            };
            let prefix: Vec<_> = (0..op.psns as usize).map_while(arrived).collect();
            for (range, bytes) in prefix {
                expected[range].copy_from_slice(&bytes);
            }
        }
        match expected.iter().zip(actual).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => broken(Rule::Memory, format!("the target has a byte at offset {at} that no WRITE explains")),
        }
    }

    /// What a READ or atomic brought back is what was there at its turn. What follows an unfenced READ may overtake it.
    pub(crate) fn check_answer(&self, index: usize, got: &[u8]) -> Check {
        let op = &self.ops[index];
        if let Verb::SharedAdd { .. } = op.verb {
            return Ok(());
        }
        let later = self.ops[index + 1..].iter().take_while(|later| !later.fence).filter(|later| later.writes());
        let later: Vec<&Op> = later.filter(|later| !later.must_fail()).collect();
        for (i, byte) in got.iter().enumerate() {
            let place = op.at + i;
            let overtaken = || later.iter().any(|w| w.range().contains(&place) && pattern(w.id, place - w.at) == *byte);
            if op.expect[i] != *byte && !(op.reads() && overtaken()) {
                return broken(Rule::Result, format!("request {} brings back a wrong byte at offset {i}", op.id));
            }
        }
        Ok(())
    }

    /// A RECV of the peer is done: which request it got. `content` are the bytes of its buffer.
    pub(crate) fn delivers(&mut self, wc: &Wc, content: &[u8]) -> Result<usize, super::Violation> {
        let all = self.orderly || self.kind == QpType::Rc;
        let from = if all { self.delivered } else { 0 };
        let mut why = "nothing was sent that could arrive".to_owned();
        for position in from..self.messages.len() {
            let index = self.messages[position];
            match self.fits(&self.ops[index], wc, content) {
                Ok(()) => {
                    self.delivered = self.delivered.max(position + 1);
                    return Ok(index);
                }
                Err(reason) => why = format!("request {}: {reason}", self.ops[index].id),
            }
            if self.kind == QpType::Rc {
                break;
            }
        }
        broken(Rule::Delivery, format!("RECV {} got {} bytes of no message that is due ({why})", wc.wr_id, wc.byte_len))
    }

    fn fits(&self, op: &Op, wc: &Wc, content: &[u8]) -> Result<(), &'static str> {
        if op.must_fail() {
            return Err("it can not be delivered");
        }
        // UC: what ended with an error was never sent to its end.
        let cut_short = self.kind == QpType::Uc && op.outcome == Outcome::Failed;
        if cut_short || self.wire.sent < op.first + u64::from(op.psns) {
            return Err("it was not sent to its end");
        }
        let opcode = if op.writes() { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv };
        let (flags, value) = match op.verb {
            Verb::SendImm | Verb::WriteImm(_) => (WcFlags::WITH_IMM, op.imm),
            Verb::SendInv => (WcFlags::WITH_INV, op.inv),
            _ => (WcFlags::empty(), 0),
        };
        if wc.opcode != opcode || wc.byte_len != op.len {
            return Err("another kind or length");
        }
        if wc.flags != flags || wc.imm.0 != value {
            return Err("another immediate or key");
        }
        if !op.writes() && (0..op.len as usize).any(|i| content[i] != pattern(op.id, i)) {
            return Err("other bytes");
        }
        Ok(())
    }

    /// Messages that arrived, of those posted.
    pub(crate) fn deliveries(&self) -> (usize, usize) {
        (self.delivered, self.messages.len())
    }

    /// The next message of an RC, which a RECV failed for.
    pub(crate) fn next_message(&self) -> Option<&Op> {
        self.messages.get(self.delivered).map(|index| &self.ops[*index])
    }

    /// A status other than success or flush is explained by the request, or by what happened to its network and peer.
    pub(crate) fn check_failure(&self, index: usize, status: WcStatus, keys: Keys) -> Check {
        let op = &self.ops[index];
        let explained = match status {
            WcStatus::RetryExcErr => self.kind == QpType::Rc && self.wire.retries_may_be_spent(),
            WcStatus::RnrRetryExcErr => op.verb.takes_recv() && self.wire.rnr_retries_may_be_spent(),
            WcStatus::LocProtErr => keys.local,
            WcStatus::RemAccessErr => matches!(op.flaw, Flaw::Key | Flaw::PastEnd) || keys.remote,
            WcStatus::RemInvReqErr => {
                let needs_right = op.writes() || op.verb.is_rd_atomic();
                matches!(op.flaw, Flaw::TooLong | Flaw::Misaligned) || (keys.rights && needs_right)
            }
            WcStatus::RemOpErr => op.verb.takes_recv() && keys.recv,
            _ => false,
        };
        if explained {
            return Ok(());
        }
        broken(Rule::Status, format!("request {} ends with \"{status}\", which nothing explains", op.id))
    }
}

/// Which registrations of the two ends were ever taken back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keys {
    /// The requester's own.
    pub(crate) local: bool,
    /// What the peer lets it reach.
    pub(crate) remote: bool,
    /// The peer's RECVs.
    pub(crate) recv: bool,
    /// What the peer's queue pair allows was ever taken back.
    pub(crate) rights: bool,
}

/// Bytes `range` of the message of `id`, to the same place of `area`.
fn fill(area: &mut [u8], id: u64, range: Range<usize>) {
    for i in range {
        area[i] = pattern(id, i);
    }
}

fn word(area: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&area[at..at + 8]);
    u64::from_ne_bytes(bytes)
}
