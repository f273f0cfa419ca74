//! One connected pair of QPs, ours and the guest's. Enters: work for either side, in the agent's terms. Leaves: completions in
//! the agent's terms, so that a case does not care which side is which.

use std::ops::{Deref, DerefMut};
use std::thread;
use std::time::{Duration, Instant};

use xroce::{
    ConnectOptions, Cq, ImmData, Lkey, PathMtu, Pd, Psn, Qp, QpCap, QpEndpoint, QpInitAttr, QpType, Rkey, SendFlags,
    SendOp, WrId,
};

use super::station::{Family, Station};
use crate::rxe::{self, Access, Flags, Op, Path, QpKind, QpSpec, RecvWr, SendWr, Sge, Verdict, Wc};

/// How long a completion may take. An emulated guest on a busy machine can stand still for seconds.
pub const WAIT: Duration = Duration::from_secs(30);
/// The guest is asked again after so long. A user-mode kernel can sleep over a frame (tests/rxe/README.md); being asked wakes it.
const SLICE: Duration = Duration::from_secs(1);

/// Which end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// xroce.
    Ours,
    /// rxe.
    Peer,
}

impl Side {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Ours, Self::Peer];

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Ours => Self::Peer,
            Self::Peer => Self::Ours,
        }
    }

    /// The direction of a message from here.
    pub fn arrow(self) -> &'static str {
        match self {
            Self::Ours => "xroce>rxe",
            Self::Peer => "rxe>xroce",
        }
    }
}

/// How the two are connected. The same values go to both sides.
#[derive(Clone, Copy, Debug)]
pub struct LinkSpec {
    /// RC or UC.
    pub kind: QpKind,
    /// Which IP.
    pub family: Family,
    /// Bytes.
    pub mtu: u32,
    /// ACK timeout code.
    pub timeout: u8,
    /// 0 to 6: rxe takes 7 for "for ever".
    pub retry_cnt: u8,
    /// 0 to 6, or 7 for "for ever".
    pub rnr_retry: u8,
    /// Code of the RNR NAK.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding, each way.
    pub rd_atomic: u8,
    /// What either side's QP lets the other one do.
    pub access: Access,
    /// Pieces of a request, 1 to 32.
    pub sges: u32,
    /// Bytes of inline data, up to 512.
    pub inline: u32,
    /// How long a completion may take that is waited for.
    pub wait: Duration,
}

impl LinkSpec {
    /// Timers that a busy emulated guest can keep: ACK timeout 268 ms, 6 retries.
    pub fn new(kind: QpKind, family: Family, mtu: u32) -> Self {
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        Self {
            kind,
            family,
            mtu,
            timeout: 16,
            retry_cnt: 6,
            rnr_retry: 6,
            min_rnr_timer: 12,
            rd_atomic: 16,
            access,
            sges: 4,
            inline: 64,
            wait: WAIT,
        }
    }

    /// For our end, whose packets begin at `psn`.
    fn options(&self, station: &Station, psn: u32) -> ConnectOptions {
        self.connect_options(station.our_gid(self.family), psn)
    }

    /// For an end of xroce whose GID has `gid_index` and whose packets begin at `psn`.
    ///
    /// # Panics
    /// The path MTU is none.
    pub fn connect_options(&self, gid_index: u8, psn: u32) -> ConnectOptions {
        ConnectOptions {
            gid_index,
            path_mtu: Some(PathMtu::from_bytes(self.mtu as usize).expect("a path MTU")),
            psn: Psn::new(psn),
            access: xroce::Access::from_bits_truncate(self.access.bits()),
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            min_rnr_timer: self.min_rnr_timer,
            max_rd_atomic: self.rd_atomic,
            max_dest_rd_atomic: self.rd_atomic,
            ..ConnectOptions::default()
        }
    }
}

/// Both ends of a connection, apart from the station that they live on.
pub struct Pair {
    /// How it was made.
    pub spec: LinkSpec,
    /// Our QP; `None` once it was destroyed, or where another process has it.
    pub our_qp: Option<Qp>,
    /// For its SENDs and RECVs; `None` where another process has them.
    our_cqs: Option<[Cq; 2]>,
    /// The guest's QP; `None` once it was destroyed.
    pub peer_qp: Option<rxe::Qp>,
    peer_cqs: [rxe::Cq; 2],
}

