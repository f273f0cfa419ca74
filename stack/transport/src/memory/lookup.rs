//! Look-ups of one shard, which sees the same few keys again and again.
//!
//! In: keys. Out: what [`Memory`] says of them. Where a key leads is a pure function of the key and costs more than all
//! checks together; so the shard remembers it for the keys it saw last. Everything that can change (whether the key is alive,
//! domain, range, rights) is looked at anew each time.
#![forbid(unsafe_code)]

use super::error::{InvalidateError, LocalError, RemoteError};
use super::mr::Slot;
use super::{Access, MemRef, Memory, Pd, local_in, remote_in};
use core::cell::Cell;
use xroce_wire::{Lkey, Rkey};

/// Keys that are remembered, a power of two: a shard with more in use decodes some of them each time.
const KEYS: usize = 64;

/// Keys a shard saw last, and the slots they lead to.
pub(crate) struct Recent {
    /// Key in the upper half, index in the lower. Key 0 is none.
    entries: [Cell<u64>; KEYS],
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { entries: core::array::from_fn(|_| Cell::new(0)) }
    }
}

impl Recent {
    /// What `decode` says of `key`, or said.
    #[inline]
    fn index(&self, key: u32, decode: impl FnOnce(u32) -> u32) -> u32 {
        // Keys are as good as random, so any bits will do to spread them.
        let entry = &self.entries[key as usize % KEYS];
        let known = entry.get();
        if (known >> 32) as u32 == key && key != 0 {
            return known as u32;
        }
        let index = decode(key);
        entry.set(u64::from(key) << 32 | u64::from(index));
        index
    }
}

/// The memory of a device as one shard looks at it.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    memory: &'a Memory,
    recent: &'a Recent,
}

impl<'a> Lookup<'a> {
    #[inline]
    pub(crate) fn new(memory: &'a Memory, recent: &'a Recent) -> Lookup<'a> {
        Lookup { memory, recent }
    }

    #[inline(always)]
    fn slot(&self, key: u32) -> Option<&'a Slot> {
        self.memory.slot_at(self.recent.index(key, |key| self.memory.cipher.index(key)), key)
    }

    /// As [`Memory::local`].
    #[inline]
    pub(crate) fn local(&self, pd: Pd, addr: u64, len: u32, lkey: Lkey, write: bool) -> Result<MemRef, LocalError> {
        if len == 0 { Ok(MemRef::EMPTY) } else { local_in(self.slot(lkey.0), pd, (addr, len), lkey, write) }
    }

    /// As [`Memory::remote`].
    #[inline]
    pub(crate) fn remote(&self, pd: Pd, va: u64, len: u32, rkey: Rkey, need: Access) -> Result<MemRef, RemoteError> {
        if len == 0 { Ok(MemRef::EMPTY) } else { remote_in(self.slot(rkey.0), pd, (va, len), rkey, need) }
    }

    /// As [`Memory::invalidate_remote`].
    pub(crate) fn invalidate_remote(&self, pd: Pd, rkey: Rkey) -> Result<(), InvalidateError> {
        self.memory.invalidate_remote(pd, rkey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_decoded_once_while_it_is_remembered() {
        let recent = Recent::default();
        let decoded = Cell::new(0);
        let index = |key: u32| {
            recent.index(key, |key| {
                decoded.set(decoded.get() + 1);
                key / 3
            })
        };
        assert_eq!((index(300), index(300), decoded.get()), (100, 100, 1));
        let rival = 300 + KEYS as u32;
        assert_eq!((index(rival), index(300), decoded.get()), (rival / 3, 100, 3), "they share a place");
        assert_eq!((index(0), index(0), decoded.get()), (0, 0, 5), "0 is no key");
    }
}
