//! S10: the ways of a packet through the transport, one function each, so that callgrind can count what lies inside.
//!
//! In: how many rounds. Out: nothing but the work. Two endpoints, a table for a wire, no engine and no clock. A function
//! named `meter_...` encloses exactly one way; what stands between them is set-up and is not counted.

use std::hint::black_box;
use std::sync::Arc;

use xroce_transport::cq::Cq;
use xroce_transport::memory::{Access, Memory, Pd, Reader, Region};
use xroce_transport::qp::state::{AddressVector, QpAttr, QpState, QpType};
use xroce_transport::qp::{QpHandle, QpInit};
use xroce_transport::wc::Wc;
use xroce_transport::wr::{QpCap, RecvWr, SendFlags, SendOp, SendWr, Sge, WrId};
use xroce_transport::{Endpoint, EndpointConfig, Instant, PathId, QpPath, RxMeta, RxPacket, TxClass, TxPacket, TxSink};
use xroce_wire::{Gid, Lkey, PathMtu, Psn, Rkey};

use crate::pair::Result;

/// Packets the wire holds.
const SLOTS: usize = 64;
const SLOT: usize = 4096 + 128;
const MEMORY: usize = 64 << 10;
const NOW: Instant = Instant(1_000_000_000);

/// A wire that holds what one end has sent.
struct Wire {
    bytes: Vec<u8>,
    lens: Vec<usize>,
}

impl Wire {
    fn new() -> Wire {
        Wire { bytes: vec![0; SLOTS * SLOT], lens: Vec::with_capacity(SLOTS) }
    }

    fn packets(&self) -> impl Iterator<Item = RxPacket<'_>> {
        self.bytes.chunks_exact(SLOT).zip(&self.lens).map(|(slot, len)| RxPacket { head: &slot[..*len], tail: &[] })
    }
}

impl TxSink for Wire {
    #[inline]
    fn reserve(&mut self, _: PathId, len: usize, _: TxClass) -> Option<TxPacket<'_>> {
        let at = self.lens.len() * SLOT;
        (self.lens.len() < SLOTS).then(|| TxPacket { head: &mut self.bytes[at..at + len], tail: &mut [] })
    }
}

/// One end.
struct Node {
    endpoint: Endpoint,
    memory: Arc<Memory>,
    reader: Reader,
    pd: Pd,
    cq: Arc<Cq>,
    qp: QpHandle,
    gid: Gid,
    buffer: Box<[u8]>,
    key: u32,
}

impl Node {
    #[allow(unsafe_code, reason = "memory is registered below the layer that owns it")]
    fn new(number: u8) -> Result<Node> {
        let memory = Arc::new(Memory::new([u64::from(number), 7], 16, 0));
        let pd = memory.alloc_pd()?;
        let cq = Cq::new(u64::from(number), 256)?;
        let mut endpoint = Endpoint::new(EndpointConfig::default(), Arc::clone(&memory));
        let cap = QpCap { max_send_wr: 64, max_recv_wr: 64, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 64 };
        let (send_cq, recv_cq) = (Arc::clone(&cq), Arc::clone(&cq));
        let qp = endpoint.create_qp(QpInit { kind: QpType::Rc, pd, send_cq, recv_cq, cap, sq_sig_all: false })?;
        let mut buffer = vec![number; MEMORY].into_boxed_slice();
        // SAFETY: the box lives as long as the node with endpoint and memory, nobody looks into it while they are used, and
        // `reader` stays pinned.
        let region = unsafe { Region::new(buffer.as_mut_ptr(), MEMORY) };
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let key = memory.register(pd, region, Some(0), all)?.key;
        let reader = memory.reader();
        reader.pin();
        let gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, number]);
        Ok(Node { endpoint, memory, reader, pd, cq, qp, gid, buffer, key })
    }

    fn connect(&mut self, peer: &Node, mtu: PathMtu) -> Result<()> {
        let path =
            QpPath { path: PathId(0), src: self.gid, dst: peer.gid, hop_limit: 64, traffic_class: 0, flow_label: 0 };
        let vector = AddressVector {
            dgid: peer.gid,
            sgid_index: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            sl: 0,
            port_num: 1,
            is_global: true,
        };
        let to_init = QpAttr {
            qp_state: Some(QpState::Init),
            pkey_index: Some(0),
            port_num: Some(1),
            qp_access_flags: Some(Access::REMOTE_WRITE | Access::REMOTE_READ),
            ..QpAttr::default()
        };
        let to_rtr = QpAttr {
            qp_state: Some(QpState::Rtr),
            ah_attr: Some(vector),
            path_mtu: Some(mtu),
            dest_qp_num: Some(peer.qp.qpn),
            rq_psn: Some(Psn::new(0)),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(12),
            ..QpAttr::default()
        };
        let to_rts = QpAttr {
            qp_state: Some(QpState::Rts),
            sq_psn: Some(Psn::new(0)),
            timeout: Some(14),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(1),
            ..QpAttr::default()
        };
        for (attr, path) in [(to_init, None), (to_rtr, Some(path)), (to_rts, None)] {
            self.endpoint.modify_qp(NOW, self.qp.qpn, &attr, path)?;
        }
        Ok(())
    }

    fn sge(&self, length: u32) -> Sge {
        Sge { addr: 0, length, lkey: Lkey(self.key) }
    }
}