/// A connected pair in use. Dropping it destroys both QPs.
pub struct Link<'a> {
    /// What it runs on.
    pub station: &'a mut Station,
    /// `None` once it was parked.
    pair: Option<Pair>,
}

/// Entries of each CQ, and depth of each queue.
const DEPTH: u32 = 128;
/// First PSNs, ours and the guest's, of one link after the other: they wrap in the first packets of one side, of the other, of
/// both. Three, so that rows in groups of 2, 4 or 8 meet all of them.
const FIRST_PSNS: [(u32, u32); 3] = [(0xff_fffe, 0x200), (0x100, 0xff_fffe), (0xff_fffe, 0xff_fffc)];

impl Deref for Link<'_> {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        self.pair.as_ref().expect("a link that was parked is gone")
    }
}

impl DerefMut for Link<'_> {
    fn deref_mut(&mut self) -> &mut Pair {
        self.pair.as_mut().expect("a link that was parked is gone")
    }
}

impl<'a> Link<'a> {
    /// Makes both QPs and connects them to each other.
    ///
    /// # Panics
    /// Anything fails.
    pub fn new(station: &'a mut Station, spec: LinkSpec) -> Self {
        let context = &station.ours().context;
        let our_cqs = [(); 2].map(|()| context.create_cq(DEPTH).expect("a CQ"));
        let our_qp = our_qp(&station.ours().pd, &our_cqs, &spec);
        let (peer_qp, peer_cqs) = peer_end(station, &spec);
        let psns = FIRST_PSNS[station.links % FIRST_PSNS.len()];
        station.links += 1;
        our_qp
            .connect(&station.peer_endpoint(spec.family, peer_qp.qpn, psns.1), &spec.options(station, psns.0))
            .expect("connected");
        connect_peer(station, &spec, peer_qp, our_qp.qpn().value(), psns);
        let pair = Pair { spec, our_qp: Some(our_qp), our_cqs: Some(our_cqs), peer_qp: Some(peer_qp), peer_cqs };
        Self { station, pair: Some(pair) }
    }

    /// The guest's end alone. `other` makes the other one somewhere: it is given where the guest's is, and says where that is.
    ///
    /// # Panics
    /// Anything fails.
    pub fn half(station: &'a mut Station, spec: LinkSpec, other: impl FnOnce(QpEndpoint) -> QpEndpoint) -> Self {
        let (peer_qp, peer_cqs) = peer_end(station, &spec);
        let (_, psn) = FIRST_PSNS[1];
        let there = other(station.peer_endpoint(spec.family, peer_qp.qpn, psn));
        connect_peer(station, &spec, peer_qp, there.qpn.value(), (there.psn.value(), psn));
        let pair = Pair { spec, our_qp: None, our_cqs: None, peer_qp: Some(peer_qp), peer_cqs };
        Self { station, pair: Some(pair) }
    }

    /// Leaves the pair as it is, alive, so that the station can serve another link.
    pub fn park(mut self) -> Pair {
        self.pair.take().expect("parked once")
    }

    /// Takes a parked pair up again, on the station that it was made on.
    pub fn resume(station: &'a mut Station, pair: Pair) -> Self {
        Self { station, pair: Some(pair) }
    }

    fn qp(&self) -> &Qp {
        self.our_qp.as_ref().expect("not destroyed")
    }

    /// A piece of a side's memory.
    pub fn sge(&self, side: Side, off: usize, len: u32) -> Sge {
        match side {
            Side::Ours => {
                let mr = self.station.ours().memory.mr();
                Sge { addr: mr.addr() + off as u64, len, lkey: mr.lkey().0 }
            }
            Side::Peer => self.station.peer.mr.sge(off as u64, len),
        }
    }

    /// Address and rkey of a side's memory, from `off` on.
    pub fn remote(&self, side: Side, off: usize) -> (u64, u32) {
        match side {
            Side::Ours => {
                let mr = self.station.ours().memory.mr();
                (mr.addr() + off as u64, mr.rkey().0)
            }
            Side::Peer => (self.station.peer.mr.va + off as u64, self.station.peer.mr.rkey),
        }
    }

