//! A received packet, checked once: everything from the IP header to the ICRC.
//!
//! In: the bytes, in one or two pieces. Out: the parts of the packet, or the first field that is wrong. What is checked here
//! needs no queue pair: lengths, port, opcode, transport version. Payload size against the path MTU, pad against the payload
//! and the order of opcodes are left to the transport, which must answer some of those with a NAK.

use crate::aeth::AethRepr;
use crate::atomic::{AtomicAckRepr, AtomicEthRepr};
use crate::bth::{self, Bth, BthRepr};
use crate::deth::DethRepr;
use crate::error::{Field, Reason, WireError};
use crate::feth::FethRepr;
use crate::gid::Gid;
use crate::icrc::{ICRC_LEN, Icrc};
use crate::ip::IpRepr;
use crate::ipv4::{self, Ipv4};
use crate::ipv6::{self, Ipv6};
use crate::numbers::{ImmData, PKey, Psn, Qpn, Rkey};
use crate::opcode::{HeaderSet, Opcode, PayloadRule};
use crate::reth::RethRepr;
use crate::udp::{self, Udp};
use crate::{ROCE_PORT, aeth, immdt};

/// A checked packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// From the IP header on; holds all headers. Ends with the IP packet at the latest.
    head: &'a [u8],
    /// The rest, ending with the IP packet.
    tail: &'a [u8],
    /// Bytes of the IP packet that were not captured; 0 in any packet from the wire.
    missing: usize,
    opcode: Opcode,
    /// Where the BTH begins in `head`: 28 or 48.
    bth_at: u8,
    /// Where the payload begins: behind the last extension header.
    payload_at: u8,
    pad: u8,
}

/// What the IP header says once it has been checked.
struct IpLayout {
    /// Bytes of the IP header.
    header: usize,
    /// Bytes of the IP packet.
    total: usize,
}

impl IpLayout {
    /// The IP length field says less than `need` bytes of packet.
    #[cold]
    fn shorter_than(&self, need: usize) -> WireError {
        match self.header {
            ipv4::LEN => WireError::shorter_than(Field::Ipv4TotalLength, self.total, "IP, UDP, BTH and ICRC", need),
            header => {
                let (value, need) = (self.total - header, need - header);
                WireError::shorter_than(Field::Ipv6PayloadLength, value, "UDP, BTH and ICRC", need)
            }
        }
    }

    /// The IP length field says more than the `have` bytes of packet.
    #[cold]
    fn longer_than(&self, have: usize) -> WireError {
        match self.header {
            ipv4::LEN => WireError::longer_than(Field::Ipv4TotalLength, self.total, "the bytes that arrived", have),
            header => {
                let (value, limit) = (self.total - header, have - header);
                WireError::longer_than(Field::Ipv6PayloadLength, value, "the bytes that arrived behind it", limit)
            }
        }
    }
}

impl<'a> Packet<'a> {
    /// Checks a packet that lies in `head` and goes on in `tail` (empty if it is in one piece). All headers must lie in
    /// `head`; bytes after the end of the IP packet (Ethernet padding) are ignored. The ICRC is not checked: see
    /// [`icrc_ok`](Self::icrc_ok).
    ///
    /// # Errors
    /// The first thing wrong with the packet. All are reasons to drop it in silence (IBTA annex A17).
    #[inline(always)]
    // rule: wire.total
    pub fn new_checked(head: &'a [u8], tail: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let ip = check_ip(head)?;
        let have = head.len() + tail.len();
        if ip.total > have {
            return Err(ip.longer_than(have));
        }
        let (head, tail) = if ip.total <= head.len() {
            (&head[..ip.total], &tail[..0])
        } else {
            (head, &tail[..ip.total - head.len()])
        };
        check_transport(head, tail, ip, 0)
    }

    /// As [`new_checked`](Self::new_checked), for a capture that may hold only the first bytes of a packet (a snap length).
    ///
    /// Lengths are those the IP header states; [`payload`](Self::payload) is what was captured of it,
    /// [`missing`](Self::missing) says how much was not, and [`icrc`](Self::icrc) is `None` if anything was not.
    ///
    /// # Errors
    /// As for a whole packet; and if the capture ends inside a header.
    pub fn new_truncated(captured: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let ip = check_ip(captured)?;
        let missing = ip.total.saturating_sub(captured.len());
        check_transport(&captured[..captured.len().min(ip.total)], &[], ip, missing)
    }

