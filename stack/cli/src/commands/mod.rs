//! One subcommand a module: its arguments enter, its [`Outcome`] and its output leave.

pub mod agent;
pub mod completions;
pub mod decode;
pub mod devinfo;
pub mod doctor;
pub mod lab;
pub mod man;
pub mod perf;
pub mod pingpong;
pub mod script;
pub mod stat;
pub mod top;

/// How a command ended that could do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All as it should be: exit code 0.
    Done,
    /// The answer is bad news, already told: exit code 1.
    Failed,
}

/// The arguments ask for what there is not: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);
