//! Faults happen where the plan says, as often as chance says, and are counted.

mod common;

use common::{A, B, burst, commit, drain, number_of, numbered, numbers, send};
use xroce_port::fault::{Action, Fault, FaultCounts, Rule, RuleError, When};
use xroce_port::sim::{NodeConfig, PipeConfig, SimNet, SimPort, loop_pair, pair};
use xroce_port::{Direction, Port, RxFrame, TxClass};

fn odd(frame: &RxFrame<'_>) -> bool {
    number_of(frame.head) % 2 == 1
}

/// A sends frames 0..n with `rule` on this side of the wire: the numbers that B's engine sees, and what was counted.
fn over(rule: Rule, n: u64) -> (Vec<Vec<u8>>, FaultCounts) {
    let (_net, a, b) = pair(1);
    let (mut a, mut b) = (Fault::new(a, 5), Fault::new(b, 5));
    let direction = if format!("{rule:?}").contains("Rx") { Direction::Rx } else { Direction::Tx };
    let faults = if direction == Direction::Rx { b.faults() } else { a.faults() };
    let id = faults.add(rule).expect("a sound rule");
    for number in 0..n {
        send(&mut a, &numbered(B, A, number, 64));
    }
    let got = drain(&mut b);
    assert!(faults.rule(id).is_some_and(|counts| counts.matched <= n));
    let counters = faults.counters();
    assert_eq!((a.counters().tx_frames, b.counters().rx_frames), (n, got.len() as u64));
    assert_eq!(b.counters().rx_bytes, 64 * got.len() as u64);
    (got, if direction == Direction::Rx { counters.rx } else { counters.tx })
}

fn both(make: impl Fn(Direction) -> Rule, check: impl Fn(&[Vec<u8>], FaultCounts)) {
    for direction in [Direction::Rx, Direction::Tx] {
        let (got, counts) = over(make(direction), 10);
        assert_eq!(counts.seen, 10, "{direction:?}");
        check(&got, counts);
    }
}

