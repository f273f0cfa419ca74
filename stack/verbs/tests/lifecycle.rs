//! Making, changing and destroying: what is refused, by what name, and what is left afterwards.

mod common;

use common::{MODES, PATIENCE, Side, all_rights, connect, connected, device, devices, ip, options, pattern};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xroce::{
    Access, AddressVector, AsyncEventKind, ConnectError, ConnectOptions, CreateQpError, Device, ModifyError, PathMtu,
    PostError, PostReason, Progress, QpAttr, QpInitAttr, QpState, QpType, RecvWr, RegError, SendFlags, SendOp, SendWr,
    WcStatus, WrId,
};
use xroce_port::sim::{PipeConfig, loop_pair};

#[test]
fn parents_refuse_to_go_before_their_children() {
    let (context, _peer) = devices(Progress::default());
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    let mr = pd.reg_mr(vec![0u8; 64], all_rights()).unwrap();

    let pd = pd.dealloc().unwrap_err().pd;
    let busy = cq.destroy().unwrap_err();
    assert_eq!(busy.users, 2, "sends and receives of the queue pair");
    let cq = busy.cq;
    let busy = context.close().unwrap_err();
    assert!(busy.users >= 2);
    let context = busy.context;

    qp.destroy();
    cq.destroy().unwrap();
    let pd = pd.dealloc().unwrap_err().pd;
    assert_eq!(mr.dereg().unwrap().into_vec(), vec![0; 64]);
    pd.dealloc().unwrap();
    context.close().unwrap();
}

#[test]
fn handles_may_be_dropped_in_any_order() {
    let (context, peer) = devices(Progress::Event);
    let b = Side::new(&peer, QpType::Rc, 64);
    let Side { qp, mr, cq, pd, context: again } = Side::new(&context, QpType::Rc, 64);
    drop((context, again, pd));
    let of_a = options(1);
    b.qp.connect(&qp.endpoint(&of_a).unwrap(), &options(2)).unwrap();
    qp.connect(&b.qp.endpoint(&options(2)).unwrap(), &of_a).unwrap();
    let flags = SendFlags::SIGNALED;
    let sge = [mr.sge(0..64).unwrap()];
    b.recv(1, &[b.sge(0, 64)]);
    qp.post_send(&SendWr { wr_id: WrId(1), op: SendOp::Send, flags, sges: &sge, inline: &[] }).unwrap();
    assert_eq!(cq.poll_timeout(PATIENCE).unwrap().unwrap().status, WcStatus::Success);
    drop(cq);
    drop(mr);
    drop(qp);
}

/// Whether a descriptor can be read from now.
fn is_readable(fd: RawFd) -> bool {
    let mut fds = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
    // SAFETY: one entry, alive during the call.
    unsafe { libc::poll(fds.as_mut_ptr(), 1, 0) == 1 }
}

#[test]
fn the_descriptor_of_events_is_readable_while_there_is_one() {
    for mode in MODES {
        let (a, _b) = connected(mode, QpType::Rc, 64);
        let context = &a.context;
        assert_eq!(context.async_fd().as_raw_fd(), context.async_raw_fd());
        assert!(!is_readable(context.async_raw_fd()), "{mode:?}");
        assert_eq!(context.try_get_async_event(), None);
        // Nothing is outstanding, so it is drained at once.
        let sqd = QpAttr { qp_state: Some(QpState::Sqd), en_sqd_async_notify: Some(true), ..QpAttr::default() };
        a.qp.modify(&sqd).unwrap();
        assert!(is_readable(context.async_raw_fd()), "{mode:?}");
        let event = context.try_get_async_event().unwrap();
        assert_eq!((event.kind, event.qpn), (AsyncEventKind::SqDrained, Some(a.qp.qpn())));
        assert_eq!(context.try_get_async_event(), None);
        assert!(!is_readable(context.async_raw_fd()), "{mode:?}");
    }
}

#[test]
fn a_region_can_be_filled_and_read_as_a_slice() {
    let (a, b) = connected(Progress::default(), QpType::Rc, 64);
    // SAFETY: nothing is outstanding, and the peer uses no key of this region.
    unsafe { a.mr.as_mut_slice() }.copy_from_slice(&pattern(5, 64));
    b.recv(1, &[b.sge(0, 64)]);
    a.send(2, SendOp::Send, &[a.sge(0, 64)]);
    a.success(&b, 2);
    b.success(&a, 1);
    // SAFETY: the RECV is done, no other is outstanding, and the peer uses no key of this region.
    assert_eq!(unsafe { b.mr.as_slice() }, pattern(5, 64));
}

