//! Chance that can be repeated.
//!
//! What enters: a seed. What leaves: the same numbers for the same seed, on every machine and in every version: a seed
//! in a bug report must still show the bug a year later, which is why this is not a generator of a library that may
//! change its streams.

/// SplitMix64: one 64-bit word of state, each output a bijection of it. Good enough to roll dice for frames; not for
/// secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng(u64);

/// The odd constant nearest to 2^64 divided by the golden ratio: consecutive states are far apart.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    /// The stream of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// A stream of its own for `what`, a number the caller chose: the same seed and the same `what` give the same
    /// stream, however much was drawn from others.
    #[must_use]
    pub fn stream(seed: u64, what: u64) -> Rng {
        let mut rng = Rng(seed ^ mix(what.wrapping_add(GOLDEN)));
        Rng(rng.draw())
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// True with probability `p`, 0.0 to 1.0. Always draws once, so that a changed probability moves nothing else.
    #[allow(clippy::cast_precision_loss, reason = "53 bits are exactly what an f64 holds")]
    pub fn chance(&mut self, p: f64) -> bool {
        let unit = (self.draw() >> 11) as f64 / (1u64 << 53) as f64;
        unit < p
    }

    /// A number from `low` to `high`, both included; `low` when `high` is not above it. Always draws once.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let drawn = self.draw();
        let span = u128::from(high.saturating_sub(low)) + 1;
        // The high half of the product is below `span`; its bias is at most span / 2^64.
        low + u64::try_from((u128::from(drawn) * span) >> 64).unwrap_or(0)
    }

    /// Flips `bits` different bits of `bytes`, or all of them when it has fewer.
    pub fn flip_bits(&mut self, bytes: &mut [u8], bits: u32) {
        let total = bytes.len() as u64 * 8;
        let bits = u64::from(bits).min(total);
        // Bits of a stride that shares no factor with `total` never meet: distinct without remembering them.
        let Some(last) = total.checked_sub(1) else { return };
        let start = self.between(0, last);
        let mut stride = self.between(1, last.max(1));
        while gcd(stride, total) != 1 {
            stride = stride % last.max(1) + 1;
        }
        for i in 0..bits {
            let at = (u128::from(start) + u128::from(i) * u128::from(stride)) % u128::from(total);
            let at = usize::try_from(at).unwrap_or(0);
            bytes[at / 8] ^= 1 << (at % 8);
        }
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_published_stream() {
        // First outputs of SplitMix64 for seed 1234567, as the reference implementation prints them.
        let mut rng = Rng::new(1_234_567);
        assert_eq!([rng.draw(), rng.draw()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn flips_exactly_as_many_bits_as_asked() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            for (len, bits) in [(1usize, 1u32), (1, 8), (1, 20), (64, 1), (64, 7), (1500, 100)] {
                let mut bytes = vec![0u8; len];
                rng.flip_bits(&mut bytes, bits);
                let set: u32 = bytes.iter().map(|b| b.count_ones()).sum();
                assert_eq!(set as usize, (bits as usize).min(len * 8), "seed {seed}, {len} bytes, {bits} bits");
            }
        }
    }

    #[test]
    fn between_keeps_its_bounds_and_reaches_both() {
        let mut rng = Rng::new(7);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.between(3, 6)).collect();
        assert!(drawn.iter().all(|n| (3..=6).contains(n)));
        assert!(drawn.contains(&3) && drawn.contains(&6));
        assert_eq!(rng.between(9, 9), 9);
        rng.between(0, u64::MAX);
    }
}
