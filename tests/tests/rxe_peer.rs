//! The peer against itself: before xroce is tested against the kernel's rxe through the verbs agent, the agent has to do
//! every operation right between two rxe devices (rxea and rxeb on the two ends of a veth inside one guest).
//!
//! One guest serves all tests of this file; it ends with the process. Machines that cannot have one skip.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::OnceLock;
use std::time::Duration;

use xroce_tests::rxe::{
    Access, AgentError, Buf, Cq, Ctx, Flags, Guest, Kernel, Mr, Mtu, Op, Path, Pd, PeerAgent, Qp, QpAttr, QpKind,
    QpSpec, QpState, RecvWr, SendWr, Skip, Verdict, Wc, in_namespace, pattern, skip_test, status,
};

const WAIT: Duration = Duration::from_secs(60);
const PATH_MTU: u32 = 1024;
const ALL: Access = Access::all().difference(Access::ZERO_BASED);
/// Lengths around the packet boundaries, and one of many packets.
const LENGTHS: [u32; 8] = [0, 1, 7, PATH_MTU - 1, PATH_MTU, PATH_MTU + 1, 3 * PATH_MTU, 100_001];

fn guest() -> Option<&'static Guest> {
    static GUEST: OnceLock<Result<Guest, Skip>> = OnceLock::new();
    let booted = || {
        let guest = Guest::boot(Kernel::chosen(), Mtu::ETHERNET)?;
        let made = guest.run("[ -e /sys/class/infiniband/rxeb ] || rxe-pair 1500");
        assert_eq!(made.status, 0, "rxe-pair: {}", made.stderr);
        Ok(guest)
    };
    GUEST.get_or_init(booted).as_ref().inspect_err(|skip| skip_test(skip)).ok()
}

/// One end: a device with a QP and a buffer of a MiB and a bit.
struct End {
    ctx: Ctx,
    pd: Pd,
    cq: Cq,
    buf: Buf,
    mr: Mr,
    qp: Qp,
    ip: IpAddr,
}

const BUF_LEN: u64 = (1 << 20) + 4096;

impl End {
    fn new(agent: &mut PeerAgent, device: &str, ip: Ipv4Addr, kind: QpKind) -> Result<Self, AgentError> {
        let ctx = agent.open(device)?;
        let pd = agent.alloc_pd(ctx)?;
        let cq = agent.create_cq_with_channel(ctx, 256)?;
        let buf = agent.alloc_shifted(BUF_LEN, 3, None)?;
        let mr = agent.reg_mr(pd, buf, ALL)?;
        let qp = agent.create_qp(&QpSpec { kind, ..QpSpec::rc(pd, cq) })?;
        Ok(Self { ctx, pd, cq, buf, mr, qp, ip: ip.into() })
    }

    fn connect(&self, agent: &mut PeerAgent, to: &Self, psn: (u32, u32)) -> Result<(), AgentError> {
        let index = agent.gid_index(self.ctx, self.ip)?;
        agent.connect(self.qp, &Path::new(to.ip, index, PATH_MTU, to.qp.qpn, psn.0, psn.1))
    }
}

/// Both ends on one connection to the agent, connected. The PSNs wrap on the way.
struct Pair {
    agent: PeerAgent,
    a: End,
    b: End,
}

impl Pair {
    fn new(guest: &Guest, kind: QpKind) -> Result<Self, AgentError> {
        let mut agent = guest.agent().expect("the agent answers");
        let a = End::new(&mut agent, "rxea", Ipv4Addr::new(10, 88, 0, 1), kind)?;
        let b = End::new(&mut agent, "rxeb", Ipv4Addr::new(10, 88, 0, 2), kind)?;
        a.connect(&mut agent, &b, (0x00_0100, 0xff_fff0))?;
        b.connect(&mut agent, &a, (0xff_fff0, 0x00_0100))?;
        Ok(Self { agent, a, b })
    }

