//! xroce over AF_XDP on a veth, in a world that means harm: what the tests and programs of this folder share.
//!
//! What enters: two network namespaces made on the spot. What leaves: verdicts. Everything here needs root; where that or
//! AF_XDP is missing, [`field::Field::new`] says why in a line that begins with `SKIP`.

#![deny(unsafe_code)]

pub mod attack;
pub mod field;
pub mod flow;
pub mod kill;
pub mod leftovers;
pub mod pattern;
pub mod peer;
pub mod soak;
pub mod sys;
