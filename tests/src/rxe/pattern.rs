//! The seeded pattern that both ends fill and check buffers with, so that large ones need not be sent around.
//!
//! Byte `p` is byte `p % 8` (least significant first) of the 64-bit word `mix(seed + (p / 8 + 1) * 0x9e3779b97f4a7c15)`,
//! `mix` being the finalizer of splitmix64. The agent's memory.c has the same.

/// Byte `p` of the pattern of `seed`.
pub fn byte(seed: u64, p: u64) -> u8 {
    let mut z = seed.wrapping_add((p / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()[(p % 8) as usize]
}

/// `len` bytes of the pattern of `seed`, from its byte `at` on.
pub fn bytes(seed: u64, at: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| byte(seed, at + i)).collect()
}

/// Where `data` first differs from the pattern of `seed` from its byte `at` on; `None` if nowhere.
pub fn first_difference(seed: u64, at: u64, data: &[u8]) -> Option<usize> {
    (0..data.len()).find(|&i| data[i] != byte(seed, at + i as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_splitmix64() {
        // The generator's published first output for seed 0, least significant byte first.
        assert_eq!(bytes(0, 0, 8), 0xe220_a839_7b1d_cdaf_u64.to_le_bytes());
        assert_eq!(bytes(7, 5, 20), bytes(7, 0, 25)[5..]);
    }

    #[test]
    fn differences_are_found() {
        let mut data = bytes(3, 9, 100);
        assert_eq!(first_difference(3, 9, &data), None);
        data[42] ^= 1;
        assert_eq!(first_difference(3, 9, &data), Some(42));
    }
}
