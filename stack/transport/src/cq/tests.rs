use super::*;
use crate::wc::WcStatus;
use crate::wr::WrId;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::thread;

fn wc(qpn: u32, id: u64) -> Wc {
    Wc { wr_id: WrId(id), qpn: Qpn::new(qpn), ..Wc::default() }
}

fn failed(id: u64) -> Wc {
    Wc { status: WcStatus::RetryExcErr, ..wc(1, id) }
}

fn drain(cq: &Cq) -> Vec<(u32, u64)> {
    std::iter::from_fn(|| cq.poll_one()).map(|wc| (wc.qpn.value(), wc.wr_id.0)).collect()
}

#[test]
fn sizes_are_granted_or_refused() {
    for cqe in [1, 2, 3, 256, 257] {
        let cq = Cq::new(9, cqe).unwrap();
        assert!(cq.capacity() >= cqe && cq.id() == 9);
    }
    for cqe in [0, MAX_CQE + 1, u32::MAX] {
        let Err(error) = Cq::new(9, cqe) else { panic!("{cqe} was granted") };
        assert_eq!(error.to_string(), format!("a completion queue of {cqe} entries; it must be 1 to 4194304"));
    }
}

#[test]
// rule: wc.fifo
fn poll_gives_the_oldest_first_and_no_more_than_asked() {
    let cq = Cq::new(0, 8).unwrap();
    for id in 0..5 {
        assert_eq!(cq.push(wc(1, id), false), Push::Quiet);
    }
    let mut out = [Wc::default(); 3];
    assert_eq!(cq.poll(&mut []), 0);
    assert_eq!(cq.poll(&mut out), 3);
    assert_eq!(out.map(|wc| wc.wr_id.0), [0, 1, 2]);
    assert_eq!(cq.poll(&mut out), 2);
    assert_eq!(out[..2].iter().map(|wc| wc.wr_id.0).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(cq.poll(&mut out), 0);
}

/// Report H26.
#[test]
// rule: wc.overrun
fn exactly_full_is_fine_and_one_more_is_an_overrun_that_stays() {
    let cq = Cq::new(0, 4).unwrap();
    for round in 0..10 {
        for id in 0..u64::from(cq.capacity()) {
            assert_eq!(cq.push(wc(1, id), false), Push::Quiet, "round {round}");
        }
        assert_eq!(drain(&cq).len() as u32, cq.capacity());
    }
    for id in 0..u64::from(cq.capacity()) {
        assert_eq!(cq.push(wc(1, id), false), Push::Quiet);
    }
    assert!(!cq.is_overrun());
    assert_eq!(cq.push(wc(1, 77), false), Push::Overrun);
    assert!(cq.is_overrun());
    assert_eq!(drain(&cq), [(1, 0), (1, 1), (1, 2), (1, 3)], "what was in it can be polled");
    assert_eq!(cq.push(wc(1, 78), true), Push::Overrun, "room does not heal it");
    assert_eq!(drain(&cq), []);
    for solicited_only in [true, false] {
        assert!(cq.arm(solicited_only), "nothing will come to wake who sleeps now: the poll has to be asked again");
    }
}

#[test]
// rule: wc.arm
fn an_armed_queue_notifies_once() {
    let cq = Cq::new(0, 8).unwrap();
    assert_eq!(cq.push(wc(1, 0), true), Push::Quiet);
    assert!(cq.arm(false), "one is there already");
    assert_eq!(drain(&cq).len(), 1);
    assert!(!cq.arm(false));
    assert_eq!(cq.push(wc(1, 1), false), Push::Notify);
    assert_eq!(cq.push(wc(1, 2), true), Push::Quiet);
    assert!(cq.arm(false));
    assert_eq!(cq.push(wc(1, 3), false), Push::Notify);
}

#[test]
fn armed_for_solicited_only_waits_for_solicited_or_an_error() {
    let cq = Cq::new(0, 8).unwrap();
    assert!(!cq.arm(true));
    assert_eq!(cq.push(wc(1, 0), false), Push::Quiet);
    assert_eq!(cq.push(wc(1, 1), true), Push::Notify);
    assert!(cq.arm(true), "two are there");
    assert_eq!(cq.push(wc(1, 2), false), Push::Quiet);
    assert_eq!(cq.push(failed(3), false), Push::Notify);
    assert_eq!(cq.push(wc(1, 4), true), Push::Quiet);
}

#[test]
fn asking_for_any_overrules_asking_for_solicited() {
    for order in [[true, false], [false, true]] {
        let cq = Cq::new(0, 8).unwrap();
        for solicited_only in order {
            cq.arm(solicited_only);
        }
        assert_eq!(cq.push(wc(1, 0), false), Push::Notify, "{order:?}");
    }
}

#[test]
fn purge_keeps_the_others_in_order_and_gives_the_room_back() {
    let cq = Cq::new(0, 8).unwrap();
    let push = |qpn, id| assert_eq!(cq.push(wc(qpn, id), false), Push::Quiet);
    // Not at the start of the ring, so that the round ends in the middle.
    (0..5).for_each(|id| push(9, id));
    assert_eq!(drain(&cq).len(), 5);
    for (id, qpn) in [1, 2, 1, 1, 3, 2, 1, 3].into_iter().enumerate() {
        push(qpn, id as u64);
    }
    cq.purge(Qpn::new(1));
    (8..12).for_each(|id| push(4, id));
    assert_eq!(drain(&cq), [(2, 1), (3, 4), (2, 5), (3, 7), (4, 8), (4, 9), (4, 10), (4, 11)]);
    cq.purge(Qpn::new(4));
    assert!(!cq.is_overrun());
}

#[test]
fn uses_are_counted_and_do_not_go_below_none() {
    let cq = Cq::new(0, 1).unwrap();
    cq.hold();
    cq.hold();
    cq.release();
    assert_eq!(cq.uses(), 1);
    cq.release();
    cq.release();
    assert_eq!(cq.uses(), 0);
}

#[derive(Debug, Clone)]
enum Step {
    Push(u32),
    Poll(usize),
    Purge(u32),
}

proptest! {
    #[test]
    fn is_a_queue(steps in proptest::collection::vec(prop_oneof![
        6 => (0u32..3).prop_map(Step::Push),
        2 => (0usize..6).prop_map(Step::Poll),
        1 => (0u32..3).prop_map(Step::Purge),
    ], 1..200)) {
        let cq = Cq::new(0, 8).unwrap();
        let mut model = VecDeque::new();
        let mut overrun = false;
        for (id, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push(qpn) => {
                    overrun |= model.len() == 8;
                    let push = cq.push(wc(qpn, id as u64), false);
                    prop_assert_eq!(push, if overrun { Push::Overrun } else { Push::Quiet });
                    if !overrun {
                        model.push_back((qpn, id as u64));
                    }
                }
                Step::Poll(count) => {
                    let mut out = vec![Wc::default(); count];
                    let got = cq.poll(&mut out);
                    let got: Vec<_> = out[..got].iter().map(|wc| (wc.qpn.value(), wc.wr_id.0)).collect();
                    let want: Vec<_> = model.drain(..count.min(model.len())).collect();
                    prop_assert_eq!(got, want);
                }
                Step::Purge(qpn) => {
                    cq.purge(Qpn::new(qpn));
                    model.retain(|(of, _)| *of != qpn);
                }
            }
            prop_assert_eq!(cq.is_overrun(), overrun);
        }
        prop_assert_eq!(drain(&cq), Vec::from(model));
    }
}

