//! What is wrong with a script, and where.

use core::fmt;

/// A script that cannot be read: where, what was expected there, and what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ParseError {
    /// The file, as it was named.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: usize,
    /// What would have been right.
    pub expected: String,
    /// What stands there; empty at the end of a line.
    pub found: String,
    /// The whole line.
    pub text: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseError { file, line, column, expected, found, text } = self;
        write!(f, "{file}:{line}:{column}: expected {expected}, found ")?;
        match found.is_empty() {
            true => writeln!(f, "the end of the line")?,
            false => writeln!(f, "`{found}`")?,
        }
        writeln!(f, "{line:>5} | {text}")?;
        write!(f, "      | {:>column$}", "^")
    }
}

/// The name in `names` that is most like `word`, if one is near: for "did you mean".
pub(crate) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names.map(|name| (distance(word, name), name)).filter(|(d, _)| *d <= 1 + word.len() / 4).min().map(|(_, name)| name)
}

/// Edits between two words (Levenshtein, with case ignored).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_found() {
        let names = ["SEND_ONLY", "SEND_FIRST", "WRITE_ONLY"];
        assert_eq!(nearest("SNED_ONLY", names.into_iter()), Some("SEND_ONLY"));
        assert_eq!(nearest("write_only", names.into_iter()), Some("WRITE_ONLY"));
        assert_eq!(nearest("CNP", names.into_iter()), None);
    }
}
