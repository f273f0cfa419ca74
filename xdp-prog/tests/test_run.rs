//! The program over hand-made frames, without any netdev (BPF_PROG_TEST_RUN): each shape it takes, each it leaves.

#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use xroce_xdp_prog::{Counters, Faults, Program, ProgramConfig};

const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

const OURS_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const FOREIGN_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OURS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const FOREIGN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const ROCE: u16 = 4791;

// ---- frames ----

/// Ethernet header with the given VLAN tags (their ethertypes), then the ethertype and what follows.
fn ethernet(tags: &[u16], ethertype: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 7]);
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(rest);
    frame
}

/// UDP header, BTH, ICRC: 8 + 12 + 4 bytes and `payload` between.
fn udp(port: u16, payload: usize) -> Vec<u8> {
    let mut datagram = 0xc000u16.to_be_bytes().to_vec();
    datagram.extend(port.to_be_bytes());
    datagram.extend((24 + payload as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend((0..16 + payload).map(|i| i as u8));
    datagram
}

struct V4 {
    to: Ipv4Addr,
    first_byte: u8,
    fragment: u16,
    protocol: u8,
    rest: Vec<u8>,
}

fn v4(to: Ipv4Addr, port: u16) -> V4 {
    V4 { to, first_byte: 0x45, fragment: 0x4000, protocol: 17, rest: udp(port, 32) }
}

impl V4 {
    fn packet(&self) -> Vec<u8> {
        let mut packet = vec![self.first_byte, 0];
        packet.extend((20 + self.rest.len() as u16).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(self.fragment.to_be_bytes());
        packet.extend([64, self.protocol, 0, 0, 10, 0, 0, 9]);
        packet.extend(self.to.octets());
        packet.extend(&self.rest);
        packet
    }

    fn frame(&self) -> Vec<u8> {
        ethernet(&[], 0x0800, &self.packet())
    }
}

fn v6(to: Ipv6Addr, next: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((rest.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    packet.extend(to.octets());
    packet.extend(rest);
    packet
}

// ---- the program ----

/// The program with our two addresses and a socket on queue 0, or `None` with a line that says why not.
fn program(test: &str, multi_buffer: bool, faults: Faults) -> Option<(Program, OwnedFd)> {
    let skip = |why: &str| {
        // Past the harness's capture, which shows nothing of a test that passes.
        writeln!(std::io::stdout().lock(), "SKIP {test}: {why}").expect("stdout");
        None
    };
    if unsafe { libc::geteuid() } != 0 {
        return skip("not root");
    }
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return skip(&format!("no AF_XDP sockets: {}", std::io::Error::last_os_error()));
    }
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let program = match Program::load(&ProgramConfig { queues: 1, multi_buffer, faults }) {
        Ok(program) => program,
        Err(error) => panic!("{error}"),
    };
    program.addresses().add(OURS_V4.into()).unwrap();
    program.addresses().add(OURS_V6.into()).unwrap();
    program.set_socket(0, socket.as_fd()).unwrap();
    Some((program, socket))
}

fn changed(before: Counters, after: Counters) -> Counters {
    Counters {
        redirected: after.redirected - before.redirected,
        passed_other: after.passed_other - before.passed_other,
        passed_fragment: after.passed_fragment - before.passed_fragment,
        passed_options: after.passed_options - before.passed_options,
        passed_foreign: after.passed_foreign - before.passed_foreign,
        passed_no_socket: after.passed_no_socket - before.passed_no_socket,
        dropped_on_purpose: after.dropped_on_purpose - before.dropped_on_purpose,
        corrupted_on_purpose: after.corrupted_on_purpose - before.corrupted_on_purpose,
    }
}

/// Runs one frame and checks the action, the one counter that moves, and that the frame is untouched.
#[track_caller]
fn expect(program: &Program, what: &str, frame: &[u8], action: u32, counted: Counters) {
    let before = program.counters().unwrap();
    let run = program.test_run(frame).unwrap();
    assert_eq!(run.action, action, "{what}: action");
    assert_eq!(run.frame, frame, "{what}: the frame was changed");
    assert_eq!(changed(before, program.counters().unwrap()), counted, "{what}: counters");
}

fn redirected() -> Counters {
    Counters { redirected: 1, ..Counters::default() }
}
fn other() -> Counters {
    Counters { passed_other: 1, ..Counters::default() }
}
fn foreign() -> Counters {
    Counters { passed_foreign: 1, ..Counters::default() }
}
fn fragment() -> Counters {
    Counters { passed_fragment: 1, ..Counters::default() }
}
fn options() -> Counters {
    Counters { passed_options: 1, ..Counters::default() }
}

// ---- tests ----

fn shapes(program: &Program) {
    let ours4 = v4(OURS_V4, ROCE);
    let ours6 = v6(OURS_V6, 17, &udp(ROCE, 32));
    for tags in [&[][..], &[0x8100], &[0x88a8], &[0x88a8, 0x8100], &[0x8100, 0x8100]] {
        let what = format!("v4 behind {tags:x?}");
        expect(program, &what, &ethernet(tags, 0x0800, &ours4.packet()), REDIRECT, redirected());
        let what = format!("v6 behind {tags:x?}");
        expect(program, &what, &ethernet(tags, 0x86dd, &ours6), REDIRECT, redirected());
    }
    let three = [0x88a8, 0x8100, 0x8100];
    expect(program, "v4 behind three tags", &ethernet(&three, 0x0800, &ours4.packet()), PASS, other());

    let dont_care = V4 { fragment: 0x0000, ..v4(OURS_V4, ROCE) };
    expect(program, "v4 without DF", &dont_care.frame(), REDIRECT, redirected());
    let big = V4 { rest: udp(ROCE, 1024), ..v4(OURS_V4, ROCE) };
    expect(program, "v4 of 1 KiB", &big.frame(), REDIRECT, redirected());

    expect(program, "v4 to another address", &v4(FOREIGN_V4, ROCE).frame(), PASS, foreign());
    let frame = ethernet(&[], 0x86dd, &v6(FOREIGN_V6, 17, &udp(ROCE, 32)));
    expect(program, "v6 to another address", &frame, PASS, foreign());
    for port in [4790, 4792, 53, 0xb712 /* 4791 with its bytes swapped */] {
        expect(program, &format!("v4 port {port}"), &v4(OURS_V4, port).frame(), PASS, other());
        let frame = ethernet(&[], 0x86dd, &v6(OURS_V6, 17, &udp(port, 32)));
        expect(program, &format!("v6 port {port}"), &frame, PASS, other());
    }
    let mut from_roce = v4(OURS_V4, 53);
    from_roce.rest[0..2].copy_from_slice(&ROCE.to_be_bytes());
    expect(program, "v4 from port 4791", &from_roce.frame(), PASS, other());

    let tcp = V4 { protocol: 6, ..v4(OURS_V4, ROCE) };
    expect(program, "v4 TCP", &tcp.frame(), PASS, other());
    let frame = ethernet(&[], 0x86dd, &v6(OURS_V6, 6, &udp(ROCE, 32)));
    expect(program, "v6 TCP", &frame, PASS, other());
    let mut behind_extension = vec![17, 0, 1, 4, 0, 0, 0, 0];
    behind_extension.extend(udp(ROCE, 32));
    let frame = ethernet(&[], 0x86dd, &v6(OURS_V6, 0, &behind_extension));
    expect(program, "v6 behind an extension header", &frame, PASS, other());

    for bits in [0x2000, 0x0001, 0x2010, 0x1fff] {
        let piece = V4 { fragment: bits, ..v4(OURS_V4, ROCE) };
        expect(program, &format!("v4 fragment {bits:#06x}"), &piece.frame(), PASS, fragment());
    }
    for first_byte in [0x46, 0x4f, 0x44, 0x65] {
        let odd = V4 { first_byte, ..v4(OURS_V4, ROCE) };
        expect(program, &format!("v4 with first byte {first_byte:#04x}"), &odd.frame(), PASS, options());
    }
    let mut version4 = v6(OURS_V6, 17, &udp(ROCE, 32));
    version4[0] = 0x45;
    expect(program, "v6 ethertype, version 4", &ethernet(&[], 0x86dd, &version4), PASS, other());

    let other_layers = [
        (0x8915, "RoCE v1"),
        (0x0806, "ARP"),
        (0x88cc, "LLDP"),
        (0x8906, "FCoE"),
        (0x9100, "a tag of a kind we do not know"),
    ];
    for (ethertype, what) in other_layers {
        expect(program, what, &ethernet(&[], ethertype, &ours4.packet()), PASS, other());
    }
}

#[test]
fn every_shape_multi_buffer_program() {
    let Some((program, _socket)) = program("every_shape_multi_buffer_program", true, Faults::default()) else { return };
    assert!(program.takes_pieces());
    shapes(&program);
}

#[test]
fn every_shape_plain_program() {
    let Some((program, _socket)) = program("every_shape_plain_program", false, Faults::default()) else { return };
    assert!(!program.takes_pieces());
    shapes(&program);
}

#[test]
fn a_frame_cut_anywhere_in_its_headers_passes() {
    let Some((program, _socket)) = program("a_frame_cut_anywhere_in_its_headers_passes", true, Faults::default())
    else {
        return;
    };
    let tags = [0x88a8, 0x8100];
    for (frame, headers) in [
        (v4(OURS_V4, ROCE).frame(), 14 + 20 + 8),
        (ethernet(&[], 0x86dd, &v6(OURS_V6, 17, &udp(ROCE, 32))), 14 + 40 + 8),
        (ethernet(&tags, 0x0800, &v4(OURS_V4, ROCE).packet()), 14 + 8 + 20 + 8),
        (ethernet(&tags, 0x86dd, &v6(OURS_V6, 17, &udp(ROCE, 32))), 14 + 8 + 40 + 8),
    ] {
        for len in 14..headers {
            expect(&program, &format!("cut to {len} of {headers}"), &frame[..len], PASS, other());
        }
        expect(&program, "all headers", &frame[..headers], REDIRECT, redirected());
    }
}

#[test]
fn addresses_change_while_loaded() {
    let Some((program, _socket)) = program("addresses_change_while_loaded", true, Faults::default()) else { return };
    let addresses = program.addresses();
    let frame = v4(FOREIGN_V4, ROCE).frame();
    let frame6 = ethernet(&[], 0x86dd, &v6(FOREIGN_V6, 17, &udp(ROCE, 32)));
    addresses.add(FOREIGN_V4.into()).unwrap();
    addresses.add(FOREIGN_V6.into()).unwrap();
    addresses.add(FOREIGN_V6.into()).unwrap();
    expect(&program, "added v4", &frame, REDIRECT, redirected());
    expect(&program, "added v6", &frame6, REDIRECT, redirected());
    assert!(addresses.contains(FOREIGN_V4.into()).unwrap());
    let other_handle = addresses.try_clone().unwrap();
    other_handle.remove(IpAddr::V6(FOREIGN_V4.to_ipv6_mapped())).unwrap();
    other_handle.remove(FOREIGN_V6.into()).unwrap();
    other_handle.remove(FOREIGN_V6.into()).unwrap();
    assert!(!addresses.contains(FOREIGN_V4.into()).unwrap());
    expect(&program, "removed v4", &frame, PASS, foreign());
    expect(&program, "removed v6", &frame6, PASS, foreign());
    expect(&program, "the others stay", &v4(OURS_V4, ROCE).frame(), REDIRECT, redirected());
    for i in 0..=255u8 {
        let full = addresses.add(Ipv4Addr::new(10, 1, 0, i).into());
        assert_eq!(full.is_err(), i == 255, "256 addresses and no more: 1 + {i}");
    }
}

#[test]
fn a_queue_without_a_socket_passes() {
    let Some((program, socket)) = program("a_queue_without_a_socket_passes", true, Faults::default()) else { return };
    let no_such_queue = program.set_socket(1, socket.as_fd()).unwrap_err().to_string();
    assert!(no_such_queue.contains("socket map"), "{no_such_queue}");
    drop(socket);
    let counted = Counters { passed_no_socket: 1, ..Counters::default() };
    expect(&program, "the socket was closed", &v4(OURS_V4, ROCE).frame(), PASS, counted);
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(program.set_socket(0, file.as_fd()).is_err(), "a file is no socket");
}

#[test]
fn faults_hit_only_what_would_be_redirected() {
    let faults = Faults { drop_nth: 3, ..Faults::default() };
    let name = "faults_hit_only_what_would_be_redirected";
    let Some((program, _socket)) = program(name, true, faults) else { return };
    let (ours, foreign_frame) = (v4(OURS_V4, ROCE).frame(), v4(FOREIGN_V4, ROCE).frame());
    let dropped = Counters { dropped_on_purpose: 1, ..Counters::default() };
    for (n, action, counted) in
        [(1, REDIRECT, redirected()), (2, REDIRECT, redirected()), (3, DROP, dropped), (4, REDIRECT, redirected())]
    {
        expect(&program, &format!("frame {n}"), &ours, action, counted);
        expect(&program, "foreign in between", &foreign_frame, PASS, foreign());
    }
}

#[test]
fn faults_come_about_as_often_as_asked() {
    let faults = Faults { drop_per_64k: 6554, corrupt_per_64k: 6554, drop_nth: 0 };
    let Some((program, _socket)) = program("faults_come_about_as_often_as_asked", true, faults) else { return };
    let ours = v4(OURS_V4, ROCE).frame();
    let mut corrupted = 0;
    for _ in 0..5000 {
        let run = program.test_run(&ours).unwrap();
        let differing: Vec<usize> = (0..ours.len()).filter(|&i| run.frame[i] != ours[i]).collect();
        if !differing.is_empty() {
            assert_eq!(differing, [14 + 20 + 8 + 12], "one byte, the first behind the BTH");
            corrupted += 1;
        }
    }
    let counters = program.counters().unwrap();
    assert_eq!(counters.corrupted_on_purpose, corrupted);
    assert_eq!(counters.redirected + counters.dropped_on_purpose, 5000);
    // 10% of 5000 each; six standard deviations of a binomial are 130.
    for count in [counters.dropped_on_purpose, counters.corrupted_on_purpose] {
        assert!((330..=670).contains(&count), "{counters:?}");
    }
}
