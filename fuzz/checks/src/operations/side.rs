//! One end of the link: its endpoint, its memory and what is registered of it.
//!
//! In: nothing but calls. Out: pieces of memory for requests, and the check of what is in them at the end.

use core::ops::Range;
use std::sync::Arc;
use xroce_transport::cq::Cq;
use xroce_transport::memory::{Access, Memory, MrInfo, Pd};
use xroce_transport::wr::Sge;
use xroce_transport::{Endpoint, EndpointConfig, Limits};
use xroce_wire::Gid;

use super::Setup;
use crate::arena::Arena;

/// Bytes of the longest message.
pub(crate) const LONGEST: usize = 1800;
const SOURCE_LEN: usize = 4096;

/// Where messages come from, what the peer may write, what it may read, its word for atomics, where RECVs go and where READs
/// go. Between them lie guards.
const AREAS: [(Range<usize>, u32); 6] = [
    (64..64 + SOURCE_LEN, 0),
    (4224..8320, Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).bits()),
    (8384..12480, Access::REMOTE_READ.bits()),
    (12544..12552, Access::LOCAL_WRITE.union(Access::REMOTE_ATOMIC).bits()),
    (12672..61824, Access::LOCAL_WRITE.bits()),
    (61888..94656, Access::LOCAL_WRITE.bits()),
];
pub(crate) const SOURCE: usize = 0;
pub(crate) const TARGET: usize = 1;
pub(crate) const STOCK: usize = 2;
pub(crate) const WORD: usize = 3;
pub(crate) const RECV: usize = 4;
pub(crate) const SINK: usize = 5;
const SIZE: usize = 94720;
/// What all memory but source, stock and word holds first.
pub(crate) const BLANK: u8 = 0xEE;
const IOVA: u64 = 0x10_0000;

/// Byte `at` of every source and stock.
pub(crate) fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 7).wrapping_mul(87)) as u8
}

pub(crate) struct Side {
    // Before the arena: dropped first.
    pub(crate) endpoint: Endpoint,
    pub(crate) memory: Arc<Memory>,
    pub(crate) pd: Pd,
    pub(crate) cq: Arc<Cq>,
    pub(crate) addr: Gid,
    arena: Arena,
    areas: Vec<MrInfo>,
    /// What is used of the areas for RECVs and READs; each byte once.
    used: [usize; 2],
    /// WRITEs of the peer: from its source, to this target, so long.
    writes: Vec<(usize, usize, usize)>,
    /// Bits that the peer's adds may set, and those it knows to be set.
    pub(crate) bits: (u64, u64),
}

impl Side {
    pub(crate) fn new(setup: &Setup, number: u8) -> Side {
        let memory = Arc::new(Memory::new([number.into(), 7], 64, 0));
        let pd = memory.alloc_pd().expect("a domain");
        let arena = Arena::new(SIZE, BLANK);
        let bytes: Vec<u8> = (0..SOURCE_LEN).map(pattern).collect();
        for area in [SOURCE, STOCK] {
            arena.write(AREAS[area].0.start, &bytes);
        }
        arena.write(AREAS[WORD].0.start, &[0; 8]);
        let limits = Limits {
            window_packets: [1, 2, 16, 256][usize::from(setup.window & 3)],
            ack_req_every: [1, 3, 16, 64][usize::from(setup.window >> 2 & 3)],
            ..Limits::default()
        };
        let config = EndpointConfig { limits, credits: setup.credits, max_qp: 64, ..EndpointConfig::default() };
        let cqe = u32::from(setup.cqe[usize::from(number & 1)]).max(1) * 8;
        let addr = match setup.v6 {
            true => Gid([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number]),
            false => Gid::from_ipv4([10, 0, 0, number].into()),
        };
        let mut side = Side {
            endpoint: Endpoint::new(config, Arc::clone(&memory)),
            memory,
            pd,
            cq: Cq::new(number.into(), cqe).expect("a size that is allowed"),
            addr,
            arena,
            areas: Vec::new(),
            used: [0; 2],
            writes: Vec::new(),
            bits: (0, 0),
        };
        side.areas = (0..AREAS.len()).map(|area| side.register(area)).collect();
        side
    }