#[test]
fn h41_every_step_names_what_it_lacks() {
    let (context, _peer) = devices(Progress::default());
    let a = Side::new(&context, QpType::Rc, 64);
    let step = |state| QpAttr { qp_state: Some(state), ..QpAttr::default() };
    let text = |attr: QpAttr| a.qp.modify(&attr).unwrap_err().to_string();
    assert!(text(step(QpState::Rts)).contains("cannot go from RESET to RTS"));
    let qpn = a.qp.qpn().to_string();
    let init = text(step(QpState::Init));
    for name in ["pkey_index", "port_num", "qp_access_flags", &qpn] {
        assert!(init.contains(name), "{init}");
    }
    a.qp.to_init(&options(0)).unwrap();
    let rtr = text(step(QpState::Rtr));
    for name in ["ah_attr", "path_mtu", "dest_qp_num", "rq_psn", "max_dest_rd_atomic", "min_rnr_timer"] {
        assert!(rtr.contains(name), "{rtr}");
    }
    let without_grh = AddressVector {
        dgid: xroce::Gid([0; 16]),
        sgid_index: 0,
        hop_limit: 0,
        traffic_class: 0,
        flow_label: 0,
        sl: 0,
        port_num: 1,
        is_global: false,
    };
    let rtr = QpAttr {
        qp_state: Some(QpState::Rtr),
        ah_attr: Some(without_grh),
        path_mtu: Some(PathMtu::Mtu1024),
        dest_qp_num: Some(a.qp.qpn()),
        rq_psn: Some(xroce::Psn::new(0)),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(1),
        ..QpAttr::default()
    };
    assert!(text(rtr).contains("GRH"));
    let no_gid = QpAttr { ah_attr: Some(AddressVector { is_global: true, sgid_index: 9, ..without_grh }), ..rtr };
    assert!(matches!(a.qp.modify(&no_gid), Err(ModifyError::NoSuchGid { index: 9, .. })));
    assert_eq!(a.qp.state(), QpState::Init);
}

#[test]
fn a_peer_that_does_not_answer_leaves_the_queue_pair_in_init() {
    let (context, _peer) = devices(Progress::default());
    let a = Side::new(&context, QpType::Rc, 64);
    let mut nobody = a.qp.endpoint(&options(0)).unwrap();
    nobody.gid = xroce::Gid::from_ipv4("192.0.2.99".parse().unwrap());
    let error = a.qp.connect(&nobody, &options(0)).unwrap_err();
    assert!(matches!(error, ConnectError::Step { to: QpState::Rtr, source: ModifyError::NoNextHop { .. } }), "{error}");
    assert!(error.to_string().contains("192.0.2.99"), "{error}");
    assert_eq!(a.qp.state(), QpState::Init);
}

#[test]
fn a_path_mtu_that_does_not_fit_is_refused_with_the_largest_that_does() {
    let (port, _other) = loop_pair(&PipeConfig { mtu: 1500, ..PipeConfig::default() }).unwrap();
    let context = device(port, 0, Progress::default(), |_| {});
    assert_eq!(context.query_port().active_mtu, Some(PathMtu::Mtu1024));
    let a = Side::new(&context, QpType::Rc, 64);
    let opts = ConnectOptions { path_mtu: Some(PathMtu::Mtu2048), ..options(0) };
    let error = a.qp.connect(&a.qp.endpoint(&opts).unwrap(), &opts).unwrap_err();
    assert!(error.to_string().contains("the largest is 1024"), "{error}");
    assert!(error.to_string().contains("at least 2144"), "{error}");
    assert_eq!(a.qp.state(), QpState::Init);
    let opts = ConnectOptions { path_mtu: Some(PathMtu::Mtu1024), ..opts };
    a.qp.connect(&a.qp.endpoint(&opts).unwrap(), &opts).unwrap();
}

