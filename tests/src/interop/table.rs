//! The table of a matrix run. Enters: rows that are functions, by name. Leaves: what became of each, and a summary.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::time::Instant;

use super::losses::Losses;
use super::{Known, Station};
use crate::rxe::QpKind;

/// Attempts of a row that failed while frames were lost outside of it.
const ATTEMPTS: usize = 3;
/// How many guests one row may lose before it counts as failed.
const GUESTS: usize = 2;

/// Whether a row's transport makes up for lost frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// RC: whatever fails, fails.
    Reliable,
    /// UC: a row that fails while frames were lost in a ring or interface is begun again, and fails if it has failed so
    /// three times. One that fails while none was lost fails at once.
    Unreliable,
}

/// What became of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As the specification has it.
    Pass,
    /// As it has it but for known faults of the peer.
    Tolerated(Vec<Known>),
    /// Not as it should be.
    Fail(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "pass",
            Self::Tolerated(_) => "tolerated",
            Self::Fail(_) => "FAIL",
        })
    }
}

impl Delivery {
    /// That of this type of QP.
    pub fn of(kind: QpKind) -> Self {
        match kind {
            QpKind::Rc => Self::Reliable,
            QpKind::Uc => Self::Unreliable,
        }
    }
}

struct Row {
    name: String,
    outcome: Outcome,
    /// What was lost in the attempts before the one that counts.
    lost: Vec<Losses>,
    seconds: f64,
}

/// Rows and their outcomes. If the guest ends in a row, the rest is left out until [`Table::continued`]: with the next guest
/// the same rows are to be run again, and those that have an outcome are passed over.
#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
    /// Rows that were named in this pass.
    named: usize,
    /// By row: what the guest last said that ended in it.
    ended: Vec<(String, String)>,
    /// It has in this pass.
    lost_guest: bool,
}

thread_local! {
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

impl Table {
    /// Runs a row and prints its line. A panic in it is a failure of this row only. One that ends the guest is run once more
    /// in the next, and is a failure if it ends that too or if nothing says that the guest's kernel fell over its rxe.
    pub fn run(&mut self, name: &str, station: &mut Station, delivery: Delivery, row: impl FnMut(&mut Station)) {
        self.named += 1;
        if self.lost_guest || self.named <= self.rows.len() {
            return;
        }
        let begun = Instant::now();
        let (mut outcome, lost) = outcome(station, delivery, row);
        if let (Outcome::Fail(why), Some(said)) = (&mut outcome, station.guest.last_words()) {
            println!("the guest has ended in {name}: {why}\n{said}");
            self.lost_guest = true;
            self.ended.push((name.to_owned(), said));
            let times = self.ended.iter().filter(|(row, _)| row == name).count();
            if times < GUESTS && self.ended.last().is_some_and(|(_, said)| blames_rxe(said)) {
                return;
            }
            *why = format!("{why}; the guest has ended");
        }
        self.put(Row { name: name.to_owned(), outcome, lost, seconds: begun.elapsed().as_secs_f64() });
    }

    fn put(&mut self, row: Row) {
        let why = match &row.outcome {
            Outcome::Pass => String::new(),
            Outcome::Tolerated(known) => known.iter().map(|k| format!(" [{k}]")).collect(),
            Outcome::Fail(why) => format!(" {why}"),
        };
        let lost: String = row.lost.iter().map(|lost| format!(" (begun again: frames lost: {lost})")).collect();
        println!("{:9} {} ({:.1} s){lost}{why}", row.outcome, row.name, row.seconds);
        self.rows.push(row);
    }

    /// Whether any row was run.
    pub fn has_begun(&self) -> bool {
        !(self.rows.is_empty() && self.ended.is_empty())
    }

    /// Whether the guest has ended, so that the rows want another one. Afterwards they can be run anew.
    pub fn continued(&mut self) -> bool {
        self.named = 0;
        std::mem::take(&mut self.lost_guest)
    }

    /// How many rows failed.
    pub fn failed(&self) -> usize {
        self.rows.iter().filter(|row| matches!(row.outcome, Outcome::Fail(_))).count()
    }
}

/// What becomes of a row, and what was lost in the attempts before the one that counts.
pub fn outcome(station: &mut Station, delivery: Delivery, mut row: impl FnMut(&mut Station)) -> (Outcome, Vec<Losses>) {
    let mut lost = Vec::new();
    loop {
        let before = match delivery {
            Delivery::Reliable => None,
            Delivery::Unreliable => match Losses::of(station) {
                Ok(losses) => Some(losses),
                Err(why) => return (Outcome::Fail(why), lost),
            },
        };
        let outcome = attempt(station, &mut row);
        let (Outcome::Fail(why), Some(before)) = (&outcome, before) else { return (outcome, lost) };
        let now = match Losses::of(station) {
            Ok(losses) => losses.since(&before),
            Err(other) => return (Outcome::Fail(format!("{why}, and then {other}")), lost),
        };
        if now.is_none() {
            return (Outcome::Fail(format!("{why}, and no frame was lost")), lost);
        }
        if lost.len() + 1 == ATTEMPTS {
            return (Outcome::Fail(format!("{why}, after frames were lost: {now}")), lost);
        }
        lost.push(now);
    }
}

/// A row, once.
fn attempt(station: &mut Station, row: &mut impl FnMut(&mut Station)) -> Outcome {
    station.tolerated.clear();
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        PLACE.with(|p| *p.borrow_mut() = place);
    }));
    let result = panic::catch_unwind(AssertUnwindSafe(|| row(station)));
    panic::set_hook(hook);
    // One that failed may have left them.
    station.faults.clear();
    match result {
        Err(payload) => Outcome::Fail(format!("{} ({})", text(payload.as_ref()), PLACE.with(RefCell::take))),
        Ok(()) if station.tolerated.is_empty() => Outcome::Pass,
        Ok(()) => {
            let mut known = std::mem::take(&mut station.tolerated);
            known.sort_unstable();
            known.dedup();
            Outcome::Tolerated(known)
        }
    }
}

