//! S6 and the second part of S8: beside the kernel's rxe, in guests of tests/rxe.
//!
//! In: how many rounds. Out: rows and a curve, or why this machine can have no such guest.

mod emulated;
mod native;
mod perftest;

use std::time::Duration;

use crate::pair::Result;
use crate::report::Report;

/// Which guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Place {
    /// S6: rxe and xroce inside one emulated guest, over one veth
    Emulated,
    /// S6, S8: rxe in a user-mode kernel, at the speed of the machine (built first if it is missing: 6 to 10 minutes)
    Native,
}

/// Measures in `places`, each of them whatever became of the others.
///
/// # Errors
/// The first game that failed. A guest that cannot be had is no error: the report says so.
pub fn measure(places: &[Place], rounds: usize, time: Duration, report: &mut Report) -> Result<()> {
    let mut failed = Ok(());
    for place in places {
        // What should work in a guest and does not is a panic of the peer's driver.
        let measured = std::thread::scope(|scope| {
            let run = || {
                match place {
                    Place::Emulated => emulated::measure(rounds, report),
                    Place::Native => native::measure(rounds, time, report),
                }
                .map_err(|e| e.to_string())
            };
            scope.spawn(run).join().unwrap_or_else(|_| Err("the guest failed, see above".to_owned()))
        });
        failed = failed.and(measured.map_err(|e| format!("beside rxe, {place:?}: {e}")));
    }
    Ok(failed?)
}