/// Reports H18, H43.
#[test]
fn capacities_are_granted_or_refused_by_name() {
    let (context, _peer) = devices(Progress::default());
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16).unwrap());
    let attr = context.query_device();
    let base = QpInitAttr::new(QpType::Rc, &cq);
    type Field = fn(&mut xroce::QpCap) -> &mut u32;
    let fields: [(&str, Field, u32); 5] = [
        ("max_send_wr", |c| &mut c.max_send_wr, attr.max_qp_wr),
        ("max_recv_wr", |c| &mut c.max_recv_wr, attr.max_qp_wr),
        ("max_send_sge", |c| &mut c.max_send_sge, attr.max_sge),
        ("max_recv_sge", |c| &mut c.max_recv_sge, attr.max_sge),
        ("max_inline_data", |c| &mut c.max_inline_data, attr.max_inline_data),
    ];
    for (name, field, max) in fields {
        for asked in [0, 1, max] {
            let mut init = base;
            *field(&mut init.cap) = asked;
            let mut granted = pd.create_qp(&init).unwrap().cap();
            assert!(*field(&mut granted) >= asked, "{name}");
        }
        for asked in [max + 1, u32::MAX] {
            let mut init = base;
            *field(&mut init.cap) = asked;
            match pd.create_qp(&init).unwrap_err() {
                CreateQpError::Cap { name: named, asked: a, max: m } => assert_eq!((named, a, m), (name, asked, max)),
                other => panic!("{other}"),
            }
        }
    }
    assert!(context.create_cq(0).is_err());
    assert!(context.create_cq(attr.max_cqe + 1).is_err());
}

#[test]
fn objects_of_two_devices_do_not_mix() {
    let (ca, cb) = devices(Progress::default());
    let (pd, own, foreign) = (ca.alloc_pd().unwrap(), ca.create_cq(16).unwrap(), cb.create_cq(16).unwrap());
    let init = QpInitAttr { recv_cq: &foreign, ..QpInitAttr::new(QpType::Rc, &own) };
    assert!(matches!(pd.create_qp(&init), Err(CreateQpError::ForeignCq { which: "receive" })));
    let channel = cb.create_comp_channel().unwrap();
    assert!(ca.create_cq_on(16, &channel).is_err());
    let mut mr = pd.reg_mr(vec![0u8; 8], all_rights()).unwrap();
    let other = cb.alloc_pd().unwrap();
    assert!(matches!(mr.rereg(Some(&other), None), Err(RegError::UnknownPd { .. })));
}

/// Report H42.
#[test]
fn a_chain_runs_up_to_its_bad_request() {
    for bad in 0..5usize {
        let (a, b) = connected(Progress::default(), QpType::Rc, 64);
        (0..5).for_each(|i| b.recv(i, &[]));
        let sges = [a.sge(0, 8); 5];
        let wr = |i: usize| {
            let sges = if i == bad { &sges[..] } else { &sges[..1] };
            SendWr { wr_id: WrId(i as u64), op: SendOp::Send, flags: SendFlags::SIGNALED, sges, inline: &[] }
        };
        // The receives take no bytes: send none either.
        let wrs: Vec<_> = (0..5).map(|i| if i == bad { wr(i) } else { SendWr { sges: &[], ..wr(i) } }).collect();
        let error = a.qp.post_send_chain(&wrs).unwrap_err();
        assert_eq!((error.index, error.qpn), (bad, a.qp.qpn()));
        assert!(matches!(error.reason, PostReason::Request(PostError::TooManySges { given: 5, max: 4 })), "{error}");
        (0..bad as u64).for_each(|i| {
            a.success(&b, i);
        });
        assert!(a.cq.poll_timeout(Duration::from_millis(5)).unwrap().is_none(), "nothing behind the bad one ran");
    }
}

/// Report H42.
#[test]
fn posts_need_their_states() {
    let (context, _peer) = devices(Progress::default());
    let a = Side::new(&context, QpType::Rc, 64);
    let recv = RecvWr { wr_id: WrId(0), sges: &[] };
    let send = SendWr { wr_id: WrId(0), op: SendOp::Send, flags: SendFlags::empty(), sges: &[], inline: &[] };
    let refused = |error: xroce::PostChainError| match error.reason {
        PostReason::State { state, .. } => state,
        PostReason::Request(other) => panic!("{other}"),
    };
    assert_eq!(refused(a.qp.post_recv(&recv).unwrap_err()), QpState::Reset);
    assert_eq!(refused(a.qp.post_send(&send).unwrap_err()), QpState::Reset);
    a.qp.to_init(&options(0)).unwrap();
    a.qp.post_recv(&recv).unwrap();
    assert_eq!(refused(a.qp.post_send(&send).unwrap_err()), QpState::Init);
    a.qp.to_rtr(&a.qp.endpoint(&options(0)).unwrap(), &options(0)).unwrap();
    assert_eq!(refused(a.qp.post_send(&send).unwrap_err()), QpState::Rtr);
    a.qp.to_rts(&options(0)).unwrap();
    a.qp.post_send(&send).unwrap();
}

