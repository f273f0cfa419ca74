//! What public reports tell of other stacks, tried here on a wire in memory. docs/regressions.md lists the reports; the number
//! of each begins the name of its test.

mod common;

use common::{PATIENCE, Side, all_rights, connect, connected, device, devices, ip, options, pattern};
use std::net::Ipv4Addr;
use std::time::Duration;
use xroce::{
    AsyncEventKind, ConnectOptions, Device, DropReason, ImmData, Limits, Overrun, PathMtu, PostError, PostReason,
    Progress, QpAttr, QpInitAttr, QpState, QpType, RecvWr, SendFlags, SendOp, SendWr, Wc, WcOpcode, WcStatus, WrId,
};
use xroce_port::sim::{PipeConfig, loop_pair};
use xroce_port::{Layer, Port, RxFrame};

/// Rewrites a received Ethernet frame.
type Rewrite = Box<dyn FnMut(&mut Vec<u8>) + Send>;

/// Something between the wire and a device that changes what comes in.
struct Middlebox<P> {
    port: P,
    rewrite: Rewrite,
    lent: Vec<Vec<u8>>,
}

impl<P: Port> Middlebox<P> {
    fn new(port: P, rewrite: impl FnMut(&mut Vec<u8>) + Send + 'static) -> Middlebox<P> {
        Middlebox { port, rewrite: Box::new(rewrite), lent: Vec::new() }
    }
}

impl<P: Port> Layer for Middlebox<P> {
    type Below = P;

    fn below(&self) -> &P {
        &self.port
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.port
    }

    fn rx_burst(&mut self, max: usize) -> usize {
        let count = self.port.rx_burst(max);
        self.lent = (0..count).map(|i| self.port.rx_frame(i)).map(|f| [f.head, f.tail].concat()).collect();
        self.lent.iter_mut().for_each(|frame| (self.rewrite)(frame));
        count
    }
    fn rx_frame(&self, i: usize) -> RxFrame<'_> {
        RxFrame { head: &self.lent[i], tail: &[] }
    }
    fn rx_release(&mut self) {
        self.lent.clear();
        self.port.rx_release();
    }
}

