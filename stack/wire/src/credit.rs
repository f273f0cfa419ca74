//! End-to-end flow control credits as the AETH carries them: a 5-bit code for a number of RECVs.

/// The code for "no limit, send freely".
pub const UNLIMITED: u8 = 0x1F;

/// Credits by code, 0 to 0x1E: after 0 to 4, two steps to each doubling.
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
    8192, 12288, 16384, 24576, 32768,
];

/// How many RECVs `code` (low 5 bits) stands for; `None` = unlimited.
#[inline]
// rule: wire.credit
pub const fn credits(code: u8) -> Option<u32> {
    match code & 0x1F {
        UNLIMITED => None,
        code => Some(CREDITS[code as usize]),
    }
}

/// The largest code whose credits do not exceed `free` RECVs. Never [`UNLIMITED`]: a responder without flow control says
/// so by itself.
// rule: wire.credit
pub fn code_for(free: u32) -> u8 {
    (CREDITS.partition_point(|&c| c <= free) - 1) as u8
}
