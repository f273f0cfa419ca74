//! Queues, rings and the account of chunks: who may open what, what is bounded, what becomes of every frame.

mod xdp_common;

use std::time::{Duration, Instant};
use xdp_common::{
    IP_A, IP_B, Net, assert_account, assert_frames, config, eventually, frame, run, send, skip, take, take_within,
    try_send,
};
use xroce_port::xdp::{MultiBuffer, Queues, XdpPort};
use xroce_port::{Port, TxClass};

const LIMIT: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(3);

/// Report H33.
#[test]
fn a_queue_that_is_not_there_is_refused_with_the_count() {
    run("a_queue_that_is_not_there_is_refused_with_the_count", LIMIT, || {
        let net = Net::with_queues(1500, 2);
        net.b.enter();
        let mut config = config("vb", IP_B);
        for asked in [2, 3, 64] {
            config.queues = Queues::List(vec![0, asked]);
            let error = XdpPort::open(&config).unwrap_err().to_string();
            assert!(error.contains("vb has 2 queues") && error.contains(&format!("queue {asked} ")), "{error}");
        }
        config.ifname = "nosuch0".to_owned();
        let error = XdpPort::open(&config).unwrap_err().to_string();
        assert!(error.contains("nosuch0") && error.contains("no such interface"), "{error}");
    });
}

#[test]
fn all_queues_are_served() {
    run("all_queues_are_served", LIMIT, || {
        let net = Net::with_queues(1500, 3);
        let mut b = net.port_b(|_| {});
        assert_eq!(b.capabilities().queues, 3);
        let mut fds = Vec::new();
        b.wait_fds(&mut fds);
        assert_eq!(fds.len(), 3);
        // A veth carries a frame from transmit queue n to the peer's receive queue n.
        for queue in [0, 1, 2] {
            let mut a = net.port_a(|c| c.queues = Queues::List(vec![queue]));
            for number in 0..20 {
                send(&mut a, &frame(true, queue * 100 + number, 200));
            }
            a.tx_flush();
            let got = take_within(&mut b, 20, SOON);
            assert_frames(&got, &(0..20).map(|n| frame(true, queue * 100 + n, 200)).collect::<Vec<_>>());
        }
        drop(b);
        let mut b = net.port_b(|c| c.queues = Queues::List(vec![0, 2]));
        let mut a = net.port_a(|c| c.queues = Queues::List(vec![1]));
        send(&mut a, &frame(true, 1, 200));
        a.tx_flush();
        eventually("a queue without a socket goes to the kernel", SOON, || {
            b.program_counters().unwrap().passed_no_socket == 1
        });
        assert_eq!(take(&mut b).len(), 0);
        assert_account(&mut b);
    });
}

#[test]
fn h32_a_hundred_times_open_and_close() {
    run("h32_a_hundred_times_open_and_close", LIMIT, || {
        let net = Net::new(1500);
        let mut a = net.port_a(|_| {});
        for round in 0..100 {
            let mut b = net.port_b(|_| {});
            send(&mut a, &frame(true, round, 100));
            a.tx_flush();
            assert_frames(&take_within(&mut b, 1, SOON), &[frame(true, round, 100)]);
            if round % 2 == 0 {
                // With frames lent and frames waiting to be sent.
                send(&mut a, &frame(true, round, 100));
                a.tx_flush();
                eventually("a frame to leave lent", SOON, || b.rx_burst(8) == 1);
                assert!(try_send(&mut b, &frame(false, round, 100), TxClass::Response));
            }
        }
        assert_account(&mut a);
    });
}

/// Reports H32, H48.
#[test]
fn a_second_port_on_the_netdev_is_told_so() {
    run("a_second_port_on_the_netdev_is_told_so", LIMIT, || {
        let net = Net::new(1500);
        let mut a = net.port_a(|_| {});
        let mut b = net.port_b(|_| {});
        let start = Instant::now();
        let error = XdpPort::open(&config("vb", IP_B)).unwrap_err().to_string();
        assert!(error.contains("vb") && error.contains("already carries an XDP program (id "), "{error}");
        assert!(!error.contains("(id 0)"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(3));
        send(&mut a, &frame(true, 1, 100));
        a.tx_flush();
        assert_eq!(take_within(&mut b, 1, SOON).len(), 1, "the first port is not disturbed");
    });
}

/// Report H32.
#[test]
fn a_queue_that_another_socket_holds_is_named() {
    run("a_queue_that_another_socket_holds_is_named", LIMIT, || {
        let net = Net::with_queues(1500, 2);
        net.b.enter();
        let holder = bare_socket("vb", 1);
        let start = Instant::now();
        let error = XdpPort::open(&config("vb", IP_B)).unwrap_err().to_string();
        assert!(error.contains("queue 1 of vb is in use"), "{error}");
        assert!(start.elapsed() > Duration::from_millis(900), "it waited for the queue to be freed");
        assert!(start.elapsed() < Duration::from_secs(5));
        // The queue is freed while a port waits for it.
        let freed = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(holder);
        });
        net.b.enter();
        XdpPort::open(&config("vb", IP_B)).unwrap();
        freed.join().unwrap();
    });
}

