//! The GID table of the port. In: the addresses the interface has now. Out: entries by index, and what changed.
//!
//! Only addresses that the interface really holds and may use are listed. The order keeps to what the kernel's RDMA
//! GID table does, where that makes sense (`drivers/infiniband/core/cache.c`, `roce_gid_mgmt.c`): the first listing has
//! the link-local address first, then IPv4, then the other IPv6 addresses, oldest first; later an address takes the
//! lowest free index, and an index does not move while its address stays. Unlike the kernel, no link-local GID is
//! made up from the MAC, and there is one entry an address: RoCE v1 is not spoken.
//!
//! An address whose duplicate detection still runs has its index kept for it from the start, so the table comes out the
//! same whether it is read right after the interface came up or a second later.

#![forbid(unsafe_code)]

use std::net::IpAddr;

use xroce_wire::Gid;

use crate::netdev::{AddressState, InterfaceAddress};

/// Places in the table: what the 8-bit `sgid_index` of verbs can name.
pub const MAX_GIDS: usize = 256;

/// What a GID speaks. RoCE v1 (no IP header) does not exist here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GidKind {
    /// InfiniBand transport over UDP and IP (`IBV_GID_TYPE_ROCE_V2`).
    RoceV2,
}

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidEntry {
    /// Place in the table, 0..[`MAX_GIDS`]; verbs call it `sgid_index`.
    pub index: u8,
    /// The GID: the IPv6 address, or the IPv4 address mapped.
    pub gid: Gid,
    /// What it speaks.
    pub kind: GidKind,
    /// The same as an IP address.
    pub address: IpAddr,
    /// Length of the address's on-link prefix, in bits.
    pub prefix_len: u8,
}

/// A change of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GidChange {
    /// The entry can be used now.
    Added {
        /// Its place.
        index: u8,
        /// The GID.
        gid: Gid,
    },
    /// The address is gone or may not be used any more.
    Removed {
        /// The place it had.
        index: u8,
        /// The GID.
        gid: Gid,
    },
}

/// The GIDs of one interface.
#[derive(Debug, Clone, Default)]
// rule: gid.table, gid.index
pub struct GidTable {
    slots: Vec<Option<Slot>>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    entry: GidEntry,
    usable: bool,
}

impl GidTable {
    /// The table of an interface that is seen for the first time.
    pub fn new(addresses: &[InterfaceAddress]) -> GidTable {
        let mut table = GidTable::default();
        table.update(addresses);
        table
    }

    /// Brings the table in line with the addresses the interface has now, given in the kernel's order. Answers what
    /// changed, removals first.
    pub fn update(&mut self, addresses: &[InterfaceAddress]) -> Vec<GidChange> {
        let mut changes = Vec::new();
        let wanted = in_listing_order(addresses);
        self.drop_unwanted(&wanted, &mut changes);
        for address in wanted {
            self.place(&address, &mut changes);
        }
        changes
    }

    /// The usable entry at `index`.
    pub fn get(&self, index: u8) -> Option<&GidEntry> {
        self.slots.get(usize::from(index))?.as_ref().filter(|slot| slot.usable).map(|slot| &slot.entry)
    }

    /// Index of a usable GID.
    pub fn index_of(&self, gid: Gid) -> Option<u8> {
        self.iter().find(|entry| entry.gid == gid).map(|entry| entry.index)
    }

    /// The usable entries by index. Indices may have gaps.
    pub fn iter(&self) -> impl Iterator<Item = &GidEntry> {
        self.slots.iter().flatten().filter(|slot| slot.usable).map(|slot| &slot.entry)
    }

    /// Number of usable entries.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// No entry is usable.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Frees the places of addresses that are gone or that somebody else has.
    fn drop_unwanted(&mut self, wanted: &[InterfaceAddress], changes: &mut Vec<GidChange>) {
        for place in &mut self.slots {
            if let Some(slot) = place
                && !wanted.iter().any(|a| a.gid() == slot.entry.gid)
            {
                if slot.usable {
                    changes.push(GidChange::Removed { index: slot.entry.index, gid: slot.entry.gid });
                }
                *place = None;
            }
        }
    }

    fn place(&mut self, address: &InterfaceAddress, changes: &mut Vec<GidChange>) {
        let gid = address.gid();
        let usable = address.state == AddressState::Usable;
        let at = match self.slots.iter().flatten().find(|slot| slot.entry.gid == gid) {
            Some(slot) => slot.entry.index,
            None => match self.reserve(address) {
                Some(index) => index,
                None => return,
            },
        };
        let Some(Some(slot)) = self.slots.get_mut(usize::from(at)) else { return };
        slot.entry.prefix_len = address.prefix_len;
        match (slot.usable, usable) {
            (false, true) => changes.push(GidChange::Added { index: at, gid }),
            (true, false) => changes.push(GidChange::Removed { index: at, gid }),
            _ => {}
        }
        slot.usable = usable;
    }

    /// Takes the lowest free place, not usable yet. None when the table is full.
    fn reserve(&mut self, address: &InterfaceAddress) -> Option<u8> {
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let Some(index) = u8::try_from(free).ok() else {
            tracing::warn!(address = %address.address, "the GID table is full ({MAX_GIDS}); address not listed");
            return None;
        };
        let entry = GidEntry {
            index,
            gid: address.gid(),
            kind: GidKind::RoceV2,
            address: address.address,
            prefix_len: address.prefix_len,
        };
        let slot = Some(Slot { entry, usable: false });
        if free == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.slots[free] = slot;
        }
        Some(index)
    }
}

