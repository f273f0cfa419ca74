//! One end of the lab: an endpoint of the transport with one queue pair, its memory, and an application that follows a plan.
//!
//! In: verbs calls and packets. Out: packets, and a [`State`] to show at any moment.

use std::sync::Arc;

use xroce_port::Port;
use xroce_port::fault::Fault;
use xroce_port::sim::SimPort;
use xroce_transport::cq::Cq;
use xroce_transport::memory::{Access, Memory};
use xroce_transport::qp::state::{AddressVector, QpAttr, QpState, QpType};
use xroce_transport::qp::{QpHandle, QpInit, QpSnapshot};
use xroce_transport::wc::WcStatus;
use xroce_transport::wr::{QpCap, RecvWr, SendFlags, SendOp, SendWr, Sge, WrId};
use xroce_transport::{
    Endpoint, EndpointConfig, Instant, PathId, QpPath, QpnSpace, Transmit, TxClass, TxPacket, TxSink,
};
use xroce_wire::{Gid, Lkey, Psn, Qpn, Rkey};

use super::memory::Block;
use crate::ladder::State;
use crate::requests::Requests;
use crate::scenario::{Op, Setup};

/// The first address of the memory that an end registers.
pub(super) const IOVA: u64 = 0x1_0000;
/// Bytes of it.
const MEMORY: usize = 64 << 10;
/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;

/// What an end knows of the other.
#[derive(Clone, Copy)]
pub(super) struct Remote {
    pub(super) qpn: Qpn,
    pub(super) address: Gid,
    pub(super) rkey: Rkey,
    pub(super) mac: [u8; 6],
}

/// One end.
pub(super) struct Node {
    // Dropped before the memory that is registered with it.
    pub(super) endpoint: Endpoint,
    pub(super) port: Fault<SimPort>,
    /// Of the send queue and of the receive queue.
    pub(super) cqs: [Arc<Cq>; 2],
    handle: QpHandle,
    pub(super) address: Gid,
    key: u32,
    setup: Setup,
    sq_psn: Psn,
    rq_psn: Psn,
    requests: Requests,
    /// The word of the memory that is watched.
    watch: Option<usize>,
    block: Block,
}

impl Node {
    /// In RESET. `index` is 0 or 1.
    pub(super) fn new(index: usize, port: SimPort, setup: &Setup) -> Node {
        let memory = Arc::new(Memory::new([0x7A11 + index as u64, 0x1AB], 16, 0));
        let pd = memory.alloc_pd().expect("a new device has protection domains");
        let cqs = [0, 1].map(|id| Cq::new(id, 256).expect("a small CQ"));
        let config = EndpointConfig {
            // Numbers that look different: 0x010011 and 0x010022.
            qpns: QpnSpace { process_slot: 0, offset: 0x11 * (index as u32 + 1), stride: 0x100 },
            credits: setup.credits,
            ..EndpointConfig::default()
        };
        let mut endpoint = Endpoint::new(config, Arc::clone(&memory));
        let cap = QpCap { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        let [send_cq, recv_cq] = cqs.clone();
        let init = QpInit { kind: setup.kind, pd, send_cq, recv_cq, cap, sq_sig_all: true };
        let handle = endpoint.create_qp(init).expect("a queue pair of small capacities");
        let block = Block::new(MEMORY);
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let region = block.region();
        let key = memory.register(pd, region, Some(IOVA), rights).expect("memory that can be registered").key;
        let [own, other] = [setup.psns[index], setup.psns[1 - index]].map(Psn::new);
        Node {
            endpoint,
            port: Fault::new(port, 1),
            cqs,
            handle,
            address: Gid::from_ipv4([192, 0, 2, index as u8 + 1].into()),
            key,
            setup: setup.clone(),
            sq_psn: own,
            rq_psn: other,
            requests: Requests::default(),
            watch: None,
            block,
        }
    }

    pub(super) fn qpn(&self) -> Qpn {
        self.handle.qpn
    }

    pub(super) fn remote(&self) -> Remote {
        let mac = self.port.capabilities().mac;
        Remote { qpn: self.qpn(), address: self.address, rkey: Rkey(self.key), mac }
    }

    /// Shows a word of this end's memory from now on, which holds `value`.
    pub(super) fn watch(&mut self, word: usize, value: u64) {
        self.block.set_word(word, value);
        self.watch = Some(word);
    }

    pub(super) fn snapshot(&self) -> QpSnapshot {
        self.endpoint.snapshot_qp(self.qpn()).expect("the queue pair lives as long as the lab")
    }

    /// Posts a send request to the other end's memory.
    pub(super) fn post_send(
        &mut self,
        now: Instant,
        (wr_id, op, len): (u64, Op, u32),
        to: &Remote,
    ) -> Result<(), String> {
        if !self.handle.state.load().may_post_send() {
            return Err(format!("send requests need RTS, the queue pair is in {}", self.handle.state.load()));
        }
        let (va, rkey) = (IOVA, to.rkey);
        let op = match op {
            Op::Send => SendOp::Send,
            Op::Write => SendOp::Write { va, rkey },
            Op::WriteWithKey(key) => SendOp::Write { va, rkey: Rkey(key) },
            Op::Read => SendOp::Read { va, rkey },
            Op::FetchAdd(add) => SendOp::FetchAdd { va, rkey, add },
        };
        let sges = [Sge { addr: IOVA, length: len, lkey: Lkey(self.key) }];
        let wr = SendWr { wr_id: WrId(wr_id), op, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] };
        self.handle.sq.post(&wr, 1 << 31).map_err(|e| e.to_string())?;
        self.requests.post_send(wr_id, op.name(), len);
        self.endpoint.doorbell(now, self.handle.qpn);
        Ok(())
    }

