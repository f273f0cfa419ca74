//! The lock-free parts of `stack/transport` and `stack/engine`, built again from their own files on loom's atomics.
//!
//! In: the files as they are. Out: the same types for `tests/`, whose every access to shared memory is one that loom can
//! reorder. What those files take from `crate::sync` is this crate's `sync` here; all else is the real thing.
// The files built in here have unit tests of their own, on the real atomics: clippy would build them here too.
#![cfg(not(test))]
#![deny(unsafe_code)]
#![allow(dead_code, unused_imports, reason = "each file is used in part")]

mod sync;
mod sys;

pub use sync::{Bytes, Weak, weaken};
pub use sys::signals;
pub use xroce_transport::{qp, wc, wr};

#[path = "../../../stack/transport/src/mutation.rs"]
mod mutation;

#[path = "../../../stack/transport/src/prefetch.rs"]
mod prefetch;

#[path = "../../../stack/transport/src/cq/mod.rs"]
pub mod cq;

#[path = "../../../stack/transport/src/wq/mod.rs"]
pub mod wq;

#[path = "../../../stack/transport/src/memory/mod.rs"]
pub mod memory;

#[path = "../../../stack/engine/src/doorbell.rs"]
pub mod doorbell;

#[path = "../../../stack/engine/src/sleep.rs"]
pub mod sleep;

#[path = "../../../stack/engine/src/token.rs"]
pub mod token;
