//! Bytes that say where they belong: a pattern of a seed, filled and checked word by word.

/// The word `at` of the pattern of `seed` (splitmix64's finalizer).
fn word(seed: u64, at: u64) -> [u8; 8] {
    let mut z = seed.wrapping_add(at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

/// Fills `out` with the pattern of `seed` from its word `first` on.
pub fn fill(seed: u64, first: u64, out: &mut [u8]) {
    for (at, chunk) in (first..).zip(out.chunks_mut(8)) {
        chunk.copy_from_slice(&word(seed, at)[..chunk.len()]);
    }
}

/// Where `bytes` first differ from the pattern of `seed` from its word `first` on.
pub fn differs(seed: u64, first: u64, bytes: &[u8]) -> Option<usize> {
    for (at, chunk) in (first..).zip(bytes.chunks(8)) {
        let expected = word(seed, at);
        if let Some(i) = chunk.iter().zip(expected).position(|(got, expected)| *got != expected) {
            return Some((at - first) as usize * 8 + i);
        }
    }
    None
}

/// The next number of a row that looks random (xorshift64*); `state` is not 0.
pub fn draw(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_found_where_it_is() {
        let mut bytes = vec![0; 1003];
        fill(7, 5, &mut bytes);
        assert_eq!(differs(7, 5, &bytes), None);
        bytes[1001] ^= 1;
        assert_eq!(differs(7, 5, &bytes), Some(1001));
        assert!(differs(8, 5, &bytes).is_some() && differs(7, 6, &bytes).is_some());
    }
}
