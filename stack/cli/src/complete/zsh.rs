//! Completions for zsh, also from `$fpath`.
//!
//! In: the names that clap gives. Out: a script (`zsh.sh`) that asks as clap's own for zsh does. That one only registers a function, so
//! that, installed below `$fpath`, where it is loaded by the first TAB, it leaves this TAB without an answer.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_complete::env::{EnvCompleter, Zsh as Clap};

/// zsh.
pub struct Zsh;

const SCRIPT: &str = include_str!("zsh.sh");

impl EnvCompleter for Zsh {
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
        _bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        let script = SCRIPT.replace("NAME", name).replace("VARIABLE", var).replace("COMPLETER", completer);
        buf.write_all(script.as_bytes())
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