/// Sets the header checksum of an Ethernet frame that carries IPv4.
fn sum_ipv4(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum = frame[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// A translator of addresses between the two breaks the ICRC, which covers them: nothing is delivered, the ICRC errors are
/// counted, the sender is told.
#[test]
fn h12_packets_through_a_nat_are_dropped_for_their_icrc() {
    const OUTSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(198, 51, 100, 2)];
    let (port_a, port_b) = loop_pair(&PipeConfig::default()).unwrap();
    let nat = Middlebox::new(port_b, |frame| {
        let inside = [Ipv4Addr::new(192, 0, 2, 2)];
        frame[26..30].copy_from_slice(&OUTSIDE[0].octets());
        frame[30..34].copy_from_slice(&inside[0].octets());
        sum_ipv4(frame);
    });
    let open = |port: Box<dyn Port>, own: &str, other: Ipv4Addr, mac: [u8; 6]| {
        Device::on_port(port, &[ip(own)]).neighbour(other.into(), mac).open().unwrap()
    };
    let ca = open(Box::new(port_a), common::ADDRESSES[0], OUTSIDE[1], common::MACS[1]);
    let cb = open(Box::new(nat), common::ADDRESSES[1], OUTSIDE[0], common::MACS[0]);
    let (a, b) = (Side::new(&ca, QpType::Rc, 64), Side::new(&cb, QpType::Rc, 64));
    let quick = ConnectOptions { timeout: 10, retry_cnt: 2, ..options(5) };
    // Each knows the other by its address on its own side of the translator.
    let mut at_a = a.qp.endpoint(&quick).unwrap();
    let mut at_b = b.qp.endpoint(&quick).unwrap();
    at_a.gid = xroce::Gid::from_ipv4(OUTSIDE[0]);
    at_b.gid = xroce::Gid::from_ipv4(OUTSIDE[1]);
    a.qp.connect(&at_b, &quick).unwrap();
    b.qp.connect(&at_a, &quick).unwrap();
    b.recv(1, &[b.sge(0, 64)]);
    a.send(2, SendOp::Send, &[a.sge(0, 8)]);
    assert_eq!(a.wc(&b).status, WcStatus::RetryExcErr);
    let drops = cb.counters().unwrap()[0].2.drops.clone();
    assert_eq!(drops.get(DropReason::BadIcrc), 3, "{drops:?}");
    assert_eq!(drops.iter().map(|(_, n)| n).sum::<u64>(), 3, "{drops:?}");
    assert!(b.cq.poll_one().unwrap().is_none(), "nothing was delivered");
    assert_eq!(b.qp.state(), QpState::Rts);
}

/// A WRITE with immediate tells the length of the whole WRITE, in whatever number of packets it came, to a RECV without a byte
/// of room.
#[test]
fn h20_a_write_with_immediate_tells_its_length() {
    const P: usize = 1024;
    for kind in [QpType::Rc, QpType::Uc] {
        let (a, b) = connected(Progress::default(), kind, 6 * P);
        for (i, len) in [0, 1, P, 5 * P + 3].into_iter().enumerate() {
            let imm = ImmData(0xff00_0000 + i as u32);
            a.mr.write_at(0, &pattern(i as u8, len)).unwrap();
            b.recv(i as u64, &[]);
            a.send(9, SendOp::WriteImm { va: b.mr.addr(), rkey: b.mr.rkey(), imm }, &[a.sge(0, len)]);
            a.success(&b, 9);
            let wc = b.success(&a, i as u64);
            assert_eq!((wc.opcode, wc.byte_len as usize, wc.imm_data()), (WcOpcode::RecvRdmaWithImm, len, Some(imm)));
            assert_eq!(b.mr.to_vec(0..len).unwrap(), pattern(i as u8, len));
        }
    }
}

/// The limit that is told is the limit that is kept: one byte less and the very limit pass in every operation, one byte more is
/// refused at once; the receiver of a SEND that is too long for its RECV, or of a request over the limit, says so.
#[test]
fn h25_the_longest_message_is_what_query_says() {
    const MAX: usize = 10_000;
    let limits = Limits { max_msg_sz: MAX as u64, ..Limits::default() };
    let (port_a, port_b) = loop_pair(&PipeConfig::default()).unwrap();
    let ca = device(port_a, 0, Progress::default(), |c| c.limits = limits);
    let cb = device(port_b, 1, Progress::default(), |c| c.limits = limits);
    let (told, port) = (ca.query_device().max_msg_sz, ca.query_port().max_msg_sz);
    assert_eq!((told, port), (MAX as u64, MAX as u64));
    let (a, b) = (Side::new(&ca, QpType::Rc, 3 * MAX), Side::new(&cb, QpType::Rc, 3 * MAX));
    connect(&a, &b);
    let (va, rkey) = (b.mr.addr() + MAX as u64, b.mr.rkey());
    let ops = [
        SendOp::Send,
        SendOp::Write { va, rkey },
        SendOp::WriteImm { va, rkey, imm: ImmData(1) },
        SendOp::Read { va, rkey },
    ];
    for (op, len) in ops.into_iter().flat_map(|op| [MAX - 1, MAX, MAX + 1].map(|len| (op, len))) {
        a.mr.write_at(0, &pattern(len as u8, len)).unwrap();
        let sges = [a.sge(0, len)];
        let wr = SendWr { wr_id: WrId(1), op, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] };
        if len > MAX {
            let error = a.qp.post_send(&wr).unwrap_err();
            let wanted = PostError::MessageTooLong { length: len as u64, max: MAX as u64 };
            assert_eq!(error.reason, PostReason::Request(wanted), "{op:?}");
            continue;
        }
        b.mr.fill(0);
        let takes_recv = matches!(op, SendOp::Send | SendOp::WriteImm { .. });
        if takes_recv {
            b.recv(9, &[b.sge(0, MAX)]);
        }
        a.qp.post_send(&wr).unwrap();
        a.success(&b, 1);
        if takes_recv {
            assert_eq!(b.success(&a, 9).byte_len as usize, len);
        }
        let at = if op == SendOp::Send { 0 } else { MAX };
        if !matches!(op, SendOp::Read { .. }) {
            assert_eq!(b.mr.to_vec(at..at + len).unwrap(), pattern(len as u8, len), "{op:?}");
        }
    }
    // Two pieces whose lengths, added in 32 bits, would be 1: refused as what they are.
    let whole = unregistered(&a, u32::MAX);
    let wr = SendWr {
        wr_id: WrId(2),
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        sges: &[whole, xroce::Sge { length: 2, ..whole }],
        inline: &[],
    };
    let error = a.qp.post_send(&wr).unwrap_err();
    let wanted = PostError::MessageTooLong { length: (1 << 32) + 1, max: MAX as u64 };
    assert_eq!(error.reason, PostReason::Request(wanted));

    b.recv(3, &[b.sge(0, 64)]);
    b.recv(4, &[b.sge(0, 64)]);
    a.send(5, SendOp::Send, &[a.sge(0, 65)]);
    assert_eq!(a.wc(&b).status, WcStatus::RemInvReqErr);
    assert_eq!((b.wc(&a).status, b.wc(&a).status), (WcStatus::LocLenErr, WcStatus::WrFlushErr));
}

