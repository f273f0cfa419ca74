//! The skeleton that libbpf-cargo wrote from `bpf/roce.bpf.c`. What enters: nothing. What leaves: the open and loaded
//! object as Rust types, used by `program.rs` only.

#![allow(missing_docs, unsafe_code, dead_code, non_snake_case, non_camel_case_types)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks)]

include!(concat!(env!("OUT_DIR"), "/roce.skel.rs"));