    /// Whether the ICRC is right. False for a truncated packet, of which nobody can tell.
    #[inline]
    // rule: rx.icrc
    pub fn icrc_ok(&self) -> bool {
        if self.missing != 0 {
            return false;
        }
        if self.tail.is_empty() {
            return self.icrc_ok_in_one();
        }
        let mut icrc = Icrc::begin(&self.head[..self.payload_at as usize]);
        let (first, second) = self.pieces(self.payload_at as usize, self.ip_len() - ICRC_LEN);
        icrc.update(first);
        icrc.update(second);
        icrc.finish() == self.stored_icrc()
    }

    /// As [`icrc_ok`](Self::icrc_ok), for a packet in one piece.
    #[inline]
    fn icrc_ok_in_one(&self) -> bool {
        let Some((covered, stored)) = self.head.split_last_chunk::<ICRC_LEN>() else { return false };
        Icrc::begin(covered).finish() == *stored
    }

    /// Whether the ICRC is right; `None` if the capture does not hold the whole packet.
    pub fn icrc(&self) -> Option<bool> {
        if self.missing == 0 { Some(self.icrc_ok()) } else { None }
    }

    /// The ICRC as the packet carries it, in wire order; `None` if the capture does not hold the whole packet.
    pub fn icrc_bytes(&self) -> Option<[u8; ICRC_LEN]> {
        if self.missing == 0 { Some(self.stored_icrc()) } else { None }
    }

    /// Bytes of the packet that were not captured; 0 for a packet made by [`new_checked`](Self::new_checked).
    #[inline]
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// Bytes of the IP packet, from the IP header to the ICRC.
    #[inline]
    pub fn ip_len(&self) -> usize {
        self.head.len() + self.tail.len() + self.missing
    }

    /// Whether the packet came over IPv4.
    #[inline]
    pub fn is_ipv4(&self) -> bool {
        self.bth_at as usize == ipv4::LEN + udp::LEN
    }

