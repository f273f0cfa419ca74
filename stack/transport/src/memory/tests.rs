use super::*;
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

const RW: Access = Access::LOCAL_WRITE;
const ALL: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

fn memory(max_mr: u32) -> Memory {
    Memory::new([0x1234_5678, 0x9ABC_DEF0], max_mr, 3)
}

/// A region over words of the test's own, which it keeps until the end and reaches through copies only.
fn region(words: &[AtomicU64]) -> Region {
    vouch(words.as_ptr().cast_mut().cast(), size_of_val(words))
}

#[allow(unsafe_code, reason = "somebody has to vouch for the memory of a test")]
fn vouch(base: *mut u8, len: usize) -> Region {
    // SAFETY: tests look at what they look up before they free it, or wait for the grace; atomics are the only references.
    unsafe { Region::new(base, len) }
}

fn words<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}

#[test]
// rule: mem.key, mem.domain, mem.right
fn a_key_is_good_for_its_region_its_domain_and_its_rights() {
    let bytes = words::<4>();
    let memory = memory(4);
    let (pd, other) = (memory.alloc_pd().unwrap(), memory.alloc_pd().unwrap());
    let mr = memory.register(pd, region(&bytes), None, Access::REMOTE_READ).unwrap();
    assert_eq!((mr.iova, mr.len, mr.lkey().0), (bytes.as_ptr() as u64, 32, mr.rkey().0));
    let (at, key) = (mr.iova, mr.key);
    assert_eq!(memory.local(pd, at, 32, Lkey(key), false).unwrap().len(), 32);
    assert_eq!(memory.local(pd, at, 32, Lkey(key), true).unwrap_err(), LocalError::MissingRight(Lkey(key)));
    assert_eq!(memory.local(other, at, 32, Lkey(key), false).unwrap_err(), LocalError::WrongPd(Lkey(key)));
    assert_eq!(memory.local(pd, at + 1, 32, Lkey(key), false).unwrap_err(), LocalError::OutOfBounds(Lkey(key)));
    assert_eq!(memory.local(pd, at - 1, 2, Lkey(key), false).unwrap_err(), LocalError::OutOfBounds(Lkey(key)));
    for wrong in [key ^ 1, key.wrapping_add(1), !key, 0] {
        assert_eq!(memory.local(pd, at, 1, Lkey(wrong), false).unwrap_err(), LocalError::UnknownKey(Lkey(wrong)));
        let unknown = RemoteError::UnknownKey(Rkey(wrong));
        assert_eq!(memory.remote(pd, at, 1, Rkey(wrong), Access::REMOTE_READ).unwrap_err(), unknown);
    }
    let rkey = Rkey(key);
    let wrong_pd = memory.remote(other, at, 1, rkey, Access::REMOTE_READ).unwrap_err();
    assert_eq!(wrong_pd, RemoteError::WrongPd(rkey));
    assert_eq!(wrong_pd.to_string(), format!("the region of rkey {key:#010x} belongs to another protection domain"));
    let over = memory.remote(pd, at, 33, rkey, Access::REMOTE_READ).unwrap_err();
    assert_eq!(over, RemoteError::OutOfBounds(rkey));
}

#[test]
fn a_key_that_a_shard_remembers_dies_all_the_same() {
    let bytes = words::<1>();
    let memory = memory(4);
    let (pd, other) = (memory.alloc_pd().unwrap(), memory.alloc_pd().unwrap());
    let mr = memory.register(pd, region(&bytes), None, ALL).unwrap();
    let (at, lkey, rkey) = (mr.iova, mr.lkey(), mr.rkey());
    let recent = Recent::default();
    let lookup = Lookup::new(&memory, &recent);
    for _ in 0..2 {
        assert_eq!(lookup.local(pd, at, 8, lkey, true).unwrap().len(), 8);
        assert_eq!(lookup.remote(pd, at, 8, rkey, Access::REMOTE_WRITE).unwrap().len(), 8);
        assert_eq!(lookup.local(other, at, 8, lkey, true).unwrap_err(), LocalError::WrongPd(lkey));
        assert_eq!(lookup.remote(pd, at, 9, rkey, Access::REMOTE_READ).unwrap_err(), RemoteError::OutOfBounds(rkey));
    }
    let _ = memory.deregister(lkey).unwrap();
    assert_eq!(lookup.local(pd, at, 8, lkey, true).unwrap_err(), LocalError::UnknownKey(lkey));
    assert_eq!(lookup.remote(pd, at, 8, rkey, Access::REMOTE_READ).unwrap_err(), RemoteError::UnknownKey(rkey));
    assert_eq!(lookup.local(pd, at, 8, Lkey(0), true).unwrap_err(), LocalError::UnknownKey(Lkey(0)));
}

