//! What an endpoint hands out, and in which order.

use std::collections::HashSet;
use std::sync::Arc;
use xroce_transport::cq::Cq;
use xroce_transport::memory::{Access, Memory, Pd};
use xroce_transport::qp::state::{QpAttr, QpState, QpType};
use xroce_transport::qp::{QpHandle, QpInit};
use xroce_transport::wr::{QpCap, RecvWr, WrId};
use xroce_transport::{Endpoint, EndpointConfig, Instant, LimitError, Limits};

const CAP: QpCap = QpCap { max_send_wr: 4, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
const NOW: Instant = Instant(0);

fn endpoint(seed: u64) -> (Endpoint, Pd) {
    let memory = Arc::new(Memory::new([1, 2], 16, 0));
    let pd = memory.alloc_pd().unwrap();
    (Endpoint::new(EndpointConfig { seed, ..EndpointConfig::default() }, memory), pd)
}

fn create(endpoint: &mut Endpoint, pd: Pd, cq: &Arc<Cq>) -> QpHandle {
    let (send_cq, recv_cq) = (Arc::clone(cq), Arc::clone(cq));
    endpoint.create_qp(QpInit { kind: QpType::Rc, pd, send_cq, recv_cq, cap: CAP, sq_sig_all: false }).unwrap()
}

/// To INIT, where RECVs may be posted.
fn init(endpoint: &mut Endpoint, qp: &QpHandle) {
    let attr = QpAttr {
        qp_state: Some(QpState::Init),
        pkey_index: Some(0),
        port_num: Some(1),
        qp_access_flags: Some(Access::empty()),
        ..QpAttr::default()
    };
    endpoint.modify_qp(NOW, qp.qpn, &attr, None).unwrap();
}

/// To ERR, which flushes what is posted.
fn fail(endpoint: &mut Endpoint, qp: &QpHandle) {
    endpoint.modify_qp(NOW, qp.qpn, &QpAttr { qp_state: Some(QpState::Err), ..QpAttr::default() }, None).unwrap();
}

#[test]
fn completion_queues_are_woken_in_the_order_of_their_completions() {
    let (mut endpoint, pd) = endpoint(0);
    let order = [3u64, 1, 2];
    for id in order {
        let cq = Cq::new(id, 8).unwrap();
        let mut qp = create(&mut endpoint, pd, &cq);
        init(&mut endpoint, &qp);
        qp.rq.post(&RecvWr { wr_id: WrId(id), sges: &[] }).unwrap();
        assert!(!cq.arm(false));
        fail(&mut endpoint, &qp);
    }
    let woken: Vec<u64> = std::iter::from_fn(|| endpoint.poll_wakeup()).map(|cq| cq.id()).collect();
    assert_eq!(woken, order);
}

#[test]
fn a_restarted_endpoint_hands_out_other_numbers() {
    let numbers = |seed| {
        let (mut endpoint, pd) = endpoint(seed);
        let cq = Cq::new(0, 8).unwrap();
        (0..32).map(|_| create(&mut endpoint, pd, &cq).qpn.value()).collect::<Vec<u32>>()
    };
    assert_eq!(numbers(7), numbers(7), "a seed says it all");
    let (first, second): (HashSet<u32>, HashSet<u32>) =
        (numbers(7).into_iter().collect(), numbers(8).into_iter().collect());
    // One in 31 is the same by chance.
    assert!(first.intersection(&second).count() <= 5, "{first:x?} {second:x?}");
    assert!(first.union(&second).all(|qpn| (1..32).contains(&(qpn >> 16))), "no generation 0, no process slot");
    let generations: HashSet<u32> = first.iter().map(|qpn| qpn >> 16).collect();
    assert!(generations.len() > 8, "each index has its own: {generations:?}");
}

#[test]
fn a_completion_queue_that_overran_in_one_endpoint_fails_its_users_in_another() {
    let ((mut one, pd_one), (mut other, pd_other)) = (endpoint(1), endpoint(2));
    let cq = Cq::new(0, 4).unwrap();
    let mut busy = create(&mut one, pd_one, &cq);
    let idle = create(&mut other, pd_other, &cq);
    init(&mut one, &busy);
    init(&mut other, &idle);
    for id in 0..6 {
        busy.rq.post(&RecvWr { wr_id: WrId(id), sges: &[] }).unwrap();
    }
    fail(&mut one, &busy);
    assert_eq!([one.take_cq_death(), one.take_cq_death(), other.take_cq_death()], [true, false, false]);
    other.fail_users_of_dead_cqs(NOW);
    assert_eq!(idle.state.load(), QpState::Err);
}

/// The flush of one queue pair may be what kills the next completion queue, in whatever order they were made.
#[test]
// rule: wc.overrun
fn a_completion_queue_that_dies_of_anothers_death_fails_its_users_too() {
    let (mut endpoint, pd) = endpoint(0);
    let [first, second] = [1, 2].map(|id| Cq::new(id, 4).unwrap());
    let last = create(&mut endpoint, pd, &second);
    let (send_cq, recv_cq) = (Arc::clone(&first), Arc::clone(&second));
    let between = QpInit { kind: QpType::Rc, pd, send_cq, recv_cq, cap: CAP, sq_sig_all: false };
    let mut between = endpoint.create_qp(between).unwrap();
    let mut cause = create(&mut endpoint, pd, &first);
    for qp in [&last, &between, &cause] {
        init(&mut endpoint, qp);
    }
    for id in 0..5 {
        between.rq.post(&RecvWr { wr_id: WrId(id), sges: &[] }).unwrap();
        cause.rq.post(&RecvWr { wr_id: WrId(id), sges: &[] }).unwrap();
    }
    fail(&mut endpoint, &cause);
    assert!(first.is_overrun() && second.is_overrun());
    assert_eq!([between.state.load(), last.state.load()], [QpState::Err; 2]);
}

#[test]
fn limits_that_are_out_of_range_are_named() {
    assert_eq!(Limits::default().check(), Ok(()));
    let limits = Limits { window_packets: 0, ..Limits::default() };
    assert_eq!(limits.check(), Err(LimitError { name: "window_packets", value: 0, min: 1, max: 1 << 23 }));
    assert_eq!(limits.check().unwrap_err().to_string(), "window_packets is 0; it must be 1 to 8388608");
}