/// A socket bound to a queue without any XDP program, as another program would have it.
fn bare_socket(ifname: &str, queue: u32) -> impl Send + use<> {
    use xsk_rs::config::{Interface, LibxdpFlags, SocketConfig, UmemConfig};
    let (umem, _) = xsk_rs::Umem::new(UmemConfig::default(), 64.try_into().unwrap(), false).unwrap();
    let interface: Interface = ifname.parse().unwrap();
    let config = SocketConfig::builder().libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD).build();
    // SAFETY: the UMEM has no other socket.
    #[allow(unsafe_code)]
    unsafe { xsk_rs::Socket::new(config, &umem, &interface, queue) }.unwrap()
}

#[test]
fn in_flight_is_bounded_and_responses_keep_their_slots() {
    run("in_flight_is_bounded_and_responses_keep_their_slots", LIMIT, || {
        let net = Net::new(1500);
        let mut a = net.port_a(|_| {});
        let mut b = net.port_b(|_| {});
        let mut sent = 0;
        while try_send(&mut a, &frame(true, sent, 300), TxClass::Request) {
            sent += 1;
        }
        assert_eq!(sent, 200 - 32, "requests leave the response slots alone");
        while try_send(&mut a, &frame(true, sent, 300), TxClass::Response) {
            sent += 1;
        }
        assert_eq!((sent, a.in_flight()), (200, 200));
        assert_eq!(a.counters().tx_refused, 2);
        assert!(!a.tx_idle());
        a.tx_flush();
        let got = take_within(&mut b, 200, SOON);
        assert_frames(&got, &(0..200).map(|n| frame(true, n, 300)).collect::<Vec<_>>());
        eventually("completions free the slots", SOON, || {
            a.tx_flush();
            a.in_flight() == 0
        });
        assert!(try_send(&mut a, &frame(true, 0, 300), TxClass::Request));
        assert_account(&mut a);
    });
}

/// Report H37.
#[test]
fn a_receiver_that_does_not_read_counts_what_it_lost_and_recovers() {
    run("a_receiver_that_does_not_read_counts_what_it_lost_and_recovers", LIMIT, || {
        let net = Net::new(1500);
        let mut a = net.port_a(|_| {});
        let mut b = net.port_b(|c| c.rx_ring = 256);
        const SENT: u32 = 1000;
        for number in 0..SENT {
            send(&mut a, &frame(true, number, 300));
        }
        eventually("all sent", SOON, || {
            a.tx_flush();
            a.in_flight() == 0
        });
        let got = take_within(&mut b, SENT as usize, Duration::from_millis(200));
        assert_frames(&got, &(0..256).map(|n| frame(true, n, 300)).collect::<Vec<_>>());
        let counters = b.counters();
        assert_eq!(counters.rx_frames + counters.rx_dropped_lower, u64::from(SENT), "{counters:?}");
        assert!(counters.rx_no_buffer > 0, "{counters:?}");
        for number in 0..100 {
            send(&mut a, &frame(true, number, 300));
        }
        a.tx_flush();
        assert_eq!(take_within(&mut b, 100, SOON).len(), 100, "receiving goes on");
        assert_account(&mut a);
        assert_account(&mut b);
    });
}

#[test]
fn h34_a_frame_sent_after_a_pause_leaves_at_once() {
    run("h34_a_frame_sent_after_a_pause_leaves_at_once", LIMIT, || {
        let net = Net::new(1500);
        let mut a = net.port_a(|_| {});
        let mut b = net.port_b(|_| {});
        std::thread::sleep(Duration::from_secs(1));
        send(&mut a, &frame(true, 1, 100));
        let start = Instant::now();
        a.tx_flush();
        assert_eq!(take_within(&mut b, 1, SOON).len(), 1);
        assert!(start.elapsed() < Duration::from_millis(10), "{:?}", start.elapsed());
    });
}

