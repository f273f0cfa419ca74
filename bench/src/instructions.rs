//! S10: counts instructions with callgrind and compares them with the table in the repository.
//!
//! In: valgrind, this program itself, `bench/instructions.tsv`. Out: instructions a packet (or a request) of each way, and
//! which have grown. Counts depend on the compiler, so the table names the one it was made with.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::pair::Result;
use crate::paths::Traffic;

/// By how much a count may be above the table.
const TOLERANCE: f64 = 0.02;

/// Rounds counted, and rounds before them that are taken off again.
const ROUNDS: usize = 200;
const WARM_UP: usize = 50;

/// The traffic by name.
pub const TRAFFIC: &[(&str, Traffic)] = &[
    ("write-64", Traffic { write: true, size: 64, batch: 16 }),
    ("send-64", Traffic { write: false, size: 64, batch: 16 }),
    ("write-16k", Traffic { write: true, size: 16 << 10, batch: 1 }),
];

/// One row: the traffic, the function that is counted, and by what the count is divided.
struct Row {
    traffic: &'static str,
    meter: &'static str,
    per: Per,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Per {
    Packet,
    Request,
    Round,
}

impl Per {
    fn name(self) -> &'static str {
        match self {
            Per::Packet => "packet",
            Per::Request => "request",
            Per::Round => "ACK",
        }
    }

    fn count(self, traffic: &Traffic) -> usize {
        match self {
            Per::Packet => traffic.packets(),
            Per::Request => traffic.batch,
            Per::Round => 1,
        }
    }
}

const fn row(traffic: &'static str, meter: &'static str, per: Per) -> Row {
    Row { traffic, meter, per }
}

const ROWS: &[Row] = &[
    row("write-64", "post", Per::Request),
    row("write-64", "send", Per::Packet),
    row("write-64", "receive", Per::Packet),
    row("write-64", "acknowledge", Per::Round),
    row("write-64", "complete", Per::Request),
    row("write-64", "poll", Per::Request),
    row("send-64", "send", Per::Packet),
    row("send-64", "receive", Per::Packet),
    row("write-16k", "send", Per::Packet),
    row("write-16k", "receive", Per::Packet),
    row("write-16k", "complete", Per::Round),
];

/// What `count` does with the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// Prints the counts beside it.
    Compare,
    /// The same, and fails when a count has grown by more than 2 %.
    Check,
    /// Writes it anew.
    Update,
}

/// A counted row: its name, and the count.
struct Counted {
    name: String,
    instructions: f64,
}

/// Counts every row.
///
/// # Errors
/// When valgrind is missing or fails; with [`Table::Check`], when a count has grown.
pub fn count(table: Table) -> Result<()> {
    let compiler = env!("XROCE_BENCH_RUSTC");
    let rows: Vec<Counted> = ROWS.iter().map(measure).collect::<Result<_>>()?;
    let path = table_path();
    if table == Table::Update {
        std::fs::write(&path, render(compiler, &rows)).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("written: {}", path.display());
        return Ok(());
    }
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let known = parse(&text);
    let mut grown = Vec::new();
    for row in &rows {
        let before = known.iter().find(|(name, _)| *name == row.name).map(|(_, count)| *count);
        let change = before.map_or_else(String::new, |b| format!("{:+.1} %", (row.instructions / b - 1.0) * 100.0));
        let before_text = before.map_or_else(|| "-".to_owned(), |b| format!("{b:.1}"));
        println!("{:36} {:>9.1} {before_text:>9} {change:>8}", row.name, row.instructions);
        if before.is_none_or(|b| row.instructions > b * (1.0 + TOLERANCE)) {
            grown.push(row.name.as_str());
        }
    }
    let other = text.lines().find_map(|l| l.strip_prefix("# compiler: ")).is_none_or(|made_by| made_by != compiler);
    match table {
        Table::Check if other => {
            println!("SKIP instruction counts: the table was made by another compiler than {compiler}");
            Ok(())
        }
        Table::Check if !grown.is_empty() => Err(format!(
            "more instructions than bench/instructions.tsv says: {}. Find out why; if it has to be, `make instructions` \
             with TABLE=update writes the table anew",
            grown.join(", ")
        )
        .into()),
        _ => Ok(()),
    }
}

