//! Frames over a veth pair: contents, sizes, modes.

mod xdp_common;

use std::time::Duration;
use xdp_common::{Net, assert_account, assert_frames, eventually, frame, run, send, take_within};
use xroce_port::xdp::{AttachMode, MultiBuffer, XdpPort};
use xroce_port::{Port, TxClass};

const LIMIT: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(3);

/// Sends `sizes` from one port, a burst at a time, and expects them on the other, in order and byte for byte.
fn exchange(from: &mut XdpPort, to: &mut XdpPort, to_b: bool, sizes: &[usize]) {
    for (burst, sizes) in sizes.chunks(32).enumerate() {
        let frames: Vec<_> =
            sizes.iter().enumerate().map(|(i, &size)| frame(to_b, (burst * 32 + i) as u32, size)).collect();
        for frame in &frames {
            send(from, frame);
        }
        from.tx_flush();
        assert!(from.tx_idle());
        let got = take_within(to, frames.len(), SOON);
        assert_frames(&got, &frames);
    }
}

/// 200 frames each way, then no frame is missing and every chunk has come home.
fn two_hundred_each_way(net: &Net, mode: AttachMode) -> (XdpPort, XdpPort) {
    let mut a = net.port_a(|c| c.mode = mode);
    let mut b = net.port_b(|c| c.mode = mode);
    let sizes: Vec<usize> = (0..200).map(|i| 60 + i * 7).collect();
    exchange(&mut a, &mut b, true, &sizes);
    exchange(&mut b, &mut a, false, &sizes);
    for port in [&mut a, &mut b] {
        eventually("all frames completed", SOON, || {
            port.tx_flush();
            port.in_flight() == 0
        });
        let counters = port.counters();
        assert_eq!((counters.tx_frames, counters.rx_frames), (200, 200));
        assert_eq!(counters.tx_bytes, sizes.iter().sum::<usize>() as u64);
        assert_eq!(counters.rx_bytes, counters.tx_bytes);
        assert_eq!(counters.rx_dropped_lower + counters.rx_dropped_pieces + counters.rx_dropped_invalid, 0);
        assert_account(port);
    }
    (a, b)
}

#[test]
fn native_veth_both_ways() {
    run("native_veth_both_ways", LIMIT, || {
        let net = Net::new(1500);
        let (a, _b) = two_hundred_each_way(&net, AttachMode::Native);
        let xdp = a.capabilities().xdp.as_ref().unwrap();
        assert!(xdp.native && !xdp.zero_copy && xdp.need_wakeup);
        assert_eq!(a.capabilities().mac, xdp_common::MAC_A);
        assert_eq!((a.capabilities().mtu, a.capabilities().queues), (1500, 1));
        assert_eq!(a.in_flight_max(), 200);
        assert_eq!(a.program_counters().unwrap().redirected, 200);
    });
}

#[test]
fn generic_mode_both_ways() {
    run("generic_mode_both_ways", LIMIT, || {
        let net = Net::new(1500);
        let (a, _b) = two_hundred_each_way(&net, AttachMode::Generic);
        assert!(!a.capabilities().xdp.as_ref().unwrap().native);
        assert!(a.attachment().fallback_reason().is_none(), "generic was asked for");
    });
}

#[test]
fn every_size_at_every_mtu() {
    run("every_size_at_every_mtu", Duration::from_secs(60), || {
        for mtu in [1500, 3498, 4200, 9000] {
            let net = Net::new(mtu);
            let mut a = net.port_a(|_| {});
            let mut b = net.port_b(|_| {});
            let most = a.capabilities().max_frame.min(mtu as usize + 14); // no VLAN tags here
            assert_eq!(most, (mtu as usize + 14).min(2 * 3840));
            let mut sizes: Vec<usize> = (46..most).step_by(97).collect();
            sizes.extend([3839, 3840, 3841, 4096, 4097, 4170, 4214, most - 1, most].iter().filter(|&&s| s <= most));
            exchange(&mut a, &mut b, true, &sizes);
            exchange(&mut b, &mut a, false, &sizes);
            assert_account(&mut a);
            assert_account(&mut b);
        }
    });
}

#[test]
fn generic_mode_takes_two_pieces_too() {
    run("generic_mode_takes_two_pieces_too", LIMIT, || {
        let net = Net::new(4200);
        let mut a = net.port_a(|c| c.mode = AttachMode::Generic);
        let mut b = net.port_b(|c| c.mode = AttachMode::Generic);
        exchange(&mut a, &mut b, true, &[100, 3840, 3841, 4170, 4214]);
    });
}

#[test]
fn a_long_frame_may_be_committed_short() {
    run("a_long_frame_may_be_committed_short", LIMIT, || {
        let net = Net::new(9000);
        let mut a = net.port_a(|_| {});
        let mut b = net.port_b(|_| {});
        let bytes = frame(true, 7, 4170);
        for len in [4170, 3840, 1000] {
            let mut bytes = bytes[..len].to_vec();
            // The IP length must fit, or nothing else would be wrong with it: the port does not look.
            let ip_len = (len as u16 - 14).to_be_bytes();
            bytes[16..18].copy_from_slice(&ip_len);
            let frame = a.tx_reserve(4170, TxClass::Request).unwrap();
            assert!(frame.head.len() >= xroce_port::TX_HEAD_MIN && frame.len() == 4170);
            let in_head = len.min(frame.head.len());
            frame.head[..in_head].copy_from_slice(&bytes[..in_head]);
            frame.tail[..len - in_head].copy_from_slice(&bytes[in_head..]);
            a.tx_commit(len);
            a.tx_flush();
            assert_frames(&take_within(&mut b, 1, SOON), &[bytes]);
        }
        assert!(a.tx_reserve(100, TxClass::Request).is_some(), "reserved and left");
        assert_account(&mut a);
        assert!(a.tx_reserve(a.capabilities().max_frame + 1, TxClass::Request).is_none());
        assert!(a.tx_reserve(0, TxClass::Request).is_none());
    });
}

/// Reports H36, H45.
#[test]
fn without_multi_buffer_the_port_says_how_far_it_goes() {
    run("without_multi_buffer_the_port_says_how_far_it_goes", LIMIT, || {
        let net = Net::new(9000);
        net.a.enter();
        let mut config = xdp_common::config("va", xdp_common::IP_A);
        config.multi_buffer = MultiBuffer::Off;
        config.mode = AttachMode::Native;
        let error = XdpPort::open(&config).unwrap_err().to_string();
        assert!(error.contains("va") && error.contains("3506") && error.contains("multi-buffer"), "{error}");

        let mut a = net.port_a(|c| c.multi_buffer = MultiBuffer::Off);
        let reason = a.attachment().fallback_reason().expect("generic after native was refused").to_string();
        assert!(reason.contains("lower the MTU"), "{reason}");
        let capabilities = a.capabilities();
        assert!(!capabilities.xdp.as_ref().unwrap().multi_buffer);
        assert_eq!(capabilities.max_frame, 3840);
        assert_eq!(capabilities.max_ip_packet(0), 3826);
        let mut b = net.port_b(|_| {});
        exchange(&mut b, &mut a, false, &[100, 3840]);
        exchange(&mut a, &mut b, true, &[100, 3840]);
        send(&mut b, &frame(false, 1, 3841));
        b.tx_flush();
        eventually("the frame too long for one chunk is counted", SOON, || a.counters().rx_dropped_lower == 1);
        assert_eq!(take_within(&mut a, 1, Duration::from_millis(50)).len(), 0);
    });
}
