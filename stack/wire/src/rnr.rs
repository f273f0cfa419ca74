//! The RNR NAK timer: a 5-bit code for how long a requester waits when the responder had no RECV (IBTA, RNR NAK).

use core::fmt;

/// Waiting times by code, in nanoseconds. Code 0 is the longest.
// rule: wire.rnr
const NS: [u64; 32] = [
    655_360_000,
    10_000,
    20_000,
    30_000,
    40_000,
    60_000,
    80_000,
    120_000,
    160_000,
    240_000,
    320_000,
    480_000,
    640_000,
    960_000,
    1_280_000,
    1_920_000,
    2_560_000,
    3_840_000,
    5_120_000,
    7_680_000,
    10_240_000,
    15_360_000,
    20_480_000,
    30_720_000,
    40_960_000,
    61_440_000,
    81_920_000,
    122_880_000,
    163_840_000,
    245_760_000,
    327_680_000,
    491_520_000,
];

/// An RNR timer code, 0 to 31.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// The timer with that code; `None` above 31.
    #[inline]
    pub const fn new(code: u8) -> Option<RnrTimer> {
        if code < 32 { Some(RnrTimer(code)) } else { None }
    }

    /// The timer in the low 5 bits of an AETH syndrome.
    #[inline]
    pub(crate) const fn from_low_bits(byte: u8) -> RnrTimer {
        RnrTimer(byte & 0x1F)
    }

    /// The code, 0 to 31.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The least time to wait, in nanoseconds: 10 µs (code 1) to 655.36 ms (code 0).
    #[inline]
    pub const fn ns(self) -> u64 {
        NS[self.0 as usize]
    }
}

impl fmt::Display for RnrTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tens_of_us = self.ns() / 10_000;
        write!(f, "{}.{:02} ms", tens_of_us / 100, tens_of_us % 100)
    }
}
