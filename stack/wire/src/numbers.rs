//! The integers of the InfiniBand transport, each with a type of its own.
//!
//! In: bare integers, masked to their width. Out: values that cannot be mixed up, printed as verbs tools print them.

use core::fmt;

const MASK_24: u32 = 0x00FF_FFFF;

macro_rules! display_hex {
    ($name:ident, $format:literal, $field:tt) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.$field)
            }
        }
    };
}

/// A packet sequence number: 24 bits, serial arithmetic (IBTA, PSN).
///
/// Not `Ord`: whether one PSN is before another depends on the window it is seen from; see
/// [`distance_from`](Psn::distance_from) and [`PsnWindow`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Psn(u32);

impl Psn {
    /// The PSN of the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Psn {
        Psn(value & MASK_24)
    }

    /// The number, 0 to 0xFF_FFFF.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// `n` PSNs further, modulo 2^24.
    #[inline]
    pub const fn add(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_add(n))
    }

    /// `n` PSNs back, modulo 2^24.
    #[inline]
    pub const fn sub(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_sub(n))
    }

    /// The PSN that follows.
    #[inline]
    pub const fn next(self) -> Psn {
        self.add(1)
    }

    /// The signed serial distance `self - other`, in −2^23 to 2^23 − 1: positive if `self` is ahead of `other`.
    #[inline]
    // rule: wire.psn, rc.req.psn.wrap
    pub const fn distance_from(self, other: Psn) -> i32 {
        // Shifted to the top of the word, 24-bit subtraction wraps as the machine's does and keeps its sign.
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }
}

display_hex!(Psn, "{:#08x}", 0);

/// A run of consecutive PSNs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PsnWindow {
    /// The first PSN of the run.
    pub start: Psn,
    /// How many PSNs it has, 0 to 2^24.
    pub len: u32,
}

impl PsnWindow {
    /// Whether `psn` lies in the run.
    #[inline]
    pub const fn contains(&self, psn: Psn) -> bool {
        psn.0.wrapping_sub(self.start.0) & MASK_24 < self.len
    }

    /// How many PSNs of the run stand before `psn`; `None` if it is outside.
    #[inline]
    pub const fn offset_of(&self, psn: Psn) -> Option<u32> {
        let offset = psn.0.wrapping_sub(self.start.0) & MASK_24;
        if offset < self.len { Some(offset) } else { None }
    }
}

/// A queue pair number: 24 bits. 0 and 1 are the management QPs; 0xFF_FFFF is multicast.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Qpn(u32);

impl Qpn {
    /// The QPN of the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Qpn {
        Qpn(value & MASK_24)
    }

    /// The number, 0 to 0xFF_FFFF.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }
}

display_hex!(Qpn, "{:#08x}", 0);

/// A message sequence number: messages completed at the responder, modulo 2^24 (IBTA, MSN). Used for credits only.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Msn(u32);

impl Msn {
    /// The MSN of the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Msn {
        Msn(value & MASK_24)
    }

    /// The number, 0 to 0xFF_FFFF.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// `n` messages further, modulo 2^24.
    #[inline]
    pub const fn add(self, n: u32) -> Msn {
        Msn::new(self.0.wrapping_add(n))
    }
}

display_hex!(Msn, "{:#08x}", 0);

/// A key by which our own work requests name a memory region.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Lkey(pub u32);
display_hex!(Lkey, "{:#010x}", 0);

/// A key by which the peer names a memory region.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Rkey(pub u32);
display_hex!(Rkey, "{:#010x}", 0);

/// A queue key: guards datagram QPs. Bit 31 marks a controlled key.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct QKey(pub u32);
display_hex!(QKey, "{:#010x}", 0);

/// A partition key: bit 15 says full member, the low 15 bits name the partition (IBTA, partition keys).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PKey(pub u16);
display_hex!(PKey, "{:#06x}", 0);

impl PKey {
    /// The default partition, full member: the only one most RoCE ports have.
    pub const DEFAULT: PKey = PKey(0xFFFF);
    const FULL_MEMBER: u16 = 0x8000;

    /// Whether a packet with key `other` may enter a partition table entry of `self`: same partition and not both limited
    /// members (IBTA 10.9.3). 0 as partition is the invalid P_Key and matches nothing.
    #[inline]
    // rule: wire.pkey
    pub const fn matches(self, other: PKey) -> bool {
        (self.0 ^ other.0) & !Self::FULL_MEMBER == 0
            && (self.0 | other.0) & Self::FULL_MEMBER != 0
            && self.0 & !Self::FULL_MEMBER != 0
    }
}

/// Immediate data: the four bytes read as a big-endian number, delivered as they stand and never interpreted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct ImmData(pub u32);
display_hex!(ImmData, "{:#010x}", 0);
