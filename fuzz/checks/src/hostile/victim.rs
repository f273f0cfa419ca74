//! The endpoint under attack, and what must hold of it.
//!
//! In: packets, posts, time. Out: panics when the peer got more than its rights.
//!
//! Memory is one arena. Each region has bytes of its own kind, so that every byte that leaves tells where it is from:
//! below 0x40 nothing that is anybody's business, from 0x40 what the victim sends, from 0x80 what the peer may read.

use arbitrary::Arbitrary;
use core::ops::Range;
use std::collections::VecDeque;
use std::sync::Arc;
use xroce_transport::cq::Cq;
use xroce_transport::memory::{Access, Memory, MrInfo};
use xroce_transport::qp::state::{AddressVector, QpAttr, QpState, QpType};
use xroce_transport::qp::{QpHandle, QpInit};
use xroce_transport::wc::{Wc, WcOpcode};
use xroce_transport::wr::{QpCap, RecvWr, SendFlags, SendOp, SendWr, Sge, WrId};
use xroce_transport::{
    Endpoint, EndpointConfig, Instant, Limits, PathId, QpPath, RxMeta, RxPacket, TxClass, TxPacket, TxSink,
};
use xroce_wire::{Gid, ImmData, Operation, Packet, PathMtu, Psn, Qpn, Rkey};

use super::lie::well_formed;
use crate::arena::Arena;

pub(super) const VICTIM: Gid = v4(1);
pub(super) const PEER: Gid = v4(2);

const fn v4(host: u8) -> Gid {
    Gid::from_ipv4(core::net::Ipv4Addr::new(10, 0, 0, host))
}

const MTU: PathMtu = PathMtu::Mtu256;
/// Bytes of the arena, and of the guards around each region.
const SIZE: usize = 16 << 10;
const GUARD: u8 = 0x11;
/// Where the peer writes, reads, does atomics, what RECVs and READs fill, what SENDs send, and a region of another domain.
const REGIONS: [(Range<usize>, u8, u32); 6] = [
    (512..2560, 0x22, WRITABLE.bits()),
    (3072..5120, 0x80, Access::REMOTE_READ.bits()),
    (5632..5696, 0x33, Access::LOCAL_WRITE.bits() | Access::REMOTE_ATOMIC.bits()),
    (6144..10240, 0x0A, Access::LOCAL_WRITE.bits()),
    (10752..13312, 0x40, 0),
    (13824..15872, 0x0B, ALL.bits()),
];
const WRITABLE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_INVALIDATE);
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::REMOTE_INVALIDATE);
const TARGET: usize = 0;
const STOCK: usize = 1;
const WORDS: usize = 2;
const SINK: usize = 3;
const SOURCE: usize = 4;
const FOREIGN: usize = 5;
/// Names of regions lie far apart and far from 0.
const IOVA: u64 = 0x1000_0000;

/// Work requests of a queue, and the window.
const DEPTH: u32 = 16;
/// Longer than any request of the victim, in bytes.
const LONGEST: usize = 1500;
/// Packets that one call may make the victim send on RC: its window, as many READs, the answer to a READ of a whole region, ACKs.
const BURST_RC: usize = 2 * DEPTH as usize + 2048 / 256 + 4;
/// On UC, which has no window: everything that was posted.
const BURST_UC: usize = DEPTH as usize * LONGEST.div_ceil(MTU.bytes());

/// How the victim is set up.
#[derive(Arbitrary, Debug)]
pub(super) struct Setup {
    uc: bool,
    psns: [u32; 2],
    rd_atomic: [u8; 2],
    retries: u8,
    rights: u8,
    credits: bool,
    rtr_only: bool,
}

/// A request of the victim.
#[derive(Arbitrary, Debug)]
pub(super) struct Post {
    verb: u8,
    len: u16,
    signaled: bool,
    fence: bool,
}

struct Sink(Vec<u8>);

impl TxSink for Sink {
    fn reserve(&mut self, _path: PathId, len: usize, _class: TxClass) -> Option<TxPacket<'_>> {
        // Old bytes: each must be written over.
        self.0 = vec![0x3C; len];
        Some(TxPacket { head: &mut self.0, tail: &mut [] })
    }
}

