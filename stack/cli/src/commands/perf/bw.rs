//! Bandwidth: as many messages as the depth allows are kept outstanding.
//!
//! In: a rig at each end. Out: at the client how many messages completed in which time, at the server how many arrived.

use std::time::{Duration, Instant};

use xroce::{Qp, SendFlags, SendWr, Wc, WrId};

use super::PerfError;
use super::plan::{Length, Operation};
use super::rig::{Patience, RECV_CHAIN, Rig, recv_of};
use super::talk::{Listener, Message};
use crate::cpu;

/// Completions taken at a time.
const POLL: usize = 64;

/// What the client measured.
#[derive(Debug, Clone, Copy)]
pub struct Bandwidth {
    /// Messages completed, on all queue pairs.
    pub messages: u64,
    /// From the first post to the last completion.
    pub time: Duration,
    /// Messages per second in the best stretch.
    pub peak: f64,
    /// CPU time meanwhile, nanoseconds.
    pub cpu_ns: u64,
}

/// A queue pair and its work requests: one chain, posted again and again.
struct Lane<'a> {
    index: u64,
    qp: &'a Qp,
    chain: Vec<SendWr<'a>>,
    posted: u64,
    done: u64,
}

impl Lane<'_> {
    /// Posts as long as the depth allows. Only the last of a chain makes a completion; its number says for how many it stands.
    #[inline]
    fn fill(&mut self, target: u64, depth: u64) -> Result<(), PerfError> {
        loop {
            let count = (self.chain.len() as u64).min(target.saturating_sub(self.posted));
            if count == 0 || self.posted - self.done + count > depth {
                return Ok(());
            }
            let from = self.chain.len() - count as usize;
            if let Some(last) = self.chain.last_mut() {
                last.wr_id = WrId(self.index << 32 | count);
            }
            self.qp.post_send_chain(&self.chain[from..])?;
            self.posted += count;
        }
    }
}

/// The best stretch of a run.
struct Peak {
    stretch: u64,
    from: u64,
    since: Instant,
    best: f64,
}

impl Peak {
    #[inline]
    fn note(&mut self, done: u64) {
        if done - self.from < self.stretch {
            return;
        }
        let now = Instant::now();
        let rate = (done - self.from) as f64 / (now - self.since).as_secs_f64();
        self.best = self.best.max(rate);
        (self.from, self.since) = (done, now);
    }
}

/// The client's part.
pub fn client(rig: &Rig, listener: &Listener, cpu_now: fn() -> u64) -> Result<Bandwidth, PerfError> {
    let plan = &rig.plan;
    let sges: Vec<[_; 1]> = (0..rig.qps.len()).map(|i| Ok([rig.piece(i)?])).collect::<Result<_, PerfError>>()?;
    let bytes = vec![0; if plan.is_inline() { plan.size as usize } else { 0 }];
    let pieces = [bytes.as_slice()];
    let inline = if plan.is_inline() { &pieces[..] } else { &[] };
    let mut lanes: Vec<Lane<'_>> = Vec::new();
    for (index, qp) in rig.qps.iter().enumerate() {
        let mut chain = vec![rig.request(index, 0, &sges[index], inline); plan.batch() as usize];
        let quiet = chain.len() - 1;
        chain[..quiet].iter_mut().for_each(|wr| wr.flags.remove(SendFlags::SIGNALED));
        lanes.push(Lane { index: index as u64, qp, chain, posted: 0, done: 0 });
    }
    let stretch = plan.messages().map_or(4096, |messages| (messages / 20).max(1));
    let start = Instant::now();
    let cpu_start = cpu_now();
    let mut peak = Peak { stretch, from: 0, since: start, best: 0.0 };
    let messages = run(rig, listener, &mut lanes, start, &mut peak)?;
    Ok(Bandwidth { messages, time: start.elapsed(), peak: peak.best, cpu_ns: cpu_now() - cpu_start })
}

fn run(
    rig: &Rig,
    listener: &Listener,
    lanes: &mut [Lane<'_>],
    start: Instant,
    peak: &mut Peak,
) -> Result<u64, PerfError> {
    let depth = u64::from(rig.plan.tx_depth);
    let (mut target, end) = match rig.plan.length {
        Length::Iters(iters) => (iters, None),
        Length::Seconds(seconds) => (u64::MAX, Some(start + Duration::from_secs(seconds.into()))),
    };
    let mut wcs = [Wc::default(); POLL];
    let mut patience = Patience::default();
    let mut total = 0;
    loop {
        if end.is_some_and(|end| Instant::now() >= end) {
            target = 0;
        }
        for lane in &mut *lanes {
            lane.fill(target, depth)?;
        }
        let count = rig.poll(&mut wcs)?;
        if count == 0 {
            if lanes.iter().all(|lane| lane.posted >= target && lane.done == lane.posted) {
                return Ok(total);
            }
            patience.idle(rig, listener)?;
            continue;
        }
        patience.reset();
        for wc in &wcs[..count] {
            let messages = wc.wr_id.0 & 0xffff_ffff;
            lanes[(wc.wr_id.0 >> 32) as usize].done += messages;
            total += messages;
        }
        peak.note(total);
    }
}

/// The server's part: what arrived, and the CPU time in nanoseconds.
pub fn server(rig: &Rig, listener: &Listener) -> Result<(u64, u64), PerfError> {
    let start = cpu::process_ns();
    let received = match rig.plan.test.operation() {
        Operation::Send => receive(rig, listener)?,
        Operation::Write | Operation::Read => done(&rig.await_message(listener)?)?,
        Operation::Atomic => {
            let sent = done(&rig.await_message(listener)?)?;
            let found = rig.words()?;
            if found != sent {
                return Err(PerfError::Sum { sent, found });
            }
            sent
        }
    };
    Ok((received, cpu::process_ns() - start))
}

/// How many messages the client says it has sent.
pub fn done(message: &Message) -> Result<u64, PerfError> {
    match message {
        Message::Done(sent) => Ok(*sent),
        other => Err(PerfError::Unexpected { text: other.to_string() }),
    }
}

/// Takes SENDs, and posts RECVs for those to come, until the client is done.
fn receive(rig: &Rig, listener: &Listener) -> Result<u64, PerfError> {
    let chain = RECV_CHAIN.min(rig.plan.rx_depth);
    let mut used = vec![0; rig.qps.len()];
    let mut wcs = [Wc::default(); POLL];
    let mut received = 0;
    let mut idle_since = None;
    loop {
        let count = rig.poll(&mut wcs)?;
        for index in wcs[..count].iter().filter_map(recv_of) {
            used[index] += 1;
            if used[index] == chain {
                rig.post_recvs(index, chain)?;
                used[index] = 0;
            }
        }
        received += count as u64;
        if count > 0 {
            idle_since = None;
        } else if listener.heard() && is_over(rig, &mut idle_since) {
            done(&listener.next()?)?;
            return Ok(received);
        }
    }
}

/// What was acknowledged has arrived; what was not may still be under way.
fn is_over(rig: &Rig, idle_since: &mut Option<Instant>) -> bool {
    const QUIET: Duration = Duration::from_millis(50);
    rig.is_reliable() || idle_since.get_or_insert_with(Instant::now).elapsed() >= QUIET
}
