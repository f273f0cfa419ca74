//! The committed corpus of every target, and some thousand mutations of it: what a fuzzer found stays found, on any compiler.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use xroce_fuzz_checks::{TARGETS, Target};

/// Mutations of each target; a second or two in all.
const MUTATIONS: usize = 1_000;

/// Inputs beyond this are no longer what a corpus should hold.
const LONGEST: usize = 32 << 10;

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(target)
}

/// The corpus of a target, in order of name.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder(target)).unwrap_or_else(|e| panic!("{}: {e}", folder(target).display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    let name = |path: &Path| path.file_name().expect("a file").to_string_lossy().into_owned();
    let files: Vec<_> = paths.iter().map(|path| (name(path), fs::read(path).expect("readable"))).collect();
    assert!(!files.is_empty(), "{target} has no corpus");
    files
}

/// Runs one input; a failure names it.
fn run(&(target, check): &Target, name: &str, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| check(input))).is_err() {
        panic!("{target} fails on {name}: {}", input.iter().map(|b| format!("{b:02x}")).collect::<String>());
    }
}

/// The same numbers every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n.max(1)
    }

    fn mutate(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(3) {
            let at = self.below(input.len() + 1);
            match self.below(6) {
                0 => input.truncate(at),
                1 => input.insert(at, self.below(256) as u8),
                2 => input.extend_from_slice(&other[self.below(other.len())..]),
                3 => {
                    let with = &other[self.below(other.len())..];
                    input.truncate(at);
                    input.extend_from_slice(with);
                }
                _ => {
                    if let Some(byte) = input.get_mut(at) {
                        *byte = if self.below(2) == 0 { *byte ^ 1 << self.below(8) } else { self.below(256) as u8 };
                    }
                }
            }
            input.truncate(LONGEST);
        }
    }
}

#[test]
fn every_input_of_the_corpus_holds() {
    for target in TARGETS {
        for (name, input) in corpus(target.0) {
            run(target, &name, &input);
        }
    }
}

#[test]
fn mutations_of_the_corpus_hold() {
    for target in TARGETS {
        let files = corpus(target.0);
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
        for round in 0..MUTATIONS {
            let (name, mut input) = files[round % files.len()].clone();
            let other = &files[dice.below(files.len())].1;
            dice.mutate(&mut input, other);
            run(target, &format!("mutation {round} of {name}"), &input);
        }
    }
}

#[test]
fn the_corpus_is_small() {
    for (target, _) in TARGETS {
        let files = corpus(target);
        let bytes: usize = files.iter().map(|(_, input)| input.len()).sum();
        assert!(bytes <= 200 << 10, "{target}: {bytes} bytes; dev/fuzz --minimise {target}");
        assert!(files.iter().all(|(_, input)| input.len() <= LONGEST), "{target} has an input beyond {LONGEST} bytes");
    }
}

/// A target that libFuzzer runs and this test does not, or the other way round, would look like a check that passes.
#[test]
fn targets_are_those_of_the_fuzzer() {
    let bins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz_targets");
    let mut bins: Vec<String> = fs::read_dir(bins)
        .expect("fuzz_targets")
        .map(|entry| entry.expect("readable").path().file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    bins.sort();
    assert_eq!(bins, TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>());
}
