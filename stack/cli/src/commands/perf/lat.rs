//! Latency: one message at a time, to and fro.
//!
//! In: a rig at each end. Out: at the client the time of each round trip.

use std::time::{Duration, Instant};

use xroce::{Sge, Wc};

use super::PerfError;
use super::bw::done;
use super::plan::{Length, Operation};
use super::rig::{Patience, RECV_CHAIN, Rig, recv_of};
use super::talk::Listener;
use crate::cpu;

/// Times that are kept; of a longer run, the last ones.
const SAMPLES_MAX: usize = 1 << 21;

/// What the client measured.
#[derive(Debug)]
pub struct Latency {
    /// Round trips.
    pub iters: u64,
    /// Their times in nanoseconds, sorted.
    pub samples: Vec<u64>,
    /// CPU time meanwhile, nanoseconds.
    pub cpu_ns: u64,
}

/// One end of a test in which messages go to and fro.
struct Player<'a> {
    rig: &'a Rig,
    listener: &'a Listener,
    sges: [Sge; 1],
    /// What is posted inline.
    bytes: Vec<u8>,
    sent: u64,
    /// RECVs used since RECVs were last posted.
    used: u32,
    wcs: [Wc; 16],
}

impl<'a> Player<'a> {
    fn new(rig: &'a Rig, listener: &'a Listener) -> Result<Player<'a>, PerfError> {
        let bytes = vec![0; if rig.plan.is_inline() { rig.plan.size as usize } else { 0 }];
        Ok(Player { rig, listener, sges: [rig.piece(0)?], bytes, sent: 0, used: 0, wcs: [Wc::default(); 16] })
    }

    /// Posts the next message. WRITEs carry their number in the last byte.
    fn post(&mut self) -> Result<(), PerfError> {
        let rig = self.rig;
        self.sent += 1;
        let pieces;
        let inline: &[&[u8]] = if rig.plan.is_inline() {
            if let Some(last) = self.bytes.last_mut() {
                *last = self.sent as u8;
            }
            pieces = [self.bytes.as_slice()];
            &pieces
        } else {
            if rig.plan.test.operation() == Operation::Write {
                rig.set_last_departing(self.sent as u8)?;
            }
            &[]
        };
        Ok(rig.qps[0].post_send(&rig.request(0, 0, &self.sges, inline))?)
    }

    /// Polls once: the RECVs and the requests that are complete.
    fn poll(&mut self) -> Result<(u32, u32), PerfError> {
        let count = self.rig.poll(&mut self.wcs)?;
        let recvs = self.wcs[..count].iter().filter(|wc| recv_of(wc).is_some()).count();
        self.used += recvs as u32;
        let chain = RECV_CHAIN.min(self.rig.plan.rx_depth);
        if self.used >= chain {
            self.rig.post_recvs(0, self.used)?;
            self.used = 0;
        }
        Ok((recvs as u32, (count - recvs) as u32))
    }

    /// Waits until `there` says so of a look; false if the other end said something before.
    fn wait(
        &mut self,
        client: bool,
        mut there: impl FnMut(&mut Self) -> Result<bool, PerfError>,
    ) -> Result<bool, PerfError> {
        let mut patience = Patience::default();
        loop {
            if there(self)? {
                return Ok(true);
            }
            if client {
                patience.idle(self.rig, self.listener)?;
            } else if self.listener.heard() {
                return Ok(false);
            }
        }
    }

    /// Waits for the other end's next message.
    fn hear(&mut self, client: bool, number: u64) -> Result<bool, PerfError> {
        if self.rig.plan.test.operation() == Operation::Write {
            return self.wait(client, |player| {
                // Nothing moves unless somebody polls.
                player.poll()?;
                Ok(player.rig.last_arrived()? == number as u8)
            });
        }
        self.wait(client, |player| Ok(player.poll()?.0 > 0))
    }

    /// There and back again, by whatever the test does.
    fn round(&mut self) -> Result<(), PerfError> {
        self.post()?;
        match self.rig.plan.test.operation() {
            Operation::Send | Operation::Write => self.hear(true, self.sent)?,
            Operation::Read | Operation::Atomic => self.wait(true, |player| Ok(player.poll()?.1 > 0))?,
        };
        Ok(())
    }
}

/// The client's part.
pub fn client(rig: &Rig, listener: &Listener, cpu_now: fn() -> u64) -> Result<Latency, PerfError> {
    let mut player = Player::new(rig, listener)?;
    let (iters, seconds) = match rig.plan.length {
        Length::Iters(iters) => (iters, None),
        Length::Seconds(seconds) => (u64::MAX, Some(Duration::from_secs(seconds.into()))),
    };
    let mut samples = Vec::with_capacity(usize::try_from(iters).unwrap_or(SAMPLES_MAX).min(SAMPLES_MAX));
    let cpu_start = cpu_now();
    let start = Instant::now();
    let mut before = start;
    while player.sent < iters && seconds.is_none_or(|seconds| before - start < seconds) {
        player.round()?;
        let now = Instant::now();
        let sample = u64::try_from((now - before).as_nanos()).unwrap_or(u64::MAX);
        if samples.len() < SAMPLES_MAX {
            samples.push(sample);
        } else {
            samples[player.sent as usize % SAMPLES_MAX] = sample;
        }
        before = now;
    }
    let cpu_ns = cpu_now() - cpu_start;
    samples.sort_unstable();
    Ok(Latency { iters: player.sent, samples, cpu_ns })
}

/// The server's part: how many messages came, and the CPU time in nanoseconds.
pub fn server(rig: &Rig, listener: &Listener) -> Result<(u64, u64), PerfError> {
    let start = cpu::process_ns();
    let operation = rig.plan.test.operation();
    if matches!(operation, Operation::Send | Operation::Write) {
        let mut player = Player::new(rig, listener)?;
        while player.hear(false, player.sent + 1)? {
            player.post()?;
        }
        let sent = done(&listener.next()?)?;
        return if sent == player.sent {
            Ok((sent, cpu::process_ns() - start))
        } else {
            Err(PerfError::Sum { sent, found: player.sent })
        };
    }
    super::bw::server(rig, listener)
}