fn unregistered(side: &Side, length: u32) -> xroce::Sge {
    xroce::Sge { addr: side.mr.addr(), length, lkey: side.mr.lkey() }
}

/// A peer whose limit is higher than ours is refused, not believed.
#[test]
fn h25_a_message_over_the_receivers_own_limit_is_an_invalid_request() {
    for op in 0..2 {
        let (port_a, port_b) = loop_pair(&PipeConfig::default()).unwrap();
        let ca = device(port_a, 0, Progress::default(), |_| {});
        let cb = device(port_b, 1, Progress::default(), |c| c.limits.max_msg_sz = 5000);
        let (a, b) = (Side::new(&ca, QpType::Rc, 1 << 16), Side::new(&cb, QpType::Rc, 1 << 16));
        connect(&a, &b);
        let (va, rkey) = (b.mr.addr(), b.mr.rkey());
        let op = [SendOp::Write { va, rkey }, SendOp::Read { va, rkey }][op];
        a.send(1, op, &[a.sge(0, 5000)]);
        a.success(&b, 1);
        a.send(2, op, &[a.sge(0, 5001)]);
        assert_eq!(a.wc(&b).status, WcStatus::RemInvReqErr, "{op:?}");
    }
}

/// A limit that the protocol cannot keep, and one with which nothing would ever be sent, are refused at the start: what is told is
/// never more than what is kept.
#[test]
fn h25_limits_that_cannot_be_kept_are_refused() {
    type Change = fn(&mut xroce::EngineConfig);
    let cases: [(&str, Change); 6] = [
        ("max_msg_sz", |c| c.limits.max_msg_sz = (1 << 31) + 1),
        ("max_msg_sz", |c| c.limits.max_msg_sz = u64::MAX),
        ("max_msg_sz", |c| c.limits.max_msg_sz = 0),
        ("window_packets", |c| c.limits.window_packets = 0),
        ("ack_req_every", |c| c.limits.ack_req_every = 0),
        ("budget.rx", |c| c.budget.rx = 0),
    ];
    for (name, change) in cases {
        let (port, _other) = loop_pair(&PipeConfig::default()).unwrap();
        let error = Device::on_port(Box::new(port), &[ip("192.0.2.1")]).engine(change).open().unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
    let (port, _other) = loop_pair(&PipeConfig::default()).unwrap();
    let most = |c: &mut xroce::EngineConfig| c.limits.max_msg_sz = 1 << 31;
    assert!(Device::on_port(Box::new(port), &[ip("192.0.2.1")]).engine(most).open().is_ok());
}

/// Two thousand queue pairs that complete into one queue of 256, which nobody polls.
#[test]
fn h26_a_queue_of_256_under_2048_queue_pairs() {
    const QPS: usize = 2048;
    let (ca, cb) = devices(Progress::Event);
    let (cq, other) = (ca.create_cq(256).unwrap(), cb.create_cq(16).unwrap());
    let capacity = cq.capacity();
    assert!(capacity >= 256);
    let (pd, pd_b) = (ca.alloc_pd().unwrap(), cb.alloc_pd().unwrap());
    let mr = pd_b.reg_mr(vec![0u8; 64], all_rights()).unwrap();
    let small = |cq| {
        let mut init = QpInitAttr::new(QpType::Rc, cq);
        (init.cap.max_send_wr, init.cap.max_recv_wr) = (4, 4);
        init
    };
    let pairs: Vec<_> = (0..QPS)
        .map(|i| {
            let (a, b) = (pd.create_qp(&small(&cq)).unwrap(), pd_b.create_qp(&small(&other)).unwrap());
            let of = options(i as u32);
            b.connect(&a.endpoint(&of).unwrap(), &of).unwrap();
            a.connect(&b.endpoint(&of).unwrap(), &of).unwrap();
            (a, b)
        })
        .collect();
    let op = SendOp::Write { va: mr.addr(), rkey: mr.rkey() };
    let write = |i: usize| {
        let wr = SendWr { wr_id: WrId(i as u64), op, flags: SendFlags::SIGNALED, sges: &[], inline: &[] };
        pairs[i].0.post_send(&wr)
    };
    // Exactly full is fine.
    (0..capacity as usize).for_each(|i| write(i).unwrap());
    let done = |i: usize| pairs[i].0.counters().unwrap().rdma_sends == 1;
    let start = std::time::Instant::now();
    while !(0..capacity as usize).all(done) {
        assert!(start.elapsed() < PATIENCE, "{capacity} WRITEs");
    }
    assert!(ca.try_get_async_event().is_none(), "exactly full is no overrun");
    assert_eq!(pairs[0].0.state(), QpState::Rts);
    // One more is the end of the queue, and of all that complete into it.
    for i in capacity as usize..QPS {
        if write(i).is_err() {
            break;
        }
    }
    let mut kinds = Vec::new();
    while !kinds.contains(&AsyncEventKind::CqErr) {
        kinds.push(ca.get_async_event(Some(PATIENCE)).unwrap().expect("an event").kind);
    }
    let start = std::time::Instant::now();
    while !pairs.iter().all(|(a, _)| a.state() == QpState::Err) {
        assert!(start.elapsed() < PATIENCE, "a queue pair of a dead queue goes on");
    }
    let mut wcs = vec![Wc::default(); 2 * QPS];
    assert_eq!(cq.poll(&mut wcs).unwrap(), capacity as usize, "what fitted is kept");
    assert!(wcs[..capacity as usize].iter().all(|wc| wc.status == WcStatus::Success));
    assert_eq!(cq.poll(&mut wcs), Err(Overrun { capacity }));
}

/// Frames of another VLAN are not ours, nor are pause frames; a priority tag (VLAN 0) does not hide a frame.
#[test]
// rule: path.vlan
fn h40_tags_of_other_vlans_and_pause_frames_are_not_ours() {
    let tag = |tci: u16| {
        move |frame: &mut Vec<u8>| {
            let tci = tci.to_be_bytes();
            frame.splice(12..12, [0x81, 0, tci[0], tci[1]]);
        }
    };
    let pause = |frame: &mut Vec<u8>| frame[12..14].copy_from_slice(&[0x88, 0x08]);
    let cases: [(Rewrite, bool); 4] = [
        (Box::new(tag(0)), true),
        (Box::new(tag(5 << 13)), true),
        (Box::new(tag(20)), false),
        (Box::new(pause), false),
    ];
    for (case, (rewrite, arrives)) in cases.into_iter().enumerate() {
        let (port_a, port_b) = loop_pair(&PipeConfig::default()).unwrap();
        let ca = device(port_a, 0, Progress::default(), |_| {});
        let cb = device(Middlebox::new(port_b, rewrite), 1, Progress::default(), |_| {});
        let (a, b) = (Side::new(&ca, QpType::Rc, 64), Side::new(&cb, QpType::Rc, 64));
        let quick = ConnectOptions { timeout: 10, retry_cnt: 1, ..options(5) };
        a.qp.connect(&b.qp.endpoint(&quick).unwrap(), &quick).unwrap();
        b.qp.connect(&a.qp.endpoint(&quick).unwrap(), &quick).unwrap();
        b.recv(1, &[b.sge(0, 64)]);
        a.send(2, SendOp::Send, &[a.sge(0, 8)]);
        let wanted = if arrives { WcStatus::Success } else { WcStatus::RetryExcErr };
        assert_eq!(a.wc(&b).status, wanted, "case {case}");
        let shard = cb.counters().unwrap()[0].1;
        let expected = [(0, 0), (0, 0), (2, 0), (0, 2)][case];
        assert_eq!((shard.rx_other_vlan, shard.rx_not_ip), expected, "{shard:?}");
    }
}

/// Whatever is wrong with a work request, and wherever it stands in the chain: those before it run, its place is told, nothing
/// behind it runs.
#[test]
fn h42_a_chain_runs_up_to_its_bad_request_whatever_is_wrong_with_it() {
    let long = [0u8; 600];
    let long: [&[u8]; 1] = [&long];
    for (kind, bad) in (0..4usize).flat_map(|kind| (0..5usize).map(move |bad| (kind, bad))) {
        let (a, b) = connected(Progress::default(), QpType::Uc, 64);
        (0..5).for_each(|i| b.recv(i, &[]));
        let sges = [a.sge(0, 8); 5];
        let signaled = SendFlags::SIGNALED;
        let good =
            |i: usize| SendWr { wr_id: WrId(i as u64), op: SendOp::Send, flags: signaled, sges: &[], inline: &[] };
        let read = SendOp::Read { va: b.mr.addr(), rkey: b.mr.rkey() };
        let wrs: Vec<SendWr<'_>> = (0..5)
            .map(|i| match kind {
                _ if i != bad => good(i),
                0 => SendWr { op: read, sges: &sges[..1], ..good(i) },
                1 => SendWr { sges: &sges, ..good(i) },
                2 => SendWr { flags: signaled | SendFlags::INLINE, inline: &long, ..good(i) },
                _ => SendWr { flags: SendFlags::from_bits_retain(1 << 20), ..good(i) },
            })
            .collect();
        let error = a.qp.post_send_chain(&wrs).unwrap_err();
        assert_eq!(error.index, bad, "{error}");
        let PostReason::Request(reason) = error.reason else { panic!("{error}") };
        assert!(
            match kind {
                0 => matches!(reason, PostError::NotOnThisQp { .. }),
                1 => matches!(reason, PostError::TooManySges { given: 5, max: 4 }),
                2 => matches!(reason, PostError::InlineTooLong { length: 600, .. }),
                _ => matches!(reason, PostError::UnknownFlags { .. }),
            },
            "{reason}"
        );
        (0..bad as u64).for_each(|i| {
            a.success(&b, i);
            b.success(&a, i);
        });
        assert!(a.cq.poll_timeout(Duration::from_millis(2)).unwrap().is_none(), "nothing behind the bad one ran");
        assert_eq!(a.qp.state(), QpState::Rts);
    }
}

/// A full queue ends a chain at the request that found no place; the others are in it, and run.
#[test]
fn h42_a_chain_longer_than_the_queue_fills_it() {
    let (a, b) = connected(Progress::Inline { helper: false }, QpType::Rc, 64);
    let depth = a.qp.cap().max_send_wr as usize;
    let wr = |i: usize| SendWr {
        wr_id: WrId(i as u64),
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        sges: &[],
        inline: &[],
    };
    let wrs: Vec<_> = (0..depth + 2).map(wr).collect();
    let error = a.qp.post_send_chain(&wrs).unwrap_err();
    assert_eq!(error.index, depth);
    assert!(matches!(error.reason, PostReason::Request(PostError::QueueFull { depth: d }) if d as usize == depth));
    let none = RecvWr { wr_id: WrId(0), sges: &[] };
    let chain = vec![none; b.qp.cap().max_recv_wr as usize + 1];
    let error = b.qp.post_recv_chain(&chain).unwrap_err();
    assert_eq!(error.index, chain.len() - 1);
    (0..depth as u64).for_each(|i| {
        a.success(&b, i);
    });
}

/// Every capacity missing or beyond all bounds: refused by name, or a queue pair that says what it lacks when it is used.
#[test]
fn h43_capacities_of_nothing_and_of_everything() {
    let (context, peer) = devices(Progress::default());
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16).unwrap());
    let all = |n| xroce::QpCap { max_send_wr: n, max_recv_wr: n, max_send_sge: n, max_recv_sge: n, max_inline_data: n };
    let error = pd.create_qp(&QpInitAttr { cap: all(u32::MAX), ..QpInitAttr::new(QpType::Rc, &cq) }).unwrap_err();
    assert!(error.to_string().contains("max_send_wr is 4294967295"), "{error}");
    let qp = pd.create_qp(&QpInitAttr { cap: all(0), ..QpInitAttr::new(QpType::Rc, &cq) }).unwrap();
    let b = Side::new(&peer, QpType::Rc, 64);
    qp.connect(&b.qp.endpoint(&options(1)).unwrap(), &options(2)).unwrap();
    let send = SendWr { wr_id: WrId(0), op: SendOp::Send, flags: SendFlags::empty(), sges: &[], inline: &[] };
    let full =
        |error: xroce::PostChainError| matches!(error.reason, PostReason::Request(PostError::QueueFull { depth: 0 }));
    assert!(qp.cap().max_send_wr > 0 || full(qp.post_send(&send).unwrap_err()));
    assert!(qp.cap().max_recv_wr > 0 || full(qp.post_recv(&RecvWr { wr_id: WrId(0), sges: &[] }).unwrap_err()));
    for cqe in [0, u32::MAX] {
        assert!(context.create_cq(cqe).unwrap_err().to_string().contains(&cqe.to_string()));
    }
    // It answers its peer all the same.
    b.qp.connect(&qp.endpoint(&options(2)).unwrap(), &options(1)).unwrap();
    b.send(1, SendOp::Write { va: 1, rkey: xroce::Rkey(0) }, &[]);
    assert_eq!(b.cq.poll_timeout(PATIENCE).unwrap().unwrap().status, WcStatus::Success);
    qp.modify(&QpAttr { qp_state: Some(QpState::Err), ..QpAttr::default() }).unwrap();
}

