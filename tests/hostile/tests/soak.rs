//! The soak for some seconds; `make soak` runs it for as long as wanted.

use std::time::Duration;

use xroce::DropReason;
use xroce_hostile::field::Field;
use xroce_hostile::soak::{self, Plan};

#[test]
fn a_short_soak() {
    let Some(field) = Field::new("a_short_soak", 4300) else { return };
    let plan = Plan { time: Duration::from_secs(15), rc: 3, uc: 3, ..Plan::default() };
    let report = soak::run(&field, &plan, |_| {}).unwrap_or_else(|why| panic!("{why}"));
    println!("{report}");
    assert!(report.messages.iter().all(|n| *n > 100), "{report}");
    // What was to go wrong went wrong, and was seen.
    assert!(report.faults.iter().all(|n| *n > 0) && report.kept_back > 0, "{report}");
    assert!(report.qp.resent_pkts > 0 && report.uc_lost > 0, "{report}");
    assert!(report.drops.iter().any(|(reason, _)| *reason == DropReason::BadIcrc), "{report}");
}
