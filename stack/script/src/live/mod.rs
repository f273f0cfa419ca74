//! A device across a wire, in real time.
//!
//! In: a [`Wire`], which carries the script's packets, and a connection to the verbs [`agent`](crate::agent) of the machine
//! that the device is in, which posts, registers and polls for the script. Out: a [`Target`].
//!
//! What differs from an endpoint in virtual time:
//!
//! * A call takes a while, so that times are stretches (see [`runner`](crate::runner)), and what the device does about a
//!   packet is waited for: [`Timing::quiet`] before "nothing came" is believed.
//! * Either machine may stand still for a while. How long nobody looked at the wire is known ([`LiveTarget::blind`]): what came
//!   meanwhile may be that much older than it looks.
//! * ACK timeouts shorter than [`Timing::ack_timeout`] are raised to it, also because hardware has a floor of its own; a
//!   script counts in the timeout (`+T`), so it does not notice.
//! * Packets that a script sends in one instant leave as one burst, but the device may look between any two of them.

mod verbs;

use std::collections::VecDeque;
use std::time::{self, Duration};

use xroce_transport::Instant;
use xroce_transport::qp::state::{QpAttr, QpState};
use xroce_wire::{Gid, Packet};

use crate::agent::{Agent, AgentError};
use crate::model::{CqSide, MrSpec, QpSetup, Script, Span};
use crate::names::EventName;
use crate::target::{Connection, RecvRequest, Registered, Seen, SendRequest, Target, What};
use verbs::Application;

/// Where a script's packets leave and the device's arrive.
pub trait Wire {
    /// Hands a packet, from the IP header on, to the network. It may be no proper packet at all.
    ///
    /// # Errors
    /// The link is gone.
    fn send(&mut self, packet: &[u8]) -> Result<(), String>;

    /// What was sent leaves now.
    ///
    /// # Errors
    /// The link is gone.
    fn flush(&mut self) -> Result<(), String>;

    /// The next RoCE packet to one of the script's addresses, from the IP header on, if one has come.
    ///
    /// # Errors
    /// The link is gone.
    fn receive(&mut self) -> Result<Option<Vec<u8>>, String>;
}

/// The two ends in one address family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    /// The script's address.
    pub script: Gid,
    /// The device's address.
    pub device: Gid,
    /// Its index in the GID table of the device.
    pub device_index: u32,
}

/// How patient the script is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// How long nothing must come before "nothing comes" is believed.
    pub quiet: Duration,
    /// How late an answer may come that is due at once.
    pub answer: Duration,
    /// The shortest ACK timeout that is used, as the code: 4.096 µs times two to the power of it.
    pub ack_timeout: u8,
}

impl Default for Timing {
    /// For a peer on the same machine or segment. The timeout, 537 ms, must be longer than an answer may take, also where
    /// both ends share busy CPUs.
    fn default() -> Timing {
        Timing { quiet: Duration::from_millis(20), answer: Duration::from_millis(200), ack_timeout: 17 }
    }
}

/// What a live device is reached by, and what it lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Over IPv4, if both ends have an address.
    pub ipv4: Option<Pair>,
    /// Over IPv6, if both ends have an address.
    pub ipv6: Option<Pair>,
    /// The largest payload that passes, in bytes: the smaller of what the two ends offer.
    pub mtu: usize,
    /// Events that it never raises.
    pub lacking_events: Vec<EventName>,
}

/// Not 0, so that a time that was never set shows.
const START_NS: u64 = 1_000_000_000;
/// How much of a wait may be missing because the first of two packets took longer than the second.
const EARLY: Duration = Duration::from_millis(5);
/// How often the agent is asked for completions while no packet comes.
const ASK_EVERY: Duration = Duration::from_millis(1);
/// How seldom it is asked if it takes long to answer.
const ASK_AT_LEAST_EVERY: Duration = Duration::from_millis(20);
/// Between two looks at the wire: the peer may need this very CPU.
const NAP: Duration = Duration::from_micros(50);

/// A device across a wire.
pub struct LiveTarget<'a, W: Wire> {
    wire: &'a mut W,
    app: Application,
    peer: Peer,
    timing: Timing,
    all: bool,
    pair: Option<Pair>,
    epoch: time::Instant,
    /// When something was last done to the device.
    stirred: Instant,
    asked: time::Instant,
    /// How long the agent took to answer at the last time.
    answer_took: Duration,
    /// When the wire was last looked at,
    looked: time::Instant,
    /// and for how long it was not, at most.
    blind: Duration,
    seen: VecDeque<Seen>,
    trouble: Option<String>,
}