/// An address with its highest bit set and eight different bytes, at both ends and for every operation, also where a READ begins
/// again in the middle.
#[test]
fn h47_addresses_keep_all_their_bytes() {
    const FIRST: u64 = 0xfedc_ba98_7654_3210;
    let (a, b) = connected(Progress::default(), QpType::Rc, 64);
    let far = b.pd.reg_mr_iova(vec![0u8; 10_000], FIRST, all_rights()).unwrap();
    let near = a.pd.reg_mr_iova(pattern(7, 10_000), FIRST ^ (1 << 63), all_rights()).unwrap();
    assert_eq!(far.remote().to_string().parse(), Ok(far.remote()));
    let (va, rkey) = (far.remote().addr + 16, far.remote().rkey);
    assert_eq!(va, FIRST + 16);
    a.send(1, SendOp::Write { va, rkey }, &[near.sge(0..5000).unwrap()]);
    a.success(&b, 1);
    assert_eq!(far.to_vec(16..5016).unwrap(), pattern(7, 5000));
    near.fill(0);
    a.send(2, SendOp::Read { va, rkey }, &[near.sge(100..5100).unwrap()]);
    a.success(&b, 2);
    assert_eq!(near.to_vec(100..5100).unwrap(), pattern(7, 5000));
    let word = far.to_vec(16..24).unwrap();
    a.send(3, SendOp::FetchAdd { va, rkey, add: 1 }, &[near.sge(0..8).unwrap()]);
    a.success(&b, 3);
    assert_eq!(near.to_vec(0..8).unwrap(), word);
    // One byte behind the end.
    a.send(4, SendOp::Write { va: FIRST + 9_999, rkey }, &[near.sge(0..2).unwrap()]);
    assert_eq!(a.wc(&b).status, WcStatus::RemAccessErr);
}

