//! How a model is run: as it is, and without the order that it is about.

use std::panic::{AssertUnwindSafe, catch_unwind};
use xroce_loom::{Weak, weaken};

/// Switches between threads, other than those where one waits, that are tried. Loom's authors found 2 to 3 to be enough for
/// nearly all faults; `make loom` sets LOOM_MAX_PREEMPTIONS higher.
const PREEMPTIONS: usize = 2;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS));
    builder.max_branches = builder.max_branches.max(20_000);
    builder.check(model);
}

/// The model holds, and does not without any of `needed`.
pub fn holds(needed: &[Weak], model: impl Fn() + Send + Sync + Clone + 'static) {
    explore(model.clone());
    for &what in needed {
        let model = model.clone();
        let failed = weaken(what, || catch_unwind(AssertUnwindSafe(|| explore(model))).is_err());
        assert!(failed, "holds without {what:?} too: this model shows nothing of it");
    }
}
