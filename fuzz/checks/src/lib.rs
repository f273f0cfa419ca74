//! What the fuzz targets check.
//!
//! In: bytes that nobody vouches for. Out: nothing, or a panic that says what did not hold. Each module is one target, with a
//! `check` function that libFuzzer calls (`fuzz/fuzz_targets/`) and that `tests/corpus.rs` runs over the committed corpus,
//! so that what was once found stays found without a fuzzer and without a nightly compiler.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "memory that the transport writes to")]
mod arena;
pub mod capture;
pub mod hostile;
pub mod icrc;
pub mod operations;
pub mod parse;
pub mod roundtrip;
pub mod script;

// The command's one-line view of a packet, which its decoder uses under this name.
#[allow(dead_code, reason = "the command uses more of it")]
#[path = "../../../stack/cli/src/describe.rs"]
mod describe;

/// A target: its name, which is that of its folder in `fuzz/corpus/`, and its check.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("capture", capture::check),
    ("hostile", hostile::check),
    ("icrc", icrc::check),
    ("operations", operations::check),
    ("parse", parse::check),
    ("roundtrip", roundtrip::check),
    ("script", script::check),
];
