//! Who runs the shards of a device.
//!
//! In: the mode chosen when the device is opened. Out: threads (or none) that take the shards' tokens and step them.
//!
//! | mode | who steps | CPU when idle | latency |
//! |---|---|---|---|
//! | [`Progress::Spin`] | one thread a shard, always | one core a shard | lowest, if a core is free for it |
//! | [`Progress::Adaptive`] | one thread a shard, sleeps after a while without work | near none | low under load, a wake-up after a pause |
//! | [`Progress::Event`] | one thread a shard, sleeps whenever there is nothing to do | near none | a wake-up each time |
//! | [`Progress::Inline`] with helper | the application's `poll_cq`; a helper thread when nobody polls | near none | lowest while polling |
//! | [`Progress::Inline`] without | only the application's `poll_cq` | none | the wire stands still while nobody polls |
#![forbid(unsafe_code)]

use crate::shard::Shard;
use crate::sleep::Depth;
use crate::sys;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Who runs the shards of a device, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// A poll thread for each shard that never sleeps.
    Spin {
        /// The CPU of the first shard's thread; further shards take the CPUs after it. None: the scheduler chooses.
        cpu: Option<usize>,
    },
    /// A poll thread for each shard that sleeps after `spin_ns` nanoseconds without work.
    Adaptive {
        /// As for [`Progress::Spin`].
        cpu: Option<usize>,
        /// How long it goes on looking before it sleeps.
        spin_ns: u64,
    },
    /// A thread for each shard that sleeps whenever there is nothing to do.
    Event,
    /// The application's own `poll_cq` steps the shards.
    Inline {
        /// Whether a thread steps in when nobody polls: after some 100 µs, or up to 16 ms where there was much polling before, and at
        /// once for whoever waits for a completion channel. Without it nothing moves while the application
        /// does not poll: no acknowledgement, no retransmission, no answer to a peer's READ. A peer then sees its retries
        /// run out (after about half a second with the usual timeout 14 and retry count 7).
        helper: bool,
    },
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::Inline { helper: true }
    }
}

/// How long the helper leaves the shard alone before it looks whether anybody stepped it.
const PATROL_MIN_NS: u64 = 100_000;

/// The longest it leaves it alone: the wait doubles while the application keeps polling. A look may be late by as much again:
/// this, twice, bounds how long a posted request can be late when the application stops without a word, and, four times, an
/// acknowledgement.
///
/// Each look takes a CPU away from somebody, mostly from the application that polls: some 50 µs in a virtual machine, with which the
/// slowest hundredth of its round trips begins. One that may be late has no timer interrupt of its own: it comes with the
/// scheduler's tick.
const PATROL_MAX_NS: u64 = 4_000_000;

/// How late a thread may be that sleeps until a deadline of the transport.
const PUNCTUAL_NS: u64 = 1_000;

/// How long the helper's next patrol is.
#[derive(Debug)]
struct Patrol {
    length_ns: u64,
    bell: bool,
}

impl Default for Patrol {
    fn default() -> Patrol {
        Patrol { length_ns: PATROL_MIN_NS, bell: false }
    }
}

impl Patrol {
    /// The application has polled. If a `bell` waits, it posted after that and may never poll again: the next look, which finds
    /// out, comes soon, or what was posted would lie for two patrols.
    fn saw_steps(&mut self, bell: bool) {
        self.length_ns = (self.length_ns * 2).min(PATROL_MAX_NS);
        self.bell = bell;
    }

    fn wait_ns(&self) -> u64 {
        if self.bell { PATROL_MIN_NS } else { self.length_ns }
    }
}

/// How long the helper stands aside, between two steps, for an application that polls again: it would find the token taken for
/// as long as there is work.
const ASIDE: Duration = Duration::from_micros(50);

/// How long a thread sleeps when the port has no free frame: completions come without a descriptor to wait for.
pub(crate) const STALL_NS: u64 = 50_000;

/// A thread that runs one shard.
#[derive(Debug)]
pub(crate) struct Worker {
    shard: Arc<Shard>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread that `progress` asks for; None when it asks for none.
    ///
    /// # Errors
    /// No thread can be made, or it cannot run on the CPU asked for.
    pub(crate) fn start(shard: &Arc<Shard>, progress: Progress) -> io::Result<Option<Worker>> {
        let cpu = match progress {
            Progress::Inline { helper: false } => return Ok(None),
            Progress::Spin { cpu } | Progress::Adaptive { cpu, .. } => cpu.map(|first| first + shard.index()),
            _ => None,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, started) = std::sync::mpsc::channel();
        let runner = Runner {
            shard: shard.clone(),
            stop: stop.clone(),
            fds: Vec::with_capacity(16),
            scratch: Vec::with_capacity(16),
            may_be_late_ns: None,
        };
        let thread = std::thread::Builder::new().name(format!("xroce-{}", shard.index())).spawn(move || {
            let pinned = cpu.map_or(Ok(()), sys::pin_to_cpu);
            let go = pinned.is_ok();
            let _ = ready.send(pinned);
            if go {
                let _obituary = Obituary(runner.shard.clone());
                runner.run(progress);
            }
        })?;
        let worker = Worker { shard: shard.clone(), stop, thread: Some(thread) };
        started.recv().map_err(io::Error::other)??;
        Ok(Some(worker))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.shard.sleeper().rouse();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has broken the token already; control calls report it.
            let _ = thread.join();
        }
    }
}