    /// Posts on A and returns its completion.
    fn send(&mut self, wr: &SendWr) -> Result<Wc, AgentError> {
        self.agent.post_send(self.a.qp, wr)?;
        self.one(self.a.cq)
    }

    fn one(&mut self, cq: Cq) -> Result<Wc, AgentError> {
        let wcs = self.agent.poll(cq, 1, WAIT)?;
        assert_eq!(wcs.len(), 1, "no completion within {WAIT:?}");
        Ok(wcs[0])
    }

    /// New content on A, zeros on B.
    fn fresh(&mut self, seed: u64) -> Result<(), AgentError> {
        self.agent.fill(self.a.buf, 0, BUF_LEN, seed, 0)?;
        self.agent.fill(self.b.buf, 0, BUF_LEN, !seed, 0)
    }

    /// B holds `len` bytes of A at `off`, and nothing else of it changed, nor did what lies around.
    #[track_caller]
    fn assert_arrived(&mut self, seed: u64, off: u64, len: u32) {
        let (b, end) = (self.b.buf, off + u64::from(len));
        self.agent.verify(b, 0, off, !seed, 0).unwrap().assert_good();
        self.agent.verify(b, off, u64::from(len), seed, 0).unwrap().assert_good();
        self.agent.verify(b, end, BUF_LEN - end, !seed, end).unwrap().assert_good();
        self.agent.guard(b).unwrap().assert_good();
    }
}

#[track_caller]
fn assert_wc(wc: &Wc, id: u64, opcode: u32) {
    assert!(wc.ok() && wc.wr_id == id && wc.opcode == opcode, "{wc:?} instead of success, id {id}, opcode {opcode}");
}

const BOTH: [QpKind; 2] = [QpKind::Rc, QpKind::Uc];

#[test]
fn sends_arrive() {
    let Some(guest) = guest() else { return };
    for kind in BOTH {
        let mut p = Pair::new(guest, kind).unwrap();
        for (i, len) in LENGTHS.into_iter().enumerate() {
            let id = i as u64;
            p.fresh(id).unwrap();
            p.agent.post_recv(p.b.qp, &RecvWr::new(100 + id, &[p.b.mr.sge(64, len)])).unwrap();
            // Three pieces of one message.
            let cut = len / 3;
            let sges = [p.a.mr.sge(0, cut), p.a.mr.sge(cut.into(), 0), p.a.mr.sge(cut.into(), len - cut)];
            let imm = (i % 2 == 1).then_some(0xfeed_0000 + i as u32);
            let wr = SendWr::new(id, imm.map_or(Op::Send, Op::SendImm), &sges);
            assert_wc(&p.send(&wr).unwrap(), id, 0);
            let wc = p.one(p.b.cq).unwrap();
            assert_wc(&wc, 100 + id, 128);
            assert_eq!((wc.byte_len, wc.immediate(), wc.qpn), (len, imm, p.b.qp.qpn));
            p.assert_arrived(id, 64, len);
        }
    }
}

#[test]
fn writes_arrive() {
    let Some(guest) = guest() else { return };
    for kind in BOTH {
        let mut p = Pair::new(guest, kind).unwrap();
        for (i, len) in LENGTHS.into_iter().chain([1 << 20]).enumerate() {
            let id = i as u64;
            p.fresh(id).unwrap();
            let (va, rkey) = (p.b.mr.va + 9, p.b.mr.rkey);
            let imm = 0x0102_0304;
            assert_wc(&p.send(&SendWr::new(id, Op::Write { va, rkey }, &[p.a.mr.sge(0, len)])).unwrap(), id, 1);
            // The immediate of an empty WRITE behind it says that it is there, on UC too.
            p.agent.post_recv(p.b.qp, &RecvWr::new(200, &[])).unwrap();
            assert_wc(&p.send(&SendWr::new(id, Op::WriteImm { va, rkey, imm }, &[])).unwrap(), id, 1);
            let wc = p.one(p.b.cq).unwrap();
            assert_wc(&wc, 200, 129);
            assert_eq!(wc.immediate(), Some(imm));
            p.assert_arrived(id, 9, len);
        }
    }
}

