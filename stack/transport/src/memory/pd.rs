//! Protection domains: the wall between programs on one device (IBTA, protection domains).
//!
//! In: calls to make, hold and free domains. Out: handles that do not come back for a long while once freed.
#![forbid(unsafe_code)]

use core::fmt;
use std::collections::VecDeque;

/// A protection domain: index in the low 16 bits, generation above; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pd(u32);

impl Pd {
    /// The handle as a number.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Protection domains a device can have at a time.
pub const MAX_PDS: usize = 1 << 16;

/// Why a call on a protection domain failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PdError {
    /// There is no such domain (any more).
    #[error("there is no protection domain {pd}")]
    Unknown {
        /// The handle.
        pd: Pd,
    },
    /// Something still belongs to it.
    #[error(
        "protection domain {pd} is in use by {regions} memory regions and {others} queue pairs or others; free them first"
    )]
    Busy {
        /// The handle.
        pd: Pd,
        /// Memory regions that belong to it.
        regions: u32,
        /// Other holds.
        others: u32,
    },
    /// All are in use.
    #[error("all {MAX_PDS} protection domains are in use")]
    TooMany,
}

#[derive(Default)]
struct Entry {
    generation: u16,
    live: bool,
    regions: u32,
    others: u32,
}

impl Entry {
    fn handle(&self, index: u32) -> Pd {
        Pd(u32::from(self.generation) << 16 | index)
    }
}

/// What belongs to a domain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    Region,
    Other,
}

/// All protection domains of a device.
#[derive(Default)]
pub(super) struct PdTable {
    entries: Vec<Entry>,
    free: VecDeque<u32>,
}

impl PdTable {
    pub(super) fn alloc(&mut self) -> Result<Pd, PdError> {
        let index = match self.free.pop_front() {
            Some(index) => index,
            None if self.entries.len() < MAX_PDS => {
                self.entries.push(Entry::default());
                self.entries.len() as u32 - 1
            }
            None => return Err(PdError::TooMany),
        };
        let entry = &mut self.entries[index as usize];
        // 0 is skipped so that no handle is 0.
        entry.generation = entry.generation.checked_add(1).unwrap_or(1);
        entry.live = true;
        Ok(entry.handle(index))
    }

    pub(super) fn dealloc(&mut self, pd: Pd) -> Result<(), PdError> {
        let entry = self.entry(pd)?;
        let (regions, others) = (entry.regions, entry.others);
        if regions > 0 || others > 0 {
            return Err(PdError::Busy { pd, regions, others });
        }
        entry.live = false;
        self.free.push_back(pd.0 & 0xFFFF);
        Ok(())
    }

    pub(super) fn hold(&mut self, pd: Pd, what: Hold) -> Result<(), PdError> {
        *self.holds(pd, what)? += 1;
        Ok(())
    }

    /// Takes a hold back. A domain that is held lives, so this fails only if it was not held.
    pub(super) fn release(&mut self, pd: Pd, what: Hold) -> Result<(), PdError> {
        let holds = self.holds(pd, what)?;
        *holds = holds.checked_sub(1).ok_or(PdError::Unknown { pd })?;
        Ok(())
    }

    pub(super) fn entry_exists(&mut self, pd: Pd) -> Result<(), PdError> {
        self.entry(pd).map(|_| ())
    }

    fn holds(&mut self, pd: Pd, what: Hold) -> Result<&mut u32, PdError> {
        let entry = self.entry(pd)?;
        Ok(match what {
            Hold::Region => &mut entry.regions,
            Hold::Other => &mut entry.others,
        })
    }

    fn entry(&mut self, pd: Pd) -> Result<&mut Entry, PdError> {
        let index = pd.0 & 0xFFFF;
        let entry = self.entries.get_mut(index as usize).filter(|entry| entry.live && entry.handle(index) == pd);
        entry.ok_or(PdError::Unknown { pd })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_handle_is_dead_even_when_its_place_is_reused() {
        let mut table = PdTable::default();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..65_535 {
            let pd = table.alloc().unwrap();
            assert!(pd.value() != 0 && seen.insert(pd), "{pd} came back");
            table.dealloc(pd).unwrap();
            assert_eq!(table.dealloc(pd), Err(PdError::Unknown { pd }));
            assert_eq!(table.hold(pd, Hold::Other), Err(PdError::Unknown { pd }));
        }
        assert_eq!(table.entries.len(), 1);
    }

    #[test]
    fn a_domain_in_use_says_by_what() {
        let mut table = PdTable::default();
        let pd = table.alloc().unwrap();
        table.hold(pd, Hold::Region).unwrap();
        table.hold(pd, Hold::Other).unwrap();
        table.hold(pd, Hold::Other).unwrap();
        assert_eq!(table.dealloc(pd), Err(PdError::Busy { pd, regions: 1, others: 2 }));
        table.release(pd, Hold::Region).unwrap();
        assert!(table.release(pd, Hold::Region).is_err());
        table.release(pd, Hold::Other).unwrap();
        table.release(pd, Hold::Other).unwrap();
        assert_eq!(table.dealloc(pd), Ok(()));
    }

    #[test]
    fn there_is_an_end_to_domains() {
        let mut table = PdTable::default();
        let all: Vec<Pd> = (0..MAX_PDS).map(|_| table.alloc().unwrap()).collect();
        assert_eq!(table.alloc(), Err(PdError::TooMany));
        table.dealloc(all[77]).unwrap();
        assert!(table.alloc().is_ok());
    }
}