#[test]
// rule: mem.right
fn each_remote_right_stands_for_itself() {
    let bytes = words::<1>();
    let memory = memory(16);
    let pd = memory.alloc_pd().unwrap();
    let rights = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    for given in 0..8u32 {
        let access = (0..3).filter(|i| given >> i & 1 == 1).fold(RW, |access, i| access | rights[i]);
        let mr = memory.register(pd, region(&bytes), None, access).unwrap();
        for (i, need) in rights.into_iter().enumerate() {
            let got = memory.remote(pd, mr.iova, 8, mr.rkey(), need).map(|piece| piece.len());
            let want = if given >> i & 1 == 1 { Ok(8) } else { Err(RemoteError::MissingRight(mr.rkey())) };
            assert_eq!(got, want, "{need:?} of {access:?}");
        }
    }
}

#[test]
// rule: mem.zero
fn zero_bytes_need_no_key() {
    let memory = memory(1);
    let pd = memory.alloc_pd().unwrap();
    for key in [0, u32::MAX, 77] {
        assert_eq!(memory.local(pd, u64::MAX, 0, Lkey(key), true).unwrap().len(), 0);
        assert_eq!(memory.remote(pd, u64::MAX, 0, Rkey(key), ALL).unwrap().len(), 0);
    }
}

#[test]
// rule: mem.range
fn the_end_of_the_address_space_is_out_of_bounds() {
    let bytes = words::<1>();
    let memory = memory(4);
    let pd = memory.alloc_pd().unwrap();
    let last = u64::MAX - 8;
    let mr = memory.register(pd, region(&bytes), Some(last), ALL).unwrap();
    let remote = |va, len| memory.remote(pd, va, len, mr.rkey(), Access::REMOTE_WRITE).map(|piece| piece.len());
    assert_eq!(remote(last, 8), Ok(8));
    assert_eq!(remote(u64::MAX - 3, 4), Err(RemoteError::OutOfBounds(mr.rkey())), "2^64 - 4 plus 4");
    assert_eq!(remote(u64::MAX, 1), Err(RemoteError::OutOfBounds(mr.rkey())));
    assert_eq!(remote(last, u32::MAX), Err(RemoteError::OutOfBounds(mr.rkey())));
    let refused = memory.register(pd, region(&bytes), Some(u64::MAX - 7), ALL);
    assert_eq!(refused, Err(RegError::IovaWraps { iova: u64::MAX - 7, len: 8 }));
}

#[test]
fn what_cannot_be_registered_is_refused_and_leaves_nothing() {
    let bytes = words::<2>();
    let memory = memory(1);
    let pd = memory.alloc_pd().unwrap();
    let gone = memory.alloc_pd().unwrap();
    memory.dealloc_pd(gone).unwrap();
    let zero_based = RW | Access::ZERO_BASED;
    let base = bytes.as_ptr() as u64;
    let cases = [
        (gone, region(&bytes), None, RW, RegError::UnknownPd { pd: gone }),
        (pd, region(&bytes[..0]), None, RW, RegError::Empty),
        (pd, vouch(std::ptr::null_mut(), 8), None, RW, RegError::NotMemory { base: 0, len: 8 }),
        (pd, vouch(usize::MAX as *mut u8, 8), None, RW, RegError::NotMemory { base: u64::MAX, len: 8 }),
        (pd, vouch(bytes.as_ptr() as *mut u8, 1 << 63), None, RW, RegError::NotMemory { base, len: 1 << 63 }),
        (pd, region(&bytes), Some(1), zero_based, RegError::ZeroBasedIova { iova: 1 }),
        (pd, region(&bytes), None, RW | Access::MW_BIND, RegError::Unsupported { bits: 16 }),
        (pd, region(&bytes), None, Access::from_bits_retain(0x40), RegError::Unsupported { bits: 0x40 }),
        (pd, region(&bytes), None, Access::REMOTE_WRITE, RegError::NeedsLocalWrite),
        (pd, region(&bytes), None, Access::REMOTE_ATOMIC, RegError::NeedsLocalWrite),
    ];
    for (pd, region, iova, access, want) in cases {
        assert_eq!(memory.register(pd, region, iova, access), Err(want));
    }
    assert_eq!(memory.registered(), 0);
    let mr = memory.register(pd, region(&bytes), None, RW).unwrap();
    assert_eq!(memory.register(pd, region(&bytes), None, RW), Err(RegError::TooMany { max: 1 }));
    memory.deregister(mr.lkey()).unwrap();
    memory.register(pd, region(&bytes), Some(0), zero_based).unwrap();
}

