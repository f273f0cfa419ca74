//! The network in memory: what is sent arrives as the models say, and the same seed does the same again.

mod common;

use std::sync::{Arc, Mutex};

use common::{A, B, BROADCAST, C, burst, commit, drain, number_of, numbered, numbers, send};
use proptest::prelude::*;
use xroce_port::sim::{
    BurstLoss, LinkModel, Loss, ModelError, NetEvent, NodeConfig, NodeError, Rng, SimNet, SimPort, TraceHash, What,
    pair,
};
use xroce_port::{LinkChange, Port, TX_HEAD_MIN, TxClass};

fn nodes<const N: usize>(net: &SimNet) -> [SimPort; N] {
    std::array::from_fn(|_| net.add_node(&NodeConfig::default()).expect("a default node"))
}

/// Lets everything happen that is on its way.
fn settle(net: &SimNet) {
    while let Some(at) = net.next_event() {
        net.advance_to(at);
    }
}

fn hashed(net: &SimNet) -> Arc<Mutex<TraceHash>> {
    let hash = Arc::new(Mutex::new(TraceHash::default()));
    let sink = Arc::clone(&hash);
    net.observe(move |event| sink.lock().expect("no panic under the lock").event(event));
    hash
}

/// A model in which everything happens.
fn rough() -> LinkModel {
    LinkModel {
        loss: 0.05,
        burst: Some(BurstLoss { to_bad: 0.02, to_good: 0.3, loss_bad: 0.8, loss_good: 0.0 }),
        duplicate: 0.05,
        corrupt: 0.05,
        corrupt_bits_max: 4,
        delay_min_ns: 1_000,
        delay_max_ns: 9_000,
        reorder: 0.1,
        rate_bps: Some(1_000_000_000),
        queue_bytes: Some(8_000),
        mtu: Some(1500),
        ..LinkModel::default()
    }
}

fn rough_run(seed: u64) -> u64 {
    let net = SimNet::new(seed);
    let mut ports = nodes::<3>(&net);
    net.set_every_link(&rough()).expect("a sound model");
    let hash = hashed(&net);
    let macs = [A, B, C];
    let mut script = Rng::new(99);
    for number in 0..2_000u64 {
        let from = script.between(0, 2) as usize;
        let to = script.between(0, 3) as usize;
        let dst = macs.get(to).copied().unwrap_or(BROADCAST);
        let len = script.between(60, 1600) as usize;
        commit(&mut ports[from], &numbered(dst, macs[from], number, len), TxClass::Response);
        ports[from].tx_flush();
        net.advance_to(net.now() + script.between(0, 1_500));
        burst(&mut ports[script.between(0, 2) as usize], 8);
        assert!(net.counters().balances(), "after frame {number}: {:?}", net.counters());
    }
    settle(&net);
    let all = net.counters();
    assert!(all.balances() && all.in_flight == 0, "{all:?}");
    for (what, count) in [
        ("random", all.lost.random),
        ("burst", all.lost.burst),
        ("queue", all.lost.queue),
        ("mtu", all.lost.mtu),
        ("unroutable", all.lost.unroutable),
        ("duplicated", all.duplicated),
        ("corrupted", all.corrupted),
        ("held back", all.held_back),
    ] {
        assert!(count > 0, "the rough run shows no {what}: {all:?}");
    }
    hash.lock().expect("no panic under the lock").value()
}

#[test]
fn one_seed_one_trace() {
    let first = rough_run(42);
    assert_eq!(first, rough_run(42));
    assert_ne!(first, rough_run(43));
}

#[test]
fn a_perfect_link_keeps_order_and_bytes() {
    let (net, mut a, mut b) = pair(1);
    for number in 0..3_000u64 {
        let frame = numbered(B, A, number, 60 + (number as usize * 37) % 4000);
        assert!(commit(&mut a, &frame, TxClass::Request));
        if number % 7 == 0 {
            a.tx_flush();
        }
    }
    a.tx_flush();
    let got = drain(&mut b);
    assert_eq!(got.len(), 3_000);
    for (number, frame) in got.iter().enumerate() {
        let number = number as u64;
        assert_eq!(*frame, numbered(B, A, number, 60 + (number as usize * 37) % 4000));
    }
    assert_eq!(net.next_event(), None);
    assert_eq!(net.now(), 0);
    assert_eq!((b.counters().rx_frames, a.counters().tx_frames), (3_000, 3_000));
    assert_eq!(b.counters().rx_bytes, a.counters().tx_bytes);
}

