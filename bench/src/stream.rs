//! WRITEs from one end of a [`pair`](crate::pair) to the other, both driven by this thread.
//!
//! In: what each request reads and writes, a depth. Out: messages done.

use xroce::{RemoteMr, SendFlags, SendOp, SendWr, Sge, Wc, WrId};

use crate::pair::{End, Result};

/// Requests outstanding over all queue pairs, so that bursts are as long with one as with thousands.
const OUTSTANDING: u32 = 64;

/// Keeps the queue pairs of `a` busy with WRITEs into `b`, one queue pair after the other.
pub struct Stream<'a> {
    a: &'a End,
    b: &'a End,
    /// What requests read and write, one after the other.
    places: Vec<(Sge, RemoteMr)>,
    depth: u32,
    /// Requests outstanding, by queue pair.
    outstanding: Vec<u32>,
    total: u32,
    turn: usize,
    place: usize,
    wcs: [Wc; 64],
}

impl<'a> Stream<'a> {
    /// Messages of `size` bytes from and to the ends' own memory, at most `depth` at a time on each queue pair.
    ///
    /// # Errors
    /// When that memory is smaller.
    pub fn new(a: &'a End, b: &'a End, size: u32, depth: u32) -> Result<Stream<'a>> {
        Ok(Stream::over(a, b, vec![(a.mr.sge(0..size as usize)?, b.mr.remote())], depth))
    }

    /// The same over many pieces of memory, of which each request takes the next.
    pub fn over(a: &'a End, b: &'a End, places: Vec<(Sge, RemoteMr)>, depth: u32) -> Stream<'a> {
        let outstanding = vec![0; a.qps.len()];
        Stream { a, b, places, depth, outstanding, total: 0, turn: 0, place: 0, wcs: [Wc::default(); 64] }
    }

    /// Carries out `messages` more, and waits for the last one.
    ///
    /// # Errors
    /// A request that is refused or fails.
    pub fn run(&mut self, messages: u64) -> Result<()> {
        let (mut posted, mut done) = (0, 0);
        while done < messages {
            let mut full = 0;
            while posted < messages && self.total < OUTSTANDING && full < self.outstanding.len() {
                if self.post()? {
                    (posted, full) = (posted + 1, 0);
                } else {
                    full += 1;
                }
            }
            done += self.step()?;
        }
        Ok(())
    }

    /// Packets that `a` has sent and received so far.
    ///
    /// # Errors
    /// When the device is broken.
    pub fn packets(&self) -> Result<u64> {
        let counters = self.a.context.counters()?;
        Ok(counters.iter().map(|(_, _, endpoint)| endpoint.packets_in + endpoint.packets_out).sum())
    }

    /// Posts to the queue pair whose turn it is, unless it has enough to do.
    fn post(&mut self) -> Result<bool> {
        let index = self.turn;
        self.turn = if index + 1 == self.outstanding.len() { 0 } else { index + 1 };
        if self.outstanding[index] == self.depth {
            return Ok(false);
        }
        let (sge, remote) = &self.places[self.place];
        self.place = if self.place + 1 == self.places.len() { 0 } else { self.place + 1 };
        let op = SendOp::Write { va: remote.addr, rkey: remote.rkey };
        let (wr_id, sges) = (WrId(index as u64), std::slice::from_ref(sge));
        self.a.qps[index].post_send(&SendWr { wr_id, op, flags: SendFlags::SIGNALED, sges, inline: &[] })?;
        self.outstanding[index] += 1;
        self.total += 1;
        Ok(true)
    }

    /// One step at both ends; how many messages were done by it.
    fn step(&mut self) -> Result<u64> {
        self.b.context.drive();
        let count = self.a.cq.poll(&mut self.wcs)?;
        for wc in &self.wcs[..count] {
            if !wc.status.is_success() {
                return Err(format!("QP {}: {}", wc.qpn, wc.status).into());
            }
            self.outstanding[wc.wr_id.0 as usize] -= 1;
            self.total -= 1;
        }
        Ok(count as u64)
    }
}
