//! Completion queues: several producers, consumers, a sleeper.

mod common;

use common::holds;
use loom::thread;
use std::sync::Arc;
use xroce_loom::Weak::{Acquire, Fences, ReadModifyWrite, Release};
use xroce_loom::cq::{Cq, Push};
use xroce_loom::wc::Wc;
use xroce_loom::wr::WrId;
use xroce_wire::Qpn;

fn wc(qpn: u32, id: u64) -> Wc {
    Wc { wr_id: WrId(id), qpn: Qpn::new(qpn), ..Wc::default() }
}

fn cq(cqe: u32) -> Arc<Cq> {
    Cq::new(1, cqe).expect("a size that is allowed")
}

fn drain(cq: &Cq) -> Vec<u64> {
    std::iter::from_fn(|| cq.poll_one()).map(|wc| wc.wr_id.0).collect()
}

#[test]
fn a_completion_is_read_whole() {
    holds(&[Acquire, Release], || {
        let cq = cq(2);
        let producer = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || {
                assert_eq!(cq.push(wc(1, 1), false), Push::Quiet);
                assert_eq!(cq.push(wc(1, 2), false), Push::Quiet);
            })
        };
        let mut seen = drain(&cq);
        producer.join().unwrap();
        seen.extend(drain(&cq));
        assert_eq!(seen, [1, 2]);
    });
}

#[test]
fn a_slot_is_free_for_the_next_round_when_it_was_read() {
    holds(&[Acquire, Release], || {
        let cq = cq(2);
        for id in 1..3 {
            assert_eq!(cq.push(wc(1, id), false), Push::Quiet);
        }
        let consumer = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || cq.poll_one().map(|wc| wc.wr_id.0))
        };
        let pushed = cq.push(wc(1, 3), false) == Push::Quiet;
        assert_eq!(consumer.join().unwrap(), Some(1));
        let rest = drain(&cq);
        assert_eq!(rest, if pushed { vec![2, 3] } else { vec![2] });
        assert_eq!(cq.is_overrun(), !pushed);
    });
}

#[test]
fn two_producers_do_not_meet_in_a_slot() {
    holds(&[Release], || {
        let cq = cq(2);
        let producers: Vec<_> = [1, 2]
            .into_iter()
            .map(|id| {
                let cq = Arc::clone(&cq);
                thread::spawn(move || assert_eq!(cq.push(wc(1, id), false), Push::Quiet))
            })
            .collect();
        let mut seen = drain(&cq);
        for producer in producers {
            producer.join().unwrap();
        }
        seen.extend(drain(&cq));
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
    });
}

#[test]
fn two_consumers_take_each_completion_once() {
    // The lock is a compare-and-swap that takes over (Acquire) what the last holder left (Release).
    holds(&[Release, ReadModifyWrite], || {
        let cq = cq(2);
        for id in 1..3 {
            assert_eq!(cq.push(wc(1, id), false), Push::Quiet);
        }
        let other = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || cq.poll_one().map(|wc| wc.wr_id.0))
        };
        let mine = cq.poll_one().map(|wc| wc.wr_id.0);
        let mut seen = vec![mine, other.join().unwrap()];
        seen.sort_unstable();
        assert_eq!(seen, [Some(1), Some(2)]);
    });
}

/// The fence of `arm` and the fence of `push`: without either, a sleeper that saw nothing is not woken.
#[test]
fn who_arms_and_sees_nothing_is_woken() {
    holds(&[Fences], || {
        let cq = cq(2);
        let producer = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || cq.push(wc(1, 1), false))
        };
        cq.arm(false);
        let seen = drain(&cq);
        let push = producer.join().unwrap();
        assert!(!seen.is_empty() || push == Push::Notify, "asleep beside a completion");
    });
}

/// A completion that hides behind one that is claimed and not published.
#[test]
fn a_solicited_completion_behind_another_producer_wakes() {
    holds(&[Fences], || {
        let cq = cq(4);
        let producers = [(1, false), (2, true)].map(|(id, solicited)| {
            let cq = Arc::clone(&cq);
            thread::spawn(move || cq.push(wc(1, id), solicited))
        });
        cq.arm(true);
        let seen = drain(&cq);
        let notified = producers.map(|p| p.join().unwrap()).contains(&Push::Notify);
        assert!(seen.contains(&2) || notified, "asleep beside a solicited completion, having seen {seen:?}");
    });
}

#[test]
fn an_overrun_wakes_who_armed() {
    holds(&[Fences], || {
        let cq = cq(2);
        for id in 1..3 {
            assert_eq!(cq.push(wc(1, id), false), Push::Quiet);
        }
        assert_eq!(drain(&cq), [1, 2]);
        for id in 3..5 {
            assert_eq!(cq.push(wc(1, id), false), Push::Quiet);
        }
        let producer = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || match cq.push(wc(1, 5), false) {
                Push::Overrun => cq.announce_overrun() == Some(true),
                push => push == Push::Notify,
            })
        };
        let mut seen = drain(&cq);
        let told = cq.arm(false);
        seen.extend(drain(&cq));
        let notified = producer.join().unwrap();
        // What came was seen, or was not lost in silence.
        assert!(told || seen.contains(&5) || notified, "asleep beside a dead queue, having seen {seen:?}");
    });
}

/// The completions that were kept come before the news that others were lost, also to who polls just then.
#[test]
fn what_an_overrun_queue_kept_is_polled_before_it_counts_as_spent() {
    holds(&[Acquire, Release], || {
        let cq = cq(2);
        let producer = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || {
                for id in 1..4 {
                    let _ = cq.push(wc(1, id), false);
                }
            })
        };
        let mut seen = Vec::new();
        for _ in 0..2 {
            match cq.poll_one() {
                Some(wc) => seen.push(wc.wr_id.0),
                None => assert!(!cq.is_spent() || seen.len() > 1, "lost beside {seen:?}"),
            }
        }
        producer.join().unwrap();
        seen.extend(drain(&cq));
        assert!(seen == [1, 2] || seen == [1, 2, 3], "{seen:?}");
        assert_eq!(cq.is_spent(), seen.len() == 2);
    });
}

#[test]
fn a_purge_and_a_push_leave_each_other_whole() {
    holds(&[Acquire, Release], || {
        let cq = cq(4);
        assert_eq!(cq.push(wc(1, 1), false), Push::Quiet);
        assert_eq!(cq.push(wc(2, 2), false), Push::Quiet);
        let producer = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || assert_eq!(cq.push(wc(2, 3), false), Push::Quiet))
        };
        cq.purge(Qpn::new(1));
        producer.join().unwrap();
        assert_eq!(drain(&cq), [2, 3]);
    });
}