#[test]
fn reads_bring_the_other_ends_bytes() {
    let Some(guest) = guest() else { return };
    let mut p = Pair::new(guest, QpKind::Rc).unwrap();
    for (i, len) in LENGTHS.into_iter().chain([1 << 20]).enumerate() {
        let id = i as u64;
        p.fresh(id).unwrap();
        let op = Op::Read { va: p.b.mr.va + 11, rkey: p.b.mr.rkey };
        assert_wc(&p.send(&SendWr::new(id, op, &[p.a.mr.sge(5, len)])).unwrap(), id, 2);
        p.agent.verify(p.a.buf, 5, len.into(), !id, 11).unwrap().assert_good();
        p.agent.verify(p.a.buf, 5 + u64::from(len), 4000, id, 5 + u64::from(len)).unwrap().assert_good();
        p.agent.guard(p.a.buf).unwrap().assert_good();
    }
}

#[test]
fn atomics_change_one_word_and_bring_its_old_value() {
    let Some(guest) = guest() else { return };
    let mut p = Pair::new(guest, QpKind::Rc).unwrap();
    let off = 5; // the buffer begins 3 bytes behind a page
    let (va, rkey) = (p.b.mr.va + off, p.b.mr.rkey);
    p.agent.write(p.b.buf, off, &41_u64.to_le_bytes()).unwrap();
    let old = |p: &mut Pair| u64::from_le_bytes(p.agent.read(p.a.buf, 13, 8).unwrap().try_into().unwrap());
    let now = |p: &mut Pair| u64::from_le_bytes(p.agent.read(p.b.buf, off, 8).unwrap().try_into().unwrap());

    let sge = [p.a.mr.sge(13, 8)];
    assert_wc(&p.send(&SendWr::new(1, Op::FetchAdd { va, rkey, add: 1 }, &sge)).unwrap(), 1, 4);
    assert_eq!((old(&mut p), now(&mut p)), (41, 42));
    let swap = u64::MAX - 2;
    assert_wc(&p.send(&SendWr::new(2, Op::CmpSwap { va, rkey, compare: 42, swap }, &sge)).unwrap(), 2, 3);
    assert_eq!((old(&mut p), now(&mut p)), (42, swap));
    assert_wc(&p.send(&SendWr::new(3, Op::CmpSwap { va, rkey, compare: 42, swap: 1 }, &sge)).unwrap(), 3, 3);
    assert_eq!((old(&mut p), now(&mut p)), (swap, swap), "a failed comparison changes nothing");
    assert_wc(&p.send(&SendWr::new(4, Op::FetchAdd { va, rkey, add: 5 }, &sge)).unwrap(), 4, 4);
    assert_eq!((old(&mut p), now(&mut p)), (swap, 2), "the sum wraps");
}

#[test]
fn a_window_serves_until_send_with_invalidate() {
    let Some(guest) = guest() else { return };
    let mut p = Pair::new(guest, QpKind::Rc).unwrap();
    let mw = p.agent.alloc_mw(p.b.pd, 2).unwrap();
    let (base, b) = (p.b.mr.va + 4096, &p.b);
    let rkey = p.agent.bind_mw(b.qp, 2, 7, mw, b.mr, base, 4096, Access::REMOTE_WRITE | Access::REMOTE_READ).unwrap();
    assert_wc(&p.one(p.b.cq).unwrap(), 7, 5);
    assert_ne!(rkey, p.b.mr.rkey);

    p.fresh(77).unwrap();
    let write = SendWr::new(1, Op::Write { va: base, rkey }, &[p.a.mr.sge(0, 4096)]);
    assert_wc(&p.send(&write).unwrap(), 1, 1);
    p.assert_arrived(77, 4096, 4096);

    p.agent.post_recv(p.b.qp, &RecvWr::new(8, &[p.b.mr.sge(0, 16)])).unwrap();
    assert_wc(&p.send(&SendWr::new(2, Op::SendInv(rkey), &[p.a.mr.sge(0, 16)])).unwrap(), 2, 0);
    let wc = p.one(p.b.cq).unwrap();
    assert_wc(&wc, 8, 128);
    assert_eq!((wc.invalidated(), wc.byte_len), (Some(rkey), 16));

    assert_eq!(p.send(&write).unwrap().status, status::REM_ACCESS_ERR, "the key is dead");
    assert_eq!(p.agent.qp_state(p.a.qp).unwrap(), QpState::Err);
}

