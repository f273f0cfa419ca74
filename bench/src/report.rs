//! The table: a row a figure, printed as it comes, kept as JSON, drawn as a plot.
//!
//! In: ratios and what they should be. Out: text, `NAME.json`, `NAME.svg`, and `NAME-ID.svg` for a figure that is a curve.

mod curve;
mod plot;

use std::fs;
use std::path::Path;

use serde::Serialize;

pub use curve::{Curve, Line};

use crate::machine::{Machine, load};
use crate::pair::Result;
use crate::spread::{Ratio, Spread};

/// What a ratio should be.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// No more than that.
    AtMost(f64),
    /// No less than that.
    AtLeast(f64),
    /// To look at.
    None,
}

impl Goal {
    /// Whether the median keeps it.
    pub fn met(self, ratio: f64) -> Option<bool> {
        match self {
            Goal::AtMost(most) => Some(ratio <= most),
            Goal::AtLeast(least) => Some(ratio >= least),
            Goal::None => None,
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtMost(most) => format!("<= {most:.2}"),
            Goal::AtLeast(least) => format!(">= {least:.2}"),
            Goal::None => String::new(),
        }
    }
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// S1 to S10.
    pub id: String,
    /// What is measured, and against what.
    pub name: String,
    /// The unit of both sides.
    pub unit: String,
    /// Both sides and the ratio.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// What the ratio should be.
    pub goal: Goal,
    /// Load of the machine when it was measured.
    pub load: f64,
}

/// All rows of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this format.
    version: u32,
    machine: Machine,
    rounds: usize,
    rows: Vec<Row>,
    curves: Vec<Curve>,
    /// What this machine cannot measure, and why.
    skipped: Vec<String>,
}

impl Report {
    /// Without rows; prints the head of the table.
    pub fn new(rounds: usize) -> Report {
        let machine = Machine::here();
        let Machine { cpu, cpus, kernel, commit, .. } = &machine;
        println!("{cpu}, {cpus} CPUs, Linux {kernel}, commit {commit}; medians of {rounds} rounds [range]");
        println!("{:4} {:62} {:>22} {:>22} {:>20} {:>8}  load", "", "", "ours", "theirs", "ratio", "goal");
        Report { version: 1, machine, rounds, rows: Vec::new(), curves: Vec::new(), skipped: Vec::new() }
    }

    /// A figure was measured.
    pub fn row(&mut self, id: &str, name: &str, unit: &str, ratio: Ratio, goal: Goal) {
        let row = Row { id: id.to_owned(), name: name.to_owned(), unit: unit.to_owned(), ratio, goal, load: load() };
        println!("{}", text(&row));
        self.rows.push(row);
    }

    /// A figure was measured that is a curve.
    pub fn curve(&mut self, curve: Curve) {
        self.curves.push(curve);
    }

    /// A figure cannot be measured on this machine.
    pub fn skip(&mut self, id: &str, name: &str, reason: &str) {
        println!("SKIP {id} {name}: {reason}");
        self.skipped.push(format!("{id} {name}: {reason}"));
    }

    /// Writes `DIRECTORY/NAME.json` and the plots beside it.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn keep(&self, directory: &Path, name: &str) -> Result<()> {
        fs::create_dir_all(directory)?;
        let json = directory.join(format!("{name}.json"));
        fs::write(&json, serde_json::to_string_pretty(self)? + "\n").map_err(|e| format!("{}: {e}", json.display()))?;
        let svg = directory.join(format!("{name}.svg"));
        fs::write(&svg, plot::svg(&self.machine, &self.rows)).map_err(|e| format!("{}: {e}", svg.display()))?;
        println!("kept: {} and {}", json.display(), svg.display());
        for curve in &self.curves {
            let svg = directory.join(format!("{name}-{}.svg", curve.id.to_lowercase()));
            fs::write(&svg, curve::svg(&self.machine, curve)).map_err(|e| format!("{}: {e}", svg.display()))?;
            println!("kept: {}", svg.display());
        }
        Ok(())
    }
}

fn text(row: &Row) -> String {
    let side = |s: &Spread| format!("{} [{}-{}]", short(s.median), short(s.min), short(s.max));
    let Ratio { ours, theirs, ratio } = &row.ratio;
    let met = row.goal.met(ratio.median).map_or(" ", |met| if met { "+" } else { "-" });
    format!(
        "{:4} {:62} {:>22} {:>22} {:>20} {:>8} {met} {:.1}",
        row.id,
        if row.unit.is_empty() { row.name.clone() } else { format!("{}, {}", row.name, row.unit) },
        side(ours),
        side(theirs),
        format!("{:.2} [{:.2}-{:.2}]", ratio.median, ratio.min, ratio.max),
        row.goal.text(),
        row.load,
    )
}

/// Three significant digits.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_kept_or_not() {
        assert_eq!(Goal::AtMost(1.5).met(1.5), Some(true));
        assert_eq!(Goal::AtMost(1.5).met(1.51), Some(false));
        assert_eq!(Goal::AtLeast(0.9).met(0.89), Some(false));
        assert_eq!(Goal::None.met(7.0), None);
    }

    #[test]
    fn a_row_says_which_side_is_which() {
        let ratio = Ratio::of(&[(3.0, 2.0), (4.0, 2.0), (5.0, 2.0)]);
        let row = Row {
            id: "S0".to_owned(),
            name: "x".to_owned(),
            unit: "ns".to_owned(),
            ratio,
            goal: Goal::AtMost(1.5),
            load: 0.5,
        };
        let line = text(&row);
        for part in ["x, ns", "4.00 [3.00-5.00]", "2.00 [2.00-2.00]", "2.00 [1.50-2.50]", "<= 1.50 - 0.5"] {
            assert!(line.contains(part), "{part:?} is not in {line:?}");
        }
        assert_eq!([1234.5, 12.34, 0.12345].map(short), ["1234", "12.3", "0.123"]);
    }
}
