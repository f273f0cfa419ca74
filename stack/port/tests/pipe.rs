//! Two ports joined by rings: nothing is lost, nothing is out of order, and the bound holds.

mod common;

use std::thread;

use common::{A, B, burst, commit, numbered, numbers, send};
use xroce_port::sim::{PipeConfig, PipePort, loop_pair};
use xroce_port::{LinkChange, Port, TxClass};

/// A frame with its number and nothing else to write: what is tested is the ring.
fn send_numbers(port: &mut PipePort, count: u64) {
    let mut next = 0;
    while next < count {
        for _ in 0..32 {
            if next == count || !commit_number(port, next) {
                break;
            }
            next += 1;
        }
        port.tx_flush();
    }
}

fn commit_number(port: &mut PipePort, number: u64) -> bool {
    let Some(frame) = port.tx_reserve(64, TxClass::Response) else {
        thread::yield_now();
        return false;
    };
    frame.head[14..22].copy_from_slice(&number.to_be_bytes());
    port.tx_commit(64);
    true
}

fn receive_numbers(port: &mut PipePort, count: u64) {
    let mut next = 0;
    while next < count {
        let got = port.rx_burst(64);
        for i in 0..got {
            assert_eq!(common::number_of(port.rx_frame(i).head), next);
            next += 1;
        }
        port.rx_release();
        if got == 0 {
            thread::yield_now();
        }
    }
}

#[test]
fn a_million_frames_between_two_threads() {
    const FRAMES: u64 = 1_000_000;
    let (mut a, mut b) = loop_pair(&PipeConfig { ring: 256, ..PipeConfig::default() }).expect("descriptors");
    let sender = thread::spawn(move || {
        send_numbers(&mut a, FRAMES);
        a
    });
    receive_numbers(&mut b, FRAMES);
    let a = sender.join().expect("the sender");
    assert_eq!((a.counters().tx_frames, b.counters().rx_frames), (FRAMES, FRAMES));
    assert_eq!((a.counters().tx_bytes, b.counters().rx_bytes), (64 * FRAMES, 64 * FRAMES));
    assert_eq!(b.rx_burst(1), 0);
}

#[test]
fn the_ring_refuses_and_recovers() {
    let config = PipeConfig { ring: 4, response_reserve: Some(1), ..PipeConfig::default() };
    let (mut a, mut b) = loop_pair(&config).expect("descriptors");
    let frame = |number| numbered(B, A, number, 64);
    for number in 0..3 {
        assert!(commit(&mut a, &frame(number), TxClass::Request));
    }
    assert!(!commit(&mut a, &frame(9), TxClass::Request), "the last is for responses");
    assert!(commit(&mut a, &frame(3), TxClass::Response));
    assert!(!commit(&mut a, &frame(9), TxClass::Response));
    assert!(!a.tx_idle());
    a.tx_flush();
    assert!(a.tx_idle());
    assert_eq!(b.rx_burst(2), 2);
    a.tx_flush();
    assert!(!commit(&mut a, &frame(9), TxClass::Response), "lent frames are still taken");
    b.rx_release();
    a.tx_flush();
    assert!(commit(&mut a, &frame(4), TxClass::Request));
    a.tx_flush();
    assert_eq!(numbers(&burst(&mut b, 32)), [2, 3, 4]);
    assert_eq!(a.counters().tx_refused, 3);
}

#[test]
fn frames_are_cut_as_asked() {
    let config = PipeConfig { split_at: Some(2100), ..PipeConfig::default() };
    let (mut a, mut b) = loop_pair(&config).expect("descriptors");
    assert!(a.tx_reserve(4000, TxClass::Request).is_some_and(|frame| frame.head.len() == 2100));
    let frame = numbered(B, A, 5, 4000);
    send(&mut a, &frame);
    assert_eq!(b.rx_burst(8), 1);
    assert_eq!((b.rx_frame(0).head.len(), common::bytes_of(b.rx_frame(0))), (2100, frame));
}

#[test]
fn the_end_of_one_end_is_told_to_the_other() {
    let (mut a, b) = loop_pair(&PipeConfig::default()).expect("descriptors");
    assert_eq!(a.link(), None);
    drop(b);
    assert!(matches!(a.link(), Some(LinkChange::Gone(_))));
    assert_eq!(a.link(), None);
    assert!(loop_pair(&PipeConfig { ring: 1, ..PipeConfig::default() }).is_err());
}
