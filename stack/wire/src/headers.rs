//! All headers of one packet as a value: read from a [`Packet`], or written in front of a payload.

use crate::aeth::{self, AethRepr};
use crate::atomic::{AtomicAckRepr, AtomicEthRepr};
use crate::bth::{self, BthRepr};
use crate::cnp;
use crate::deth::DethRepr;
use crate::icrc::{ICRC_LEN, Icrc};
use crate::immdt;
use crate::ip::IpRepr;
use crate::numbers::{ImmData, PKey, Qpn, Rkey};
use crate::opcode::HeaderSet;
use crate::packet::Packet;
use crate::reth::RethRepr;
use crate::udp::{self, UdpRepr};
use crate::{MAX_HEADER_LEN, ROCE_PORT};

/// The longest payload [`Headers::emit`] takes, in bytes: what the 16-bit IP length leaves.
pub const MAX_PAYLOAD_LEN: usize = u16::MAX as usize - MAX_HEADER_LEN - 3 - ICRC_LEN;

/// The headers of one packet, from the IP header to the last extension header.
///
/// `bth.opcode` decides which extension headers go on the wire; exactly those must be `Some`. FLUSH is read, not sent: its
/// FETH has no field here and is written as zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Headers {
    /// IP header, without lengths.
    pub ip: IpRepr,
    /// UDP source port.
    pub udp_src_port: u16,
    /// Base transport header.
    pub bth: BthRepr,
    /// RDMA header.
    pub reth: Option<RethRepr>,
    /// Atomic header.
    pub atomic_eth: Option<AtomicEthRepr>,
    /// ACK header.
    pub aeth: Option<AethRepr>,
    /// Atomic ACK header.
    pub atomic_ack: Option<AtomicAckRepr>,
    /// Immediate data.
    pub imm: Option<ImmData>,
    /// Key to invalidate.
    pub ieth: Option<Rkey>,
    /// Datagram header.
    pub deth: Option<DethRepr>,
}

impl Headers {
    /// Headers without any extension header.
    pub const fn new(ip: IpRepr, udp_src_port: u16, bth: BthRepr) -> Headers {
        Headers {
            ip,
            udp_src_port,
            bth,
            reth: None,
            atomic_eth: None,
            aeth: None,
            atomic_ack: None,
            imm: None,
            ieth: None,
            deth: None,
        }
    }

    /// The headers of a congestion notification packet for `dest_qp`.
    pub const fn cnp(ip: IpRepr, udp_src_port: u16, pkey: PKey, dest_qp: Qpn) -> Headers {
        Headers::new(ip, udp_src_port, cnp::bth(pkey, dest_qp))
    }

    /// All headers of a packet.
    pub fn parse(packet: &Packet<'_>) -> Headers {
        Headers {
            ip: packet.ip(),
            udp_src_port: packet.udp_src_port(),
            bth: packet.bth(),
            reth: packet.reth(),
            atomic_eth: packet.atomic_eth(),
            aeth: packet.aeth(),
            atomic_ack: packet.atomic_ack(),
            imm: packet.imm(),
            ieth: packet.ieth(),
            deth: packet.deth(),
        }
    }

