//! The passive side of a flow. In: completions of RECVs. Out: the same RECVs again, once what arrived was compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use xroce::{Cq, Mr, Qp, QpType, RecvWr, Wc, WcOpcode, WrId};

use super::{Failure, IMM_SALT, IMM_SLOTS, NUMBER_LEN, READ_SEED, RECVS, SEND_SALT, Seen, Shape, call, piece, seed};
use crate::pattern;

/// The requests of the other end, as far as they can be seen here: SENDs and WRITEs with immediate.
#[derive(Debug)]
pub struct Receiver {
    qp: Arc<Qp>,
    cq: Cq,
    mr: Mr,
    shape: Shape,
    /// Messages that arrived and were right.
    pub arrived: u64,
    /// UC: messages that were lost, as the numbers tell.
    pub lost: u64,
    next: u64,
    /// UC: which of the 64 numbers before `next` have arrived, the newest in bit 0.
    before: u64,
    seen: Seen,
    scratch: Vec<u8>,
}

impl Receiver {
    pub(super) fn new(qp: Arc<Qp>, cq: Cq, mr: Mr, shape: Shape) -> Receiver {
        let scratch = vec![0; shape.read_area()];
        Receiver {
            qp,
            cq,
            mr,
            shape,
            arrived: 0,
            lost: 0,
            next: 0,
            before: 0,
            seen: Arc::new(AtomicU64::new(0)),
            scratch,
        }
    }

    /// Posts the RECVs and lays out the memory for a peer that begins at number 0.
    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        // What is left of the connection before.
        let _ = self.cq.drain().count();
        (self.next, self.before) = (0, u64::MAX);
        self.seen.store(0, Ordering::Release);
        let layout = self.shape.layout();
        let mut area = vec![0; self.shape.read_area()];
        pattern::fill(READ_SEED, 0, &mut area);
        self.mr.write_at(layout.reads, &area).map_err(call)?;
        self.mr.write_at(layout.word, &[0; 8]).map_err(call)?;
        (0..RECVS).try_for_each(|slot| self.post(slot))
    }

    /// What the peer reads and writes.
    pub fn memory(&self) -> &Mr {
        &self.mr
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.clone()
    }

    fn post(&self, slot: usize) -> Result<(), Failure> {
        let sges = [piece(&self.mr, slot * self.shape.max_len, self.shape.max_len)?];
        self.qp.post_recv(&RecvWr { wr_id: WrId(slot as u64), sges: &sges }).map_err(call)
    }

    /// Takes what has arrived; how many messages.
    ///
    /// # Errors
    /// A RECV that failed, or the first byte that is wrong.
    pub fn step(&mut self) -> Result<u64, Failure> {
        let mut arrived = 0;
        while let Some(wc) = self.cq.poll_one().map_err(call)? {
            if !wc.status.is_success() {
                return Err(Failure::Completion(wc));
            }
            self.check(&wc)?;
            self.post(wc.wr_id.0 as usize)?;
            arrived += 1;
            if arrived == RECVS as u64 {
                break;
            }
        }
        self.arrived += arrived;
        Ok(arrived)
    }

    fn check(&mut self, wc: &Wc) -> Result<(), Failure> {
        let len = wc.byte_len as usize;
        if len > self.shape.max_len {
            return Err(Failure::Contents(format!("{len} bytes arrived, {} are the most", self.shape.max_len)));
        }
        let slot = wc.wr_id.0 as usize;
        let by_imm = wc.imm_data().map(|imm| self.number_of(imm.0));
        let number = if wc.opcode == WcOpcode::RecvRdmaWithImm {
            let number = by_imm.ok_or_else(|| Failure::Contents(format!("no immediate data in {wc:?}")))?;
            let at = self.shape.layout().imm + (number as usize % IMM_SLOTS) * self.shape.max_len;
            self.compare(at, len, seed(IMM_SALT, number), "WRITE with immediate")?;
            number
        } else {
            let at = slot * self.shape.max_len;
            let mut number = [0; NUMBER_LEN];
            self.mr.read_at(at, &mut number).map_err(call)?;
            let number = u64::from_le_bytes(number);
            if by_imm.is_some_and(|by_imm| by_imm != number) {
                return Err(Failure::Contents(format!("SEND {number} carries the immediate data of {by_imm:?}")));
            }
            self.compare(at + NUMBER_LEN, len - NUMBER_LEN, seed(SEND_SALT, number), "SEND")?;
            number
        };
        self.in_order(number)
    }

    /// The number whose low half is `imm`, nearest to the one expected.
    fn number_of(&self, imm: u32) -> u64 {
        self.next.wrapping_add_signed(i64::from(imm.wrapping_sub(self.next as u32) as i32))
    }

    /// RC: the next one. UC: any but one that was there before, as a message of one packet may be overtaken on the wire.
    fn in_order(&mut self, number: u64) -> Result<(), Failure> {
        let ahead = number.wrapping_sub(self.next) as i64;
        let late = 1u64.checked_shl(!ahead as u32).unwrap_or(0);
        match self.shape.kind {
            QpType::Uc if ahead < 0 && late & !self.before != 0 => {
                self.before |= late;
                self.lost -= 1;
                return Ok(());
            }
            QpType::Uc if ahead >= 0 => {}
            QpType::Rc if ahead == 0 => {}
            _ => return Err(Failure::Contents(format!("message {number} arrived where {} was due", self.next))),
        }
        self.before = self.before.checked_shl(ahead as u32 + 1).unwrap_or(0) | 1;
        self.lost += ahead as u64;
        self.next = number + 1;
        self.seen.store(self.next, Ordering::Release);
        Ok(())
    }

    fn compare(&mut self, at: usize, len: usize, seed: u64, what: &str) -> Result<(), Failure> {
        let bytes = &mut self.scratch[..len];
        self.mr.read_at(at, bytes).map_err(call)?;
        match pattern::differs(seed, 0, bytes) {
            None => Ok(()),
            Some(i) => Err(Failure::Contents(format!("{what} of {len} bytes, due {}: byte {i} is wrong", self.next))),
        }
    }
}
