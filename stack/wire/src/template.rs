//! The headers of one flow, written once: a packet copies them and puts in what is its own.
//!
//! In: what all packets of a flow have in common, then [`Fields`] for each packet. Out: the same bytes that
//! [`Headers::emit`](crate::Headers::emit) writes, without building every field anew; on request first as the ICRC covers
//! them, so that it is made over the packet as it lies in its frame, in one go.

use crate::aeth::{self, AethRepr};
use crate::atomic::{AtomicAckRepr, AtomicEthRepr};
use crate::bth::{self, BthRepr};
use crate::headers::{Headers, MAX_PAYLOAD_LEN, pad_len};
use crate::icrc::{self, ICRC_LEN};
use crate::ip::IpRepr;
use crate::ipv4::{self, Ipv4};
use crate::ipv6;
use crate::numbers::{ImmData, PKey, Psn, Qpn, Rkey};
use crate::octets::put_u16;
use crate::opcode::{HeaderSet, Opcode, Operation};
use crate::reth::RethRepr;
use crate::udp;

/// Bytes of IPv4, UDP and BTH.
const V4_LEN: usize = ipv4::LEN + udp::LEN + bth::LEN;
/// Bytes of IPv6, UDP and BTH.
const V6_LEN: usize = ipv6::LEN + udp::LEN + bth::LEN;

/// What is common to all packets of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// As the ICRC covers it: ones where routers may change something.
    bytes: [u8; V6_LEN],
    /// Bytes from the IP header to the BTH.
    len: u8,
    /// The first word of the IP header as it stands on the wire: IPv4's traffic class, IPv6's traffic class and flow label.
    first_word: [u8; 4],
    /// TTL or hop limit.
    hop_limit: u8,
    /// IPv4: the sum of the header's 16-bit words without total length and checksum (RFC 1071).
    sum: u32,
}

/// What one packet has of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    /// What the packet is.
    pub opcode: Opcode,
    /// Solicited event.
    pub solicited: bool,
    /// An acknowledgement is asked for.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
    /// What follows the BTH; it must be what the opcode has.
    pub extension: Extension,
}

impl Fields {
    /// Without extension header, SE and AckReq clear.
    #[inline]
    // rule: tx.headers, rc.resp.ack.fields
    pub const fn new(opcode: Opcode, psn: Psn) -> Fields {
        Fields { opcode, solicited: false, ack_req: false, psn, extension: Extension::None }
    }
}

/// The extension headers of a packet of RC or UC, in every combination that an opcode has (IBTA 9.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extension {
    /// None.
    None,
    /// RDMA header.
    Reth(RethRepr),
    /// RDMA header and immediate data.
    RethImm(RethRepr, ImmData),
    /// Immediate data.
    Imm(ImmData),
    /// Key to invalidate.
    Ieth(Rkey),
    /// Atomic header.
    AtomicEth(AtomicEthRepr),
    /// ACK header.
    Aeth(AethRepr),
    /// ACK header and the original value.
    AtomicAck(AethRepr, AtomicAckRepr),
}

impl Extension {
    /// Which headers these are.
    #[inline]
    pub const fn set(&self) -> HeaderSet {
        match self {
            Extension::None => HeaderSet::NONE,
            Extension::Reth(_) => HeaderSet::RETH,
            Extension::RethImm(..) => HeaderSet::RETH.with(HeaderSet::IMM),
            Extension::Imm(_) => HeaderSet::IMM,
            Extension::Ieth(_) => HeaderSet::IETH,
            Extension::AtomicEth(_) => HeaderSet::ATOMIC_ETH,
            Extension::Aeth(_) => HeaderSet::AETH,
            Extension::AtomicAck(..) => HeaderSet::AETH.with(HeaderSet::ATOMIC_ACK),
        }
    }

    #[inline]
    fn emit(&self, buf: &mut [u8]) {
        match self {
            Extension::None => {}
            Extension::Reth(reth) => reth.emit(buf),
            Extension::RethImm(reth, imm) => {
                reth.emit(buf);
                imm.emit(&mut buf[RethRepr::LEN..]);
            }
            Extension::Imm(imm) => imm.emit(buf),
            Extension::Ieth(rkey) => rkey.emit_ieth(buf),
            Extension::AtomicEth(atomic) => atomic.emit(buf),
            Extension::Aeth(aeth) => aeth.emit(buf),
            Extension::AtomicAck(aeth, ack) => {
                aeth.emit(buf);
                ack.emit(&mut buf[aeth::LEN..]);
            }
        }
    }
}

