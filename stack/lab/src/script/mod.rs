//! A packet script as a ladder: the device at the left, with what its queue pair is in the middle of; the script, its peer, at the
//! right.
//!
//! In: a script. It is played against an endpoint of the transport in virtual time, that writes down what it does. Out: the ladder;
//! where the device does not do what the script says, that is the first thing it tells. A packet takes no time on its way.

mod scenes;

use std::collections::HashSet;

use xroce_script::history::{Deed, Moment};
use xroce_script::model::{Action, CqSide, QpSetup, Span, Step as Line};
use xroce_script::names::{self, EventName};
use xroce_script::report::{Report, Verdict};
use xroce_script::{LocalTarget, Script, runner, show};
use xroce_transport::qp::state::{QpState, QpType};
use xroce_transport::wc::Wc;
use xroce_wire::{Operation, RnrTimer};

use crate::capture::request_key;
use crate::ladder::{Effect, End, Fate, Finding, Ladder, Packet, State, Step, What, time};
use crate::outcome;
use crate::requests::Requests;
use scenes::Scene;

/// The device under test.
const DEVICE: usize = 0;
/// The script, its peer.
const SCRIPT: usize = 1;

/// Plays a script and draws it.
pub fn ladder(script: &Script) -> Ladder {
    let mut target = LocalTarget::watched();
    let report = runner::run(script, &mut target);
    let moments = target.into_history();
    let mut ladder = Ladder {
        name: script.name.rsplit('/').next().unwrap_or_default().trim_end_matches(".roce").into(),
        about: script.head.rule.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect(),
        facts: facts(script),
        ends: [end("device", moments.first()), end("script", None)],
        ..Ladder::default()
    };
    ladder.title = ladder.name.replace('_', " ");
    let scenes = scenes::scenes(&moments);
    Drawing { script, scenes, requests: Requests::default(), seen: HashSet::new(), ladder: &mut ladder }.draw();
    notes(script, &report, &mut ladder);
    if let Verdict::Failed(failure) = &report.verdict {
        let text = format!("The device does not do what the script says. Line {}: {}.", failure.line, failure.why);
        ladder.findings.push(Finding { text, step: ladder.steps.len().checked_sub(1) });
        for differs in &failure.differences {
            let text = format!("{}: expected {}, seen {}.", differs.what, differs.expected, differs.seen);
            ladder.findings.push(Finding { text, step: None });
        }
    }
    ladder
}

fn end(name: &str, moment: Option<&Moment>) -> End {
    End { name: name.into(), address: String::new(), qpn: moment.map(|moment| moment.qp.qpn) }
}

/// What the page tells of the connection and of the script.
fn facts(script: &Script) -> Vec<(&'static str, String)> {
    let QpSetup { kind, mtu, sq_psn, rq_psn, timeout, retry_cnt, rnr_retry, min_rnr_timer, max_rd_atomic, .. } =
        &script.qp;
    let rc = *kind == QpType::Rc;
    let micros = |ns: u64| format!("{} µs", time(ns));
    let on_rc = [
        ("timeout", format!("{timeout} ({})", micros(4096 << timeout))),
        ("retry_cnt", retry_cnt.to_string()),
        ("rnr_retry", rnr_retry.to_string()),
        (
            "min_rnr_timer",
            format!("{min_rnr_timer} ({})", micros(RnrTimer::new(*min_rnr_timer).map_or(0, RnrTimer::ns))),
        ),
        ("max_rd_atomic", max_rd_atomic.to_string()),
    ];
    let both = [
        ("service", if rc { "RC" } else { "UC" }.to_owned()),
        ("path MTU", mtu.bytes().to_string()),
        ("sq_psn", sq_psn.value().to_string()),
        ("rq_psn", rq_psn.value().to_string()),
    ];
    let of_script = [("rules", script.head.covers.join(", ")), ("source", script.head.source.clone())];
    both.into_iter().chain(on_rc.into_iter().filter(|_| rc)).chain(of_script).filter(|(_, v)| !v.is_empty()).collect()
}

/// Scenes on their way to become steps.
struct Drawing<'a> {
    script: &'a Script,
    scenes: Vec<Scene<'a>>,
    requests: Requests,
    /// Requests that the script has sent.
    seen: HashSet<(u32, u32, Operation)>,
    ladder: &'a mut Ladder,
}