/// A RECV that is posted: its number, and where its bytes go.
type Posted = (u64, Range<usize>);

pub(super) struct Victim {
    // Before the arena: dropped first.
    endpoint: Endpoint,
    qp: QpHandle,
    cq: Arc<Cq>,
    memory: Arc<Memory>,
    regions: Vec<MrInfo>,
    arena: Arena,
    /// The arena as it may be: what has changed by right is taken over after each act.
    seen: Vec<u8>,
    rc: bool,
    now: Instant,
    /// Every packet of the peer, for the model and to come again.
    packets: Vec<Vec<u8>>,
    sends: VecDeque<(u64, bool)>,
    recvs: VecDeque<Posted>,
    /// Where READs and atomics of the victim may still bring something.
    sinks: Vec<(u64, Range<usize>)>,
    next_id: u64,
    sink_at: usize,
}

impl Victim {
    pub(super) fn new(setup: &Setup) -> Victim {
        let memory = Arc::new(Memory::new([1, 2], 64, 0));
        let [pd, other] = [(); 2].map(|()| memory.alloc_pd().expect("a domain"));
        let arena = Arena::new(SIZE, GUARD);
        let mut regions = Vec::new();
        for (i, (range, fill, rights)) in REGIONS.into_iter().enumerate() {
            let kind = |at: usize| if fill & 0xC0 == 0 { fill } else { fill | (at % 61) as u8 };
            arena.write(range.start, &range.clone().map(kind).collect::<Vec<u8>>());
            let pd = if i == FOREIGN { other } else { pd };
            let access = Access::from_bits_retain(rights);
            regions.push(arena.register(&memory, pd, range, IOVA * (i as u64 + 1), access).expect("registered"));
        }
        let limits = Limits { window_packets: DEPTH, ..Limits::default() };
        let config = EndpointConfig { limits, credits: setup.credits, ..EndpointConfig::default() };
        let mut endpoint = Endpoint::new(config, Arc::clone(&memory));
        let cq = Cq::new(1, 256).expect("a queue");
        let cap =
            QpCap { max_send_wr: DEPTH, max_recv_wr: DEPTH, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 32 };
        let kind = if setup.uc { QpType::Uc } else { QpType::Rc };
        let (send_cq, recv_cq) = (Arc::clone(&cq), Arc::clone(&cq));
        let init = QpInit { kind, pd, send_cq, recv_cq, cap, sq_sig_all: false };
        let qp = endpoint.create_qp(init).expect("a queue pair");
        let seen = arena.copy(0..SIZE);
        let mut victim = Victim {
            endpoint,
            qp,
            cq,
            memory,
            regions,
            arena,
            seen,
            rc: !setup.uc,
            now: Instant(1_000_000_000),
            packets: Vec::new(),
            sends: VecDeque::new(),
            recvs: VecDeque::new(),
            sinks: Vec::new(),
            next_id: 0,
            sink_at: 0,
        };
        victim.connect(setup);
        victim
    }

    fn connect(&mut self, setup: &Setup) {
        let rights = if setup.rights & 8 == 0 { 7 } else { setup.rights };
        let rights = Access::from_bits_retain(u32::from(rights & 7) << 1);
        let rc = |value| self.rc.then_some(value);
        let [sq_psn, rq_psn] = setup.psns.map(Psn::new);
        let [max_rd_atomic, max_dest_rd_atomic] = setup.rd_atomic.map(|n| n % 17);
        let init = QpAttr {
            qp_state: Some(QpState::Init),
            pkey_index: Some(0),
            port_num: Some(1),
            qp_access_flags: Some(rights),
            ..QpAttr::default()
        };
        let vector = AddressVector {
            dgid: PEER,
            sgid_index: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            sl: 0,
            port_num: 1,
            is_global: true,
        };
        let rtr = QpAttr {
            qp_state: Some(QpState::Rtr),
            ah_attr: Some(vector),
            path_mtu: Some(MTU),
            dest_qp_num: Some(Qpn::new(2)),
            rq_psn: Some(rq_psn),
            max_dest_rd_atomic: rc(max_dest_rd_atomic),
            min_rnr_timer: rc(1),
            ..QpAttr::default()
        };
        let rts = QpAttr {
            qp_state: Some(QpState::Rts),
            sq_psn: Some(sq_psn),
            timeout: rc(5),
            retry_cnt: rc(setup.retries & 7),
            rnr_retry: rc(setup.retries >> 3 & 7),
            max_rd_atomic: rc(max_rd_atomic),
            ..QpAttr::default()
        };
        let path = QpPath { path: PathId(0), src: VICTIM, dst: PEER, hop_limit: 64, traffic_class: 0, flow_label: 0 };
        for attr in [init, rtr].iter().chain((!setup.rtr_only).then_some(&rts)) {
            let path = attr.ah_attr.map(|_| path);
            self.endpoint.modify_qp(self.now, self.qp.qpn, attr, path).expect("a step of the table");
        }
        self.qp.sq.set_max_rd_atomic(max_rd_atomic);
    }

