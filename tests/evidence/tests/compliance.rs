//! docs/compliance.md says what is so. `UPDATE_DOCS=1 cargo test -p xroce-evidence` writes it anew.

use std::fs;

use xroce_evidence::compliance::{Mark, Section, faults, marks, page, sections};
use xroce_evidence::source::{root, sources};

fn rules_and_marks() -> (Vec<Section>, Vec<Mark>) {
    let list = |path: &str| fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut rules = sections(&list("tests/RULES.md"));
    rules.extend(sections(&list("tests/scripts/RULES.md")));
    let marks = sources(&["stack", "xdp-prog", "tests/tests"]).iter().flat_map(marks).collect();
    (rules, marks)
}

#[test]
fn every_mark_names_a_rule_and_stands_at_something() {
    let (rules, marks) = rules_and_marks();
    let faults = faults(&rules, &marks);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_table_is_current() {
    let (rules, marks) = rules_and_marks();
    let (right, path) = (page(&rules, &marks), root().join("docs/compliance.md"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &right).expect("the page can be written");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(there == right, "docs/compliance.md is out of date: run UPDATE_DOCS=1 cargo test -p xroce-evidence");
}
