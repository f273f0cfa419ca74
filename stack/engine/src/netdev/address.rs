//! What an address message says. In: rtnetlink address messages. Out: [`InterfaceAddress`].

#![forbid(unsafe_code)]

use std::net::IpAddr;

use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use xroce_wire::Gid;

/// An IP address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// Interface that holds it.
    pub ifindex: u32,
    /// The address.
    pub address: IpAddr,
    /// Length of the on-link prefix, in bits.
    pub prefix_len: u8,
    /// Whether it may be used.
    pub state: AddressState,
}

/// Where an address stands in its life (RFC 4862 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressState {
    /// Duplicate address detection still runs: nothing may be sent from it.
    Tentative,
    /// Somebody else has it (`dadfailed`): it will not become usable by itself.
    Duplicate,
    /// Usable. Deprecated addresses are: only new flows that can choose should avoid them.
    Usable,
}

impl InterfaceAddress {
    /// None for a message without an address, and for families other than IP.
    pub(crate) fn parse(message: &AddressMessage) -> Option<InterfaceAddress> {
        let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
        let (mut local, mut address) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                // On a point-to-point link IFA_ADDRESS is the peer's; IFA_LOCAL, where there is one, is ours.
                AddressAttribute::Local(ip) => local = Some(*ip),
                AddressAttribute::Address(ip) => address = Some(*ip),
                AddressAttribute::Flags(all) => flags = *all,
                _ => {}
            }
        }
        let address = local.or(address)?;
        Some(InterfaceAddress {
            ifindex: message.header.index,
            address,
            prefix_len: message.header.prefix_len,
            state: state(flags),
        })
    }

    /// The address as a GID; IPv4 is mapped, `::ffff:a.b.c.d` (IBTA annex A17).
    pub fn gid(&self) -> Gid {
        Gid::from_ip(self.address)
    }
}

fn state(flags: AddressFlags) -> AddressState {
    // The kernel leaves TENTATIVE set on an address whose detection failed, so this comes first. An optimistic address
    // (RFC 4429) keeps TENTATIVE too until it is confirmed.
    if flags.contains(AddressFlags::Dadfailed) {
        AddressState::Duplicate
    } else if flags.contains(AddressFlags::Tentative) {
        AddressState::Tentative
    } else {
        AddressState::Usable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(flags: AddressFlags, attributes: Vec<AddressAttribute>) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.index = 7;
        message.header.prefix_len = 31;
        message.attributes = attributes;
        message.attributes.push(AddressAttribute::Flags(flags));
        message
    }

    #[test]
    fn the_local_address_of_a_point_to_point_link_is_ours() {
        let (ours, peer) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let attributes = vec![AddressAttribute::Address(peer), AddressAttribute::Local(ours)];
        let parsed = InterfaceAddress::parse(&message(AddressFlags::Permanent, attributes)).unwrap();
        assert_eq!(parsed, InterfaceAddress { ifindex: 7, address: ours, prefix_len: 31, state: AddressState::Usable });
    }

    #[test]
    fn states_follow_the_flags() {
        let cases = [
            (AddressFlags::Permanent, AddressState::Usable),
            (AddressFlags::Deprecated, AddressState::Usable),
            (AddressFlags::Tentative, AddressState::Tentative),
            (AddressFlags::Tentative | AddressFlags::Optimistic, AddressState::Tentative),
            (AddressFlags::Tentative | AddressFlags::Dadfailed, AddressState::Duplicate),
        ];
        for (flags, expected) in cases {
            assert_eq!(state(flags), expected, "{flags:?}");
        }
    }

    #[test]
    fn a_message_without_address_is_none() {
        assert_eq!(InterfaceAddress::parse(&message(AddressFlags::Permanent, vec![])), None);
    }
}