    /// ibv_post_send.
    ///
    /// # Panics
    /// It is refused.
    #[track_caller]
    pub fn post_send(&mut self, side: Side, wr: &SendWr) {
        match side {
            Side::Peer => {
                let qp = self.peer_qp.expect("not destroyed");
                self.station.peer.agent.post_send(qp, wr).expect("the guest posts");
            }
            Side::Ours => {
                for i in 0..u64::from(wr.count) {
                    let shift = i * wr.stride;
                    let sges: Vec<_> = wr.sges.iter().map(|s| our_sge(s, shift)).collect();
                    let bytes = self.inline_bytes(wr);
                    let inline: Vec<_> = bytes.iter().map(Vec::as_slice).collect();
                    self.qp().post_send(&our_wr(wr, i, shift, &sges, &inline)).expect("we post");
                }
            }
        }
    }

    /// What an inline request of ours takes along: the bytes of its SGEs, as in verbs.
    fn inline_bytes(&self, wr: &SendWr) -> Vec<Vec<u8>> {
        if !wr.flags.contains(Flags::INLINE) {
            return Vec::new();
        }
        let mr = self.station.ours().memory.mr();
        let piece = |s: &Sge| {
            let off = (s.addr - mr.addr()) as usize;
            mr.to_vec(off..off + s.len as usize).expect("inside the region")
        };
        wr.sges.iter().map(piece).collect()
    }

    /// ibv_post_recv.
    ///
    /// # Panics
    /// It is refused.
    #[track_caller]
    pub fn post_recv(&mut self, side: Side, wr: &RecvWr) {
        match side {
            Side::Peer => {
                let qp = self.peer_qp.expect("not destroyed");
                self.station.peer.agent.post_recv(qp, wr).expect("the guest posts");
            }
            Side::Ours => {
                for i in 0..u64::from(wr.count) {
                    let sges: Vec<_> = wr.sges.iter().map(|s| our_sge(s, i * wr.stride)).collect();
                    self.qp().post_recv(&xroce::RecvWr { wr_id: WrId(wr.id + i), sges: &sges }).expect("we post");
                }
            }
        }
    }

    /// Up to `n` send completions that come within `wait`.
    pub fn send_done(&mut self, side: Side, n: usize, wait: Duration) -> Vec<Wc> {
        self.poll(side, 0, n, wait)
    }

    /// Up to `n` receive completions that come within `wait`.
    pub fn recv_done(&mut self, side: Side, n: usize, wait: Duration) -> Vec<Wc> {
        self.poll(side, 1, n, wait)
    }

    /// The next send completion.
    ///
    /// # Panics
    /// None comes.
    #[track_caller]
    pub fn sent(&mut self, side: Side) -> Wc {
        let wait = self.spec.wait;
        let done = self.send_done(side, 1, wait).first().copied();
        done.unwrap_or_else(|| panic!("no send completion of {side:?} in {wait:?}; {}", self.said()))
    }

    /// The next receive completion.
    ///
    /// # Panics
    /// None comes.
    #[track_caller]
    pub fn received(&mut self, side: Side) -> Wc {
        let wait = self.spec.wait;
        let done = self.recv_done(side, 1, wait).first().copied();
        done.unwrap_or_else(|| panic!("no receive completion of {side:?} in {wait:?}; {}", self.said()))
    }

    /// How things stand, for whoever has waited in vain: states, and completions that nobody has asked for.
    fn said(&mut self) -> String {
        let peer_qp = self.peer_qp;
        let states = (
            self.our_qp.as_ref().map(Qp::query),
            peer_qp.map(|qp| self.station.peer.agent.query_qp(qp)),
            self.station.peer.agent.counters("rxe0"),
        );
        let mut all = format!("ours: {:?}; the guest's: {:?}; its counters: {:?}", states.0, states.1, states.2);
        for side in Side::BOTH {
            if side == Side::Peer || self.our_cqs.is_some() {
                let left = (self.send_done(side, 8, Duration::ZERO), self.recv_done(side, 8, Duration::ZERO));
                all.push_str(&format!("; completions of {side:?}: {left:?}"));
            }
        }
        all
    }

    fn poll(&mut self, side: Side, which: usize, n: usize, wait: Duration) -> Vec<Wc> {
        match side {
            Side::Peer => {
                let (cq, end, mut done) = (self.peer_cqs[which], Instant::now() + wait, Vec::new());
                loop {
                    let slice = end.saturating_duration_since(Instant::now()).min(SLICE);
                    done.extend(self.station.peer.agent.poll(cq, n - done.len(), slice).expect("the guest polls"));
                    if done.len() >= n || Instant::now() >= end {
                        return done;
                    }
                }
            }
            Side::Ours => poll_ours(&self.our_cqs.as_ref().expect("ours")[which], n, wait),
        }
    }

