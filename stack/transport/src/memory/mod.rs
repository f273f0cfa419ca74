//! Protection domains and memory regions of a device.
//!
//! In: regions that somebody vouches for; keys and addresses from work requests and from the wire. Out: checked pieces
//! of memory to copy to and from, or the reason why not.
//!
//! One table serves all shards and all application threads. Looking up takes no lock and allocates nothing; registering
//! and deregistering take one. A key dies at once; the memory behind it may be freed when the [`Grace`] of its
//! deregistration is done, because a shard in the middle of a step may still be copying.

mod error;
mod grace;
mod key;
mod lookup;
mod mr;
mod pd;
#[allow(unsafe_code, reason = "the bytes of memory regions")]
mod region;

#[cfg(test)]
mod tests;

pub use error::{DeregError, InvalidateError, LocalError, RegError, RemoteError};
pub use grace::{Grace, Reader};
pub(crate) use lookup::{Lookup, Recent};
pub use mr::{Access, MrInfo};
pub use pd::{MAX_PDS, Pd, PdError};
pub use region::{MemRef, Region};

use crate::mutation::{self, Mutation};
use crate::prefetch;
use crate::sync::{Mutex, MutexGuard};
use grace::Readers;
use key::{GENERATION_BITS, KeyCipher};
use mr::{MAX_SLOTS, Slot, SlotTable};
use pd::{Hold, PdTable};
use std::collections::VecDeque;
use std::sync::PoisonError;
use xroce_wire::{Lkey, Rkey};

/// Freed slots that are kept back before the first is used again, so that its keys stay dead for long: with 512
/// generations, at least half a million registrations pass before a key comes up a second time.
const RESERVE: u32 = 1024;

/// All protection domains and memory regions of a device.
pub struct Memory {
    cipher: KeyCipher,
    slots: SlotTable,
    max_mr: u32,
    control: Mutex<Control>,
}

/// What only registering and deregistering look at.
struct Control {
    pds: PdTable,
    readers: Readers,
    /// Per slot that was ever used.
    records: Vec<Record>,
    /// Slots whose grace is over, oldest first.
    free: VecDeque<u32>,
    /// Slots that readers may still look at, oldest first.
    limbo: VecDeque<(u32, Grace)>,
    live: u32,
    /// Slots there may be.
    capacity: u32,
}

#[derive(Default)]
struct Record {
    generation: u32,
    /// What is registered here; stays when the peer invalidates the key.
    info: Option<MrInfo>,
}

/// What to change about a registration; `None` leaves it as it is. The `IBV_REREG_MR_*` flags of `ibv_rereg_mr`.
#[derive(Debug, Default)]
pub struct Rereg {
    /// Another domain.
    pub pd: Option<Pd>,
    /// Other memory, and its iova as for [`Memory::register`].
    pub translation: Option<(Region, Option<u64>)>,
    /// Other rights.
    pub access: Option<Access>,
}

impl Memory {
    /// An empty table for up to `max_mr` regions (at most 2^20).
    ///
    /// `secret` must be random and stay unknown: keys are as hard to guess as it is. `process_slot` (0 to 7) tells apart
    /// the keys of processes that share a netdev.
    pub fn new(secret: [u64; 2], max_mr: u32, process_slot: u8) -> Memory {
        let max_mr = max_mr.min(MAX_SLOTS);
        let capacity = (max_mr + RESERVE).min(MAX_SLOTS);
        Memory {
            cipher: KeyCipher::new(secret, process_slot),
            slots: SlotTable::new(capacity),
            max_mr,
            control: Mutex::new(Control {
                pds: PdTable::default(),
                readers: Readers::default(),
                records: Vec::new(),
                free: VecDeque::new(),
                limbo: VecDeque::new(),
                live: 0,
                capacity,
            }),
        }
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`PdError::TooMany`] after [`MAX_PDS`].
    pub fn alloc_pd(&self) -> Result<Pd, PdError> {
        self.control().pds.alloc()
    }

    /// Frees a protection domain.
    ///
    /// # Errors
    /// [`PdError::Busy`] while regions or QPs belong to it, [`PdError::Unknown`] if it is none.
    pub fn dealloc_pd(&self, pd: Pd) -> Result<(), PdError> {
        self.control().pds.dealloc(pd)
    }

