//! The rules that the scripts cover, as RULES.md lists them.

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Its id, as `covers:` names it.
    pub id: String,
    /// The line of the table without its last column: id, rule, source.
    pub row: String,
}

/// Reads the rows of the tables in RULES.md: those whose first cell is an id in backquotes.
pub fn read(markdown: &str) -> Vec<Rule> {
    let rows = markdown.lines().filter_map(|line| {
        let rest = line.strip_prefix("| `")?;
        let (id, _) = rest.split_once('`')?;
        Some(Rule { id: id.to_owned(), row: cells(line)[..3].join(" | ") })
    });
    rows.collect()
}

fn cells(row: &str) -> Vec<&str> {
    let mut cells: Vec<&str> = row.trim().trim_matches('|').split(" | ").map(str::trim).collect();
    cells.resize(cells.len().max(4), "");
    cells
}

/// The text with the last column of every rule's row set to the scripts that cover it.
pub fn with_scripts(markdown: &str, scripts_of: impl Fn(&str) -> Vec<String>) -> String {
    let mut out = String::new();
    for line in markdown.lines() {
        match read(line).first() {
            Some(rule) => {
                let scripts = scripts_of(&rule.id).join(", ");
                out += &format!("| {} | {scripts} |\n", rule.row);
            }
            None => out += &format!("{line}\n"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_and_the_last_cell_is_written() {
        let table = "| id | rule | source | scripts |\n|---|---|---|---|\n| `a.b` | it is so | IBTA 1 | old |\n";
        assert_eq!(read(table), [Rule { id: "a.b".into(), row: "`a.b` | it is so | IBTA 1".into() }]);
        let new = with_scripts(table, |_| vec!["rc/x".into(), "rc/y".into()]);
        assert!(new.ends_with("| `a.b` | it is so | IBTA 1 | rc/x, rc/y |\n"), "{new}");
    }
}
