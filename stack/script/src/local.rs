//! A device in this process: an [`Endpoint`] in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use xroce_transport::cq::Cq;
use xroce_transport::memory::{Memory, Pd};
use xroce_transport::qp::state::{QpAttr, QpState};
use xroce_transport::qp::{QpHandle, QpInit};
use xroce_transport::wr::{QpCap, RecvWr, SendWr, Sge, WrId};
use xroce_transport::{
    DropReason, Endpoint, EndpointConfig, Instant, Limits, PathId, QpPath, RxMeta, RxPacket, TxClass, TxPacket, TxSink,
};
use xroce_wire::{Gid, Lkey, Qpn};

use crate::history::{Deed, History, Moment};
use crate::memory::Block;
use crate::model::{CqSide, MrSpec, QpSetup, Span, Step};
use crate::names::EventName;
use crate::target::{Connection, RecvRequest, Registered, Seen, SendRequest, Target, What};

/// Not 0, so that a time that was never set shows.
const START: Instant = Instant(1_000_000_000);
/// What a step of the device takes at most beyond the time it waits for, in parts of that time.
const SLACK_PART: u64 = 20;

struct Mr {
    block: Block,
    va: u64,
    key: u32,
}

/// The queue pair, once it is made.
struct Connected {
    handle: QpHandle,
    path: QpPath,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
}

/// An endpoint in virtual time.
pub struct LocalTarget {
    // Dropped before the memory that is registered with it.
    endpoint: Endpoint,
    memory: Arc<Memory>,
    pd: Pd,
    foreign_pd: Pd,
    mrs: BTreeMap<String, Mr>,
    connected: Option<Connected>,
    now: Instant,
    seen: VecDeque<Seen>,
    /// Where somebody looks on.
    history: Option<History>,
}

impl Default for LocalTarget {
    fn default() -> Self {
        LocalTarget::new()
    }
}

/// Limits that scripts can reach.
fn config() -> EndpointConfig {
    EndpointConfig { limits: Limits::default(), ..EndpointConfig::default() }
}

struct Sink(Vec<u8>);

impl TxSink for Sink {
    fn reserve(&mut self, _path: PathId, len: usize, _class: TxClass) -> Option<TxPacket<'_>> {
        // Old bytes, to see that every byte of a packet is written.
        self.0 = vec![0xA5; len];
        Some(TxPacket { head: &mut self.0, tail: &mut [] })
    }
}

impl LocalTarget {
    /// A device without queue pairs.
    pub fn new() -> LocalTarget {
        let memory = Arc::new(Memory::new([0x0123_4567, 0x89AB_CDEF], 256, 0));
        let pd = || memory.alloc_pd().expect("a new device has protection domains");
        let (own, foreign) = (pd(), pd());
        LocalTarget {
            endpoint: Endpoint::new(config(), Arc::clone(&memory)),
            memory,
            pd: own,
            foreign_pd: foreign,
            mrs: BTreeMap::new(),
            connected: None,
            now: START,
            seen: VecDeque::new(),
            history: None,
        }
    }

    /// One that writes down what it does and has done to it.
    pub fn watched() -> LocalTarget {
        LocalTarget { history: Some(History::default()), ..LocalTarget::new() }
    }

    /// What it wrote down, which is nothing unless it is [`watched`](Self::watched).
    pub fn into_history(mut self) -> Vec<Moment> {
        self.history.take().map_or(Vec::new(), History::moments)
    }

    /// Writes a deed down where somebody looks on.
    fn record(&mut self, deed: impl FnOnce(&mut History) -> Deed) {
        if let (Some(history), Some(connected)) = (&mut self.history, &self.connected) {
            let deed = deed(history);
            history.record(&self.endpoint, &connected.handle, (START, self.now), deed);
        }
    }

    /// What became of a call, for who looks on.
    fn told<T>(&mut self, done: Result<T, String>) -> Result<T, String> {
        if let Some(history) = &mut self.history {
            history.refused = done.as_ref().err().cloned();
        }
        done
    }

    fn qp(&self) -> &Connected {
        self.connected.as_ref().expect("a script makes its queue pair first")
    }

    fn qpn(&self) -> Qpn {
        self.qp().handle.qpn
    }

    /// Everything the device does now, without waiting.
    fn pump(&mut self) {
        self.endpoint.handle_timeout(self.now);
        self.record(|_| Deed::Timers);
        loop {
            let mut sink = Sink(Vec::new());
            if self.endpoint.poll_transmit(self.now, &mut sink).is_none() {
                break;
            }
            self.see(What::Packet(sink.0));
        }
        self.collect();
    }

    /// Completions, events and wake-ups that have become visible.
    fn collect(&mut self) {
        let Some(connected) = &self.connected else { return };
        let queues = [(CqSide::Send, Arc::clone(&connected.send_cq)), (CqSide::Recv, Arc::clone(&connected.recv_cq))];
        for (side, cq) in queues {
            while let Some(wc) = cq.poll_one() {
                self.see(What::Completion(side, wc));
            }
        }
        while let Some(event) = self.endpoint.poll_event() {
            self.see(What::Event(EventName::Async(event.kind)));
        }
        while self.endpoint.poll_wakeup().is_some() {
            self.see(What::Event(EventName::Wakeup));
        }
    }

