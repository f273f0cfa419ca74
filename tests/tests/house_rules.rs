//! The rules of the house that a machine can check: which room may use which, what sans-IO means, where unsafe stands.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// Every Rust file under `dir`, with its text.
fn sources(dir: &str) -> Vec<(String, String)> {
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
    let mut paths = Vec::new();
    walk(&root().join(dir), &mut paths);
    assert!(!paths.is_empty(), "no Rust files in {dir}");
    paths
        .into_iter()
        .map(|p| {
            let name = p.strip_prefix(root()).expect("inside the workspace").display().to_string();
            (name, fs::read_to_string(&p).expect("readable"))
        })
        .collect()
}

/// Code without comments, line by line.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(i, line)| (i + 1, line.split("//").next().unwrap_or("")))
}

#[test]
fn dependencies_point_down_only() {
    // cli → verbs → engine → {transport, port} → wire, and the XDP program under the port; cli → lab → the same three and script.
    let may_use: &[(&str, &[&str])] = &[
        ("stack/wire", &[]),
        ("stack/transport", &["xroce-wire"]),
        ("stack/port", &["xroce-wire", "xroce-xdp-prog"]),
        ("xdp-prog", &[]),
        ("stack/engine", &["xroce-wire", "xroce-transport", "xroce-port"]),
        ("stack/lab", &["xroce-wire", "xroce-transport", "xroce-port", "xroce-script"]),
        ("stack/verbs", &["xroce-wire", "xroce-transport", "xroce-port", "xroce-engine"]),
        ("stack/script", &["xroce-wire", "xroce-transport"]),
    ];
    for (room, allowed) in may_use {
        let manifest = fs::read_to_string(root().join(room).join("Cargo.toml")).expect("a manifest");
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or("").split("\n[").next().unwrap_or("");
        for line in dependencies.lines().filter(|l| l.starts_with("xroce")) {
            let name = line.split(['.', ' ', '=']).next().unwrap_or("");
            assert!(allowed.contains(&name), "{room} must not depend on {name}");
        }
    }
}

#[test]
fn wire_and_transport_are_sans_io() {
    const BANNED: [&str; 6] = ["std::time", "std::net", "std::thread", "std::io", "std::fs", "std::env"];
    for room in ["stack/wire/src", "stack/transport/src"] {
        for (name, text) in sources(room) {
            // A test module may start threads to break what must hold between threads.
            let text = text.split("#[cfg(test)]").next().unwrap_or("");
            if name.ends_with("tests.rs") {
                continue;
            }
            for (line, code) in code_lines(text) {
                for banned in BANNED {
                    assert!(!code.contains(banned), "{name}:{line} uses {banned}");
                }
            }
        }
    }
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    for room in ["stack", "xdp-prog", "examples", "tests", "fuzz/checks", "fuzz/fuzz_targets"] {
        for (name, text) in sources(room) {
            let lines = text.lines().count();
            assert!(lines <= 800, "{name} has {lines} lines: more than one idea lives there");
        }
    }
}

#[test]
fn every_unsafe_block_says_why() {
    for room in ["stack", "xdp-prog", "fuzz/checks"] {
        for (name, text) in sources(room).into_iter().filter(|(name, _)| name.contains("/src/")) {
            let lines: Vec<&str> = text.lines().collect();
            for (i, line) in lines.iter().enumerate() {
                let code = line.split("//").next().unwrap_or("");
                if code.contains("unsafe {") || code.trim_start().starts_with("unsafe impl") {
                    let before = &lines[i.saturating_sub(8)..=i];
                    let said = before.iter().any(|l| l.contains("SAFETY"));
                    assert!(said, "{name}:{} has no SAFETY comment", i + 1);
                }
            }
        }
    }
}

#[test]
fn modules_say_what_they_are() {
    for (name, text) in sources("stack").into_iter().filter(|(n, _)| n.contains("/src/") && !n.ends_with("tests.rs")) {
        assert!(text.starts_with("//!"), "{name} has no head");
    }
}
