//! Faults by plan and by chance, on any port.
//!
//! What enters: frames in both directions, and [`Rule`]s. What leaves: the frames, but for those that a rule drops,
//! doubles, keeps back or corrupts. With no rule in force the wrapper passes everything on and costs a load.
//!
//! Rules are counted, exact (the third frame that matches) or by chance (a seed decides), and may be changed while
//! the port is in use through [`Faults`]. Over a [`Pcap`](crate::pcap::Pcap) each fault is told to the capture.

#![forbid(unsafe_code)]

mod held;
mod plan;
mod rule;

use std::os::fd::RawFd;
use std::time::Instant;

pub use plan::{FaultCounters, FaultCounts, Faults, RuleCounts, RuleId};
pub use rule::{Action, Rule, RuleError, When};

use self::held::{Hold, OwnFrame, Until};
use self::plan::Verdict;
use crate::pcap::Tap;
use crate::staging::{Staging, send_bytes};
use crate::wake::Wake;
use crate::{Direction, Layer, Port, PortCounters, RxFrame, TxClass, TxFrame};

/// A port whose frames suffer what its [`Faults`] say.
///
/// Held frames count as sent, or as not yet arrived: [`Port::tx_idle`] does not wait for them, [`Faults::next_release`]
/// tells a driver of virtual time when they pass, and in real time a sleeper is woken for them.
#[derive(Debug)]
pub struct Fault<P> {
    port: P,
    faults: Faults,
    tap: Option<Tap>,
    start: Instant,
    wake: Option<Wake>,
    staging: Staging,
    /// What the burst that is lent is made of; unused while it is just the port's own.
    burst: Vec<Lent>,
    own: Vec<OwnFrame>,
    remade: bool,
    held_rx: Hold,
    held_tx: Hold,
    shift: Shift,
}

#[derive(Debug, Clone, Copy)]
enum Lent {
    /// Frame of the port's burst.
    Port(usize),
    /// Frame of ours.
    Own(usize),
}

/// By how much the port's counters differ from what the engine saw.
#[derive(Debug, Default)]
struct Shift {
    rx_frames: i64,
    rx_bytes: i64,
    tx_frames: i64,
    tx_bytes: i64,
    tx_refused: i64,
}

impl<P: Port> Fault<P> {
    /// Wraps `port`, with no rule in force. The seed decides what [`When::Chance`] and [`Action::CorruptBits`] hit.
    pub fn new(port: P, seed: u64) -> Fault<P> {
        let wake = if port.now_hint().is_some() {
            None
        } else {
            let opened = Wake::new();
            if let Err(error) = &opened {
                tracing::warn!(%error, "no descriptors: a delayed frame will not wake a sleeper");
            }
            opened.ok()
        };
        let staging = Staging::for_frames_up_to(port.capabilities().max_frame);
        Fault {
            port,
            faults: Faults::new(seed),
            tap: None,
            start: Instant::now(),
            wake,
            staging,
            burst: Vec::new(),
            own: Vec::new(),
            remade: false,
            held_rx: Hold::default(),
            held_tx: Hold::default(),
            shift: Shift::default(),
        }
    }

    /// Tells each fault to the capture of the [`Pcap`](crate::pcap::Pcap) right below: a changed frame gets a comment,
    /// a frame dropped on its way out is written with one.
    #[must_use]
    pub fn with_tap(self, tap: Tap) -> Fault<P> {
        Fault { tap: Some(tap), ..self }
    }

    /// The remote control.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// The port below.
    pub fn get_ref(&self) -> &P {
        &self.port
    }

    fn now_ns(&self) -> u64 {
        let real = || u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.port.now_hint().unwrap_or_else(real)
    }

    fn is_quiet(&self, held: &Hold) -> bool {
        held.is_empty() && !self.faults.in_force()
    }

    fn tell_next_release(&self) {
        let both = [self.held_rx.next_ns(), self.held_tx.next_ns()];
        self.faults.set_next_release(both.into_iter().flatten().min());
    }

    fn until(&self, action: Action) -> Option<Until> {
        match action {
            Action::DelayNs(ns) => Some(Until::Ns(self.now_ns().saturating_add(ns))),
            Action::HoldFrames(frames) => Some(Until::Frames(frames)),
            _ => None,
        }
    }

    // Receive.

    /// Lends frames that were held and may pass now, until the burst has `limit`.
    fn lend_ready(&mut self, limit: usize) {
        while self.burst.len() < limit
            && let Some(frame) = self.held_rx.pop_ready()
        {
            self.faults.count(Direction::Rx, |counts| counts.released += u64::from(!frame.duplicate));
            self.shift.rx_frames += 1;
            self.shift.rx_bytes += signed(frame.bytes().len());
            self.lend_own(frame);
        }
    }

    fn lend_own(&mut self, frame: OwnFrame) {
        self.burst.push(Lent::Own(self.own.len()));
        self.own.push(frame);
    }