    pub(super) fn is_rc(&self) -> bool {
        self.rc
    }

    pub(super) fn mtu(&self) -> usize {
        MTU.bytes()
    }

    pub(super) fn qpn(&self) -> Qpn {
        self.qp.qpn
    }

    /// What the responder expects and the requester sends next.
    pub(super) fn psns(&self) -> (Psn, Psn) {
        let attr = self.endpoint.query_qp(self.qp.qpn).expect("the queue pair").attr;
        (attr.rq_psn.unwrap_or(Psn::new(0)), attr.sq_psn.unwrap_or(Psn::new(0)))
    }

    /// A place in or around a region.
    pub(super) fn address(&self, region: u8, offset: i16) -> u64 {
        self.region(region).iova.wrapping_add_signed(offset.into())
    }

    /// The key of a region: mostly its own.
    pub(super) fn key(&self, choice: u8, region: u8) -> u32 {
        match choice {
            0..200 => self.region(region).key,
            200..240 => self.region(choice).key,
            other => u32::from(other) << 24,
        }
    }

    fn region(&self, n: u8) -> &MrInfo {
        &self.regions[usize::from(n) % REGIONS.len()]
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The next bytes of the sink region; wraps.
    fn place(&mut self, len: usize) -> Range<usize> {
        let region = &REGIONS[SINK].0;
        let len = len.min(region.len());
        if self.sink_at + len > region.len() {
            self.sink_at = 0;
        }
        let start = region.start + self.sink_at;
        self.sink_at += len;
        start..start + len
    }

    fn sge(&self, region: usize, range: &Range<usize>) -> Sge {
        let MrInfo { iova, .. } = self.regions[region];
        let addr = iova + (range.start - REGIONS[region].0.start) as u64;
        Sge { addr, length: range.len() as u32, lkey: self.regions[region].lkey() }
    }

    pub(super) fn post_recv(&mut self, len: u16) {
        let (id, range) = (self.id(), self.place(usize::from(len) % 1500));
        let sges = [self.sge(SINK, &range)];
        if self.qp.rq.post(&RecvWr { wr_id: WrId(id), sges: &sges }).is_ok() {
            self.recvs.push_back((id, range));
            self.endpoint.doorbell(self.now, self.qp.qpn);
        }
    }

    pub(super) fn post_send(&mut self, post: &Post) {
        if !self.qp.state.load().may_post_send() {
            return;
        }
        let (va, rkey, id) = (0x5000, Rkey(0x77), self.id());
        let op = match post.verb % 6 {
            0 => SendOp::Send,
            1 => SendOp::SendImm(ImmData(1)),
            2 => SendOp::Write { va, rkey },
            3 => SendOp::Read { va, rkey },
            4 => SendOp::FetchAdd { va, rkey, add: 1 },
            _ => SendOp::CmpSwap { va, rkey, compare: 1, swap: 2 },
        };
        let len = if op.is_atomic() { 8 } else { usize::from(post.len) % LONGEST };
        let (region, range) = match op.is_read_or_atomic() {
            true => (SINK, self.place(len)),
            false => (SOURCE, REGIONS[SOURCE].0.start + 5..REGIONS[SOURCE].0.start + 5 + len),
        };
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, post.signaled);
        flags.set(SendFlags::FENCE, post.fence);
        let sges = [self.sge(region, &range)];
        let wr = SendWr { wr_id: WrId(id), op, flags, sges: &sges, inline: &[] };
        if self.qp.sq.post(&wr, 1 << 20).is_ok() {
            self.sends.push_back((id, post.signaled));
            if region == SINK {
                self.sinks.push((id, range));
            }
            self.endpoint.doorbell(self.now, self.qp.qpn);
        }
    }

