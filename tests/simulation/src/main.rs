//! `xroce-simulation --seeds N --from S [--jobs J] [--keep-going] [--trace]`: runs seeds, and makes small what fails.

use std::io::IsTerminal;
use std::process::{Command, ExitCode};
use std::time::Instant;

use xroce_simulation::plan::Plan;
use xroce_simulation::{Totals, Trace, Violation, generate, run, shrink};

struct Options {
    seeds: u64,
    from: u64,
    trace: bool,
    keep_going: bool,
}

const USAGE: &str = "\
usage: xroce-simulation [--seeds N] [--from S] [--keep-going] [--trace]
  --seeds N      how many seeds (1000)
  --from S       the first of them (0)
  --keep-going   do not stop at the first failure
  --trace        print every packet and completion of the seeds, as they are";

fn options() -> Result<Options, String> {
    let mut options = Options { seeds: 1000, from: 0, trace: false, keep_going: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().ok_or(format!("{argument} needs a number"))?;
            text.parse::<u64>().map_err(|error| format!("{argument} {text}: {error}"))
        };
        match argument.as_str() {
            "--seeds" => options.seeds = number()?,
            "--from" => options.from = number()?,
            "--trace" => options.trace = true,
            "--keep-going" => options.keep_going = true,
            "--help" | "-h" => return Err(USAGE.to_owned()),
            other => return Err(format!("{other} is not known\n{USAGE}")),
        }
    }
    Ok(options)
}

/// What is being tested, as git names it.
fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let text = output.ok().filter(|o| o.status.success()).map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    text.unwrap_or_else(|| "unknown".to_owned())
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    let start = Instant::now();
    let (mut sum, mut failed) = (Totals::default(), 0u64);
    let end = options.from.saturating_add(options.seeds);
    for seed in options.from..end {
        let plan = generate(seed);
        let trace = if options.trace { Trace::printing() } else { Trace::off() };
        match quietly(options.trace, || run(&plan, trace)) {
            Ok(totals) => add(&mut sum, &totals),
            Err(violation) => {
                failed += 1;
                report(seed, &plan, &violation, options.keep_going);
                if !options.keep_going {
                    return ExitCode::FAILURE;
                }
            }
        }
        progress(seed - options.from + 1, options.seeds, failed);
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} seeds from {} at {}: {failed} failed; {} frames, {} requests ({} succeeded), {} deliveries; {seconds:.1} s, {:.0} seeds/s",
        options.seeds,
        options.from,
        commit(),
        sum.frames,
        sum.posted,
        sum.succeeded,
        sum.delivered,
        options.seeds as f64 / seconds
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn add(sum: &mut Totals, one: &Totals) {
    sum.frames += one.frames;
    sum.posted += one.posted;
    sum.succeeded += one.succeeded;
    sum.delivered += one.delivered;
    sum.events += one.events;
}

/// Panics are reported as violations; their own message would drown the report.
fn quietly<T>(loud: bool, f: impl FnOnce() -> T) -> T {
    if loud {
        return f();
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = f();
    std::panic::set_hook(hook);
    result
}

fn progress(done: u64, all: u64, failed: u64) {
    if done.is_multiple_of(1000) && std::io::stderr().is_terminal() {
        eprint!("\r{done} of {all} seeds, {failed} failed ");
    }
}

fn report(seed: u64, plan: &Plan, violation: &Violation, brief: bool) {
    println!("seed {seed} at {} fails: {violation}", commit());
    if brief {
        return;
    }
    let (small, violation) = quietly(false, || shrink(plan, violation));
    println!("\nsmaller ({} of {} steps): {violation}", small.steps.len(), plan.steps.len());
    println!("weather {:?}\noutages {:?}", small.weather, small.outages);
    let conns: std::collections::BTreeSet<usize> = small.works().map(|(end, _)| end.conn).collect();
    for conn in conns {
        println!("connection {conn} (ends {} and {}): {:?}", conn * 2, conn * 2 + 1, small.conns[conn]);
    }
    for (i, node) in small.nodes.iter().enumerate() {
        println!("node {i}: {node:?}");
    }
    println!("\nwhat happens:");
    let _ = quietly(false, || run(&small, Trace::printing()));
    println!("\nagain: make sim SEED={seed} SEEDS=1");
}