#[test]
fn frames_go_where_they_are_addressed() {
    let net = SimNet::new(1);
    let [mut a, mut b, mut c] = nodes(&net);
    send(&mut a, &numbered(C, A, 1, 64));
    send(&mut a, &numbered(BROADCAST, A, 2, 64));
    send(&mut b, &numbered(A, B, 3, 64));
    // Nobody, oneself, and no header at all.
    send(&mut a, &numbered([2, 9, 9, 9, 9, 9], A, 4, 64));
    send(&mut a, &numbered(A, A, 5, 64));
    send(&mut a, &[1, 2, 3]);
    assert_eq!(numbers(&drain(&mut a)), [3]);
    assert_eq!(numbers(&drain(&mut b)), [2]);
    assert_eq!(numbers(&drain(&mut c)), [1, 2]);
    assert_eq!(net.counters().lost.unroutable, 3);
    assert!(net.counters().balances());
}

#[test]
fn delay_is_kept_to_the_nanosecond() {
    let (net, mut a, mut b) = pair(1);
    net.set_link(a.id(), b.id(), &LinkModel::with_delay_ns(1_000)).expect("sound");
    net.advance_to(50);
    send(&mut a, &numbered(B, A, 1, 64));
    assert_eq!(net.next_event(), Some(1_050));
    net.advance_to(1_049);
    assert!(drain(&mut b).is_empty());
    assert_eq!(net.counters().in_flight, 1);
    net.advance_to(1_050);
    assert_eq!(numbers(&drain(&mut b)), [1]);
    assert_eq!((a.now_hint(), net.now()), (Some(1_050), 1_050));
    // The other direction has no delay, and time does not go back.
    send(&mut b, &numbered(A, B, 2, 64));
    net.advance_to(3);
    assert_eq!((numbers(&drain(&mut a)), net.now()), (vec![2], 1_050));
}

/// `n` frames over a link with this model: the counters, and the numbers of the frames that arrived, in order.
fn over(model: &LinkModel, n: u64) -> (SimNet, Vec<Vec<u8>>) {
    let (net, mut a, mut b) = pair(7);
    net.set_link(a.id(), b.id(), model).expect("a sound model");
    let mut got = Vec::new();
    for number in 0..n {
        send(&mut a, &numbered(B, A, number, 100));
        net.advance_to(net.now() + 100);
        got.extend(drain(&mut b));
    }
    settle(&net);
    got.extend(drain(&mut b));
    assert!(net.counters().balances());
    (net, got)
}

#[track_caller]
fn near(what: &str, count: u64, n: u64, p: f64) {
    // Five standard deviations: a wrong probability shows, the seed is fixed anyway.
    let (mean, sd) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
    assert!((count as f64 - mean).abs() < 5.0 * sd, "{what}: {count} of {n}, expected about {mean}");
}

#[test]
fn loss_and_duplication_come_as_often_as_said() {
    let n = 20_000;
    let (net, got) = over(&LinkModel::with_loss(0.1), n);
    near("lost", net.counters().lost.random, n, 0.1);
    assert_eq!(got.len() as u64 + net.counters().lost.random, n);
    assert!(numbers(&got).is_sorted());

    let (net, got) = over(&LinkModel { duplicate: 0.2, ..LinkModel::default() }, n);
    near("duplicated", net.counters().duplicated, n, 0.2);
    assert_eq!(got.len() as u64, n + net.counters().duplicated);
    let twice = numbers(&got).windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    assert_eq!(twice, net.counters().duplicated);
}