    /// Takes frame `i` of the port's burst into ours. Ours may grow to `limit` by that: frames behind it need the rest.
    fn receive(&mut self, i: usize, limit: usize) {
        let verdict = self.faults.judge(Direction::Rx, &self.port.rx_frame(i));
        // What was held before has seen one more frame pass; what this frame's own rule holds has not.
        self.held_rx.frame_passed();
        match verdict {
            None => self.burst.push(Lent::Port(i)),
            Some(verdict) => self.receive_faulty(i, verdict),
        }
        self.lend_ready(limit);
    }

    fn receive_faulty(&mut self, i: usize, mut verdict: Verdict) {
        if let Some(tap) = &self.tap {
            tap.note_rx(i, describe(&verdict));
        }
        let len = self.port.rx_frame(i).len();
        let copy = |port: &P| OwnFrame::copy_of(&port.rx_frame(i), TxClass::Request);
        match verdict.action {
            Action::Drop => {
                self.faults.count(Direction::Rx, |counts| counts.dropped += 1);
                self.shift.rx_frames -= 1;
                self.shift.rx_bytes -= signed(len);
            }
            Action::Duplicate => {
                self.faults.count(Direction::Rx, |counts| counts.duplicated += 1);
                self.burst.push(Lent::Port(i));
                let frame = copy(&self.port).into_duplicate();
                self.held_rx.keep(frame, Until::Room);
            }
            Action::DelayNs(_) | Action::HoldFrames(_) => {
                self.faults.count(Direction::Rx, |counts| counts.held += 1);
                self.shift.rx_frames -= 1;
                self.shift.rx_bytes -= signed(len);
                if let Some(until) = self.until(verdict.action) {
                    let frame = copy(&self.port);
                    self.held_rx.keep(frame, until);
                }
            }
            Action::CorruptBits(_) | Action::FlipBit(_) => {
                let mut frame = copy(&self.port);
                let done = corrupt(&mut verdict, frame.bytes_mut());
                self.faults.count(
                    Direction::Rx,
                    |counts| {
                        if done { counts.corrupted += 1 } else { counts.skipped += 1 }
                    },
                );
                self.lend_own(frame);
            }
        }
    }

    // Transmit.

    fn transmit(&mut self, len: usize) {
        let class = self.staging.take(len);
        self.held_tx.frame_passed();
        match self.faults.judge(Direction::Tx, &self.staging.frame(len)) {
            None => self.staging.send_granted(&mut self.port, len, class),
            Some(verdict) => self.transmit_faulty(len, class, verdict),
        }
        self.send_ready();
    }

    fn transmit_faulty(&mut self, len: usize, class: TxClass, mut verdict: Verdict) {
        let text = describe(&verdict);
        match verdict.action {
            Action::Drop => {
                self.faults.count(Direction::Tx, |counts| counts.dropped += 1);
                self.shift.tx_frames += 1;
                self.shift.tx_bytes += signed(len);
                if let Some(tap) = &self.tap {
                    tap.record(Direction::Tx, self.now_ns(), &self.staging.frame(len), &text);
                }
            }
            Action::Duplicate => {
                self.staging.send_granted(&mut self.port, len, class);
                self.note_next_tx(text);
                let done = self.staging.send_again(&mut self.port, len, class);
                self.faults.count(
                    Direction::Tx,
                    |counts| {
                        if done { counts.duplicated += 1 } else { counts.skipped += 1 }
                    },
                );
                if done {
                    self.shift.tx_frames -= 1;
                    self.shift.tx_bytes -= signed(len);
                } else {
                    self.refused();
                }
            }
            Action::DelayNs(_) | Action::HoldFrames(_) => {
                self.faults.count(Direction::Tx, |counts| counts.held += 1);
                self.shift.tx_frames += 1;
                self.shift.tx_bytes += signed(len);
                if let Some(until) = self.until(verdict.action) {
                    self.held_tx.keep(OwnFrame::copy_of(&self.staging.frame(len), class), until);
                }
            }
            Action::CorruptBits(_) | Action::FlipBit(_) => {
                let done = corrupt(&mut verdict, self.staging.bytes_mut(len));
                self.faults.count(
                    Direction::Tx,
                    |counts| {
                        if done { counts.corrupted += 1 } else { counts.skipped += 1 }
                    },
                );
                self.note_next_tx(text);
                self.staging.send_granted(&mut self.port, len, class);
            }
        }
    }

    fn note_next_tx(&self, text: String) {
        if let Some(tap) = &self.tap {
            tap.note_next_tx(text);
        }
    }

    /// The port had no room for a frame of ours: the engine does not see that, and the note is for no frame.
    fn refused(&mut self) {
        self.shift.tx_refused -= 1;
        if let Some(tap) = &self.tap {
            tap.forget_tx_note();
        }
    }

