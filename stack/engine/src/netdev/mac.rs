//! A MAC address and whether a frame may be sent to it. In: six bytes. Out: text, checks.

#![forbid(unsafe_code)]

use std::fmt;

/// A 48-bit Ethernet address, in the order of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mac(pub [u8; 6]);

/// Why a MAC address cannot be the next hop of unicast frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadMac {
    /// All zero: the link has no address resolution, or somebody made the entry by hand.
    #[error("it is all zero")]
    Zero,
    /// A group address, broadcast included.
    #[error("it is a broadcast or multicast address")]
    Group,
    /// Our own: frames would come back or vanish.
    #[error("it is this interface's own")]
    Own,
}

impl Mac {
    /// 00:00:00:00:00:00, which no station has.
    pub const ZERO: Mac = Mac([0; 6]);

    /// None unless `bytes` are exactly six.
    pub fn from_slice(bytes: &[u8]) -> Option<Mac> {
        bytes.try_into().ok().map(Mac)
    }

    /// Checks that unicast frames of an interface with address `own` may go to this one.
    ///
    /// # Errors
    /// The reason why not.
    // rule: path.next-hop
    pub fn check_next_hop(self, own: Mac) -> Result<(), BadMac> {
        if self == Mac::ZERO {
            Err(BadMac::Zero)
        } else if self.0[0] & 1 != 0 {
            Err(BadMac::Group)
        } else if self == own {
            Err(BadMac::Own)
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_foreign_unicast_address_is_a_next_hop() {
        let own = Mac([2, 0, 0, 0, 0, 1]);
        assert_eq!(Mac([2, 0, 0, 0, 0, 2]).check_next_hop(own), Ok(()));
        assert_eq!(Mac::ZERO.check_next_hop(own), Err(BadMac::Zero));
        assert_eq!(Mac([0xff; 6]).check_next_hop(own), Err(BadMac::Group));
        assert_eq!(Mac([0x33, 0x33, 0, 0, 0, 1]).check_next_hop(own), Err(BadMac::Group));
        assert_eq!(own.check_next_hop(own), Err(BadMac::Own));
    }

    #[test]
    fn text_is_that_of_ip_link() {
        assert_eq!(Mac([0, 0x1b, 0x21, 0xff, 9, 0xa]).to_string(), "00:1b:21:ff:09:0a");
    }
}