    pub(super) fn receive_again(&mut self, which: u8) {
        if let Some(at) = self.packets.len().checked_sub(1 + usize::from(which)) {
            let bytes = self.packets[at].clone();
            self.receive(&bytes, usize::MAX);
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8], cut: usize) {
        self.packets.push(bytes.to_vec());
        let (head, tail) = bytes.split_at(cut.min(bytes.len()));
        let _ = self.endpoint.handle_packet(self.now, &RxMeta::default(), RxPacket { head, tail });
        self.completions();
        self.transmit();
    }

    pub(super) fn pass(&mut self, ns: u64) {
        self.now = self.now.add_ns(ns);
        self.endpoint.handle_timeout(self.now);
        self.completions();
        self.transmit();
    }

    pub(super) fn tick(&mut self) {
        let Some(next) = self.endpoint.poll_timeout() else { return };
        self.pass(next.since_ns(self.now).max(1));
    }

    /// Everything that wants to leave, each packet looked at.
    fn transmit(&mut self) {
        let most = if self.rc { BURST_RC } else { BURST_UC };
        for sent in 0.. {
            assert!(sent <= most, "one packet or deadline makes more than {most} packets");
            let mut sink = Sink(Vec::new());
            let Some(transmit) = self.endpoint.poll_transmit(self.now, &mut sink) else { break };
            assert_eq!(transmit.len, sink.0.len());
            self.inspect(&sink.0);
        }
        while self.endpoint.poll_event().is_some() {}
        while self.endpoint.poll_wakeup().is_some() {}
        self.completions();
    }

    /// A packet tells the peer only what it may know.
    fn inspect(&self, bytes: &[u8]) {
        let packet = Packet::new_checked(bytes, &[]).expect("what we send is a packet");
        assert!(packet.icrc_ok() && packet.pad_is_right());
        assert_eq!((packet.ip().src, packet.ip().dst, packet.dest_qp()), (VICTIM, PEER, Qpn::new(2)));
        let kind = match packet.opcode().operation() {
            Some(o) if o.is_read_response() => 0x80,
            Some(o) if o.is_send() || o.is_write() => 0x40,
            _ => return,
        };
        let payload = packet.payload().0;
        assert!(payload.iter().all(|b| b & 0xC0 == kind), "{} carries {payload:02x?}", packet.opcode());
        assert!(payload.len() <= MTU.bytes());
    }

    fn completions(&mut self) {
        while let Some(wc) = self.cq.poll_one() {
            assert_eq!(wc.qpn, self.qp.qpn);
            let is_recv = self.recvs.front().is_some_and(|recv| recv.0 == wc.wr_id.0);
            if is_recv {
                let recv = self.recvs.pop_front().expect("just seen");
                self.received(&wc, recv);
            } else {
                self.completed(&wc);
            }
        }
        assert!(!self.cq.is_overrun());
    }

    /// A send request completes in its turn, and what lies before it was not to be signaled.
    fn completed(&mut self, wc: &Wc) {
        loop {
            let Some((id, signaled)) = self.sends.pop_front() else { panic!("{wc:?} of nothing that was posted") };
            self.take_over(id);
            if id == wc.wr_id.0 {
                assert!(signaled || !wc.status.is_success(), "{wc:?} was not to be signaled");
                return;
            }
            assert!(!signaled, "{wc:?} before request {id}");
        }
    }

    /// What a READ or atomic brought is by right.
    fn take_over(&mut self, id: u64) {
        for (_, range) in self.sinks.iter().filter(|(owner, _)| *owner == id) {
            let bytes = self.arena.copy(range.clone());
            self.seen[range.clone()].copy_from_slice(&bytes);
        }
        self.sinks.retain(|(owner, _)| *owner != id);
    }