    /// Notes that a QP (or whatever else) belongs to a domain.
    ///
    /// # Errors
    /// [`PdError::Unknown`].
    pub fn pd_hold(&self, pd: Pd) -> Result<(), PdError> {
        self.control().pds.hold(pd, Hold::Other)
    }

    /// Takes back a [`pd_hold`](Memory::pd_hold).
    ///
    /// # Errors
    /// [`PdError::Unknown`] if the domain is unknown or was not held.
    pub fn pd_release(&self, pd: Pd) -> Result<(), PdError> {
        self.control().pds.release(pd, Hold::Other)
    }

    /// Registers memory. `iova` is the first address by which it is named: `None` is the memory's own address, or 0 with
    /// [`Access::ZERO_BASED`].
    ///
    /// # Errors
    /// See [`RegError`].
    pub fn register(&self, pd: Pd, region: Region, iova: Option<u64>, access: Access) -> Result<MrInfo, RegError> {
        let mut control = self.control();
        control.pds.entry_exists(pd).map_err(|_| RegError::UnknownPd { pd })?;
        if control.live >= self.max_mr {
            return Err(RegError::TooMany { max: self.max_mr });
        }
        self.publish(&mut control, pd, &region, iova, access)
    }

    /// Takes a registration back. Its key is dead when this returns; its memory may be freed when the grace is done.
    ///
    /// # Errors
    /// [`DeregError::UnknownKey`]. A key that the peer has invalidated is still good here.
    // rule: mem.dereg
    pub fn deregister(&self, lkey: Lkey) -> Result<Grace, DeregError> {
        let mut control = self.control();
        let (index, _) = self.record(&mut control, lkey).ok_or(DeregError::UnknownKey { lkey })?;
        Ok(self.withdraw(&mut control, index))
    }

    /// Changes a registration, as `ibv_rereg_mr` does. Other memory (or a key that the peer has invalidated) means
    /// another key; other rights or another domain keep it. The grace tells when nobody uses the old state any more.
    ///
    /// # Errors
    /// See [`RegError`]; the registration is then as it was.
    pub fn reregister(&self, lkey: Lkey, change: Rereg) -> Result<(MrInfo, Grace), RegError> {
        let mut control = self.control();
        let (index, old) = self.record(&mut control, lkey).ok_or(RegError::UnknownKey { lkey })?;
        let pd = change.pd.unwrap_or(old.pd);
        control.pds.entry_exists(pd).map_err(|_| RegError::UnknownPd { pd })?;
        let access = change.access.unwrap_or(old.access);
        let slot = self.slots.get(index).ok_or(RegError::UnknownKey { lkey })?;
        let region = match change.translation {
            None if slot.holds(old.key) => return Self::adjust(&mut control, index, slot, pd, access),
            None => (slot.region(), Some(old.iova)),
            Some(translation) => translation,
        };
        let info = self.publish(&mut control, pd, &region.0, region.1, access)?;
        Ok((info, self.withdraw(&mut control, index)))
    }

    /// A reader, to bracket look-ups with. One per shard.
    pub fn reader(&self) -> Reader {
        self.control().readers.add()
    }

    /// How many regions are registered.
    pub fn registered(&self) -> u32 {
        self.control().live
    }

    /// A piece of local memory named by an SGE, for reading or (`write`) writing. A length of 0 is good with any key.
    ///
    /// # Errors
    /// See [`LocalError`]; the first check that fails decides: key, domain, range, right (IBTA, memory access).
    #[inline]
    // rule: mem.key, mem.domain, mem.range, mem.right, mem.zero
    pub fn local(&self, pd: Pd, addr: u64, len: u32, lkey: Lkey, write: bool) -> Result<MemRef, LocalError> {
        if len == 0 { Ok(MemRef::EMPTY) } else { local_in(self.slot(lkey.0), pd, (addr, len), lkey, write) }
    }

