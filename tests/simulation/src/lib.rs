//! Deterministic simulation of xroce: whole endpoints with real bytes, in virtual time, under one seed.
//!
//! In: a seed. Out: nothing, or the first rule that was broken, with a scenario made as small as it can be.
//!
//! [`generate()`] turns a seed into a [`plan::Plan`]: machines, connections, faults, and what happens when.
//! `world` carries it out: endpoints of `xroce-transport` exchange packets over `net` while applications (`app`, `control`)
//! post, poll, change states and lose memory. `model` knows what they are owed, from the rules alone; `verdict` looks at
//! the end. [`shrink()`] takes out of a failing plan whatever is not needed to fail.

#![deny(unsafe_code)]

mod app;
#[allow(unsafe_code, reason = "memory that the transport writes to")]
mod buffer;
mod control;
mod end;
mod generate;
mod model;
mod net;
mod node;
pub mod plan;
mod shrink;
mod trace;
mod verdict;
mod world;

pub use generate::generate;
pub use model::{Rule, Violation};
pub use shrink::shrink;
pub use trace::Trace;
pub use world::Totals;

use plan::Plan;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Carries out a plan.
///
/// # Errors
/// The first rule that was broken; a panic of the transport is one.
pub fn run(plan: &Plan, trace: Trace) -> Result<Totals, Violation> {
    catch_unwind(AssertUnwindSafe(|| world::World::new(plan, trace).run())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Violation { rule: Rule::Panic, at_ns: 0, what: text.unwrap_or_default() })
    })
}

/// Carries out the plan of a seed.
///
/// # Errors
/// As [`run`].
pub fn run_seed(seed: u64) -> Result<Totals, Violation> {
    run(&generate(seed), Trace::off())
}