/// Report H42.
#[test]
fn full_queues_say_how_deep_they_are() {
    let (context, _peer) = devices(Progress::Inline { helper: false });
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(64).unwrap());
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    qp.to_init(&options(0)).unwrap();
    let recv = RecvWr { wr_id: WrId(0), sges: &[] };
    (0..qp.cap().max_recv_wr).for_each(|_| qp.post_recv(&recv).unwrap());
    let error = qp.post_recv(&recv).unwrap_err();
    assert!(
        matches!(error.reason, PostReason::Request(PostError::QueueFull { depth }) if depth == qp.cap().max_recv_wr)
    );
}

#[test]
fn reads_and_atomics_are_refused_at_the_post_while_none_may_be_outstanding() {
    let (context, peer) = devices(Progress::default());
    let (a, b) = (Side::new(&context, QpType::Rc, 64), Side::new(&peer, QpType::Rc, 64));
    let none = ConnectOptions { max_rd_atomic: 0, ..options(1) };
    let (at_a, at_b) = (a.qp.endpoint(&none).unwrap(), b.qp.endpoint(&options(2)).unwrap());
    a.qp.connect(&at_b, &none).unwrap();
    b.qp.connect(&at_a, &options(2)).unwrap();
    let (sges, flags) = ([a.sge(0, 8)], SendFlags::SIGNALED);
    let (va, rkey) = (b.mr.addr(), b.mr.rkey());
    let ops = [SendOp::Read { va, rkey }, SendOp::FetchAdd { va, rkey, add: 1 }];
    let post = |op| a.qp.post_send(&SendWr { wr_id: WrId(1), op, flags, sges: &sges, inline: &[] });
    for op in ops {
        let error = post(op).unwrap_err();
        assert!(matches!(error.reason, PostReason::Request(PostError::NoReadAtomic { .. })), "{error}");
    }
    let to = |qp_state| QpAttr { qp_state: Some(qp_state), ..QpAttr::default() };
    a.qp.modify(&to(QpState::Sqd)).unwrap();
    a.qp.modify(&QpAttr { max_rd_atomic: Some(1), ..to(QpState::Sqd) }).unwrap();
    a.qp.modify(&to(QpState::Rts)).unwrap();
    for op in ops {
        post(op).unwrap();
        a.success(&b, 1);
    }
}

#[test]
fn in_err_everything_is_flushed_in_order() {
    let (a, b) = connected(Progress::default(), QpType::Rc, 64);
    (0..3).for_each(|i| a.recv(i, &[a.sge(0, 8)]));
    a.qp.modify(&QpAttr { qp_state: Some(QpState::Err), ..QpAttr::default() }).unwrap();
    (3..5).for_each(|i| a.recv(i, &[a.sge(0, 8)]));
    a.send(5, SendOp::Send, &[]);
    let mut ids: Vec<u64> = (0..6)
        .map(|_| {
            let wc = a.wc(&b);
            assert_eq!(wc.status, WcStatus::WrFlushErr);
            wc.wr_id.0
        })
        .collect();
    let sent = ids.iter().position(|id| *id == 5).unwrap();
    ids.remove(sent);
    assert_eq!(ids, [0, 1, 2, 3, 4]);
    a.qp.modify(&QpAttr { qp_state: Some(QpState::Reset), ..QpAttr::default() }).unwrap();
    connect_again(&a, &b);
}

/// A queue pair that was reset works again, with a fresh one at the other end.
fn connect_again(a: &Side, b: &Side) {
    let fresh = Side::new(&b.context, QpType::Rc, 64);
    connect(a, &fresh);
    fresh.recv(1, &[fresh.sge(0, 8)]);
    a.send(2, SendOp::Send, &[a.sge(0, 8)]);
    a.success(&fresh, 2);
    fresh.success(a, 1);
}

