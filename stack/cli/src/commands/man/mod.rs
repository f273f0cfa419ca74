//! `xroce man [COMMAND]`: the manual pages, made from what the command line itself is made from.
//!
//! A command's name enters, its page leaves as roff; with `--dir` the pages of all commands, as files. What arguments alone do not
//! tell (examples, files, the environment) stands in [`pages`].

pub mod pages;
mod render;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Command;

use super::{Outcome, Usage};
use crate::complete;
use render::{SECTION, page, title};

/// Print a manual page, as roff.
///
/// `xroce man stat | man -l -` shows that of `xroce stat`. `make install` and the packages put all of them where man looks.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The page of this command of xroce [default: the page of xroce itself]
    #[arg(add = complete::commands())]
    command: Option<String>,
    /// Write all pages into this directory, as xroce.1, xroce-stat.1 and so on
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "command", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum ManError {
    /// No such command.
    #[error(transparent)]
    Usage(#[from] Usage),
    /// A page cannot be written.
    #[error("{}: {source}", file.display())]
    Write {
        /// Where it was to go.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Runs the command; `whole` is all of the command line.
pub fn run(args: &Args, mut whole: Command) -> Result<Outcome, ManError> {
    whole.build();
    if let Some(dir) = &args.dir {
        return write_all(dir, &whole);
    }
    let command = match &args.command {
        None => &whole,
        Some(name) => find(&whole, name)?,
    };
    let failed = |source| ManError::Write { file: "standard output".into(), source };
    io::stdout().lock().write_all(page(command, &whole).as_bytes()).map_err(failed)?;
    Ok(Outcome::Done)
}

fn find<'a>(whole: &'a Command, name: &str) -> Result<&'a Command, Usage> {
    whole.find_subcommand(name).ok_or_else(|| {
        let names: Vec<&str> = whole.get_subcommands().map(Command::get_name).collect();
        Usage(format!("there is no command {name:?}; there are {}", names.join(", ")))
    })
}

fn write_all(dir: &Path, whole: &Command) -> Result<Outcome, ManError> {
    for command in std::iter::once(whole).chain(whole.get_subcommands()) {
        let file = dir.join(format!("{}.{SECTION}", title(command)));
        fs::write(&file, page(command, whole)).map_err(|source| ManError::Write { file, source })?;
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::Cli;

    fn whole() -> Command {
        let mut whole = Cli::command();
        whole.build();
        whole
    }

    /// The command itself and each below it.
    fn each(whole: &Command) -> impl Iterator<Item = &Command> {
        std::iter::once(whole).chain(whole.get_subcommands())
    }

    #[test]
    fn every_command_and_option_says_what_it_is_for() {
        for command in each(&whole()) {
            let name = title(command);
            assert!(command.get_about().is_some(), "{name} has no description");
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                assert!(arg.get_help().is_some(), "{name}: {} has no help", arg.get_id());
            }
        }
    }

    #[test]
    fn a_page_names_every_option_and_every_other_page() {
        let whole = whole();
        for command in each(&whole) {
            let page = page(command, &whole);
            for option in command.get_opts().filter(|arg| !arg.is_hide_set()) {
                let long = option.get_long().unwrap_or_default().replace('-', "\\-");
                assert!(page.contains(&format!("\\fB\\-\\-{long}\\fR")), "{}: --{long} in {page}", title(command));
            }
            for heading in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\"", "EXAMPLES", "\"SEE ALSO\""]
            {
                assert_eq!(page.matches(&format!(".SH {heading}\n")).count(), 1, "{heading} in {page}");
            }
            for other in each(&whole).map(title).filter(|other| *other != title(command)) {
                let named = format!("\\fB{}\\fR(1)", other.replace('-', "\\-"));
                assert!(page.contains(&named), "{}: no {other}", title(command));
            }
        }
    }

    /// The command lines of `xroce` in a line of a shell, without the prompts.
    fn lines_of_ours(line: &str) -> impl Iterator<Item = &str> {
        let line = line.split_once("# ").map_or(line, |(_, line)| line);
        line.split(['|', '&'])
            .map(|part| part.split('>').next().unwrap_or("").trim())
            .filter(|p| p.starts_with("xroce "))
    }

    #[test]
    fn examples_can_be_typed_as_they_stand() {
        for command in each(&whole()) {
            let name = command.get_name();
            let lines = pages::of(name).examples.iter().flat_map(|(_, lines)| *lines);
            let mut ours: Vec<&str> = lines.flat_map(|line| lines_of_ours(line)).collect();
            for line in &ours {
                let parsed = Cli::try_parse_from(line.split_whitespace());
                assert!(parsed.is_ok(), "{name}: {line}: {}", parsed.unwrap_err());
            }
            ours.retain(|line| name == "xroce" || line.split_whitespace().nth(1) == Some(name));
            assert!(!ours.is_empty(), "{name} has no example of itself");
        }
    }
}
