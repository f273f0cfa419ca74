//! How large a page is: what packets have in common it holds once.

use xroce_lab::capture::{Capture, Captured};
use xroce_lab::ladder::Packet;
use xroce_lab::{Ladder, Scenario, page};

/// The packets of a scenario over and over, 2,000 in all; `change` makes each its own.
fn long(change: impl Fn(usize, &mut Vec<u8>)) -> Ladder {
    let ladder = Scenario::find("psn-wrap").expect("a scenario").run();
    let packet = |(i, packet): (usize, &Packet)| {
        let [src, dst] =
            [packet.from, 1 - packet.from].map(|end| ladder.ends[end].address.parse().expect("an address"));
        let mut bytes = packet.sent.clone();
        change(i, &mut bytes);
        let time_ns = i as i128 * 10_000;
        Captured { frame: i as u64 + 1, interface: 0, time_ns, src, dst, link: Vec::new(), bytes }
    };
    let packets = ladder.packets.iter().cycle().take(2_000).enumerate().map(packet).collect();
    let ladder = Capture::new(packets).ladder("long", 0).expect("a conversation");
    assert_eq!(ladder.packets.len(), 2_000);
    ladder
}

/// Changes the PSN.
fn own_psn(i: usize, bytes: &mut [u8]) {
    bytes[20 + 8 + 9..][..3].copy_from_slice(&(i as u32).to_be_bytes()[1..]);
}

#[test]
fn what_packets_have_in_common_stands_once() {
    let page = page(&long(|i, bytes| own_psn(i, bytes))).expect("a page");
    assert!(page.len() < 2_000_000, "{} bytes for 2,000 packets", page.len());
}

#[test]
fn payloads_of_their_own_stand_once_too() {
    let ladder = long(|i, bytes| {
        own_psn(i, bytes);
        let end = bytes.len().saturating_sub(4);
        bytes[40..].iter_mut().take(end.saturating_sub(40)).step_by(7).for_each(|byte| *byte ^= i as u8);
    });
    let all: usize = ladder.packets.iter().map(|packet| packet.sent.len()).sum();
    let page = page(&ladder).expect("a page");
    assert!(page.len() < all * 4 / 3 + 2_000_000, "{} bytes for {all}", page.len());
}
