//! The keeper's side of a mirrored volume: memory that the owner WRITES into, and the log by which it is compared.
//!
//! The keeper's program sees no WRITE. It hears of new versions from the log, looks into its memory, and asks for what is old or
//! torn. In: messages of the owner. Out: messages to it.

use std::collections::VecDeque;

use xroce::{Access, Mr, Pd, RemoteMr};

use crate::Failure;
use crate::block::{BlockId, Tag, build, tag_of};
use crate::channel::Channel;
use crate::log::Log;
use crate::message::{Body, MOST_RESENDS, Record};

/// The keeper of a copy.
pub struct Keeper {
    me: u32,
    owner: u32,
    /// Bytes of a block.
    size: usize,
    copy: Mr,
    /// What the log says of each block.
    tags: Vec<Tag>,
    /// Blocks that were written in this round and not yet seen whole.
    pending: Vec<u32>,
    log: Log,
    answers: VecDeque<Body>,
    closed: bool,
    /// Blocks that were asked for again.
    pub asked: u64,
}

impl Keeper {
    /// Memory for `blocks` blocks of `size` bytes of node `owner`.
    pub fn new((me, owner): (u32, u32), pd: &Pd, blocks: u32, size: usize) -> Result<Keeper, Failure> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Keeper {
            me,
            owner,
            size,
            copy: pd.reg_mr(vec![0; blocks as usize * size], access)?,
            tags: vec![Tag::default(); blocks as usize],
            pending: Vec::new(),
            log: Log::default(),
            answers: VecDeque::new(),
            closed: false,
            asked: 0,
        })
    }

    /// What the owner must know to write.
    pub fn remote(&self) -> RemoteMr {
        self.copy.remote()
    }

    /// Whether the last answer has been given.
    pub fn is_done(&self) -> bool {
        self.closed && self.answers.is_empty()
    }

    /// Records that came.
    pub fn records(&self) -> u64 {
        self.log.records()
    }

    /// There will be a new connection, over which the owner asks again: older answers would be none.
    pub fn renew(&mut self) {
        self.answers.clear();
    }

    /// Where it stands, for an error.
    pub fn standing(&self) -> String {
        format!(
            "keeper {} of {}: {} records, {} blocks to compare",
            self.me,
            self.owner,
            self.log.records(),
            self.pending.len()
        )
    }

    /// Gives the next answer, if the channel takes it; whether it did.
    pub fn step(&mut self, channel: &mut Channel) -> Result<bool, Failure> {
        let Some(answer) = self.answers.front() else { return Ok(false) };
        let sent = channel.try_send(answer.clone())?;
        if sent {
            self.answers.pop_front();
        }
        Ok(sent)
    }

    /// A record of the log has come. Records are sent over RC: one that is missing or comes twice is a fault of the transport.
    pub fn record(&mut self, record: Record) -> Result<(), Failure> {
        let due = self.log.records();
        if record.sequence != due {
            let owner = self.owner;
            return Err(format!("record {} of node {owner} came where {due} was due", record.sequence).into());
        }
        *self.tags.get_mut(record.block as usize).ok_or("a record of a block that there is not")? = record.tag;
        self.log.add(&record);
        self.pending.push(record.block);
        Ok(())
    }

    /// The owner has sent everything: compares, and answers with what is missing.
    pub fn compare(&mut self) -> Result<(), Failure> {
        let mut bytes = vec![0; self.size];
        let mut missing = Vec::new();
        for &block in &self.pending {
            self.copy.read_at(block as usize * self.size, &mut bytes)?;
            if tag_of(&bytes) != Some(self.tags[block as usize]) {
                missing.push(block);
            }
        }
        let answer = if missing.is_empty() {
            Body::RoundOk
        } else {
            let blocks = missing[..missing.len().min(MOST_RESENDS)].to_vec();
            self.asked += blocks.len() as u64;
            Body::Resend { blocks }
        };
        self.pending = missing;
        self.answers.push_back(answer);
        Ok(())
    }

    /// Changes a byte of the copy, as a failing disk would.
    pub fn rot(&mut self) -> Result<(), Failure> {
        let mut byte = [0];
        self.copy.read_at(self.size - 1, &mut byte)?;
        Ok(self.copy.write_at(self.size - 1, &[!byte[0]])?)
    }

    /// Loses the log.
    pub fn forget(&mut self) {
        self.log = Log::default();
    }

    /// The owner is done: compares every byte with what it must be.
    pub fn verify(&mut self) -> Result<(), Failure> {
        let (mut here, mut due) = (vec![0; self.size], vec![0; self.size]);
        let mut equal = 0;
        for (number, tag) in self.tags.iter().enumerate() {
            self.copy.read_at(number * self.size, &mut here)?;
            let id = BlockId { owner: self.owner, keeper: self.me, number: number as u32 };
            build(id, tag.version, &mut due);
            equal += u32::from(here == due);
        }
        self.answers.push_back(Body::Verified { blocks: equal, records: self.log.records(), log: self.log.checksum() });
        self.closed = true;
        Ok(())
    }
}
