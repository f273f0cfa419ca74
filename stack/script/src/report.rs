//! What came of playing a script.

use core::fmt;

use crate::packet::Mismatch;
use crate::show;

/// A line of the trace.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When, in nanoseconds since the start.
    pub at: u64,
    /// The line of the script, if it is one.
    pub line: Option<u32>,
    /// How it is marked: ` ` as it should be, `-` expected and not seen, `+` seen and not expected.
    pub mark: char,
    /// What happened, as a script would write it.
    pub text: String,
}

/// Why a script failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The line at which it showed; 0: after the last.
    pub line: u32,
    /// In a sentence.
    pub why: String,
    /// Field by field, where a packet or completion differs.
    pub differences: Vec<Mismatch>,
}

impl Failure {
    /// A failure at a line, in a sentence.
    pub fn new(line: u32, why: impl Into<String>) -> Failure {
        Failure { line, why: why.into(), differences: Vec::new() }
    }
}

/// How a script ended.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// All was as it should be.
    Passed,
    /// The device, or the script, is wrong.
    Failed(Failure),
    /// Nothing was tried: this target cannot do what the script asks for, and that says nothing of the device.
    CannotRun(String),
}

impl Verdict {
    /// A failure at a line, in a sentence.
    pub fn failed(line: u32, why: impl Into<String>) -> Verdict {
        Verdict::Failed(Failure::new(line, why))
    }
}

/// The outcome of one script.
#[derive(Clone, Debug)]
pub struct Report {
    /// The file, as it was named.
    pub name: String,
    /// The rule that the script is about.
    pub rule: String,
    /// What happened, in order.
    pub trace: Vec<Entry>,
    /// How it ended.
    pub verdict: Verdict,
}

impl Report {
    /// All was as it should be.
    pub fn passed(&self) -> bool {
        matches!(self.verdict, Verdict::Passed)
    }

    /// What is wrong, if it failed.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.verdict {
            Verdict::Failed(failure) => Some(failure),
            Verdict::Passed | Verdict::CannotRun(_) => None,
        }
    }
}

impl fmt::Display for Report {
    /// The verdict; for a failure the trace too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failure = match &self.verdict {
            Verdict::Passed => return writeln!(f, "{}: as it should be", self.name),
            Verdict::CannotRun(reason) => return writeln!(f, "{}: cannot run: {reason}", self.name),
            Verdict::Failed(failure) => failure,
        };
        match failure.line {
            0 => writeln!(f, "{}: at the end: {}", self.name, failure.why)?,
            line => writeln!(f, "{}:{line}: {}", self.name, failure.why)?,
        }
        for line in self.rule.lines() {
            writeln!(f, "    {line}")?;
        }
        self.write_end_of_trace(f)?;
        for Mismatch { what, expected, seen } in &failure.differences {
            writeln!(f, "  {what}: expected {expected}, seen {seen}")?;
        }
        Ok(())
    }
}

/// Lines of a trace that a failure shows before the first that is not as it should be, and from there on.
const CONTEXT: usize = 24;

impl Report {
    /// The trace alone: time, line of the script, what happened.
    pub fn write_trace(&self, f: &mut impl fmt::Write) -> fmt::Result {
        write_entries(&self.trace, f)
    }

    /// The part of the trace where it went wrong, if it did, else the end of it.
    pub fn write_end_of_trace(&self, f: &mut impl fmt::Write) -> fmt::Result {
        let wrong = self.trace.iter().position(|entry| entry.mark != ' ').unwrap_or(self.trace.len());
        let from = wrong.saturating_sub(CONTEXT);
        let to = (wrong + CONTEXT).min(self.trace.len());
        if from > 0 {
            writeln!(f, "  ... {from} lines before")?;
        }
        write_entries(&self.trace[from..to], f)?;
        match self.trace.len() - to {
            0 => Ok(()),
            more => writeln!(f, "  ... {more} lines more"),
        }
    }
}

fn write_entries(entries: &[Entry], f: &mut impl fmt::Write) -> fmt::Result {
    for entry in entries {
        let line = entry.line.map_or(String::new(), |line| line.to_string());
        writeln!(f, "{} {:>14} {line:>4}  {}", entry.mark, show::time(entry.at), entry.text)?;
    }
    Ok(())
}
