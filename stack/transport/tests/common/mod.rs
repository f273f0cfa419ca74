//! Two endpoints on a wire that a test can break, in virtual time.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::VecDeque;
use std::sync::Arc;

use xroce_transport::cq::Cq;
use xroce_transport::memory::{Access, Memory, Pd, Region};
use xroce_transport::qp::state::{AddressVector, QpAttr, QpState, QpType};
use xroce_transport::qp::{QpHandle, QpInit};
use xroce_transport::wc::{Wc, WcStatus};
use xroce_transport::wr::{QpCap, RecvWr, SendFlags, SendOp, SendWr, Sge, WrId};
use xroce_transport::{
    DropReason, Endpoint, EndpointConfig, Instant, PathId, QpPath, RxMeta, RxPacket, TxClass, TxPacket, TxSink,
};
use xroce_wire::{Gid, Lkey, Operation, Packet, PathMtu, Psn, Qpn, Rkey};

pub const MS: u64 = 1_000_000;

/// A packet on the wire.
#[derive(Clone)]
pub struct Frame {
    pub to_b: bool,
    pub bytes: Vec<u8>,
}

impl Frame {
    pub fn packet(&self) -> Packet<'_> {
        Packet::new_checked(&self.bytes, &[]).expect("what we send is well-formed")
    }

    pub fn op(&self) -> Operation {
        self.packet().opcode().operation().expect("RC or UC")
    }

    pub fn psn(&self) -> u32 {
        self.packet().psn().value()
    }
}

/// One end.
pub struct Node {
    pub ep: Endpoint,
    pub mem: Arc<Memory>,
    pub pd: Pd,
    pub cq: Arc<Cq>,
    pub qp: QpHandle,
    pub addr: Gid,
    /// Registered memory, all rights, with guard bytes at either end that are not registered.
    buf: Box<[u8]>,
    pub key: u32,
}

const GUARD: usize = 64;

impl Node {
    fn new(kind: QpType, addr: Gid, config: EndpointConfig, setup: &Setup) -> Node {
        let mem = Arc::new(Memory::new([u64::from(addr.0[15]), 7], 1024, 0));
        let pd = mem.alloc_pd().unwrap();
        let cq = Cq::new(u64::from(addr.0[15]), 4096).unwrap();
        let mut ep = Endpoint::new(config, Arc::clone(&mem));
        let init = QpInit {
            kind,
            pd,
            send_cq: Arc::clone(&cq),
            recv_cq: Arc::clone(&cq),
            cap: QpCap { max_send_wr: 64, max_recv_wr: 64, max_send_sge: 16, max_recv_sge: 16, max_inline_data: 128 },
            sq_sig_all: false,
        };
        let qp = ep.create_qp(init).unwrap();
        let mut buf = vec![0u8; setup.memory + 2 * GUARD].into_boxed_slice();
        buf[..GUARD].fill(0xEE);
        buf[GUARD + setup.memory..].fill(0xEE);
        // SAFETY: the box lives as long as the node, and the endpoint is dropped with it.
        let region = unsafe { Region::new(buf[GUARD..].as_mut_ptr(), setup.memory) };
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let key = mem.register(pd, region, None, all | Access::REMOTE_INVALIDATE).unwrap().key;
        Node { ep, mem, pd, cq, qp, addr, buf, key }
    }

    /// Address of byte `offset` of the registered memory.
    pub fn at(&self, offset: usize) -> u64 {
        self.buf[GUARD + offset..].as_ptr() as u64
    }

    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge { addr: self.at(offset), length, lkey: Lkey(self.key) }
    }

    pub fn rkey(&self) -> Rkey {
        Rkey(self.key)
    }

    pub fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        &self.buf[GUARD + offset..GUARD + offset + len]
    }

    /// A pattern that depends on position and seed.
    pub fn fill(&mut self, offset: usize, len: usize, seed: u32) {
        for i in 0..len {
            self.buf[GUARD + offset + i] = pattern(seed, i);
        }
    }

    pub fn check_guards(&self) {
        let end = self.buf.len() - GUARD;
        assert!(self.buf[..GUARD].iter().chain(&self.buf[end..]).all(|b| *b == 0xEE), "guard bytes were overwritten");
    }

    pub fn poll(&self) -> Vec<Wc> {
        std::iter::from_fn(|| self.cq.poll_one()).collect()
    }

    /// `(wr_id, status)` of what is in the CQ.
    pub fn statuses(&self) -> Vec<(u64, WcStatus)> {
        self.poll().iter().map(|wc| (wc.wr_id.0, wc.status)).collect()
    }
}

pub fn pattern(seed: u32, i: usize) -> u8 {
    ((seed as usize).wrapping_mul(131).wrapping_add(i).wrapping_mul(2_654_435_761) >> 13) as u8
}

