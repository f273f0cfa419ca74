//! Two sides, their connections and the frames between them.
//!
//! In: acts. Out: panics when something does not hold.

use std::collections::VecDeque;
use std::sync::Arc;

use xroce_transport::memory::Access;
use xroce_transport::qp::QpInit;
use xroce_transport::qp::state::{AddressVector, MigState, QpAttr, QpState, QpType};
use xroce_transport::wc::{Wc, WcOpcode};
use xroce_transport::wr::{QpCap, RecvWr, SendFlags, SendOp, SendWr, WrId};
use xroce_transport::{Instant, PathId, QpPath, RxMeta, RxPacket, TxClass, TxPacket, TxSink};
use xroce_wire::{Gid, ImmData, Packet, PathMtu, Psn, QKey, Qpn, Rkey};

use super::queue::{Brings, Message, Queue, Sent};
use super::side::{BLANK, LONGEST, RECV, SINK, SOURCE, STOCK, Side, TARGET, WORD, pattern};
use super::{Connect, Modify, Send, Setup, Which};

const CONNECTIONS: usize = 2;
/// Frames on the link; more are lost, as on a real one.
const LINK: usize = 512;
/// Packets that nothing but a fault would exceed in one turn.
const TURN: usize = 4096;
/// All headers lie before this.
const SPLIT: usize = 128;

struct Sink {
    head: Vec<u8>,
    tail: Vec<u8>,
    split: usize,
}

impl TxSink for Sink {
    fn reserve(&mut self, _path: PathId, len: usize, _class: TxClass) -> Option<TxPacket<'_>> {
        let at = self.split.min(len);
        (self.head, self.tail) = (vec![0xA5; at], vec![0xA5; len - at]);
        Some(TxPacket { head: &mut self.head, tail: &mut self.tail })
    }
}

pub(crate) struct World {
    mtu: PathMtu,
    split: usize,
    sides: [Side; 2],
    /// By connection and side.
    queues: [[Option<Queue>; 2]; CONNECTIONS],
    /// To which side, and the bytes.
    link: VecDeque<(usize, Vec<u8>)>,
    now: Instant,
    next_id: u64,
    connections: u32,
}

