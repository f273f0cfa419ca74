//! The packet scripts of this folder, and the table of rules that they cover.
//!
//! In: `rc/*.roce`, `uc/*.roce` and RULES.md. Out: the scripts as values of [`xroce_script`], which plays them, and RULES.md
//! with the scripts of each rule.
#![forbid(unsafe_code)]

pub mod rules;
pub mod suite;
