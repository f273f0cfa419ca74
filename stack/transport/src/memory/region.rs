//! The bytes of a memory region.
//!
//! In: a pointer and a length that somebody vouches for. Out: copies and atomics on those bytes, bounds checked.
//!
//! The application and the peer race on these bytes by the nature of RDMA, so no reference to them is ever made and
//! nothing read from them steers the program: bytes are copied out once and copied in once, and words for atomics go
//! through [`AtomicU64`](core::sync::atomic::AtomicU64). Who reads bytes while the peer writes them gets some mixture of
//! old and new, as with a hardware NIC.

use crate::sync::{MemoryWord, Ordering};

/// Memory that may be registered: a pointer somebody vouches for.
#[derive(Debug)]
pub struct Region {
    base: *mut u8,
    len: usize,
}

impl Region {
    /// Vouches for `len` bytes at `ptr`.
    ///
    /// # Safety
    /// Once this region is registered with a [`Memory`](super::Memory), and until it is deregistered and the
    /// [`Grace`](super::Grace) of that is [`done`](super::Grace::done) (or the `Memory` is gone):
    /// - the bytes stay allocated and readable, and writable if the region is registered (or registered anew) with
    ///   any right to write;
    /// - no Rust reference to them is alive that the compiler may rely on: no `&mut [u8]` at all, and no `&[u8]` while a
    ///   right to write is given;
    /// - whoever calls [`Memory::local`](super::Memory::local) or [`Memory::remote`](super::Memory::remote) does so, and
    ///   uses the [`MemRef`] it gets, between [`pin`](super::Reader::pin) and [`unpin`](super::Reader::unpin) of one
    ///   reader. A program that holds a region vouches for its shards in this.
    pub unsafe fn new(ptr: *mut u8, len: usize) -> Region {
        Region { base: ptr, len }
    }

    /// A region that is registered already and is to be registered anew: its owner vouches for it until both
    /// registrations are gone.
    pub(super) fn again(base: *mut u8, len: usize) -> Region {
        Region { base, len }
    }

    /// The pointer.
    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    /// The length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// A checked piece of a registered region, good until the reader that looked it up unpins.
///
/// Not `Send`: it must not outlive the step it was made in.
#[derive(Clone, Copy, Debug)]
pub struct MemRef {
    base: *mut u8,
    len: usize,
}

impl MemRef {
    /// A piece of no bytes.
    pub(super) const EMPTY: MemRef = MemRef { base: core::ptr::dangling_mut(), len: 0 };

    /// `len` bytes at `offset` of a region that begins at `base`.
    ///
    /// The look-ups in `memory` are the only callers: the piece lies inside a region that is registered and pinned. All
    /// `unsafe` below rests on that.
    pub(super) fn within(base: *mut u8, offset: usize, len: usize) -> MemRef {
        MemRef { base: base.wrapping_add(offset), len }
    }

    /// Bytes in the piece.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a length in bytes, not a collection")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies `out.len()` bytes out, from `offset` on.
    ///
    /// # Panics
    /// If they reach beyond the piece, as slices do: the caller got its length from [`MemRef::len`].
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        let from = self.place(offset, out.len());
        // SAFETY: `place` has checked that the bytes lie in the piece, which is in a registered region whose owner
        // vouches that it is allocated and readable (`Region::new`). `out` is exclusive, so it is not part of it.
        unsafe { core::ptr::copy_nonoverlapping(from.cast_const(), out.as_mut_ptr(), out.len()) }
    }

    /// Copies `bytes` in, from `offset` on.
    ///
    /// # Panics
    /// If they reach beyond the piece.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.place(offset, bytes.len());
        // SAFETY: as in `read`; the look-up has checked the right to write, with which the owner vouches that the bytes
        // are writable and that no reference to them is alive, `bytes` included.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Adds to the word that the piece is, wrapping, and gives the old word; both in host byte order. Atomic against all
    /// other atomics on this word, the host's own included (the specification asks for less).
    ///
    /// `None` if the piece is not 8 bytes on an 8-byte boundary of the host's memory.
    #[inline]
    pub fn atomic_fetch_add(&self, add: u64) -> Option<u64> {
        self.with_word(|word| word.fetch_add(add, Ordering::SeqCst))
    }

    /// Writes `swap` to the word that the piece is if it equals `compare`; gives the old word. Otherwise like
    /// [`atomic_fetch_add`](MemRef::atomic_fetch_add).
    #[inline]
    // rule: mem.atomic
    pub fn atomic_cmp_swap(&self, compare: u64, swap: u64) -> Option<u64> {
        self.with_word(|word| match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(old) | Err(old) => old,
        })
    }

    fn with_word<T>(&self, f: impl FnOnce(&MemoryWord) -> T) -> Option<T> {
        let word = self.base.cast::<u64>();
        if self.len != 8 || !word.is_aligned() {
            return None;
        }
        // SAFETY: 8 bytes in a registered, writable region (as in `write`), aligned. All accesses of this crate to it are
        // copies or atomics; what the application does to it meanwhile races as with a hardware NIC.
        Some(f(unsafe { MemoryWord::from_ptr(word) }))
    }

    #[inline(always)]
    fn place(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "{len} bytes at {offset} of a piece of {} bytes",
            self.len
        );
        self.base.wrapping_add(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(bytes: &mut [u64]) -> MemRef {
        MemRef::within(bytes.as_mut_ptr().cast(), 0, size_of_val(bytes))
    }

    #[test]
    fn copies_in_and_out_at_an_offset() {
        let mut words = [0u64; 2];
        let piece = over(&mut words);
        piece.write(3, &[1, 2, 3]);
        let mut out = [9; 5];
        piece.read(2, &mut out);
        assert_eq!(out, [0, 1, 2, 3, 0]);
        piece.read(16, &mut []);
    }

    #[test]
    #[should_panic(expected = "2 bytes at 15 of a piece of 16 bytes")]
    fn reading_past_the_end_is_stopped() {
        over(&mut [0; 2]).read(15, &mut [0; 2]);
    }

    #[test]
    #[should_panic(expected = "bytes at 18446744073709551615")]
    fn an_offset_that_would_wrap_is_stopped() {
        over(&mut [0; 2]).write(usize::MAX, &[0; 2]);
    }

    #[test]
    fn atomics_return_the_old_word() {
        let mut word = [7u64];
        let piece = over(&mut word);
        assert_eq!(piece.atomic_fetch_add(u64::MAX), Some(7));
        assert_eq!(piece.atomic_cmp_swap(5, 100), Some(6));
        assert_eq!(piece.atomic_cmp_swap(6, 100), Some(6));
        assert_eq!(piece.atomic_fetch_add(0), Some(100));
        assert_eq!(word, [100]);
    }

    #[test]
    // rule: mem.atomic
    fn atomics_need_one_aligned_word() {
        let mut words = [0u64; 2];
        let base: *mut u8 = words.as_mut_ptr().cast();
        assert_eq!(MemRef::within(base, 4, 8).atomic_fetch_add(1), None);
        assert_eq!(MemRef::within(base, 0, 7).atomic_fetch_add(1), None);
        assert_eq!(MemRef::within(base, 0, 16).atomic_cmp_swap(0, 1), None);
        assert_eq!(MemRef::EMPTY.atomic_fetch_add(1), None);
        assert_eq!(words, [0, 0]);
    }
}
