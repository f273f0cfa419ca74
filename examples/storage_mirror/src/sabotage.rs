//! Failures made on purpose: a mirror that could not fail would prove nothing.
//!
//! In: `NODE:HOW`, as `--break` takes it. Out: what a node does wrong.

use std::fmt;
use std::str::FromStr;

/// How a node fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// A byte of its copies changes behind its back, after the last comparison with the log.
    Rot,
    /// It loses what it heard of the logs, before they are compared.
    Forget,
    /// It writes with a wrong rkey.
    Key,
    /// It drops its connections half-way through the first round, as if retries had been spent.
    Lose,
    /// Its program panics.
    Crash,
    /// Its program stops, while its card goes on.
    Hang,
}

const NAMES: [(&str, How); 6] = [
    ("rot", How::Rot),
    ("forget", How::Forget),
    ("key", How::Key),
    ("lose", How::Lose),
    ("crash", How::Crash),
    ("hang", How::Hang),
];

/// Which node fails, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sabotage {
    /// Index of the node.
    pub node: u32,
    /// What it does.
    pub how: How,
}

impl FromStr for Sabotage {
    type Err = String;

    fn from_str(text: &str) -> Result<Sabotage, String> {
        let (node, how) = text.split_once(':').ok_or("NODE:HOW is expected, for example 1:rot")?;
        let node = node.parse().map_err(|e| format!("node {node:?}: {e}"))?;
        let found = NAMES.iter().find(|(name, _)| *name == how);
        let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        let (_, how) = found.ok_or_else(|| format!("{how:?} is none of {}", names.join(", ")))?;
        Ok(Sabotage { node, how: *how })
    }
}

impl fmt::Display for Sabotage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, how)| *how == self.how).map_or("", |(name, _)| name);
        write!(f, "{}:{name}", self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_read_as_it_is_written() {
        for (name, how) in NAMES {
            let sabotage: Sabotage = format!("3:{name}").parse().unwrap();
            assert_eq!(sabotage, Sabotage { node: 3, how });
            assert_eq!(sabotage.to_string(), format!("3:{name}"));
        }
        for wrong in ["rot", "x:rot", "1:", "1:fire"] {
            assert!(wrong.parse::<Sabotage>().is_err(), "{wrong}");
        }
    }
}