impl Template {
    /// The flow from `ip.src` and UDP port `udp_src_port` to the queue pair `dest_qp` at `ip.dst`, with MigReq set, as hardware
    /// sends it.
    pub fn new(ip: IpRepr, udp_src_port: u16, pkey: PKey, dest_qp: Qpn) -> Template {
        let bth = BthRepr {
            opcode: Opcode::Rc(Operation::SendMiddle),
            solicited: false,
            migreq: true,
            pad: 0,
            pkey,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn: Psn::new(0),
        };
        let headers = Headers::new(ip, udp_src_port, bth);
        let mut bytes = [0; V6_LEN];
        headers.emit(0, &mut bytes);
        let mut sum = 0;
        if ip.is_ipv4() {
            put_u16(&mut bytes, ipv4::TOTAL_LEN_AT, 0);
            sum = u32::from(!Ipv4::new_unchecked(&bytes[..]).right_checksum());
        }
        let first_word = [bytes[0], bytes[1], bytes[2], bytes[3]];
        bytes.iter_mut().zip(icrc::masked_bytes(!ip.is_ipv4())).for_each(|(byte, mask)| *byte |= mask);
        Template { bytes, len: headers.header_len() as u8, first_word, hop_limit: ip.hop_limit, sum }
    }

    /// Bytes from the IP header to the last extension header of such a packet.
    #[inline]
    pub fn header_len(&self, fields: &Fields) -> usize {
        self.len as usize + fields.extension.set().byte_len()
    }

    /// Bytes of the whole IP packet with that many bytes of payload: headers, payload, pad and ICRC.
    #[inline]
    pub fn packet_len(&self, fields: &Fields, payload: usize) -> usize {
        self.header_len(fields) + payload + pad_len(payload) + ICRC_LEN
    }

    /// Writes [`header_len`](Self::header_len) bytes to the start of `buf`, for a packet with `payload` bytes of payload. The
    /// result is what [`Headers::emit`](crate::Headers::emit) writes for the same values.
    ///
    /// # Panics
    /// If `buf` is too short or `payload` longer than [`MAX_PAYLOAD_LEN`].
    #[inline]
    pub fn emit(&self, fields: &Fields, payload: usize, buf: &mut [u8]) {
        self.emit_covered(fields, payload, buf);
        self.uncover(self.packet_len(fields, payload), buf);
    }

    /// The first half of [`emit`](Self::emit): with ones in all that the ICRC does not cover, for
    /// [`Icrc::begin_covered`](crate::Icrc::begin_covered).
    ///
    /// # Panics
    /// As [`emit`](Self::emit).
    #[inline(always)]
    pub fn emit_covered(&self, fields: &Fields, payload: usize, buf: &mut [u8]) {
        debug_assert_eq!(fields.extension.set(), fields.opcode.headers(), "the wrong extension for {}", fields.opcode);
        assert!(payload <= MAX_PAYLOAD_LEN, "a payload of {payload} bytes does not fit an IP packet");
        let total = self.packet_len(fields, payload) as u16;
        // Copies of constant length become a few vector moves; one for both IPs would not be one.
        buf[..V4_LEN].copy_from_slice(&self.bytes[..V4_LEN]);
        let (fixed, extension) = if self.len as usize == V4_LEN {
            let (fixed, extension) = buf.split_at_mut(V4_LEN);
            put_u16(fixed, ipv4::TOTAL_LEN_AT, total);
            put_u16(fixed, ipv4::LEN + udp::LENGTH_AT, total - ipv4::LEN as u16);
            (&mut fixed[ipv4::LEN + udp::LEN..], extension)
        } else {
            let (fixed, extension) = buf.split_at_mut(V6_LEN);
            fixed[V4_LEN..].copy_from_slice(&self.bytes[V4_LEN..]);
            put_u16(fixed, ipv6::PAYLOAD_LEN_AT, total - ipv6::LEN as u16);
            put_u16(fixed, ipv6::LEN + udp::LENGTH_AT, total - ipv6::LEN as u16);
            (&mut fixed[ipv6::LEN + udp::LEN..], extension)
        };
        bth::fill(fixed, fields.opcode, fields.solicited, pad_len(payload) as u8, fields.ack_req, fields.psn);
        fields.extension.emit(extension);
    }

    /// The second half of [`emit`](Self::emit): puts in what the ICRC does not cover. `len` is the
    /// [`packet_len`](Self::packet_len).
    ///
    /// # Panics
    /// If `buf` is shorter than IP, UDP and BTH.
    #[inline]
    pub fn uncover(&self, len: usize, buf: &mut [u8]) {
        let udp_at = if self.len as usize == V4_LEN {
            let fixed = &mut buf[..V4_LEN];
            fixed[1] = self.first_word[1];
            fixed[ipv4::TTL_AT] = self.hop_limit;
            put_u16(fixed, ipv4::CHECKSUM_AT, !fold(self.sum + len as u32));
            ipv4::LEN
        } else {
            let fixed = &mut buf[..V6_LEN];
            fixed[..4].copy_from_slice(&self.first_word);
            fixed[ipv6::HOP_LIMIT_AT] = self.hop_limit;
            ipv6::LEN
        };
        // RoCE v2 over IPv4 and over IPv6 has no UDP checksum (IBTA annex A17), and we mark no congestion.
        let rest = &mut buf[udp_at..udp_at + udp::LEN + bth::LEN];
        put_u16(rest, udp::CHECKSUM_AT, 0);
        rest[udp::LEN + bth::CONGESTION_AT] = 0;
    }
}

/// One's complement sum of the two halves (RFC 1071), for sums of two 16-bit words.
#[inline]
fn fold(sum: u32) -> u16 {
    ((sum >> 16) + (sum & 0xFFFF)) as u16
}
