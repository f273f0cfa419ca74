//! `xroce lab SCENARIO`: a RoCE conversation as a ladder diagram, packet by packet.
//!
//! A scenario's name enters, or a capture; one HTML page leaves, or a text ladder. Everything runs in memory and in virtual
//! time: no rights, no netdev, and the same page each time.

mod capture;
mod record;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use xroce_lab::{Ladder, SCENARIOS, Scenario};
use xroce_script::files::{self, LoadError};

use super::Outcome;

/// Show a RoCE conversation as a ladder diagram: one self-contained HTML page, or text.
///
/// A scenario is played by two whole endpoints in memory, in virtual time. The page steps through it by the arrow keys: each
/// packet down to its fields and bytes, with what the ICRC covers, and beside it both queue pairs: state, PSNs, window, timers,
/// work requests.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to show
    #[arg(required_unless_present_any = ["list", "from"], value_parser = scenario())]
    scenario: Option<&'static Scenario>,
    /// Show a packet script (*.roce), or the RoCE v2 packets of a pcap or pcapng file, instead
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    from: Option<PathBuf>,
    /// Of a capture: which conversation, counted from 1, those with the most packets first
    #[arg(long, value_name = "N", requires = "from", conflicts_with = "scenario", default_value_t = 1)]
    conversation: usize,
    /// List the scenarios
    #[arg(long, conflicts_with_all = ["scenario", "from", "text", "output"])]
    list: bool,
    /// Write a text ladder to standard output instead of a page
    #[arg(long, conflicts_with = "output")]
    text: bool,
    /// Write what both ends send and receive to this file too, in pcapng
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "list"])]
    pcap: Option<PathBuf>,
    /// Where the page goes; `-` is standard output [default: SCENARIO.html]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Why `lab` could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The script cannot be read.
    #[error(transparent)]
    Script(#[from] LoadError),
    /// The capture cannot be shown.
    #[error("{}: {source}", file.display())]
    Capture {
        /// As given by the user.
        file: PathBuf,
        /// What is wrong with it.
        source: capture::FromError,
    },
    /// The page cannot be made.
    #[error("the page's data: {0}")]
    Page(#[from] serde_json::Error),
    /// The page cannot be written.
    #[error("{}: {source}", file.display())]
    Write {
        /// Where it was to go.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome, LabError> {
    if args.list {
        return print(&list());
    }
    let ladder = match (&args.from, args.scenario) {
        (Some(file), _) => from_file(file, args.conversation)?,
        (None, Some(scenario)) => scenario.run(),
        // The parser has seen to it that there is one.
        (None, None) => return print(&list()),
    };
    if let Some(file) = &args.pcap {
        record::write(file, &ladder).map_err(|source| LabError::Write { file: file.clone(), source })?;
    }
    if args.text {
        return print(&xroce_lab::text(&ladder));
    }
    let page = xroce_lab::page(&ladder)?;
    match &args.output {
        Some(file) if file == Path::new("-") => print(&page),
        Some(file) => write(file, &page),
        None => write(Path::new(&format!("{}.html", ladder.name)), &page),
    }
}

/// The ladder of a script or of a capture.
fn from_file(file: &Path, conversation: usize) -> Result<Ladder, LabError> {
    if file.extension().is_some_and(|extension| extension == files::EXTENSION) {
        return Ok(xroce_lab::script::ladder(&files::load(file)?));
    }
    capture::ladder(file, conversation).map_err(|source| LabError::Capture { file: file.to_owned(), source })
}

/// The name of a scenario, with all of them in the help.
fn scenario() -> impl TypedValueParser<Value = &'static Scenario> {
    let names = SCENARIOS.iter().map(|s| PossibleValue::new(s.name).help(s.title));
    PossibleValuesParser::new(names).try_map(|name| Scenario::find(&name).ok_or("there is no such scenario"))
}

fn list() -> String {
    let width = SCENARIOS.iter().map(|s| s.name.len()).max().unwrap_or(0);
    SCENARIOS.iter().map(|s| format!("{:<width$}  {}\n", s.name, s.title)).collect()
}

fn write(file: &Path, page: &str) -> Result<Outcome, LabError> {
    fs::write(file, page).map_err(|source| LabError::Write { file: file.to_owned(), source })?;
    println!("{}", file.display());
    Ok(Outcome::Done)
}

fn print(text: &str) -> Result<Outcome, LabError> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Who reads our output has seen enough.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(LabError::Write { file: "standard output".into(), source: e })
        }
        _ => Ok(Outcome::Done),
    }
}