#[test]
fn a_type_1_window_is_bound_by_its_verb() {
    let Some(guest) = guest() else { return };
    let mut p = Pair::new(guest, QpKind::Rc).unwrap();
    let mw = p.agent.alloc_mw(p.b.pd, 1).unwrap();
    let (base, b) = (p.b.mr.va, &p.b);
    let rkey = p.agent.bind_mw(b.qp, 1, 7, mw, b.mr, base, 100, Access::REMOTE_WRITE).unwrap();
    assert_wc(&p.one(p.b.cq).unwrap(), 7, 5);
    p.fresh(5).unwrap();
    assert_wc(&p.send(&SendWr::new(1, Op::Write { va: base, rkey }, &[p.a.mr.sge(0, 100)])).unwrap(), 1, 1);
    p.assert_arrived(5, 0, 100);
    // The window has fewer rights than its region. (rxe checks these, but bounds against the region only.)
    let read = SendWr::new(2, Op::Read { va: base, rkey }, &[p.a.mr.sge(0, 100)]);
    assert_eq!(p.send(&read).unwrap().status, status::REM_ACCESS_ERR);
}

#[test]
fn flags_do_what_they_say() {
    let Some(guest) = guest() else { return };
    let mut p = Pair::new(guest, QpKind::Rc).unwrap();
    p.fresh(3).unwrap();
    p.agent.post_recv(p.b.qp, &RecvWr { count: 4, stride: 64, ..RecvWr::new(0, &[p.b.mr.sge(0, 64)]) }).unwrap();

    // INLINE takes the bytes at post, by an SGE whose key is not looked at.
    let mut sge = p.a.mr.sge(0, 64);
    sge.lkey = 0;
    assert_wc(&p.send(&SendWr::new(1, Op::Send, &[sge]).with(Flags::INLINE)).unwrap(), 1, 0);
    assert_eq!(p.one(p.b.cq).unwrap().byte_len, 64);
    assert_eq!(p.agent.read(p.b.buf, 0, 64).unwrap(), pattern::bytes(3, 0, 64));

    // Only SOLICITED wakes a CQ armed for it.
    p.agent.arm(p.b.cq, true).unwrap();
    assert_wc(&p.send(&SendWr::new(2, Op::Send, &[p.a.mr.sge(0, 64)])).unwrap(), 2, 0);
    assert!(!p.agent.wait_event(p.b.cq, Duration::from_millis(100)).unwrap());
    assert_wc(&p.send(&SendWr::new(3, Op::Send, &[p.a.mr.sge(0, 64)]).with(Flags::SOLICITED)).unwrap(), 3, 0);
    assert!(p.agent.wait_event(p.b.cq, WAIT).unwrap());
    assert_eq!(p.agent.poll(p.b.cq, 0, WAIT).unwrap().len(), 2);

    // A fenced SEND carries what the READ before it brought; without SIGNALED the READ says nothing.
    let mut read = SendWr::new(4, Op::Read { va: p.b.mr.va + 50_000, rkey: p.b.mr.rkey }, &[p.a.mr.sge(0, 64)]);
    read.flags = Flags::empty();
    p.agent.post_send(p.a.qp, &read).unwrap();
    assert_wc(&p.send(&SendWr::new(5, Op::Send, &[p.a.mr.sge(0, 64)]).with(Flags::FENCE)).unwrap(), 5, 0);
    assert_wc(&p.one(p.b.cq).unwrap(), 3, 128);
    p.agent.verify(p.b.buf, 3 * 64, 64, !3, 50_000).unwrap().assert_good();
}