    /// Bytes from the IP header to the last extension header.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.ip.header_len() + udp::LEN + bth::LEN + self.bth.opcode.headers().byte_len()
    }

    /// Bytes of the whole IP packet with that many bytes of payload: headers, payload, pad and ICRC.
    #[inline]
    pub fn packet_len(&self, payload: usize) -> usize {
        self.header_len() + payload + pad_len(payload) + ICRC_LEN
    }

    /// Whether exactly those extension headers are there that the opcode has.
    pub fn fit_opcode(&self) -> bool {
        let set = self.bth.opcode.headers();
        self.reth.is_some() == set.contains(HeaderSet::RETH)
            && self.atomic_eth.is_some() == set.contains(HeaderSet::ATOMIC_ETH)
            && self.aeth.is_some() == set.contains(HeaderSet::AETH)
            && self.atomic_ack.is_some() == set.contains(HeaderSet::ATOMIC_ACK)
            && self.imm.is_some() == set.contains(HeaderSet::IMM)
            && self.ieth.is_some() == set.contains(HeaderSet::IETH)
            && self.deth.is_some() == set.contains(HeaderSet::DETH)
    }

    /// Writes [`header_len`](Self::header_len) bytes to the start of `buf`, for a packet with `payload` bytes of payload.
    ///
    /// Lengths and pad count follow from `payload` (`bth.pad` is not looked at), the UDP checksum is 0, the IPv4 header
    /// checksum is right, reserved bits are 0. An extension header the opcode demands but that is `None` is a bug of the
    /// caller; it is written as zeros.
    ///
    /// # Panics
    /// If `buf` is too short or `payload` longer than [`MAX_PAYLOAD_LEN`].
    #[inline]
    pub fn emit(&self, payload: usize, buf: &mut [u8]) {
        debug_assert!(self.fit_opcode(), "extension headers do not fit {}", self.bth.opcode);
        assert!(payload <= MAX_PAYLOAD_LEN, "a payload of {payload} bytes does not fit an IP packet");
        let set = self.bth.opcode.headers();
        let ip_len = self.ip.header_len();
        let extension_at = ip_len + udp::LEN + bth::LEN;
        let pad = pad_len(payload);
        let buf = &mut buf[..extension_at + set.byte_len()];
        let udp_len = (buf.len() - ip_len + payload + pad + ICRC_LEN) as u16;

        self.ip.emit(udp_len, buf);
        UdpRepr { src_port: self.udp_src_port, dst_port: ROCE_PORT, length: udp_len }.emit(&mut buf[ip_len..]);
        BthRepr { pad: pad as u8, ..self.bth }.emit(&mut buf[ip_len + udp::LEN..]);
        if set.byte_len() != 0 {
            self.emit_extension(set, &mut buf[extension_at..]);
        }
    }

    /// Writes the extension headers in `set`, which fill `buf` exactly.
    #[inline]
    fn emit_extension(&self, set: HeaderSet, buf: &mut [u8]) {
        // What is not written below (reserved bytes, FETH) goes out as zero, never as what the frame held before.
        buf.fill(0);
        if let Some(h) = self.deth.filter(|_| set.contains(HeaderSet::DETH)) {
            h.emit(buf);
        }
        if let Some(h) = self.reth.filter(|_| set.contains(HeaderSet::RETH)) {
            h.emit(&mut buf[set.reth_at()..]);
        }
        if let Some(h) = self.atomic_eth.filter(|_| set.contains(HeaderSet::ATOMIC_ETH)) {
            h.emit(buf);
        }
        if let Some(h) = self.aeth.filter(|_| set.contains(HeaderSet::AETH)) {
            h.emit(buf);
        }
        if let Some(h) = self.atomic_ack.filter(|_| set.contains(HeaderSet::ATOMIC_ACK)) {
            h.emit(&mut buf[aeth::LEN..]);
        }
        let last_word = buf.len() - immdt::LEN;
        if let Some(imm) = self.imm.filter(|_| set.contains(HeaderSet::IMM)) {
            imm.emit(&mut buf[last_word..]);
        }
        if let Some(rkey) = self.ieth.filter(|_| set.contains(HeaderSet::IETH)) {
            rkey.emit_ieth(&mut buf[last_word..]);
        }
    }

    /// Writes the whole packet, pad and ICRC included, to the start of `buf` and returns its length. For tests and slow
    /// paths; the hot path computes the ICRC while it copies.
    ///
    /// # Panics
    /// As [`emit`](Self::emit), and if `buf` is shorter than [`packet_len`](Self::packet_len).
    pub fn emit_packet(&self, payload: &[u8], buf: &mut [u8]) -> usize {
        let len = self.packet_len(payload.len());
        let headers = self.header_len();
        let buf = &mut buf[..len];
        self.emit(payload.len(), buf);
        let (data, icrc_at) = buf.split_at_mut(len - ICRC_LEN);
        data[headers..headers + payload.len()].copy_from_slice(payload);
        data[headers + payload.len()..].fill(0);
        let mut icrc = Icrc::begin(&data[..headers]);
        icrc.update(&data[headers..]);
        icrc_at.copy_from_slice(&icrc.finish());
        len
    }
}

/// Pad bytes after that many bytes of payload: 0 to 3, up to the next multiple of four (PadCnt of the BTH).
#[inline]
// rule: tx.pad
pub const fn pad_len(payload: usize) -> usize {
    payload.wrapping_neg() % 4
}
