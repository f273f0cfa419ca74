//! Numbers in the texts that peers exchange: hexadecimal, of fixed width.
#![forbid(unsafe_code)]

/// The value of exactly `digits` hexadecimal digits.
pub(crate) fn hex(text: &str, digits: usize) -> Option<u64> {
    let fits = text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
    fits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn exactly_so_many_digits() {
        assert_eq!(hex("00ff", 4), Some(255));
        assert_eq!(hex("ffffffffffffffff", 16), Some(u64::MAX));
        for bad in ["ff", "000ff", "+0ff", "00fg", ""] {
            assert_eq!(hex(bad, 4), None, "{bad}");
        }
    }
}