#[test]
fn deregistering_under_load_ends_in_errors_and_frees_the_bytes() {
    for mode in MODES {
        let (a, b) = connected(mode, QpType::Rc, 1 << 20);
        let Side { qp, mr, cq, context, pd: _pd } = a;
        let stop = Arc::new(AtomicBool::new(false));
        let driver = {
            let (stop, peer, own) = (stop.clone(), b.context.clone(), context.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    peer.drive();
                    own.drive();
                    std::thread::yield_now();
                }
            })
        };
        let sges = [mr.sge(0..1 << 20).unwrap()];
        let op = SendOp::Write { va: b.mr.addr(), rkey: b.mr.rkey() };
        for i in 0..8 {
            let wr = SendWr { wr_id: WrId(i), op, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] };
            qp.post_send(&wr).unwrap();
        }
        let bytes = mr.dereg().unwrap().into_vec();
        assert_eq!(bytes.len(), 1 << 20);
        drop(bytes);
        let statuses: Vec<WcStatus> = (0..8).map(|_| cq.poll_timeout(PATIENCE).unwrap().unwrap().status).collect();
        let broken = statuses.iter().position(|s| *s != WcStatus::Success);
        if let Some(first) = broken {
            assert_eq!(statuses[first], WcStatus::LocProtErr, "{mode:?}");
            assert!(statuses[first + 1..].iter().all(|s| *s == WcStatus::WrFlushErr), "{statuses:?}");
        }
        stop.store(true, Ordering::Relaxed);
        driver.join().unwrap();
    }
}

#[test]
fn registering_again_and_the_views_of_a_region() {
    let (a, b) = connected(Progress::default(), QpType::Rc, 64);
    let mut mr = b.pd.reg_mr(pattern(0, 64), Access::LOCAL_WRITE).unwrap();
    let key = mr.rkey();
    a.send(1, SendOp::Read { va: mr.addr(), rkey: key }, &[a.sge(0, 64)]);
    assert_eq!(a.wc(&b).status, WcStatus::RemAccessErr, "no right to read");
    let event = b.context.get_async_event(Some(PATIENCE)).unwrap().unwrap();
    assert!(matches!(event.kind, AsyncEventKind::CommEst | AsyncEventKind::QpAccessErr), "{event:?}");

    mr.rereg(None, Some(all_rights())).unwrap();
    assert_eq!(mr.rkey(), key, "other rights, same key");
    let old = mr.rereg_buffer(vec![7u8; 32]).unwrap().unwrap();
    assert_eq!(old.into_vec(), pattern(0, 64));
    assert_ne!(mr.rkey(), key);
    assert_eq!((mr.len(), mr.to_vec(0..32).unwrap()), (32, vec![7; 32]));
    assert!(mr.read_at(30, &mut [0; 3]).is_err() && mr.write_at(usize::MAX, &[0]).is_err() && mr.sge(0..33).is_err());
    assert!(mr.atomic_u64(25).is_err());

    let zero_based = b.pd.reg_mr(vec![0u8; 16], all_rights() | Access::ZERO_BASED).unwrap();
    assert_eq!(zero_based.addr(), 0);
    let far = b.pd.reg_mr_iova(vec![0u8; 16], 1 << 63, all_rights()).unwrap();
    assert_eq!(far.sge(1..3).unwrap().addr, (1 << 63) + 1);
    let refused = b.pd.reg_mr(Vec::new(), all_rights()).unwrap_err();
    assert_eq!(refused.buffer.unwrap().len(), 0, "the buffer comes back");
}

