//! Immediate data: four bytes that reach the peer's completion as they are (IBTA, ImmDt). Its value is [`ImmData`].

use crate::error::{Field, WireError};
use crate::numbers::ImmData;
use crate::octets::{get_u32, put_u32};

/// Bytes of an ImmDt.
pub const LEN: usize = 4;

header_view! {
    /// A view over immediate data.
    ImmDt, LEN, Field::ImmDt
}

impl<T: AsRef<[u8]>> ImmDt<T> {
    /// The immediate.
    #[inline]
    pub fn imm(&self) -> ImmData {
        ImmData(get_u32(self.data(), 0))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> ImmDt<T> {
    /// Sets the immediate.
    #[inline]
    pub fn set_imm(&mut self, imm: ImmData) {
        put_u32(self.data_mut(), 0, imm.0);
    }
}

impl ImmData {
    /// Bytes of an ImmDt.
    pub const LEN: usize = LEN;

    /// Reads an ImmDt from the start of `bytes`.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<ImmData, WireError> {
        Ok(ImmDt::new_checked(bytes)?.imm())
    }

    /// Writes the header to the first 4 bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    // rule: wire.imm
    pub fn emit(self, buf: &mut [u8]) {
        ImmDt::new_unchecked(&mut buf[..LEN]).set_imm(self);
    }
}
