//! The active side of a flow: operations by chance, each compared when it completes.
//!
//! A SEND or WRITE with immediate is compared where it arrives, by its number. A WRITE is read back. A READ of the read-only
//! part must find the pattern. The old value of an atomic must be what the one before left: executed once, each of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use xroce::{Cq, ImmData, Mr, Qp, QpType, RemoteMr, Rkey, SendFlags, SendOp, SendWr, Sge, WrId};

use super::{
    Failure, IMM_SALT, IMM_SLOTS, NUMBER_LEN, READ_SEED, RECVS, SEND_SALT, Seen, Shape, WRITE_SALT, call, piece, seed,
};
use crate::pattern;

/// Completions taken in one round.
const ROUND: u64 = 16;
/// UC: after so long without news all that was sent counts as lost.
const GIVE_UP: Duration = Duration::from_secs(1);

/// What a completion has to show.
#[derive(Debug, Clone, Copy)]
enum Expect {
    /// Nothing: the other end looks.
    Done,
    /// The pattern of `seed` from word `first` on, `len` bytes of it.
    Bytes { seed: u64, first: u64, len: usize },
    /// This old value.
    Word(u64),
}

/// The requests of one end.
pub struct Sender {
    qp: Arc<Qp>,
    cq: Cq,
    mr: Mr,
    shape: Shape,
    peer: RemoteMr,
    outstanding: VecDeque<Expect>,
    /// Requests posted since the connection began.
    posted: u64,
    /// Numbers given to messages that the other end sees.
    told: u64,
    /// The value of the other end's word when all that was posted is done.
    word: u64,
    chance: u64,
    /// Requests completed, over all connections.
    pub completed: u64,
    /// Bytes of completed requests.
    pub bytes: u64,
    stop_at: Option<u64>,
    seen: Option<(Seen, Instant)>,
    /// UC: numbers below are known to have arrived, or given up.
    settled: u64,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counters = self.qp.counters();
        f.debug_struct("Sender")
            .field("qp", &self.qp)
            .field("completed", &self.completed)
            .field("outstanding", &self.outstanding)
            .field("counters", &counters)
            .finish_non_exhaustive()
    }
}

impl Sender {
    pub(super) fn new(qp: Arc<Qp>, cq: Cq, mr: Mr, shape: Shape) -> Sender {
        let chance = u64::from(qp.qpn().value()) << 8 | 1;
        Sender {
            qp,
            cq,
            mr,
            shape,
            peer: RemoteMr { addr: 0, rkey: Rkey(0), len: 0 },
            outstanding: VecDeque::with_capacity(shape.depth),
            posted: 0,
            told: 0,
            word: 0,
            chance,
            completed: 0,
            bytes: 0,
            stop_at: None,
            seen: None,
            settled: 0,
            scratch: vec![0; shape.max_len],
        }
    }

    /// For a new peer.
    pub(super) fn begin(&mut self) {
        // What is left of the connection before.
        let _ = self.cq.drain().count();
        self.outstanding.clear();
        (self.posted, self.told, self.word, self.settled) = (0, 0, 0, 0);
        (self.seen, self.stop_at) = (None, None);
    }

    pub(super) fn aim(&mut self, peer: RemoteMr) {
        self.peer = peer;
    }

    pub(super) fn watch(&mut self, seen: Seen) {
        self.seen = Some((seen, Instant::now()));
    }

    /// Posts no more than `messages` from now on.
    pub fn stop_after(&mut self, messages: u64) {
        self.stop_at = Some(self.posted + messages);
    }

    /// Posts for ever again.
    pub fn go_on(&mut self) {
        self.stop_at = None;
    }

    /// All that it was to post has completed.
    pub fn is_done(&self) -> bool {
        self.outstanding.is_empty() && self.stop_at.is_some_and(|at| self.posted >= at)
    }

    /// Requests that have not completed.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Takes completions and posts more; how many completed.
    ///
    /// # Errors
    /// A request that failed, or an answer that is wrong.
    pub fn step(&mut self) -> Result<u64, Failure> {
        let mut done = 0;
        while done < ROUND
            && let Some(wc) = self.cq.poll_one().map_err(call)?
        {
            if !wc.status.is_success() {
                return Err(Failure::Completion(wc));
            }
            let number = self.posted - self.outstanding.len() as u64;
            let expect = self.outstanding.pop_front();
            let (Some(expect), true) = (expect, wc.wr_id.0 == number) else {
                return Err(Failure::Contents(format!("request {} completed where {number} was due", wc.wr_id.0)));
            };
            self.check(number, expect)?;
            self.bytes += u64::from(wc.byte_len);
            done += 1;
        }
        self.completed += done;
        for _ in 0..ROUND {
            if !self.may_post() {
                break;
            }
            self.post_next()?;
        }
        Ok(done)
    }

    /// How many completions are left, whatever they say: after a failure.
    pub fn drain(&mut self) -> u64 {
        let left = self.cq.drain().count() as u64;
        self.outstanding.clear();
        left
    }

    fn check(&mut self, number: u64, expect: Expect) -> Result<(), Failure> {
        let at = self.staging(number);
        match expect {
            Expect::Done => Ok(()),
            Expect::Bytes { seed, first, len } => {
                let bytes = &mut self.scratch[..len];
                self.mr.read_at(at, bytes).map_err(call)?;
                match pattern::differs(seed, first, bytes) {
                    None => Ok(()),
                    Some(i) => Err(Failure::Contents(format!("READ {number} of {len} bytes: byte {i} is wrong"))),
                }
            }
            Expect::Word(old) => {
                let mut word = [0; 8];
                self.mr.read_at(at, &mut word).map_err(call)?;
                let found = u64::from_ne_bytes(word);
                if found == old {
                    return Ok(());
                }
                Err(Failure::Contents(format!("atomic {number} found {found:#x} where {old:#x} was due")))
            }
        }
    }