    /// A piece of memory named by the peer, with all rights in `need`. A length of 0 is good with any key and address:
    /// an operation of no bytes does not look at them (IBTA 9.4.4).
    ///
    /// # Errors
    /// See [`RemoteError`]; the first check that fails decides: key, domain, range, right.
    #[inline]
    // rule: mem.key, mem.domain, mem.range, mem.right, mem.zero, rc.resp.key, rc.resp.key.domain, rc.resp.key.range
    // rule: rc.resp.key.right
    pub fn remote(&self, pd: Pd, va: u64, len: u32, rkey: Rkey, need: Access) -> Result<MemRef, RemoteError> {
        if len == 0 { Ok(MemRef::EMPTY) } else { remote_in(self.slot(rkey.0), pd, (va, len), rkey, need) }
    }

    /// Kills a key at the peer's request (SEND with invalidate). Every later access with it fails; the
    /// region stays registered until its owner deregisters it.
    ///
    /// # Errors
    /// See [`InvalidateError`].
    // rule: mem.invalidate
    pub fn invalidate_remote(&self, pd: Pd, rkey: Rkey) -> Result<(), InvalidateError> {
        let slot = self.slot(rkey.0).ok_or(InvalidateError::UnknownKey(rkey))?;
        let access = slot.rights(pd).ok_or(InvalidateError::WrongPd(rkey))?;
        if !access.contains(Access::REMOTE_INVALIDATE) {
            return Err(InvalidateError::NotInvalidatable(rkey));
        }
        if slot.retire(rkey.0) { Ok(()) } else { Err(InvalidateError::UnknownKey(rkey)) }
    }

    /// The slot that a key leads to.
    #[inline]
    fn slot(&self, key: u32) -> Option<&Slot> {
        self.slot_at(self.cipher.index(key), key)
    }

    /// Whether there are so many regions that [`expect`](Self::expect) pays.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.slots.is_large()
    }

    /// This key, local or remote, is looked up soon: fetches what it leads to into the cache, where there are so many regions that
    /// they do not stay there. Changes nothing, whatever the key.
    #[inline]
    pub fn expect(&self, key: u32) {
        if self.is_large()
            && let Some(slot) = self.slots.get(self.cipher.index(key))
        {
            prefetch::whole(slot);
        }
    }

    /// The slot at the index that the key decodes to, if the key leads there now.
    #[inline]
    fn slot_at(&self, index: u32, key: u32) -> Option<&Slot> {
        // 0 marks a slot without a key, and is never given out.
        self.slots.get(index).filter(|slot| key != 0 && slot.holds(key))
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        // A panic under the lock leaves at worst a slot unused: every change is made whole by its last store.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Slot and registration of a key, whether or not the peer has invalidated it.
    fn record(&self, control: &mut Control, lkey: Lkey) -> Option<(u32, MrInfo)> {
        let index = self.cipher.index(lkey.0);
        let info = control.records.get(index as usize)?.info.filter(|info| info.key == lkey.0)?;
        Some((index, info))
    }

    fn publish(
        &self,
        control: &mut Control,
        pd: Pd,
        region: &Region,
        iova: Option<u64>,
        access: Access,
    ) -> Result<MrInfo, RegError> {
        let iova = check(region, iova, access)?;
        let index = control.take_slot().ok_or(RegError::Draining)?;
        let slot = self.slots.make(index).ok_or(RegError::Draining)?;
        let record = &mut control.records[index as usize];
        let mut key = 0;
        while key == 0 {
            record.generation = (record.generation + 1) % (1 << GENERATION_BITS);
            key = self.cipher.key(index, record.generation);
        }
        let info = MrInfo { key, pd, iova, len: region.len() as u64, access };
        record.info = Some(info);
        control.live += 1;
        let held = control.pds.hold(pd, Hold::Region);
        debug_assert!(held.is_ok(), "{pd} was looked up under this lock");
        slot.publish(&info, region.base());
        Ok(info)
    }

    fn withdraw(&self, control: &mut Control, index: u32) -> Grace {
        if let Some(info) = control.records[index as usize].info.take() {
            if let Some(slot) = self.slots.get(index) {
                slot.retire(info.key);
            }
            control.live -= 1;
            let released = control.pds.release(info.pd, Hold::Region);
            debug_assert!(released.is_ok(), "a region holds its domain");
        }
        let grace = control.readers.snapshot();
        control.limbo.push_back((index, grace.clone()));
        grace
    }

    fn adjust(
        control: &mut Control,
        index: u32,
        slot: &Slot,
        pd: Pd,
        access: Access,
    ) -> Result<(MrInfo, Grace), RegError> {
        check_access(access)?;
        let record = &mut control.records[index as usize];
        let Some(info) = record.info.as_mut() else { return Err(RegError::Draining) };
        let old_pd = core::mem::replace(&mut info.pd, pd);
        info.access = access;
        let info = *info;
        if !mutation::is(Mutation::ReregIgnored) {
            slot.set_rights(pd, access);
        }
        let moved = control.pds.hold(pd, Hold::Region).and_then(|()| control.pds.release(old_pd, Hold::Region));
        debug_assert!(moved.is_ok(), "both domains were looked up under this lock");
        Ok((info, control.readers.snapshot()))
    }
}