    /// The bytes from the IP header to the last extension header.
    #[inline]
    pub fn header_bytes(&self) -> &'a [u8] {
        &self.head[..self.payload_at as usize]
    }

    /// The IP header.
    #[inline]
    pub fn ip(&self) -> IpRepr {
        if self.is_ipv4() {
            IpRepr::of_ipv4(&Ipv4::new_unchecked(self.head))
        } else {
            IpRepr::of_ipv6(&Ipv6::new_unchecked(self.head))
        }
    }

    /// Whether the packet goes from `src` to `dst`: what comparing [`ip`](Self::ip) says, without building the addresses.
    #[inline]
    pub fn is_between(&self, src: &Gid, dst: &Gid) -> bool {
        if self.is_ipv4() {
            let view = Ipv4::new_unchecked(self.head);
            src.to_ipv4() == Some(view.src()) && dst.to_ipv4() == Some(view.dst())
        } else {
            let view = Ipv6::new_unchecked(self.head);
            src.0 == view.src().octets() && dst.0 == view.dst().octets()
        }
    }

    /// Whether a router has marked the packet: ECN "congestion experienced" (RFC 3168).
    #[inline(always)]
    pub fn is_ce(&self) -> bool {
        let traffic_class = match self.is_ipv4() {
            true => Ipv4::new_unchecked(self.head).traffic_class(),
            false => Ipv6::new_unchecked(self.head).traffic_class(),
        };
        traffic_class & 3 == 3
    }

    /// The UDP source port: any value is valid.
    #[inline]
    pub fn udp_src_port(&self) -> u16 {
        Udp::new_unchecked(&self.head[self.bth_at as usize - udp::LEN..]).src_port()
    }

    #[inline]
    fn bth_view(&self) -> Bth<&'a [u8]> {
        Bth::new_unchecked(&self.head[self.bth_at as usize..])
    }

    /// The base transport header.
    #[inline]
    pub fn bth(&self) -> BthRepr {
        BthRepr::of(&self.bth_view(), self.opcode)
    }

    /// What the packet is.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// The partition key.
    #[inline]
    pub fn pkey(&self) -> PKey {
        self.bth_view().pkey()
    }

    /// Whether an acknowledgement is asked for.
    #[inline]
    pub fn ack_req(&self) -> bool {
        self.bth_view().ack_req()
    }

    /// Whether the sender asks for a completion event.
    #[inline]
    pub fn solicited(&self) -> bool {
        self.bth_view().solicited()
    }

    /// Pad bytes behind the payload, 0 to 3.
    #[inline]
    pub fn pad(&self) -> u8 {
        self.pad
    }

    /// The packet sequence number.
    #[inline]
    pub fn psn(&self) -> Psn {
        self.bth_view().psn()
    }

    /// The QP the packet is for.
    #[inline]
    pub fn dest_qp(&self) -> Qpn {
        self.bth_view().dest_qp()
    }

    #[inline]
    fn has(&self, header: HeaderSet) -> bool {
        self.opcode.headers().contains(header)
    }

    /// The bytes behind the BTH.
    #[inline]
    fn extension(&self) -> &'a [u8] {
        &self.head[self.bth_at as usize + bth::LEN..self.payload_at as usize]
    }

    /// The last four bytes before the payload, where ImmDt and IETH stand.
    #[inline]
    fn last_word(&self) -> &'a [u8] {
        &self.head[self.payload_at as usize - immdt::LEN..self.payload_at as usize]
    }

    /// The RDMA header, if the opcode has one.
    #[inline(always)]
    pub fn reth(&self) -> Option<RethRepr> {
        let set = self.opcode.headers();
        if set.contains(HeaderSet::RETH) { RethRepr::parse(&self.extension()[set.reth_at()..]).ok() } else { None }
    }

    /// The ACK header, if the opcode has one.
    #[inline]
    pub fn aeth(&self) -> Option<AethRepr> {
        if self.has(HeaderSet::AETH) { AethRepr::parse(self.extension()).ok() } else { None }
    }

    /// The atomic header, if the opcode has one.
    #[inline]
    pub fn atomic_eth(&self) -> Option<AtomicEthRepr> {
        if self.has(HeaderSet::ATOMIC_ETH) { AtomicEthRepr::parse(self.extension()).ok() } else { None }
    }

    /// The atomic ACK header, if the opcode has one.
    #[inline]
    pub fn atomic_ack(&self) -> Option<AtomicAckRepr> {
        if self.has(HeaderSet::ATOMIC_ACK) { AtomicAckRepr::parse(&self.extension()[aeth::LEN..]).ok() } else { None }
    }

    /// Immediate data, if the opcode has it.
    #[inline]
    pub fn imm(&self) -> Option<ImmData> {
        if self.has(HeaderSet::IMM) { ImmData::parse(self.last_word()).ok() } else { None }
    }

    /// The key to invalidate, if the opcode has one.
    #[inline]
    pub fn ieth(&self) -> Option<Rkey> {
        if self.has(HeaderSet::IETH) { Rkey::parse_ieth(self.last_word()).ok() } else { None }
    }

    /// The datagram header, if the opcode has one.
    #[inline]
    pub fn deth(&self) -> Option<DethRepr> {
        if self.has(HeaderSet::DETH) { DethRepr::parse(self.extension()).ok() } else { None }
    }

    /// The flush header, if the opcode has one.
    pub fn feth(&self) -> Option<FethRepr> {
        if self.has(HeaderSet::FETH) { FethRepr::parse(self.extension()).ok() } else { None }
    }

    /// The payload without pad: the part in the first piece and the part in the second. Either may be empty.
    #[inline(always)]
    pub fn payload(&self) -> (&'a [u8], &'a [u8]) {
        let start = self.payload_at as usize;
        if self.tail.is_empty() && self.missing == 0 {
            return (&self.head[start..start + self.payload_len()], &[]);
        }
        self.pieces(start, start + self.payload_len())
    }

    /// Bytes of payload, without pad.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.ip_len() - self.payload_at as usize - self.pad as usize - ICRC_LEN
    }

    /// Whether the pad count is what the payload demands, that is whether payload and pad fill whole 4-byte words
    /// (PadCnt of the BTH). A packet that breaks this is not refused here: a responder has to NAK it.
    #[inline]
    pub fn pad_is_right(&self) -> bool {
        (self.payload_len() + self.pad as usize).is_multiple_of(4)
    }

    /// Bytes `start..end` of the packet as they lie in the two pieces, as far as they were captured.
    #[inline]
    fn pieces(&self, start: usize, end: usize) -> (&'a [u8], &'a [u8]) {
        let split = self.head.len();
        let first = &self.head[start.min(split)..end.min(split)];
        let second = if end > split {
            let end = (end - split).min(self.tail.len());
            &self.tail[start.saturating_sub(split).min(end)..end]
        } else {
            &[]
        };
        (first, second)
    }

    /// What the ICRC would be if it covered every bit of the headers. The packet is not truncated.
    #[inline(always)]
    pub(crate) fn unmasked_icrc(&self) -> [u8; ICRC_LEN] {
        if self.tail.is_empty()
            && let Some((covered, _)) = self.head.split_last_chunk::<ICRC_LEN>()
        {
            return Icrc::begin_covered(covered).finish();
        }
        let (first, second) = self.pieces(0, self.ip_len() - ICRC_LEN);
        let mut icrc = Icrc::begin_covered(first);
        icrc.update(second);
        icrc.finish()
    }

    /// The last four bytes, which may straddle the two pieces.
    #[inline(always)]
    pub(crate) fn stored_icrc(&self) -> [u8; ICRC_LEN] {
        if self.tail.is_empty()
            && let Some(stored) = self.head.last_chunk()
        {
            return *stored;
        }
        let end = self.ip_len();
        let (first, second) = self.pieces(end - ICRC_LEN, end);
        let mut icrc = [0; ICRC_LEN];
        icrc[..first.len()].copy_from_slice(first);
        icrc[first.len()..].copy_from_slice(second);
        icrc
    }
}