fn text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_else(|| "a panic".to_owned())
}

/// Whether a kernel's last words are of a fault with rxe in its trace.
fn blames_rxe(said: &str) -> bool {
    let at = said.find("Call Trace").or_else(|| said.find("RIP: "));
    at.is_some_and(|at| said[at..].contains("rxe_"))
}

/// Everything that is not a plain pass by name, then the counts.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |what: &str| self.rows.iter().filter(|row| row.outcome.to_string() == what).count();
        for Row { name, outcome, lost, .. } in &self.rows {
            for lost in lost {
                writeln!(f, "again      {name}: frames lost: {lost}")?;
            }
            match outcome {
                Outcome::Pass => {}
                Outcome::Tolerated(known) => {
                    for known in known {
                        writeln!(f, "tolerated  {name}: {known}")?;
                    }
                }
                Outcome::Fail(why) => writeln!(f, "FAIL       {name}: {why}")?,
            }
        }
        for (row, _) in &self.ended {
            writeln!(f, "ended      {row}: the guest's kernel fell; the rest was run in a new one")?;
        }
        let [pass, tolerated, fail] = ["pass", "tolerated", "FAIL"].map(count);
        let again = self.rows.iter().filter(|row| !row.lost.is_empty()).count();
        write!(f, "{pass} passed, {tolerated} tolerated, {fail} failed of {} rows", self.rows.len())?;
        if again > 0 {
            write!(f, "; {again} begun again because frames were lost")?;
        }
        match self.ended.len() {
            0 => Ok(()),
            guests => write!(f, "; {guests} guests ended on the way"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_with_rxe_in_it_blames_it() {
        assert!(blames_rxe("BUG: unable\nRIP: 0010:rxe_completer+0x1/0x2 [rdma_rxe]\n"));
        assert!(blames_rxe("Oops\nCall Trace:\n <TASK>\n do_task\n rxe_requester+0x5\n"));
        assert!(!blames_rxe("rxe0: rxe_newlink done\nBUG: out of memory\nCall Trace:\n oom_kill\n"));
        assert!(!blames_rxe("rxe_guest ready"));
    }
}
