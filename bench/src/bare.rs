//! What the bytes of a packet cost on this machine without any protocol: into a frame, CRC, CRC again, out of the frame.
//!
//! In: the payload of a packet. Out: nanoseconds a packet. Frames are filled and emptied in the bursts in which the engine
//! does it, from and to memory as large as a message, so that both sides find their bytes equally near.

use std::hint::black_box;
use std::time::Duration;

use crate::cpu_time::thread_ns;

/// Frames filled before the first is emptied: what one step of the engine sends at most.
const BURST: usize = 64;

/// Bytes of a message.
const MESSAGE: usize = 64 << 10;

/// Bytes that the ICRC covers besides the payload: eight of ones, IPv4, UDP and BTH.
const COVERED: usize = 8 + 20 + 8 + 12;

/// The two copies and the two CRCs of a packet.
pub struct Bare {
    payload: usize,
    source: Vec<u8>,
    sink: Vec<u8>,
    frames: Vec<Vec<u8>>,
    crcs: Vec<u32>,
}

impl Bare {
    /// For packets with `payload` bytes, 1 to 64 KiB.
    pub fn new(payload: usize) -> Bare {
        Bare {
            payload,
            source: vec![7; MESSAGE],
            sink: vec![0; MESSAGE],
            frames: vec![vec![0; COVERED + payload]; BURST],
            crcs: vec![0; BURST],
        }
    }

    /// Nanoseconds of CPU a packet, over about `time`.
    pub fn measure(&mut self, time: Duration) -> f64 {
        let start = thread_ns();
        let mut packets = 0;
        while u128::from(thread_ns() - start) < time.as_nanos() {
            for _ in 0..16 {
                self.burst();
            }
            packets += 16 * BURST;
        }
        (thread_ns() - start) as f64 / packets as f64
    }

    fn burst(&mut self) {
        let pieces = self.source.chunks_exact(self.payload).cycle();
        for ((frame, crc), piece) in self.frames.iter_mut().zip(&mut self.crcs).zip(pieces) {
            frame[COVERED..].copy_from_slice(black_box(piece));
            *crc = crc32fast::hash(frame);
        }
        let per_message = MESSAGE / self.payload;
        for (i, (frame, crc)) in self.frames.iter().zip(&self.crcs).enumerate() {
            assert_eq!(crc32fast::hash(black_box(frame)), *crc);
            let at = i % per_message * self.payload;
            self.sink[at..at + self.payload].copy_from_slice(&frame[COVERED..]);
        }
        black_box(&mut self.sink);
    }
}