    fn see(&mut self, what: What) {
        self.record(|_| match &what {
            What::Packet(bytes) => Deed::Sent(bytes.clone()),
            What::Completion(side, wc) => Deed::Completed(*side, *wc),
            What::Event(event) => Deed::Event(*event),
        });
        self.seen.push_back(Seen { at: self.now, what });
    }

    /// Pieces of regions as work requests name them. They may reach out of their region.
    fn sges(&self, spans: &[Span], lkey: Option<u32>) -> Result<Vec<Sge>, String> {
        let piece = |span: &Span| {
            let mr = self.mrs.get(&span.mr).ok_or_else(|| format!("there is no region {}", span.mr))?;
            let length = u32::try_from(span.len()).map_err(|_| format!("a piece of {} bytes", span.len()))?;
            Ok(Sge { addr: mr.va.wrapping_add(span.start), length, lkey: Lkey(lkey.unwrap_or(mr.key)) })
        };
        spans.iter().map(piece).collect()
    }
}

/// The calls of the application.
impl LocalTarget {
    fn register_now(&mut self, spec: &MrSpec) -> Result<Registered, String> {
        let len = usize::try_from(spec.len).map_err(|e| e.to_string())?;
        let mut block = Block::new(len);
        // Zero is what it holds already: a huge region then costs no memory.
        if spec.fill != crate::expr::Data::Fill(0) {
            block.copy_in(0, &spec.fill.bytes(len));
        }
        let pd = if spec.foreign { self.foreign_pd } else { self.pd };
        let info = self.memory.register(pd, block.region(), spec.iova, spec.rights).map_err(|e| e.to_string())?;
        self.mrs.insert(spec.name.clone(), Mr { block, va: info.iova, key: info.key });
        Ok(Registered { va: info.iova, key: info.key })
    }

    fn post_send_now(&mut self, wr: &SendRequest) -> Result<(), String> {
        let sges = self.sges(&wr.sges, wr.lkey)?;
        let now = self.now;
        let max_msg = self.endpoint.config().limits.max_msg_sz;
        let qp = &mut self.connected.as_mut().expect("made first").handle;
        let state = qp.state.load();
        if !state.may_post_send() {
            return Err(format!("the queue pair is in {state}: a send request needs RTS"));
        }
        let pieces: Vec<&[u8]> = wr.inline.iter().map(Vec::as_slice).collect();
        let wr = SendWr { wr_id: WrId(wr.id), op: wr.op, flags: wr.flags, sges: &sges, inline: &pieces };
        qp.sq.post(&wr, max_msg).map_err(|e| e.to_string())?;
        self.endpoint.doorbell(now, qp.qpn);
        Ok(())
    }

    fn post_recv_now(&mut self, wr: &RecvRequest) -> Result<(), String> {
        let sges = self.sges(&wr.sges, wr.lkey)?;
        let now = self.now;
        let qp = &mut self.connected.as_mut().expect("made first").handle;
        let state = qp.state.load();
        if !state.may_post_recv() {
            return Err(format!("the queue pair is in {state}: a RECV needs INIT"));
        }
        qp.rq.post(&RecvWr { wr_id: WrId(wr.id), sges: &sges }).map_err(|e| e.to_string())?;
        self.endpoint.doorbell(now, qp.qpn);
        Ok(())
    }

    fn modify_now(&mut self, attr: &QpAttr) -> Result<(), String> {
        let (qpn, path) = (self.qpn(), self.qp().path);
        let path = (attr.ah_attr.is_some() || attr.alt_ah_attr.is_some()).then_some(path);
        self.endpoint.modify_qp(self.now, qpn, attr, path).map_err(|e| e.to_string())?;
        if let Some(max) = attr.max_rd_atomic {
            self.connected.as_mut().expect("made first").handle.sq.set_max_rd_atomic(max);
        }
        Ok(())
    }
}

/// Addresses: the device is .1, the script .2.
fn address(setup: &QpSetup, host: u8) -> Gid {
    match setup.ipv6 {
        true => Gid([0xfd, 0, 0, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]),
        false => Gid::from_ip([10, 77, 0, host].into()),
    }
}

