//! The table of rules, docs/compliance.md. Enters: the lists of rules (tests/scripts/RULES.md, whose last column names packet
//! scripts, and tests/RULES.md) and the marks `// rule: ID ID` in the sources. Leaves: for each rule the places that keep it and
//! the tests that decide it.
//!
//! A mark belongs to the function, constant or type that it stands in or right above. Inside a `#[test]` function, or in a
//! `tests` folder, it says that the test decides the rule; anywhere else, that the code keeps it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::source::{Source, indent, item};

/// What a mark begins with, behind the slashes.
const MARK: &str = "rule:";

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its id.
    pub id: String,
    /// The rule, in a sentence.
    pub text: String,
    /// Where it is from.
    pub source: String,
    /// The packet scripts that decide it.
    pub scripts: Vec<String>,
}

/// A list of rules under their headings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// What stands under it.
    pub rules: Vec<Rule>,
}

/// A mark in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The rule it names.
    pub rule: String,
    /// File and item: `stack/wire/src/bth.rs:emit`.
    pub place: String,
    /// Where the mark itself stands, for a complaint: file and line from 1.
    pub at: String,
    /// It stands at a test.
    pub test: bool,
}

/// Reads a list of rules: headings `## …`, and rows whose first cell is an id in backquotes. Rules that only restate another for
/// a peer that breaks it (`rxe.…`) are left out.
pub fn sections(markdown: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for line in markdown.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            sections.push(Section { title: title.to_owned(), rules: Vec::new() });
        }
        let (Some(rest), Some(section)) = (line.strip_prefix("| `"), sections.last_mut()) else { continue };
        let Some((id, _)) = rest.split_once('`') else { continue };
        let mut cells = line.trim().trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).skip(1);
        let (text, source) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        let scripts = cells.next().unwrap_or_default();
        let scripts = scripts.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if !id.starts_with("rxe.") {
            section.rules.push(Rule { id: id.to_owned(), text, source, scripts });
        }
    }
    sections.retain(|section| !section.rules.is_empty());
    sections
}

/// The marks of a source, in order.
pub fn marks(source: &Source) -> Vec<Mark> {
    let lines: Vec<&str> = source.text.lines().collect();
    let tests: Vec<_> = source.functions().into_iter().filter(|f| f.is_test).collect();
    let in_tests = source.path.contains("/tests/") || source.path.ends_with("tests.rs");
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let Some((_, ids)) = line.split_once("//").and_then(|(_, said)| said.split_once(MARK)) else { continue };
        if !line.trim_start().starts_with("//") {
            continue;
        }
        let (at, place) = owner(&lines, i).unwrap_or((i, "?"));
        let test = in_tests || tests.iter().any(|t| t.line == at && t.name == place);
        for rule in ids.split([' ', ',']).filter(|id| !id.is_empty()) {
            found.push(Mark {
                rule: rule.to_owned(),
                place: format!("{}:{place}", source.path),
                at: format!("{}:{}", source.path, i + 1),
                test,
            });
        }
    }
    found
}

/// Line and name of the item that line `i` stands right above or in.
fn owner<'a>(lines: &[&'a str], i: usize) -> Option<(usize, &'a str)> {
    let below = lines[i + 1..].iter().position(|line| {
        let code = line.trim_start();
        !(code.is_empty() || code.starts_with("//") || code.starts_with("#["))
    })?;
    let below = i + 1 + below;
    if indent(lines[below]) == indent(lines[i])
        && let Some(name) = item(lines[below])
    {
        return Some((below, name));
    }
    // The nearest item above that is indented less, and so is around it.
    (0..i).rev().find_map(|j| item(lines[j]).filter(|_| indent(lines[j]) < indent(lines[i])).map(|name| (j, name)))
}

/// Marks that name a rule that no list has, or that stand at no item.
pub fn faults(sections: &[Section], marks: &[Mark]) -> Vec<String> {
    let known = |id: &str| sections.iter().flat_map(|section| &section.rules).any(|rule| rule.id == id);
    let mut faults = Vec::new();
    for mark in marks {
        if !known(&mark.rule) {
            faults.push(format!("{}: there is no rule {}", mark.at, mark.rule));
        }
        if mark.place.ends_with(":?") {
            faults.push(format!("{}: the mark stands at no function, constant or type", mark.at));
        }
    }
    let mut ids: Vec<&str> = sections.iter().flat_map(|s| &s.rules).map(|rule| rule.id.as_str()).collect();
    ids.sort_unstable();
    faults.extend(ids.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| format!("{} stands twice", pair[0])));
    faults
}

