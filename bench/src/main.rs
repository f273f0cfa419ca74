//! `xroce-bench`: how fast the stack is, as ratios to what this machine does without it.
//!
//! In: which figures. Out: a table, and with `--keep` a file in `bench/results` with a plot beside it.
#![deny(unsafe_code)]

mod bare;
mod cpu_time;
mod duel;
mod engine_cost;
mod instructions;
mod link;
mod machine;
mod pair;
mod paths;
mod report;
mod scale;
mod spread;
mod stream;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use duel::Place;
use instructions::Table;
use link::{Figure, Length};
use pair::Result;
use report::{Goal, Report};
use xroce::PathMtu;

/// How fast the stack is, as ratios to what this machine does without it.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Every figure that is a time (some ten minutes)
    All {
        /// Leave out what needs a guest with the kernel's rxe (S6, and its part of S8)
        #[arg(long)]
        no_rxe: bool,
        #[command(flatten)]
        run: Run,
    },
    /// S1: the stack on one core, against two copies and two CRCs of the same bytes
    Engine(Run),
    /// S9: many queue pairs and many memory regions
    Scale(Run),
    /// S2 to S5, S7, S8: over a veth between two namespaces; needs root
    Link {
        /// Which of them [default: all]
        figures: Vec<Figure>,
        #[command(flatten)]
        run: Run,
    },
    /// S6 and S8 against the kernel's rxe, in guests; needs root
    Rxe {
        /// Which of them [default: all]
        places: Vec<Place>,
        #[command(flatten)]
        run: Run,
    },
    /// S10: instructions of each way of a packet, by callgrind
    Instructions {
        /// Fail when a count is more than 2 % above the table
        #[arg(long, conflicts_with = "update")]
        check: bool,
        /// Write the table anew
        #[arg(long)]
        update: bool,
    },
    /// The stream of S1 alone, to be run under a profiler
    #[command(hide = true)]
    Stream {
        /// Path MTU
        mtu: usize,
        /// Messages of 64 KiB
        #[arg(long, default_value_t = 20_000)]
        messages: u64,
    },
    /// One kind of traffic through two endpoints, to be run under a profiler
    #[command(hide = true)]
    Path {
        /// Its name
        traffic: String,
        /// How often
        #[arg(long, default_value_t = 1000)]
        rounds: usize,
    },
}

/// How to measure.
#[derive(clap::Args, Clone)]
struct Run {
    /// Rounds; the two sides of a ratio take turns in each
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of one side in one round
    #[arg(long, default_value_t = 400)]
    millis: u64,
    /// Real-time priority for the ends of a link, on a machine that is busy with other things
    #[arg(long)]
    realtime: bool,
    /// Keep the table as bench/results/NAME.json, and a plot beside it
    #[arg(long, value_name = "NAME")]
    keep: Option<String>,
}

impl Run {
    fn time(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    fn length(&self) -> Length {
        Length { rounds: self.rounds, time: self.time(), trips: 10 * self.millis as usize, realtime: self.realtime }
    }

    /// Measures into a report, and keeps it if that was asked for, also when a later figure failed.
    fn report(&self, measure: impl FnOnce(&mut Report) -> Result<()>) -> Result<()> {
        let mut report = Report::new(self.rounds);
        let measured = measure(&mut report);
        if let Some(name) = &self.keep {
            report.keep(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("results"), name)?;
        }
        measured
    }
}

fn engine(run: &Run, report: &mut Report) -> Result<()> {
    for (mtu, goal) in [(PathMtu::Mtu1024, 2.5), (PathMtu::Mtu4096, 1.5)] {
        let ratio = engine_cost::measure(mtu, run.rounds, run.time())?;
        let name = format!("RC WRITE 64 KiB, MTU {mtu}, both ends on one core, vs copies and CRCs");
        report.row("S1", &name, "ns", ratio, Goal::AtMost(goal));
    }
    Ok(())
}

fn main() -> Result<()> {
    match Args::parse().what {
        What::All { no_rxe, run } => run.report(|report| {
            engine(&run, report)?;
            scale::measure(run.rounds, report)?;
            link::measure(Figure::value_variants(), run.length(), report)?;
            if no_rxe { Ok(()) } else { duel::measure(Place::value_variants(), run.rounds, run.time(), report) }
        }),
        What::Engine(run) => run.report(|report| engine(&run, report)),
        What::Scale(run) => run.report(|report| scale::measure(run.rounds, report)),
        What::Link { figures, run } => run.report(|report| {
            let figures = if figures.is_empty() { Figure::value_variants() } else { &figures };
            link::measure(figures, run.length(), report)
        }),
        What::Rxe { places, run } => run.report(|report| {
            let places = if places.is_empty() { Place::value_variants() } else { &places };
            duel::measure(places, run.rounds, run.time(), report)
        }),
        What::Instructions { check, update } => instructions::count(match (check, update) {
            (_, true) => Table::Update,
            (true, _) => Table::Check,
            _ => Table::Compare,
        }),
        What::Stream { mtu, messages } => {
            let mtu = PathMtu::from_bytes(mtu).ok_or("the path MTU is 256, 512, 1024, 2048 or 4096")?;
            let (a, b) = pair::connected(pair::Shape::rc(mtu))?;
            let start = cpu_time::thread_ns();
            stream::Stream::new(&a, &b, 64 << 10, 16)?.run(messages)?;
            let packets = messages * (64 << 10) / mtu.bytes() as u64;
            println!("{:.1} ns of CPU a packet", (cpu_time::thread_ns() - start) as f64 / packets as f64);
            Ok(())
        }
        What::Path { traffic, rounds } => {
            let found = instructions::TRAFFIC.iter().find(|(name, _)| *name == traffic);
            let (_, traffic) = found.ok_or_else(|| format!("no traffic named {traffic}"))?;
            paths::run(*traffic, rounds)
        }
    }
}
