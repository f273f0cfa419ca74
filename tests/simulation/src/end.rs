//! One end of a connection: a queue pair and the application that owns it.
//!
//! In: its plan. Out: where its bytes lie, which are registered under which key, and what each of them must hold.

use core::ops::Range;
use std::collections::VecDeque;

use xroce_transport::memory::{self, Access};
use xroce_transport::qp::QpHandle;
use xroce_transport::qp::state::QpState;
use xroce_wire::Lkey;

use crate::buffer::{Buffer, message};
use crate::generate::OWN_WORDS;
use crate::model::{Check, Rule, broken};
use crate::node::Node;
use crate::plan::{Area, ConnPlan, EndId, EndPlan, Flaw, Plan, Rereg, Verb};

/// Bytes around every area that nobody may write.
const GUARD: usize = 64;
/// Bytes between pieces inside an area that nobody may write either.
pub(crate) const GAP: usize = 16;
/// Id of the pattern that READs find.
const STOCK: u64 = 0x57_0C4B;
/// `wr_id`s of RECVs have this bit.
pub(crate) const RECV_ID: u64 = 1 << 63;

/// Where things lie in an end's memory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Sources of messages, places for answers.
    pub(crate) local: Range<usize>,
    /// RECV buffers.
    pub(crate) recv: Range<usize>,
    /// Own words, target, stock.
    pub(crate) remote: Range<usize>,
    /// Offset of the stock in `remote`.
    pub(crate) stock: usize,
    pub(crate) len: usize,
}

/// What a piece of local memory holds.
pub(crate) enum Use {
    /// The message of a request.
    Source { id: u64 },
    /// What a READ or atomic brought, once it is done.
    Answer(Option<Vec<u8>>),
}

/// What is left of a registration.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Grant {
    /// It has no rights.
    pub(crate) bare: bool,
    /// It belongs to the other domain.
    pub(crate) abroad: bool,
}

/// The rights of an area.
fn rights(area: Area) -> Access {
    match area {
        Area::Local | Area::Recv => Access::LOCAL_WRITE,
        Area::Remote => Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
    }
}

/// A place for a RECV.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    Free,
    Posted,
    /// Holds this message (0: none).
    Holds {
        id: u64,
        len: u32,
    },
}

pub(crate) struct End {
    pub(crate) id: EndId,
    pub(crate) plan: EndPlan,
    /// Index of the peer; its own for a queue pair that is its own peer.
    pub(crate) peer: usize,
    pub(crate) handle: Option<QpHandle>,
    pub(crate) buffer: Buffer,
    pub(crate) layout: Layout,
    pub(crate) local_key: u32,
    pub(crate) recv_key: u32,
    pub(crate) remote_key: u32,
    /// Registrations that were ever taken back.
    pub(crate) rekeyed: [bool; 3],
    /// What of the registrations was taken away in place.
    pub(crate) grants: [Grant; 3],
    /// The queue pair allows the peer nothing.
    pub(crate) rights_denied: bool,
    /// That was ever so on this connection.
    pub(crate) rights_changed: bool,
    /// Steps whose requests wait to be posted.
    pub(crate) todo: VecDeque<usize>,
    pub(crate) next_local: usize,
    pub(crate) used: Vec<(usize, usize, Use)>,
    pub(crate) recvs: VecDeque<(u64, usize)>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) next_recv: u64,
    pub(crate) recv_depth: usize,
    /// Counts the connections it had.
    pub(crate) session: u32,
    /// Keys made for the peer to invalidate.
    pub(crate) inv_keys: Vec<u32>,
    /// One of them that no request names yet.
    pub(crate) spare_key: Option<u32>,
    /// The application posts nothing: it is about to connect anew.
    pub(crate) holding: bool,
    /// Unsignaled requests posted in a row.
    pub(crate) quiet: u32,
}

impl Layout {
    fn new(plan: &Plan, id: EndId, slots: usize) -> Layout {
        let conn = &plan.conns[id.conn];
        let (mut local, mut longest_read) = (0, 0);
        for (end, work) in plan.works() {
            if end == id {
                local += (work.len as usize).next_multiple_of(8) + GAP;
            }
            if end.conn == id.conn
                && let Verb::ReadStock(at) = work.verb
            {
                longest_read = longest_read.max(at + work.len);
            }
        }
        let stock = OWN_WORDS as usize * 8 + (conn.target as usize).next_multiple_of(8);
        let local = GUARD..GUARD + local.max(8);
        let recv = local.end + GUARD..local.end + GUARD + slots * stride(conn);
        let remote = recv.end + GUARD..recv.end + GUARD + stock + (longest_read as usize).max(8);
        let len = remote.end + GUARD;
        Layout { local, recv, remote, stock, len }
    }
}

/// Distance of RECV buffers.
fn stride(conn: &ConnPlan) -> usize {
    (conn.recv_len as usize).next_multiple_of(8) + GAP
}

/// First address of an area. Far apart, the same in every run.
pub(crate) fn iova(end: usize, area: Area) -> u64 {
    0x1_0000_0000 * (end as u64 + 1)
        + match area {
            Area::Local => 0x1000_0000,
            Area::Recv => 0x2000_0000,
            Area::Remote => 0x3000_0000,
        }
}