/// Tells the application when the thread ends because a step panicked: nobody runs the shard any more.
struct Obituary(Arc<Shard>);

impl Drop for Obituary {
    fn drop(&mut self) {
        if std::thread::panicking() || self.0.is_broken() {
            self.0.tell_fatal();
        }
    }
}

struct Runner {
    shard: Arc<Shard>,
    stop: Arc<AtomicBool>,
    fds: Vec<RawFd>,
    scratch: Vec<libc::pollfd>,
    /// What the kernel was told last; None: nothing.
    may_be_late_ns: Option<u64>,
}

impl Runner {
    fn run(mut self, progress: Progress) {
        match progress {
            Progress::Spin { .. } => self.spin(),
            Progress::Adaptive { spin_ns, .. } => self.adaptive(Duration::from_nanos(spin_ns)),
            Progress::Event => self.adaptive(Duration::ZERO),
            Progress::Inline { .. } => self.help(),
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.shard.is_broken()
    }

    fn spin(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            if self.shard.step().is_some() {
                continue;
            }
            // A control call holds the token, or a step has died in it.
            if self.shard.is_broken() {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn adaptive(&mut self, patience: Duration) {
        let mut idle_since = None;
        while !self.stopped() {
            match self.shard.step() {
                Some(outcome) if outcome.worked => idle_since = None,
                Some(_) if patience.is_zero() => self.sleep(),
                Some(_) => {
                    let since = *idle_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= patience {
                        self.sleep();
                        idle_since = None;
                    } else {
                        std::hint::spin_loop();
                    }
                }
                None => std::thread::yield_now(),
            }
        }
    }

    /// The helper is on duty while nobody polls, and then does what event mode does. While somebody polls it is on patrol:
    /// it looks in now and then whether the shard was stepped since its last look.
    fn help(&mut self) {
        let mut seen = self.shard.inline_steps();
        let mut patrol = Patrol::default();
        while !self.stopped() {
            self.patrol(patrol.wait_ns());
            let steps = self.shard.inline_steps();
            if steps != seen && !self.shard.someone_waits() {
                seen = steps;
                patrol.saw_steps(self.shard.has_bells());
                continue;
            }
            let stepped;
            (seen, stepped) = self.duty(steps);
            if stepped {
                patrol = Patrol::default();
            } else {
                // The application was in the middle of a step, which may take longer than a patrol.
                patrol.saw_steps(self.shard.has_bells());
            }
        }
    }

    fn patrol(&mut self, patrol_ns: u64) {
        self.may_be_late(patrol_ns);
        let sleeper = self.shard.sleeper();
        sleeper.lie_down(Depth::Patrol);
        if self.stopped() || self.shard.someone_waits() {
            sleeper.rise();
            return;
        }
        let _ = sleeper.sleep(&[], Some(patrol_ns), &mut self.scratch);
    }

    /// Steps and sleeps until the application polls again. Its step count then, and whether there was any step of ours.
    fn duty(&mut self, seen: u64) -> (u64, bool) {
        let mut stepped = false;
        while !self.stopped() {
            let steps = self.shard.inline_steps();
            if steps != seen && !self.shard.someone_waits() {
                return (steps, stepped);
            }
            match self.shard.step() {
                Some(outcome) => {
                    stepped = true;
                    if !outcome.worked {
                        self.sleep();
                    } else if self.shard.has_turned_away() && !self.shard.someone_waits() {
                        std::thread::sleep(ASIDE);
                    }
                }
                // Somebody else steps. There is no need to wait for that unless somebody sleeps and relies on us.
                None if !self.shard.someone_waits() => return (steps, stepped),
                None => std::thread::yield_now(),
            }
        }
        (seen, stepped)
    }

    /// The next sleeps may end so much after their time. A system call when that is new.
    fn may_be_late(&mut self, ns: u64) {
        if self.may_be_late_ns.replace(ns) != Some(ns) {
            sys::let_sleeps_be_late(ns);
        }
    }

    /// Sleeps until there is work for the shard or it is time to stop.
    fn sleep(&mut self) {
        self.may_be_late(PUNCTUAL_NS);
        let sleeper = self.shard.sleeper();
        sleeper.lie_down(Depth::Asleep);
        self.fds.clear();
        if self.stopped() {
            sleeper.rise();
            return;
        }
        match self.shard.prepare_to_sleep(&mut self.fds) {
            Some(timeout_ns) => {
                let slept = sleeper.sleep(&self.fds, timeout_ns, &mut self.scratch);
                self.shard.after_sleep();
                if let Err(error) = slept {
                    // Only a descriptor that became invalid does this; go on by the clock rather than spin.
                    tracing::warn!(%error, shard = self.shard.index(), "cannot sleep on the port's descriptors");
                    std::thread::sleep(Duration::from_nanos(STALL_NS));
                }
            }
            None => sleeper.rise(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_waits_shortens_one_patrol() {
        let mut patrol = Patrol::default();
        assert_eq!(patrol.wait_ns(), PATROL_MIN_NS);
        for _ in 0..10 {
            patrol.saw_steps(false);
        }
        assert_eq!(patrol.wait_ns(), PATROL_MAX_NS);
        patrol.saw_steps(true);
        assert_eq!(patrol.wait_ns(), PATROL_MIN_NS);
        patrol.saw_steps(false);
        assert_eq!(patrol.wait_ns(), PATROL_MAX_NS, "the application polls, and as long as before");
    }
}