/// How the two are connected.
#[derive(Clone)]
pub struct Setup {
    pub kind: QpType,
    pub mtu: PathMtu,
    pub a_psn: u32,
    pub b_psn: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub access: Access,
    pub memory: usize,
    pub config: EndpointConfig,
    /// Where frames are cut in two pieces, on both directions.
    pub split: Option<usize>,
    pub ipv6: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            kind: QpType::Rc,
            mtu: PathMtu::Mtu1024,
            a_psn: 100,
            b_psn: 0xFF_FFF0,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            memory: 1 << 20,
            config: EndpointConfig::default(),
            split: None,
            ipv6: false,
        }
    }
}

/// What a test does with a frame on the wire.
pub enum Fate {
    Deliver,
    Drop,
}

pub struct Pair {
    pub a: Node,
    pub b: Node,
    pub now: Instant,
    pub wire: VecDeque<Frame>,
    /// Every frame that was sent, lost ones too.
    pub trace: Vec<Frame>,
    setup: Setup,
}

struct Sink {
    head: Vec<u8>,
    tail: Vec<u8>,
    split: Option<usize>,
    class: Option<TxClass>,
}

impl TxSink for Sink {
    fn reserve(&mut self, _path: PathId, len: usize, class: TxClass) -> Option<TxPacket<'_>> {
        let at = self.split.map_or(len, |s| s.min(len));
        // Old bytes, to see that every byte of a packet is written.
        self.head = vec![0xA5; at];
        self.tail = vec![0xA5; len - at];
        self.class = Some(class);
        Some(TxPacket { head: &mut self.head, tail: &mut self.tail })
    }
}

impl Pair {
    pub fn new(setup: Setup) -> Pair {
        let mut pair = Pair::unconnected(setup);
        pair.connect();
        pair
    }

