//! The table of public reports, docs/regressions.md. Enters: its text. Leaves: the rows, and what is wrong with them.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, root};

/// The reports there are: H01 to H48.
pub const REPORTS: u32 = 48;

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The report's id.
    pub id: String,
    /// Tests as `path::function`, and packet scripts as `rc/name`.
    pub tests: Vec<String>,
    /// What came of it.
    pub outcome: String,
}

/// Reads the rows of the table.
pub fn rows(markdown: &str) -> Vec<Row> {
    let of = |line: &str| {
        let cells: Vec<&str> = line.trim().trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, _, _, tests, outcome] = cells[..] else { return None };
        let is_id = id.len() == 3 && id.starts_with('H') && id[1..].bytes().all(|b| b.is_ascii_digit());
        is_id.then(|| Row {
            id: id.to_owned(),
            tests: tests.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
            outcome: outcome.to_owned(),
        })
    };
    markdown.lines().filter(|line| line.starts_with("| H")).filter_map(of).collect()
}

/// All that is wrong: ids without a row, tests that are not there, are not run or do not name their report, tests that name a
/// report whose row does not name them.
pub fn faults(markdown: &str, sources: &[Source]) -> Vec<String> {
    let rows = rows(markdown);
    let mut faults = Vec::new();
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for number in 1..=REPORTS {
        let id = format!("H{number:02}");
        match rows.iter().filter(|row| row.id == id).count() {
            1 => {}
            n => faults.push(format!("{id} has {n} rows")),
        }
    }
    for row in &rows {
        if row.outcome.is_empty() || (row.tests.is_empty() && row.outcome == "kept") {
            faults.push(format!("{} says neither a test nor why there is none", row.id));
        }
        for test in &row.tests {
            named.entry(test).or_default().insert(&row.id);
            faults.extend(fault_of(test, &row.id, sources));
        }
    }
    for (test, id) in tests_that_name_reports(sources) {
        if !named.get(test.as_str()).is_some_and(|ids| ids.contains(id.as_str())) {
            faults.push(format!("{test} is a test of {id}, whose row does not name it"));
        }
    }
    faults
}

fn fault_of(test: &str, id: &str, sources: &[Source]) -> Option<String> {
    let Some((path, function)) = test.split_once("::") else {
        let file = root().join("tests/scripts").join(format!("{test}.roce"));
        let Ok(text) = std::fs::read_to_string(file) else { return Some(format!("{id}: there is no script {test}")) };
        let head = text.lines().take_while(|line| !line.starts_with("qp ")).collect::<Vec<_>>().join("\n");
        let known = test.rsplit('/').next().is_some_and(|name| name.starts_with(&id.to_lowercase()));
        return (!head.contains(id) && !known).then(|| format!("{test} does not name {id} in its head"));
    };
    let Some(source) = sources.iter().find(|source| source.path == path) else {
        return Some(format!("{id}: there is no {path}"));
    };
    let Some(found) = source.functions().into_iter().find(|f| f.name == function) else {
        return Some(format!("{id}: {path} has no {function}"));
    };
    if !found.is_test {
        return Some(format!("{id}: {test} is no test that is run"));
    }
    let named = reports_of(&found.name, &found.comment).iter().any(|named| named == id);
    // One test may decide two reports: its name carries the first.
    (!named).then(|| format!("{test} does not name {id}, in its name or above it"))
}

/// The reports that a test names: `h12_…`, or "Report H12" or "Reports H12, H13" above it.
fn reports_of(name: &str, comment: &str) -> Vec<String> {
    let mut found = Vec::new();
    let digits = name.strip_prefix('h').and_then(|rest| rest.split_once('_')).map(|(digits, _)| digits);
    if let Some(digits) = digits.filter(|d| d.len() == 2 && d.bytes().all(|b| b.is_ascii_digit())) {
        found.push(format!("H{digits}"));
    }
    for line in comment.lines().filter(|line| line.starts_with("Report")) {
        let words = line.split([' ', ',', '.']).filter(|word| word.len() == 3 && word.starts_with('H'));
        found.extend(words.map(str::to_owned));
    }
    found
}

fn tests_that_name_reports(sources: &[Source]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for source in sources {
        for function in source.functions().iter().filter(|f| f.is_test) {
            for id in reports_of(&function.name, &function.comment) {
                found.push((format!("{}::{}", source.path, function.name), id));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_names_are_read() {
        let table = "| id | report | seen | tests | here |\n|---|---|---|---|---|\n| H07 | who | what → right | `a/b.rs::h07_c`, `rc/d` | kept |\n";
        let tests = vec!["a/b.rs::h07_c".to_owned(), "rc/d".to_owned()];
        assert_eq!(rows(table), [Row { id: "H07".into(), tests, outcome: "kept".into() }]);
        assert_eq!(reports_of("h07_c", "Reports H08, H09.\n"), ["H07", "H08", "H09"]);
        assert!(reports_of("holds_wherever", "Nothing").is_empty());
    }

    #[test]
    fn each_kind_of_fault_is_told() {
        let text = "#[test]\nfn h01_a() {}\nfn h02_b() {}\n/// Report H03.\n#[test]\nfn c() {}\n";
        let sources = [Source { path: "x.rs".into(), text: text.into() }];
        let row = |id: &str, tests: &str, outcome: &str| format!("| {id} | r | s | {tests} | {outcome} |\n");
        let table = row("H01", "`x.rs::h01_a`, `x.rs::gone`, `rc/gone`", "kept")
            + &row("H02", "`x.rs::h02_b`, `x.rs::h01_a`", "kept")
            + &row("H04", "—", "kept");
        let told = faults(&table, &sources).join("\n");
        for wanted in [
            "H03 has 0 rows",
            "H01: x.rs has no gone",
            "H01: there is no script rc/gone",
            "x.rs::h02_b is no test that is run",
            "x.rs::h01_a does not name H02",
            "H04 says neither",
            "x.rs::c is a test of H03",
        ] {
            assert!(told.contains(wanted), "{wanted}: {told}");
        }
        assert!(!told.contains("H01 has") && !told.contains("x.rs::h01_a does not name H01"), "{told}");
    }
}
