//! The owner's side of a mirrored volume: writes blocks, logs each write, sends again what the keeper lacks.
//!
//! A round: every block gets a new version; each is WRITTEN into the keeper's memory over the data queue pair, and a record of it
//! goes over the metadata channel. When all WRITEs have completed (on UC: have left), the keeper is asked to compare.
//! What it lacks is written again, until it says that nothing is missing; then in WRITEs of one packet each. A lost packet takes the
//! rest of its message along on UC: at 30 % loss a message of 16 packets comes through once in 300 times.

use std::ops::Range;

use xroce::{Access, Mr, Pd, Qp, RemoteMr, SendFlags, SendOp, SendWr, WrId};

use crate::Failure;
use crate::block::{BlockId, Tag, build};
use crate::channel::Channel;
use crate::log::Log;
use crate::message::{Body, Record};
use crate::plan::Plan;
use crate::work::Work;

/// Turns in which nothing new arrived, after which an owner gives up: something is wrong that resending does not mend.
const MOST_TURNS: u32 = 200;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Blocks of `todo` are going out.
    Sending,
    /// WRITEs are outstanding; then the keeper is asked.
    Draining,
    /// The keeper compares.
    Asked,
    /// All rounds are over; the keeper is to compare everything.
    Closing,
    /// It does.
    Closed,
    /// It has.
    Verified,
}

/// What an owner did.
#[derive(Clone, Copy, Default, Debug)]
pub struct OwnerCounts {
    /// Blocks written, each counted once a round.
    pub blocks: u64,
    /// Blocks written again.
    pub resent: u64,
    /// Blocks that the keeper found equal at the end.
    pub verified_blocks: u64,
    /// Records that the keeper got in order.
    pub verified_records: u64,
}

/// The owner of a volume, towards one keeper.
pub struct Owner {
    me: u32,
    keeper: u32,
    /// Bytes of a block.
    size: usize,
    volume: Mr,
    tags: Vec<Tag>,
    /// Where the keeper's memory is; known when there is a connection.
    copy: Option<RemoteMr>,
    phase: Phase,
    round: u32,
    rounds: u32,
    /// Turns since one block fewer was missing.
    turns: u32,
    todo: Vec<u32>,
    next: usize,
    /// Bytes of block `next` that have gone.
    offset: usize,
    /// Bytes of a WRITE that repeats: one packet's, so that each that arrives stays, whatever is lost beside it.
    piece: usize,
    /// The round's first turn: what is sent is logged too.
    logging: bool,
    outstanding: u32,
    depth: u32,
    log: Log,
    /// What it did.
    pub counts: OwnerCounts,
}

impl Owner {
    /// The owner of a volume with a copy at node `keeper`. It begins when it has heard where: [`resume`](Owner::resume).
    pub fn new((me, keeper): (u32, u32), pd: &Pd, plan: &Plan, depth: u32) -> Result<Owner, Failure> {
        let (blocks, size) = (plan.blocks, plan.block_size as usize);
        let mut owner = Owner {
            me,
            keeper,
            size,
            volume: pd.reg_mr(vec![0; blocks as usize * size], Access::empty())?,
            tags: vec![Tag::default(); blocks as usize],
            copy: None,
            phase: Phase::Sending,
            round: 0,
            rounds: plan.rounds,
            turns: 0,
            todo: Vec::new(),
            next: 0,
            offset: 0,
            piece: size,
            logging: true,
            outstanding: 0,
            depth,
            log: Log::default(),
            counts: OwnerCounts::default(),
        };
        owner.begin_round()?;
        Ok(owner)
    }

