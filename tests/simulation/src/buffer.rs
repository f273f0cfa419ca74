//! The bytes of a simulated application: what is registered with the transport, with guard bytes around it.
//!
//! In: a size, ranges to register. Out: copies of the bytes. The transport writes here on a stranger's word, so nobody
//! else ever holds a reference to the bytes: all access is by copying, through a raw pointer.

use core::ops::Range;
use xroce_transport::memory::{Access, Memory, Pd, Region};
use xroce_wire::Lkey;

/// What bytes hold before anybody writes them.
pub(crate) const UNTOUCHED: u8 = 0xEE;

/// Memory on an 8-byte boundary that moves nowhere until it is dropped.
pub(crate) struct Buffer {
    base: *mut u64,
    words: usize,
}

impl Buffer {
    /// `len` bytes, rounded up to whole words, all [`UNTOUCHED`].
    pub(crate) fn new(len: usize) -> Buffer {
        let words = len.div_ceil(8).max(1);
        let memory = vec![u64::from_ne_bytes([UNTOUCHED; 8]); words].into_boxed_slice();
        Buffer { base: Box::into_raw(memory).cast(), words }
    }

    pub(crate) fn len(&self) -> usize {
        self.words * 8
    }

    /// Registers bytes `range`, named by the peer and by SGEs from `iova` on.
    pub(crate) fn register(&self, memory: &Memory, pd: Pd, range: Range<usize>, iova: u64, access: Access) -> Lkey {
        let info = memory.register(pd, self.region(range), Some(iova), access).expect("a range that can be registered");
        Lkey(info.key)
    }

    /// Bytes `range`, to be registered.
    pub(crate) fn region(&self, range: Range<usize>) -> Region {
        assert!(range.end <= self.len(), "{range:?} of {}", self.len());
        // SAFETY: the bytes are allocated until `self` is dropped. Whoever owns the buffer owns the endpoints that use
        // the table too, runs them in its own thread, and runs none after it has dropped the buffer. No reference to
        // the bytes exists: every access of this file is a copy through the pointer.
        unsafe { Region::new(self.base.cast::<u8>().add(range.start), range.len()) }
    }

    /// Copies out.
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) {
        assert!(at + out.len() <= self.len());
        // SAFETY: in bounds, as just checked; `out` is an exclusive borrow of other memory; nothing writes meanwhile,
        // since endpoints run in this thread.
        unsafe { core::ptr::copy_nonoverlapping(self.base.cast::<u8>().add(at), out.as_mut_ptr(), out.len()) }
    }

    /// A copy of a range.
    pub(crate) fn copy(&self, range: Range<usize>) -> Vec<u8> {
        let mut out = vec![0; range.len()];
        self.read(range.start, &mut out);
        out
    }

    /// Copies in: what the application itself writes.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len());
        // SAFETY: as in `read`; `bytes` is other memory, because no reference to this memory exists.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.cast::<u8>().add(at), bytes.len()) }
    }

    /// The word at `at`, a multiple of 8.
    pub(crate) fn word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes);
        u64::from_ne_bytes(bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the slice that `new` made, given back once.
        drop(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(self.base, self.words)) });
    }
}

/// Byte `i` of the message of request `id`: depends on both, and not only on the low bits of `i`, so that a packet at a
/// wrong offset shows.
pub(crate) fn pattern(id: u64, i: usize) -> u8 {
    let mixed = (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize;
    (mixed ^ i.wrapping_mul(29) ^ (i >> 8).wrapping_mul(101) ^ (mixed >> (i & 15))) as u8
}

/// The message of request `id`.
pub(crate) fn message(id: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| pattern(id, i)).collect()
}
