//! The memory that an end of the lab registers.
//!
//! In: a length. Out: a region that the transport may use, and copies of its bytes.

use xroce_transport::memory::Region;

/// A block of memory. It stays where it is, and is given back when it is dropped.
pub(super) struct Block {
    words: *mut [u64],
}

impl Block {
    /// `len` bytes on an 8-byte boundary, rounded up to whole words; each byte is the low part of its offset.
    pub(super) fn new(len: usize) -> Block {
        let words = (0..len.div_ceil(8)).map(|i| u64::from_ne_bytes(std::array::from_fn(|b| (i * 8 + b) as u8)));
        Block { words: Box::into_raw(words.collect::<Box<[u64]>>()) }
    }

    /// To register it. The caller keeps the block until the endpoint is gone.
    pub(super) fn region(&self) -> Region {
        // SAFETY: the block is allocated and writable until it is dropped, which its owner does after the endpoint; nobody
        // makes a reference to its words, which are only ever read and written through the pointer.
        unsafe { Region::new(self.words.cast(), self.words.len() * 8) }
    }

    /// Word `index`, in host order.
    pub(super) fn word(&self, index: usize) -> u64 {
        assert!(index < self.words.len(), "word {index} of {}", self.words.len());
        // SAFETY: inside the allocation (checked), aligned by its type; the lab is one thread, so nobody writes meanwhile.
        unsafe { self.words.cast::<u64>().add(index).read() }
    }

    /// Sets word `index`.
    pub(super) fn set_word(&mut self, index: usize, value: u64) {
        assert!(index < self.words.len(), "word {index} of {}", self.words.len());
        // SAFETY: as in `word`; the block is borrowed exclusively.
        unsafe { self.words.cast::<u64>().add(index).write(value) };
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `new`, and dropped once.
        drop(unsafe { Box::from_raw(self.words) });
    }
}
