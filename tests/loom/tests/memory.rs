//! The memory table: a shard that looks up while the owner registers and deregisters.
#![allow(clippy::arc_with_non_send_sync, reason = "loom's AtomicPtr is neither; its threads are all in one")]

mod common;

use common::holds;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use std::sync::Arc;
use xroce_loom::Bytes;
use xroce_loom::Weak::{Acquire, Fences, Release};
use xroce_loom::memory::{Access, Memory, Region};
use xroce_wire::Lkey;

const LEN: usize = 8;

/// Where regions lie. Nobody looks at these bytes: whether they may be looked at is what is asked.
fn region() -> Region {
    static PLACE: [u8; LEN] = [0; LEN];
    // SAFETY: a static lives as long as everything, and is registered here without a right to write.
    #[allow(unsafe_code, reason = "memory to register")]
    unsafe {
        Region::new(PLACE.as_ptr().cast_mut(), LEN)
    }
}

/// The pin and its fence, the unpin (Release) and the look at the count (Acquire).
#[test]
fn memory_is_freed_after_the_last_look() {
    holds(&[Fences, Release, Acquire], || {
        let memory = Arc::new(Memory::new([1, 2], 1, 0));
        let pd = memory.alloc_pd().expect("a domain");
        let info = memory.register(pd, region(), Some(0x1000), Access::empty()).expect("registered");
        let bytes = Arc::new(Bytes::default());
        let shard = {
            let (memory, bytes, reader) = (Arc::clone(&memory), Arc::clone(&bytes), memory.reader());
            thread::spawn(move || {
                reader.pin();
                if memory.local(pd, 0x1000, LEN as u32, info.lkey(), false).is_ok() {
                    bytes.read();
                }
                reader.unpin();
            })
        };
        let grace = memory.deregister(info.lkey()).expect("registered");
        while !grace.done() {
            loom::thread::yield_now();
        }
        bytes.write();
        shard.join().unwrap();
    });
}

/// A key that leads somewhere leads to fields that belong together.
#[test]
fn a_key_that_is_found_is_filled() {
    holds(&[Release, Acquire], || {
        let memory = Arc::new(Memory::new([1, 2], 2, 0));
        let pd = memory.alloc_pd().expect("a domain");
        // The slots are made when the first of them is used.
        memory.register(pd, region(), None, Access::empty()).expect("registered");
        let told = Arc::new(AtomicU32::new(0));
        let shard = {
            let (memory, told, reader) = (Arc::clone(&memory), Arc::clone(&told), memory.reader());
            thread::spawn(move || {
                reader.pin();
                // The peer has heard of the key before it is here, as far as memory order goes.
                let key = Lkey(told.load(Ordering::Relaxed));
                let found = memory.local(pd, 0x1000, LEN as u32, key, false);
                let unknown = matches!(found, Err(xroce_loom::memory::LocalError::UnknownKey(_)));
                assert!(unknown || found.is_ok(), "{found:?}");
                reader.unpin();
            })
        };
        let info = memory.register(pd, region(), Some(0x1000), Access::empty()).expect("registered");
        told.store(info.key, Ordering::Relaxed);
        shard.join().unwrap();
    });
}