#[test]
fn corruption_flips_a_few_bits_anywhere() {
    let n = 20_000;
    let (net, got) = over(&LinkModel { corrupt: 0.3, corrupt_bits_max: 3, ..LinkModel::default() }, n);
    near("corrupted", net.counters().corrupted, n, 0.3);
    assert_eq!(got.len() as u64, n);
    let mut flipped_frames = 0;
    let mut hit_bytes = [false; 100];
    for (number, frame) in got.iter().enumerate() {
        let clean = numbered(B, A, number as u64, 100);
        let flips: u32 = frame.iter().zip(&clean).map(|(x, y)| (x ^ y).count_ones()).sum();
        assert!(flips <= 3);
        flipped_frames += u64::from(flips > 0);
        for (hit, (x, y)) in hit_bytes.iter_mut().zip(frame.iter().zip(&clean)) {
            *hit |= x != y;
        }
    }
    assert_eq!(flipped_frames, net.counters().corrupted);
    assert!(hit_bytes.iter().all(|hit| *hit), "some bytes are never hit");
}

#[test]
fn reordering_is_what_it_says_and_nothing_else_reorders() {
    let n = 5_000;
    let jitter = LinkModel { delay_max_ns: 2_000, ..LinkModel::default() };
    let (_, got) = over(&jitter, n);
    assert!(numbers(&got).is_sorted(), "jitter alone reordered");

    let (net, got) = over(&LinkModel { reorder: 0.1, reorder_hold_ns: 350, ..LinkModel::default() }, n);
    near("held back", net.counters().held_back, n, 0.1);
    let mut order = numbers(&got);
    assert!(!order.is_sorted());
    // One frame each 100 ns, held for 350 ns: three overtake.
    for (at, number) in order.iter().enumerate() {
        assert!((at as i64 - *number as i64).abs() <= 3, "frame {number} at place {at}");
    }
    order.sort_unstable();
    assert!(order.into_iter().eq(0..n));
}

#[test]
fn mtu_counts_the_ip_packet_with_and_without_tag() {
    let (net, mut a, mut b) = pair(1);
    net.set_link(a.id(), b.id(), &LinkModel { mtu: Some(1500), ..LinkModel::default() }).expect("sound");
    send(&mut a, &numbered(B, A, 1, 1514));
    send(&mut a, &numbered(B, A, 2, 1515));
    let mut tagged = numbered(B, A, 3, 1518);
    tagged[12..14].copy_from_slice(&[0x81, 0x00]);
    send(&mut a, &tagged);
    assert_eq!(numbers(&drain(&mut b)), [1, 3]);
    assert_eq!(net.counters().lost.mtu, 1);
    assert_eq!(b.counters().rx_dropped_lower, 1);
}

#[test]
fn a_link_that_is_down_loses_all_in_its_direction() {
    let (net, mut a, mut b) = pair(1);
    net.set_link(a.id(), b.id(), &LinkModel { up: false, ..LinkModel::default() }).expect("sound");
    send(&mut a, &numbered(B, A, 1, 64));
    send(&mut b, &numbered(A, B, 2, 64));
    assert_eq!((drain(&mut b).len(), numbers(&drain(&mut a))), (0, vec![2]));
    assert_eq!(net.counters_between(a.id(), b.id()).expect("both are here").lost.down, 1);
    assert_eq!((a.link(), b.link()), (None, None), "a partition is not seen by its ends");
    net.set_links(a.id(), b.id(), &LinkModel::default()).expect("sound");
    send(&mut a, &numbered(B, A, 3, 64));
    assert_eq!(numbers(&drain(&mut b)), [3]);
}