/// A path MTU above the active one is refused in every netdev MTU; the active one leaves room for the longest headers.
#[test]
// rule: mtu.active
fn h02_the_active_mtu_leaves_room_for_every_header() {
    for (mtu, active) in
        [(576, Some(256)), (1500, Some(1024)), (2200, Some(2048)), (4200, Some(4096)), (9000, Some(4096)), (351, None)]
    {
        let (port_a, port_b) = loop_pair(&PipeConfig { mtu, ..PipeConfig::default() }).unwrap();
        let (ca, cb) = (device(port_a, 0, Progress::default(), |_| {}), device(port_b, 1, Progress::default(), |_| {}));
        assert_eq!(ca.query_port().active_mtu.map(PathMtu::bytes), active, "netdev MTU {mtu}");
        for path_mtu in PathMtu::ALL {
            let (a, b) = (Side::new(&ca, QpType::Rc, 1 << 14), Side::new(&cb, QpType::Rc, 1 << 14));
            let of = ConnectOptions { path_mtu: Some(path_mtu), ..options(1) };
            if active.is_none_or(|active| path_mtu.bytes() > active) {
                assert!(a.qp.connect(&b.qp.endpoint(&of).unwrap(), &of).is_err(), "{path_mtu:?} at {mtu}");
                assert_eq!(a.qp.state(), QpState::Init);
                continue;
            }
            a.qp.connect(&b.qp.endpoint(&of).unwrap(), &of).unwrap();
            b.qp.connect(&a.qp.endpoint(&of).unwrap(), &of).unwrap();
            // The longest headers there are, and a payload that fills the packet.
            b.recv(1, &[]);
            let op = SendOp::WriteImm { va: b.mr.addr(), rkey: b.mr.rkey(), imm: ImmData(1) };
            a.send(2, op, &[a.sge(0, path_mtu.bytes())]);
            a.success(&b, 2);
            b.success(&a, 1);
        }
    }
}