    /// Fills memory of a side with the pattern of `seed` from its byte `at` on.
    pub fn fill(&mut self, side: Side, off: usize, len: usize, seed: u64, at: u64) {
        match side {
            Side::Ours => self.station.ours().memory.fill(off, len, seed, at),
            Side::Peer => {
                let peer = &mut self.station.peer;
                peer.agent.fill(peer.buf, off as u64, len as u64, seed, at).expect("the guest fills");
            }
        }
    }

    /// Compares memory of a side with the pattern of `seed` from its byte `at` on.
    ///
    /// # Panics
    /// It differs.
    #[track_caller]
    pub fn verify(&mut self, side: Side, off: usize, len: usize, seed: u64, at: u64) {
        match side {
            Side::Ours => self.station.ours().memory.verify(off, len, seed, at),
            Side::Peer => {
                let peer = &mut self.station.peer;
                let verdict = peer.agent.verify(peer.buf, off as u64, len as u64, seed, at).expect("the guest checks");
                if let Verdict::Bad(why) = verdict {
                    panic!("the guest's memory differs in the {len} bytes at offset {off}: {why}");
                }
            }
        }
    }

    /// Eight bytes of a side's memory, in host order.
    ///
    /// # Panics
    /// Outside of it.
    pub fn word(&mut self, side: Side, off: usize) -> u64 {
        let bytes = match side {
            Side::Ours => self.station.ours().memory.mr().to_vec(off..off + 8).expect("inside"),
            Side::Peer => {
                let peer = &mut self.station.peer;
                peer.agent.read(peer.buf, off as u64, 8).expect("the guest reads")
            }
        };
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }

    /// Writes eight bytes of a side's memory, in host order.
    ///
    /// # Panics
    /// Outside of it.
    pub fn set_word(&mut self, side: Side, off: usize, value: u64) {
        match side {
            Side::Ours => self.station.ours().memory.mr().write_at(off, &value.to_le_bytes()).expect("inside"),
            Side::Peer => {
                let peer = &mut self.station.peer;
                peer.agent.write(peer.buf, off as u64, &value.to_le_bytes()).expect("the guest writes");
            }
        }
    }

    /// # Panics
    /// A byte around the registered memory of a side has changed.
    #[track_caller]
    pub fn assert_guard(&mut self, side: Side) {
        match side {
            Side::Ours => self.station.ours().memory.assert_guard(),
            Side::Peer => {
                let peer = &mut self.station.peer;
                peer.agent.guard(peer.buf).expect("the guest checks").assert_good();
            }
        }
    }

    /// Destroys the QP of a side, as the end of its process would.
    pub fn kill(&mut self, side: Side) {
        match side {
            Side::Ours => drop(self.our_qp.take()),
            Side::Peer => {
                if let Some(qp) = self.peer_qp.take() {
                    self.station.peer.agent.destroy(qp).expect("the guest destroys its QP");
                }
            }
        }
    }
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        let Some(pair) = self.pair.take() else { return };
        let agent = &mut self.station.peer.agent;
        // After a failure the agent may be gone; what failed has been told.
        if let Some(qp) = pair.peer_qp {
            let _ = agent.destroy(qp);
        }
        for cq in pair.peer_cqs {
            let _ = agent.destroy(cq);
        }
    }
}

/// Our QP as the spec has it.
pub(super) fn our_qp(pd: &Pd, cqs: &[Cq; 2], spec: &LinkSpec) -> Qp {
    let kind = if spec.kind == QpKind::Rc { QpType::Rc } else { QpType::Uc };
    let cap = QpCap {
        max_send_wr: DEPTH,
        max_recv_wr: DEPTH,
        max_send_sge: spec.sges,
        max_recv_sge: spec.sges,
        max_inline_data: spec.inline,
    };
    let init = QpInitAttr { send_cq: &cqs[0], recv_cq: &cqs[1], cap, ..QpInitAttr::new(kind, &cqs[0]) };
    pd.create_qp(&init).expect("a QP")
}

