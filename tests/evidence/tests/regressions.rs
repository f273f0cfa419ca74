//! The table of public reports says what is so: every id has its row, every test named is there and is run.

use std::fs;

use xroce_evidence::regressions::{faults, rows};
use xroce_evidence::source::{root, sources};

#[test]
fn every_report_has_its_row_and_every_test_named_is_run() {
    let table = fs::read_to_string(root().join("docs/regressions.md")).expect("docs/regressions.md");
    let sources = sources(&["stack", "tests", "xdp-prog", "examples", "bench"]);
    let faults = faults(&table, &sources);
    assert!(faults.is_empty(), "docs/regressions.md:\n{}", faults.join("\n"));
    let named: usize = rows(&table).iter().map(|row| row.tests.len()).sum();
    println!("{} reports, {named} tests named", rows(&table).len());
}
