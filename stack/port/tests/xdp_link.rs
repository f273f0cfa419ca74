//! The link goes down, the netdev goes away, the program is taken off: the port says so and does not spin.

#![allow(unsafe_code)]

mod xdp_common;

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};
use xdp_common::{Net, assert_account, eventually, frame, ip, run, send, take, take_within, try_send};
use xroce_port::xdp::XdpPort;
use xroce_port::{LinkChange, Port, TxClass};

const LIMIT: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(3);

/// The next change of the port's link, with the port in use as an engine would use it.
fn next_change(port: &mut XdpPort) -> LinkChange {
    let mut change = None;
    eventually("a change of the link", SOON, || {
        port.rx_burst(8);
        port.rx_release();
        port.tx_flush();
        change = port.link();
        change.is_some()
    });
    change.unwrap()
}

/// Report H35.
#[test]
fn down_and_up_while_sending() {
    run("down_and_up_while_sending", LIMIT, || {
        let net = Net::new(1500);
        let mut b = net.port_b(|_| {});
        let mut a = net.port_a(|_| {});
        for number in 0..50 {
            send(&mut a, &frame(true, number, 200));
        }
        a.tx_flush();
        assert_eq!(take_within(&mut b, 50, SOON).len(), 50);
        for _ in 0..3 {
            ip("link set va down");
            assert!(try_send(&mut a, &frame(true, 1, 200), TxClass::Request));
            a.tx_flush();
            assert_eq!(a.link(), Some(LinkChange::Down), "the kick says so at once");
            // A port whose link is down does not burn system calls.
            let (kicks, start) = (a.counters().kicks, Instant::now());
            while start.elapsed() < Duration::from_millis(20) {
                a.tx_flush();
            }
            assert!(a.counters().kicks - kicks <= 25, "{} kicks in 20 ms", a.counters().kicks - kicks);
            while try_send(&mut a, &frame(true, 2, 200), TxClass::Request) {}
            assert!(!a.tx_idle());
            ip("link set va up");
            assert_eq!(next_change(&mut a), LinkChange::Up);
            eventually("what waited has gone", SOON, || {
                a.tx_flush();
                take(&mut b);
                a.in_flight() == 0
            });
            for number in 0..50 {
                send(&mut a, &frame(true, number, 200));
            }
            a.tx_flush();
            assert_eq!(take_within(&mut b, 50, SOON).len(), 50, "frames pass again");
            assert_account(&mut a);
        }
        assert_eq!(a.link(), None);
    });
}

#[test]
fn down_and_up_while_idle() {
    run("down_and_up_while_idle", LIMIT, || {
        let net = Net::new(1500);
        let mut b = net.port_b(|_| {});
        ip("link set vb down");
        assert_eq!(next_change(&mut b), LinkChange::Down);
        ip("link set vb up");
        assert_eq!(next_change(&mut b), LinkChange::Up);
        let mut a = net.port_a(|_| {});
        send(&mut a, &frame(true, 1, 200));
        a.tx_flush();
        assert_eq!(take_within(&mut b, 1, SOON).len(), 1);
    });
}

#[track_caller]
fn assert_dead(port: &mut XdpPort, word: &str) {
    match next_change(port) {
        LinkChange::Gone(reason) => assert!(reason.contains(word), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(port.tx_reserve(100, TxClass::Response).is_none());
    assert_eq!(port.rx_burst(8), 0);
    let kicks = port.counters().kicks;
    port.tx_flush();
    assert_eq!(port.counters().kicks, kicks);
    assert!(port.tx_idle());
    assert_eq!(port.link(), None, "told once");
}

/// Report H35.
#[test]
fn unplugged_while_sending() {
    run("unplugged_while_sending", LIMIT, || {
        let net = Net::new(1500);
        let mut b = net.port_b(|_| {});
        let mut a = net.port_a(|_| {});
        for number in 0..100 {
            send(&mut a, &frame(true, number, 200));
        }
        ip("link del va");
        assert!(try_send(&mut a, &frame(true, 0, 200), TxClass::Response));
        assert_dead(&mut a, "va");
        assert_dead(&mut b, "vb");
        assert_account(&mut a);
        assert_account(&mut b);
    });
}

#[test]
fn unplugged_while_asleep() {
    run("unplugged_while_asleep", LIMIT, || {
        let net = Net::new(1500);
        let mut b = net.port_b(|_| {});
        ip("link del vb");
        let mut fds = Vec::new();
        b.wait_fds(&mut fds);
        let mut polled = libc::pollfd { fd: fds[0], events: libc::POLLIN, revents: 0 };
        eventually("the sleeper is told", SOON, || {
            b.before_wait();
            // SAFETY: one entry, which lives through the call.
            unsafe { libc::poll(&raw mut polled, 1, 1000) };
            b.after_wait();
            matches!(b.link(), Some(LinkChange::Gone(_)))
        });
    });
}

/// Report H35.
#[test]
fn the_program_is_taken_off_under_us() {
    run("the_program_is_taken_off_under_us", LIMIT, || {
        const BPF_LINK_DETACH: libc::c_long = 34;
        let net = Net::new(1500);
        let mut b = net.port_b(|_| {});
        assert!(b.attachment().is_attached());
        let link_fd = b.attachment().as_fd().as_raw_fd() as u32;
        // SAFETY: the attribute block of this command is one u32, which lives through the call.
        let status = unsafe { libc::syscall(libc::SYS_bpf, BPF_LINK_DETACH, &raw const link_fd, 4) };
        assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
        assert!(!b.attachment().is_attached());
        assert_dead(&mut b, "detached");
    });
}