/// The page.
pub fn page(sections: &[Section], marks: &[Mark]) -> String {
    let mut code: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut tests: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for mark in marks {
        let places = if mark.test { &mut tests } else { &mut code }.entry(mark.rule.as_str()).or_default();
        if !places.contains(&mark.place.as_str()) {
            places.push(&mark.place);
        }
    }
    let all: Vec<&Rule> = sections.iter().flat_map(|section| &section.rules).collect();
    let kept = all.iter().filter(|rule| code.contains_key(rule.id.as_str())).count();
    let decided = |rule: &Rule| !rule.scripts.is_empty() || tests.contains_key(rule.id.as_str());
    let tested = all.iter().filter(|rule| decided(rule)).count();
    let open = all.iter().filter(|rule| !code.contains_key(rule.id.as_str()) || !decided(rule)).count();
    let mut out = format!(
        "# Rules, the code that keeps them, the tests that decide them\n\nMade from tests/scripts/RULES.md, tests/RULES.md and the \
         marks `// rule: ID` in the sources by\n`UPDATE_DOCS=1 cargo test -p xroce-evidence` (`make docs`). \
         Scripts (`rc/…`, `uc/…`) are in tests/scripts.\n\n{} rules: {kept} with the code that keeps them, {tested} with a test, \
         {open} open.\n",
        all.len()
    );
    for section in sections {
        let _ = write!(
            out,
            "\n## {}\n\n| id | rule | source | kept in | decided by |\n|---|---|---|---|---|\n",
            section.title
        );
        for rule in &section.rules {
            let places = |list: Option<&Vec<&str>>| list.map(|places| places.join(", ")).unwrap_or_default();
            let code = places(code.get(rule.id.as_str()));
            let scripts = rule.scripts.iter().map(String::as_str);
            let by: Vec<&str> = scripts.chain(tests.get(rule.id.as_str()).into_iter().flatten().copied()).collect();
            let (code, by) = (or_open(code), or_open(by.join(", ")));
            let _ = writeln!(out, "| `{}` | {} | {} | {code} | {by} |", rule.id, rule.text, rule.source);
        }
    }
    out
}

fn or_open(text: String) -> String {
    if text.is_empty() { "**open**".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
// rule: a.one
const LIMIT: u32 = 3;

impl X {
    /// Does it.
    fn keeps(&self) {
        // rule: a.two, a.three
        let x = 1;
    }
}

#[test]
// rule: a.one
fn decides() {}
";

    fn source() -> Source {
        Source { path: "stack/x/src/y.rs".into(), text: TEXT.into() }
    }

    #[test]
    fn a_mark_belongs_to_what_it_stands_in_or_above() {
        let short: Vec<_> = marks(&source()).into_iter().map(|m| (m.rule, m.place, m.test)).collect();
        let at = |name: &str| format!("stack/x/src/y.rs:{name}");
        let wanted = [
            ("a.one", "LIMIT", false),
            ("a.two", "keeps", false),
            ("a.three", "keeps", false),
            ("a.one", "decides", true),
        ];
        assert_eq!(short, wanted.map(|(rule, name, test)| (rule.to_owned(), at(name), test)));
    }

    #[test]
    fn what_is_open_is_told_and_what_is_unknown_is_a_fault() {
        let list = "# R\n\n## All\n\n| id | rule | source | scripts |\n|---|---|---|---|\n| `a.one` | one | S |  |\n\
                    | `a.two` | two | S | rc/x |\n| `a.four` | four | S | rc/y |\n| `rxe.z` | not here | S | rc/z |\n";
        let (sections, marks) = (sections(list), marks(&source()));
        assert_eq!(faults(&sections, &marks), ["stack/x/src/y.rs:7: there is no rule a.three"]);
        let page = page(&sections, &marks);
        assert!(page.contains("3 rules: 2 with the code that keeps them, 3 with a test, 1 open."), "{page}");
        assert!(page.contains("| `a.four` | four | S | **open** | rc/y |"), "{page}");
        assert!(page.contains("| `a.one` | one | S | stack/x/src/y.rs:LIMIT | stack/x/src/y.rs:decides |"), "{page}");
        assert!(!page.contains("rxe.z"), "{page}");
    }
}
