//! The table of a matrix run. Enters: rows that are functions, by name. Leaves: what became of each, and a summary.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::time::Instant;

use super::{Known, Station};

/// What became of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As the specification has it.
    Pass,
    /// As it has it but for known faults of the peer.
    Tolerated(Vec<Known>),
    /// Not run, for this reason.
    Skip(String),
    /// Not as it should be.
    Fail(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "pass",
            Self::Tolerated(_) => "tolerated",
            Self::Skip(_) => "skip",
            Self::Fail(_) => "FAIL",
        })
    }
}

/// Rows and their outcomes.
#[derive(Default)]
pub struct Table {
    rows: Vec<(String, Outcome, f64)>,
}

thread_local! {
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

impl Table {
    /// Runs a row and prints its line. A panic in it is a failure of this row only.
    pub fn run(&mut self, name: &str, station: &mut Station, row: impl FnOnce(&mut Station)) {
        let begun = Instant::now();
        station.tolerated.clear();
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            PLACE.with(|p| *p.borrow_mut() = place);
        }));
        let result = panic::catch_unwind(AssertUnwindSafe(|| row(station)));
        panic::set_hook(hook);
        let outcome = match result {
            Err(payload) => Outcome::Fail(format!("{} ({})", text(payload.as_ref()), PLACE.with(RefCell::take))),
            Ok(()) if station.tolerated.is_empty() => Outcome::Pass,
            Ok(()) => {
                let mut known = std::mem::take(&mut station.tolerated);
                known.sort_unstable();
                known.dedup();
                Outcome::Tolerated(known)
            }
        };
        self.put(name, outcome, begun.elapsed().as_secs_f64());
    }

    /// A row that is not run.
    pub fn skip(&mut self, name: &str, why: impl Into<String>) {
        self.put(name, Outcome::Skip(why.into()), 0.0);
    }

    fn put(&mut self, name: &str, outcome: Outcome, seconds: f64) {
        let why = match &outcome {
            Outcome::Pass => String::new(),
            Outcome::Tolerated(known) => known.iter().map(|k| format!(" [{k}]")).collect(),
            Outcome::Skip(why) | Outcome::Fail(why) => format!(" {why}"),
        };
        println!("{outcome:9} {name} ({seconds:.1} s){why}");
        self.rows.push((name.to_owned(), outcome, seconds));
    }

    /// How many rows failed.
    pub fn failed(&self) -> usize {
        self.rows.iter().filter(|(_, outcome, _)| matches!(outcome, Outcome::Fail(_))).count()
    }
}

fn text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_else(|| "a panic".to_owned())
}

/// Everything that is not a plain pass by name, then the counts.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |what: &str| self.rows.iter().filter(|(_, outcome, _)| outcome.to_string() == what).count();
        for (name, outcome, _) in &self.rows {
            match outcome {
                Outcome::Pass => {}
                Outcome::Tolerated(known) => {
                    for known in known {
                        writeln!(f, "tolerated  {name}: {known}")?;
                    }
                }
                Outcome::Skip(why) => writeln!(f, "skip       {name}: {why}")?,
                Outcome::Fail(why) => writeln!(f, "FAIL       {name}: {why}")?,
            }
        }
        let [pass, tolerated, skip, fail] = ["pass", "tolerated", "skip", "FAIL"].map(count);
        write!(f, "{pass} passed, {tolerated} tolerated, {skip} skipped, {fail} failed of {} rows", self.rows.len())
    }
}