impl World {
    pub(crate) fn new(setup: Setup) -> World {
        World {
            mtu: PathMtu::ALL[usize::from(setup.mtu) % 3],
            split: if setup.split & 1 == 0 { usize::MAX } else { SPLIT + usize::from(setup.split) },
            sides: [Side::new(&setup, 1), Side::new(&setup, 2)],
            queues: Default::default(),
            link: VecDeque::new(),
            now: Instant(1_000_000_000),
            next_id: 0,
            connections: 0,
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn place(which: Which) -> (usize, usize) {
        (usize::from(which.conn) % CONNECTIONS, usize::from(which.side))
    }

    /// Two new queue pairs, in RTS.
    pub(crate) fn connect(&mut self, how: Connect) {
        let conn = usize::from(how.conn) % CONNECTIONS;
        if self.queues[conn].iter().any(Option::is_some) {
            return;
        }
        let depth = u32::from(how.depth % 32) + 1;
        let cap =
            QpCap { max_send_wr: depth, max_recv_wr: depth, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 64 };
        for (side, queue) in self.sides.iter_mut().zip(&mut self.queues[conn]) {
            let init = QpInit {
                kind: if how.uc { QpType::Uc } else { QpType::Rc },
                pd: side.pd,
                send_cq: Arc::clone(&side.cq),
                recv_cq: Arc::clone(&side.cq),
                cap,
                sq_sig_all: how.sig_all,
            };
            // The QPNs may all be resting.
            match side.endpoint.create_qp(init) {
                Ok(handle) => *queue = Some(Queue::new(handle, how.uc, how.sig_all)),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        if self.queues[conn].iter().any(Option::is_none) {
            self.destroy(Which { conn: how.conn, side: false });
            self.destroy(Which { conn: how.conn, side: true });
            return;
        }
        self.connections += 1;
        for side in 0..2 {
            for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
                let attr = self.full(conn, side, to, how.retries, how.timeout, how.rd_atomic);
                self.call(conn, side, &attr).expect("a step of the table");
            }
        }
    }

    /// What the step to a state requires.
    fn full(&self, conn: usize, side: usize, to: QpState, retries: u8, timeout: u8, rd_atomic: u8) -> QpAttr {
        let Some(queue) = &self.queues[conn][side] else { return QpAttr::default() };
        let rc = |value: u8| (!queue.uc).then_some(value);
        // Connections lie far apart, so that late packets of one are none of another.
        let psn = |side: usize| Psn::new(self.connections * 0x3_0000 + side as u32 * 0x1_8000);
        let attr = QpAttr { qp_state: Some(to), ..QpAttr::default() };
        match to {
            QpState::Init => QpAttr {
                pkey_index: Some(0),
                port_num: Some(1),
                qp_access_flags: Some(Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC),
                ..attr
            },
            QpState::Rtr => QpAttr {
                ah_attr: Some(vector(self.sides[1 - side].addr)),
                path_mtu: Some(self.mtu),
                dest_qp_num: Some(self.queues[conn][1 - side].as_ref().map_or(Qpn::new(1), |q| q.handle.qpn)),
                rq_psn: Some(psn(1 - side)),
                max_dest_rd_atomic: rc(16),
                min_rnr_timer: rc(1),
                ..attr
            },
            QpState::Rts => QpAttr {
                sq_psn: Some(psn(side)),
                timeout: rc(timeout % 12),
                retry_cnt: rc(retries & 7),
                rnr_retry: rc(retries >> 3 & 7),
                max_rd_atomic: rc(rd_atomic % 17),
                ..attr
            },
            _ => attr,
        }
    }

    fn call(&mut self, conn: usize, side: usize, attr: &QpAttr) -> Result<(), xroce_transport::qp::ModifyQpError> {
        let Some(queue) = &mut self.queues[conn][side] else { return Ok(()) };
        let (src, dst) = (self.sides[side].addr, self.sides[1 - side].addr);
        let path = QpPath { path: PathId(0), src, dst, hop_limit: 64, traffic_class: 0, flow_label: 0 };
        let path = attr.ah_attr.map(|_| path);
        let done = self.sides[side].endpoint.modify_qp(self.now, queue.handle.qpn, attr, path);
        if done.is_ok()
            && let Some(max) = attr.max_rd_atomic
        {
            queue.handle.sq.set_max_rd_atomic(max);
        }
        done
    }

    pub(crate) fn modify(&mut self, which: Which, modify: Modify) {
        let (conn, side) = World::place(which);
        // For numbers that no other life has.
        self.next_id += 1;
        let Some(queue) = &self.queues[conn][side] else { return };
        let (before, qpn) = (queue.state(), queue.handle.qpn);
        let to = QpState::ALL[usize::from(modify.to) % QpState::ALL.len()];
        let value = modify.value;
        let mut attr = match modify.full {
            true => self.full(conn, side, to, value, value, value),
            false => QpAttr { qp_state: (modify.extra & 1 == 0).then_some(to), ..QpAttr::default() },
        };
        self.embellish(&mut attr, side, modify);
        let old = self.sides[side].endpoint.query_qp(qpn).expect("it is there").attr;
        match self.call(conn, side, &attr) {
            Ok(()) => {
                let queue = self.queues[conn][side].as_mut().expect("it is there");
                let after = queue.state();
                // An SQD or RTS may turn out to be an ERR at once, when a CQ is dead.
                assert!(
                    after == attr.qp_state.unwrap_or(before) || after == QpState::Err,
                    "{before} to {after}: {attr:?}"
                );
                if after == QpState::Reset {
                    queue.forget();
                    // The next life has PSNs of its own.
                    self.connections += 1;
                }
            }
            Err(error) => {
                let now = self.sides[side].endpoint.query_qp(qpn).expect("it is there").attr;
                assert_eq!(old, now, "changed by a call that failed: {error}");
            }
        }
        self.turn();
    }

    /// Attributes that the step may or may not take.
    fn embellish(&self, attr: &mut QpAttr, side: usize, modify: Modify) {
        let Modify { extra, value, .. } = modify;
        let on = |bit: u32| extra & 1 << bit != 0;
        macro_rules! set {
            ($($bit:literal $field:ident = $value:expr;)*) => { $(if on($bit) { attr.$field = Some($value); })* };
        }
        set! {
            8 cur_qp_state = QpState::ALL[usize::from(value) % QpState::ALL.len()];
            9 pkey_index = u16::from(value);
            10 port_num = value;
            11 qp_access_flags = Access::from_bits_retain(value.into());
            12 qkey = QKey(value.into());
            13 ah_attr = vector(self.sides[1 - side].addr);
            14 alt_ah_attr = vector(self.sides[side].addr);
            15 path_mtu = PathMtu::ALL[usize::from(value) % 5];
            16 dest_qp_num = Qpn::new(value.into());
            17 rq_psn = Psn::new(0x80_0000 + (self.next_id as u32) * 0x400);
            18 sq_psn = Psn::new(0x80_0000 + (self.next_id as u32) * 0x400);
            19 max_rd_atomic = value;
            20 max_dest_rd_atomic = value;
            21 min_rnr_timer = value;
            22 timeout = value;
            23 retry_cnt = value;
            24 rnr_retry = value;
            25 en_sqd_async_notify = value & 1 == 0;
            26 path_mig_state = MigState::Migrated;
        }
    }

    pub(crate) fn send(&mut self, which: Which, send: Send) {
        let (conn, side) = World::place(which);
        let id = self.id();
        let peer_name = |area, at| self.sides[1 - side].name(area, at);
        let len = usize::from(send.len) % (LONGEST + 1);
        let at = usize::from(send.at) % (4096 - LONGEST);
        let to = usize::from(send.at >> 3) % (4096 - LONGEST);
        let Some(queue) = &mut self.queues[conn][side] else { return };
        if !queue.state().may_post_send() {
            return;
        }
        let message = |from| Message { id, len, from };
        let imm = ImmData(id as u32);
        let (va, rkey) = match send.verb % 8 {
            3 | 4 => peer_name(TARGET, to),
            5 => peer_name(STOCK, at),
            _ => peer_name(WORD, 0),
        };
        let rkey = Rkey(if send.flags & 0x80 != 0 && send.flags & 0x40 != 0 { rkey ^ 1 } else { rkey });
        let bit = u32::try_from(id % 64).expect("small");
        let (op, consumes) = match send.verb % 8 {
            0 | 7 => (SendOp::Send, Some(Some(at))),
            1 | 2 => (SendOp::SendImm(imm), Some(Some(at))),
            3 => (SendOp::Write { va, rkey }, None),
            4 => (SendOp::WriteImm { va, rkey, imm }, Some(None)),
            5 => (SendOp::Read { va, rkey }, None),
            _ => (SendOp::FetchAdd { va, rkey, add: 1 << bit }, None),
        };
        let is_add = matches!(op, SendOp::FetchAdd { .. });
        // Each bit once, or adding it again would carry.
        if is_add && self.sides[1 - side].bits.0 & 1 << bit != 0 {
            return;
        }
        let len = if is_add { 8 } else { len };
        let (area, at) = match op.is_read_or_atomic() {
            true => match self.sides[side].room(SINK, len) {
                Some(at) => (SINK, at),
                None => return,
            },
            false => (SOURCE, at),
        };
        let mut flags = SendFlags::from_bits_truncate(u32::from(send.flags & 7));
        let pieces = self.sides[side].sges(area, at, len);
        let inline: Vec<u8> = (at..at + len).map(pattern).collect();
        let inline = [&inline[..]];
        let is_inline = send.flags & 8 != 0 && len <= 64 && area == SOURCE;
        flags.set(SendFlags::INLINE, is_inline);
        let sges = if is_inline {
            &[][..]
        } else if is_add {
            &pieces_of_one(&pieces)[..]
        } else {
            &pieces[..]
        };
        let wr = SendWr { wr_id: WrId(id), op, flags, sges, inline: if is_inline { &inline } else { &[] } };
        if queue.handle.sq.post(&wr, 1 << 20).is_err() {
            return;
        }
        let brings = match (op, consumes) {
            (_, Some(from)) => {
                queue.messages.push(message(from));
                Brings::Message(queue.messages.len() - 1)
            }
            (SendOp::Read { .. }, _) => Brings::Stock((va & 0xFFF) as usize, Side::range(SINK, at, len)),
            (SendOp::FetchAdd { .. }, _) => Brings::Bit(bit),
            _ => Brings::Nothing,
        };
        if let SendOp::Write { .. } | SendOp::WriteImm { .. } = op {
            self.sides[1 - side].may_write(at, to, len);
        }
        if is_add {
            self.sides[1 - side].bits.0 |= 1 << bit;
        }
        let signaled = queue.sig_all || flags.contains(SendFlags::SIGNALED);
        queue.sends.push_back(Sent { id, signaled, brings });
        self.sides[side].endpoint.doorbell(self.now, queue.handle.qpn);
        self.turn();
    }

    pub(crate) fn recv(&mut self, which: Which, len: usize) {
        let (conn, side) = World::place(which);
        let id = self.id();
        let Some(queue) = &mut self.queues[conn][side] else { return };
        if !queue.state().may_post_recv() {
            return;
        }
        let Some(at) = self.sides[side].room(RECV, len) else { return };
        let sges = self.sides[side].sges(RECV, at, len);
        if queue.handle.rq.post(&RecvWr { wr_id: WrId(id), sges: &sges }).is_ok() {
            queue.recvs.push_back((id, Side::range(RECV, at, len)));
            self.sides[side].endpoint.doorbell(self.now, queue.handle.qpn);
            self.turn();
        }
    }

    pub(crate) fn destroy(&mut self, which: Which) {
        let (conn, side) = World::place(which);
        // What has completed is polled first; nothing may come after.
        self.poll(which.side, usize::MAX);
        if let Some(queue) = self.queues[conn][side].take() {
            self.sides[side].endpoint.destroy_qp(queue.handle.qpn).expect("there is one");
            if let Some(peer) = &mut self.queues[conn][1 - side] {
                peer.broken = true;
            }
        }
        self.turn();
    }

    pub(crate) fn rekey(&mut self, side: bool, area: u8) {
        self.sides[usize::from(side)].rekey(area);
    }

    pub(crate) fn arm(&mut self, side: bool, solicited: bool) {
        self.sides[usize::from(side)].cq.arm(solicited);
    }

    pub(crate) fn poll(&mut self, side: bool, most: usize) {
        let side = usize::from(side);
        for _ in 0..most {
            let Some(wc) = self.sides[side].cq.poll_one() else { break };
            self.completed(side, &wc);
        }
    }

    fn completed(&mut self, side: usize, wc: &Wc) {
        let qpn = |queues: &[Option<Queue>; 2]| queues[side].as_ref().map(|q| q.handle.qpn);
        let conn = self.queues.iter().position(|queues| qpn(queues) == Some(wc.qpn));
        let Some(conn) = conn else { panic!("{wc:?} of a queue pair that is gone") };
        let [a, b] = &mut self.queues[conn];
        let (queue, peer) = if side == 0 { (a, b) } else { (b, a) };
        let queue = queue.as_mut().expect("it is there");
        if let Some(range) = queue.take_recv(wc) {
            if wc.status.is_success() {
                let bytes = self.sides[side].bytes(range);
                match peer {
                    Some(peer) => received(queue, peer, wc, &bytes),
                    None => queue.broken = true,
                }
            }
            return;
        }
        for sent in queue.take_send(wc) {
            match sent.brings {
                Brings::Message(n) => queue.acknowledged = queue.acknowledged.max(n + 1),
                Brings::Stock(from, range) => {
                    let bytes = self.sides[side].bytes(range);
                    let right = bytes.iter().enumerate().all(|(i, b)| *b == pattern(from + i));
                    assert!(right, "READ {} brought other bytes", sent.id);
                }
                Brings::Bit(bit) => self.sides[1 - side].bits.1 |= 1 << bit,
                Brings::Nothing => {}
            }
        }
    }

    /// Both sides send what they can.
    fn turn(&mut self) {
        for side in 0..2 {
            for sent in 0.. {
                assert!(sent < TURN, "it never stops sending");
                let mut sink = Sink { head: Vec::new(), tail: Vec::new(), split: self.split };
                let Some(transmit) = self.sides[side].endpoint.poll_transmit(self.now, &mut sink) else { break };
                let mut bytes = sink.head;
                bytes.extend(sink.tail);
                assert_eq!(bytes.len(), transmit.len);
                let packet = Packet::new_checked(&bytes, &[]).expect("what is sent is a packet");
                assert!(packet.icrc_ok() && packet.pad_is_right());
                if self.link.len() < LINK {
                    self.link.push_back((1 - side, bytes));
                }
            }
            while self.sides[side].endpoint.poll_event().is_some() {}
            while self.sides[side].endpoint.poll_wakeup().is_some() {}
        }
    }

    pub(crate) fn deliver(&mut self, frames: usize) {
        for _ in 0..frames {
            let Some((side, bytes)) = self.link.pop_front() else { break };
            let (head, tail) = bytes.split_at(self.split.min(bytes.len()));
            let _ = self.sides[side].endpoint.handle_packet(self.now, &RxMeta::default(), RxPacket { head, tail });
            self.turn();
        }
    }

    fn frame(&self, at: u8) -> Option<usize> {
        usize::from(at).checked_rem(self.link.len())
    }

    pub(crate) fn lose(&mut self, at: u8) {
        if let Some(at) = self.frame(at) {
            self.link.remove(at);
        }
    }

    pub(crate) fn twice(&mut self, at: u8) {
        if let Some(frame) = self.frame(at).and_then(|at| self.link.get(at)).cloned() {
            self.link.push_back(frame);
        }
    }

    pub(crate) fn late(&mut self, at: u8) {
        if let Some(frame) = self.frame(at).and_then(|at| self.link.remove(at)) {
            self.link.push_back(frame);
        }
    }

    pub(crate) fn flip(&mut self, at: u8, bit: u16) {
        if let Some((_, bytes)) = self.frame(at).and_then(|at| self.link.get_mut(at)) {
            let bit = usize::from(bit) % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    pub(crate) fn pass(&mut self, ns: u64) {
        self.now = self.now.add_ns(ns);
        for side in &mut self.sides {
            side.endpoint.handle_timeout(self.now);
        }
        self.turn();
    }

    pub(crate) fn tick(&mut self) {
        let next = self.sides.iter().filter_map(|side| side.endpoint.poll_timeout()).min();
        if let Some(next) = next {
            self.pass(next.since_ns(self.now).max(1));
        }
    }

    /// Everything is put in error, what is owed comes, and everything goes.
    pub(crate) fn finish(mut self) {
        self.poll(false, usize::MAX);
        self.poll(true, usize::MAX);
        for conn in 0..CONNECTIONS {
            for side in 0..2 {
                self.end(conn, side);
            }
            self.compare(conn);
        }
        for side in &self.sides {
            side.verify();
        }
        for (conn, side) in (0..CONNECTIONS as u8).flat_map(|conn| [(conn, false), (conn, true)]) {
            self.destroy(Which { conn, side });
        }
        self.sides.iter().for_each(Side::take_down);
    }

    fn end(&mut self, conn: usize, side: usize) {
        let Some(queue) = &self.queues[conn][side] else { return };
        let reset = queue.state() == QpState::Reset;
        if !reset {
            let attr = QpAttr { qp_state: Some(QpState::Err), ..QpAttr::default() };
            self.call(conn, side, &attr).expect("any state but RESET may go to ERR");
        }
        self.turn();
        self.poll(side == 1, usize::MAX);
        let Some(queue) = &self.queues[conn][side] else { return };
        if !self.sides[side].cq.is_overrun() {
            let silent = queue.sends.iter().all(|sent| !sent.signaled);
            assert!(silent, "requests {:?} never completed", queue.sends);
            assert!(queue.recvs.is_empty(), "RECVs {:?} never completed", queue.recvs);
        }
    }

    /// What an RC end takes for delivered was delivered.
    fn compare(&self, conn: usize) {
        let [Some(a), Some(b)] = &self.queues[conn] else { return };
        let whole = !a.broken && !b.broken && !a.uc && self.sides.iter().all(|side| !side.cq.is_overrun());
        for (sender, receiver) in [(a, b), (b, a)] {
            let (acknowledged, received) = (sender.acknowledged, receiver.received);
            assert!(!whole || acknowledged <= received, "{acknowledged} messages acknowledged, {received} received");
        }
    }
}

/// A RECV completed with a message of the peer.
fn received(queue: &mut Queue, peer: &Queue, wc: &Wc, bytes: &[u8]) {
    let len = wc.byte_len as usize;
    let imm = wc.imm_data().map(|imm| u64::from(imm.0));
    let is_it = |message: &&Message| {
        message.len == len
            && imm.is_none_or(|imm| imm == message.id)
            && match message.from {
                Some(from) => (0..len).all(|i| bytes.get(i) == Some(&pattern(from + i))),
                None => wc.opcode == WcOpcode::RecvRdmaWithImm,
            }
    };
    let unbroken = !queue.broken && !peer.broken && !queue.uc;
    if unbroken {
        let next = peer.messages.get(queue.received);
        assert!(next.is_some_and(|m| is_it(&m)), "{wc:?} is not the next message, {next:?}");
        assert!(
            wc.opcode == WcOpcode::RecvRdmaWithImm || bytes[len..].iter().all(|b| *b == BLANK),
            "{wc:?}: more came"
        );
    } else {
        assert!(peer.messages.iter().any(|m| is_it(&m)), "{wc:?} is no message that was sent");
    }
    queue.received += 1;
}

/// Eight bytes in one piece, as atomics want them.
fn pieces_of_one(pieces: &[xroce_transport::wr::Sge; 2]) -> [xroce_transport::wr::Sge; 1] {
    [xroce_transport::wr::Sge { length: 8, ..pieces[0] }]
}

fn vector(dgid: Gid) -> AddressVector {
    AddressVector {
        dgid,
        sgid_index: 0,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
        sl: 0,
        port_num: 1,
        is_global: true,
    }
}
