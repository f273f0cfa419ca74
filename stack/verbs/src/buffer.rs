//! Owned memory to register.
//!
//! In: a `Vec<u8>`, a `Box<[u8]>` or a length. Out: bytes that stay where they are until they are given back, to which the
//! network and the application may both write.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// The alignment of [`Buffer::zeroed`], in bytes: a page of the usual size.
pub const PAGE: usize = 4096;

/// Bytes owned by the library while they are registered. It holds no Rust reference to them: the peer may change them at
/// any time, which a `&[u8]` would forbid.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    origin: Origin,
}

/// How the memory was made, and so how it is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    Boxed,
    Pages,
}

// SAFETY: a Buffer owns its bytes like a Box does, and hands out no references to them.
unsafe impl Send for Buffer {}
// SAFETY: `&Buffer` gives only the address and the length.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zero bytes that begin at a page boundary.
    ///
    /// # Panics
    /// If `len` rounded up to whole pages overflows `isize`. Aborts, as all allocation does, when there is no memory.
    pub fn zeroed(len: usize) -> Buffer {
        let layout = Self::pages(len);
        // SAFETY: the layout's size is at least one page, so not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Buffer { start, len, origin: Origin::Pages }
    }

    /// Address of the first byte.
    pub fn addr(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes as a vector again; without a copy if they came as `Vec` or `Box`.
    pub fn into_vec(self) -> Vec<u8> {
        match self.origin {
            Origin::Boxed => {
                let this = std::mem::ManuallyDrop::new(self);
                // SAFETY: `start` and `len` came from Box::into_raw, and `this` is not dropped.
                unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(this.start.as_ptr(), this.len)) }.into_vec()
            }
            Origin::Pages => {
                // SAFETY: the bytes were allocated and zeroed with at least `len` bytes, and since `self` is owned here
                // nobody writes to them.
                unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }.to_vec()
            }
        }
    }

    fn pages(len: usize) -> Layout {
        let size = len.max(1).checked_next_multiple_of(PAGE).expect("no buffer is as long as the address space");
        Layout::from_size_align(size, PAGE).expect("no buffer is as long as half the address space")
    }
}

impl From<Box<[u8]>> for Buffer {
    fn from(bytes: Box<[u8]>) -> Buffer {
        let len = bytes.len();
        let start = NonNull::new(Box::into_raw(bytes).cast::<u8>()).expect("a box is never null");
        Buffer { start, len, origin: Origin::Boxed }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        bytes.into_boxed_slice().into()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match self.origin {
            Origin::Boxed => {
                // SAFETY: `start` and `len` came from Box::into_raw and nobody took them back.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len)) });
            }
            Origin::Pages => {
                // SAFETY: allocated in `zeroed` with this very layout.
                unsafe { dealloc(self.start.as_ptr(), Self::pages(self.len)) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_comes_back_as_it_was() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(Buffer::from(bytes.clone()).into_vec(), bytes);
        assert_eq!(Buffer::from(Vec::new()).into_vec(), Vec::<u8>::new());
    }

    #[test]
    fn pages_are_aligned_and_zero() {
        for len in [0, 1, PAGE, PAGE + 1] {
            let b = Buffer::zeroed(len);
            assert_eq!(b.addr() % PAGE as u64, 0);
            assert_eq!(b.into_vec(), vec![0; len]);
        }
    }
}