#[test]
fn many_messages_in_one_post_keep_their_order() {
    let Some(guest) = guest() else { return };
    for kind in BOTH {
        let mut p = Pair::new(guest, kind).unwrap();
        p.fresh(9).unwrap();
        p.agent
            .post_recv(p.b.qp, &RecvWr { count: 50, stride: 2000, ..RecvWr::new(0, &[p.b.mr.sge(0, 2000)]) })
            .unwrap();
        p.agent
            .post_send(p.a.qp, &SendWr { count: 50, stride: 2000, ..SendWr::new(0, Op::Send, &[p.a.mr.sge(0, 2000)]) })
            .unwrap();
        for cq in [p.a.cq, p.b.cq] {
            let ids: Vec<_> = p.agent.poll(cq, 50, WAIT).unwrap().iter().map(|wc| (wc.wr_id, wc.status)).collect();
            assert_eq!(ids, (0..50).map(|id| (id, status::SUCCESS)).collect::<Vec<_>>());
        }
        p.assert_arrived(9, 0, 100_000);
    }
}

#[test]
fn large_messages_are_checked_without_being_sent_around() {
    let Some(guest) = guest() else { return };
    let mut p = Pair::new(guest, QpKind::Rc).unwrap();
    let len = 16 << 20;
    let (from, to) = (p.agent.alloc_pattern(len, 1).unwrap(), p.agent.alloc(len).unwrap());
    let from_mr = p.agent.reg_mr(p.a.pd, from, Access::empty()).unwrap();
    let to_mr = p.agent.reg_mr(p.b.pd, to, ALL).unwrap();
    let op = Op::Write { va: to_mr.va, rkey: to_mr.rkey };
    assert_wc(&p.send(&SendWr::new(1, op, &[from_mr.sge(0, len as u32)])).unwrap(), 1, 1);
    p.agent.verify(to, 0, len, 1, 0).unwrap().assert_good();
    p.agent.guard(to).unwrap().assert_good();
    assert_eq!(p.agent.crc(to, 0, len).unwrap(), p.agent.crc(from, 0, len).unwrap());
}

#[test]
fn failures_have_their_status() {
    let Some(guest) = guest() else { return };
    let access = |p: &Pair| Op::Write { va: p.b.mr.va, rkey: p.b.mr.rkey ^ 0x1000 };
    type MakeOp = fn(&Pair) -> Op;
    let cases: [(u32, MakeOp); 3] = [
        (status::REM_ACCESS_ERR, access),
        (status::REM_ACCESS_ERR, |p| Op::Read { va: p.b.mr.va + BUF_LEN - 63, rkey: p.b.mr.rkey }),
        (status::RNR_RETRY_EXC_ERR, |_| Op::Send),
    ];
    for (expected, op) in cases {
        let mut p = Pair::new(guest, QpKind::Rc).unwrap();
        let wc = p.send(&SendWr::new(1, op(&p), &[p.a.mr.sge(0, 64)])).unwrap();
        assert_eq!(wc.status, expected, "{:?}", op(&p));
        assert_wc_flushed(&mut p);
    }
}

/// A QP in ERR: what is posted comes back flushed.
fn assert_wc_flushed(p: &mut Pair) {
    assert_eq!(p.agent.qp_state(p.a.qp).unwrap(), QpState::Err);
    assert_eq!(p.send(&SendWr::new(2, Op::Send, &[])).unwrap().status, status::WR_FLUSH_ERR);
}