impl Drawing<'_> {
    fn draw(&mut self) {
        for i in 0..self.scenes.len() {
            self.requests.look(self.scenes[i].qp);
            let (end, what, first) = self.what(i);
            self.step(i, end, what, first);
        }
    }

    /// The scene before, or at the beginning itself.
    fn before(&self, i: usize) -> &Scene<'_> {
        &self.scenes[i.saturating_sub(1)]
    }

    /// What a scene is a picture of: where, what, and what is to be said first.
    fn what(&mut self, i: usize) -> (usize, What, Option<Effect>) {
        match self.scenes[i].deed {
            Deed::Step(line, refused) => {
                self.posted(line, refused.is_some());
                let end = if is_call(&line.action) { DEVICE } else { SCRIPT };
                (end, What::Call(line.text.clone()), refused.clone().map(Effect::Refused))
            }
            Deed::Received(bytes, dropped) => {
                let again = request_key(bytes).is_some_and(|key| !self.seen.insert(key));
                let what = self.packet(SCRIPT, bytes, again);
                (DEVICE, what, dropped.map(|reason| Effect::Dropped(outcome::reason_words(reason))))
            }
            Deed::Sent(bytes) => {
                let again = self.scenes[i].counters.resent_pkts > self.before(i).counters.resent_pkts;
                (DEVICE, self.packet(DEVICE, bytes, again), None)
            }
            Deed::Timers | Deed::Completed(..) | Deed::Event(_) => {
                (DEVICE, What::Timer(self.scenes[i].expired.clone().unwrap_or_default()), None)
            }
        }
    }

    fn packet(&mut self, from: usize, bytes: &[u8], again: bool) -> What {
        self.ladder.packets.push(Packet { from, sent: bytes.to_vec(), fate: Fate::Captured, again, frame: None });
        What::Captured(self.ladder.packets.len() - 1)
    }

    fn posted(&mut self, line: &Line, refused: bool) {
        match &line.action {
            _ if refused => {}
            Action::PostSend(post) => {
                let len = post.inline.as_ref().map_or(bytes(&post.sges), |inline| inline.len() as u32);
                self.requests.post_send(post.id, names::name(names::POSTS, post.op), len);
            }
            Action::PostRecv(post) => self.requests.post_recv(post.id, bytes(&post.sges)),
            Action::Modify(modify) if modify.attr.qp_state == Some(QpState::Reset) => self.requests.forget(),
            _ => {}
        }
    }

    fn step(&mut self, i: usize, end: usize, what: What, first: Option<Effect>) {
        let mut effects: Vec<Effect> = first.into_iter().collect();
        let (before, now) = (self.before(i), &self.scenes[i]);
        let (at_ns, qp, from, to) = (now.at_ns, now.qp.clone(), before.qp.state, now.qp.state);
        if now.counters.duplicate_request > before.counters.duplicate_request {
            effects.push(Effect::Duplicate);
        }
        for outcome in std::mem::take(&mut self.scenes[i].outcomes) {
            match outcome {
                Deed::Completed(side, wc) => effects.push(self.completion(*side, wc)),
                Deed::Event(EventName::Async(kind)) => effects.push(Effect::Event(outcome::event_name(*kind))),
                Deed::Event(EventName::Wakeup) => effects.push(Effect::Event("CQ_WAKEUP")),
                _ => {}
            }
        }
        if from != to {
            effects.push(Effect::State { from, to });
        }
        let (sends, recvs) = self.requests.shown(&qp);
        let retries = (self.script.qp.retry_cnt, self.script.qp.rnr_retry);
        let states = [Some(State { qp, retries, sends, recvs, memory: None }), None];
        self.ladder.steps.push(Step { at_ns, end, what, effects, note: None, states });
    }

    fn completion(&mut self, side: CqSide, wc: &Wc) -> Effect {
        let (recv, wr_id, status, success) =
            (side == CqSide::Recv, wc.wr_id.0, wc.status.to_string(), wc.status.is_success());
        self.requests.completed(recv, wr_id, status.clone(), success);
        Effect::Completion { wr_id, recv, status, success }
    }
}

fn bytes(pieces: &[Span]) -> u32 {
    u32::try_from(pieces.iter().map(Span::len).sum::<u64>()).unwrap_or(u32::MAX)
}

/// The application does it; everything else is the script that looks.
fn is_call(action: &Action) -> bool {
    use Action::{Arm, Deregister, Modify, PostRecv, PostSend, Register, Set};
    matches!(action, Register(_) | Deregister(_) | Set(..) | PostSend(_) | PostRecv(_) | Modify(_) | Arm(..))
}

/// Comments of the script go to the steps that they are about.
fn notes(script: &Script, report: &Report, ladder: &mut Ladder) {
    let mut from_script = ladder.steps.iter().enumerate().filter(|(_, step)| is_from(ladder, step, SCRIPT));
    let mut calls = ladder.steps.iter().enumerate().filter(|(_, step)| matches!(step.what, What::Call(_)));
    let mut found: Vec<(usize, &str)> = Vec::new();
    // What the lines before this one were about.
    let mut after = 0;
    for line in &script.steps {
        let place = match &line.action {
            Action::In(_) => from_script.next().map(|(index, _)| index),
            Action::Out(_) => sent(report, ladder, line),
            Action::Wc(spec) => {
                let is = |e: &Effect| matches!(e, Effect::Completion { wr_id, .. } if *wr_id == spec.id);
                find(ladder, after, |step| step.effects.iter().any(is))
            }
            Action::Event(event) => {
                let name = names::name(names::EVENTS, *event);
                find(ladder, after, |step| step.effects.iter().any(|e| matches!(e, Effect::Event(n) if *n == name)))
            }
            Action::Tolerate(_) => None,
            _ => calls.next().map(|(index, _)| index),
        };
        let place = place.unwrap_or(after);
        if !line.comment.is_empty() && place < ladder.steps.len() {
            found.push((place, &line.comment));
        }
        after = after.max(place);
    }
    for (place, comment) in found {
        let note = &mut ladder.steps[place].note;
        *note = Some(note.take().map_or(comment.to_owned(), |old| format!("{old} {comment}")));
    }
}

fn find(ladder: &Ladder, from: usize, is: impl Fn(&Step) -> bool) -> Option<usize> {
    let from = from.min(ladder.steps.len());
    ladder.steps[from..].iter().position(&is).map(|at| from + at).or_else(|| ladder.steps.iter().position(is))
}

fn is_from(ladder: &Ladder, step: &Step, end: usize) -> bool {
    matches!(step.what, What::Captured(index) if ladder.packets[index].from == end)
}

/// The step at which the device sent what a line expects: the report says when, and what it was.
fn sent(report: &Report, ladder: &Ladder, line: &Line) -> Option<usize> {
    let entry = report.trace.iter().find(|entry| entry.line == Some(line.line) && entry.text.starts_with("> "))?;
    ladder.steps.iter().position(|step| {
        let What::Captured(index) = step.what else { return false };
        let packet = &ladder.packets[index];
        packet.from == DEVICE && step.at_ns == entry.at && format!("> {}", show::packet(&packet.sent)) == entry.text
    })
}