#[test]
fn carrier_and_removal_are_reported() {
    let (net, mut a, mut b) = pair(1);
    net.set_link(a.id(), b.id(), &LinkModel::with_delay_ns(100)).expect("sound");
    send(&mut a, &numbered(B, A, 1, 64));
    net.set_carrier(b.id(), false).expect("here");
    net.set_carrier(b.id(), false).expect("here");
    net.advance_to(100);
    assert_eq!((b.link(), b.link()), (Some(LinkChange::Down), None));
    assert_eq!((net.counters().lost.down, drain(&mut b).len()), (1, 0));
    send(&mut b, &numbered(A, B, 2, 64));
    assert_eq!((b.counters().tx_dropped, drain(&mut a).len()), (1, 0));
    net.set_carrier(b.id(), true).expect("here");
    assert_eq!(b.link(), Some(LinkChange::Up));
    send(&mut b, &numbered(A, B, 3, 64));
    assert_eq!(numbers(&drain(&mut a)), [3]);

    net.remove(b.id(), "unplugged").expect("here");
    net.set_carrier(b.id(), false).expect("here");
    assert_eq!((b.link(), b.link()), (Some(LinkChange::Gone("unplugged".into())), None));
    assert!(b.tx_reserve(64, TxClass::Response).is_none());
    drop(b);
    send(&mut a, &numbered(B, A, 4, 64));
    settle(&net);
    assert!(net.counters().balances());
    assert_eq!(net.counters().lost.down, 2);
}

#[test]
fn a_tiny_transmit_ring_refuses_and_recovers() {
    let net = SimNet::new(1);
    let tiny = NodeConfig { tx_ring: 2, response_reserve: Some(1), kick_max: 1, ..NodeConfig::default() };
    let mut a = net.add_node(&tiny).expect("sound");
    let mut b = net.add_node(&NodeConfig::default()).expect("sound");
    let frame = |number| numbered(B, A, number, 64);
    assert!(commit(&mut a, &frame(1), TxClass::Request));
    assert!(!commit(&mut a, &frame(2), TxClass::Request), "the last slot is for responses");
    assert!(commit(&mut a, &frame(3), TxClass::Response));
    assert!(!commit(&mut a, &frame(4), TxClass::Response));
    a.tx_flush();
    assert!(!a.tx_idle(), "this kick takes one frame");
    assert!(commit(&mut a, &frame(5), TxClass::Response));
    a.tx_flush();
    a.tx_flush();
    assert!(a.tx_idle());
    assert!(commit(&mut a, &frame(6), TxClass::Request));
    a.tx_flush();
    assert_eq!(numbers(&drain(&mut b)), [1, 3, 5, 6]);
    let counters = a.counters();
    assert_eq!((counters.tx_frames, counters.tx_refused, counters.kicks), (4, 2, 4));
}

#[test]
fn frames_that_wait_for_the_wire_hold_their_slots() {
    let net = SimNet::new(1);
    let config = NodeConfig { in_flight_max: 2, response_reserve: Some(0), ..NodeConfig::default() };
    let mut a = net.add_node(&config).expect("sound");
    let mut b = net.add_node(&NodeConfig::default()).expect("sound");
    // 76 + 24 bytes at 8 Gbit/s: 100 ns each. Lost frames hold their slot as long.
    let model = LinkModel { rate_bps: Some(8_000_000_000), loss: 1.0, ..LinkModel::default() };
    net.set_link(a.id(), b.id(), &model).expect("sound");
    for number in 0..2 {
        send(&mut a, &numbered(B, A, number, 76));
    }
    assert!(a.tx_idle());
    assert!(!commit(&mut a, &numbered(B, A, 9, 76), TxClass::Request));
    assert_eq!(net.next_event(), Some(100));
    net.advance_to(100);
    a.tx_flush();
    assert!(commit(&mut a, &numbered(B, A, 2, 76), TxClass::Request));
    assert!(!commit(&mut a, &numbered(B, A, 3, 76), TxClass::Request));
    a.tx_flush();
    settle(&net);
    assert_eq!(net.now(), 300);
    assert_eq!((drain(&mut b).len(), net.counters().lost.random), (0, 3));
}

