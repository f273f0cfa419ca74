//! What one end of a test is made of: queue pairs, a completion queue, and memory with a place for each queue pair.
//!
//! In: a device and a plan. Out: addresses for the other end, then connected queue pairs.

use std::cell::Cell;
use std::time::{Duration, Instant};

use xroce::{
    Access, Buffer, ConnectOptions, Context, Cq, Mr, Qp, QpCap, QpEndpoint, QpInitAttr, QpType, RecvWr, RemoteMr,
    SendFlags, SendOp, SendWr, Sge, Wc, WrId,
};

use super::PerfError;
use super::plan::{Operation, Plan};
use super::talk::{Listener, Message};
use crate::idle::Idle;

/// How long nothing may happen before a test is given up.
const STALL: Duration = Duration::from_secs(5);

/// RECVs posted at a time.
pub const RECV_CHAIN: u32 = 32;

/// Set in the number of a RECV; the rest is the index of its queue pair.
const RECV_BIT: u64 = 1 << 63;

/// One end.
pub struct Rig {
    /// What is done.
    pub plan: Plan,
    /// The device.
    pub context: Context,
    /// All completions.
    pub cq: Cq,
    /// The queue pairs.
    pub qps: Vec<Qp>,
    /// Where each may reach at the other end.
    pub peers: Vec<RemoteMr>,
    /// Whether polling drives the device.
    pub inline_progress: bool,
    idle: Cell<Idle>,
    mr: Mr,
    stride: usize,
    options: ConnectOptions,
}

impl Rig {
    /// Everything up to queue pairs in INIT with their RECVs posted.
    pub fn new(
        context: &Context,
        plan: Plan,
        options: ConnectOptions,
        inline_progress: bool,
    ) -> Result<Rig, PerfError> {
        let pd = context.alloc_pd()?;
        let stride = (plan.size as usize).max(1).next_multiple_of(64);
        // Twice: what arrives, and what is sent.
        let total = stride.checked_mul(2 * plan.qps as usize).ok_or(PerfError::TooMuchMemory)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let mr = pd.reg_mr(Buffer::zeroed(total), access)?;
        let recvs = if plan.test.operation() == Operation::Send { plan.rx_depth } else { 0 };
        let cqe = plan.qps.saturating_mul(plan.tx_depth.saturating_add(recvs));
        let cq = context.create_cq(cqe)?;
        let cap = QpCap {
            max_send_wr: plan.tx_depth,
            max_recv_wr: recvs.max(1),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: if plan.is_inline() { plan.size } else { 0 },
        };
        let init = QpInitAttr { qp_type: plan.service, send_cq: &cq, recv_cq: &cq, cap, sq_sig_all: false };
        let mut qps = Vec::new();
        for _ in 0..plan.qps {
            let qp = pd.create_qp(&init)?;
            qp.to_init(&options).map_err(PerfError::Init)?;
            qps.push(qp);
        }
        let (context, peers, idle) = (context.clone(), Vec::new(), Cell::default());
        let rig = Rig { plan, context, cq, qps, peers, inline_progress, idle, mr, stride, options };
        for index in 0..rig.qps.len() {
            rig.post_recvs(index, recvs)?;
        }
        Ok(rig)
    }

    /// Where the other end finds the queue pairs and their memory.
    pub fn places(&self) -> Result<Vec<Message>, PerfError> {
        let place = |(index, qp): (usize, &Qp)| {
            let remote = self.mr.remote();
            let addr = remote.addr + self.arrival(index) as u64;
            Ok(Message::Place(qp.endpoint(&self.options)?, RemoteMr { addr, len: self.stride as u64, ..remote }))
        };
        self.qps.iter().enumerate().map(place).collect()
    }

    /// To RTS.
    pub fn connect(&mut self, places: &[(QpEndpoint, RemoteMr)]) -> Result<(), PerfError> {
        for (qp, (remote, mr)) in self.qps.iter().zip(places) {
            qp.connect(remote, &self.options)?;
            self.peers.push(*mr);
        }
        Ok(())
    }

    /// Offset of what arrives for a queue pair.
    fn arrival(&self, index: usize) -> usize {
        2 * index * self.stride
    }

    /// Offset of what a queue pair sends.
    fn departure(&self, index: usize) -> usize {
        self.arrival(index) + self.stride
    }

    /// The piece of memory that a request of queue pair `index` names: what it sends, or where its answer goes.
    pub fn piece(&self, index: usize) -> Result<Sge, PerfError> {
        let at = self.departure(index);
        Ok(self.mr.sge(at..at + self.plan.size as usize)?)
    }

    /// What queue pair `index` does.
    pub fn operation(&self, index: usize) -> SendOp {
        let RemoteMr { addr: va, rkey, .. } = self.peers[index];
        match self.plan.test.operation() {
            Operation::Send => SendOp::Send,
            Operation::Write => SendOp::Write { va, rkey },
            Operation::Read => SendOp::Read { va, rkey },
            Operation::Atomic => SendOp::FetchAdd { va, rkey, add: 1 },
        }
    }

