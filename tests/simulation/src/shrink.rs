//! Making a failing scenario smaller.
//!
//! In: a plan that breaks a rule. Out: a plan that breaks the same rule and has less in it. Greedy: whatever can be taken
//! away without losing the failure is taken away, largest pieces first, until nothing more can.

use xroce_port::sim::LinkModel;

use crate::plan::{Act, Plan, Verb};
use crate::{Rule, Trace, Violation, run};

/// Runs that a shrink may take.
const MAX_RUNS: u32 = 4000;

struct Shrinker {
    best: Plan,
    violation: Violation,
    rule: Rule,
    runs: u32,
}

/// A smaller plan that breaks the same rule as `plan` does, and how it breaks it.
pub fn shrink(plan: &Plan, violation: &Violation) -> (Plan, Violation) {
    let mut shrinker =
        Shrinker { best: plan.clone(), violation: violation.clone(), rule: violation.rule, runs: MAX_RUNS };
    while shrinker.round() {}
    (shrinker.best, shrinker.violation)
}

impl Shrinker {
    /// Keeps `candidate` if it still fails.
    fn attempt(&mut self, candidate: Plan) -> bool {
        if self.runs == 0 {
            return false;
        }
        self.runs -= 1;
        match run(&candidate, Trace::off()) {
            Err(violation) if violation.rule == self.rule => {
                (self.best, self.violation) = (candidate, violation);
                true
            }
            _ => false,
        }
    }

    fn change(&mut self, f: impl FnOnce(&mut Plan)) -> bool {
        let mut candidate = self.best.clone();
        f(&mut candidate);
        self.attempt(candidate)
    }

    fn round(&mut self) -> bool {
        let steps = self.drop_steps();
        let faults = self.drop_faults();
        let works = self.simplify_works();
        steps || faults || works
    }

    /// Steps in runs of halving length.
    fn drop_steps(&mut self) -> bool {
        let mut any = false;
        let mut size = self.best.steps.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.best.steps.len() {
                let end = (at + size).min(self.best.steps.len());
                if self.change(|plan| drop(plan.steps.drain(at..end))) {
                    any = true;
                } else {
                    at = end;
                }
            }
            size /= 2;
        }
        any
    }

    fn drop_faults(&mut self) -> bool {
        let mut any = false;
        let mut outage = 0;
        while outage < self.best.outages.len() {
            if self.change(|plan| _ = plan.outages.remove(outage)) {
                any = true;
            } else {
                outage += 1;
            }
        }
        let weather: [fn(&mut LinkModel) -> bool; 6] = [
            |w| std::mem::replace(&mut w.loss, 0.0) > 0.0,
            |w| std::mem::replace(&mut w.duplicate, 0.0) > 0.0,
            |w| std::mem::replace(&mut w.corrupt, 0.0) > 0.0,
            |w| std::mem::replace(&mut w.reorder, 0.0) > 0.0,
            |w| std::mem::replace(&mut w.delay_max_ns, w.delay_min_ns) > w.delay_min_ns,
            |w| std::mem::replace(&mut w.delay_min_ns, 0) > 0,
        ];
        for calm in weather {
            let mut candidate = self.best.clone();
            if calm(&mut candidate.weather) {
                any |= self.attempt(candidate);
            }
        }
        for node in 0..self.best.nodes.len() {
            if self.best.nodes[node].tx_ns > 0 {
                any |= self.change(|plan| (plan.nodes[node].tx_ns, plan.nodes[node].tx_slots) = (0, 1 << 20));
            }
            if self.best.nodes[node].poll_ns > 0 {
                any |= self.change(|plan| plan.nodes[node].poll_ns = 0);
            }
            if self.best.nodes[node].credits {
                any |= self.change(|plan| plan.nodes[node].credits = false);
            }
            if self.best.nodes[node].split != usize::MAX {
                any |= self.change(|plan| plan.nodes[node].split = usize::MAX);
            }
        }
        any
    }

    fn simplify_works(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.best.steps.len() {
            let Act::Post { work, .. } = &self.best.steps[index].act else { continue };
            let mut simple = work.clone();
            (simple.fence, simple.solicited, simple.inline, simple.pieces) = (false, false, false, 1);
            simple.signaled = true;
            if simple.verb == Verb::SendInv {
                simple.verb = Verb::Send;
            }
            let differs = format!("{simple:?}") != format!("{work:?}");
            if differs {
                any |= self.change(|plan| {
                    if let Act::Post { work, .. } = &mut plan.steps[index].act {
                        *work = simple;
                    }
                });
            }
        }
        any
    }
}
