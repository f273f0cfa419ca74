//! What the tests of ports share: frames with a number in them, sent and received.
#![allow(dead_code, reason = "each test binary uses its own part")]

use xroce_port::{Port, RxFrame, TxClass};

pub const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const B: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const C: [u8; 6] = [2, 0, 0, 0, 0, 3];
pub const BROADCAST: [u8; 6] = [0xff; 6];

/// An Ethernet frame of `len` bytes: addresses, the ethertype kept for experiments, the number, then a pattern.
pub fn numbered(dst: [u8; 6], src: [u8; 6], number: u64, len: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(len);
    frame.extend(dst);
    frame.extend(src);
    frame.extend([0x88, 0xb5]);
    frame.extend(number.to_be_bytes());
    let rest = (frame.len()..len).map(|i| (i as u64).wrapping_mul(number + 1) as u8);
    frame.extend(rest);
    frame.truncate(len);
    frame
}

pub fn number_of(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[14..22].try_into().expect("a numbered frame"))
}

pub fn bytes_of(frame: RxFrame<'_>) -> Vec<u8> {
    [frame.head, frame.tail].concat()
}

/// Reserves, writes and commits. `false`: refused.
pub fn commit(port: &mut impl Port, bytes: &[u8], class: TxClass) -> bool {
    let Some(frame) = port.tx_reserve(bytes.len(), class) else { return false };
    let (head, tail) = bytes.split_at(frame.head.len());
    frame.head.copy_from_slice(head);
    frame.tail.copy_from_slice(tail);
    port.tx_commit(bytes.len());
    true
}

/// Commits as a response, and kicks.
#[track_caller]
pub fn send(port: &mut impl Port, bytes: &[u8]) {
    assert!(commit(port, bytes, TxClass::Response), "the port refused a frame");
    port.tx_flush();
}

/// One burst, copied and released.
pub fn burst(port: &mut impl Port, max: usize) -> Vec<Vec<u8>> {
    let count = port.rx_burst(max);
    let frames = (0..count).map(|i| bytes_of(port.rx_frame(i))).collect();
    port.rx_release();
    frames
}

/// Bursts until one is empty.
pub fn drain(port: &mut impl Port) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let some = burst(port, 32);
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

pub fn numbers(frames: &[Vec<u8>]) -> Vec<u64> {
    frames.iter().map(|frame| number_of(frame)).collect()
}