#[test]
fn huge_pages_are_used_when_there_are_some() {
    const NAME: &str = "huge_pages_are_used_when_there_are_some";
    let free = std::fs::read_to_string("/proc/meminfo").unwrap();
    let free = free.lines().find_map(|l| l.strip_prefix("HugePages_Free:")).map_or(0, |n| n.trim().parse().unwrap());
    if free < 2 {
        return skip(NAME, "fewer than 2 free huge pages (sysctl vm.nr_hugepages)");
    }
    run(NAME, LIMIT, || {
        let net = Net::new(1500);
        for _ in 0..3 {
            let small = |c: &mut xroce_port::xdp::XdpConfig| (c.tx_ring, c.rx_ring) = (64, 64);
            let (mut a, mut b) = (net.port_a(small), net.port_b(small));
            assert!(
                a.capabilities().xdp.as_ref().unwrap().huge_pages && b.capabilities().xdp.as_ref().unwrap().huge_pages
            );
            assert_eq!(a.frame_account().total, 512, "130 chunks rounded up to one page of 2 MiB");
            send(&mut a, &frame(true, 1, 200));
            a.tx_flush();
            assert_frames(&take_within(&mut b, 1, SOON), &[frame(true, 1, 200)]);
            drop((a, b));
            let b = net.port_b(|c| c.huge_pages = false);
            assert!(!b.capabilities().xdp.as_ref().unwrap().huge_pages);
        }
    });
}

/// A million frames of one and two pieces through rings that go round thousands of times.
#[test]
fn h34_many_frames_through_tiny_rings() {
    run("h34_many_frames_through_tiny_rings", Duration::from_secs(600), || {
        let net = Net::new(9000);
        let mut a = net.port_a(|c| (c.tx_ring, c.rx_ring) = (64, 64));
        let mut b = net.port_b(|c| (c.tx_ring, c.rx_ring) = (64, 64));
        const FRAMES: u32 = 1_000_000;
        // One in eight has two pieces; 24 frames take at most 27 of the receiver's 64 chunks.
        let size = |n: u32| if n % 8 == 7 { 4170 } else { 64 + (n as usize * 13) % 900 };
        let start = Instant::now();
        let (mut sent, mut received) = (0, 0);
        let mut bytes = Vec::new();
        let mut moved = start;
        while received < FRAMES {
            let burst = FRAMES.min(sent + 24);
            while sent < burst {
                bytes.clear();
                bytes.extend(frame(true, sent, 64));
                bytes.resize(size(sent), sent as u8);
                if !try_send(&mut a, &bytes, TxClass::Request) {
                    break;
                }
                sent += 1;
            }
            a.tx_flush();
            if received < sent {
                moved = Instant::now();
            }
            assert!(moved.elapsed() < SOON, "no frame can be sent behind {sent}");
            let end = Instant::now() + SOON;
            while received < sent {
                assert!(Instant::now() < end, "frame {received} of {sent} did not come");
                let got = b.rx_burst(7);
                for i in 0..got {
                    let frame = b.rx_frame(i);
                    assert_eq!(frame.len(), size(received));
                    assert_eq!(frame.head[42..46], received.to_be_bytes());
                    let last = frame.tail.last().or(frame.head.last()).copied();
                    assert!(size(received) <= 64 || last == Some(received as u8));
                    received += 1;
                }
                b.rx_release();
            }
            if received % 50_000 < 24 {
                assert_account(&mut a);
                assert_account(&mut b);
            }
        }
        println!("{FRAMES} frames in {:?}", start.elapsed());
        eventually("all completed", SOON, || {
            a.tx_flush();
            a.in_flight() == 0
        });
        let account = a.frame_account();
        assert!(account.adds_up() && account.completion + account.tx + account.held == 0, "{account:?}");
        assert_eq!(a.counters().tx_frames, u64::from(FRAMES));
        assert_eq!(b.counters().rx_frames, u64::from(FRAMES));
        assert_eq!(b.counters().rx_dropped_lower, 0);
        assert_eq!(b.frame_account().total, 64 + 64 + 2);
    });
}

/// Three pieces and more are dropped whole, and the frames around them are not touched.
/// Report H36.
#[test]
fn a_frame_in_three_pieces_is_dropped_and_counted() {
    run("a_frame_in_three_pieces_is_dropped_and_counted", LIMIT, || {
        let net = Net::new(9000);
        let mut b = net.port_b(|_| {});
        net.a.enter();
        let sender = std::net::UdpSocket::bind((IP_A, 0)).unwrap();
        for (number, len) in [(0u8, 100), (1, 8900), (2, 7600), (3, 8900), (4, 100)] {
            sender.send_to(&vec![number; len], (IP_B, 4791)).unwrap();
        }
        let got = take_within(&mut b, 3, SOON);
        assert_eq!(got.iter().map(|f| (f.len() - 42, f[42])).collect::<Vec<_>>(), [(100, 0), (7600, 2), (100, 4)]);
        assert_eq!(b.counters().rx_dropped_pieces, 2);
        assert_account(&mut b);
        drop(b);

        let mut b = net.port_b(|c| c.multi_buffer = MultiBuffer::Off);
        net.a.enter();
        sender.send_to(&[5; 8900], (IP_B, 4791)).unwrap();
        eventually("counted by the kernel", SOON, || b.counters().rx_dropped_lower == 1);
        assert_account(&mut b);
    });
}
