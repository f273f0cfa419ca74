//! The packet lab: RoCE v2 as a ladder diagram, packet by packet, for those who teach and those who learn.
//!
//! In: a [`Scenario`] by name, a packet [`script`], or packets that somebody captured ([`capture`]). Out: a [`Ladder`], and from it [`text`] for a
//! terminal or one self-contained HTML [`page`].
//!
//! A scenario runs on two whole endpoints of the transport, joined by a simulated network in virtual time. What stands beside
//! the ladder (states, PSNs, windows, timers, work requests) is what these endpoints say of themselves after each step.
#![deny(unsafe_code)]

pub mod capture;
pub mod describe;
pub mod fields;
pub mod ladder;
mod outcome;
mod page;
mod requests;
mod scenario;
pub mod script;
mod text;
mod words;
mod world;

pub use ladder::Ladder;
pub use page::page;
pub use scenario::{SCENARIOS, Scenario};
pub use text::{steps, text};
