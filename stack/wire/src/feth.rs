//! The flush extended transport header (IBTA annex A19). xroce decodes it and does not send it.

use crate::error::{Field, WireError};
use crate::octets::{get_u32, put_u32};

/// Bytes of a FETH.
pub const LEN: usize = 4;

const PLACEMENT: u32 = 0x0F;
const LEVEL: u32 = 0x30;
const LEVEL_SHIFT: u32 = 4;

header_view! {
    /// A view over a flush extended transport header.
    Feth, LEN, Field::Feth
}

impl<T: AsRef<[u8]>> Feth<T> {
    /// Placement types, a bit set: 1 global visibility, 2 persistence.
    #[inline]
    pub fn placement(&self) -> u8 {
        (get_u32(self.data(), 0) & PLACEMENT) as u8
    }

    /// Selectivity level: 0 the range of the RETH, 1 the whole memory region.
    #[inline]
    pub fn level(&self) -> u8 {
        ((get_u32(self.data(), 0) & LEVEL) >> LEVEL_SHIFT) as u8
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Feth<T> {
    /// Sets both fields; the reserved bits become 0.
    #[inline]
    pub fn set(&mut self, placement: u8, level: u8) {
        let word = u32::from(placement) & PLACEMENT | (u32::from(level) << LEVEL_SHIFT) & LEVEL;
        put_u32(self.data_mut(), 0, word);
    }
}

/// A flush extended transport header as a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FethRepr {
    /// Placement types, a bit set of 4 bits: 1 global visibility, 2 persistence.
    pub placement: u8,
    /// Selectivity level, 2 bits: 0 the range of the RETH, 1 the whole memory region.
    pub level: u8,
}

impl FethRepr {
    /// Bytes of a FETH.
    pub const LEN: usize = LEN;

    /// Reads a FETH from the start of `bytes`. Reserved bits are ignored.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<FethRepr, WireError> {
        let view = Feth::new_checked(bytes)?;
        Ok(FethRepr { placement: view.placement(), level: view.level() })
    }

    /// Writes the header to the first 4 bytes of `buf`, reserved bits 0.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) {
        Feth::new_unchecked(&mut buf[..LEN]).set(self.placement, self.level);
    }
}