/// The guest's QP as the spec has it, and its CQs.
fn peer_end(station: &mut Station, spec: &LinkSpec) -> (rxe::Qp, [rxe::Cq; 2]) {
    let (ctx, pd, agent) = (station.peer.ctx, station.peer.pd, &mut station.peer.agent);
    let cqs = [(); 2].map(|()| agent.create_cq(ctx, DEPTH).expect("a CQ of the guest"));
    let made = QpSpec {
        kind: spec.kind,
        recv_cq: cqs[1],
        send_wr: DEPTH,
        recv_wr: DEPTH,
        send_sge: spec.sges,
        recv_sge: spec.sges,
        inline: spec.inline,
        ..QpSpec::rc(pd, cqs[0])
    };
    (agent.create_qp(&made).expect("a QP of the guest"), cqs)
}

/// `psns`: the first of our packets, and of the guest's.
fn connect_peer(station: &mut Station, spec: &LinkSpec, qp: rxe::Qp, to: u32, psns: (u32, u32)) {
    let (our_ip, peer_ip) = station.addresses(spec.family);
    let peer = &mut station.peer;
    let index = peer.agent.gid_index(peer.ctx, peer_ip).expect("a GID of the guest");
    let path = Path {
        access: spec.access,
        max_rd_atomic: spec.rd_atomic,
        max_dest_rd_atomic: spec.rd_atomic,
        min_rnr_timer: spec.min_rnr_timer,
        timeout: spec.timeout,
        retry_cnt: spec.retry_cnt,
        rnr_retry: spec.rnr_retry,
        ..Path::new(our_ip, index, spec.mtu, to, psns.0, psns.1)
    };
    peer.agent.connect(qp, &path).expect("the guest's QP is connected");
}

fn our_sge(s: &Sge, shift: u64) -> xroce::Sge {
    xroce::Sge { addr: s.addr + shift, length: s.len, lkey: Lkey(s.lkey) }
}

fn our_wr<'a>(
    wr: &SendWr,
    index: u64,
    shift: u64,
    sges: &'a [xroce::Sge],
    inline: &'a [&'a [u8]],
) -> xroce::SendWr<'a> {
    let op = match wr.op {
        Op::Send => SendOp::Send,
        Op::SendImm(imm) => SendOp::SendImm(ImmData(imm)),
        Op::SendInv(rkey) => SendOp::SendInv(Rkey(rkey)),
        Op::Write { va, rkey } => SendOp::Write { va: va + shift, rkey: Rkey(rkey) },
        Op::WriteImm { va, rkey, imm } => SendOp::WriteImm { va: va + shift, rkey: Rkey(rkey), imm: ImmData(imm) },
        Op::Read { va, rkey } => SendOp::Read { va: va + shift, rkey: Rkey(rkey) },
        Op::CmpSwap { va, rkey, compare, swap } => SendOp::CmpSwap { va, rkey: Rkey(rkey), compare, swap },
        Op::FetchAdd { va, rkey, add } => SendOp::FetchAdd { va, rkey: Rkey(rkey), add },
        Op::LocalInv(_) => panic!("not an operation on the wire"),
    };
    let flags = SendFlags::from_bits_truncate(wr.flags.bits());
    xroce::SendWr { wr_id: WrId(wr.id + index), op, flags, sges: if inline.is_empty() { sges } else { &[] }, inline }
}

/// Sleeps between polls: the guest's CPUs are emulated on ours.
fn poll_ours(cq: &Cq, n: usize, wait: Duration) -> Vec<Wc> {
    let end = Instant::now() + wait;
    let mut done = Vec::new();
    loop {
        done.extend(cq.drain().take(n - done.len()).map(|wc| in_agent_terms(&wc)));
        if done.len() >= n || Instant::now() > end {
            return done;
        }
        thread::sleep(Duration::from_micros(100));
    }
}

fn in_agent_terms(wc: &xroce::Wc) -> Wc {
    Wc {
        wr_id: wc.wr_id.0,
        status: wc.status as u32,
        opcode: wc.opcode as u32,
        byte_len: wc.byte_len,
        imm: wc.imm_or_rkey(),
        qpn: wc.qpn.value(),
        src_qp: wc.src_qp.value(),
        flags: wc.flags.bits(),
        vendor_err: wc.detail.syndrome.into(),
    }
}