    /// Posts `count` RECVs to queue pair `index`.
    pub fn post_recvs(&self, index: usize, count: u32) -> Result<(), PerfError> {
        let at = self.arrival(index);
        let sges = [self.mr.sge(at..at + self.plan.size as usize)?];
        let chain = [RecvWr { wr_id: WrId(RECV_BIT | index as u64), sges: &sges }; RECV_CHAIN as usize];
        let mut left = count as usize;
        while left > 0 {
            let now = left.min(chain.len());
            self.qps[index].post_recv_chain(&chain[..now])?;
            left -= now;
        }
        Ok(())
    }

    /// The last byte that arrived for the first queue pair.
    #[inline]
    pub fn last_arrived(&self) -> Result<u8, PerfError> {
        let mut byte = [0];
        self.mr.read_at(self.arrival(0) + self.plan.size as usize - 1, &mut byte)?;
        Ok(byte[0])
    }

    /// Sets the last byte of what the first queue pair sends.
    pub fn set_last_departing(&self, byte: u8) -> Result<(), PerfError> {
        Ok(self.mr.write_at(self.departure(0) + self.plan.size as usize - 1, &[byte])?)
    }

    /// The sum of the words that the other end adds to.
    pub fn words(&self) -> Result<u64, PerfError> {
        let mut sum = 0_u64;
        for index in 0..self.qps.len() {
            let mut word = [0; 8];
            self.mr.read_at(self.arrival(index), &mut word)?;
            sum = sum.wrapping_add(u64::from_ne_bytes(word));
        }
        Ok(sum)
    }

    /// Polls; a completion that is no success is an error.
    #[inline]
    pub fn poll(&self, wcs: &mut [Wc]) -> Result<usize, PerfError> {
        let count = self.cq.poll(wcs)?;
        match wcs[..count].iter().find_map(Wc::failure) {
            Some(failure) => Err(PerfError::Completion(failure)),
            None => {
                self.note(count > 0);
                Ok(count)
            }
        }
    }

    /// Something was found, or nothing. Where others drive the device they need the CPU at once.
    #[inline]
    fn note(&self, found: bool) {
        let mut idle = self.idle.get();
        match (found, self.inline_progress) {
            (true, _) => idle.found(),
            (false, true) => idle.nothing(),
            (false, false) => std::thread::yield_now(),
        }
        self.idle.set(idle);
    }

    /// A request of queue pair `index` that makes a completion with this number.
    pub fn request<'a>(&self, index: usize, wr_id: u64, sges: &'a [Sge], inline: &'a [&'a [u8]]) -> SendWr<'a> {
        let (sges, inline, flags) = match inline {
            [] => (sges, inline, SendFlags::empty()),
            _ => (&sges[..0], inline, SendFlags::INLINE),
        };
        SendWr { wr_id: WrId(wr_id), op: self.operation(index), flags: flags | SendFlags::SIGNALED, sges, inline }
    }

    /// Waits for what the other end says, keeping the device going.
    pub fn await_message(&self, listener: &Listener) -> Result<Message, PerfError> {
        while self.inline_progress && !listener.heard() {
            let found = self.context.drive();
            self.note(found);
        }
        Ok(listener.next()?)
    }

    /// Request packets that this end has sent again.
    pub fn resent(&self) -> u64 {
        self.qps.iter().filter_map(|qp| qp.counters().ok()).map(|counters| counters.resent_pkts).sum()
    }

    /// Whether acknowledgements tell that all has arrived.
    pub fn is_reliable(&self) -> bool {
        self.plan.service == QpType::Rc
    }
}

/// The index of the queue pair that a RECV belonged to; None for other completions.
#[inline]
pub fn recv_of(wc: &Wc) -> Option<usize> {
    (wc.wr_id.0 & RECV_BIT != 0).then_some((wc.wr_id.0 & !RECV_BIT) as usize)
}

/// Ends a test in which nothing happens any more.
#[derive(Debug, Default)]
pub struct Patience {
    idle: u32,
    since: Option<Instant>,
}

impl Patience {
    /// Something happened.
    #[inline]
    pub fn reset(&mut self) {
        *self = Patience::default();
    }

    /// Nothing happened. Looks at the clock now and then, and whether the other end has given up.
    #[inline]
    pub fn idle(&mut self, rig: &Rig, listener: &Listener) -> Result<(), PerfError> {
        self.idle += 1;
        if self.idle.is_multiple_of(1024) { self.look(rig, listener) } else { Ok(()) }
    }

    #[cold]
    fn look(&mut self, rig: &Rig, listener: &Listener) -> Result<(), PerfError> {
        if listener.heard() {
            return Err(PerfError::Unexpected { text: listener.next()?.to_string() });
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < STALL {
            return Ok(());
        }
        Err(PerfError::Stalled { seconds: STALL.as_secs(), unreliable: !rig.is_reliable() })
    }
}
