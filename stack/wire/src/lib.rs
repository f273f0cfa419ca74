//! RoCE v2 on the wire.
//!
//! In: bytes from the IP header on (and helpers for Ethernet and 802.1Q). Out: checked views, `Repr` values and the ICRC.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
