//! Keys that cannot be guessed from other keys.
//!
//! In: index of a slot, its generation, the process slot; a secret. Out: the 32-bit key, and back.
//!
//! The three numbers fill 32 bits exactly, so a key is a permutation of them: a balanced Feistel network (Luby and
//! Rackoff: four rounds with pseudo-random round functions cannot be told from a random permutation), with two rounds
//! more because the round function here is a fast one. The wall between programs is the protection domain; this is the
//! fence in front of it, so that a stray or stale key misses.
#![forbid(unsafe_code)]

/// Bits of a slot's index.
pub(super) const INDEX_BITS: u32 = 20;
/// Bits of a slot's generation.
pub(super) const GENERATION_BITS: u32 = 9;
/// Bits that tell apart processes that share a netdev.
const PROCESS_BITS: u32 = 3;
const _: () = assert!(INDEX_BITS + GENERATION_BITS + PROCESS_BITS == 32);

const ROUNDS: usize = 6;

/// The permutation, keyed.
pub(super) struct KeyCipher {
    /// Per round: what is mixed in, and an odd factor.
    rounds: [(u64, u64); ROUNDS],
    process: u32,
}

impl KeyCipher {
    /// A permutation chosen by `secret`; the low 3 bits of `process_slot` go into every key.
    pub(super) fn new(secret: [u64; 2], process_slot: u8) -> KeyCipher {
        let mut state = secret;
        let rounds = core::array::from_fn(|_| (next(&mut state), next(&mut state) | 1));
        let process = (u32::from(process_slot) & ((1 << PROCESS_BITS) - 1)) << (INDEX_BITS + GENERATION_BITS);
        KeyCipher { rounds, process }
    }

    /// The key of a slot in a generation. May be 0, which the caller must not use.
    pub(super) fn key(&self, index: u32, generation: u32) -> u32 {
        let plain = self.process | generation << INDEX_BITS | index;
        let (mut left, mut right) = (plain >> 16, plain & 0xFFFF);
        for round in &self.rounds {
            (left, right) = (right, left ^ mix(right, *round));
        }
        left << 16 | right
    }

    /// The index that a key belongs to, if it is a key of ours at all; the caller compares the whole key.
    #[inline]
    pub(super) fn index(&self, key: u32) -> u32 {
        let (mut left, mut right) = (key >> 16, key & 0xFFFF);
        for round in self.rounds.iter().rev() {
            (left, right) = (right ^ mix(left, *round), left);
        }
        (left << 16 | right) & ((1 << INDEX_BITS) - 1)
    }
}

/// 16 bits to 16 bits, by a wide multiplication folded on itself: every input bit reaches every output bit.
#[inline]
fn mix(half: u32, (add, factor): (u64, u64)) -> u32 {
    let product = u128::from(u64::from(half) ^ add) * u128::from(factor);
    let folded = product as u64 ^ (product >> 64) as u64;
    (folded >> 29) as u32 & 0xFFFF
}

/// The next word of a SplitMix64-style sequence over both words of the secret.
fn next(state: &mut [u64; 2]) -> u64 {
    state[0] = state[0].wrapping_add(0x9E37_79B9_7F4A_7C15);
    state[1] = state[1].rotate_left(23) ^ state[0];
    let mut z = state[0] ^ state[1].wrapping_mul(0xD6E8_FEB8_6659_FD93);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn the_index_comes_back(secret: [u64; 2], process in 0u8..8, index in 0u32..1 << 20, generation in 0u32..512) {
            let cipher = KeyCipher::new(secret, process);
            prop_assert_eq!(cipher.index(cipher.key(index, generation)), index);
        }

        #[test]
        fn the_secret_and_the_process_decide(secret: [u64; 2], index in 0u32..1 << 20) {
            let keys = |secret, process| -> Vec<u32> {
                let cipher = KeyCipher::new(secret, process);
                (0..8).map(|generation| cipher.key(index, generation)).collect()
            };
            prop_assert_ne!(keys(secret, 0), keys([secret[0] ^ 1, secret[1]], 0));
            prop_assert_ne!(keys(secret, 0), keys([secret[0], secret[1] ^ 1], 0));
            prop_assert_ne!(keys(secret, 0), keys(secret, 1));
        }
    }

    /// Over neighbours, no XOR or difference between keys comes up often enough to be a guess.
    #[test]
    fn neighbours_have_no_simple_relation() {
        let cipher = KeyCipher::new([0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210], 0);
        let relations: [fn(u32, u32) -> u32; 2] = [|a, b| a ^ b, |a, b| b.wrapping_sub(a)];
        for relation in relations {
            let along_index: HashSet<u32> =
                (0..10_000).map(|i| relation(cipher.key(i, 0), cipher.key(i + 1, 0))).collect();
            let along_generation: HashSet<u32> =
                (0..511).map(|g| relation(cipher.key(7, g), cipher.key(7, g + 1))).collect();
            // 10,000 draws out of 2^32 give 0.01 collisions on average; 511 give none.
            assert!(along_index.len() >= 9_997, "{} different relations along the index", along_index.len());
            assert!(along_generation.len() >= 510, "{} along the generation", along_generation.len());
        }
    }

    /// One input bit flips half of the output bits, whichever it is.
    #[test]
    fn each_bit_of_index_and_generation_reaches_all_of_the_key() {
        let cipher = KeyCipher::new([3, 5], 0);
        for bit in 0..INDEX_BITS + GENERATION_BITS {
            let flips: u32 = (0..1_000u32)
                .map(|i| {
                    let plain = i.wrapping_mul(0x9E37_79B1) & 0x1FFF_FFFF;
                    let key = |plain: u32| cipher.key(plain & 0xF_FFFF, plain >> INDEX_BITS);
                    (key(plain) ^ key(plain ^ 1 << bit)).count_ones()
                })
                .sum();
            assert!((15_000..17_000).contains(&flips), "bit {bit}: {flips} flips of 32,000");
        }
    }
}