const PRODUCERS: u32 = 4;
const EACH: u64 = if cfg!(miri) { 50 } else { 20_000 };

/// Pushes all of one producer's completions, never more than its share of the ring ahead of what was polled.
fn produce(cq: &Cq, qpn: u32, polled: &AtomicUsize, wake: impl Fn()) {
    let share = (cq.capacity() / PRODUCERS) as usize;
    for id in 0..EACH {
        while id as usize - polled.load(Ordering::Acquire) >= share {
            thread::yield_now();
        }
        match cq.push(wc(qpn, id), id % 5 == 0) {
            Push::Quiet => {}
            Push::Notify => wake(),
            Push::Overrun => panic!("overrun with a credit in hand"),
        }
    }
}

#[test]
fn four_producers_lose_nothing_and_double_nothing() {
    let cq = Cq::new(0, 64).unwrap();
    let polled: [AtomicUsize; PRODUCERS as usize] = Default::default();
    thread::scope(|scope| {
        for (qpn, polled) in polled.iter().enumerate() {
            let cq = &cq;
            scope.spawn(move || produce(cq, qpn as u32, polled, || panic!("nobody armed")));
        }
        let mut next = [0u64; PRODUCERS as usize];
        let mut out = [Wc::default(); 16];
        while next.iter().sum::<u64>() < EACH * u64::from(PRODUCERS) {
            let count = cq.poll(&mut out);
            for wc in &out[..count] {
                let qpn = wc.qpn.value() as usize;
                assert_eq!(wc.wr_id.0, next[qpn], "of producer {qpn}");
                next[qpn] += 1;
                polled[qpn].fetch_add(1, Ordering::Release);
            }
            if count == 0 {
                thread::yield_now();
            }
        }
    });
    assert_eq!(cq.poll_one(), None);
}

