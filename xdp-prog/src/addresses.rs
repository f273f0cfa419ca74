//! The addresses whose RoCE frames are ours. What enters: IP addresses, at any time. What leaves: entries of the
//! program's two hash maps, which it looks up for every frame to port 4791.

use crate::program::MapError;
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};
use std::net::IpAddr;

/// The most addresses a family that the program's maps hold.
pub const MAX_ADDRESSES_PER_FAMILY: usize = 256;

const PRESENT: [u8; 1] = [1];

/// The set of our addresses, shared with the running program: a change holds from the next frame on.
///
/// IPv4-mapped IPv6 addresses (as GIDs carry them) stand for the IPv4 address.
#[derive(Debug)]
pub struct AddressFilter {
    v4: MapHandle,
    v6: MapHandle,
}

impl AddressFilter {
    pub(crate) fn new(v4: MapHandle, v6: MapHandle) -> AddressFilter {
        AddressFilter { v4, v6 }
    }

    /// Another handle to the same set.
    ///
    /// # Errors
    /// When the process is out of file descriptors.
    pub fn try_clone(&self) -> Result<AddressFilter, MapError> {
        let copy =
            |map: &MapHandle| MapHandle::try_from(map).map_err(|e| MapError::new("copy the handle of", "address", e));
        Ok(AddressFilter { v4: copy(&self.v4)?, v6: copy(&self.v6)? })
    }

    fn with_key<R>(&self, address: IpAddr, f: impl FnOnce(&MapHandle, &[u8]) -> R) -> R {
        match address.to_canonical() {
            IpAddr::V4(v4) => f(&self.v4, &v4.octets()),
            IpAddr::V6(v6) => f(&self.v6, &v6.octets()),
        }
    }

    /// RoCE frames to `address` are ours from now on. Harmless when they are already.
    ///
    /// # Errors
    /// When the family already has [`MAX_ADDRESSES_PER_FAMILY`] addresses.
    pub fn add(&self, address: IpAddr) -> Result<(), MapError> {
        self.with_key(address, |map, key| map.update(key, &PRESENT, MapFlags::ANY))
            .map_err(|e| MapError::new("add to", "address", e))
    }

    /// RoCE frames to `address` go to the kernel from now on. Harmless when they do already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove(&self, address: IpAddr) -> Result<(), MapError> {
        match self.with_key(address, MapCore::delete) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(MapError::new("remove from", "address", e)),
            _ => Ok(()),
        }
    }

    /// Whether RoCE frames to `address` are ours.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn contains(&self, address: IpAddr) -> Result<bool, MapError> {
        self.with_key(address, |map, key| map.lookup(key, MapFlags::ANY))
            .map(|found| found.is_some())
            .map_err(|e| MapError::new("look up in", "address", e))
    }
}