impl Target for LocalTarget {
    fn done(&mut self, step: &Step) {
        self.record(|history| Deed::Step(Box::new(step.clone()), history.refused.take()));
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn slack_ns(&self, wait_ns: u64, stated: bool) -> u64 {
        if stated { 0 } else { wait_ns / SLACK_PART }
    }

    fn create(&mut self, setup: &QpSetup) -> Result<Connection, String> {
        // Announcing credits is a setting of the whole device.
        let config = EndpointConfig { credits: setup.credits, ..config() };
        self.endpoint = Endpoint::new(config, Arc::clone(&self.memory));
        let cq = |id| Cq::new(id, setup.cq).map_err(|e| e.to_string());
        let (send_cq, recv_cq) = (cq(1)?, cq(2)?);
        let init = QpInit {
            kind: setup.kind,
            pd: self.pd,
            send_cq: Arc::clone(&send_cq),
            recv_cq: Arc::clone(&recv_cq),
            cap: QpCap {
                max_send_wr: setup.sq,
                max_recv_wr: setup.rq,
                max_send_sge: setup.sges,
                max_recv_sge: setup.sges,
                max_inline_data: setup.inline,
            },
            sq_sig_all: setup.sig_all,
        };
        let handle = self.endpoint.create_qp(init).map_err(|e| e.to_string())?;
        let (src, dst) = (address(setup, 1), address(setup, 2));
        let qpn = handle.qpn;
        let path = QpPath {
            path: PathId(0),
            src,
            dst,
            hop_limit: setup.hops,
            traffic_class: setup.tclass,
            flow_label: setup.flow,
        };
        self.connected = Some(Connected { handle, path, send_cq, recv_cq });
        for attr in setup.path_to_state() {
            self.modify_now(&attr)?;
        }
        Ok(Connection { qpn, device: src, peer: dst })
    }

    fn register(&mut self, spec: &MrSpec) -> Result<Registered, String> {
        let done = self.register_now(spec);
        self.told(done)
    }

    fn deregister(&mut self, name: &str) -> Result<(), String> {
        let key = self.mrs.get(name).ok_or_else(|| format!("there is no region {name}"))?.key;
        self.memory.deregister(Lkey(key)).map(|_grace| ()).map_err(|e| e.to_string())
    }

    fn post_send(&mut self, wr: &SendRequest) -> Result<(), String> {
        let done = self.post_send_now(wr);
        self.told(done)
    }

    fn post_recv(&mut self, wr: &RecvRequest) -> Result<(), String> {
        let done = self.post_recv_now(wr);
        self.told(done)
    }

    fn modify(&mut self, attr: &QpAttr) -> Result<(), String> {
        let done = self.modify_now(attr);
        self.told(done)
    }

    fn arm(&mut self, side: CqSide, solicited_only: bool) {
        // What is there already is for the script to see; the runner takes it before it sleeps, as an application does.
        let _ = match side {
            CqSide::Send => self.qp().send_cq.arm(solicited_only),
            CqSide::Recv => self.qp().recv_cq.arm(solicited_only),
        };
    }

    fn deliver(&mut self, packet: &[u8]) {
        // The reason of a drop is in the counters, where scripts look for it.
        let frame = RxPacket { head: packet, tail: &[] };
        let dropped = self.endpoint.handle_packet(self.now, &RxMeta::default(), frame).err();
        self.record(|_| Deed::Received(packet.to_vec(), dropped));
    }

    fn next(&mut self, until: Instant) -> Option<Seen> {
        loop {
            if let Some(seen) = self.seen.pop_front() {
                return Some(seen);
            }
            self.pump();
            if !self.seen.is_empty() {
                continue;
            }
            match self.endpoint.poll_timeout() {
                Some(deadline) if deadline <= until && self.now < until => self.now = deadline.max(self.now),
                _ if self.now < until => self.now = until,
                _ => return None,
            }
        }
    }

    fn read(&mut self, span: &Span) -> Vec<u8> {
        self.mrs[&span.mr].block.copy_out(span.start as usize, span.len() as usize)
    }

    fn write(&mut self, span: &Span, bytes: &[u8]) {
        if let Some(mr) = self.mrs.get_mut(&span.mr) {
            mr.block.copy_in(span.start as usize, bytes);
        }
    }

    fn counter(&mut self, name: &str) -> Option<u64> {
        let counters = self.endpoint.qp_counters(self.qpn())?;
        counters.iter().find(|(counter, _)| *counter == name).map(|(_, value)| value)
    }

    fn dropped(&mut self, reason: &str) -> Option<u64> {
        let reason = DropReason::ALL.iter().find(|r| r.name() == reason)?;
        Some(self.endpoint.counters().drops.get(*reason))
    }

    fn attribute(&mut self, name: &str) -> Option<u64> {
        let attr = self.endpoint.query_qp(self.qpn())?.attr;
        match name {
            "rq_psn" => attr.rq_psn.map(|psn| psn.value().into()),
            "sq_psn" => attr.sq_psn.map(|psn| psn.value().into()),
            "timeout" => attr.timeout.map(u64::from),
            "retry_cnt" => attr.retry_cnt.map(u64::from),
            "rnr_retry" => attr.rnr_retry.map(u64::from),
            "min_rnr_timer" => attr.min_rnr_timer.map(u64::from),
            "max_rd_atomic" => attr.max_rd_atomic.map(u64::from),
            "max_dest_rd_atomic" => attr.max_dest_rd_atomic.map(u64::from),
            _ => None,
        }
    }

    fn state(&mut self) -> Option<QpState> {
        self.endpoint.query_qp(self.qpn())?.attr.qp_state
    }

    fn trampled(&mut self) -> Vec<String> {
        self.mrs.iter().filter(|(_, mr)| !mr.block.guards_hold()).map(|(name, _)| name.clone()).collect()
    }
}
