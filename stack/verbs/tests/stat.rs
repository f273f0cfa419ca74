//! What a device says of itself and its queue pairs, in the process and to others.

mod common;

use common::{PATIENCE, Side, connect, devices, options};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use xroce::stat::{self, Which};
use xroce::{ConnectOptions, Context, Progress, QpState, QpType, SendFlags, SendOp, SendWr, WrId};

/// One SEND, one WRITE, one READ and one atomic from `a` to `b`.
fn one_of_each(a: &Side, b: &Side) {
    b.recv(1, &[b.sge(0, 64)]);
    let va = b.mr.addr();
    let rkey = b.mr.rkey();
    let ops =
        [SendOp::Send, SendOp::Write { va, rkey }, SendOp::Read { va, rkey }, SendOp::FetchAdd { va, rkey, add: 1 }];
    for (i, op) in ops.into_iter().enumerate() {
        let len = if matches!(op, SendOp::FetchAdd { .. }) { 8 } else { 64 };
        let sges = [a.mr.sge(0..len).unwrap()];
        let wr = SendWr { wr_id: WrId(i as u64), op, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] };
        a.qp.post_send(&wr).unwrap();
        let wc = a.cq.poll_timeout(PATIENCE).unwrap().expect("in time");
        assert!(wc.status.is_success(), "{:?}", wc.failure());
    }
}

fn pair(progress: Progress) -> (Context, Context, Side, Side) {
    let (ca, cb) = devices(progress);
    let (a, b) = (Side::new(&ca, QpType::Rc, 4096), Side::new(&cb, QpType::Rc, 4096));
    connect(&a, &b);
    (ca, cb, a, b)
}

#[test]
fn counters_have_the_names_of_rxe_and_mlx5() {
    let (ca, cb, a, b) = pair(Progress::Event);
    one_of_each(&a, &b);
    let (here, there) = (ca.stat().unwrap(), cb.stat().unwrap());
    assert_eq!(here.counters.len(), stat::NAMES.len());
    assert_eq!((here.counters["rdma_sends"], there.counters["rdma_recvs"]), (4, 1));
    let served = ["rx_write_requests", "rx_read_requests", "rx_atomic_requests"].map(|name| there.counters[name]);
    assert_eq!(served, [1, 1, 1]);
    // Neither counts what the other end did.
    assert_eq!((here.counters["rx_write_requests"], there.counters["rdma_sends"]), (0, 0));
    assert_eq!(here.counters["sent_pkts"], there.counters["rcvd_pkts"]);
    assert_eq!((here.queue_pairs, here.port_state.as_str()), (1, "ACTIVE"));
    assert_eq!(here.drops.values().sum::<u64>(), 0);
}

#[test]
fn a_queue_pair_tells_where_it_stands() {
    let (ca, cb, a, b) = pair(Progress::Event);
    one_of_each(&a, &b);
    let [qp] = &ca.qp_stats(Which::All).unwrap()[..] else { panic!("one queue pair") };
    assert_eq!((qp.qpn, qp.dest_qpn), (a.qp.qpn().value(), Some(b.qp.qpn().value())));
    assert_eq!((qp.state.as_str(), qp.qp_type.as_str(), qp.peer.as_deref()), ("RTS", "RC", Some(common::ADDRESSES[1])));
    assert_eq!((qp.outstanding, qp.waiting, qp.in_flight), (0, 0, 0));
    assert_eq!((qp.retries_left, qp.last_error.as_deref()), (qp.retry_cnt, None));
    // All that was sent is acknowledged, and it is what the other end expects next.
    let there = cb.qp_stats(Which::One(b.qp.qpn())).unwrap();
    assert_eq!((qp.sq_psn, qp.una_psn), (there[0].epsn, there[0].epsn));
    assert_eq!((qp.messages_sent(), there[0].messages_received(), there[0].msn), (4, 4, Some(4)));
    assert!(ca.qp_stats(Which::One(xroce::Qpn::new(0x7f_ffff))).unwrap().is_empty());
    assert!(ca.qp_stats(Which::None).unwrap().is_empty());

    // A bad key ends it: both ends say why.
    let sges = [a.mr.sge(0..8).unwrap()];
    let op = SendOp::Write { va: b.mr.addr(), rkey: xroce::Rkey(b.mr.rkey().0 ^ 0x5500) };
    a.qp.post_send(&SendWr { wr_id: WrId(77), op, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] }).unwrap();
    let wc = a.cq.poll_timeout(PATIENCE).unwrap().expect("in time");
    let failure = wc.failure().expect("refused").to_string();
    let qp = &ca.qp_stats(Which::All).unwrap()[0];
    assert_eq!(qp.last_error.as_deref(), Some(failure.as_str()));
    assert!(qp.is_in_error() && failure.starts_with("REM_ACCESS_ERR (status 10): WRITE wr_id 77, QP "), "{failure}");
    let there = &cb.qp_stats(Which::All).unwrap()[0];
    assert!(there.last_error.as_ref().is_some_and(|why| why.ends_with("refused: remote_access")), "{there:?}");
    assert_eq!(a.qp.state(), QpState::Err);
}

