//! The `xroce` command: arguments enter, exit codes leave: 0 done, 1 failed, 2 usage. Errors go to standard error.
#![deny(unsafe_code)]

mod commands;
mod describe;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commands::{Outcome, decode, doctor};

/// A software RoCE v2 NIC in user space.
#[derive(Debug, Parser)]
#[command(name = "xroce", version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Decode(decode::Args),
    Doctor(doctor::Args),
}

impl Command {
    fn name(&self) -> &'static str {
        match self {
            Command::Decode(_) => "decode",
            Command::Doctor(_) => "doctor",
        }
    }

    fn run(&self) -> Result<Outcome, Box<dyn std::error::Error>> {
        match self {
            Command::Decode(args) => Ok(decode::run(args)?),
            Command::Doctor(args) => Ok(doctor::run(args)?),
        }
    }
}

fn main() -> ExitCode {
    // A usage error ends in here with exit code 2, --help and --version with 0.
    let command = Cli::parse().command;
    match command.run() {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xroce {}: {error}", command.name());
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn arguments_do_not_contradict_each_other() {
        super::Cli::command().debug_assert();
    }
}
