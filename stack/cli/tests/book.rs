//! The book (docs/) does what it says: its commands run, its links lead somewhere, no page is left out.
//!
//! A block that begins with "```sh,run" is a command to run, with this build's `xroce` in the path and an empty working
//! directory of its own for each page. More may follow: `needs=PROGRAM` skips it where that program is missing,
//! `in=workspace` runs it in the project's folder. A block "```text,contains" right behind it lists lines that the output
//! must contain.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Targets of the links `](...)` in `text` that stay inside the book, without fragments.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?.split('#').next()?;
        (!target.is_empty() && !target.contains("://")).then_some(target)
    })
}

/// The book's pages in the order of its summary.
fn pages() -> Vec<String> {
    let summary = fs::read_to_string(docs().join("SUMMARY.md")).expect("docs/SUMMARY.md");
    links(&summary).map(str::to_owned).collect()
}

struct Block {
    line: usize,
    info: Vec<String>,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(docs().join(page)).unwrap_or_else(|e| panic!("docs/{page}: {e}"));
    let mut out: Vec<Block> = Vec::new();
    let mut inside = false;
    for (i, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), inside) {
            (Some(info), false) => {
                out.push(Block {
                    line: i + 1,
                    info: info.split(',').map(str::to_owned).collect(),
                    text: String::new(),
                });
                inside = true;
            }
            (Some(_), true) => inside = false,
            (None, true) => {
                let block = out.last_mut().expect("a block is open");
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    assert!(!inside, "docs/{page}: a code block is not closed");
    out
}

impl Block {
    fn is(&self, language: &str, word: &str) -> bool {
        self.info.first().is_some_and(|l| l == language) && self.info.iter().any(|w| w == word)
    }

    fn option(&self, name: &str) -> Option<&str> {
        self.info.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}

fn in_path(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(program).is_file())
}

/// Runs one block; what it printed.
fn run(page: &str, block: &Block, scratch: &Path) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_xroce")).parent().expect("a folder").to_path_buf();
    let path = std::env::join_paths(
        [bin].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )
    .expect("a path");
    let workspace = docs().join("..");
    // What runs in the workspace may have to be built first.
    let (place, seconds) =
        if block.option("in") == Some("workspace") { (&*workspace, "400") } else { (scratch, "120") };
    let output = Command::new("timeout")
        .args([seconds, "bash", "-euo", "pipefail", "-c", &block.text])
        .current_dir(place)
        .env("PATH", path)
        .output()
        .expect("bash starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "docs/{page}:{}: {}\n{said}{}",
        block.line,
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

fn check_page(page: &str, scratch: &Path) -> usize {
    let blocks = blocks(page);
    let mut ran = 0;
    for (i, block) in blocks.iter().enumerate().filter(|(_, b)| b.is("sh", "run")) {
        if let Some(program) = block.option("needs").filter(|p| !in_path(p)) {
            // Past the test harness, which keeps what a passing test prints.
            let _ = writeln!(io::stderr(), "\nSKIP the command at docs/{page}:{}: no {program} here", block.line);
            continue;
        }
        let said = run(page, block, scratch);
        ran += 1;
        let expected = blocks.get(i + 1).filter(|b| b.is("text", "contains"));
        for line in expected.iter().flat_map(|b| b.text.lines()) {
            assert!(said.contains(line), "docs/{page}:{}: {line:?} is not in the output:\n{said}", block.line);
        }
    }
    ran
}

#[test]
fn commands_run_as_they_stand() {
    let scratch = std::env::temp_dir().join(format!("xroce-book-{}", std::process::id()));
    let mut ran = 0;
    for page in pages() {
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch).expect("a folder of our own");
        ran += check_page(&page, &scratch);
    }
    let _ = fs::remove_dir_all(&scratch);
    assert!(ran > 0, "the book has no command that was run");
}

#[test]
fn every_page_is_in_the_summary_and_every_link_leads_to_a_file() {
    let pages: BTreeSet<String> = pages().into_iter().collect();
    for entry in fs::read_dir(docs()).expect("docs") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") && name != "SUMMARY.md" {
            assert!(pages.contains(&name), "docs/{name} is not in docs/SUMMARY.md");
        }
    }
    for page in &pages {
        let text = fs::read_to_string(docs().join(page)).unwrap_or_else(|e| panic!("docs/{page}: {e}"));
        for target in links(&text) {
            assert!(docs().join(target).exists(), "docs/{page}: there is no {target}");
        }
    }
}