    /// A RECV completed: with a whole message that the peer sent.
    fn received(&mut self, wc: &Wc, (_, range): Posted) {
        let bytes = self.arena.copy(range.clone());
        self.seen[range].copy_from_slice(&bytes);
        if !wc.status.is_success() {
            return;
        }
        let len = wc.byte_len as usize;
        let last = self.packets.last().and_then(|p| well_formed(p, self.qp.qpn));
        let last = last.unwrap_or_else(|| panic!("{wc:?} without a packet"));
        let operation = last.opcode().operation().expect("RC or UC");
        assert!(
            (operation.is_send() || operation.has_imm()) && operation.ends_message(),
            "{wc:?} by {}",
            last.opcode()
        );
        if let Some(rkey) = wc.invalidated_rkey() {
            assert_eq!(rkey, self.regions[TARGET].rkey(), "invalidated a key that may not be");
        }
        if wc.opcode == WcOpcode::RecvRdmaWithImm {
            return;
        }
        assert!(operation.is_send() && len <= bytes.len(), "{wc:?} by {}", last.opcode());
        let mut end = len;
        let mut psn = last.psn();
        let mut wanted = last.payload().0.to_vec();
        let mut begins = operation.begins_message();
        loop {
            assert!(wanted.len() <= end && bytes[end - wanted.len()..end] == wanted, "{wc:?}: other bytes at {psn}");
            end -= wanted.len();
            if begins {
                break;
            }
            psn = psn.sub(1);
            (wanted, begins) = self
                .before(psn, &bytes[end.saturating_sub(MTU.bytes())..end])
                .unwrap_or_else(|| panic!("{wc:?}: no packet {psn} was sent for its bytes before {end}"));
        }
        assert_eq!(end, 0, "{wc:?}: {end} bytes more than were sent");
    }

    /// The payload of a packet of a SEND at `psn` that carried these bytes, and whether it is the first.
    fn before(&self, psn: Psn, bytes: &[u8]) -> Option<(Vec<u8>, bool)> {
        let sent = self.packets.iter().rev().filter_map(|p| well_formed(p, self.qp.qpn));
        let mut sent = sent.filter(|p| p.psn() == psn && p.payload().0 == bytes);
        let operations = [Operation::SendFirst, Operation::SendMiddle];
        let found = sent.find_map(|p| operations.iter().find(|o| p.opcode().operation() == Some(**o)))?;
        Some((bytes.to_vec(), *found == Operation::SendFirst))
    }

    /// Only what may change has changed.
    pub(super) fn look(&mut self) {
        let now = self.arena.copy(0..SIZE);
        for free in [TARGET, WORDS].map(|i| REGIONS[i].0.clone()) {
            self.seen[free.clone()].copy_from_slice(&now[free]);
        }
        // The RECV in use, and answers of requests that are not complete.
        let open = self.recvs.front().map(|(_, range)| range.clone());
        for range in open.into_iter().chain(self.sinks.iter().map(|(_, range)| range.clone())) {
            self.seen[range.clone()].copy_from_slice(&now[range]);
        }
        if now != self.seen {
            let at = (0..SIZE).find(|&at| now[at] != self.seen[at]).unwrap_or(SIZE);
            panic!("byte {at} was {:?} and is {:?}", self.seen.get(at), now.get(at));
        }
    }

    /// Everything is taken down: what is outstanding is flushed once, and nothing is left.
    pub(super) fn finish(mut self) {
        let err = QpAttr { qp_state: Some(QpState::Err), ..QpAttr::default() };
        self.endpoint.modify_qp(self.now, self.qp.qpn, &err, None).expect("any state may go to ERR");
        self.transmit();
        self.look();
        // What succeeded without a signal told nobody.
        assert!(self.sends.iter().all(|(_, signaled)| !signaled), "requests {:?} never completed", self.sends);
        assert!(self.recvs.is_empty(), "RECVs {:?} never completed", self.recvs);
        self.endpoint.destroy_qp(self.qp.qpn).expect("there is one");
        assert_eq!(self.cq.uses(), 0);
        for region in &self.regions {
            assert!(self.memory.deregister(region.lkey()).expect("registered").done());
        }
        let stock = &REGIONS[STOCK].0;
        assert!(self.arena.copy(stock.clone()).iter().all(|b| b & 0xC0 == 0x80));
    }
}
