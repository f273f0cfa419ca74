//! Plays a script against a target.
//!
//! Everything that steps do in one instant reaches the device as one burst: the device gets its turn when time goes on or
//! when something is expected of it. What it does is put on streams (requests, responses, completions of either queue,
//! events), each of which must come in the order of the script; the order between streams is free, as it is on a wire.
//!
//! In real time a step takes a while, so that the time from which the next one counts is known only as a stretch: what must
//! not come too early counts from its start, what must not come too late from its end.

use std::collections::{BTreeMap, VecDeque};

use xroce_transport::Instant;
use xroce_transport::qp::state::QpAttr;
use xroce_transport::wc::{Wc, WcFlags};
use xroce_transport::wr::{SendFlags, SendOp};
use xroce_wire::{ImmData, Packet, Rkey, RnrTimer};

use crate::craft::{self, DEFAULT_REGION, Route};
use crate::expr::{Data, Num};
use crate::model::{
    Action, CqSide, Delay, Expect, MrSpec, PostRecv, PostSend, Refusal, Script, Span, Step, WcSpec, When,
};
use crate::names::{self, EventName, PostOp};
use crate::packet::{self, Ends, Mismatch, PacketSpec};
use crate::report::{Entry, Failure, Report, Verdict};
use crate::show;
use crate::target::{Connection, RecvRequest, Registered, Seen, SendRequest, Target, What};

/// Things the device did and the script has not spoken of yet.
#[derive(Default)]
struct Streams {
    requests: VecDeque<(Instant, Vec<u8>)>,
    responses: VecDeque<(Instant, Vec<u8>)>,
    send: VecDeque<(Instant, Wc)>,
    recv: VecDeque<(Instant, Wc)>,
    events: VecDeque<(Instant, EventName)>,
    /// What may come before the next packet that must.
    tolerated_requests: Vec<PacketSpec>,
    tolerated_responses: Vec<PacketSpec>,
}

struct Runner<'a, T: Target> {
    target: &'a mut T,
    script: &'a Script,
    connection: Connection,
    regions: BTreeMap<String, Registered>,
    streams: Streams,
    start: Instant,
    /// The step before took place not before this,
    clock: Instant,
    /// and was over by this: the same in virtual time.
    over: Instant,
    /// When something was last done to the device.
    stirred: Instant,
    /// The ACK timeout code in force.
    timeout: u8,
    trace: Vec<Entry>,
}

/// Plays `script` and tells what came of it.
pub fn run<T: Target>(script: &Script, target: &mut T) -> Report {
    let report = |trace, verdict| Report { name: script.name.clone(), rule: script.head.rule.clone(), trace, verdict };
    if let Some(reason) = target.cannot_play(script) {
        return report(Vec::new(), Verdict::CannotRun(reason));
    }
    let mut setup = script.qp.clone();
    setup.timeout = target.ack_timeout(setup.timeout);
    let connection = match target.create(&setup) {
        Ok(connection) => connection,
        Err(error) => {
            let verdict = Verdict::failed(0, format!("the queue pair was not made: {error}"));
            return report(Vec::new(), verdict);
        }
    };
    let start = target.now();
    let mut runner = Runner {
        target,
        script,
        connection,
        regions: BTreeMap::new(),
        streams: Streams::default(),
        start,
        clock: start,
        over: start,
        stirred: start,
        timeout: setup.timeout,
        trace: Vec::new(),
    };
    let verdict = match runner.play() {
        Ok(()) => Verdict::Passed,
        Err(failure) => Verdict::Failed(failure),
    };
    report(runner.trace, verdict)
}

fn fail(line: u32, why: impl Into<String>) -> Failure {
    Failure::new(line, why)
}

/// The region that every script has: unless it says otherwise, 64 KiB with all rights, zero.
fn default_region() -> MrSpec {
    MrSpec {
        name: DEFAULT_REGION.into(),
        len: 1 << 16,
        rights: names::RIGHTS
            .iter()
            .filter(|(name, _)| *name != "inv")
            .fold(Default::default(), |all, (_, r)| all | *r),
        iova: None,
        fill: Data::Fill(0),
        foreign: false,
        refused: None,
    }
}

