//! The XDP program that hands RoCE v2 frames to AF_XDP sockets, and its loader.
//!
//! What enters: an interface index, the addresses that are ours, and one AF_XDP socket a receive queue. What leaves:
//! UDP datagrams to port 4791 of our addresses, behind up to two VLAN tags, go to those sockets; every other frame goes
//! on to the kernel untouched. The program is held by a BPF link: it leaves the netdev when [`Attachment`] is dropped
//! and when the process dies, however it dies.
//!
//! Kernel floor: 5.12 (BPF instruction set v3); 5.18 for frames in several pieces (`xdp.frags`).

#![warn(missing_docs)]
#![deny(unsafe_code)]

mod addresses;
mod attach;
mod counters;
mod privilege;
mod program;
mod skel;
mod sys;

pub use addresses::{AddressFilter, MAX_ADDRESSES_PER_FAMILY};
pub use attach::{AttachError, AttachMode, Attachment};
pub use counters::Counters;
pub use privilege::{Capability, explain_denied, memlock_limit};
pub use program::{Faults, LoadError, MapError, Program, ProgramConfig, TestRun};