#[test]
fn incast_meets_in_the_downlink() {
    let net = SimNet::new(1);
    let [mut a, mut b, mut c] = nodes(&net);
    // 976 + 24 bytes at 8 Gbit/s take 1000 ns; two of three fit the queue.
    let model = LinkModel { rate_bps: Some(8_000_000_000), queue_bytes: Some(2_000), ..LinkModel::default() };
    net.set_downlink(c.id(), &model).expect("sound");
    send(&mut a, &numbered(C, A, 1, 976));
    send(&mut b, &numbered(C, B, 2, 976));
    send(&mut a, &numbered(C, A, 3, 976));
    net.advance_to(1_000);
    assert_eq!(numbers(&drain(&mut c)), [1]);
    net.advance_to(2_000);
    assert_eq!(numbers(&drain(&mut c)), [2]);
    assert_eq!(net.counters_between(a.id(), c.id()).expect("here").lost.queue, 1);
    assert!(net.counters().balances());
}

#[test]
fn a_full_receive_ring_and_a_long_frame_are_losses() {
    let net = SimNet::new(1);
    let mut a = net.add_node(&NodeConfig::default()).expect("sound");
    let small = NodeConfig { rx_ring: 2, mtu: 1500, rx_burst_max: 1, ..NodeConfig::default() };
    let mut b = net.add_node(&small).expect("sound");
    for number in 0..3 {
        send(&mut a, &numbered(B, A, number, 64));
    }
    assert_eq!(burst(&mut b, 32).len(), 1, "rx_burst_max");
    assert_eq!(numbers(&drain(&mut b)), [1]);
    send(&mut a, &numbered(B, A, 3, 1519));
    let lost = net.counters().lost;
    assert_eq!((lost.rx_ring, lost.too_long, b.counters().rx_dropped_lower), (1, 1, 2));
}

#[test]
fn frames_come_and_go_in_two_pieces() {
    let net = SimNet::new(1);
    let split = |at| NodeConfig { split_at: Some(at), ..NodeConfig::default() };
    let mut a = net.add_node(&split(2500)).expect("sound");
    let mut b = net.add_node(&split(128)).expect("sound");
    let frame = a.tx_reserve(4000, TxClass::Request).expect("room");
    assert_eq!((frame.head.len(), frame.tail.len()), (2500, 1500));
    assert!(b.tx_reserve(4000, TxClass::Request).is_some_and(|frame| frame.head.len() == TX_HEAD_MIN));
    send(&mut a, &numbered(B, A, 1, 4000));
    assert_eq!(b.rx_burst(1), 1);
    let got = b.rx_frame(0);
    assert_eq!((got.head.len(), got.tail.len()), (128, 3872));
    assert_eq!(common::bytes_of(got), numbered(B, A, 1, 4000));
}

#[test]
fn a_commit_may_be_shorter_and_a_void_reservation_sends_nothing() {
    let (_net, mut a, mut b) = pair(1);
    let frame = a.tx_reserve(200, TxClass::Request).expect("room");
    frame.head.copy_from_slice(&numbered(B, A, 1, 200));
    a.tx_commit(100);
    assert!(a.tx_reserve(300, TxClass::Request).is_some());
    assert!(a.tx_reserve(0, TxClass::Request).is_none());
    assert!(a.tx_reserve(4219, TxClass::Request).is_none());
    a.tx_flush();
    assert_eq!(drain(&mut b), [&numbered(B, A, 1, 200)[..100]]);
    assert_eq!(a.counters().tx_frames, 1);
}

#[test]
#[should_panic(expected = "without a reserved frame")]
fn a_commit_without_reservation_is_a_bug() {
    let (_net, mut a, _b) = pair(1);
    assert!(a.tx_reserve(100, TxClass::Request).is_some());
    a.tx_commit(100);
    a.tx_commit(100);
}

