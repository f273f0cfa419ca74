//! Time as the transport sees it.
//!
//! In: a number of nanoseconds read by whoever has a clock. Out: points in time to compare. Nothing here reads a clock.
#![forbid(unsafe_code)]

use core::fmt;

/// A point in time: nanoseconds since an arbitrary start that is the same for all callers of one endpoint.
///
/// 64 bits last 584 years. Durations are plain `u64` whose names end in `_ns`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The last point in time; a deadline there never comes.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// The point `ns` nanoseconds later; saturates at [`Instant::FAR_FUTURE`].
    #[inline]
    pub const fn add_ns(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to here; 0 if `earlier` is later.
    #[inline]
    pub const fn since_ns(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Instant {
    /// Seconds with nanoseconds: `12.000000345 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant(5).add_ns(7), Instant(12));
        assert_eq!(Instant(u64::MAX - 1).add_ns(2), Instant::FAR_FUTURE);
        assert_eq!(Instant(12).since_ns(Instant(5)), 7);
        assert_eq!(Instant(5).since_ns(Instant(12)), 0);
    }

    #[test]
    fn prints_as_seconds() {
        assert_eq!(Instant(12_000_000_345).to_string(), "12.000000345 s");
    }
}