/// The IP header, and that a UDP header and a BTH follow it in the same piece.
#[inline(always)]
// rule: rx.length, rx.trailing
fn check_ip(bytes: &[u8]) -> Result<IpLayout, WireError> {
    match bytes.first().map(|b| b >> 4) {
        Some(6) => {
            let ip = Ipv6::new_checked(bytes)?;
            ip.check()?;
            let total = ip.payload_len() as usize + ipv6::LEN;
            Ok(IpLayout { header: ipv6::LEN, total })
        }
        Some(4) => {
            let ip = Ipv4::new_checked(bytes)?;
            ip.check()?;
            Ok(IpLayout { header: ipv4::LEN, total: ip.total_len() as usize })
        }
        Some(version) => Err(WireError::unsupported(Field::IpVersion, version.into(), "4 or 6")),
        None => Err(WireError::too_short(Field::Ipv4Header, 0, ipv4::LEN)),
    }
}

/// UDP and what is in it. `head` and `tail` end with the IP packet, or `missing` bytes before.
#[inline(always)]
// rule: rx.length, rx.tver, rx.opcode
fn check_transport<'a>(head: &'a [u8], tail: &'a [u8], ip: IpLayout, missing: usize) -> Result<Packet<'a>, WireError> {
    let bth_at = ip.header + udp::LEN;
    let smallest = bth_at + bth::LEN + ICRC_LEN;
    if ip.total < smallest {
        return Err(ip.shorter_than(smallest));
    }
    if head.len() < bth_at + bth::LEN {
        return Err(ends_in_headers(head.len(), bth_at + bth::LEN));
    }
    let udp = Udp::new_unchecked(&head[ip.header..]);
    if udp.dst_port() != ROCE_PORT {
        return Err(WireError::unsupported(Field::UdpDstPort, udp.dst_port().into(), "4791"));
    }
    if udp.length() as usize != ip.total - ip.header {
        return Err(udp_length_differs(udp.length(), ip.total - ip.header));
    }
    let view = Bth::new_unchecked(&head[bth_at..]);
    let opcode = bth::check(&view)?;
    let payload_at = bth_at + bth::LEN + opcode.headers().byte_len();
    let pad = view.pad() as usize;
    if ip.total < payload_at + pad + ICRC_LEN {
        return Err(udp_too_short(pad, ip.total - ip.header, payload_at - ip.header));
    }
    if head.len() < payload_at {
        return Err(ends_in_headers(head.len(), payload_at));
    }
    if opcode.payload_rule() == PayloadRule::Empty && ip.total != payload_at + ICRC_LEN {
        return Err(payload_not_allowed(ip.total - payload_at - ICRC_LEN));
    }
    Ok(Packet { head, tail, missing, opcode, bth_at: bth_at as u8, payload_at: payload_at as u8, pad: pad as u8 })
}

#[cold]
fn ends_in_headers(len: usize, need: usize) -> WireError {
    WireError::too_short(Field::Headers, len, need)
}

#[cold]
fn udp_length_differs(value: u16, expected: usize) -> WireError {
    let reason = Reason::Differs { value: value.into(), what: "what the IP header leaves", expected: expected as u32 };
    WireError { field: Field::UdpLength, reason }
}

#[cold]
fn udp_too_short(pad: usize, udp_len: usize, headers: usize) -> WireError {
    if udp_len < headers + ICRC_LEN {
        let what = "UDP, BTH, extension headers and ICRC";
        return WireError::shorter_than(Field::UdpLength, udp_len, what, headers + ICRC_LEN);
    }
    WireError::longer_than(Field::BthPad, pad, "the bytes before the ICRC", udp_len - headers - ICRC_LEN)
}

#[cold]
fn payload_not_allowed(len: usize) -> WireError {
    WireError { field: Field::Payload, reason: Reason::NotAllowed { len: len as u32 } }
}