#[test]
fn refusals_leave_the_connection_usable() {
    let Some(guest) = guest() else { return };
    let mut p = Pair::new(guest, QpKind::Rc).unwrap();
    let errno = |result: Result<_, AgentError>| match result {
        Err(e) => e.errno(),
        Ok(()) => None,
    };
    let rts = QpAttr { state: Some(QpState::Rts), ..QpAttr::default() };
    assert_eq!(errno(p.agent.modify(p.a.qp, &QpAttr { state: Some(QpState::Init), ..rts })), Some(libc::EINVAL));
    assert_eq!(errno(p.agent.destroy(p.a.pd)), Some(libc::EBUSY));
    let five = [p.a.mr.sge(0, 1); 5];
    assert_eq!(
        errno(p.agent.post_send(p.a.qp, &SendWr::new(1, Op::Send, &five))),
        Some(libc::EINVAL),
        "4 SGEs at most"
    );
    let deep = RecvWr { count: 100_000, ..RecvWr::new(1, &[]) };
    assert_eq!(errno(p.agent.post_recv(p.b.qp, &deep)), Some(libc::ENOMEM));
    assert_eq!(errno(p.agent.call("nonsense").map(drop)), Some(libc::ENOSYS));
    assert_eq!(errno(p.agent.call("buf_alloc length=5").map(drop)), Some(libc::EINVAL), "a key that is not known");

    // What the agent says of memory is not always "good".
    p.fresh(1).unwrap();
    assert!(matches!(p.agent.verify(p.a.buf, 0, 100, 2, 0).unwrap(), Verdict::Bad(why) if why.contains("first=")));
    for object in [u64::from(p.a.qp), p.a.mr.into(), p.a.cq.into(), p.a.pd.into(), p.a.buf.into()] {
        p.agent.destroy(object).unwrap();
    }
    assert_eq!(errno(p.agent.destroy(p.a.qp)), Some(libc::ENOENT));
}

#[test]
fn rc_pingpong_runs_in_the_guest() {
    let Some(guest) = guest() else { return };
    // -e: by events, since spinning programs starve rxe on a guest's few CPUs
    let out = guest.run(
        "ibv_rc_pingpong -d rxea -g 1 -e -n 20 -p 18600 >/tmp/pp 2>&1 & sleep 1; \
         ibv_rc_pingpong -d rxeb -g 1 -e -n 20 -p 18600 127.0.0.1; s=$?; cat /tmp/pp; exit $s",
    );
    assert_eq!(out.status, 0, "{}{}", out.stdout, out.stderr);
    assert!(out.stdout.contains("20 iters in"), "{}", out.stdout);
}

/// The wire between guest and namespace: what rxe0 sends to our address arrives on our interface, an RC SEND ONLY with the
/// PSN and the payload that were asked for.
#[test]
fn frames_reach_the_namespace() {
    let Some(guest) = guest() else { return };
    let socket = in_namespace(guest.namespace(), || UdpSocket::bind("10.77.0.1:4791")).unwrap().unwrap();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    let mut agent = guest.agent().unwrap();
    let end = End::new(&mut agent, "rxe0", guest.addresses().0, QpKind::Rc).unwrap();
    let index = agent.gid_index(end.ctx, end.ip).unwrap();
    let path =
        Path { retry_cnt: 1, ..Path::new(guest.host_addresses().0.into(), index, PATH_MTU, 0x12_3456, 0, 0x77_0001) };
    agent.connect(end.qp, &path).unwrap();
    agent.fill(end.buf, 0, 64, 4, 0).unwrap();
    agent.post_send(end.qp, &SendWr::new(1, Op::Send, &[end.mr.sge(0, 64)])).unwrap();

    let mut packet = [0; 2048];
    let (len, from) = socket.recv_from(&mut packet).unwrap();
    assert_eq!((len, from.ip()), (12 + 64 + 4, IpAddr::V4(guest.addresses().0)), "BTH, payload, ICRC");
    assert_eq!((packet[0], &packet[5..8], &packet[9..12]), (0x04, &[0x12, 0x34, 0x56][..], &[0x77, 0, 1][..]));
    assert_eq!(packet[12..76], pattern::bytes(4, 0, 64));
    // Nobody answers.
    assert_eq!(agent.poll(end.cq, 1, WAIT).unwrap()[0].status, status::RETRY_EXC_ERR);
}
