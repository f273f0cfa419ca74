//! Frames in memory: a buffer of fixed size that is passed on, never copied, and the cut in two pieces.

use crate::{RxFrame, TX_HEAD_MIN, TxFrame};

/// The shortest head a split receive frame may have, in bytes: Ethernet with one VLAN tag (18), IPv6 (40), UDP (8),
/// BTH (12) and the longest extension header (AtomicETH, 28) are 106, and headers always lie in the head.
pub const RX_SPLIT_MIN: usize = 128;

/// Bytes in front of the IP packet in a frame with one VLAN tag: the longest frame of a port is its MTU plus this.
pub const VLAN_FRAME_OVERHEAD: usize = 18;

const ETHERNET_LEN: usize = 14;
const ETHERTYPE_VLAN: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];

/// A frame on its way. The buffer is longer than the frame and goes back to a pool.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) buf: Box<[u8]>,
    pub(super) len: usize,
}

impl Frame {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buf[..self.len]
    }

    /// The frame as a receiver sees it.
    pub(super) fn lend(&self, split: Split) -> RxFrame<'_> {
        let bytes = self.bytes();
        let (head, tail) = bytes.split_at(split.rx_head(bytes.len()));
        RxFrame { head, tail }
    }
}

/// Lends the first `len` bytes of a buffer to be written.
pub(super) fn lend_mut(buf: &mut [u8], len: usize, split: Split) -> TxFrame<'_> {
    let (head, tail) = buf[..len].split_at_mut(split.tx_head(len));
    TxFrame { head, tail }
}

/// Where frames are cut in two pieces, if at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Split(pub(super) Option<usize>);

impl Split {
    fn rx_head(self, len: usize) -> usize {
        self.0.map_or(len, |at| at.min(len))
    }

    /// The contract of `tx_reserve` keeps at least `TX_HEAD_MIN` bytes in the head.
    fn tx_head(self, len: usize) -> usize {
        self.0.map_or(len, |at| at.max(TX_HEAD_MIN).min(len))
    }
}

/// Bytes of the IP packet in an Ethernet frame with up to one VLAN tag.
pub(super) fn ip_len(frame: &[u8]) -> usize {
    let tagged = frame.get(12..14).is_some_and(|t| ETHERTYPE_VLAN.iter().any(|v| v == t));
    frame.len().saturating_sub(if tagged { VLAN_FRAME_OVERHEAD } else { ETHERNET_LEN })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_does_not_count_as_packet() {
        let mut frame = [0u8; 114];
        assert_eq!(ip_len(&frame), 100);
        frame[12] = 0x81;
        assert_eq!(ip_len(&frame), 96);
        assert_eq!(ip_len(&frame[..3]), 0);
    }

    #[test]
    fn a_short_frame_is_one_piece_and_a_transmit_head_keeps_the_contract() {
        let frame = Frame { buf: vec![7; 4096].into(), len: 200 };
        assert_eq!(frame.lend(Split(Some(256))).tail.len(), 0);
        assert_eq!(frame.lend(Split(Some(128))).tail.len(), 72);
        let mut buf = vec![0; 4096];
        assert_eq!(lend_mut(&mut buf, 3000, Split(Some(128))).head.len(), TX_HEAD_MIN);
        assert_eq!(lend_mut(&mut buf, 3000, Split(Some(2500))).head.len(), 2500);
        assert_eq!(lend_mut(&mut buf, 3000, Split(None)).head.len(), 3000);
    }
}