#[test]
fn two_consumers_share_without_doubling() {
    let cq = Cq::new(0, 64).unwrap();
    let polled: [AtomicUsize; PRODUCERS as usize] = Default::default();
    let seen = AtomicUsize::new(0);
    let all = EACH as usize * PRODUCERS as usize;
    thread::scope(|scope| {
        for (qpn, polled) in polled.iter().enumerate() {
            let cq = &cq;
            scope.spawn(move || produce(cq, qpn as u32, polled, || panic!("nobody armed")));
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = [None; PRODUCERS as usize];
                while seen.load(Ordering::Relaxed) < all {
                    let Some(wc) = cq.poll_one() else {
                        thread::yield_now();
                        continue;
                    };
                    let qpn = wc.qpn.value() as usize;
                    assert!(last[qpn] < Some(wc.wr_id.0), "each consumer sees a producer's in order");
                    last[qpn] = Some(wc.wr_id.0);
                    polled[qpn].fetch_add(1, Ordering::Release);
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!((seen.into_inner(), cq.poll_one()), (all, None));
}

/// Arm, poll until empty, sleep until woken: the sleeper never waits on something it could have polled. Each producer
/// waits until its last completion was polled: with one producer a single lost wake-up stops everything.
fn sleeper_is_always_woken(producers: usize, solicited_only: bool) {
    const STALL: std::time::Duration = std::time::Duration::from_secs(20);
    const UNSOLICITED: u32 = 99;
    let cq = Cq::new(0, 64).unwrap();
    let polled: [AtomicUsize; PRODUCERS as usize] = Default::default();
    let stop = AtomicBool::new(false);
    let (wake, woken) = std::sync::mpsc::channel();
    let produce = |qpn: u32, polled: &AtomicUsize, wake: std::sync::mpsc::Sender<()>| {
        let push = |wc, solicited| match cq.push(wc, solicited) {
            Push::Quiet => {}
            Push::Notify => wake.send(()).unwrap(),
            Push::Overrun => panic!("overrun"),
        };
        for id in 0..EACH / 5 {
            // Spinning first: the push then falls into the moment in which the sleeper arms.
            let mut spins = 0;
            while id as usize != polled.load(Ordering::Acquire) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                spins += 1;
                if spins < 2_000 { std::hint::spin_loop() } else { thread::yield_now() }
            }
            (0..id % 64).for_each(|_| std::hint::spin_loop());
            if solicited_only {
                // The sleeper may sleep on this one, but not on what stands behind it.
                push(wc(UNSOLICITED, id), false);
            }
            push(wc(qpn, id), true);
        }
    };
    let asleep = thread::scope(|scope| {
        for (qpn, polled) in polled.iter().enumerate().take(producers) {
            let (produce, wake) = (&produce, wake.clone());
            scope.spawn(move || produce(qpn as u32, polled, wake));
        }
        let mut left = EACH / 5 * producers as u64;
        loop {
            // A wake-up for an earlier arming would make up for one that is lost.
            while woken.try_recv().is_ok() {}
            cq.arm(solicited_only);
            let mut empty = true;
            while let Some(wc) = cq.poll_one() {
                empty = false;
                if wc.qpn != Qpn::new(UNSOLICITED) {
                    polled[wc.qpn.value() as usize].fetch_add(1, Ordering::Release);
                    left -= 1;
                }
            }
            if left == 0 {
                return None;
            }
            if empty && woken.recv_timeout(STALL).is_err() {
                stop.store(true, Ordering::Relaxed);
                return Some((left, drain(&cq), cq.armed.0.load(Ordering::Relaxed)));
            }
        }
    });
    assert_eq!(asleep, None, "asleep with completions left to come, in the queue, armed for");
}

#[test]
fn a_sleeper_on_any_completion_is_always_woken() {
    sleeper_is_always_woken(1, false);
    sleeper_is_always_woken(4, false);
}

#[test]
fn a_sleeper_on_solicited_completions_is_always_woken() {
    sleeper_is_always_woken(1, true);
    sleeper_is_always_woken(4, true);
}

#[test]
fn purging_beside_producers_loses_nothing_of_the_others() {
    let cq = Cq::new(0, 64).unwrap();
    let polled: [AtomicUsize; PRODUCERS as usize] = Default::default();
    thread::scope(|scope| {
        for (qpn, polled) in polled.iter().enumerate() {
            let cq = &cq;
            scope.spawn(move || produce(cq, qpn as u32, polled, || panic!("nobody armed")));
        }
        let mut next = [0u64; PRODUCERS as usize];
        let mut turn = 0u64;
        while next.iter().sum::<u64>() < EACH * u64::from(PRODUCERS) {
            turn += 1;
            if turn.is_multiple_of(64) {
                cq.purge(Qpn::new(1_000));
            }
            let Some(wc) = cq.poll_one() else {
                thread::yield_now();
                continue;
            };
            let qpn = wc.qpn.value() as usize;
            assert_eq!(wc.wr_id.0, next[qpn]);
            next[qpn] += 1;
            polled[qpn].fetch_add(1, Ordering::Release);
        }
    });
}

/// A queue whose oldest slot is claimed but not published, as between the two stores of a push.
#[test]
fn a_slow_producer_cannot_hide_a_solicited_completion_for_ever() {
    let cq = Cq::new(0, 8).unwrap();
    let slow = cq.ring.claim().unwrap();
    assert_eq!(cq.push(wc(2, 1), true), Push::Quiet, "not armed yet");
    assert!(cq.arm(true), "something is claimed");
    assert_eq!(cq.poll_one(), None, "hidden behind the slow one");
    cq.ring.publish(slow, wc(1, 0));
    assert!(cq.disarm(false), "the slow one wakes although it is not solicited");
    assert_eq!(drain(&cq), [(1, 0), (2, 1)]);
}

/// All orders in which the steps of two pushes (claim, publish, look whether to wake) and of a sleeper (arm, poll until
/// empty) can fall: a solicited completion is polled or wakes, whatever an unsolicited one beside it does.
/// Report H27.
#[test]
// rule: wc.arm
fn no_order_of_steps_loses_a_wake_up() {
    const STEPS: [usize; 3] = [3, 3, 2];
    let mut orders = vec![vec![]];
    for _ in 0..STEPS.iter().sum::<usize>() {
        let more = |order: &Vec<usize>| {
            let who = (0..3).filter(|who| order.iter().filter(|step| *step == who).count() < STEPS[*who]);
            who.map(|who| [&order[..], &[who]].concat()).collect::<Vec<_>>()
        };
        orders = orders.iter().flat_map(more).collect();
    }
    assert_eq!(orders.len(), 560);
    for solicited_only in [false, true] {
        for order in &orders {
            let cq = Cq::new(0, 8).unwrap();
            let mut step = [0; 3];
            let mut claimed = [None, None];
            let (mut polled, mut woken) = (vec![], false);
            for &who in order {
                step[who] += 1;
                match (who, step[who]) {
                    (2, 1) => _ = cq.arm(solicited_only),
                    (2, _) => polled = drain(&cq),
                    (_, 1) => claimed[who] = cq.ring.claim(),
                    (_, 2) => cq.ring.publish(claimed[who].take().unwrap(), wc(who as u32, 0)),
                    _ => woken |= cq.disarm(who == 1),
                }
            }
            assert!(woken || polled.contains(&(1, 0)), "solicited only {solicited_only}, order {order:?}");
            assert!(solicited_only || woken || polled.contains(&(0, 0)), "order {order:?}");
        }
    }
}