/// The checks of [`Memory::local`] on what the key led to.
#[inline]
fn local_in(
    slot: Option<&Slot>,
    pd: Pd,
    (addr, len): (u64, u32),
    lkey: Lkey,
    write: bool,
) -> Result<MemRef, LocalError> {
    let slot = slot.ok_or(LocalError::UnknownKey(lkey))?;
    let access = slot.rights(pd).ok_or(LocalError::WrongPd(lkey))?;
    let (base, offset) = slot.range(addr, len).ok_or(LocalError::OutOfBounds(lkey))?;
    if write && !access.contains(Access::LOCAL_WRITE) {
        return Err(LocalError::MissingRight(lkey));
    }
    Ok(MemRef::within(base, offset, len as usize))
}

/// The checks of [`Memory::remote`] on what the key led to.
#[inline]
fn remote_in(
    slot: Option<&Slot>,
    pd: Pd,
    (va, len): (u64, u32),
    rkey: Rkey,
    need: Access,
) -> Result<MemRef, RemoteError> {
    let slot = slot.ok_or(RemoteError::UnknownKey(rkey))?;
    let access = slot.rights(pd).ok_or(RemoteError::WrongPd(rkey))?;
    let (base, offset) = slot.range(va, len).ok_or(RemoteError::OutOfBounds(rkey))?;
    if !access.contains(need) {
        return Err(RemoteError::MissingRight(rkey));
    }
    Ok(MemRef::within(base, offset, len as usize))
}

impl Control {
    /// A slot nobody looks at: the oldest that is free, but a new one as long as few are free.
    fn take_slot(&mut self) -> Option<u32> {
        while self.limbo.front().is_some_and(|(_, grace)| grace.done()) {
            self.free.extend(self.limbo.pop_front().map(|(index, _)| index));
        }
        let made = self.records.len() as u32;
        if made < self.capacity && self.free.len() < RESERVE as usize {
            self.records.push(Record::default());
            return Some(made);
        }
        self.free.pop_front()
    }
}

/// Checks a registration; gives its first address.
fn check(region: &Region, iova: Option<u64>, access: Access) -> Result<u64, RegError> {
    check_access(access)?;
    let (base, len) = (region.base() as u64, region.len() as u64);
    if len == 0 {
        return Err(RegError::Empty);
    }
    // Rust allows no object of more than isize::MAX bytes.
    if base == 0 || base.checked_add(len).is_none() || len > isize::MAX as u64 {
        return Err(RegError::NotMemory { base, len });
    }
    let iova = match iova {
        Some(iova) if access.contains(Access::ZERO_BASED) && iova != 0 => return Err(RegError::ZeroBasedIova { iova }),
        Some(iova) => iova,
        None if access.contains(Access::ZERO_BASED) => 0,
        None => base,
    };
    // The end must fit too, so that address + length of an access inside never wraps.
    if iova.checked_add(len).is_none() {
        return Err(RegError::IovaWraps { iova, len });
    }
    Ok(iova)
}

// rule: mem.right
fn check_access(access: Access) -> Result<(), RegError> {
    let unsupported = access.bits() & (!Access::all().bits() | Access::MW_BIND.bits());
    if unsupported != 0 {
        return Err(RegError::Unsupported { bits: unsupported });
    }
    if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) && !access.contains(Access::LOCAL_WRITE) {
        return Err(RegError::NeedsLocalWrite);
    }
    Ok(())
}
