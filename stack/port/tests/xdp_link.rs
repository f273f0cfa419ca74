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

/// Frames that lie in the ring, where nobody takes them any more, keep the socket readable.
#[test]
fn a_dead_port_does_not_keep_its_engine_awake() {
    run("a_dead_port_does_not_keep_its_engine_awake", LIMIT, || {
        let net = Net::new(1500);
        let mut b = net.port_b(|_| {});
        let mut a = net.port_a(|_| {});
        send(&mut a, &frame(true, 1, 200));
        a.tx_flush();
        assert!(is_readable(&b, SOON.as_millis() as i32), "the frame came");
        take_program_off(&b);
        eventually("the sleeper is told", SOON, || {
            b.before_wait();
            b.after_wait();
            matches!(b.link(), Some(LinkChange::Gone(_)))
        });
        assert_eq!(b.rx_burst(8), 0);
        assert!(!is_readable(&b, 0), "a sleeper would not sleep");
        assert_account(&mut b);
    });
}

/// Whether some descriptor of the port is readable within `patience_ms`.
fn is_readable(port: &XdpPort, patience_ms: libc::c_int) -> bool {
    let mut fds = Vec::new();
    port.wait_fds(&mut fds);
    let mut polled: Vec<_> = fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: an array of its own length, which lives through the call.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, patience_ms) > 0 }
}

/// The port goes with the netdev, not with its name.
#[test]
fn a_netdev_that_takes_over_the_name_does_not_speak_for_ours() {
    run("a_netdev_that_takes_over_the_name_does_not_speak_for_ours", LIMIT, || {
        let net = Net::new(1500);
        let mut b = net.port_b(|_| {});
        let mut a = net.port_a(|_| {});
        net.a.enter();
        ip("link set va down");
        ip("link set va name old");
        ip("link set old up");
        // It is down.
        ip("link add va type veth peer name vc");
        let patience = Instant::now() + Duration::from_millis(200);
        while Instant::now() < patience {
            a.before_wait();
            a.after_wait();
            assert_eq!(a.link(), None, "the netdev is up");
            std::thread::sleep(Duration::from_millis(5));
        }
        ip("link set old down");
        assert_eq!(next_change(&mut a), LinkChange::Down);
        ip("link set old up");
        assert_eq!(next_change(&mut a), LinkChange::Up);
        send(&mut a, &frame(true, 1, 200));
        a.tx_flush();
        assert_eq!(take_within(&mut b, 1, SOON).len(), 1);
    });
}

/// Report H35.
#[test]
fn the_program_is_taken_off_under_us() {
    run("the_program_is_taken_off_under_us", LIMIT, || {
        let net = Net::new(1500);
        let mut b = net.port_b(|_| {});
        take_program_off(&b);
        assert_dead(&mut b, "detached");
    });
}

fn take_program_off(port: &XdpPort) {
    const BPF_LINK_DETACH: libc::c_long = 34;
    assert!(port.attachment().is_attached());
    let link_fd = port.attachment().as_fd().as_raw_fd() as u32;
    // SAFETY: the attribute block of this command is one u32, which lives through the call.
    let status = unsafe { libc::syscall(libc::SYS_bpf, BPF_LINK_DETACH, &raw const link_fd, 4) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    assert!(!port.attachment().is_attached());
}
