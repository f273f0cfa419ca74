//! One subcommand a module: its arguments enter, its [`Outcome`] and its output leave.

pub mod decode;
pub mod doctor;

/// How a command ended that could do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All as it should be: exit code 0.
    Done,
    /// The answer is bad news, already told: exit code 1.
    Failed,
}
