//! The memory that a peer is let at: one piece, of which parts are registered and the rest is guard.
//!
//! In: a size, ranges to register. Out: copies of the bytes. The transport writes here on a stranger's word, so nobody ever
//! holds a reference to the bytes: all access is by copying, through a raw pointer.

use core::ops::Range;
use xroce_transport::memory::{Access, Memory, MrInfo, Pd, RegError, Region};

/// Memory on an 8-byte boundary that moves nowhere until it is dropped.
pub(crate) struct Arena {
    base: *mut u64,
    words: usize,
}

impl Arena {
    /// `len` bytes, rounded up to whole words, all `fill`.
    pub(crate) fn new(len: usize, fill: u8) -> Arena {
        let words = len.div_ceil(8).max(1);
        let memory = vec![u64::from_ne_bytes([fill; 8]); words].into_boxed_slice();
        Arena { base: Box::into_raw(memory).cast(), words }
    }

    fn len(&self) -> usize {
        self.words * 8
    }

    /// Registers bytes `range`, named from `iova` on.
    pub(crate) fn register(
        &self,
        memory: &Memory,
        pd: Pd,
        range: Range<usize>,
        iova: u64,
        access: Access,
    ) -> Result<MrInfo, RegError> {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {}", self.len());
        // SAFETY: the bytes are allocated until `self` is dropped, and whoever owns the arena drops the endpoints that use
        // `memory` before it; they run in one thread. No reference to the bytes exists: every access of this file is a
        // copy through the pointer.
        let region = unsafe { Region::new(self.base.cast::<u8>().add(range.start), range.len()) };
        memory.register(pd, region, Some(iova), access)
    }

    /// A copy of a range.
    pub(crate) fn copy(&self, range: Range<usize>) -> Vec<u8> {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {}", self.len());
        let mut out = vec![0; range.len()];
        // SAFETY: in bounds, as just checked; `out` is other memory; nothing writes meanwhile, since endpoints run in
        // this thread.
        unsafe {
            core::ptr::copy_nonoverlapping(self.base.cast::<u8>().add(range.start), out.as_mut_ptr(), out.len());
        }
        out
    }

    /// Copies in: what the owner itself writes.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len() && bytes.len() <= self.len() - at, "{} bytes at {at}", bytes.len());
        // SAFETY: as in `copy`; `bytes` is other memory, because no reference to this memory exists.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.cast::<u8>().add(at), bytes.len()) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the slice that `new` made, given back once.
        drop(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(self.base, self.words)) });
    }
}
