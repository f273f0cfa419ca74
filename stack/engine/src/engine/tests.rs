//! The device as a whole, on ports that do nothing.

use super::*;
use crate::network::FixedNetwork;
use std::os::fd::AsRawFd;
use std::sync::mpsc::channel;
use xroce_port::{LinkChange, RxFrame, TxClass, TxFrame};
use xroce_transport::memory::Access;
use xroce_transport::qp::state::QpType;
use xroce_transport::wr::{QpCap, RecvWr, SendFlags, SendOp, SendWr, WrId};
use xroce_wire::Psn;

/// A port without a wire that counts how often it was told that somebody goes to sleep, and that he woke.
struct Bed {
    capabilities: Capabilities,
    before: Arc<AtomicUsize>,
    after: Arc<AtomicUsize>,
    link: Option<LinkChange>,
}

impl Port for Bed {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn rx_burst(&mut self, _max: usize) -> usize {
        0
    }
    fn rx_frame(&self, _i: usize) -> RxFrame<'_> {
        RxFrame { head: &[], tail: &[] }
    }
    fn rx_release(&mut self) {}
    fn tx_reserve(&mut self, _len: usize, _class: TxClass) -> Option<TxFrame<'_>> {
        None
    }
    fn tx_commit(&mut self, _len: usize) {}
    fn tx_flush(&mut self) {}
    fn tx_idle(&self) -> bool {
        true
    }
    fn wait_fds(&self, _out: &mut Vec<RawFd>) {}
    fn before_wait(&mut self) {
        self.before.fetch_add(1, Ordering::SeqCst);
    }
    fn after_wait(&mut self) {
        self.after.fetch_add(1, Ordering::SeqCst);
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
    fn link(&mut self) -> Option<LinkChange> {
        self.link.take()
    }
}

/// Calls of `before_wait` and `after_wait` of one port.
type Nights = [Arc<AtomicUsize>; 2];

fn start(ports: usize, config: EngineConfig) -> (Result<Engine, StartError>, Vec<Nights>) {
    let nights: Vec<Nights> = (0..ports).map(|_| Nights::default()).collect();
    let bed = |[before, after]: &Nights| {
        let (before, after) = (before.clone(), after.clone());
        Box::new(Bed { capabilities: capabilities(), before, after, link: None }) as Box<dyn Port>
    };
    (Engine::start(nights.iter().map(bed).collect(), network(), None, config), nights)
}

fn capabilities() -> Capabilities {
    Capabilities { mtu: 1500, max_frame: 1514, queues: 1, mac: [2; 6], xdp: None }
}

fn network() -> Network {
    Network::fixed(FixedNetwork {
        name: "test".into(),
        mtu: 1500,
        addresses: vec!["192.0.2.1".parse().unwrap()],
        neighbours: [("192.0.2.2".parse().unwrap(), crate::netdev::Mac([2, 0, 0, 0, 0, 2]))].into(),
        ..FixedNetwork::default()
    })
}

fn undriven() -> EngineConfig {
    EngineConfig { progress: Progress::Inline { helper: false }, seed: Some(1), ..EngineConfig::default() }
}

#[test]
fn settings_with_which_nothing_would_move_are_refused_by_name() {
    type Change = fn(&mut EngineConfig);
    let refused = |change: Change| {
        let mut config = undriven();
        change(&mut config);
        start(1, config).0.expect_err("it cannot work").to_string()
    };
    let cases: [(&str, Change); 11] = [
        ("max_qp", |c| c.max_qp = 0),
        ("max_mr", |c| c.max_mr = 0),
        ("budget.rx", |c| c.budget.rx = 0),
        ("budget.tx", |c| c.budget.tx = 0),
        ("budget.bells", |c| c.budget.bells = 0),
        ("budget.events", |c| c.budget.events = 0),
        ("window_packets", |c| c.limits.window_packets = 0),
        ("ack_req_every", |c| c.limits.ack_req_every = 0),
        ("max_qp_wr", |c| c.limits.max_qp_wr = 0),
        ("max_sge", |c| c.limits.max_sge = 0),
        ("max_cqe", |c| c.limits.max_cqe = 0),
    ];
    for (name, change) in cases {
        assert!(refused(change).starts_with(&format!("{name} is 0; it must be 1 to ")), "{}", refused(change));
    }
    assert_eq!(refused(|c| c.limits.max_msg_sz = 1 << 32), "max_msg_sz is 4294967296; it must be 1 to 2147483648");
    assert_eq!(refused(|c| c.limits.window_packets = 1 << 24), "window_packets is 16777216; it must be 1 to 8388608");
}