#[test]
fn drops_exactly_the_nth_that_matches() {
    both(
        |d| Rule::new(d, Action::Drop).matching(odd).nth(2),
        |got, counts| {
            assert_eq!(numbers(got), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
            assert_eq!(counts, FaultCounts { seen: 10, dropped: 1, ..FaultCounts::default() });
        },
    );
}

#[test]
fn duplicates_exactly_those() {
    both(
        |d| Rule::new(d, Action::Duplicate).when(When::Range { first: 9, last: 10 }),
        |got, counts| {
            assert_eq!(numbers(got), [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 9]);
            assert_eq!(counts.duplicated, 2);
        },
    );
}

#[test]
fn holds_for_exactly_so_many_frames() {
    both(
        |d| Rule::new(d, Action::HoldFrames(3)).nth(2),
        |got, counts| {
            assert_eq!(numbers(got), [0, 2, 3, 4, 1, 5, 6, 7, 8, 9]);
            assert_eq!((counts.held, counts.released), (1, 1));
        },
    );
    // Nothing follows the last: it stays.
    both(
        |d| Rule::new(d, Action::HoldFrames(1)).nth(10),
        |got, counts| {
            assert_eq!(got.len(), 9);
            assert_eq!((counts.held, counts.released), (1, 0));
        },
    );
}

#[test]
fn flips_exactly_that_bit() {
    both(
        |d| Rule::new(d, Action::FlipBit(8 * 30 + 5)).when(When::Every(4)),
        |got, counts| {
            for (number, frame) in got.iter().enumerate() {
                let mut want = numbered(B, A, number as u64, 64);
                if number == 3 || number == 7 {
                    want[30] ^= 1 << 5;
                }
                assert_eq!(*frame, want, "frame {number}");
            }
            assert_eq!((counts.corrupted, counts.skipped), (2, 0));
        },
    );
    both(
        |d| Rule::new(d, Action::FlipBit(8 * 64)),
        |got, counts| {
            assert_eq!((numbers(got), counts.skipped), ((0..10).collect(), 10));
        },
    );
}

#[test]
fn corrupts_so_many_bits() {
    for direction in [Direction::Rx, Direction::Tx] {
        // A pipe: a switch would not know where to send a frame with a flipped address.
        let (a, b) = loop_pair(&PipeConfig::default()).expect("descriptors");
        let (mut a, mut b) = (Fault::new(a, 5), Fault::new(b, 5));
        let faults = if direction == Direction::Rx { b.faults() } else { a.faults() };
        faults.add(Rule::new(direction, Action::CorruptBits(3))).expect("sound");
        for number in 0..50 {
            let clean = numbered(B, A, number, 64);
            send(&mut a, &clean);
            let got = drain(&mut b);
            let flips: u32 = got[0].iter().zip(&clean).map(|(x, y)| (x ^ y).count_ones()).sum();
            assert_eq!((got.len(), flips), (1, 3), "{direction:?}, frame {number}");
        }
        assert_eq!(faults.counters().rx.corrupted + faults.counters().tx.corrupted, 50);
    }
}

#[test]
fn chance_is_as_often_as_said_and_repeats() {
    let n = 3_000;
    for direction in [Direction::Rx, Direction::Tx] {
        let run = || over(Rule::new(direction, Action::Drop).chance(0.25), n);
        let (got, counts) = run();
        assert_eq!(got.len() as u64 + counts.dropped, n);
        // Five standard deviations of a binomial of 3000 and 0.25: 119.
        assert!((counts.dropped as i64 - 750).abs() < 119, "{} of {n} dropped", counts.dropped);
        assert_eq!(run().0, got, "the same seed dropped others");
    }
}

fn delayed(rule: Rule) -> (SimNet, Fault<SimPort>, SimPort) {
    let (net, a, b) = pair(1);
    let a = Fault::new(a, 1);
    a.faults().add(rule).expect("sound");
    (net, a, b)
}

#[test]
fn a_delayed_frame_passes_at_its_time() {
    let (net, mut a, mut b) = delayed(Rule::tx(Action::DelayNs(700)).nth(1));
    net.advance_to(100);
    send(&mut a, &numbered(B, A, 1, 64));
    send(&mut a, &numbered(B, A, 2, 64));
    assert!(a.tx_idle(), "a held frame is on its way as far as the engine knows");
    assert_eq!(numbers(&drain(&mut b)), [2]);
    assert_eq!(a.faults().next_release(), Some(800));
    net.advance_to(799);
    a.tx_flush();
    assert!(drain(&mut b).is_empty());
    net.advance_to(800);
    a.tx_flush();
    assert_eq!((numbers(&drain(&mut b)), a.faults().next_release()), (vec![1], None));

    let (net, mut a, mut b) = delayed(Rule::rx(Action::DelayNs(700)).nth(1));
    send(&mut b, &numbered(A, B, 1, 64));
    send(&mut b, &numbered(A, B, 2, 64));
    assert_eq!(numbers(&drain(&mut a)), [2]);
    assert_eq!(a.faults().next_release(), Some(700));
    // Taken out of force, the rule holds no further frame, and what it held still comes.
    a.faults().clear();
    send(&mut b, &numbered(A, B, 3, 64));
    net.advance_to(700);
    assert_eq!(numbers(&drain(&mut a)), [1, 3]);
    let counters = a.counters();
    assert_eq!((counters.rx_frames, counters.rx_bytes), (3, 192));
}

#[test]
fn a_burst_is_never_longer_than_asked() {
    let (_net, mut a, b) = pair(1);
    let mut b = Fault::new(b, 1);
    b.faults().add(Rule::rx(Action::Duplicate)).expect("sound");
    for number in 0..20 {
        send(&mut a, &numbered(B, A, number, 64));
    }
    let mut got = Vec::new();
    for _ in 0..20 {
        let some = burst(&mut b, 3);
        assert!(some.len() <= 3);
        got.extend(numbers(&some));
    }
    got.sort_unstable();
    assert!(got.into_iter().eq((0..20).flat_map(|n| [n, n])));
}

#[test]
fn a_full_port_is_not_overrun_by_copies() {
    let net = SimNet::new(1);
    let tiny = NodeConfig { tx_ring: 1, ..NodeConfig::default() };
    let mut a = Fault::new(net.add_node(&tiny).expect("sound"), 1);
    let mut b = net.add_node(&NodeConfig::default()).expect("sound");
    let faults = a.faults();
    let twice = faults.add(Rule::tx(Action::Duplicate)).expect("sound");
    send(&mut a, &numbered(B, A, 1, 64));
    assert_eq!((numbers(&drain(&mut b)), faults.counters().tx.skipped), (vec![1], 1));
    assert_eq!(faults.remove(twice).map(|counts| counts.fired), Some(1));

    // Frame 2 may pass behind frame 3, which has the only slot: it waits for the next kick.
    faults.add(Rule::tx(Action::HoldFrames(1)).nth(1)).expect("sound");
    send(&mut a, &numbered(B, A, 2, 64));
    assert!(commit(&mut a, &numbered(B, A, 3, 64), TxClass::Request));
    assert!(!a.tx_idle());
    a.tx_flush();
    assert!(!a.tx_idle(), "frame 2 found no room");
    a.tx_flush();
    assert!(a.tx_idle());
    assert_eq!(numbers(&drain(&mut b)), [3, 2]);
    let counters = a.counters();
    assert_eq!((counters.tx_frames, counters.tx_refused), (3, 0), "the engine was never refused");
}

#[test]
fn the_first_rule_acts_and_all_count() {
    let (_net, mut a, b) = pair(1);
    let mut b = Fault::new(b, 1);
    let faults = b.faults();
    let first = faults.add(Rule::rx(Action::Duplicate).nth(2).named("first")).expect("sound");
    let second = faults.add(Rule::rx(Action::Drop).when(When::Range { first: 2, last: 3 })).expect("sound");
    for number in 1..=4 {
        send(&mut a, &numbered(B, A, number, 64));
    }
    assert_eq!(numbers(&drain(&mut b)), [1, 2, 2, 4]);
    let fired = |id| faults.rule(id).map(|counts| (counts.matched, counts.fired));
    assert_eq!((fired(first), fired(second)), (Some((4, 1)), Some((4, 2))));
    assert_eq!(b.counters().rx_dropped_lower, 1);
}

#[test]
fn rules_that_mean_nothing_are_refused() {
    let (_net, a, _b) = pair(1);
    let faults = Fault::new(a, 1).faults();
    let error = faults.add(Rule::rx(Action::Drop).named("half").chance(1.5));
    assert_eq!(error, Err(RuleError::Probability { name: "half".into(), value: 1.5 }));
    let empty = [
        Rule::rx(Action::Drop).nth(0),
        Rule::rx(Action::Drop).when(When::Every(0)),
        Rule::rx(Action::Drop).when(When::Range { first: 3, last: 2 }),
        Rule::tx(Action::HoldFrames(0)),
        Rule::tx(Action::CorruptBits(0)),
    ];
    for rule in empty {
        assert!(matches!(faults.add(rule), Err(RuleError::Empty { .. })));
    }
}
