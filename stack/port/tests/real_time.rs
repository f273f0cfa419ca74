//! Ports that follow the clock: threads that sleep on them wake when a frame is there.

mod common;

use std::os::fd::{BorrowedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use common::{A, B, burst, number_of, numbered, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use xroce_port::Port;
use xroce_port::fault::{Action, Fault, Rule};
use xroce_port::sim::{LinkModel, NodeConfig, PipeConfig, SimNet, loop_pair};

const ROUNDS: u64 = 300;

/// Sleeps on the port until it has something, at most two seconds in all: the way an engine does.
fn sleep_on(port: &mut impl Port) -> bool {
    let mut fds: Vec<RawFd> = Vec::new();
    port.wait_fds(&mut fds);
    assert!(!fds.is_empty(), "nothing to sleep on");
    port.before_wait();
    // SAFETY: the port keeps its descriptors open as long as it lives, which is longer than this call.
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) }).collect();
    let mut polled: Vec<PollFd<'_>> = borrowed.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: 2, tv_nsec: 0 };
    let ready = poll(&mut polled, Some(&limit)).expect("poll");
    port.after_wait();
    ready > 0
}

fn sleep_for_frame(port: &mut impl Port) -> Vec<Vec<u8>> {
    let start = Instant::now();
    loop {
        let got = burst(port, 32);
        if !got.is_empty() {
            return got;
        }
        assert!(sleep_on(port), "slept past the frame");
        assert!(start.elapsed() < Duration::from_secs(4), "woken for nothing again and again");
    }
}

/// One side sends a number and waits for it to come back, the other echoes.
fn ping_pong(mut a: impl Port + 'static, mut b: impl Port + 'static) {
    let echo = thread::spawn(move || {
        for _ in 0..ROUNDS {
            for frame in sleep_for_frame(&mut b) {
                send(&mut b, &numbered(A, B, number_of(&frame), 64));
            }
        }
    });
    for round in 0..ROUNDS {
        send(&mut a, &numbered(B, A, round, 64));
        let got = sleep_for_frame(&mut a);
        assert_eq!(common::numbers(&got), [round]);
    }
    echo.join().expect("the echo saw every frame");
}

#[test]
fn sleepers_wake_on_a_perfect_network() {
    let net = SimNet::real_time(1);
    let [a, b] = std::array::from_fn(|_| net.add_node(&NodeConfig::default()).expect("descriptors"));
    assert_eq!(a.now_hint(), None);
    ping_pong(a, b);
}

#[test]
fn sleepers_wake_when_a_delayed_frame_is_due() {
    let net = SimNet::real_time(1);
    let [a, b] = std::array::from_fn(|_| net.add_node(&NodeConfig::default()).expect("descriptors"));
    net.set_every_link(&LinkModel { delay_min_ns: 50_000, delay_max_ns: 300_000, ..LinkModel::default() })
        .expect("sound");
    let start = Instant::now();
    ping_pong(a, b);
    assert!(start.elapsed() >= Duration::from_nanos(2 * ROUNDS * 50_000), "frames came before their time");
}

#[test]
fn sleepers_wake_on_a_pipe() {
    let (a, b) = loop_pair(&PipeConfig::default()).expect("descriptors");
    ping_pong(a, b);
}

#[test]
fn sleepers_wake_for_a_frame_that_a_fault_delayed() {
    let (a, b) = loop_pair(&PipeConfig::default()).expect("descriptors");
    let a = Fault::new(a, 1);
    a.faults().add(Rule::rx(Action::DelayNs(200_000))).expect("sound");
    ping_pong(a, b);
}

#[test]
fn the_callers_clock_decides_once_it_is_fed() {
    let net = SimNet::real_time(1);
    let [mut a, mut b] = std::array::from_fn(|_| net.add_node(&NodeConfig::default()).expect("descriptors"));
    net.set_now(1_000);
    net.set_every_link(&LinkModel::with_delay_ns(500)).expect("sound");
    send(&mut a, &numbered(B, A, 1, 64));
    thread::sleep(Duration::from_millis(2));
    assert!(burst(&mut b, 32).is_empty(), "the system's clock was read");
    net.set_now(1_500);
    assert_eq!(burst(&mut b, 32).len(), 1);
}
