//! Numbers on the command line, as C's `strtoul` with base 0 takes them: decimal, or hexadecimal with `0x`.

use xroce::{PathMtu, Qpn};

/// A number of the wanted type.
pub fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let parsed = digits.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    let value = parsed.map_err(|_| "a number is needed, decimal or hexadecimal with 0x".to_owned())?;
    T::try_from(value).map_err(|_| format!("{value} is too large"))
}

/// A number that is not 0.
pub fn positive<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    match number::<u64>(text)? {
        0 => Err("it must be at least 1".to_owned()),
        _ => number(text),
    }
}

/// One of the five path MTUs.
pub fn path_mtu(text: &str) -> Result<PathMtu, String> {
    PathMtu::from_bytes(number(text)?).ok_or_else(|| "a path MTU is 256, 512, 1024, 2048 or 4096".to_owned())
}

/// The number of a queue pair.
pub fn qpn(text: &str) -> Result<Qpn, String> {
    let value = number::<u32>(text)?;
    if value < 1 << 24 { Ok(Qpn::new(value)) } else { Err("a queue pair number has 24 bits".to_owned()) }
}

/// A message length: up to 2^31 bytes.
pub fn size(text: &str) -> Result<u32, String> {
    number(text).ok().filter(|&size| size <= 1 << 31).ok_or_else(|| "a size is 0 to 2147483648 bytes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_and_hexadecimal() {
        assert_eq!(number::<u16>("18515"), Ok(18515));
        assert_eq!(number::<u32>("0x1000"), Ok(4096));
        for bad in ["", "0x", "x", "-1", "1k"] {
            assert!(number::<u32>(bad).is_err(), "{bad}");
        }
        assert_eq!(number::<u16>("65536"), Err("65536 is too large".to_owned()));
        assert!(positive::<u32>("0").is_err() && positive::<u8>("256").is_err());
    }

    #[test]
    fn queue_pair_numbers_have_24_bits() {
        assert_eq!(qpn("0xffffff"), Ok(Qpn::new(0xff_ffff)));
        assert!(qpn("0x1000000").is_err() && qpn("-1").is_err());
    }

    #[test]
    fn sizes_and_mtus_have_limits() {
        assert_eq!(size("0x80000000"), Ok(1 << 31));
        assert!(size("0x80000001").is_err());
        assert_eq!(path_mtu("2048"), Ok(PathMtu::Mtu2048));
        assert!(path_mtu("1500").is_err());
    }
}