#[test]
fn a_queue_pair_tells_what_it_was_connected_with() {
    let (ca, cb) = devices(Progress::Event);
    let (a, b) = (Side::new(&ca, QpType::Rc, 64), Side::new(&cb, QpType::Rc, 64));
    let of = |psn| ConnectOptions { timeout: 13, retry_cnt: 5, rnr_retry: 6, max_rd_atomic: 3, ..options(psn) };
    a.qp.connect(&b.qp.endpoint(&of(2)).unwrap(), &of(1)).unwrap();
    b.qp.connect(&a.qp.endpoint(&of(1)).unwrap(), &of(2)).unwrap();
    let qp = &ca.qp_stats(Which::All).unwrap()[0];
    assert_eq!((qp.timeout, qp.retry_cnt, qp.rnr_retry, qp.max_rd_atomic), (13, 5, 6, 3));
    assert_eq!((qp.retries_left, qp.rnr_retries_left, qp.ack_awaited, qp.rnr_waiting), (5, 6, false, false));
    assert_eq!((qp.sq_psn, qp.una_psn, qp.sent_end_psn, qp.epsn), (1, 1, 1, 2));
}

/// A SEND that finds no RECV: what waits, and for what.
#[test]
fn a_queue_pair_tells_what_it_waits_for() {
    let (_ca, _cb, a, b) = pair(Progress::Event);
    let slow = xroce::QpAttr { min_rnr_timer: Some(0), ..xroce::QpAttr::default() };
    b.qp.modify(&slow).unwrap();
    a.send(1, SendOp::Send, &[a.sge(0, 8)]);
    let start = std::time::Instant::now();
    let look = |side: &Side| side.context.qp_stats(Which::All).unwrap().remove(0);
    // 655 ms from the RNR NAK on; one that is missed comes again.
    while !look(&a).rnr_waiting {
        assert!(start.elapsed() < PATIENCE, "{:?}", look(&a));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let (here, there) = (look(&a), look(&b));
    assert_eq!((here.outstanding, here.waiting, here.ack_awaited), (1, 0, false));
    // It stands to be sent again.
    assert_eq!(here.sent_end_psn, (here.sq_psn + 1) & 0xff_ffff);
    assert_eq!((there.nak.as_str(), there.recvs), ("rnr", 0));
    b.recv(2, &[b.sge(0, 8)]);
    a.success(&b, 1);
    assert!(!look(&a).rnr_waiting);
}

#[test]
fn queue_pairs_are_told_in_the_order_of_their_numbers() {
    let (ca, _cb) = devices(Progress::Event);
    let sides: Vec<Side> = (0..12).map(|_| Side::new(&ca, QpType::Uc, 64)).collect();
    let mut numbers: Vec<u32> = sides.iter().map(|side| side.qp.qpn().value()).collect();
    numbers.sort_unstable();
    let told: Vec<u32> = ca.qp_stats(Which::All).unwrap().iter().map(|qp| qp.qpn).collect();
    assert_eq!(told, numbers);
}

/// The socket of a device of this process.
fn endpoint(server: &stat::StatServer) -> stat::Endpoint {
    let found = stat::endpoints().into_iter().find(|found| found.path == server.path());
    found.expect("on offer")
}

#[test]
fn another_process_is_told_the_same() {
    for progress in [Progress::Inline { helper: false }, Progress::Event] {
        let (ca, _cb, a, b) = pair(progress);
        let server = ca.serve_stat().unwrap();
        let second = ca.serve_stat().unwrap();
        let mode = std::fs::metadata(server.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "for its own user only");
        let endpoint = endpoint(&server);
        assert_eq!((endpoint.pid, endpoint.device.as_str()), (std::process::id(), "sim0"));
        assert_eq!(endpoint.device, self::endpoint(&second).device);
        if progress == Progress::Event {
            one_of_each(&a, &b);
        }
        let report = endpoint.ask(Which::All).unwrap();
        assert_eq!((report.version, report.pid, report.qps.len()), (stat::VERSION, std::process::id(), 1));
        assert_eq!(report.qps, ca.qp_stats(Which::All).unwrap());
        assert_eq!(endpoint.ask(Which::None).unwrap().qps, []);
        let one = endpoint.ask(Which::One(a.qp.qpn())).unwrap();
        assert_eq!(one.qps[0].qpn, a.qp.qpn().value());
        drop((server, second));
        assert!(!endpoint.path.exists());
        assert!(endpoint.ask(Which::None).is_err());
    }
}

#[test]
fn clients_that_misbehave_keep_nobody_out() {
    let (ca, _cb, _a, _b) = pair(Progress::Event);
    let server = ca.serve_stat().unwrap();
    let endpoint = endpoint(&server);
    let talk = |request: &[u8]| {
        let mut stream = UnixStream::connect(&endpoint.path).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        // Whoever sends more than a request is cut off.
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    assert!(talk(b"GET / HTTP/1.1\r\n").starts_with("error: "));
    assert!(talk(&[b'x'; 64]).starts_with("error: "));
    // Says nothing at all, and stays.
    let _silent = UnixStream::connect(&endpoint.path).unwrap();
    assert_eq!(endpoint.ask(Which::None).unwrap().device.name, "sim0");
    // The offer ends although the silent one is still there.
    drop(server);
    assert!(!endpoint.path.exists());
}

#[test]
fn a_device_that_was_closed_is_no_longer_on_offer() {
    let (ca, _cb) = devices(Progress::Event);
    let server = ca.serve_stat().unwrap();
    let endpoint = endpoint(&server);
    ca.close().unwrap();
    // Who asks first may still be let in.
    let start = std::time::Instant::now();
    for _ in 0..2 {
        let error = endpoint.ask(Which::None).unwrap_err();
        assert!(!matches!(error, stat::AskError::Silent { .. }), "{error}");
    }
    assert!(start.elapsed() < PATIENCE);
    assert!(stat::endpoints().iter().all(|found| found.path != server.path()));
}