#[test]
fn what_cannot_be_is_refused() {
    let net = SimNet::new(1);
    let a = net.add_node(&NodeConfig::default()).expect("sound");
    let refuse = |config: NodeConfig| net.add_node(&config).expect_err("refused").to_string();
    assert_eq!(
        refuse(NodeConfig { mac: Some(A), ..NodeConfig::default() }),
        "MAC 02:00:00:00:00:01 is taken by node 0"
    );
    assert!(refuse(NodeConfig { mac: Some(BROADCAST), ..NodeConfig::default() }).contains("not a unicast"));
    assert!(refuse(NodeConfig { tx_ring: 0, ..NodeConfig::default() }).contains("tx_ring is 0"));
    let reserve = NodeConfig { tx_ring: 4, response_reserve: Some(4), ..NodeConfig::default() };
    assert!(matches!(net.add_node(&reserve), Err(NodeError::Range { field: "response_reserve", .. })));
    assert!(refuse(NodeConfig { split_at: Some(100), ..NodeConfig::default() }).contains("split_at is 100"));

    let other = SimNet::new(1);
    let [_, b] = nodes(&other);
    assert_eq!(net.set_link(a.id(), b.id(), &LinkModel::default()), Err(ModelError::NoSuchNode { node: 1, nodes: 1 }));
    assert!(net.set_every_link(&LinkModel::with_loss(2.0)).is_err());
    assert_eq!(net.link(a.id(), a.id()), Ok(LinkModel::default()));
}

#[test]
fn an_observer_sees_what_happened_in_order() {
    let (net, mut a, b) = pair(1);
    let seen: Arc<Mutex<Vec<(u64, What, u64)>>> = Arc::default();
    let sink = Arc::clone(&seen);
    net.observe(move |event: &NetEvent<'_>| {
        sink.lock().expect("no panic").push((event.at_ns, event.what, number_of(event.frame)));
    });
    net.set_link(a.id(), b.id(), &LinkModel::with_delay_ns(5)).expect("sound");
    send(&mut a, &numbered(B, A, 1, 64));
    settle(&net);
    send(&mut a, &numbered([2, 9, 9, 9, 9, 9], A, 2, 64));
    let want = [(0, What::Sent, 1), (5, What::Delivered, 1), (5, What::Lost(Loss::Unroutable), 2)];
    assert_eq!(*seen.lock().expect("no panic"), want);
}

fn any_model() -> impl Strategy<Value = LinkModel> {
    let p = || prop_oneof![Just(0.0), 0.0..1.0f64];
    let rate = prop_oneof![Just(None), (1_000_000u64..100_000_000_000).prop_map(Some)];
    let limit = prop_oneof![Just(None), (0u64..20_000).prop_map(Some)];
    let mtu = prop_oneof![Just(None), (0u32..2_000).prop_map(Some)];
    (p(), p(), p(), p(), rate, limit, mtu, 0u64..3_000, 0u64..3_000).prop_map(
        |(loss, duplicate, corrupt, reorder, rate_bps, queue_bytes, mtu, delay_min_ns, more)| LinkModel {
            loss,
            duplicate,
            corrupt,
            reorder,
            rate_bps,
            queue_bytes,
            mtu,
            delay_min_ns,
            delay_max_ns: delay_min_ns + more,
            corrupt_bits_max: 8,
            ..LinkModel::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No frame is ever unaccounted for, whatever the models, also when they change under way.
    #[test]
    fn every_frame_is_accounted_for(
        seed: u64,
        models in prop::collection::vec(any_model(), 1..4),
        downlink in any_model(),
        steps in prop::collection::vec((0usize..3, 0usize..4, 60usize..2_100, 0u64..2_000), 1..150),
    ) {
        let net = SimNet::new(seed);
        let mut ports = nodes::<3>(&net);
        net.set_downlink(ports[2].id(), &downlink).expect("sound");
        let macs = [A, B, C];
        let mut received = 0;
        for (number, (from, to, len, pause_ns)) in steps.iter().enumerate() {
            net.set_every_link(&models[number % models.len()]).expect("sound");
            let dst = macs.get(*to).copied().unwrap_or(BROADCAST);
            commit(&mut ports[*from], &numbered(dst, macs[*from], number as u64, *len), TxClass::Response);
            ports[*from].tx_flush();
            net.advance_to(net.now() + pause_ns);
            received += drain(&mut ports[(*from + 1) % 3]).len() as u64;
            prop_assert!(net.counters().balances(), "{:?}", net.counters());
        }
        settle(&net);
        received += ports.iter_mut().map(|port| drain(port).len() as u64).sum::<u64>();
        let all = net.counters();
        prop_assert!(all.balances() && all.in_flight == 0, "{:?}", all);
        prop_assert_eq!(received, all.delivered);
    }
}