#[test]
fn a_shard_that_prepared_to_sleep_is_told_when_the_next_one_has_work() {
    let (engine, nights) = start(2, undriven());
    let engine = engine.unwrap();
    let (held, holds) = channel();
    let (let_go, wait) = channel::<()>();
    std::thread::scope(|scope| {
        // Somebody works on the second shard just then.
        let shard = engine.shards()[1].clone();
        scope.spawn(move || {
            shard.inspect(|_| {
                held.send(()).unwrap();
                wait.recv().unwrap();
            })
        });
        holds.recv().unwrap();
        engine.drive(engine.events().as_raw_fd(), Some(Duration::ZERO)).unwrap();
        let_go.send(()).unwrap();
    });
    let counts = |i: usize| [0, 1].map(|when| nights[i][when].load(Ordering::SeqCst));
    assert_eq!((counts(0), counts(1)), ([1, 1], [0, 0]));
    engine.drive(engine.events().as_raw_fd(), Some(Duration::ZERO)).unwrap();
    assert_eq!((counts(0), counts(1)), ([2, 2], [1, 1]));
}

/// A UC queue pair with a send queue of so many requests.
fn uc(engine: &Engine, max_send_wr: u32) -> QpInit {
    let pd = engine.memory().alloc_pd().unwrap();
    let cq = engine.create_cq(16, None).unwrap().cq().clone();
    let cap = QpCap { max_send_wr, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    QpInit { kind: QpType::Uc, pd, send_cq: cq.clone(), recv_cq: cq, cap, sq_sig_all: false }
}

fn to_init() -> QpAttr {
    QpAttr {
        qp_state: Some(QpState::Init),
        pkey_index: Some(0),
        port_num: Some(1),
        qp_access_flags: Some(Access::empty()),
        ..QpAttr::default()
    }
}

fn to_rtr() -> QpAttr {
    let av = AddressVector {
        dgid: Gid::from_ipv4([192, 0, 2, 2].into()),
        sgid_index: 0,
        hop_limit: 0,
        traffic_class: 0,
        flow_label: 0,
        sl: 0,
        port_num: 1,
        is_global: true,
    };
    QpAttr {
        qp_state: Some(QpState::Rtr),
        ah_attr: Some(av),
        path_mtu: Some(PathMtu::Mtu1024),
        dest_qp_num: Some(Qpn::new(9)),
        rq_psn: Some(Psn::new(0)),
        ..QpAttr::default()
    }
}

#[test]
fn no_path_opens_from_an_address_that_went_during_the_look_up() {
    let (engine, _) = start(1, undriven());
    let engine = engine.unwrap();
    let EngineQp { handle, shard } = engine.create_qp(uc(&engine, 1)).unwrap();
    engine.modify_qp(&shard, handle.qpn, &to_init()).unwrap();
    let to_rtr = to_rtr();
    let av = to_rtr.ah_attr.unwrap();
    let resolved = engine.resolve(handle.qpn, &av).unwrap();
    let gids = std::mem::replace(&mut engine.network.state_mut().gids, crate::gid::GidTable::new(&[]));
    let refused = engine.modify_resolved(&shard, handle.qpn, &to_rtr, Some(resolved)).unwrap_err();
    assert!(matches!(refused, ModifyError::NoSuchGid { index: 0, .. }), "{refused}");
    assert!(shard.inspect(|core| core.paths.ends()).unwrap().is_empty());
    engine.network.state_mut().gids = gids;
    engine.modify_qp(&shard, handle.qpn, &to_rtr).unwrap();
    assert_eq!(shard.inspect(|core| core.paths.ends().len()), Ok(1));
    engine.destroy_qp(&shard, handle.qpn);
}

/// Who raises the netdev's MTU may connect at once, though the news of it is still under way.
#[test]
fn the_mtu_of_the_look_up_counts_and_not_that_of_the_last_news() {
    let (engine, _) = start(1, undriven());
    let engine = engine.unwrap();
    let EngineQp { handle, shard } = engine.create_qp(uc(&engine, 1)).unwrap();
    engine.modify_qp(&shard, handle.qpn, &to_init()).unwrap();
    engine.network.state_mut().mtu = 900;
    assert_eq!(engine.active_mtu(), Some(PathMtu::Mtu512));
    let too_large = QpAttr { path_mtu: Some(PathMtu::Mtu2048), ..to_rtr() };
    let refused = engine.modify_qp(&shard, handle.qpn, &too_large).unwrap_err();
    assert!(matches!(refused, ModifyError::PathMtu { largest: 1024, mtu: 1500, .. }), "{refused}");
    engine.modify_qp(&shard, handle.qpn, &to_rtr()).unwrap();
}

/// No frame, no bell and no deadline tells of packets that a step had no budget for: UC has no ACK timer.
#[test]
fn who_leaves_packets_behind_keeps_the_helper_up() {
    let (port, _other) = xroce_port::sim::loop_pair(&xroce_port::sim::PipeConfig::default()).unwrap();
    let budget = Budget { tx: 1, ..Budget::default() };
    let engine = Engine::start(vec![Box::new(port)], network(), None, EngineConfig { budget, ..undriven() }).unwrap();
    let EngineQp { mut handle, shard } = engine.create_qp(uc(&engine, 8)).unwrap();
    let to_rts = QpAttr { qp_state: Some(QpState::Rts), sq_psn: Some(Psn::new(0)), ..QpAttr::default() };
    for attr in [to_init(), to_rtr(), to_rts] {
        engine.modify_qp(&shard, handle.qpn, &attr).unwrap();
    }
    let wr = SendWr { wr_id: WrId(0), op: SendOp::Send, flags: SendFlags::empty(), sges: &[], inline: &[] };
    for _ in 0..8 {
        handle.sq.post(&wr, 0).unwrap();
    }
    shard.ring(handle.qpn);
    let left = || 8 - engine.counters().unwrap()[0].0.tx_frames;
    shard.step();
    assert_eq!(left(), 6, "one before what has come in, one after");
    assert_eq!(shard.prepare_to_sleep(&mut Vec::new()), None, "it would sleep beside packets to send");
    // The helper sleeps, and the application takes the frame that would have woken it.
    shard.sleeper().lie_down(crate::sleep::Depth::Asleep);
    shard.sleeper().alarm(None);
    shard.step_inline();
    assert_eq!((left(), shard.sleeper().is_asleep()), (5, false));
    while left() > 0 || !shard.inspect(|core| core.is_idle(&engine.common)).unwrap() {
        shard.step_inline();
    }
    shard.sleeper().lie_down(crate::sleep::Depth::Asleep);
    shard.sleeper().alarm(None);
    shard.step_inline();
    assert!(shard.sleeper().is_asleep(), "nothing is left");
}

/// A step hands on so many wake-ups and no more: whoever waits for the others must not wait for the next frame.
#[test]
fn nobody_sleeps_on_wake_ups_that_were_not_handed_on() {
    let budget = Budget { events: 1, ..Budget::default() };
    let (engine, _) = start(1, EngineConfig { budget, ..undriven() });
    let engine = engine.unwrap();
    let recv_cq = engine.create_cq(16, None).unwrap().cq().clone();
    let init = QpInit { recv_cq: recv_cq.clone(), ..uc(&engine, 1) };
    let send_cq = init.send_cq.clone();
    let EngineQp { mut handle, shard } = engine.create_qp(init).unwrap();
    engine.modify_qp(&shard, handle.qpn, &to_init()).unwrap();
    let wr = SendWr { wr_id: WrId(0), op: SendOp::Send, flags: SendFlags::empty(), sges: &[], inline: &[] };
    handle.sq.post(&wr, 0).unwrap();
    handle.rq.post(&RecvWr { wr_id: WrId(0), sges: &[] }).unwrap();
    assert!(!send_cq.arm(false) && !recv_cq.arm(false));
    let to_err = QpAttr { qp_state: Some(QpState::Err), ..QpAttr::default() };
    engine.modify_qp(&shard, handle.qpn, &to_err).unwrap();
    assert_eq!(shard.prepare_to_sleep(&mut Vec::new()), None, "two queues were armed, one owner was woken");
    shard.step();
    assert_eq!(shard.prepare_to_sleep(&mut Vec::new()), Some(None));
}

fn to_rts() -> QpAttr {
    QpAttr { qp_state: Some(QpState::Rts), sq_psn: Some(Psn::new(0)), ..QpAttr::default() }
}

/// A UC queue pair in RTS.
fn connected(engine: &Engine) -> EngineQp {
    let qp = engine.create_qp(uc(engine, 8)).unwrap();
    for attr in [to_init(), to_rtr(), to_rts()] {
        engine.modify_qp(&qp.shard, qp.handle.qpn, &attr).unwrap();
    }
    qp
}

/// Posts a message of no bytes.
fn post(qp: &mut EngineQp, op: SendOp) {
    let wr = SendWr { wr_id: WrId(0), op, flags: SendFlags::SIGNALED, sges: &[], inline: &[] };
    qp.handle.sq.post(&wr, 0).unwrap();
    qp.shard.ring(qp.handle.qpn);
}

fn to(state: QpState) -> QpAttr {
    QpAttr { qp_state: Some(state), ..QpAttr::default() }
}

#[test]
fn paths_live_as_long_as_their_queue_pairs_use_them() {
    let (engine, _) = start(1, undriven());
    let engine = engine.unwrap();
    let EngineQp { handle, shard } = engine.create_qp(QpInit { kind: QpType::Rc, ..uc(&engine, 1) }).unwrap();
    let modify = |attr: &QpAttr| engine.modify_qp(&shard, handle.qpn, attr);
    let open = || shard.inspect(|core| core.paths.ends().len()).unwrap();
    let to_rtr = |max_dest_rd_atomic| QpAttr {
        max_dest_rd_atomic: Some(max_dest_rd_atomic),
        min_rnr_timer: Some(12),
        ..to_rtr()
    };
    modify(&to_init()).unwrap();
    let refused = modify(&to_rtr(255)).unwrap_err();
    assert!(matches!(refused, ModifyError::Refused { .. }), "{refused}");
    assert_eq!(open(), 0, "of a step that was refused after the look-up");
    modify(&to_rtr(1)).unwrap();
    let (timeout, retry_cnt, rnr_retry, max_rd_atomic) = (Some(14), Some(7), Some(7), Some(1));
    modify(&QpAttr { timeout, retry_cnt, rnr_retry, max_rd_atomic, ..to_rts() }).unwrap();
    modify(&to(QpState::Sqd)).unwrap();
    let other = to_rtr(1).ah_attr.map(|av| AddressVector { sl: 3, ..av });
    modify(&QpAttr { ah_attr: other, ..to(QpState::Sqd) }).unwrap();
    assert_eq!(open(), 1, "one in place of another");
    modify(&to(QpState::Err)).unwrap();
    assert_eq!(open(), 1);
    modify(&to(QpState::Reset)).unwrap();
    assert_eq!(open(), 0);
    modify(&to_init()).unwrap();
    modify(&to_rtr(1)).unwrap();
    assert_eq!(open(), 1);
    engine.destroy_qp(&shard, handle.qpn);
    assert_eq!(open(), 0);
}

#[test]
fn events_that_find_no_room_are_counted() {
    let (engine, _) = start(1, undriven());
    let engine = engine.unwrap();
    let EngineQp { handle, shard } = connected(&engine);
    let event = crate::event::AsyncEvent::of_port(crate::event::AsyncEventKind::PortErr);
    while engine.common.events.push(event) {}
    engine.modify_qp(&shard, handle.qpn, &QpAttr { en_sqd_async_notify: Some(true), ..to(QpState::Sqd) }).unwrap();
    assert_eq!(engine.counters().unwrap()[0].1.events_lost, 1, "the queue is drained, and nobody learns of it");
}

/// What is sent is lost, and the transport goes on: its timers and retries find out what that means.
#[test]
fn a_port_that_is_gone_is_not_asked_for_room() {
    let link = Some(LinkChange::Gone("pulled out".into()));
    let bed = Bed { capabilities: capabilities(), before: Arc::default(), after: Arc::default(), link };
    let engine = Engine::start(vec![Box::new(bed)], network(), None, undriven()).unwrap();
    let mut qp = connected(&engine);
    post(&mut qp, SendOp::Send);
    let outcome = qp.shard.step().unwrap();
    assert!(!outcome.stalled);
    assert_eq!(engine.counters().unwrap()[0].1.no_next_hop, 1);
}

#[test]
fn who_has_no_room_at_the_port_looks_again_soon() {
    let (engine, _) = start(1, undriven());
    let engine = engine.unwrap();
    let mut qp = connected(&engine);
    post(&mut qp, SendOp::Send);
    assert!(qp.shard.step().unwrap().stalled);
    // UC has no timer: there is no other deadline.
    let until = qp.shard.prepare_to_sleep(&mut Vec::new());
    assert!(matches!(until, Some(Some(ns)) if ns <= crate::progress::STALL_NS), "{until:?}");
}

#[test]
fn nobody_sleeps_on_packets_that_were_handed_over() {
    let (engine, _) = start(2, undriven());
    let engine = engine.unwrap();
    let shard = &engine.shards()[1];
    assert_eq!(shard.prepare_to_sleep(&mut Vec::new()), Some(None));
    assert!(engine.common.mailboxes[1].inbox.put(&[0; 64], &[], None, false));
    assert_eq!(shard.prepare_to_sleep(&mut Vec::new()), None);
    shard.step();
    assert_eq!(shard.prepare_to_sleep(&mut Vec::new()), Some(None));
}

/// Two devices on one wire, with a connected RC queue pair each.
fn wired() -> [(Engine, EngineQp); 2] {
    let (a, b) = xroce_port::sim::loop_pair(&xroce_port::sim::PipeConfig::default()).unwrap();
    let macs = [&a, &b].map(|port| port.capabilities().mac);
    let mut ends = [(0, a), (1, b)].map(|(i, port)| {
        let fixed = FixedNetwork {
            mtu: 1500,
            mac: crate::netdev::Mac(macs[i]),
            addresses: vec![[192, 0, 2, 1 + i as u8].into()],
            others: Some(crate::netdev::Mac(macs[1 - i])),
            ..FixedNetwork::default()
        };
        let engine = Engine::start(vec![Box::new(port)], Network::fixed(fixed), None, undriven()).unwrap();
        let qp = engine.create_qp(QpInit { kind: QpType::Rc, ..uc(&engine, 8) }).unwrap();
        (engine, qp)
    });
    let qpns = [0, 1].map(|i: usize| ends[i].1.handle.qpn);
    for (i, (engine, qp)) in ends.iter_mut().enumerate() {
        let dgid = Gid::from_ipv4([192, 0, 2, 2 - i as u8].into());
        let ah_attr = to_rtr().ah_attr.map(|av| AddressVector { dgid, ..av });
        let (max_dest_rd_atomic, min_rnr_timer) = (Some(1), Some(12));
        // 8 us.
        let (timeout, retry_cnt, rnr_retry, max_rd_atomic) = (Some(1), Some(7), Some(7), Some(1));
        for attr in [
            QpAttr { qp_access_flags: Some(Access::REMOTE_WRITE), ..to_init() },
            QpAttr { ah_attr, dest_qp_num: Some(qpns[1 - i]), max_dest_rd_atomic, min_rnr_timer, ..to_rtr() },
            QpAttr { timeout, retry_cnt, rnr_retry, max_rd_atomic, ..to_rts() },
        ] {
            engine.modify_qp(&qp.shard, qp.handle.qpn, &attr).unwrap();
        }
    }
    ends
}

#[test]
fn nobody_sleeps_on_an_ack_that_waits_for_company() {
    let [(_a, mut from), (_b, to)] = wired();
    to.shard.control(|core, _| core.let_acks_wait(true)).unwrap();
    post(&mut from, SendOp::Write { va: 0, rkey: xroce_wire::Rkey(0) });
    from.shard.step();
    to.shard.step();
    assert_eq!(to.shard.prepare_to_sleep(&mut Vec::new()), None);
    to.shard.step();
    assert_eq!(to.shard.prepare_to_sleep(&mut Vec::new()), Some(None));
}

#[test]
fn an_ack_timer_that_runs_out_calls_for_a_look_at_the_neighbour() {
    let [(engine, mut from), _other] = wired();
    engine.common.attention.take();
    post(&mut from, SendOp::Write { va: 0, rkey: xroce_wire::Rkey(0) });
    from.shard.step();
    assert!(!engine.common.attention.take());
    std::thread::sleep(Duration::from_millis(1));
    from.shard.step();
    assert!(engine.common.attention.take());
}