impl<'a, W: Wire> LiveTarget<'a, W> {
    /// A device that `agent` has under its hands and that is reached by `wire`. `all`: also scripts that are not for any
    /// device (`where: dut`), for a peer that is of this repository.
    ///
    /// # Errors
    /// The agent has no such device, or no answers.
    pub fn new(
        wire: &'a mut W,
        agent: Agent,
        device: Option<&str>,
        peer: Peer,
        timing: Timing,
        all: bool,
    ) -> Result<LiveTarget<'a, W>, AgentError> {
        let epoch = time::Instant::now();
        Ok(LiveTarget {
            wire,
            app: Application::open(agent, device)?,
            peer,
            timing,
            all,
            pair: None,
            epoch,
            stirred: Instant(START_NS),
            asked: epoch,
            answer_took: Duration::ZERO,
            looked: epoch,
            blind: Duration::ZERO,
            seen: VecDeque::new(),
            trouble: None,
        })
    }

    /// Destroys the queue pair, so that nothing it has still to send falls into the next script, and waits until the wire is
    /// empty.
    pub fn close(mut self) {
        // A connection that is lost has taken the queue pair along.
        let _ = self.app.destroy_qp();
        while matches!(self.wire.receive(), Ok(Some(_))) {}
    }

    /// The longest time for which nobody looked at the wire since the queue pair was made: the agent was waited for, or this
    /// process did not run.
    pub fn blind(&self) -> Duration {
        self.blind
    }

    fn instant(&self) -> Instant {
        Instant(START_NS + self.epoch.elapsed().as_nanos() as u64)
    }

    /// Something is about to be done to the device: what was sent before leaves before.
    fn stir(&mut self) {
        if let Err(error) = self.wire.flush() {
            self.trouble.get_or_insert(format!("the wire: {error}"));
        }
        self.stirred = self.instant();
    }

    /// The outcome of a call of the application: refused, or (then with a text that nobody looks at) broken.
    fn called<T>(&mut self, done: Result<Result<T, String>, AgentError>) -> Result<T, String> {
        self.stirred = self.instant();
        match done {
            Ok(done) => done,
            Err(error) => {
                let text = error.to_string();
                self.trouble.get_or_insert(text.clone());
                Err(text)
            }
        }
    }

    /// Takes packets from the wire. What is from another station than the device is not its doing.
    fn listen(&mut self) {
        self.blind = self.blind.max(self.looked.elapsed());
        self.looked = time::Instant::now();
        loop {
            match self.wire.receive() {
                Ok(Some(packet)) => {
                    let from = Packet::new_checked(&packet, &[]).map(|p| p.ip().src).ok();
                    if from.is_none_or(|from| self.pair.is_some_and(|pair| pair.device == from)) {
                        let at = self.instant();
                        self.seen.push_back(Seen { at, what: What::Packet(packet) });
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    self.trouble.get_or_insert(format!("the wire: {error}"));
                    return;
                }
            }
        }
    }

    /// Asks the agent what the application has got. What is there has come at the latest when the question was asked, as far
    /// as anybody can tell, and not after `until`.
    fn ask(&mut self, until: Instant) {
        let begun = time::Instant::now();
        let at = self.instant().min(until);
        match self.app.collect() {
            Ok(news) => {
                self.seen.extend(news.into_iter().map(|what| Seen { at, what }));
            }
            Err(error) => {
                self.trouble.get_or_insert(error.to_string());
            }
        }
        self.asked = time::Instant::now();
        self.answer_took = self.asked - begun;
    }
}

