//! Packet scripts: the rules of RC and UC, one behaviour a file, played against a device.
//!
//! In: a script (`rc/*.roce`, `uc/*.roce`; the format is described in README.md) and a [`Target`], the device under test.
//! The script is the device's peer: it makes packets by hand, says what the device's application posts, and what must come
//! out, when. Out: a [`Report`], which for a failure shows what was expected beside what was seen.
//!
//! [`parse`](parse::parse) reads a script, [`run`](runner::run) plays it. [`LocalTarget`] is an
//! [`Endpoint`](xroce_transport::Endpoint) in virtual time; a device across a wire is another [`Target`], and the scripts
//! marked `where: any` ask nothing that only a local one can tell.
#![deny(unsafe_code)]

pub mod craft;
pub mod error;
pub mod expr;
pub mod local;
mod memory;
pub mod model;
pub mod names;
pub mod packet;
pub mod parse;
pub mod report;
pub mod rules;
pub mod runner;
pub mod show;
pub mod suite;
pub mod target;

pub use error::ParseError;
pub use local::LocalTarget;
pub use model::Script;
pub use report::Report;
pub use target::Target;