    /// Sends held frames that may pass, as far as the port has room.
    fn send_ready(&mut self) {
        while let Some(frame) = self.held_tx.pop_ready() {
            self.note_next_tx("fault: held back until now".to_owned());
            if !send_bytes(&mut self.port, frame.bytes(), frame.class) {
                self.held_tx.put_back(frame);
                self.refused();
                break;
            }
            self.faults.count(Direction::Tx, |counts| counts.released += 1);
            self.shift.tx_frames -= 1;
            self.shift.tx_bytes -= signed(frame.bytes().len());
        }
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn describe(verdict: &Verdict) -> String {
    format!("fault: {:?} by rule \"{}\"", verdict.action, verdict.rule)
}

/// Flips the bits. `false` when the frame has none there.
fn corrupt(verdict: &mut Verdict, bytes: &mut [u8]) -> bool {
    match verdict.action {
        Action::CorruptBits(bits) => verdict.dice.flip_bits(bytes, bits),
        Action::FlipBit(bit) => match bytes.get_mut(bit / 8) {
            Some(byte) => *byte ^= 1 << (bit % 8),
            None => return false,
        },
        _ => return false,
    }
    true
}

impl<P: Port> Layer for Fault<P> {
    type Below = P;

    fn below(&self) -> &P {
        &self.port
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.port
    }

    fn rx_burst(&mut self, max: usize) -> usize {
        Port::rx_release(self);
        self.remade = !self.is_quiet(&self.held_rx);
        if !self.remade {
            return self.port.rx_burst(max);
        }
        if !self.held_rx.is_empty() {
            self.held_rx.clock(self.now_ns());
            self.lend_ready(max);
        }
        let room = max - self.burst.len();
        let count = if room > 0 { self.port.rx_burst(room) } else { 0 };
        for i in 0..count {
            self.receive(i, max - (count - 1 - i));
        }
        self.tell_next_release();
        self.burst.len()
    }

    fn rx_frame(&self, i: usize) -> RxFrame<'_> {
        if !self.remade {
            return self.port.rx_frame(i);
        }
        match self.burst[i] {
            Lent::Port(i) => self.port.rx_frame(i),
            Lent::Own(i) => self.own[i].lend(),
        }
    }

    fn rx_dropped(&mut self, i: usize, reason: &'static str) {
        if !self.remade {
            return self.port.rx_dropped(i, reason);
        }
        // A frame of ours is not in the port's burst: the note on the fault says what happened to it.
        if let Lent::Port(i) = self.burst[i] {
            self.port.rx_dropped(i, reason);
        }
    }

    fn rx_release(&mut self) {
        self.burst.clear();
        self.own.clear();
        self.port.rx_release();
    }

    fn tx_reserve(&mut self, len: usize, class: TxClass) -> Option<TxFrame<'_>> {
        if self.is_quiet(&self.held_tx) {
            self.staging.forget();
            self.port.tx_reserve(len, class)
        } else {
            self.staging.reserve(&mut self.port, len, class)
        }
    }

    fn tx_commit(&mut self, len: usize) {
        if self.staging.is_reserved() {
            self.transmit(len);
        } else {
            self.port.tx_commit(len);
        }
    }

    fn tx_flush(&mut self) {
        if !self.held_tx.is_empty() {
            self.held_tx.clock(self.now_ns());
            self.send_ready();
        }
        self.port.tx_flush();
        self.tell_next_release();
    }

    fn tx_idle(&self) -> bool {
        self.port.tx_idle() && !self.held_tx.has_ready()
    }

    fn wait_fds(&self, out: &mut Vec<RawFd>) {
        self.port.wait_fds(out);
        if let Some(wake) = &self.wake {
            wake.fds(out);
        }
    }

    fn before_wait(&mut self) {
        if let Some(wake) = &self.wake {
            if self.held_rx.has_ready() || self.held_tx.has_ready() {
                wake.signal();
            }
            let next = self.faults.next_release();
            wake.arm(next.map(|at_ns| at_ns.saturating_sub(self.now_ns())));
        }
        self.port.before_wait();
    }

    fn after_wait(&mut self) {
        self.port.after_wait();
        if let Some(wake) = &self.wake {
            wake.drain();
        }
    }

    /// What the engine saw: a dropped frame was sent, or lost on its way in; a duplicate arrived.
    fn counters(&self) -> PortCounters {
        let below = self.port.counters();
        let faults = self.faults.counters();
        PortCounters {
            rx_frames: below.rx_frames.wrapping_add_signed(self.shift.rx_frames),
            rx_bytes: below.rx_bytes.wrapping_add_signed(self.shift.rx_bytes),
            rx_dropped_lower: below.rx_dropped_lower + faults.rx.dropped,
            tx_frames: below.tx_frames.wrapping_add_signed(self.shift.tx_frames),
            tx_bytes: below.tx_bytes.wrapping_add_signed(self.shift.tx_bytes),
            tx_dropped: below.tx_dropped + faults.tx.dropped,
            tx_refused: below.tx_refused.wrapping_add_signed(self.shift.tx_refused),
            ..below
        }
    }
}
