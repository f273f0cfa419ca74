//! Pages that are made from the code say what the code does. `UPDATE_DOCS=1 cargo test -p xroce-tests` writes them anew.

use std::fs;
use std::path::Path;

use xroce_tests::evidence::compliance::{faults, marks, page, sections};
use xroce_tests::evidence::source::{root, sources};

fn check(page: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().expect("docs")).expect("docs can be made");
        fs::write(&path, text).expect("the page can be written");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(there == text, "docs/{page} is out of date: run UPDATE_DOCS=1 cargo test -p xroce-tests");
}

#[test]
fn qp_states() {
    let table = xroce_transport::qp::state::table_markdown();
    let text = format!(
        "# The states of a queue pair\n\nMade from the table in `stack/transport/src/qp/state.rs`. A call that lacks a required \
         attribute, or has one that is\nneither required nor optional, changes nothing and says which.\n\n{table}"
    );
    check("qp-states.md", &text);
}

/// Rule, code, test: docs/compliance.md, from the lists of rules and the marks in the sources.
#[test]
fn compliance() {
    let list = |path: &str| fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut rules = sections(&list("tests/RULES.md"));
    rules.extend(sections(&list("tests/scripts/RULES.md")));
    let marks: Vec<_> = sources(&["stack", "xdp-prog", "tests/tests"]).iter().flat_map(marks).collect();
    let faults = faults(&rules, &marks);
    assert!(faults.is_empty(), "marks of rules:\n{}", faults.join("\n"));
    check("compliance.md", &page(&rules, &marks));
}
