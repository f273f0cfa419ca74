//! How a message is cut into packets (IBTA, messages): sizes, counts and opcodes as functions of the position.
//!
//! In: the length of a message, the path MTU and the index of a packet in it. Out: that packet's offset, size, opcode.

use xroce_wire::{Operation, PathMtu};

use crate::wr::SendOp;

/// Packets (and so PSNs) that a message of `len` bytes takes: at least one (IBTA, PSN).
// rule: rc.req.zero-length
pub(crate) fn packets(len: u32, mtu: PathMtu) -> u32 {
    len.div_ceil(mtu.bytes() as u32).max(1)
}

/// Bytes of packet `index` in a message of `len` bytes.
// rule: rc.req.segment, uc.size
pub(crate) fn payload_len(len: u32, mtu: PathMtu, index: u32) -> usize {
    let offset = u64::from(index) * mtu.bytes() as u64;
    (u64::from(len).saturating_sub(offset)).min(mtu.bytes() as u64) as usize
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Position {
    First,
    Middle,
    Last,
    Only,
}

impl Position {
    /// Of packet `index` out of `count`.
    pub(crate) fn of(index: u32, count: u32) -> Position {
        match (index == 0, index + 1 == count) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        }
    }

    pub(crate) fn ends(self) -> bool {
        matches!(self, Position::Last | Position::Only)
    }
}

/// The opcode of a request packet. READs and atomics are one packet, whatever the position.
// rule: rc.req.segment, uc.segment
pub(crate) fn request(op: &SendOp, position: Position) -> Operation {
    use Operation::*;
    use Position::*;
    match (op, position) {
        (SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_), First) => SendFirst,
        (SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_), Middle) => SendMiddle,
        (SendOp::Send, Last) => SendLast,
        (SendOp::Send, Only) => SendOnly,
        (SendOp::SendImm(_), Last) => SendLastImm,
        (SendOp::SendImm(_), Only) => SendOnlyImm,
        (SendOp::SendInv(_), Last) => SendLastInv,
        (SendOp::SendInv(_), Only) => SendOnlyInv,
        (SendOp::Write { .. } | SendOp::WriteImm { .. }, First) => WriteFirst,
        (SendOp::Write { .. } | SendOp::WriteImm { .. }, Middle) => WriteMiddle,
        (SendOp::Write { .. }, Last) => WriteLast,
        (SendOp::Write { .. }, Only) => WriteOnly,
        (SendOp::WriteImm { .. }, Last) => WriteLastImm,
        (SendOp::WriteImm { .. }, Only) => WriteOnlyImm,
        (SendOp::Read { .. }, _) => ReadRequest,
        (SendOp::CmpSwap { .. }, _) => CompareSwap,
        (SendOp::FetchAdd { .. }, _) => FetchAdd,
    }
}

/// The opcode of a packet of a READ response.
// rule: rc.resp.read
pub(crate) fn read_response(position: Position) -> Operation {
    match position {
        Position::First => Operation::ReadResponseFirst,
        Position::Middle => Operation::ReadResponseMiddle,
        Position::Last => Operation::ReadResponseLast,
        Position::Only => Operation::ReadResponseOnly,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiple_of_the_mtu_ends_with_a_full_packet() {
        let mtu = PathMtu::Mtu1024;
        for (len, count, last) in [(0, 1, 0), (1, 1, 1), (1024, 1, 1024), (1025, 2, 1), (2048, 2, 1024), (2049, 3, 1)] {
            assert_eq!(packets(len, mtu), count, "{len}");
            assert_eq!(payload_len(len, mtu, count - 1), last, "{len}");
        }
        assert_eq!(packets(1 << 31, PathMtu::Mtu256), 1 << 23);
    }

    #[test]
    fn positions() {
        let all = |n| (0..n).map(|i| Position::of(i, n)).collect::<Vec<_>>();
        assert_eq!(all(1), [Position::Only]);
        assert_eq!(all(2), [Position::First, Position::Last]);
        assert_eq!(all(3), [Position::First, Position::Middle, Position::Last]);
    }
}
