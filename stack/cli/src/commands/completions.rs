//! `xroce completions SHELL`: what makes a shell complete the command line of `xroce`.
//!
//! A shell's name enters, its script leaves.

use std::io::{self, Write};

use clap::builder::PossibleValuesParser;

use super::Outcome;
use crate::complete::{SHELLS, script};

/// Print the script that makes a shell complete xroce's command line.
///
/// For this session: `source <(xroce completions bash)`, and `xroce completions fish | source`. `make install` and the packages put
/// the scripts where the shells look for them.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Which shell
    #[arg(value_parser = PossibleValuesParser::new(SHELLS.names()))]
    shell: String,
}

/// Runs the command.
pub fn run(args: &Args) -> io::Result<Outcome> {
    let mut text = Vec::new();
    script(&args.shell, &mut text)?;
    io::stdout().lock().write_all(&text)?;
    Ok(Outcome::Done)
}