    fn register(&self, area: usize) -> MrInfo {
        let (range, rights) = AREAS[area].clone();
        let access = Access::from_bits_retain(rights);
        self.arena.register(&self.memory, self.pd, range, IOVA * (area as u64 + 1), access).expect("registered")
    }

    /// The area's key is taken back, and it gets another.
    pub(crate) fn rekey(&mut self, area: u8) {
        let area = usize::from(area) % AREAS.len();
        let grace = self.memory.deregister(self.areas[area].lkey()).expect("registered");
        assert!(grace.done(), "nobody is in the middle of a look-up");
        self.areas[area] = self.register(area);
    }

    /// Address and key of byte `at` of an area.
    pub(crate) fn name(&self, area: usize, at: usize) -> (u64, u32) {
        (self.areas[area].iova + at as u64, self.areas[area].key)
    }

    /// Two pieces that are `len` bytes from `at` on.
    pub(crate) fn sges(&self, area: usize, at: usize, len: usize) -> [Sge; 2] {
        let first = len / 3;
        let piece = |at: usize, len: usize| Sge {
            addr: self.name(area, at).0,
            length: len as u32,
            lkey: self.areas[area].lkey(),
        };
        [piece(at, first), piece(at + first, len - first)]
    }

    /// `len` bytes for a RECV or READ that nothing else has used; where in the area.
    pub(crate) fn room(&mut self, area: usize, len: usize) -> Option<usize> {
        let used = &mut self.used[area - RECV];
        // One byte stays between any two: a guard.
        let at = *used + 1;
        if at + len > AREAS[area].0.len() {
            return None;
        }
        *used = at + len;
        Some(at)
    }

    pub(crate) fn range(area: usize, at: usize, len: usize) -> Range<usize> {
        let start = AREAS[area].0.start + at;
        start..start + len
    }

    pub(crate) fn bytes(&self, range: Range<usize>) -> Vec<u8> {
        self.arena.copy(range)
    }

    /// The peer may write this.
    pub(crate) fn may_write(&mut self, from: usize, to: usize, len: usize) {
        self.writes.push((from, to, len));
    }

    /// What is in memory at the end can have come there by what was asked for.
    pub(crate) fn verify(&self) {
        let now = self.arena.copy(0..SIZE);
        let mut at = 0;
        for (range, _) in &AREAS {
            assert!(now[at..range.start].iter().all(|b| *b == BLANK), "a guard before {range:?} was written");
            at = range.end;
        }
        assert!(now[at..].iter().all(|b| *b == BLANK), "the guard at the end was written");
        for area in [SOURCE, STOCK] {
            let bytes = &now[AREAS[area].0.clone()];
            assert!(bytes.iter().enumerate().all(|(i, b)| *b == pattern(i)), "area {area} was written");
        }
        for (i, byte) in now[AREAS[TARGET].0.clone()].iter().enumerate() {
            let by = |&&(from, to, len): &&(usize, usize, usize)| {
                (to..to + len).contains(&i) && pattern(from + i - to) == *byte
            };
            assert!(*byte == BLANK || self.writes.iter().find(by).is_some(), "nobody writes {byte:#x} to target {i}");
        }
        let word: [u8; 8] = now[AREAS[WORD].0.clone()].try_into().expect("eight bytes");
        let (word, (may, must)) = (u64::from_ne_bytes(word), self.bits);
        assert!(word & !may == 0 && word & must == must, "word {word:#x}, may have {may:#x}, must have {must:#x}");
    }

    /// Nothing is left when its last user is gone.
    pub(crate) fn take_down(&self) {
        assert_eq!(self.endpoint.qpns().count(), 0);
        assert_eq!(self.cq.uses(), 0);
        for area in &self.areas {
            assert!(self.memory.deregister(area.lkey()).expect("registered").done());
        }
        assert_eq!(self.memory.registered(), 0);
        self.memory.dealloc_pd(self.pd).expect("nobody holds it");
    }
}