#[test]
fn a_domain_is_busy_while_regions_or_others_hold_it() {
    let bytes = words::<1>();
    let memory = memory(4);
    let pd = memory.alloc_pd().unwrap();
    let mr = memory.register(pd, region(&bytes), None, RW).unwrap();
    memory.pd_hold(pd).unwrap();
    assert_eq!(memory.dealloc_pd(pd), Err(PdError::Busy { pd, regions: 1, others: 1 }));
    memory.deregister(mr.lkey()).unwrap();
    assert_eq!(memory.dealloc_pd(pd), Err(PdError::Busy { pd, regions: 0, others: 1 }));
    memory.pd_release(pd).unwrap();
    memory.dealloc_pd(pd).unwrap();
    assert_eq!(memory.dealloc_pd(pd), Err(PdError::Unknown { pd }));
    assert_eq!(memory.pd_hold(pd), Err(PdError::Unknown { pd }));
}

#[test]
// rule: mem.invalidate
fn an_invalidated_key_is_dead_for_all_but_its_owner() {
    let bytes = words::<1>();
    let memory = memory(4);
    let (pd, other) = (memory.alloc_pd().unwrap(), memory.alloc_pd().unwrap());
    let plain = memory.register(pd, region(&bytes), None, ALL).unwrap();
    let refused = memory.invalidate_remote(pd, plain.rkey());
    assert_eq!(refused, Err(InvalidateError::NotInvalidatable(plain.rkey())));
    let mr = memory.register(pd, region(&bytes), None, ALL | Access::REMOTE_INVALIDATE).unwrap();
    let (lkey, rkey) = (mr.lkey(), mr.rkey());
    assert_eq!(memory.invalidate_remote(other, rkey), Err(InvalidateError::WrongPd(rkey)));
    assert!(memory.remote(pd, mr.iova, 8, rkey, Access::REMOTE_READ).is_ok());
    memory.invalidate_remote(pd, rkey).unwrap();
    assert_eq!(memory.invalidate_remote(pd, rkey), Err(InvalidateError::UnknownKey(rkey)));
    let dead = RemoteError::UnknownKey(rkey);
    assert_eq!(memory.remote(pd, mr.iova, 8, rkey, Access::REMOTE_READ).unwrap_err(), dead);
    assert_eq!(memory.local(pd, mr.iova, 8, lkey, false).unwrap_err(), LocalError::UnknownKey(lkey));
    assert!(memory.dealloc_pd(pd).is_err(), "it is still registered");
    assert!(memory.deregister(lkey).unwrap().done());
    assert_eq!(memory.deregister(lkey).unwrap_err(), DeregError::UnknownKey { lkey });
}

