//! What a device is known to do otherwise than the scripts ask for: a file of script names and reasons.
//!
//! In: such a file. Out: for the outcome of each script, whether it is news. It holds in both directions: a deviation that is
//! not listed is news, and so is a listed one that does not show any more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::names::{self, EventName};
use crate::report::{Report, Verdict};

/// Why a file of known deviations cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KnownError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A line of it is wrong.
    #[error("{}:{line}: {what}; a line is: folder/script.roce[:LINE] REASON, or: no event NAME REASON", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
}

/// One deviation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deviation {
    /// The line of the script at which it shows, where that is always the same one.
    pub line: Option<u32>,
    /// What the device does, in words.
    pub reason: String,
}

/// The deviations of one device, by script.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    deviations: BTreeMap<String, Deviation>,
    lacking: Vec<EventName>,
}

/// The outcome of a script, seen beside what is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As it should be.
    Passed,
    /// Not as it should be, and nobody knew.
    Failed,
    /// Not as it should be, as was known.
    Deviates(String),
    /// As it should be, or failed elsewhere, and the list says otherwise: the list is out of date.
    OutOfDate(String),
    /// This target cannot play the script.
    CannotRun(String),
}

impl Known {
    /// Reads a file. Empty lines, and those that begin with `#`, say nothing.
    ///
    /// # Errors
    /// It cannot be read, or a line of it.
    pub fn read(path: &Path) -> Result<Known, KnownError> {
        let text = std::fs::read_to_string(path).map_err(|error| KnownError::Read { path: path.to_owned(), error })?;
        let wrong = |(line, what)| KnownError::Line { path: path.to_owned(), line, what };
        Known::parse(&text).map_err(wrong)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// The number of the first line that is wrong, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Known, (usize, String)> {
        let (mut deviations, mut lacking) = (BTreeMap::new(), Vec::new());
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(event) = line.strip_prefix("no event ") {
                let name = event.split_whitespace().next().unwrap_or("");
                let event = names::find(names::EVENTS, name);
                lacking.push(event.ok_or_else(|| (number, format!("{name:?} is not the name of an event")))?);
                continue;
            }
            let Some((name, reason)) = line.split_once(char::is_whitespace) else {
                return Err((number, "there is no reason".into()));
            };
            let (name, at) = match name.split_once(':') {
                None => (name, None),
                Some((name, at)) => match at.parse() {
                    Ok(at) => (name, Some(at)),
                    Err(_) => return Err((number, format!("{at:?} is not the number of a line"))),
                },
            };
            let deviation = Deviation { line: at, reason: reason.trim().to_owned() };
            if deviations.insert(name.to_owned(), deviation).is_some() {
                return Err((number, format!("{name} stands twice in this file")));
            }
        }
        Ok(Known { deviations, lacking })
    }

    /// What is known of a script.
    pub fn of(&self, name: &str) -> Option<&Deviation> {
        self.deviations.get(name)
    }

    /// The events that the device never raises: no script waits for them, and one that comes is news.
    pub fn lacking_events(&self) -> &[EventName] {
        &self.lacking
    }

    /// The scripts that are listed.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.deviations.keys().map(String::as_str)
    }

    /// The outcome of a script beside what is known of it.
    pub fn judge(&self, report: &Report) -> Outcome {
        match (&report.verdict, self.of(&report.name)) {
            (Verdict::CannotRun(reason), _) => Outcome::CannotRun(reason.clone()),
            (Verdict::Passed, None) => Outcome::Passed,
            (Verdict::Passed, Some(known)) => Outcome::OutOfDate(format!("it passed; known was: {}", known.reason)),
            (Verdict::Failed(_), None) => Outcome::Failed,
            (Verdict::Failed(failure), Some(known)) => match known.line {
                Some(line) if line != failure.line => Outcome::OutOfDate(format!(
                    "it failed at line {}; known was line {line}: {}",
                    failure.line, known.reason
                )),
                _ => Outcome::Deviates(known.reason.clone()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, verdict: Verdict) -> Report {
        Report { name: name.into(), rule: String::new(), trace: Vec::new(), verdict }
    }

    #[test]
    fn the_list_holds_in_both_directions() {
        let known = Known::parse("# rxe\n\nrc/a.roce one packet too few\nrc/b.roce:7   late\n").unwrap();
        let judge = |name, verdict| known.judge(&report(name, verdict));
        assert_eq!(judge("rc/c.roce", Verdict::Passed), Outcome::Passed);
        assert_eq!(judge("rc/c.roce", Verdict::failed(1, "x")), Outcome::Failed);
        assert_eq!(judge("rc/a.roce", Verdict::failed(3, "x")), Outcome::Deviates("one packet too few".into()));
        assert_eq!(judge("rc/b.roce", Verdict::failed(7, "x")), Outcome::Deviates("late".into()));
        assert!(matches!(judge("rc/b.roce", Verdict::failed(8, "x")), Outcome::OutOfDate(_)));
        assert!(matches!(judge("rc/a.roce", Verdict::Passed), Outcome::OutOfDate(_)));
        assert!(matches!(judge("rc/a.roce", Verdict::CannotRun("x".into())), Outcome::CannotRun(_)));
    }

    #[test]
    fn a_wrong_line_is_named() {
        assert_eq!(Known::parse("rc/a.roce\n").unwrap_err().0, 1);
        assert_eq!(Known::parse("\nrc/a.roce:x why\n").unwrap_err().0, 2);
        assert!(Known::parse("a b\na c\n").unwrap_err().1.contains("twice"));
        assert_eq!(Known::parse("no event COMMEST never\n").unwrap_err().0, 1);
        assert_eq!(Known::parse("no event COMM_EST never\n").unwrap().lacking_events().len(), 1);
    }
}