impl<T: Target> Runner<'_, T> {
    fn play(&mut self) -> Result<(), Failure> {
        let script = self.script;
        let own = |s: &Step| matches!(&s.action, Action::Register(mr) if mr.name == DEFAULT_REGION);
        if !script.steps.iter().any(own) {
            self.register(0, &default_region())?;
        }
        for (i, step) in script.steps.iter().enumerate() {
            let done = self.step(step, &script.steps[i + 1..]);
            // What is broken in between explains whatever else went wrong.
            if let Some(trouble) = self.target.trouble() {
                return Err(fail(step.line, trouble));
            }
            done?;
        }
        self.finish()
    }

    /// Nothing may be left that the script has not spoken of.
    fn finish(&mut self) -> Result<(), Failure> {
        self.settle(&[]);
        self.no_packets(0)?;
        self.no_completions(0)?;
        self.no_events(0)?;
        match self.target.trampled().first() {
            Some(name) => Err(fail(0, format!("bytes beside region {name} were written"))),
            None => Ok(()),
        }
    }

    fn step(&mut self, step: &Step, rest: &[Step]) -> Result<(), Failure> {
        let (from, to) = self.window(step.when);
        match &step.action {
            Action::Out(spec) => self.expect_packet(step, spec, from, to),
            Action::Wc(spec) => self.expect_completion(step, spec, from, to),
            Action::Event(event) if self.target.lacks_event(*event) => Ok(()),
            Action::Event(event) => self.expect_event(step, *event, from, to),
            action => {
                self.advance(step.line, self.clock.add_ns(self.delay_ns(step.when.from)))?;
                if is_stimulus(action) {
                    self.clock = self.clock.max(self.target.now());
                    self.stirred = self.clock;
                }
                self.note(step.line, &step.text);
                let done = self.act(step, rest);
                if done.is_ok() && !matches!(action, Action::In(_) | Action::Tolerate(_)) {
                    self.target.done(step);
                }
                self.over = self.over.max(self.target.now()).max(self.clock);
                done
            }
        }
    }

    fn act(&mut self, step: &Step, rest: &[Step]) -> Result<(), Failure> {
        let line = step.line;
        match &step.action {
            Action::Register(spec) => self.register(line, spec),
            Action::Deregister(name) => self.target.deregister(name).map_err(|e| fail(line, e)),
            Action::Set(span, data) => {
                self.target.write(span, &data.bytes(span.len() as usize));
                Ok(())
            }
            Action::PostSend(post) => self.post_send(line, post),
            Action::PostRecv(post) => self.post_recv(line, post),
            Action::Modify(modify) => {
                let timeout = modify.attr.timeout.map(|code| self.target.ack_timeout(code));
                let done = self.target.modify(&QpAttr { timeout, ..modify.attr });
                if let (Ok(()), Some(timeout)) = (&done, timeout) {
                    self.timeout = timeout;
                }
                self.refusal(line, done, modify.refused.as_ref())
            }
            Action::Arm(side, solicited) => {
                self.target.arm(*side, *solicited);
                Ok(())
            }
            Action::In(spec) => {
                let bytes = self.craft(line, spec)?;
                self.target.deliver(&bytes);
                Ok(())
            }
            Action::Tolerate(spec) => {
                let list = match spec.kind.is_response() {
                    true => &mut self.streams.tolerated_responses,
                    false => &mut self.streams.tolerated_requests,
                };
                list.push(spec.clone());
                Ok(())
            }
            Action::Silent => {
                self.settle(rest);
                self.no_packets(line)
            }
            Action::NoWc => {
                self.settle(rest);
                self.no_completions(line)
            }
            Action::NoEvent => {
                self.settle(rest);
                self.no_events(line)
            }
            Action::Expect(expect) => {
                self.settle(rest);
                self.expect_value(line, expect)
            }
            Action::Out(_) | Action::Wc(_) | Action::Event(_) => Ok(()),
        }
    }

    // Time.

    fn delay_ns(&self, delay: Delay) -> u64 {
        match delay {
            Delay::Ns(ns) => ns,
            // IBTA, transport timer.
            Delay::Timeout(thousandths) => (4096u64 << self.timeout) * thousandths / 1000,
            Delay::Rnr(code) => RnrTimer::new(code).map_or(0, RnrTimer::ns),
        }
    }

    /// From when until when a step may be seen to take place.
    fn window(&self, when: When) -> (Instant, Instant) {
        let wait = self.delay_ns(when.from);
        let latest = when.to.map_or(wait, |to| self.delay_ns(to));
        let earliest = wait - self.target.early_ns(wait).min(wait);
        let from = if wait == 0 && !self.target.is_exact() { self.stirred } else { self.clock.add_ns(earliest) };
        (from, self.over.add_ns(latest + self.target.slack_ns(latest, when.to.is_some())))
    }

    /// When the device, left alone from now on, is to do something by itself.
    fn next_deed(&self, rest: &[Step]) -> Option<Instant> {
        let mut wait = 0;
        for step in rest {
            wait += self.delay_ns(step.when.from);
            match step.action {
                Action::Out(_) | Action::Wc(_) | Action::Event(_) => {
                    return (wait > 0).then(|| self.clock.add_ns(wait));
                }
                _ if is_stimulus(&step.action) => return None,
                _ => {}
            }
        }
        None
    }

    /// Sees what the device still does about what came last.
    fn settle(&mut self, rest: &[Step]) {
        let until = self.target.settled_at(self.clock, self.next_deed(rest));
        self.collect(until);
    }

    /// A packet that the script waited for came.
    fn came(&mut self, at: Instant) {
        self.clock = self.clock.max(at);
        self.over = self.clock.max(self.target.now());
    }

    /// A completion or an event that the script waited for was seen.
    fn was_seen(&mut self, at: Instant) {
        if self.target.is_exact() {
            self.clock = self.clock.max(at);
        }
        self.over = self.clock.max(self.target.now());
    }

    /// Lets time go on. What the device sends meanwhile, nobody expected.
    fn advance(&mut self, line: u32, to: Instant) -> Result<(), Failure> {
        if to > self.clock {
            self.collect(to);
            self.clock = to;
            self.over = self.over.max(to);
            self.no_packets(line)?;
        }
        Ok(())
    }

    /// Puts what the device does up to `until` on its streams.
    fn collect(&mut self, until: Instant) {
        while let Some(seen) = self.target.next(until) {
            self.sort(seen);
        }
    }

    fn sort(&mut self, seen: Seen) {
        let Seen { at, what } = seen;
        match what {
            What::Packet(bytes) => {
                let is_response = Packet::new_checked(&bytes, &[])
                    .is_ok_and(|p| p.opcode().operation().is_some_and(|o| o.is_response()));
                let stream = if is_response { &mut self.streams.responses } else { &mut self.streams.requests };
                stream.push_back((at, bytes));
            }
            What::Completion(CqSide::Send, wc) => self.streams.send.push_back((at, wc)),
            What::Completion(CqSide::Recv, wc) => self.streams.recv.push_back((at, wc)),
            What::Event(event) => self.streams.events.push_back((at, event)),
        }
    }

    // Traces.

    fn since_start(&self, at: Instant) -> u64 {
        at.since_ns(self.start)
    }

    fn entry(&mut self, mark: char, at: Instant, line: Option<u32>, text: impl Into<String>) {
        let at = self.since_start(at);
        self.trace.push(Entry { at, line, mark, text: text.into() });
    }

    fn note(&mut self, line: u32, text: &str) {
        self.entry(' ', self.clock, Some(line), text);
    }

    fn no_packets(&mut self, line: u32) -> Result<(), Failure> {
        let mut first = None;
        for responses in [false, true] {
            let (stream, tolerated) = match responses {
                true => (&self.streams.responses, &self.streams.tolerated_responses),
                false => (&self.streams.requests, &self.streams.tolerated_requests),
            };
            let unwanted =
                stream.iter().filter(|(_, bytes)| !tolerated.iter().any(|spec| self.differs(spec, bytes).is_empty()));
            let unwanted: Vec<_> = unwanted.cloned().collect();
            for (at, bytes) in unwanted {
                let text = show::packet(&bytes);
                self.entry('+', at, None, format!("> {text}"));
                first.get_or_insert(text);
            }
        }
        match first {
            Some(text) => Err(fail(line, format!("the device sent {text}, which nothing here expects"))),
            None => Ok(()),
        }
    }

    fn no_completions(&mut self, line: u32) -> Result<(), Failure> {
        let all: Vec<_> = self.streams.send.iter().chain(&self.streams.recv).copied().collect();
        for (at, wc) in &all {
            self.entry('+', *at, None, format!("wc {}", show::wc(wc)));
        }
        match all.first() {
            Some((_, wc)) => Err(fail(line, format!("a completion that nothing here expects: {}", show::wc(wc)))),
            None => Ok(()),
        }
    }

    fn no_events(&mut self, line: u32) -> Result<(), Failure> {
        let all: Vec<_> = self.streams.events.iter().copied().collect();
        for (at, event) in &all {
            self.entry('+', *at, None, format!("event {}", names::name(names::EVENTS, *event)));
        }
        match all.first() {
            Some((_, event)) => {
                let name = names::name(names::EVENTS, *event);
                Err(fail(line, format!("an event that nothing here expects: {name}")))
            }
            None => Ok(()),
        }
    }

    // What the application and the peer do.

    fn register(&mut self, line: u32, spec: &MrSpec) -> Result<(), Failure> {
        let done = self.target.register(spec);
        if let Ok(registered) = &done {
            self.regions.insert(spec.name.clone(), *registered);
        }
        self.refusal(line, done.map(|_| ()), spec.refused.as_ref())
    }

    /// A number that may name regions: addresses, or with `key` their keys.
    fn num(&self, line: u32, num: &Num, key: bool) -> Result<u64, Failure> {
        let region = |name: &str| self.regions.get(name).map(|r| if key { r.key.into() } else { r.va });
        num.value(region).map_err(|name| fail(line, format!("there is no region {name}")))
    }

    /// As [`num`](Self::num), where the names have been looked at before.
    fn known(&self, num: &Num, key: bool) -> u64 {
        self.num(0, num, key).unwrap_or(0)
    }

    fn craft(&self, line: u32, spec: &PacketSpec) -> Result<Vec<u8>, Failure> {
        for (num, key) in [(&spec.va, false), (&spec.rkey, true), (&spec.inv, true)] {
            if let Some(num) = num {
                self.num(line, num, key)?;
            }
        }
        let route = Route {
            src: self.connection.peer,
            dst: self.connection.device,
            dest_qp: self.connection.qpn,
            kind: self.script.qp.kind,
        };
        Ok(craft::packet(spec, &route, |num, key| self.known(num, key)))
    }

    fn post_send(&mut self, line: u32, post: &PostSend) -> Result<(), Failure> {
        let (va, rkey, imm) = (post.va, Rkey(post.rkey), ImmData(post.imm));
        let op = match post.op {
            PostOp::Send => SendOp::Send,
            PostOp::SendImm => SendOp::SendImm(imm),
            PostOp::SendInv => SendOp::SendInv(rkey),
            PostOp::Write => SendOp::Write { va, rkey },
            PostOp::WriteImm => SendOp::WriteImm { va, rkey, imm },
            PostOp::Read => SendOp::Read { va, rkey },
            PostOp::CmpSwap => SendOp::CmpSwap { va, rkey, compare: post.compare, swap: post.swap_add },
            PostOp::FetchAdd => SendOp::FetchAdd { va, rkey, add: post.swap_add },
        };
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, !post.unsignaled);
        flags.set(SendFlags::FENCE, post.fence);
        flags.set(SendFlags::SOLICITED, post.solicited);
        flags.set(SendFlags::INLINE, post.inline.is_some());
        let lkey = self.lkey(line, &post.lkey)?;
        let wr = SendRequest { id: post.id, op, flags, sges: post.sges.clone(), inline: post.inline.clone(), lkey };
        let done = self.target.post_send(&wr);
        self.refusal(line, done, post.refused.as_ref())
    }

    fn post_recv(&mut self, line: u32, post: &PostRecv) -> Result<(), Failure> {
        let lkey = self.lkey(line, &post.lkey)?;
        let wr = RecvRequest { id: post.id, sges: post.sges.clone(), lkey };
        let done = self.target.post_recv(&wr);
        self.refusal(line, done, post.refused.as_ref())
    }

    fn lkey(&self, line: u32, lkey: &Option<Num>) -> Result<Option<u32>, Failure> {
        lkey.as_ref().map(|num| self.num(line, num, true).map(|key| key as u32)).transpose()
    }

    // What the device must do.

    /// What a packet has that the script says otherwise; also what no packet may have.
    fn differs(&self, spec: &PacketSpec, bytes: &[u8]) -> Vec<Mismatch> {
        let ends =
            Ends { device: self.connection.device, peer: self.connection.peer, peer_qpn: self.script.qp.peer.value() };
        match packet::check_frame(bytes, &ends) {
            Err(mismatches) => mismatches,
            Ok(()) => packet::check(spec, bytes, |num, key| self.known(num, key)),
        }
    }

    fn expect_packet(&mut self, step: &Step, spec: &PacketSpec, from: Instant, to: Instant) -> Result<(), Failure> {
        let is_response = spec.kind.is_response();
        loop {
            let next = match is_response {
                true => self.streams.responses.pop_front(),
                false => self.streams.requests.pop_front(),
            };
            let Some((at, bytes)) = next else {
                match self.target.next(to) {
                    Some(seen) => self.sort(seen),
                    None => return Err(self.missing(step, from, to, spec)),
                }
                continue;
            };
            let differences = self.differs(spec, &bytes);
            let tolerated = match is_response {
                true => &self.streams.tolerated_responses,
                false => &self.streams.tolerated_requests,
            };
            if !differences.is_empty() && tolerated.iter().any(|spec| self.differs(spec, &bytes).is_empty()) {
                self.entry(' ', at, None, format!("> {}", show::packet(&bytes)));
                continue;
            }
            return self.matched(step, (at, &bytes), differences, from, to);
        }
    }

    /// The packet whose turn it is has come.
    fn matched(
        &mut self,
        step: &Step,
        (at, bytes): (Instant, &[u8]),
        differences: Vec<Mismatch>,
        from: Instant,
        to: Instant,
    ) -> Result<(), Failure> {
        let text = format!("> {}", show::packet(bytes));
        if differences.is_empty() && from <= at && at <= to {
            self.entry(' ', at, Some(step.line), text);
            self.came(at);
            let operation = Packet::new_checked(bytes, &[]).ok().and_then(|p| p.opcode().operation());
            match operation.is_some_and(|o| o.is_response()) {
                true => self.streams.tolerated_responses.clear(),
                false => self.streams.tolerated_requests.clear(),
            }
            return Ok(());
        }
        self.entry('-', from, Some(step.line), &step.text);
        self.entry('+', at, None, text);
        let why = match differences.first() {
            Some(m) => format!("the packet has another {} than expected", m.what),
            None => self.untimely(at, from, to),
        };
        Err(Failure { line: step.line, why, differences })
    }

    fn untimely(&self, at: Instant, from: Instant, to: Instant) -> String {
        let word = if at < from { "too early" } else { "too late" };
        let [at, from, to] = [at, from, to].map(|t| show::time(self.since_start(t)));
        format!("{word}: it came at {at}, expected from {from} to {to}")
    }

    fn missing(&mut self, step: &Step, from: Instant, to: Instant, spec: &PacketSpec) -> Failure {
        self.entry('-', from, Some(step.line), &step.text);
        let other = match spec.kind.is_response() {
            true => &self.streams.requests,
            false => &self.streams.responses,
        };
        let others: Vec<_> = other.iter().cloned().collect();
        for (at, bytes) in others {
            self.entry('+', at, None, format!("> {}", show::packet(&bytes)));
        }
        fail(step.line, format!("nothing of the kind came until {}", show::time(self.since_start(to))))
    }

    fn expect_completion(&mut self, step: &Step, spec: &WcSpec, from: Instant, to: Instant) -> Result<(), Failure> {
        let (at, wc) = loop {
            let is_it = |queue: &VecDeque<(Instant, Wc)>| queue.front().is_some_and(|(_, wc)| wc.wr_id.0 == spec.id);
            if is_it(&self.streams.send) {
                break self.streams.send.pop_front();
            }
            if is_it(&self.streams.recv) {
                break self.streams.recv.pop_front();
            }
            match self.target.next(to) {
                Some(seen) => self.sort(seen),
                None => break None,
            }
        }
        .ok_or(())
        .or_else(|()| self.no_such_completion(step, from, to))?;
        let differences = self.wc_differs(step.line, spec, &wc)?;
        let timely = from <= at && at <= to;
        if differences.is_empty() && timely {
            self.entry(' ', at, Some(step.line), format!("wc {}", show::wc(&wc)));
            self.was_seen(at);
            return Ok(());
        }
        self.entry('-', from, Some(step.line), &step.text);
        self.entry('+', at, None, format!("wc {}", show::wc(&wc)));
        let why = match differences.first() {
            Some(m) => format!("the completion has another {} than expected", m.what),
            None => self.untimely(at, from, to),
        };
        Err(Failure { line: step.line, why, differences })
    }

    fn no_such_completion(&mut self, step: &Step, from: Instant, to: Instant) -> Result<(Instant, Wc), Failure> {
        self.entry('-', from, Some(step.line), &step.text);
        let fronts: Vec<_> = self.streams.send.iter().chain(&self.streams.recv).copied().collect();
        for (at, wc) in fronts {
            self.entry('+', at, None, format!("wc {}", show::wc(&wc)));
        }
        let packets: Vec<_> = self.streams.requests.iter().chain(&self.streams.responses).cloned().collect();
        for (at, bytes) in packets {
            self.entry('+', at, None, format!("> {}", show::packet(&bytes)));
        }
        Err(fail(step.line, format!("no such completion was next until {}", show::time(self.since_start(to)))))
    }

    fn wc_differs(&self, line: u32, spec: &WcSpec, wc: &Wc) -> Result<Vec<Mismatch>, Failure> {
        let mut list = Vec::new();
        let mut equal = |what, expected: String, seen: String| {
            if expected != seen {
                list.push(Mismatch { what, expected, seen });
            }
        };
        equal("status", spec.status.to_string(), wc.status.to_string());
        if let Some(opcode) = spec.opcode {
            let name = |o| names::name(names::WC_OPCODES, o).to_owned();
            equal("op", name(opcode), name(wc.opcode));
        }
        if let Some(len) = spec.len {
            equal("len", len.to_string(), wc.byte_len.to_string());
        }
        let flagged = |flag| if wc.flags.contains(flag) { format!("{:#x}", wc.imm.0) } else { "none".into() };
        if let Some(imm) = spec.imm {
            equal("imm", format!("{imm:#x}"), flagged(WcFlags::WITH_IMM));
        }
        if let Some(inv) = &spec.inv {
            equal("inv", format!("{:#x}", self.num(line, inv, true)? as u32), flagged(WcFlags::WITH_INV));
        }
        // Verbs promises it for datagrams only (ibv_poll_cq(3)): 0 from another device means that it does not tell.
        let told = self.target.is_exact() || wc.src_qp.value() != 0;
        if let Some(src_qp) = spec.src_qp.filter(|_| told) {
            equal("src_qp", format!("{src_qp:#x}"), format!("{:#x}", wc.src_qp.value()));
        }
        Ok(list)
    }

    fn expect_event(&mut self, step: &Step, event: EventName, from: Instant, to: Instant) -> Result<(), Failure> {
        let seen = loop {
            match self.streams.events.pop_front() {
                Some(seen) => break Some(seen),
                None => match self.target.next(to) {
                    Some(seen) => self.sort(seen),
                    None => break None,
                },
            }
        };
        match seen {
            Some((at, seen)) if seen == event && from <= at && at <= to => {
                self.entry(' ', at, Some(step.line), &step.text);
                self.was_seen(at);
                Ok(())
            }
            Some((at, seen)) => {
                self.entry('-', from, Some(step.line), &step.text);
                let name = names::name(names::EVENTS, seen);
                self.entry('+', at, None, format!("event {name}"));
                Err(fail(step.line, format!("another event came: {name} at {}", show::time(self.since_start(at)))))
            }
            None => {
                self.entry('-', from, Some(step.line), &step.text);
                Err(fail(step.line, "no event came"))
            }
        }
    }

    fn expect_value(&mut self, line: u32, expect: &Expect) -> Result<(), Failure> {
        // What a device across a wire does not tell is not held against it.
        let number = |what: &str, seen: Option<u64>, compare: crate::model::Compare, expected: u64| match seen {
            Some(seen) if !compare.holds(seen, expected) => Err(fail(line, format!("{what} is {seen}"))),
            _ => Ok(()),
        };
        match expect {
            Expect::Counter(name, compare, value) => number(name, self.target.counter(name), *compare, *value),
            Expect::Drop(reason, compare, value) => number(reason, self.target.dropped(reason), *compare, *value),
            Expect::Attr(name, compare, value) => number(name, self.target.attribute(name), *compare, *value),
            Expect::State(expected) => match self.target.state() {
                Some(seen) if seen != *expected => Err(fail(line, format!("the queue pair is in {seen}"))),
                _ => Ok(()),
            },
            Expect::Memory(span, data) => self.expect_memory(line, span, data),
        }
    }

    fn expect_memory(&mut self, line: u32, span: &Span, data: &Data) -> Result<(), Failure> {
        let seen = self.target.read(span);
        let expected = data.bytes(seen.len());
        match packet::first_difference(&expected, &seen) {
            None => Ok(()),
            Some(i) => {
                let at = span.start + i as u64;
                let (expected, seen) = (expected[i], seen[i]);
                Err(fail(line, format!("{}[{at}] is {seen:#04x}, expected {expected:#04x}", span.mr)))
            }
        }
    }

    /// A call did what it should: nothing, or be refused, with the right words where the words are ours.
    fn refusal(&self, line: u32, done: Result<(), String>, expected: Option<&Refusal>) -> Result<(), Failure> {
        match (done, expected) {
            (Ok(()), None) => Ok(()),
            (Err(error), None) => Err(fail(line, format!("refused: {error}"))),
            (Ok(()), Some(_)) => Err(fail(line, "it was not refused")),
            (Err(error), Some(refusal)) if !self.target.refuses_in_words() || error.contains(&refusal.says) => Ok(()),
            (Err(error), Some(refusal)) => {
                Err(fail(line, format!("refused, but for another reason than \"{}\": {error}", refusal.says)))
            }
        }
    }
}

/// The step may set off something in the device; others only look.
fn is_stimulus(action: &Action) -> bool {
    use Action::{Deregister, In, Modify, PostRecv, PostSend, Register, Set};
    matches!(action, Register(_) | Deregister(_) | Set(..) | PostSend(_) | PostRecv(_) | Modify(_) | In(_))
}
