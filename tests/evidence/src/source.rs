//! The repository's Rust sources, as text. Enters: the root of the workspace. Leaves: files, functions, tests, marks in comments.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// A Rust file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path from the root, with slashes.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The comment above it, its lines without the slashes.
    pub comment: String,
    /// It is a test that is run: `#[test]`, and not ignored.
    pub is_test: bool,
    /// The line of `fn`, from 0.
    pub line: usize,
    /// How far it is indented.
    pub indent: usize,
}

/// Every Rust file below these folders of the workspace, in order of path.
pub fn sources(folders: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    for folder in folders {
        walk(&root().join(folder), &mut paths);
    }
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).expect("inside the workspace").to_string_lossy().replace('\\', "/");
        Source { path: name, text: fs::read_to_string(&path).expect("readable") }
    };
    paths.into_iter().map(read).collect()
}

fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// How far a line is indented, in columns.
pub fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The name of the function, constant, type or macro that a line begins, if it begins one.
pub fn item(line: &str) -> Option<&str> {
    const KINDS: [&str; 7] = ["fn", "const", "static", "struct", "enum", "macro_rules!", "trait"];
    const BEFORE: [&str; 6] = ["pub", "pub(crate)", "pub(super)", "const", "unsafe", "async"];
    let mut words = line.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let next = words.peek().copied().unwrap_or("");
        if KINDS.contains(&word) && !(word == "const" && KINDS.contains(&next)) {
            let end = next.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(next.len());
            return Some(&next[..end]).filter(|name| !name.is_empty());
        }
        if !BEFORE.contains(&word) {
            return None;
        }
    }
    None
}

impl Source {
    /// Its functions, in order.
    pub fn functions(&self) -> Vec<Function> {
        let (mut functions, mut comment, mut attributes) = (Vec::new(), String::new(), String::new());
        for (line, text) in self.text.lines().enumerate() {
            let code = text.trim_start();
            if let Some(said) = code.strip_prefix("///").or(code.strip_prefix("//")) {
                comment += said.trim();
                comment.push('\n');
                continue;
            }
            if code.starts_with("#[") {
                attributes += code;
                attributes.push('\n');
                continue;
            }
            if let Some(name) = item(text).filter(|name| code.contains(&format!("fn {name}"))) {
                let is_test = attributes.contains("#[test]") && !attributes.contains("#[ignore");
                let (name, comment) = (name.to_owned(), comment.clone());
                functions.push(Function { name, comment, is_test, line, indent: indent(text) });
            }
            comment.clear();
            attributes.clear();
        }
        functions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_with_what_stands_above_them() {
        let text = "/// Says H12.\n#[test]\nfn a() {}\n\n// plain\npub(crate) fn b<T>(x: T) {}\n#[test]\n#[ignore]\nfn c() {}\n";
        let found = Source { path: "x.rs".into(), text: text.into() }.functions();
        let short: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.comment.trim(), f.is_test)).collect();
        assert_eq!(short, [("a", "Says H12.", true), ("b", "plain", false), ("c", "", false)]);
    }

    #[test]
    fn items_are_named() {
        assert_eq!(item("    pub(crate) const fn may_post(self) -> bool {"), Some("may_post"));
        assert_eq!(item("const MAX_PSN_SPAN: u32 = 1 << 23;"), Some("MAX_PSN_SPAN"));
        assert_eq!(item("pub enum Syndrome {"), Some("Syndrome"));
        assert_eq!(item("        let x = fn_of(3);"), None);
    }
}
