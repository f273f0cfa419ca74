//! Memory of the application: registered by pointer, with guard bytes on both sides.
#![allow(unsafe_code, reason = "the bytes that a region is registered over are read and written beside it")]

use xroce_transport::memory::Region;

/// Bytes before and behind a block that nobody may touch.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xEE;

/// A block of memory. It stays where it is, and is given back when it is dropped.
pub(crate) struct Block {
    words: *mut [u64],
    len: usize,
}

impl Block {
    /// `len` zero bytes on an 8-byte boundary.
    pub(crate) fn new(len: usize) -> Block {
        let words = vec![0u64; (len + 2 * GUARD).div_ceil(8)].into_boxed_slice();
        let mut block = Block { words: Box::into_raw(words), len };
        block.copy_in_raw(0, &[GUARD_BYTE; GUARD]);
        block.copy_in_raw(GUARD + len, &[GUARD_BYTE; GUARD]);
        block
    }

    /// To register it. The caller keeps the block until the device is gone.
    pub(crate) fn region(&self) -> Region {
        // SAFETY: the block is allocated and writable until it is dropped, which its owner does after the device; nobody
        // makes a reference to its bytes, which are only ever copied.
        unsafe { Region::new(self.base().wrapping_add(GUARD), self.len) }
    }

    fn base(&self) -> *mut u8 {
        self.words.cast()
    }

    /// Copies `len` bytes at `offset` out.
    pub(crate) fn copy_out(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len, "bytes {offset}..{} of a region of {}", offset + len, self.len);
        self.copy_out_raw(GUARD + offset, len)
    }

    /// Copies bytes in at `offset`.
    pub(crate) fn copy_in(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        assert!(end <= self.len, "bytes {offset}..{end} of a region of {}", self.len);
        self.copy_in_raw(GUARD + offset, bytes);
    }

    /// Nobody wrote beside the block.
    pub(crate) fn guards_hold(&self) -> bool {
        [0, GUARD + self.len].iter().all(|at| self.copy_out_raw(*at, GUARD).iter().all(|b| *b == GUARD_BYTE))
    }

    fn copy_out_raw(&self, at: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        // SAFETY: callers stay within the `len + 2 * GUARD` bytes that were allocated; `out` is another allocation.
        unsafe { core::ptr::copy_nonoverlapping(self.base().wrapping_add(at), out.as_mut_ptr(), len) };
        out
    }

    fn copy_in_raw(&mut self, at: usize, bytes: &[u8]) {
        // SAFETY: as in `copy_out_raw`.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base().wrapping_add(at), bytes.len()) };
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `new`, and dropped once.
        drop(unsafe { Box::from_raw(self.words) });
    }
}
