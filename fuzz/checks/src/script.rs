//! The reader of packet scripts: any text is a script or an error that points into it.
//!
//! In: text. Out: nothing.

use xroce_scripts::parse::parse;

/// Longer texts only repeat themselves.
const LONGEST: usize = 16 << 10;

/// Reads the text.
pub fn check(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else { return };
    if text.len() > LONGEST {
        return;
    }
    match parse("fuzz", text) {
        Ok(script) => {
            let lines = text.lines().count() as u32;
            assert!(script.steps.iter().all(|step| (1..=lines).contains(&step.line)));
        }
        Err(error) => {
            assert!(error.line as usize <= text.lines().count(), "{error}");
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            // `$i` of a repeat may make a line longer than it stands in the file.
            assert!(error.column >= 1 && error.column <= longest * 5 + 1, "column {}: {error}", error.column);
            assert!(!error.to_string().is_empty());
        }
    }
}