/// Posts send requests and rings the bell: the application's side of sending.
#[inline(never)]
fn meter_post(node: &mut Node, wr: &SendWr<'_>, count: usize) {
    for _ in 0..count {
        let posted = node.qp.sq.post(wr, 1 << 31);
        assert!(posted.is_ok());
    }
    node.endpoint.doorbell(NOW, node.qp.qpn);
}

/// Request packets onto the wire.
#[inline(never)]
fn meter_send(node: &mut Node, wire: &mut Wire) {
    while let Some(transmit) = node.endpoint.poll_transmit(NOW, wire) {
        wire.lens.push(transmit.len);
    }
}

/// Request packets off the wire.
#[inline(never)]
fn meter_receive(node: &mut Node, wire: &Wire) {
    for packet in wire.packets() {
        let handled = node.endpoint.handle_packet(NOW, &RxMeta::default(), packet);
        assert!(handled.is_ok());
    }
}

/// What is owed for them onto the wire.
#[inline(never)]
fn meter_acknowledge(node: &mut Node, wire: &mut Wire) {
    // Or the compiler sees that this is `meter_send` once more, and makes one function of both.
    black_box("acknowledge");
    while let Some(transmit) = node.endpoint.poll_transmit(NOW, wire) {
        wire.lens.push(transmit.len);
    }
}

/// ACKs off the wire: requests are done.
#[inline(never)]
fn meter_complete(node: &mut Node, wire: &Wire) {
    black_box("complete");
    for packet in wire.packets() {
        let handled = node.endpoint.handle_packet(NOW, &RxMeta::default(), packet);
        assert!(handled.is_ok());
    }
}

/// Takes completions: the application's side of being done.
#[inline(never)]
fn meter_poll(node: &Node) -> usize {
    let mut wcs = [Wc::default(); 16];
    let mut count = 0;
    loop {
        match black_box(node.cq.poll(&mut wcs)) {
            0 => return count,
            n => count += n,
        }
    }
}

/// What is sent in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// WRITE, or SEND to a RECV.
    pub write: bool,
    /// Bytes of a message.
    pub size: u32,
    /// Messages posted at a time.
    pub batch: usize,
}

/// Carries out `rounds` rounds of posting, sending, receiving, acknowledging and completing.
///
/// # Errors
/// When the endpoints cannot be made or the round is not what it should be.
pub fn run(traffic: Traffic, rounds: usize) -> Result<()> {
    let (mut a, mut b) = (Node::new(1)?, Node::new(2)?);
    a.connect(&b, PathMtu::Mtu1024)?;
    b.connect(&a, PathMtu::Mtu1024)?;
    let (mut there, mut back) = (Wire::new(), Wire::new());
    let op = if traffic.write { SendOp::Write { va: 0, rkey: Rkey(b.key) } } else { SendOp::Send };
    let (sges, places) = ([a.sge(traffic.size)], [b.sge(traffic.size)]);
    for _ in 0..rounds {
        if !traffic.write {
            for _ in 0..traffic.batch {
                b.qp.rq.post(&RecvWr { wr_id: WrId(0), sges: &places })?;
            }
        }
        let wr = SendWr { wr_id: WrId(0), op, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] };
        meter_post(&mut a, &wr, traffic.batch);
        meter_send(&mut a, &mut there);
        meter_receive(&mut b, &there);
        meter_acknowledge(&mut b, &mut back);
        meter_complete(&mut a, &back);
        let (sent, done) = (there.lens.len(), meter_poll(&a));
        if done != traffic.batch || sent != traffic.packets() || back.lens.len() != 1 {
            return Err(format!("{traffic:?}: {sent} packets, {done} done, {} ACKs", back.lens.len()).into());
        }
        std::iter::from_fn(|| b.cq.poll_one()).for_each(drop);
        there.lens.clear();
        back.lens.clear();
    }
    a.reader.unpin();
    b.reader.unpin();
    // Whatever was registered goes before the memory that it names.
    drop((a.endpoint, a.memory, a.pd, a.buffer));
    Ok(())
}

impl Traffic {
    /// Request packets of a round.
    pub fn packets(&self) -> usize {
        self.batch * (self.size as usize).div_ceil(PathMtu::Mtu1024.bytes()).max(1)
    }
}
