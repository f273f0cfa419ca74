//! Packet scripts: the rules of RC and UC, one behaviour a file, played against a device.
//!
//! In: a script (the format is described in tests/scripts/README.md) and a [`Target`], the device under test. The script is
//! the device's peer: it makes packets by hand, says what the device's application posts, and what must come out, when.
//! Out: a [`Report`], which for a failure shows what was expected beside what was seen.
//!
//! [`parse`](parse::parse) reads a script, [`files`] finds them, [`run`](runner::run) plays one. [`LocalTarget`] is an
//! [`Endpoint`](xroce_transport::Endpoint) in virtual time. [`LiveTarget`] is any device: its packets come over a
//! [`Wire`](live::Wire) that somebody lends, and its application is an [`agent`] that makes verbs calls by remote control.
#![deny(unsafe_code)]

pub mod agent;
pub mod craft;
pub mod error;
pub mod expr;
pub mod files;
pub mod history;
pub mod known;
pub mod live;
pub mod local;
mod memory;
pub mod model;
pub mod names;
pub mod packet;
pub mod parse;
pub mod report;
pub mod runner;
pub mod show;
pub mod target;

pub use error::ParseError;
pub use live::LiveTarget;
pub use local::LocalTarget;
pub use model::Script;
pub use report::Report;
pub use target::Target;
