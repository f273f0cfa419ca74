//! What the tables in docs/ rest on: rules and where they stand in the code, reports and the tests that decide them. Enters: the
//! repository's own sources. Leaves: what is written there, and Markdown.

#![forbid(unsafe_code)]

pub mod compliance;
pub mod regressions;
pub mod source;
