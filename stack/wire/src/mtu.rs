//! Path MTU: the payload every packet of a message but the last carries.

use core::fmt;

/// A path MTU: payload bytes of one packet, an enum of five values (`ibv_mtu`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum PathMtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl PathMtu {
    /// All values, smallest first.
    pub const ALL: [PathMtu; 5] =
        [PathMtu::Mtu256, PathMtu::Mtu512, PathMtu::Mtu1024, PathMtu::Mtu2048, PathMtu::Mtu4096];

    /// Bytes a netdev MTU must leave beside the payload. The largest RoCE overhead inside the IP packet is 88 bytes; 96 is
    /// what Linux RDMA CM subtracts (drivers/infiniband/core/cma.c), so that both propose the same path MTU.
    pub const OVERHEAD: u32 = 96;

    /// Payload bytes.
    #[inline]
    // rule: mtu.values
    pub const fn bytes(self) -> usize {
        128 << self as u8
    }

    /// The code used by verbs and RDMA CM, 1 to 5.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The path MTU with that code; `None` outside 1 to 5.
    pub const fn from_code(code: u8) -> Option<PathMtu> {
        match code {
            1 => Some(PathMtu::Mtu256),
            2 => Some(PathMtu::Mtu512),
            3 => Some(PathMtu::Mtu1024),
            4 => Some(PathMtu::Mtu2048),
            5 => Some(PathMtu::Mtu4096),
            _ => None,
        }
    }

    /// The path MTU of exactly that many bytes; `None` if there is none.
    pub const fn from_bytes(bytes: usize) -> Option<PathMtu> {
        match bytes {
            256 => Some(PathMtu::Mtu256),
            512 => Some(PathMtu::Mtu512),
            1024 => Some(PathMtu::Mtu1024),
            2048 => Some(PathMtu::Mtu2048),
            4096 => Some(PathMtu::Mtu4096),
            _ => None,
        }
    }

    /// The largest path MTU that fits a netdev MTU (bytes of IP packet) with [`OVERHEAD`](Self::OVERHEAD) to spare; `None`
    /// if not even 256 does.
    // rule: mtu.overhead
    pub fn largest_for_netdev(mtu: u32) -> Option<PathMtu> {
        let room = mtu.checked_sub(Self::OVERHEAD)? as usize;
        Self::ALL.into_iter().rev().find(|p| p.bytes() <= room)
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}
