//! Registered memory of ours with guard bytes around it. Enters: patterns. Leaves: where bytes are not as they should be.
//!
//! The guard lies outside what is registered, so that a byte there that changed was written past every bound.

use std::ptr::NonNull;

use xroce::{Access, Mr, Pd, RegMrError};

use crate::rxe::pattern;

/// Bytes before and behind.
const GUARD: usize = 4096;
/// What they hold.
const GUARD_BYTE: u8 = 0xa5;

/// A region of `len` bytes in the middle of an allocation of our own.
pub struct Guarded {
    mr: Option<Mr>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointer is to an allocation that this value owns, and is used through `&self` for reading only.
unsafe impl Send for Guarded {}

impl Guarded {
    /// Allocates and registers `len` zero bytes.
    ///
    /// # Errors
    /// As [`Pd::reg_mr_raw`].
    pub fn new(pd: &Pd, len: usize, access: Access) -> Result<Self, RegMrError> {
        let mut bytes = vec![0; len + 2 * GUARD].into_boxed_slice();
        bytes[..GUARD].fill(GUARD_BYTE);
        bytes[GUARD + len..].fill(GUARD_BYTE);
        let start = NonNull::new(Box::into_raw(bytes).cast::<u8>()).expect("a box is never null");
        let mut this = Self { mr: None, start, len };
        // SAFETY: GUARD bytes into an allocation of len + 2 * GUARD.
        let inner = unsafe { start.as_ptr().add(GUARD) };
        // SAFETY: the allocation lives until `drop`, which deregisters first; no reference to these bytes is made.
        this.mr = Some(unsafe { pd.reg_mr_raw(inner, len, None, access) }?);
        Ok(this)
    }

    /// The region.
    pub fn mr(&self) -> &Mr {
        self.mr.as_ref().expect("registered from `new` to `drop`")
    }

    /// Fills `len` bytes from `off` on with the pattern of `seed` from its byte `at` on.
    pub fn fill(&self, off: usize, len: usize, seed: u64, at: u64) {
        self.mr().write_at(off, &pattern::bytes(seed, at, len)).expect("inside the region");
    }

    /// Compares `len` bytes from `off` on with the pattern of `seed` from its byte `at` on.
    ///
    /// # Panics
    /// They differ.
    #[track_caller]
    pub fn verify(&self, off: usize, len: usize, seed: u64, at: u64) {
        let data = self.mr().to_vec(off..off + len).expect("inside the region");
        if let Some(i) = pattern::first_difference(seed, at, &data) {
            let last = (0..len).rev().find(|&k| data[k] != pattern::byte(seed, at + k as u64)).unwrap_or(i);
            panic!("our memory differs in bytes {i} to {last} of the {len} at offset {off}: first is {:#x}", data[i]);
        }
    }

    /// # Panics
    /// A byte around the region has changed.
    #[track_caller]
    pub fn assert_guard(&self) {
        for from in [0, GUARD + self.len] {
            // SAFETY: both guards lie in the allocation. Nobody but a fault writes there; a volatile read is of one byte.
            let changed = (from..from + GUARD).find(|&i| unsafe { self.start.add(i).read_volatile() } != GUARD_BYTE);
            assert_eq!(changed, None, "a guard byte around our memory has changed");
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.mr.take());
        let all = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len + 2 * GUARD);
        // SAFETY: it came from a box of this length in `new`, and the registration is over.
        drop(unsafe { Box::from_raw(all) });
    }
}
