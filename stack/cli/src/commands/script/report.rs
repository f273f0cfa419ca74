//! What came of each script, for people and for programs.
//!
//! In: reports. Out: a line or more for each script as it ends, and counts; or one JSON object.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use xroce_script::known::Outcome;
use xroce_script::report::Report;

/// Version of the JSON object; grows when a field changes its meaning or goes away.
const JSON_VERSION: u32 = 1;

/// A script that was played.
pub struct Played {
    /// What happened.
    pub report: Report,
    /// Beside what is known.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

impl Played {
    fn word(&self) -> &'static str {
        match self.outcome {
            Outcome::Passed => "passed",
            Outcome::Failed => "failed",
            Outcome::Deviates(_) => "deviates",
            Outcome::OutOfDate(_) => "out_of_date",
            Outcome::CannotRun(_) => "cannot_run",
        }
    }

    fn reason(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Passed | Outcome::Failed => None,
            Outcome::Deviates(reason) | Outcome::OutOfDate(reason) | Outcome::CannotRun(reason) => Some(reason),
        }
    }
}

/// How many scripts ended how.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Summary {
    scripts: u32,
    passed: u32,
    failed: u32,
    deviates: u32,
    out_of_date: u32,
    cannot_run: u32,
}

impl Summary {
    /// Counts one more.
    pub fn count(&mut self, played: &Played) {
        self.scripts += 1;
        *match played.outcome {
            Outcome::Passed => &mut self.passed,
            Outcome::Failed => &mut self.failed,
            Outcome::Deviates(_) => &mut self.deviates,
            Outcome::OutOfDate(_) => &mut self.out_of_date,
            Outcome::CannotRun(_) => &mut self.cannot_run,
        } += 1;
    }

    /// Nothing came that was not expected.
    pub fn is_good(&self) -> bool {
        self.failed == 0 && self.out_of_date == 0
    }
}

#[derive(Serialize)]
struct JsonScript {
    name: String,
    outcome: &'static str,
    /// Why it deviates, cannot run, or what is out of date.
    reason: Option<String>,
    /// The line at which a failure showed; 0: at the end.
    line: Option<u32>,
    /// What was wrong, in a sentence.
    failure: Option<String>,
    differences: Vec<JsonDifference>,
    /// What happened, where it did not end as it should; a line each.
    trace: Vec<String>,
    ms: u64,
}

#[derive(Serialize)]
struct JsonDifference {
    field: &'static str,
    expected: String,
    seen: String,
}

#[derive(Serialize)]
struct Json<'a> {
    version: u32,
    summary: &'a Summary,
    scripts: &'a [JsonScript],
}

/// Says what came of the scripts.
pub struct Printer {
    json: bool,
    verbose: bool,
    scripts: Vec<JsonScript>,
}

impl Printer {
    /// Text as it comes, or JSON at the end.
    pub fn new(json: bool, verbose: bool) -> Printer {
        Printer { json, verbose, scripts: Vec::new() }
    }

    /// One script has been played.
    pub fn show(&mut self, played: &Played) -> io::Result<()> {
        if self.json {
            self.scripts.push(json_of(played, self.verbose));
            return Ok(());
        }
        let mut out = io::stdout().lock();
        let text = text_of(played, self.verbose);
        ignore_closed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
    }

    /// All have been played.
    pub fn finish(&self, summary: &Summary) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let written = if self.json {
            let json = Json { version: JSON_VERSION, summary, scripts: &self.scripts };
            serde_json::to_writer_pretty(&mut out, &json).map_err(io::Error::from).and_then(|()| writeln!(out))
        } else {
            let Summary { scripts, passed, failed, deviates, out_of_date, cannot_run } = summary;
            let mut text = format!("{scripts} scripts: {passed} passed, {failed} failed");
            for (count, what) in [
                (deviates, "deviate as known"),
                (out_of_date, "not as the list of known deviations says"),
                (cannot_run, "cannot run here"),
            ] {
                if *count > 0 {
                    text.push_str(&format!(", {count} {what}"));
                }
            }
            writeln!(out, "{text}")
        };
        ignore_closed(written)
    }
}

/// Who reads our output may have seen enough.
fn ignore_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn trace_of(report: &Report, whole: bool) -> String {
    let mut trace = String::new();
    let written = if whole { report.write_trace(&mut trace) } else { report.write_end_of_trace(&mut trace) };
    written.expect("a String takes anything");
    trace
}

fn text_of(played: &Played, verbose: bool) -> String {
    let Played { report, outcome, .. } = played;
    let name = &report.name;
    let mut text = match outcome {
        Outcome::Passed => format!("passed      {name}\n"),
        Outcome::Failed => format!("FAILED      {report}"),
        Outcome::Deviates(reason) => format!("deviates    {name}: {reason}\n"),
        Outcome::OutOfDate(reason) => format!("OUT OF DATE {name}: {reason}\n"),
        Outcome::CannotRun(reason) => format!("cannot run  {name}: {reason}\n"),
    };
    let failed_elsewhere = matches!(outcome, Outcome::OutOfDate(_)) && report.failure().is_some();
    if failed_elsewhere || (verbose && matches!(outcome, Outcome::Deviates(_))) {
        text.push_str(&report.to_string());
    }
    if verbose && report.passed() {
        text.push_str(&trace_of(report, true));
    }
    text
}

fn json_of(played: &Played, verbose: bool) -> JsonScript {
    let failure = played.report.failure();
    let differences = failure.map_or(&[][..], |failure| &failure.differences);
    let trace = if failure.is_some() || verbose { trace_of(&played.report, verbose) } else { String::new() };
    JsonScript {
        name: played.report.name.clone(),
        outcome: played.word(),
        reason: played.reason().map(str::to_owned),
        line: failure.map(|failure| failure.line),
        failure: failure.map(|failure| failure.why.clone()),
        differences: differences
            .iter()
            .map(|d| JsonDifference { field: d.what, expected: d.expected.clone(), seen: d.seen.clone() })
            .collect(),
        trace: trace.lines().map(str::to_owned).collect(),
        ms: played.took.as_millis() as u64,
    }
}
