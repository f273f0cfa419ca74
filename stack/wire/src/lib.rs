//! RoCE v2 on the wire.
//!
//! In: bytes from the IP header on (and helpers for Ethernet and 802.1Q). Out: checked views, `Repr` values and the ICRC.
//!
//! Every header has a file of its own with three pieces: a private `field` module of byte ranges, a *view* over borrowed
//! bytes (`Bth<T>`, `Reth<T>`, ...) and a plain *`Repr`* value with `LEN`, `parse` and `emit`. [`Packet`] checks a whole
//! packet once and hands out its parts; [`Headers`] writes one, [`Template`] many of one flow.
//!
//! # The panic contract
//!
//! - `new_checked`, `parse`, [`Packet::new_checked`], [`Packet::new_truncated`], [`Link::parse`] and [`dissect()`] take any
//!   bytes at all: they never panic and never allocate. An error names the [`Field`] and the [`Reason`].
//! - Getters and setters of a view made with `new_checked`, and everything on a [`Packet`], never panic.
//! - Getters of a view made with `new_unchecked` panic if the bytes are shorter than the header.
//! - `emit` writes to a buffer of ours, not of the wire: it panics if the buffer is shorter than the header.
//!
//! All multi-byte fields are big-endian, except the ICRC.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
mod view;
mod octets;

pub mod aeth;
pub mod atomic;
pub mod bth;
pub mod cnp;
pub mod credit;
pub mod deth;
pub mod dissect;
pub mod error;
pub mod ethernet;
pub mod feth;
pub mod flow;
pub mod gid;
pub mod headers;
pub mod icrc;
pub mod icrc_memo;
pub mod ieth;
pub mod immdt;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod layout;
pub mod link;
pub mod mtu;
pub mod numbers;
pub mod opcode;
pub mod packet;
pub mod reth;
pub mod rnr;
pub mod template;
pub mod udp;
pub mod vlan;

pub use aeth::{Aeth, AethRepr, NakCode, Syndrome};
pub use atomic::{AtomicAck, AtomicAckRepr, AtomicEth, AtomicEthRepr};
pub use bth::{Bth, BthRepr};
pub use deth::{Deth, DethRepr};
pub use dissect::{Dissection, dissect};
pub use error::{Field, Reason, WireError};
pub use ethernet::{EtherType, Ethernet, EthernetRepr};
pub use feth::{Feth, FethRepr};
pub use flow::udp_src_port;
pub use gid::{Gid, Hex32, ParseGidError};
pub use headers::{Headers, MAX_PAYLOAD_LEN, pad_len};
pub use icrc::{ICRC_LEN, Icrc};
pub use icrc_memo::IcrcMemo;
pub use ieth::Ieth;
pub use immdt::ImmDt;
pub use ip::IpRepr;
pub use ipv4::{Ipv4, Ipv4Repr};
pub use ipv6::{Ipv6, Ipv6Repr};
pub use layout::{Cover, Form, Part, layout};
pub use link::Link;
pub use mtu::PathMtu;
pub use numbers::{ImmData, Lkey, Msn, PKey, Psn, PsnWindow, QKey, Qpn, Rkey};
pub use opcode::{HeaderSet, Opcode, Operation, PayloadRule, Transport};
pub use packet::Packet;
pub use reth::{Reth, RethRepr};
pub use rnr::RnrTimer;
pub use template::{Extension, Fields, Template};
pub use udp::{Udp, UdpRepr};
pub use vlan::{Vlan, VlanRepr};

/// The UDP destination port of RoCE v2 (IANA "roce", IBTA annex A17).
pub const ROCE_PORT: u16 = 4791;

/// The longest run of headers [`Headers::emit`] writes, in bytes: IPv6, UDP, BTH and AtomicETH.
pub const MAX_HEADER_LEN: usize = ipv6::LEN + udp::LEN + bth::LEN + atomic::ATOMIC_ETH_LEN;
