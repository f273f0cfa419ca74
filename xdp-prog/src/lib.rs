//! The XDP program and its loader.