fn table_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.tsv")
}

fn render(compiler: &str, rows: &[Counted]) -> String {
    let mut text = String::from(
        "# Instructions on each way of a packet, counted by callgrind. Made by `make instructions TABLE=update`.\n",
    );
    text.push_str(&format!("# compiler: {compiler}\n"));
    for row in rows {
        text.push_str(&format!("{}\t{:.1}\n", row.name, row.instructions));
    }
    text
}

fn parse(text: &str) -> Vec<(String, f64)> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('\t'))
        .filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?)))
        .collect()
}

fn measure(row: &Row) -> Result<Counted> {
    let traffic = TRAFFIC.iter().find(|(name, _)| *name == row.traffic).map(|(_, t)| t).ok_or("no such traffic")?;
    // The first rounds grow what grows once; two runs of different length leave them out.
    let (short, long) = (collected(row, WARM_UP)?, collected(row, WARM_UP + ROUNDS)?);
    let instructions = (long - short) as f64 / (ROUNDS * row.per.count(traffic)) as f64;
    Ok(Counted { name: format!("{} {}, a {}", row.traffic, row.meter, row.per.name()), instructions })
}

/// Instructions inside the meter function during so many rounds.
fn collected(row: &Row, rounds: usize) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect=*paths*meter_{}*", row.meter))
        .arg(std::env::current_exe()?)
        .args(["path", row.traffic, "--rounds", &rounds.to_string()])
        .stdout(Stdio::null())
        .output()
        .map_err(|e| format!("valgrind: {e}; dev/deps-bench installs it"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said
        .lines()
        .find_map(|line| line.split("Collected :").nth(1))
        .and_then(|count| count.trim().parse().ok())
        .filter(|count| output.status.success() && *count > 0);
    collected.ok_or_else(|| format!("callgrind counted nothing in {}:\n{said}", row.meter).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_comes_back_as_it_was_written() {
        let rows = [Counted { name: "a b, a packet".to_owned(), instructions: 12.34 }];
        assert_eq!(parse(&render("rustc 1", &rows)), [("a b, a packet".to_owned(), 12.3)]);
    }

    #[test]
    fn every_row_has_its_traffic_and_its_place_in_the_table() {
        let text = std::fs::read_to_string(table_path()).unwrap();
        let known = parse(&text);
        for row in ROWS {
            assert!(TRAFFIC.iter().any(|(name, _)| *name == row.traffic), "{}", row.traffic);
            let name = format!("{} {}, a {}", row.traffic, row.meter, row.per.name());
            assert!(
                known.iter().any(|(n, _)| *n == name),
                "{name} is not in the table: make instructions TABLE=update"
            );
        }
        assert_eq!(known.len(), ROWS.len());
    }

    /// Report H44: software RoCE far behind TCP, for a CRC of several instructions a byte. Copying a byte into a frame and taking the
    /// CRC of it, or looking at the CRC and copying the byte out, costs less than one. What the table says is what the machine
    /// does: `make test` counts.
    #[test]
    fn h44_a_byte_costs_less_than_one_instruction() {
        let known = parse(&std::fs::read_to_string(table_path()).unwrap());
        let count = |name: &str| known.iter().find(|(n, _)| n == name).map(|(_, count)| *count).unwrap();
        for way in ["send", "receive"] {
            let (small, full) =
                (count(&format!("write-64 {way}, a packet")), count(&format!("write-16k {way}, a packet")));
            let a_byte = (full - small) / (1024.0 - 64.0);
            assert!(a_byte < 1.0, "{way}: {a_byte:.2} instructions a byte");
        }
    }

    #[test]
    fn the_traffic_runs_without_valgrind_too() {
        for (_, traffic) in TRAFFIC {
            crate::paths::run(*traffic, 3).unwrap();
        }
    }
}