impl End {
    pub(crate) fn new(plan: &Plan, index: usize, id: EndId) -> End {
        let conn = &plan.conns[id.conn];
        let end = conn.ends[id.side].clone();
        let slots = (end.recv_depth as usize).max(4) + 1;
        let layout = Layout::new(plan, id, slots);
        let buffer = Buffer::new(layout.len);
        let mut new = End {
            id,
            peer: if conn.ends.len() == 1 { index } else { index ^ 1 },
            handle: None,
            buffer,
            local_key: 0,
            recv_key: 0,
            remote_key: 0,
            rekeyed: [false; 3],
            grants: [Grant::default(); 3],
            rights_denied: false,
            rights_changed: false,
            todo: VecDeque::new(),
            next_local: layout.local.start,
            layout,
            used: Vec::new(),
            recvs: VecDeque::new(),
            slots: vec![Slot::Free; slots],
            next_recv: RECV_ID,
            recv_depth: end.recv_depth as usize,
            session: 0,
            inv_keys: Vec::new(),
            spare_key: None,
            holding: false,
            quiet: 0,
            plan: end,
        };
        new.wipe();
        new
    }

    /// The areas as they are before anything happens.
    fn wipe(&mut self) {
        let Layout { remote, stock, .. } = &self.layout;
        self.buffer.write(remote.start, &[0; OWN_WORDS as usize * 8]);
        self.buffer.write(remote.start + stock, &message(STOCK, remote.len() - stock));
    }

    /// Fresh memory after a restart of its machine.
    pub(crate) fn reborn(&mut self) {
        self.handle = None;
        self.buffer = Buffer::new(self.layout.len);
        self.wipe();
        (self.local_key, self.recv_key, self.remote_key) = (0, 0, 0);
        self.next_local = self.layout.local.start;
        self.used.clear();
        self.recvs.clear();
        self.slots.fill(Slot::Free);
        self.inv_keys.clear();
        self.spare_key = None;
        self.grants = [Grant::default(); 3];
        self.rights_denied = false;
    }

    pub(crate) fn area(&self, area: Area) -> Range<usize> {
        match area {
            Area::Local => self.layout.local.clone(),
            Area::Recv => self.layout.recv.clone(),
            Area::Remote => self.layout.remote.clone(),
        }
    }

    pub(crate) fn key_mut(&mut self, area: Area) -> &mut u32 {
        match area {
            Area::Local => &mut self.local_key,
            Area::Recv => &mut self.recv_key,
            Area::Remote => &mut self.remote_key,
        }
    }

    /// Registers an area, taking the old registration back.
    pub(crate) fn register(&mut self, index: usize, node: &Node, area: Area) {
        let old = std::mem::take(self.key_mut(area));
        if old != 0 {
            let grace = node.memory.deregister(Lkey(old)).expect("it was registered");
            assert!(grace.done(), "no reader is at work");
        }
        self.grants[area as usize] = Grant::default();
        let key = self.buffer.register(&node.memory, node.pd, self.area(area), iova(index, area), rights(area));
        *self.key_mut(area) = key.0;
    }

    /// Changes a registration in place: what names the memory anew gives another key, all else keeps it (`ibv_rereg_mr`).
    pub(crate) fn reregister(&mut self, index: usize, node: &Node, area: Area, what: Rereg) -> Check {
        let old = *self.key_mut(area);
        let grant = &mut self.grants[area as usize];
        let mut change = memory::Rereg::default();
        match what {
            Rereg::Rights => {
                grant.bare = !grant.bare;
                change.access = Some(if grant.bare { Access::empty() } else { rights(area) });
            }
            Rereg::Domain => {
                grant.abroad = !grant.abroad;
                change.pd = Some(if grant.abroad { node.other_pd } else { node.pd });
            }
            Rereg::Translation => {
                change.translation = Some((self.buffer.region(self.area(area)), Some(iova(index, area))));
            }
        }
        let info = match node.memory.reregister(Lkey(old), change) {
            Ok((info, _)) => info,
            Err(error) => return broken(Rule::Memory, format!("end {index} cannot register {area:?} again: {error}")),
        };
        if (info.key != old) != (what == Rereg::Translation) {
            return broken(Rule::Memory, format!("{what:?} of {area:?} turns key {old:#x} into {:#x}", info.key));
        }
        *self.key_mut(area) = info.key;
        Ok(())
    }

    /// A key of a few bytes that the peer may invalidate.
    pub(crate) fn key_to_invalidate(&mut self, node: &Node) -> u32 {
        if let Some(key) = self.spare_key {
            return key;
        }
        let at = self.layout.remote.start;
        let access = Access::REMOTE_READ | Access::REMOTE_INVALIDATE;
        let key = self.buffer.register(&node.memory, node.pd, at..at + 8, 0, access).0;
        self.inv_keys.push(key);
        self.spare_key = Some(key);
        key
    }

    pub(crate) fn state(&self) -> QpState {
        self.handle.as_ref().map_or(QpState::Reset, |handle| handle.state.load())
    }

    /// Offset of a RECV buffer.
    pub(crate) fn slot_at(&self, slot: usize) -> usize {
        self.layout.recv.start + slot * (self.layout.recv.len() / self.slots.len())
    }

    /// Offset of a new piece of local memory.
    pub(crate) fn take_local(&mut self, len: usize) -> usize {
        let at = self.next_local;
        self.next_local += len.next_multiple_of(8) + GAP;
        at
    }
}

impl Plan {
    /// Every request with its end.
    pub fn works(&self) -> impl Iterator<Item = (EndId, &crate::plan::Work)> {
        self.steps.iter().filter_map(|step| match &step.act {
            crate::plan::Act::Post { end, work } => Some((*end, work)),
            _ => None,
        })
    }

    /// The longest message that may be sent to a RECV of a connection.
    pub(crate) fn longest_message(&self, conn: usize) -> u32 {
        let messages = self.works().filter(|(end, work)| end.conn == conn && work.verb.takes_recv());
        messages.filter(|(_, work)| work.flaw != Flaw::TooLong).map(|(_, work)| work.len).max().unwrap_or(0).max(8)
    }
}