#[test]
fn other_rights_or_another_domain_keep_the_key() {
    let bytes = words::<1>();
    let memory = memory(1);
    let (pd, other) = (memory.alloc_pd().unwrap(), memory.alloc_pd().unwrap());
    let mr = memory.register(pd, region(&bytes), None, Access::REMOTE_READ).unwrap();
    let change = Rereg { pd: Some(other), access: Some(ALL), translation: None };
    let (now, grace) = memory.reregister(mr.lkey(), change).unwrap();
    assert!(grace.done());
    assert_eq!(now, MrInfo { pd: other, access: ALL, ..mr });
    assert!(memory.remote(other, mr.iova, 8, mr.rkey(), Access::REMOTE_WRITE).is_ok());
    assert!(memory.remote(pd, mr.iova, 8, mr.rkey(), Access::REMOTE_READ).is_err());
    memory.dealloc_pd(pd).unwrap();
    assert!(memory.dealloc_pd(other).is_err());
    let refused = memory.reregister(mr.lkey(), Rereg { access: Some(Access::MW_BIND), ..Rereg::default() });
    assert_eq!(refused.unwrap_err(), RegError::Unsupported { bits: 16 });
    assert!(memory.remote(other, mr.iova, 8, mr.rkey(), Access::REMOTE_WRITE).is_ok(), "as it was");
    memory.deregister(mr.lkey()).unwrap();
    memory.dealloc_pd(other).unwrap();
}

#[test]
fn other_memory_means_another_key() {
    let (old, new) = (words::<1>(), words::<2>());
    // One region only, so that the change must not need room for two.
    let memory = memory(1);
    let pd = memory.alloc_pd().unwrap();
    let mr = memory.register(pd, region(&old), Some(0x1000), ALL).unwrap();
    let reader = memory.reader();
    reader.pin();
    let change = Rereg { translation: Some((region(&new), Some(0x2000))), ..Rereg::default() };
    let (now, grace) = memory.reregister(mr.lkey(), change).unwrap();
    assert_ne!(now.key, mr.key);
    assert_eq!(now, MrInfo { key: now.key, iova: 0x2000, len: 16, ..mr });
    assert!(!grace.done(), "a reader may still copy to the old memory");
    let dead = memory.remote(pd, 0x1000, 8, mr.rkey(), Access::REMOTE_WRITE).unwrap_err();
    assert_eq!(dead, RemoteError::UnknownKey(mr.rkey()));
    memory.remote(pd, 0x2008, 8, now.rkey(), Access::REMOTE_WRITE).unwrap().write(0, &[1; 8]);
    assert_eq!(new[1].load(Ordering::Relaxed), 0x0101_0101_0101_0101);
    reader.unpin();
    assert!(grace.done());
    let refused = memory.reregister(mr.lkey(), Rereg::default()).unwrap_err();
    assert_eq!(refused, RegError::UnknownKey { lkey: mr.lkey() });
    assert_eq!(memory.registered(), 1);
}

#[test]
fn an_invalidated_region_comes_back_under_another_key() {
    let bytes = words::<1>();
    let memory = memory(4);
    let pd = memory.alloc_pd().unwrap();
    let mr = memory.register(pd, region(&bytes), Some(0x40), ALL | Access::REMOTE_INVALIDATE).unwrap();
    memory.invalidate_remote(pd, mr.rkey()).unwrap();
    let (now, _) = memory.reregister(mr.lkey(), Rereg::default()).unwrap();
    assert_eq!(now, MrInfo { key: now.key, ..mr });
    assert!(memory.remote(pd, 0x40, 8, now.rkey(), Access::REMOTE_READ).is_ok());
    assert!(memory.remote(pd, 0x40, 8, mr.rkey(), Access::REMOTE_READ).is_err());
}

/// One region after the other, until every generation of every slot in use has come up: no key twice, and every stale key
/// (all of the last rounds, tried again and again) leads to nothing.
#[test]
// rule: mem.key
fn a_stale_key_stays_dead_through_all_generations() {
    let bytes = words::<1>();
    let memory = memory(1);
    let pd = memory.alloc_pd().unwrap();
    let rounds = if cfg!(miri) { 50 } else { (RESERVE as usize) << GENERATION_BITS };
    let mut seen = HashSet::with_capacity(rounds);
    let mut stale = Vec::new();
    for round in 0..rounds {
        let mr = memory.register(pd, region(&bytes), None, ALL).unwrap();
        assert!(mr.key != 0 && seen.insert(mr.key), "key {:#x} again in round {round}", mr.key);
        assert!(memory.local(pd, mr.iova, 8, mr.lkey(), true).is_ok());
        if round % 997 == 0 {
            stale.push(mr.lkey());
            for lkey in stale.iter().filter(|lkey| **lkey != mr.lkey()) {
                assert_eq!(memory.local(pd, mr.iova, 8, *lkey, false).unwrap_err(), LocalError::UnknownKey(*lkey));
                assert!(memory.deregister(*lkey).is_err());
            }
        }
        assert!(memory.deregister(mr.lkey()).unwrap().done());
    }
    assert!(memory.control().records.len() <= RESERVE as usize + 1, "slots are used again");
    assert!(seen.iter().all(|key| memory.remote(pd, 0, 1, Rkey(*key), RW).is_err()));
}