    fn may_post(&mut self) -> bool {
        // A WRITE is followed by the READ that looks after it.
        let room = self.outstanding.len() + 2 <= self.shape.depth;
        room && self.stop_at.is_none_or(|at| self.posted < at) && self.is_heard()
    }

    /// UC: the other end keeps up.
    fn is_heard(&mut self) -> bool {
        if self.shape.kind == QpType::Rc {
            return true;
        }
        let Some((seen, since)) = &mut self.seen else { return true };
        let known = seen.load(Ordering::Acquire).max(self.settled);
        if known != self.settled || self.told == known {
            (self.settled, *since) = (known, Instant::now());
        } else if since.elapsed() > GIVE_UP {
            (self.settled, *since) = (self.told, Instant::now());
        }
        self.told - self.settled < RECVS as u64 / 2
    }

    fn staging(&self, number: u64) -> usize {
        (number as usize % self.shape.depth) * self.shape.max_len
    }

    /// A length by chance: short ones, and any.
    fn length(&mut self, min: usize) -> usize {
        let roll = pattern::draw(&mut self.chance) as usize;
        let most = if roll.is_multiple_of(4) { 64 } else { self.shape.max_len };
        min + (roll >> 3) % (most - min + 1)
    }

    fn post_next(&mut self) -> Result<(), Failure> {
        let choice = pattern::draw(&mut self.chance) % 8;
        if self.shape.kind == QpType::Uc {
            return match choice {
                0..3 => self.send(false),
                3..5 => self.send(true),
                // Without news from the receiver a later message could be written over one that was not looked at yet.
                5..8 if self.seen.is_some() => self.write_imm(),
                _ => self.send(true),
            };
        }
        match choice {
            0 => self.send(false),
            1 => self.send(true),
            2 => self.write_imm(),
            3..5 => self.write_and_look(),
            5 => self.read(),
            6 => self.fetch_add(),
            _ => self.cmp_swap(),
        }
    }

    fn send(&mut self, with_imm: bool) -> Result<(), Failure> {
        let len = self.length(NUMBER_LEN);
        let mut bytes = vec![0; len];
        bytes[..NUMBER_LEN].copy_from_slice(&self.told.to_le_bytes());
        pattern::fill(seed(SEND_SALT, self.told), 0, &mut bytes[NUMBER_LEN..]);
        let imm = ImmData(self.told as u32);
        self.told += 1;
        let op = if with_imm { SendOp::SendImm(imm) } else { SendOp::Send };
        self.post(op, Some(&bytes), len, Expect::Done)
    }

    fn write_imm(&mut self) -> Result<(), Failure> {
        let len = self.length(0);
        let mut bytes = vec![0; len];
        pattern::fill(seed(IMM_SALT, self.told), 0, &mut bytes);
        let slot = self.told as usize % IMM_SLOTS;
        let va = self.peer.addr + (self.shape.layout().imm + slot * self.shape.max_len) as u64;
        let op = SendOp::WriteImm { va, rkey: self.peer.rkey, imm: ImmData(self.told as u32) };
        self.told += 1;
        self.post(op, Some(&bytes), len, Expect::Done)
    }

    fn write_and_look(&mut self) -> Result<(), Failure> {
        let len = self.length(1);
        let number = self.posted;
        let mut bytes = vec![0; len];
        pattern::fill(seed(WRITE_SALT, number), 0, &mut bytes);
        let va = self.peer.addr + (self.shape.layout().writes + self.staging(number)) as u64;
        let rkey = self.peer.rkey;
        self.post(SendOp::Write { va, rkey }, Some(&bytes), len, Expect::Done)?;
        let expect = Expect::Bytes { seed: seed(WRITE_SALT, number), first: 0, len };
        self.post(SendOp::Read { va, rkey }, None, len, expect)
    }

    fn read(&mut self) -> Result<(), Failure> {
        let len = self.length(0);
        let words = ((self.shape.read_area() - self.shape.max_len) / 8) as u64;
        let first = pattern::draw(&mut self.chance) % words;
        let va = self.peer.addr + self.shape.layout().reads as u64 + 8 * first;
        let expect = Expect::Bytes { seed: READ_SEED, first, len };
        self.post(SendOp::Read { va, rkey: self.peer.rkey }, None, len, expect)
    }

    fn fetch_add(&mut self) -> Result<(), Failure> {
        let add = pattern::draw(&mut self.chance);
        let old = self.word;
        self.word = old.wrapping_add(add);
        let (va, rkey) = self.word_place();
        self.post(SendOp::FetchAdd { va, rkey, add }, None, 8, Expect::Word(old))
    }

    fn cmp_swap(&mut self) -> Result<(), Failure> {
        let old = self.word;
        self.word = pattern::draw(&mut self.chance);
        let (va, rkey) = self.word_place();
        self.post(SendOp::CmpSwap { va, rkey, compare: old, swap: self.word }, None, 8, Expect::Word(old))
    }

    fn word_place(&self) -> (u64, Rkey) {
        (self.peer.addr + self.shape.layout().word as u64, self.peer.rkey)
    }

    fn post(&mut self, op: SendOp, bytes: Option<&[u8]>, len: usize, expect: Expect) -> Result<(), Failure> {
        let at = self.staging(self.posted);
        if let Some(bytes) = bytes {
            self.mr.write_at(at, bytes).map_err(call)?;
        }
        let sges: [Sge; 1] = [piece(&self.mr, at, len)?];
        let wr = SendWr { wr_id: WrId(self.posted), op, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] };
        self.qp.post_send(&wr).map_err(call)?;
        self.posted += 1;
        self.outstanding.push_back(expect);
        Ok(())
    }
}
