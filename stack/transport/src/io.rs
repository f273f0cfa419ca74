//! What crosses the transport's doors: packets in and out, and the place they are written to.
//!
//! A packet is given from the IP header on and may lie in two pieces; its headers always lie in the first.
//! Ethernet, VLAN tags and MAC addresses are the engine's: the transport only carries a [`PathId`].

use xroce_wire::{Gid, Qpn};

/// Index into the engine's table of next hops. The transport never looks behind it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PathId(pub u32);

/// What a frame is for: a port keeps a reserve of places for [`TxClass::Response`], so that a flood of requests
/// never keeps an ACK from leaving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxClass {
    /// A packet that a requester sends.
    Request,
    /// An ACK, NAK or the response to a READ or an atomic.
    Response,
}

/// A received packet from the IP header on. Bytes behind the end that the IP header states are ignored.
#[derive(Clone, Copy, Debug)]
pub struct RxPacket<'a> {
    /// The first piece; holds all headers.
    pub head: &'a [u8],
    /// The second piece, empty for most packets.
    pub tail: &'a [u8],
}

/// What is known of a received packet besides its bytes.
#[derive(Clone, Copy, Default, Debug)]
pub struct RxMeta {
    /// VLAN id of the frame, if it was tagged.
    pub vlan: Option<u16>,
    /// The packet came over the engine's inner loop and never was on a wire.
    pub local: bool,
}

/// Room for one packet from the IP header on; `head.len() + tail.len()` is exactly what was asked for.
#[derive(Debug)]
pub struct TxPacket<'a> {
    /// The first piece; has room for all headers.
    pub head: &'a mut [u8],
    /// The second piece, empty for most packets.
    pub tail: &'a mut [u8],
}

/// Where `poll_transmit` writes packets. Implemented by the engine, which puts the layer-2 header in front.
pub trait TxSink {
    /// Room for a packet of `len` bytes (from the IP header on) towards `path`, or `None` when the port has none now.
    ///
    /// A reservation that is not followed by a [`Transmit`] is given up by the next call.
    fn reserve(&mut self, path: PathId, len: usize, class: TxClass) -> Option<TxPacket<'_>>;
}

/// The packet written into the last reservation is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its next hop.
    pub path: PathId,
    /// Its length in bytes, from the IP header to the ICRC.
    pub len: usize,
    /// The queue pair that sends it.
    pub qpn: Qpn,
}

/// What an address vector was resolved to when the queue pair was moved to RTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpPath {
    /// The next hop.
    pub path: PathId,
    /// Our address: packets for this QP must be sent to it.
    pub src: Gid,
    /// The peer's address: packets for this QP must come from it.
    pub dst: Gid,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN, as they stand in the IP header.
    pub traffic_class: u8,
    /// 20 bits; also the source of the UDP source port.
    pub flow_label: u32,
}
