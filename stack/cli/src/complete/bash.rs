//! Completions for bash, with words as the command has them.
//!
//! In: what clap's own script for bash needs. Out: that script, and one around it (`bash.sh`) that puts words together which bash
//! parts at `=` and `:`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_complete::env::{Bash as Clap, EnvCompleter};

/// Bash.
pub struct Bash;

const WHOLE_WORDS: &str = include_str!("bash.sh");

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        Clap.name()
    }

    fn is(&self, name: &str) -> bool {
        Clap.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        let mut script = Vec::new();
        Clap.write_registration(var, name, bin, completer, &mut script)?;
        let script = String::from_utf8_lossy(&script);
        buf.write_all(script.as_bytes())?;
        // The function that it registers is called by ours.
        let function = script.split_once("()").and_then(|(before, _)| before.split_whitespace().last());
        let function = function.ok_or_else(|| io::Error::other("no function in the script for bash"))?;
        buf.write_all(WHOLE_WORDS.replace("FUNCTION", function).replace("NAME", name).as_bytes())
    }

    fn write_complete(
        &self,
        cmd: &mut Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        Clap.write_complete(cmd, args, current_dir, buf)
    }
}
