//! The headers of atomics: the request's AtomicETH and the answer's AtomicAckETH (IBTA, AtomicETH).

use crate::error::{Field, WireError};
use crate::numbers::Rkey;
use crate::octets::{get_u32, get_u64, put_u32, put_u64};

/// Bytes of an AtomicETH.
pub const ATOMIC_ETH_LEN: usize = 28;
/// Bytes of an AtomicAckETH.
pub const ATOMIC_ACK_LEN: usize = 8;

mod field {
    pub const VA: usize = 0;
    pub const RKEY: usize = 8;
    // No padding: the 8-byte word follows the 4-byte key at once.
    pub const SWAP_ADD: usize = 12;
    pub const COMPARE: usize = 20;
}

header_view! {
    /// A view over an atomic extended transport header.
    AtomicEth, ATOMIC_ETH_LEN, Field::AtomicEth
}

impl<T: AsRef<[u8]>> AtomicEth<T> {
    /// Virtual address of the word.
    #[inline]
    pub fn va(&self) -> u64 {
        get_u64(self.data(), field::VA)
    }

    /// Key of the memory region.
    #[inline]
    pub fn rkey(&self) -> Rkey {
        Rkey(get_u32(self.data(), field::RKEY))
    }

    /// What to swap in, or to add.
    #[inline]
    pub fn swap_add(&self) -> u64 {
        get_u64(self.data(), field::SWAP_ADD)
    }

    /// What to compare with; 0 for fetch-and-add.
    #[inline]
    pub fn compare(&self) -> u64 {
        get_u64(self.data(), field::COMPARE)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> AtomicEth<T> {
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

    /// Sets the swap or add operand.
    #[inline]
    pub fn set_swap_add(&mut self, value: u64) {
        put_u64(self.data_mut(), field::SWAP_ADD, value);
    }

    /// Sets the compare operand.
    #[inline]
    pub fn set_compare(&mut self, value: u64) {
        put_u64(self.data_mut(), field::COMPARE, value);
    }
}

/// An atomic extended transport header as a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicEthRepr {
    /// Virtual address of the 8-byte word.
    pub va: u64,
    /// Key of the memory region.
    pub rkey: Rkey,
    /// What to swap in, or to add.
    pub swap_add: u64,
    /// What to compare with; 0 for fetch-and-add.
    pub compare: u64,
}

impl AtomicEthRepr {
    /// Bytes of an AtomicETH.
    pub const LEN: usize = ATOMIC_ETH_LEN;

    /// Reads an AtomicETH from the start of `bytes`.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<AtomicEthRepr, WireError> {
        let view = AtomicEth::new_checked(bytes)?;
        Ok(AtomicEthRepr { va: view.va(), rkey: view.rkey(), swap_add: view.swap_add(), compare: view.compare() })
    }

    /// Writes the header to the first 28 bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    // rule: wire.atomic-eth
    pub fn emit(&self, buf: &mut [u8]) {
        let mut view = AtomicEth::new_unchecked(&mut buf[..ATOMIC_ETH_LEN]);
        view.set_va(self.va);
        view.set_rkey(self.rkey);
        view.set_swap_add(self.swap_add);
        view.set_compare(self.compare);
    }
}

header_view! {
    /// A view over an atomic ACK extended transport header.
    AtomicAck, ATOMIC_ACK_LEN, Field::AtomicAck
}

impl<T: AsRef<[u8]>> AtomicAck<T> {
    /// What the word held before the operation.
    #[inline]
    pub fn original(&self) -> u64 {
        get_u64(self.data(), 0)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> AtomicAck<T> {
    /// Sets the original value.
    #[inline]
    pub fn set_original(&mut self, value: u64) {
        put_u64(self.data_mut(), 0, value);
    }
}

/// An atomic ACK extended transport header as a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicAckRepr {
    /// What the word held before the operation.
    pub original: u64,
}

impl AtomicAckRepr {
    /// Bytes of an AtomicAckETH.
    pub const LEN: usize = ATOMIC_ACK_LEN;

    /// Reads an AtomicAckETH from the start of `bytes`.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<AtomicAckRepr, WireError> {
        Ok(AtomicAckRepr { original: AtomicAck::new_checked(bytes)?.original() })
    }

    /// Writes the header to the first 8 bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    // rule: wire.atomic-ack
    pub fn emit(&self, buf: &mut [u8]) {
        AtomicAck::new_unchecked(&mut buf[..ATOMIC_ACK_LEN]).set_original(self.original);
    }
}