#[test]
fn foreign_memory_by_pointer() {
    let (a, b) = connected(Progress::default(), QpType::Rc, 64);
    let mut words = [0u64; 8];
    // SAFETY: `words` outlives `mr`, and is not touched while it is registered.
    let mr = unsafe { b.pd.reg_mr_raw(words.as_mut_ptr().cast(), 64, Some(0x1000), all_rights()) }.unwrap();
    a.mr.fill(0xab);
    a.send(1, SendOp::Write { va: 0x1000 + 8, rkey: mr.rkey() }, &[a.sge(0, 8)]);
    a.success(&b, 1);
    assert!(mr.dereg().is_none());
    assert_eq!(words, [0, 0xabab_abab_abab_abab, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn queries() {
    let (port, _other) = loop_pair(&PipeConfig::default()).unwrap();
    let context = Device::on_port(Box::new(port), &[ip("fe80::1"), ip("192.0.2.7")]).open().unwrap();
    let attr = context.query_port();
    assert_eq!((attr.lid, attr.gid_tbl_len, attr.active_mtu), (0, 2, Some(PathMtu::Mtu4096)));
    assert!(context.query_gid(0).unwrap().is_link_local());
    assert_eq!(context.default_gid().unwrap().address, ip("192.0.2.7"));
    assert!(context.query_gid(2).unwrap_err().to_string().contains("[0, 1]"));
    let a = Side::new(&context, QpType::Uc, 64);
    let opts = ConnectOptions { gid_index: 1, ..options(77) };
    a.qp.connect(&a.qp.endpoint(&opts).unwrap(), &opts).unwrap();
    let info = a.qp.query().unwrap();
    assert_eq!((info.attr.qp_state, info.attr.sq_psn), (Some(QpState::Rts), Some(opts.psn)));
    assert_eq!(info.path.unwrap().hop_limit, 64);
}

/// Report H28.
#[test]
fn a_dead_peer_is_noticed_in_bounded_time() {
    for mode in [Progress::Event, Progress::default()] {
        let (a, b) = devices(mode);
        let (a, b) = (Side::new(&a, QpType::Rc, 64), Side::new(&b, QpType::Rc, 64));
        let quick = ConnectOptions { timeout: 8, retry_cnt: 3, ..options(0) };
        a.qp.connect(&b.qp.endpoint(&quick).unwrap(), &quick).unwrap();
        let start = Instant::now();
        drop(b);
        a.send(1, SendOp::Send, &[a.sge(0, 8)]);
        let wc = a.cq.poll_timeout(PATIENCE).unwrap().unwrap();
        assert_eq!(wc.status, WcStatus::RetryExcErr);
        assert!(start.elapsed() < Duration::from_secs(5), "{mode:?}");
    }
}

/// Report H35.
#[test]
fn a_port_that_is_gone_is_an_event_and_ends_what_was_sent() {
    let (a, other) = devices(Progress::Event);
    let a = Side::new(&a, QpType::Rc, 64);
    let b = Side::new(&other, QpType::Rc, 64);
    drop(other);
    let quick = ConnectOptions { timeout: 8, retry_cnt: 3, ..options(0) };
    a.qp.connect(&b.qp.endpoint(&quick).unwrap(), &quick).unwrap();
    drop(b);
    // The other end of the wire goes with its device.
    let event = a.context.get_async_event(Some(PATIENCE)).unwrap().unwrap();
    assert_eq!(event.kind, AsyncEventKind::DeviceFatal);
    a.send(1, SendOp::Send, &[a.sge(0, 8)]);
    assert_eq!(a.cq.poll_timeout(PATIENCE).unwrap().unwrap().status, WcStatus::RetryExcErr);
}

#[test]
fn reset_leaves_nothing_in_the_queue_whoever_posts_meanwhile() {
    let (a, b) = connected(Progress::Inline { helper: true }, QpType::Rc, 64);
    let wr = SendWr { wr_id: WrId(1), op: SendOp::Send, flags: SendFlags::empty(), sges: &[], inline: &[] };
    let chain = [wr; 16];
    let reset = QpAttr { qp_state: Some(QpState::Reset), ..QpAttr::default() };
    let (of_a, of_b) = (options(5), options(6));
    let at_b = b.qp.endpoint(&of_b).unwrap();
    for round in 0..100 {
        std::thread::scope(|scope| {
            let poster = scope.spawn(|| {
                while !matches!(
                    a.qp.post_send_chain(&chain).map_err(|e| e.reason),
                    Err(PostReason::State { state: QpState::Reset, .. })
                ) {}
            });
            std::thread::sleep(std::time::Duration::from_micros(300));
            a.qp.modify(&reset).unwrap();
            poster.join().unwrap();
        });
        let sent = a.qp.counters().unwrap().sent_pkts;
        a.qp.connect(&at_b, &of_a).unwrap();
        a.context.drive();
        assert_eq!(a.qp.counters().unwrap().sent_pkts, sent, "round {round}");
    }
}
