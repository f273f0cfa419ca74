//! Living beside the kernel's own stack: what is not ours stays there, and nothing of us stays behind.

#![allow(unsafe_code)]

mod xdp_common;

use std::io::Read;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;
use xdp_common::{IP_A, IP_B, Net, assert_frames, config, eventually, ip, ip_text, run, take, take_within};
use xroce_port::Port;
use xroce_port::xdp::{AttachMode, XdpPort};

const LIMIT: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(3);
const SECOND_IP_B: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 3);

fn kernel_socket(address: Ipv4Addr, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((address, port)).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket
}

fn expect(socket: &UdpSocket, bytes: &[u8]) {
    let mut buf = [0; 2048];
    let len = socket.recv(&mut buf).expect("a datagram for the kernel's socket");
    assert_eq!(&buf[..len], bytes);
}

#[test]
fn h45_other_traffic_goes_on() {
    run("h45_other_traffic_goes_on", LIMIT, || {
        for mode in [AttachMode::Native, AttachMode::Generic] {
            let net = Net::new(1500);
            let mut b = net.port_b(|c| c.mode = mode);
            ip("addr add 10.9.9.3/24 dev vb");
            let (other_port, ours, foreign) =
                (kernel_socket(IP_B, 5000), kernel_socket(IP_B, 4791), kernel_socket(SECOND_IP_B, 4791));
            net.a.enter();
            let from_a = kernel_socket(IP_A, 0);
            for round in 0..20u8 {
                from_a.send_to(&[round; 100], (IP_B, 5000)).unwrap();
                from_a.send_to(&[round; 101], (SECOND_IP_B, 4791)).unwrap();
                from_a.send_to(&[round; 102], (IP_B, 4791)).unwrap();
                expect(&other_port, &[round; 100]);
                expect(&foreign, &[round; 101]);
                let got = take_within(&mut b, 1, SOON);
                assert_eq!(got.len(), 1);
                assert_eq!(got[0][42..], [round; 102]);
            }
            let counters = b.program_counters().unwrap();
            assert_eq!((counters.redirected, counters.passed_foreign), (20, 20));

            b.addresses().remove(IP_B.into()).unwrap();
            b.addresses().add(SECOND_IP_B.into()).unwrap();
            from_a.send_to(b"to the kernel now", (IP_B, 4791)).unwrap();
            expect(&ours, b"to the kernel now");
            from_a.send_to(b"to the port now", (SECOND_IP_B, 4791)).unwrap();
            assert_eq!(take_within(&mut b, 1, SOON)[0][42..], *b"to the port now");
            assert_eq!(take(&mut b).len(), 0);
        }
    });
}

#[test]
fn vlan_tags_do_not_hide_a_frame() {
    run("vlan_tags_do_not_hide_a_frame", LIMIT, || {
        let net = Net::new(1500);
        let mut a = net.port_a(|_| {});
        let mut b = net.port_b(|_| {});
        let (whole, shorter) = (xdp_common::frame(true, 9, 1514), xdp_common::frame(true, 9, 1510));
        let one_tag = [&whole[..12], &[0x81, 0, 0, 5], &whole[12..]].concat();
        let two_tags = [&shorter[..12], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6], &shorter[12..]].concat();
        let most = a.capabilities().max_frame;
        assert_eq!([one_tag.len(), two_tags.len()], [most, most]);
        assert_eq!(a.capabilities().max_ip_packet(1), 1500);
        assert_eq!(a.capabilities().max_ip_packet(2), 1496);
        assert!(a.hides_vlan_tags(), "a veth's rx-vlan-offload is on unless switched off");
        for frame in [&one_tag, &two_tags] {
            xdp_common::send(&mut a, frame);
        }
        a.tx_flush();
        assert_frames(&take_within(&mut b, 2, SOON), &[one_tag, two_tags]);
    });
}

/// Whether the netdev of this thread's namespace carries an XDP program.
fn carries_program(ifname: &str) -> bool {
    ip_text(&format!("-d link show dev {ifname}")).contains("prog/xdp")
}

#[test]
fn nothing_is_left_after_drop() {
    run("nothing_is_left_after_drop", LIMIT, || {
        let net = Net::new(1500);
        let b = net.port_b(|_| {});
        assert!(carries_program("vb"));
        drop(b);
        assert!(!carries_program("vb"));

        // Nor after a failure to open: the program was put on before the socket was refused.
        let mut config = config("vb", IP_B);
        config.zero_copy = xroce_port::xdp::ZeroCopy::Force;
        let error = XdpPort::open(&config).unwrap_err().to_string();
        assert!(error.contains("queue 0 of vb could not be bound in zero-copy mode"), "{error}");
        assert!(!carries_program("vb"));
    });
}

/// Report H32.
#[test]
fn nothing_is_left_after_kill() {
    run("nothing_is_left_after_kill", LIMIT, || {
        let net = Net::new(1500);
        net.b.enter();
        for _ in 0..3 {
            let child = Child::with_port();
            assert!(carries_program("vb"));
            child.kill();
            assert!(!carries_program("vb"));
            drop(XdpPort::open(&config("vb", IP_B)).expect("the killed process holds nothing"));
        }
    });
}

/// A process that holds a port on `vb` until it is killed.
struct Child(libc::pid_t);

impl Child {
    fn with_port() -> Child {
        let mut fds = [0; 2];
        // SAFETY: `fds` has room for the two descriptors.
        assert_eq!(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        // SAFETY: both descriptors are new and owned here.
        let (read_end, write_end) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
        // SAFETY: no other thread of this process is at work on shared state: the tests run one at a time.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                drop(read_end);
                let port = XdpPort::open(&config("vb", IP_B));
                let text = port.as_ref().map_or_else(ToString::to_string, |_| "open".to_owned());
                // SAFETY: the bytes live through the call; alarm, pause and _exit take no memory. The alarm ends the
                // child should nobody kill it.
                unsafe {
                    libc::write(std::os::fd::AsRawFd::as_raw_fd(&write_end), text.as_ptr().cast(), text.len());
                    drop(write_end);
                    libc::alarm(20);
                    libc::pause();
                    libc::_exit(0)
                }
            }
            pid => {
                drop(write_end);
                let mut said = String::new();
                std::fs::File::from(read_end).read_to_string(&mut said).unwrap();
                let child = Child(pid);
                assert_eq!(said, "open");
                child
            }
        }
    }

    fn kill(self) {
        drop(self);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the process is our child and was not waited for yet, so the id is still its own.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn an_idle_port_wakes_a_sleeper_and_only_then() {
    run("an_idle_port_wakes_a_sleeper_and_only_then", LIMIT, || {
        let net = Net::new(1500);
        let mut b = net.port_b(|_| {});
        net.a.enter();
        let from_a = kernel_socket(IP_A, 0);
        let mut fds = Vec::new();
        b.wait_fds(&mut fds);
        let wait = |port: &mut XdpPort, ms| {
            let mut polled = libc::pollfd { fd: fds[0], events: libc::POLLIN, revents: 0 };
            port.before_wait();
            // SAFETY: one entry, which lives through the call.
            let ready = unsafe { libc::poll(&raw mut polled, 1, ms) };
            port.after_wait();
            ready == 1
        };
        assert!(!wait(&mut b, 100), "nothing came");
        from_a.send_to(b"wake", (IP_B, 4791)).unwrap();
        assert!(wait(&mut b, 3000));
        assert_eq!(take(&mut b).len(), 1);
        assert!(!wait(&mut b, 100), "nothing more came");
        eventually("still up", SOON, || b.link().is_none());
    });
}