/// The addresses that get a place, each GID once: link-local, IPv4, other IPv6. The kernel lists IPv4 addresses oldest
/// first, but IPv6 addresses newest first within a scope (`ipv6_link_dev_addr`), so the latter are turned round.
fn in_listing_order(addresses: &[InterfaceAddress]) -> Vec<InterfaceAddress> {
    let rank = |a: &InterfaceAddress| match a.address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => 0,
        IpAddr::V4(_) => 1,
        IpAddr::V6(_) => 2,
    };
    let candidates = || addresses.iter().filter(|a| a.state != AddressState::Duplicate && !a.address.is_multicast());
    let v4 = candidates().filter(|a| a.address.is_ipv4());
    let v6 = candidates().rev().filter(|a| a.address.is_ipv6());
    let mut ordered: Vec<InterfaceAddress> = Vec::new();
    for address in v6.chain(v4) {
        // The same IPv4 address may be there twice, with two prefix lengths.
        match ordered.iter_mut().find(|a| a.address == address.address) {
            Some(known) if known.state != AddressState::Usable => *known = *address,
            Some(_) => {}
            None => ordered.push(*address),
        }
    }
    ordered.sort_by_key(rank); // stable
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str, state: AddressState) -> InterfaceAddress {
        InterfaceAddress { ifindex: 2, address: text.parse().unwrap(), prefix_len: 24, state }
    }

    fn usable(texts: &[&str]) -> Vec<InterfaceAddress> {
        texts.iter().map(|t| address(t, AddressState::Usable)).collect()
    }

    fn listing(table: &GidTable) -> Vec<(u8, String)> {
        table.iter().map(|e| (e.index, e.address.to_string())).collect()
    }

    fn gid(text: &str) -> Gid {
        Gid::from_ip(text.parse().unwrap())
    }

    #[test]
    fn first_listing_has_link_local_then_v4_then_v6_oldest_first() {
        // As the kernel dumps them: v4 oldest first, v6 newest first, link-local last.
        let table = GidTable::new(&usable(&["10.0.0.1", "10.0.0.2", "fd00::2", "fd00::1", "fe80::1"]));
        let expected = ["fe80::1", "10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"];
        assert_eq!(listing(&table).iter().map(|(_, a)| a.as_str()).collect::<Vec<_>>(), expected);
        assert_eq!(table.get(1).unwrap().gid, gid("10.0.0.1"));
        assert_eq!(table.index_of(gid("fd00::2")), Some(4));
    }

    #[test]
    fn an_index_stays_while_its_address_stays_and_free_places_are_taken_lowest_first() {
        let mut table = GidTable::new(&usable(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
        let changes = table.update(&usable(&["10.0.0.3", "10.0.0.4"]));
        assert_eq!(
            changes,
            [
                GidChange::Removed { index: 0, gid: gid("10.0.0.1") },
                GidChange::Removed { index: 1, gid: gid("10.0.0.2") },
                GidChange::Added { index: 0, gid: gid("10.0.0.4") },
            ]
        );
        assert_eq!(listing(&table), [(0, "10.0.0.4".to_owned()), (2, "10.0.0.3".to_owned())]);
        assert_eq!(table.get(1), None);
    }

    #[test]
    fn a_tentative_address_holds_its_place_but_is_not_listed() {
        let mut all = usable(&["10.0.0.1", "fe80::1"]);
        all[1].state = AddressState::Tentative;
        let mut table = GidTable::new(&all);
        assert_eq!(listing(&table), [(1, "10.0.0.1".to_owned())]);
        assert_eq!(table.get(0), None);
        all[1].state = AddressState::Usable;
        assert_eq!(table.update(&all), [GidChange::Added { index: 0, gid: gid("fe80::1") }]);
    }

    #[test]
    fn an_address_that_turns_out_to_be_a_duplicate_gives_its_place_back() {
        let mut all = usable(&["fd00::1"]);
        all[0].state = AddressState::Tentative;
        let mut table = GidTable::new(&all);
        all[0].state = AddressState::Duplicate;
        all.extend(usable(&["10.0.0.1"]));
        assert_eq!(table.update(&all), [GidChange::Added { index: 0, gid: gid("10.0.0.1") }]);
    }

    #[test]
    fn an_address_with_two_prefix_lengths_is_one_entry() {
        let mut all = usable(&["10.0.0.1", "10.0.0.1"]);
        all[1].prefix_len = 16;
        let mut table = GidTable::new(&all);
        assert_eq!(table.len(), 1);
        assert_eq!(table.update(&all[1..]), []);
        assert_eq!(table.get(0).unwrap().prefix_len, 16);
    }

    #[test]
    fn the_table_holds_no_more_than_an_index_can_name() {
        let all: Vec<_> = (0..300u32)
            .map(|i| InterfaceAddress {
                ifindex: 1,
                address: std::net::Ipv4Addr::from(0x0a00_0000 + i).into(),
                prefix_len: 8,
                state: AddressState::Usable,
            })
            .collect();
        let table = GidTable::new(&all);
        assert_eq!(table.len(), MAX_GIDS);
        assert!(!table.is_empty());
    }
}