#[test]
fn a_slot_is_not_used_again_while_a_reader_may_look_at_it() {
    let bytes = words::<1>();
    let memory = memory(1);
    let pd = memory.alloc_pd().unwrap();
    let reader = memory.reader();
    reader.pin();
    let mut count = 0;
    let refused = loop {
        match memory.register(pd, region(&bytes), None, RW) {
            Ok(mr) => assert!(!memory.deregister(mr.lkey()).unwrap().done()),
            Err(error) => break error,
        }
        count += 1;
    };
    assert_eq!((count, refused), (RESERVE + 1, RegError::Draining));
    reader.unpin();
    assert!(memory.register(pd, region(&bytes), None, RW).is_ok());
}

#[test]
fn the_table_grows_to_many_regions_without_moving() {
    const COUNT: u32 = if cfg!(miri) { 100 } else { 20_000 };
    let bytes = words::<1>();
    let memory = memory(COUNT);
    let pd = memory.alloc_pd().unwrap();
    let all: Vec<MrInfo> = (0..COUNT)
        .map(|i| memory.register(pd, region(&bytes), Some(u64::from(i) << 8), Access::REMOTE_READ).unwrap())
        .collect();
    assert_eq!(all.iter().map(|mr| mr.key).collect::<HashSet<_>>().len(), COUNT as usize);
    for mr in &all {
        assert!(memory.remote(pd, mr.iova, 8, mr.rkey(), Access::REMOTE_READ).is_ok());
    }
    assert_eq!(memory.register(pd, region(&bytes), None, RW), Err(RegError::TooMany { max: COUNT }));
}

/// Nothing of this memory is touched.
#[test]
// rule: mem.range
fn a_region_may_be_longer_than_32_bits_say() {
    const LEN: usize = 5 << 30;
    let memory = memory(1);
    let pd = memory.alloc_pd().unwrap();
    let base = 0x10_0000_0000 as *mut u8;
    let mr = memory.register(pd, vouch(base, LEN), Some(0), ALL).unwrap();
    assert_eq!(mr.len, LEN as u64);
    let len = |va: u64, len: u32| memory.remote(pd, va, len, mr.rkey(), Access::REMOTE_WRITE).map(|piece| piece.len());
    for va in [(1 << 32) - 8, 1 << 32, (1 << 32) + 8, LEN as u64 - 16] {
        assert_eq!(len(va, 16), Ok(16), "{va:#x}");
    }
    assert_eq!(len(0, u32::MAX), Ok(u32::MAX as usize));
    for va in [LEN as u64 - 15, LEN as u64, LEN as u64 + (1 << 32)] {
        assert_eq!(len(va, 16), Err(RemoteError::OutOfBounds(mr.rkey())), "{va:#x}");
    }
}