/// Nanoseconds.
fn ns(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

impl<W: Wire> Target for LiveTarget<'_, W> {
    fn cannot_play(&mut self, script: &Script) -> Option<String> {
        let pair = if script.qp.ipv6 { self.peer.ipv6 } else { self.peer.ipv4 };
        let family = if script.qp.ipv6 { "IPv6" } else { "IPv4" };
        if pair.is_none() {
            return Some(format!("there is no {family} address at both ends"));
        }
        if script.qp.mtu.bytes() > self.peer.mtu {
            return Some(format!("path MTU {} does not pass; the largest is {}", script.qp.mtu.bytes(), self.peer.mtu));
        }
        verbs::cannot(script, self.app.abilities(), self.all)
    }

    fn now(&self) -> Instant {
        self.instant()
    }

    fn lacks_event(&self, event: EventName) -> bool {
        self.peer.lacking_events.contains(&event)
    }

    fn is_exact(&self) -> bool {
        false
    }

    fn slack_ns(&self, wait_ns: u64, stated: bool) -> u64 {
        // An ACK timeout may take four times what it says (IBTA 9.7.6.1.3), an RNR wait as long as it likes.
        ns(self.timing.answer) + if stated { 0 } else { 3 * wait_ns }
    }

    fn early_ns(&self, wait_ns: u64) -> u64 {
        // The packet from which the wait counts may have come while nobody looked.
        wait_ns / 10 + ns(EARLY) + ns(self.blind)
    }

    fn settled_at(&self, since: Instant, limit: Option<Instant>) -> Instant {
        let quiet = self.stirred.max(since).add_ns(ns(self.timing.quiet));
        // Nine tenths of the way: timers of software go off a tick early.
        let limit = limit.map(|limit| since.add_ns(limit.since_ns(since) / 10 * 9));
        since.max(limit.map_or(quiet, |limit| quiet.min(limit)))
    }

    fn ack_timeout(&self, code: u8) -> u8 {
        // 0 is no timer at all.
        if code == 0 { 0 } else { code.max(self.timing.ack_timeout) }
    }

    fn trouble(&mut self) -> Option<String> {
        self.trouble.clone()
    }

    fn refuses_in_words(&self) -> bool {
        false
    }

    fn create(&mut self, setup: &QpSetup) -> Result<Connection, String> {
        let pair = if setup.ipv6 { self.peer.ipv6 } else { self.peer.ipv4 };
        let pair = pair.ok_or("there is no address of that family")?;
        self.pair = Some(pair);
        let made = self.app.create_qp(setup, &pair);
        let qpn = self.called(made)?;
        // What an earlier script has left on the wire.
        self.listen();
        self.seen.clear();
        self.epoch = time::Instant::now();
        (self.looked, self.blind) = (self.epoch, Duration::ZERO);
        self.stirred = self.instant();
        Ok(Connection { qpn, device: pair.device, peer: pair.script })
    }

    fn register(&mut self, spec: &MrSpec) -> Result<Registered, String> {
        self.stir();
        let done = self.app.register(spec);
        self.called(done)
    }

    fn deregister(&mut self, name: &str) -> Result<(), String> {
        self.stir();
        let done = self.app.deregister(name);
        self.called(done)
    }

    fn post_send(&mut self, wr: &SendRequest) -> Result<(), String> {
        self.stir();
        let done = self.app.post_send(wr);
        self.called(done)
    }

    fn post_recv(&mut self, wr: &RecvRequest) -> Result<(), String> {
        self.stir();
        let done = self.app.post_recv(wr);
        self.called(done)
    }

    fn modify(&mut self, attr: &QpAttr) -> Result<(), String> {
        self.stir();
        let done = self.app.modify(attr);
        self.called(done)
    }

    fn arm(&mut self, side: CqSide, solicited_only: bool) {
        self.stir();
        let done = self.app.arm(side, solicited_only);
        let _ = self.called(done.map(Ok));
    }

    fn deliver(&mut self, packet: &[u8]) {
        if let Err(error) = self.wire.send(packet) {
            self.trouble.get_or_insert(format!("the wire: {error}"));
        }
        self.stirred = self.instant();
    }

    fn next(&mut self, until: Instant) -> Option<Seen> {
        if let Err(error) = self.wire.flush() {
            self.trouble.get_or_insert(format!("the wire: {error}"));
        }
        let mut last_look = false;
        loop {
            if let Some(seen) = self.seen.pop_front() {
                return Some(seen);
            }
            if self.trouble.is_some() {
                return None;
            }
            self.listen();
            if !self.seen.is_empty() {
                continue;
            }
            let over = self.instant() >= until;
            if over && last_look {
                return None;
            }
            // An agent that takes long to answer is asked less often: it shares its CPU with the device.
            if over || self.asked.elapsed() >= (4 * self.answer_took).clamp(ASK_EVERY, ASK_AT_LEAST_EVERY) {
                self.ask(until);
            } else {
                std::thread::sleep(NAP);
            }
            last_look = over;
        }
    }

    fn read(&mut self, span: &Span) -> Vec<u8> {
        let done = self.app.read(span);
        self.called(done.map(Ok)).unwrap_or_default()
    }

    fn write(&mut self, span: &Span, bytes: &[u8]) {
        self.stir();
        let done = self.app.write(span, bytes);
        let _ = self.called(done.map(Ok));
    }

    fn counter(&mut self, name: &str) -> Option<u64> {
        let done = self.app.counter(name);
        self.called(done.map(Ok)).ok().flatten()
    }

    fn dropped(&mut self, reason: &str) -> Option<u64> {
        let done = self.app.dropped(reason);
        self.called(done.map(Ok)).ok().flatten()
    }

    fn attribute(&mut self, name: &str) -> Option<u64> {
        // A timeout that was raised is not what the script set.
        if name == "timeout" {
            return None;
        }
        let done = self.app.attribute(name);
        self.called(done.map(Ok)).ok().flatten()
    }

    fn state(&mut self) -> Option<QpState> {
        let done = self.app.state();
        self.called(done.map(Ok)).ok()
    }

    fn trampled(&mut self) -> Vec<String> {
        let done = self.app.trampled();
        self.called(done.map(Ok)).unwrap_or_default()
    }
}
