//! What public reports tell of other AF_XDP programs, tried here. docs/regressions.md lists the reports; the number of each begins
//! the name of its test.

#![allow(unsafe_code)]

mod xdp_common;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use xdp_common::{IP_B, Net, assert_account, config, frame, run, send, skip, take, take_within};
use xroce_port::Port;
use xroce_port::xdp::{Queues, XdpPort};

const LIMIT: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(3);

/// Sets the number of channels of a netdev in this thread's namespace.
fn set_channels(ifname: &str, channels: u32) -> Result<(), String> {
    let count = channels.to_string();
    let output = Command::new("ethtool").args(["-L", ifname, "rx", &count, "tx", &count]).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("cannot run ethtool: {error}")),
    }
}

/// A netdev made for four queues of which one is in use: the queues beyond it are refused by their number and the count there is,
/// and taken once they are in use.
#[test]
fn h33_queues_that_are_not_in_use() {
    const NAME: &str = "h33_queues_that_are_not_in_use";
    run(NAME, LIMIT, || {
        let net = Net::with_queues(1500, 4);
        // An XDP program on one end of a veth asks for no more transmit queues at the other end than that one can receive on.
        for end in [&net.a, &net.b] {
            end.enter();
            let ifname = if std::ptr::eq(end, &net.a) { "va" } else { "vb" };
            if let Err(why) = set_channels(ifname, 1) {
                return skip(NAME, &why);
            }
        }
        net.b.enter();
        let with = |queue: u32| {
            let mut config = config("vb", IP_B);
            config.queues = Queues::List(vec![queue]);
            XdpPort::open(&config)
        };
        drop(with(0).unwrap());
        for queue in 1..=4 {
            let error = with(queue).unwrap_err().to_string();
            assert!(error.contains("vb has 1 queues") && error.contains(&format!("queue {queue} ")), "{error}");
        }
        set_channels("vb", 4).unwrap();
        for queue in 0..4 {
            drop(with(queue).unwrap_or_else(|error| panic!("{error}")));
        }
        let error = with(4).unwrap_err().to_string();
        assert!(error.contains("vb has 4 queues"), "{error}");
    });
}

/// The peer is flooding when the port opens, and goes on while our thread stands still for three seconds: what could not be held
/// is counted, and receiving goes on.
#[test]
fn h37_a_receiver_that_opens_into_a_flood_and_stands_still() {
    run("h37_a_receiver_that_opens_into_a_flood_and_stands_still", LIMIT, || {
        let net = Net::new(1500);
        let mut a = net.port_a(|_| {});
        let stop = Arc::new(AtomicBool::new(false));
        let flood = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..50 {
                        send(&mut a, &frame(true, number, 300));
                        number += 1;
                    }
                    a.tx_flush();
                    std::thread::sleep(Duration::from_millis(1));
                }
                a
            })
        };
        std::thread::sleep(Duration::from_millis(50));
        let mut b = net.port_b(|c| c.rx_ring = 256);
        let got = take_within(&mut b, 500, SOON);
        assert!(got.len() >= 500, "{} frames", got.len());
        std::thread::sleep(Duration::from_secs(3));
        let counters = b.counters();
        assert!(counters.rx_no_buffer + counters.rx_dropped_lower > 0, "{counters:?}");
        let held = take(&mut b).len();
        assert!(held >= 256, "the ring was full: {held}");
        let got = take_within(&mut b, 2000, SOON);
        assert!(got.len() >= 2000, "receiving goes on: {} frames", got.len());
        assert!(got.iter().all(|frame| frame.len() == 300));
        stop.store(true, Ordering::Relaxed);
        let mut a = flood.join().unwrap();
        while !take_within(&mut b, 1, Duration::from_millis(100)).is_empty() {}
        send(&mut a, &frame(true, 7, 300));
        a.tx_flush();
        assert_eq!(take_within(&mut b, 1, SOON), [frame(true, 7, 300)]);
        assert_eq!(b.counters().rx_dropped_invalid, 0);
        assert_account(&mut a);
        assert_account(&mut b);
    });
}