proptest! {
    /// Bounds against arithmetic in 128 bits, which cannot wrap.
    #[test]
    // rule: mem.range
    fn bounds_are_exact(
        len in 1usize..=256,
        iova in prop_oneof![
            Just(None), Just(Some(0u64)), any::<u64>().prop_map(Some), (0u64..600).prop_map(|d| Some(u64::MAX - d)),
        ],
        zero_based: bool,
        shift in -300i128..300,
        size in prop_oneof![1u32..600, any::<u32>().prop_map(|len| len.max(1))],
    ) {
        let bytes = words::<32>();
        let memory = memory(1);
        let pd = memory.alloc_pd().unwrap();
        let base = bytes.as_ptr() as u64;
        let access = if zero_based { ALL | Access::ZERO_BASED } else { ALL };
        let registered = memory.register(pd, vouch(bytes.as_ptr().cast_mut().cast(), len), iova, access);
        let start = if zero_based { 0 } else { iova.unwrap_or(base) };
        if zero_based && iova.is_some_and(|iova| iova != 0) || start.checked_add(len as u64).is_none() {
            prop_assert!(registered.is_err());
            return Ok(());
        }
        let mr = registered.unwrap();
        prop_assert_eq!(mr.iova, start);
        // Addresses around both ends of the region.
        for near in [i128::from(start), i128::from(start) + len as i128] {
            let va = (near + shift) as u64;
            let inside = va >= start && u128::from(va) + u128::from(size) <= u128::from(start) + len as u128;
            let remote = memory.remote(pd, va, size, mr.rkey(), Access::REMOTE_WRITE);
            let local = memory.local(pd, va, size, mr.lkey(), true);
            prop_assert_eq!(remote.is_ok(), inside);
            prop_assert_eq!(local.is_ok(), inside);
            if let Ok(piece) = remote {
                piece.write(0, &vec![0xA5; size as usize]);
                let at = (va - start) as usize;
                let got: Vec<u8> = bytes.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
                let want: Vec<u8> =
                    (0..256).map(|i| if (at..at + size as usize).contains(&i) { 0xA5 } else { 0 }).collect();
                prop_assert_eq!(got, want);
                bytes.iter().for_each(|word| word.store(0, Ordering::Relaxed));
            }
        }
    }
}

/// Shards read whatever key is current while regions come and go; memory is poisoned as soon as its grace is done. A
/// reader that ever sees poison behind a key it could look up has been let down. One reader holds on to what it has found until the
/// region has been deregistered under it, and every other region waits for it, so that the window is met for sure; the other reader
/// and the other regions race for it.
#[test]
// rule: mem.dereg
fn memory_outlives_every_reader_that_could_look_it_up() {
    const GOOD: u64 = 0x600D_600D_600D_600D;
    const POISON: u64 = 0xDEAD_DEAD_DEAD_DEAD;
    let rounds = if cfg!(miri) { 20 } else { 300 };
    let buffers: Vec<[AtomicU64; 8]> = (0..4).map(|_| std::array::from_fn(|_| AtomicU64::new(POISON))).collect();
    let memory = Arc::new(memory(8));
    let pd = memory.alloc_pd().unwrap();
    let (current, gone, stop) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    let (entered, held) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        let [holder, _] = [true, false].map(|hold| {
            let reader = memory.reader();
            let (memory, current, gone, stop, entered, held) = (&memory, &current, &gone, &stop, &entered, &held);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    reader.pin();
                    let rkey = Rkey(current.load(Ordering::Relaxed));
                    if let Ok(piece) = memory.remote(pd, 0, 8, rkey, Access::REMOTE_ATOMIC) {
                        if hold {
                            entered.store(rkey.0, Ordering::Release);
                            while gone.load(Ordering::Acquire) != rkey.0 && !stop.load(Ordering::Relaxed) {
                                thread::yield_now();
                            }
                            held.fetch_add(1, Ordering::Relaxed);
                            thread::sleep(std::time::Duration::from_micros(100));
                        }
                        assert_eq!(piece.atomic_fetch_add(0), Some(GOOD), "memory was freed under a reader");
                    }
                    reader.unpin();
                    thread::yield_now();
                }
            })
        });
        for round in 0..rounds {
            let words = &buffers[round % buffers.len()];
            words.iter().for_each(|word| word.store(GOOD, Ordering::Relaxed));
            let mr = memory.register(pd, region(words), Some(0), ALL).unwrap();
            current.store(mr.key, Ordering::Release);
            while round % 2 == 0 && entered.load(Ordering::Acquire) != mr.key && !holder.is_finished() {
                thread::yield_now();
            }
            let grace = memory.deregister(mr.lkey()).unwrap();
            gone.store(mr.key, Ordering::Release);
            while !grace.done() {
                thread::yield_now();
            }
            words.iter().for_each(|word| word.store(POISON, Ordering::Relaxed));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(held.into_inner() as usize >= rounds / 2, "regions were to go while a reader was inside");
}
