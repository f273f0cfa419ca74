//! `xroce top`: what each queue pair does per second, now.
//!
//! In: two reports of each device, some time apart. Out: a table that is drawn anew on a terminal, plain tables elsewhere, or JSON.

mod screen;
mod table;

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use xroce::stat::{Report, Which};

use super::Outcome;
use super::stat::{Select, StatError};
use crate::number::positive;
use screen::Screen;
use table::Row;

/// Version of the JSON object; grows when a field changes its meaning or goes away.
const JSON_VERSION: u32 = 1;

/// Show what each queue pair does per second: messages, bits, packets, what was sent again.
///
/// On a terminal the table is drawn anew each time and q ends it; elsewhere tables are printed one behind the other.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    select: Select,
    /// Seconds between two tables
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1, value_parser = positive::<u32>)]
    interval: u32,
    /// One table, then end
    #[arg(long)]
    once: bool,
    /// One JSON object a line in place of each table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Json<'a> {
    version: u32,
    qps: &'a [Row],
}

impl Args {
    /// Everything there is; nothing, while nobody runs a device: one may come.
    fn collect(&self) -> Result<Vec<Report>, StatError> {
        match self.select.collect(Which::All) {
            Err(StatError::Nobody { .. } | StatError::Ask(_)) if !self.once => Ok(Vec::new()),
            other => other,
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome, StatError> {
    let interval = Duration::from_secs(args.interval.into());
    let before = args.collect()?;
    if !args.json && !args.once && io::stdout().is_terminal() && io::stdin().is_terminal() {
        return watch(args, before, interval);
    }
    print(args, before, interval)
}

/// On a terminal, until q.
fn watch(args: &Args, mut before: Vec<Report>, interval: Duration) -> Result<Outcome, StatError> {
    let mut screen = Screen::open()?;
    let mut rows: Vec<Row> = Vec::new();
    let mut due = Instant::now() + interval;
    loop {
        let (width, height) = screen.size();
        screen.draw(&table::text(&rows, before.len(), width, height))?;
        // A key other than q, or a change of the terminal's size, draws anew.
        if screen.wait(due.saturating_duration_since(Instant::now()))? {
            return Ok(Outcome::Done);
        }
        if Instant::now() >= due {
            let now = args.collect()?;
            rows = table::rows(&before, &now);
            before = now;
            // Who had to wait for an answer does not make up for it.
            due = (due + interval).max(Instant::now());
        }
    }
}

/// Not on a terminal, until the reader goes, or once.
fn print(args: &Args, mut before: Vec<Report>, interval: Duration) -> Result<Outcome, StatError> {
    loop {
        thread::sleep(interval);
        let now = args.collect()?;
        let rows = table::rows(&before, &now);
        let text = if args.json {
            let json = Json { version: JSON_VERSION, qps: &rows };
            serde_json::to_string(&json).unwrap_or_default() + "\n"
        } else {
            table::text(&rows, now.len(), usize::MAX, usize::MAX).join("\n") + "\n"
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        if args.once {
            return Ok(Outcome::Done);
        }
        before = now;
    }
}