    /// Posts a RECV.
    pub(super) fn post_recv(&mut self, now: Instant, wr_id: u64, len: u32) -> Result<(), String> {
        if !self.handle.state.load().may_post_recv() {
            return Err(format!("a RECV needs INIT, the queue pair is in {}", self.handle.state.load()));
        }
        let sges = [Sge { addr: IOVA, length: len, lkey: Lkey(self.key) }];
        self.handle.rq.post(&RecvWr { wr_id: WrId(wr_id), sges: &sges }).map_err(|e| e.to_string())?;
        self.requests.post_recv(wr_id, len);
        self.endpoint.doorbell(now, self.handle.qpn);
        Ok(())
    }

    /// Moves the queue pair to `state`, with the attributes that the step asks for.
    pub(super) fn modify(&mut self, now: Instant, state: QpState, to: &Remote) -> Result<(), String> {
        let attr = self.attributes(state, to);
        let path = QpPath {
            path: PathId(0),
            src: self.address,
            dst: to.address,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        };
        let path = attr.ah_attr.is_some().then_some(path);
        self.endpoint.modify_qp(now, self.qpn(), &attr, path).map_err(|e| e.to_string())?;
        if state == QpState::Reset {
            self.requests.forget();
        }
        Ok(())
    }

    fn attributes(&self, state: QpState, to: &Remote) -> QpAttr {
        let setup = &self.setup;
        let rc = setup.kind == QpType::Rc;
        let attr = QpAttr { qp_state: Some(state), ..QpAttr::default() };
        // RTS is entered from RTR with the attributes of sending, from SQD without any.
        match (state, self.handle.state.load()) {
            (QpState::Init, _) => QpAttr {
                pkey_index: Some(0),
                port_num: Some(1),
                qp_access_flags: Some(Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC),
                ..attr
            },
            (QpState::Rtr, _) => QpAttr {
                ah_attr: Some(address_vector(to.address)),
                path_mtu: Some(setup.mtu),
                dest_qp_num: Some(to.qpn),
                rq_psn: Some(self.rq_psn),
                max_dest_rd_atomic: rc.then_some(setup.rd_atomic),
                min_rnr_timer: rc.then_some(setup.min_rnr_timer),
                ..attr
            },
            (QpState::Rts, QpState::Rtr) => QpAttr {
                sq_psn: Some(self.sq_psn),
                timeout: rc.then_some(setup.timeout),
                retry_cnt: rc.then_some(setup.retry_cnt),
                rnr_retry: rc.then_some(setup.rnr_retry),
                max_rd_atomic: rc.then_some(setup.rd_atomic),
                ..attr
            },
            (QpState::Sqd, _) => QpAttr { en_sqd_async_notify: Some(true), ..attr },
            _ => attr,
        }
    }

    /// The completion of a request: remembers it.
    pub(super) fn completed(&mut self, recv: bool, wr_id: u64, status: WcStatus) {
        self.requests.completed(recv, wr_id, status.to_string(), status.is_success());
    }

    /// What there is to show.
    pub(super) fn state(&self) -> State {
        let qp = self.snapshot();
        let (sends, recvs) = self.requests.shown(&qp);
        let retries = (self.setup.retry_cnt, self.setup.rnr_retry);
        State { qp, retries, sends, recvs, memory: self.memory() }
    }

    pub(super) fn memory(&self) -> Option<u64> {
        self.watch.map(|word| self.block.word(word))
    }

    /// The next packet that this end sends, if it may send one now and the port has room for it.
    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<(Vec<u8>, TxClass, Transmit)> {
        // Learns what the wire has taken meanwhile.
        self.port.tx_flush();
        let mut sink = Sink { port: &mut self.port, bytes: Vec::new(), class: TxClass::Request };
        let transmit = self.endpoint.poll_transmit(now, &mut sink)?;
        let (bytes, class) = (sink.bytes, sink.class);
        Some((bytes, class, transmit))
    }

    /// Commits a packet to the port.
    pub(super) fn send(&mut self, packet: &[u8], class: TxClass, to: &Remote) {
        let class = match class {
            TxClass::Request => xroce_port::TxClass::Request,
            TxClass::Response => xroce_port::TxClass::Response,
        };
        let from = self.port.capabilities().mac;
        let mut frame = Vec::with_capacity(ETHERNET + packet.len());
        frame.extend(to.mac);
        frame.extend(from);
        frame.extend([0x08, 0x00]);
        frame.extend(packet);
        let room = self.port.tx_reserve(frame.len(), class).expect("there was room when the packet was made");
        let (head, tail) = frame.split_at(room.head.len());
        room.head.copy_from_slice(head);
        room.tail.copy_from_slice(tail);
        self.port.tx_commit(frame.len());
        self.port.tx_flush();
    }
}

fn address_vector(dgid: Gid) -> AddressVector {
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

/// Has packets written into a buffer of their own, as long as the port has room for them.
struct Sink<'a> {
    port: &'a mut Fault<SimPort>,
    bytes: Vec<u8>,
    class: TxClass,
}

impl TxSink for Sink<'_> {
    fn reserve(&mut self, _path: PathId, len: usize, class: TxClass) -> Option<TxPacket<'_>> {
        let port_class = match class {
            TxClass::Request => xroce_port::TxClass::Request,
            TxClass::Response => xroce_port::TxClass::Response,
        };
        self.port.tx_reserve(ETHERNET + len, port_class)?;
        self.class = class;
        self.bytes = vec![0; len];
        Some(TxPacket { head: &mut self.bytes, tail: &mut [] })
    }
}
