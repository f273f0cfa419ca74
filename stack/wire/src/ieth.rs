//! The invalidate extended transport header: the R_Key a SEND with invalidate takes back. Its value is [`Rkey`].

use crate::error::{Field, WireError};
use crate::numbers::Rkey;
use crate::octets::{get_u32, put_u32};

/// Bytes of an IETH.
pub const LEN: usize = 4;

header_view! {
    /// A view over an invalidate extended transport header.
    Ieth, LEN, Field::Ieth
}

impl<T: AsRef<[u8]>> Ieth<T> {
    /// The key to invalidate.
    #[inline]
    pub fn rkey(&self) -> Rkey {
        Rkey(get_u32(self.data(), 0))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ieth<T> {
    /// Sets the key to invalidate.
    #[inline]
    pub fn set_rkey(&mut self, rkey: Rkey) {
        put_u32(self.data_mut(), 0, rkey.0);
    }
}

impl Rkey {
    /// Reads an IETH from the start of `bytes`.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse_ieth(bytes: &[u8]) -> Result<Rkey, WireError> {
        Ok(Ieth::new_checked(bytes)?.rkey())
    }

    /// Writes an IETH to the first 4 bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    // rule: wire.ieth
    pub fn emit_ieth(self, buf: &mut [u8]) {
        Ieth::new_unchecked(&mut buf[..LEN]).set_rkey(self);
    }
}
