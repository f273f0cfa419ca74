//! The RDMA extended transport header: where a WRITE goes, where a READ comes from (IBTA, RETH).

use crate::error::{Field, WireError};
use crate::numbers::Rkey;
use crate::octets::{get_u32, get_u64, put_u32, put_u64};

/// Bytes of a RETH.
pub const LEN: usize = 16;

mod field {
    pub const VA: usize = 0;
    pub const RKEY: usize = 8;
    pub const DMA_LEN: usize = 12;
}

header_view! {
    /// A view over an RDMA extended transport header.
    Reth, LEN, Field::Reth
}

impl<T: AsRef<[u8]>> Reth<T> {
    /// Virtual address at the responder.
    #[inline]
    pub fn va(&self) -> u64 {
        get_u64(self.data(), field::VA)
    }

    /// Key of the memory region.
    #[inline]
    pub fn rkey(&self) -> Rkey {
        Rkey(get_u32(self.data(), field::RKEY))
    }

    /// Bytes of the whole message.
    #[inline]
    pub fn dma_len(&self) -> u32 {
        get_u32(self.data(), field::DMA_LEN)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Reth<T> {
    /// Sets the virtual address.
    #[inline]
    pub fn set_va(&mut self, va: u64) {
        put_u64(self.data_mut(), field::VA, va);
    }

    /// Sets the key.
    #[inline]
    pub fn set_rkey(&mut self, rkey: Rkey) {
        put_u32(self.data_mut(), field::RKEY, rkey.0);
    }

    /// Sets the length of the whole message in bytes.
    #[inline]
    pub fn set_dma_len(&mut self, len: u32) {
        put_u32(self.data_mut(), field::DMA_LEN, len);
    }
}

/// An RDMA extended transport header as a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RethRepr {
    /// Virtual address at the responder.
    pub va: u64,
    /// Key of the memory region.
    pub rkey: Rkey,
    /// Bytes of the whole message, 0 to 2^31 in a valid request (not checked here).
    pub len: u32,
}

impl RethRepr {
    /// Bytes of a RETH.
    pub const LEN: usize = LEN;

    /// Reads a RETH from the start of `bytes`.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<RethRepr, WireError> {
        let view = Reth::new_checked(bytes)?;
        Ok(RethRepr { va: view.va(), rkey: view.rkey(), len: view.dma_len() })
    }

    /// Writes the header to the first 16 bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    // rule: wire.reth
    pub fn emit(&self, buf: &mut [u8]) {
        let mut view = Reth::new_unchecked(&mut buf[..LEN]);
        view.set_va(self.va);
        view.set_rkey(self.rkey);
        view.set_dma_len(self.len);
    }
}