    /// Whether the keeper has confirmed everything.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Verified
    }

    /// Where it stands, for an error.
    pub fn standing(&self) -> String {
        format!("owner {} to {}: round {} of {}, {:?}", self.me, self.keeper, self.round, self.rounds, self.phase)
    }

    fn begin_round(&mut self) -> Result<(), Failure> {
        self.round += 1;
        self.turns = 0;
        let mut bytes = vec![0; self.size];
        for (number, tag) in self.tags.iter_mut().enumerate() {
            let id = BlockId { owner: self.me, keeper: self.keeper, number: number as u32 };
            *tag = build(id, tag.version + 1, &mut bytes);
            self.volume.write_at(number * self.size, &bytes)?;
        }
        self.send_again((0..self.tags.len() as u32).collect(), true);
        Ok(())
    }

    fn send_again(&mut self, todo: Vec<u32>, logging: bool) {
        (self.todo, self.next, self.offset, self.logging, self.phase) = (todo, 0, 0, logging, Phase::Sending);
    }

    /// Records of all rounds before this one.
    fn before_round(&self) -> u64 {
        u64::from(self.round - 1) * self.tags.len() as u64
    }

    /// There is a connection, the first or a new one: the keeper has its copy there and so many records. Goes on from these, and
    /// asks again for what may have been asked or answered before. Blocks that were on the way the comparison finds.
    /// `path_mtu` is the payload of a packet, in bytes.
    pub fn resume(&mut self, copy: RemoteMr, records: u64, path_mtu: usize) -> Result<(), Failure> {
        (self.copy, self.outstanding, self.piece) = (Some(copy), 0, path_mtu);
        let next = records.checked_sub(self.before_round()).and_then(|next| usize::try_from(next).ok());
        match (self.phase, next.filter(|&next| next <= self.tags.len())) {
            // A keeper that forgot its log is found out by the last comparison.
            (Phase::Verified, _) => {}
            (Phase::Closing | Phase::Closed, _) => self.phase = Phase::Closing,
            (_, Some(next)) => {
                self.send_again((0..self.tags.len() as u32).collect(), true);
                self.next = next;
            }
            (_, None) => {
                let keeper = self.keeper;
                return Err(format!("node {keeper} claims to have {records} records: {}", self.standing()).into());
            }
        }
        Ok(())
    }

    /// Does what can be done now; whether that was anything.
    pub fn step(&mut self, data: &Qp, channel: &mut Channel) -> Result<bool, Failure> {
        match self.phase {
            Phase::Sending => self.send_blocks(data, channel),
            Phase::Draining if self.outstanding == 0 => {
                let asked = channel.try_send(Body::RoundEnd { round: self.round })?;
                self.phase = if asked { Phase::Asked } else { self.phase };
                Ok(asked)
            }
            Phase::Closing => {
                let sent = channel.try_send(Body::Done)?;
                self.phase = if sent { Phase::Closed } else { self.phase };
                Ok(sent)
            }
            Phase::Draining | Phase::Asked | Phase::Closed | Phase::Verified => Ok(false),
        }
    }

    fn send_blocks(&mut self, data: &Qp, channel: &mut Channel) -> Result<bool, Failure> {
        let before = (self.next, self.offset);
        let piece = if self.logging { self.size } else { self.piece };
        while self.outstanding < self.depth && self.next < self.todo.len() {
            let block = self.todo[self.next];
            if self.logging {
                let sequence = self.before_round() + self.next as u64;
                let record = Record { sequence, block, tag: self.tags[block as usize] };
                if !channel.try_send(Body::Record(record))? {
                    break;
                }
                // A record that a lost connection may have taken with it was logged when it was first sent.
                if record.sequence == self.log.records() {
                    self.log.add(&record);
                    self.counts.blocks += 1;
                } else {
                    self.counts.resent += 1;
                }
            } else if self.offset == 0 {
                self.counts.resent += 1;
            }
            let end = self.size.min(self.offset + piece);
            self.write(data, block, self.offset..end)?;
            (self.next, self.offset) = if end == self.size { (self.next + 1, 0) } else { (self.next, end) };
        }
        if self.next == self.todo.len() {
            self.phase = Phase::Draining;
        }
        Ok((self.next, self.offset) != before)
    }

    fn write(&mut self, data: &Qp, block: u32, part: Range<usize>) -> Result<(), Failure> {
        let start = block as usize * self.size;
        let at = start + part.start..start + part.end;
        let copy = self.copy.as_ref().ok_or("a WRITE before there is a connection")?;
        data.post_send(&SendWr {
            wr_id: WrId(Work::Block { peer: self.keeper, block }.id()),
            op: SendOp::Write { va: copy.addr + at.start as u64, rkey: copy.rkey },
            flags: SendFlags::SIGNALED,
            sges: &[self.volume.sge(at)?],
            inline: &[],
        })?;
        self.outstanding += 1;
        Ok(())
    }

    /// A WRITE has completed: over RC the block has arrived, over UC it has left.
    pub fn written(&mut self) {
        self.outstanding -= 1;
    }

    /// The keeper has compared the round.
    pub fn answered(&mut self, missing: Option<Vec<u32>>) -> Result<(), Failure> {
        if self.phase != Phase::Asked {
            return Err(format!("an answer that nobody asked for ({})", self.standing()).into());
        }
        match missing {
            Some(blocks) => {
                self.turns = if blocks.len() < self.todo.len() { 0 } else { self.turns + 1 };
                if self.turns == MOST_TURNS {
                    let keeper = self.keeper;
                    return Err(
                        format!("{} blocks do not reach node {keeper}: {}", blocks.len(), self.standing()).into()
                    );
                }
                self.send_again(blocks, false);
                Ok(())
            }
            None if self.round < self.rounds => self.begin_round(),
            None => {
                self.phase = Phase::Closing;
                Ok(())
            }
        }
    }

    /// Records logged.
    pub fn records(&self) -> u64 {
        self.log.records()
    }

    /// The keeper has compared everything: so many blocks are equal, so many records came, with this checksum over all of them.
    pub fn verified(&mut self, blocks: u32, records: u64, log: u32) -> Result<(), Failure> {
        self.counts.verified_blocks = blocks.into();
        self.counts.verified_records = records;
        self.phase = Phase::Verified;
        let keeper = self.keeper;
        if blocks as usize != self.tags.len() {
            return Err(
                format!("the copy at node {keeper} is not equal: {blocks} of {} blocks are", self.tags.len()).into()
            );
        }
        if (records, log) != (self.log.records(), self.log.checksum()) {
            return Err(format!(
                "the log at node {keeper} is not equal: {records} records with checksum {log:08x}, not {} with {:08x}",
                self.log.records(),
                self.log.checksum()
            )
            .into());
        }
        Ok(())
    }
}