    /// Both in RESET.
    pub fn unconnected(setup: Setup) -> Pair {
        let gid = |n: u8| match setup.ipv6 {
            true => Gid([0xfd, 0, 0, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n]),
            false => Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, n]),
        };
        let a = Node::new(setup.kind, gid(1), setup.config, &setup);
        let b = Node::new(setup.kind, gid(2), setup.config, &setup);
        Pair { a, b, now: Instant(1_000_000_000), wire: VecDeque::new(), trace: Vec::new(), setup }
    }

    pub fn connect(&mut self) {
        for a_side in [true, false] {
            self.modify(a_side, &self.init_attr(), false).unwrap();
            self.modify(a_side, &self.rtr_attr(a_side), true).unwrap();
            self.modify(a_side, &self.rts_attr(a_side), false).unwrap();
        }
    }

    pub fn init_attr(&self) -> QpAttr {
        QpAttr {
            qp_state: Some(QpState::Init),
            pkey_index: Some(0),
            port_num: Some(1),
            qp_access_flags: Some(self.setup.access),
            ..QpAttr::default()
        }
    }

    pub fn rtr_attr(&self, a_side: bool) -> QpAttr {
        let (peer, psn) = if a_side { (&self.b, self.setup.b_psn) } else { (&self.a, self.setup.a_psn) };
        let rc = self.setup.kind == QpType::Rc;
        QpAttr {
            qp_state: Some(QpState::Rtr),
            ah_attr: Some(AddressVector {
                dgid: peer.addr,
                sgid_index: 0,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0,
                sl: 0,
                port_num: 1,
                is_global: true,
            }),
            path_mtu: Some(self.setup.mtu),
            dest_qp_num: Some(peer.qp.qpn),
            rq_psn: Some(Psn::new(psn)),
            max_dest_rd_atomic: rc.then_some(self.setup.max_dest_rd_atomic),
            min_rnr_timer: rc.then_some(self.setup.min_rnr_timer),
            ..QpAttr::default()
        }
    }

    pub fn rts_attr(&self, a_side: bool) -> QpAttr {
        let rc = self.setup.kind == QpType::Rc;
        QpAttr {
            qp_state: Some(QpState::Rts),
            sq_psn: Some(Psn::new(if a_side { self.setup.a_psn } else { self.setup.b_psn })),
            timeout: rc.then_some(self.setup.timeout),
            retry_cnt: rc.then_some(self.setup.retry_cnt),
            rnr_retry: rc.then_some(self.setup.rnr_retry),
            max_rd_atomic: rc.then_some(self.setup.max_rd_atomic),
            ..QpAttr::default()
        }
    }

    pub fn modify(
        &mut self,
        a_side: bool,
        attr: &QpAttr,
        with_path: bool,
    ) -> Result<(), xroce_transport::qp::ModifyQpError> {
        let (src, dst) = if a_side { (self.a.addr, self.b.addr) } else { (self.b.addr, self.a.addr) };
        let path =
            with_path.then_some(QpPath { path: PathId(0), src, dst, hop_limit: 64, traffic_class: 0, flow_label: 0 });
        let node = if a_side { &mut self.a } else { &mut self.b };
        node.ep.modify_qp(self.now, node.qp.qpn, attr, path)
    }

    /// Posts a signaled request at A.
    pub fn post_a(&mut self, id: u64, op: SendOp, sges: &[Sge]) {
        self.post_flags(id, op, sges, SendFlags::SIGNALED);
    }

    pub fn post_flags(&mut self, id: u64, op: SendOp, sges: &[Sge], flags: SendFlags) {
        let wr = SendWr { wr_id: WrId(id), op, flags, sges, inline: &[] };
        self.a.qp.sq.post(&wr, 1 << 31).unwrap();
        self.a.ep.doorbell(self.now, self.a.qp.qpn);
    }

    /// Posts a RECV at B.
    pub fn recv_b(&mut self, id: u64, offset: usize, len: u32) {
        let sges = [self.b.sge(offset, len)];
        self.b.qp.rq.post(&RecvWr { wr_id: WrId(id), sges: &sges }).unwrap();
        self.b.ep.doorbell(self.now, self.b.qp.qpn);
    }

    /// Takes everything that both ends want to send now onto the wire.
    pub fn transmit(&mut self) {
        self.transmit_some(true, usize::MAX);
        self.transmit_some(false, usize::MAX);
    }

    /// Takes up to `max` packets of one end onto the wire, as a port with little room does.
    pub fn transmit_some(&mut self, to_b: bool, max: usize) {
        let split = self.setup.split;
        let node = if to_b { &mut self.a } else { &mut self.b };
        for _ in 0..max {
            let mut sink = Sink { head: Vec::new(), tail: Vec::new(), split, class: None };
            let Some(transmit) = node.ep.poll_transmit(self.now, &mut sink) else { break };
            let mut bytes = sink.head;
            bytes.extend(sink.tail);
            assert_eq!(bytes.len(), transmit.len);
            let frame = Frame { to_b, bytes };
            assert!(frame.packet().icrc_ok(), "a bad ICRC was sent");
            self.trace.push(frame.clone());
            self.wire.push_back(frame);
        }
    }

    /// Gives a packet to its receiver.
    pub fn deliver(&mut self, frame: &Frame) -> Result<(), DropReason> {
        let at = self.setup.split.map_or(frame.bytes.len(), |s| s.min(frame.bytes.len()));
        let (head, tail) = frame.bytes.split_at(at);
        let node = if frame.to_b { &mut self.b } else { &mut self.a };
        node.ep.handle_packet(self.now, &RxMeta::default(), RxPacket { head, tail })
    }

    /// Sends and delivers until nothing moves; `fate` decides for every frame, counted from 0.
    pub fn settle(&mut self, mut fate: impl FnMut(usize, &Frame) -> Fate) {
        let mut n = 0;
        loop {
            self.transmit();
            let Some(frame) = self.wire.pop_front() else { return };
            if let Fate::Deliver = fate(n, &frame) {
                let _ = self.deliver(&frame);
            }
            n += 1;
            assert!(n < 1_000_000, "the wire never falls silent");
        }
    }

    pub fn run(&mut self) {
        self.settle(|_, _| Fate::Deliver);
    }

    /// Goes to the next deadline of either end. `false` if there is none.
    pub fn tick(&mut self) -> bool {
        let next = [&self.a.ep, &self.b.ep].iter().filter_map(|ep| ep.poll_timeout()).min();
        let Some(next) = next else { return false };
        self.now = next.max(Instant(self.now.0 + 1));
        self.a.ep.handle_timeout(self.now);
        self.b.ep.handle_timeout(self.now);
        true
    }

    pub fn advance(&mut self, ns: u64) {
        self.now = self.now.add_ns(ns);
        self.a.ep.handle_timeout(self.now);
        self.b.ep.handle_timeout(self.now);
    }

    /// Runs with time going on, until both are silent and without deadlines, or `limit` deadlines have passed.
    pub fn run_timed(&mut self, limit: usize, mut fate: impl FnMut(usize, &Frame) -> Fate) {
        let mut n = 0;
        for _ in 0..limit {
            self.settle(|_, frame| {
                n += 1;
                fate(n - 1, frame)
            });
            if !self.tick() {
                return;
            }
        }
    }

    /// Opcodes and PSNs of what A sent, or B.
    pub fn sent(&self, to_b: bool) -> Vec<(Operation, u32)> {
        self.trace.iter().filter(|f| f.to_b == to_b).map(|f| (f.op(), f.psn())).collect()
    }

    pub fn qpn_a(&self) -> Qpn {
        self.a.qp.qpn
    }
}
