//! The `xroce` command: arguments enter, exit codes leave: 0 done, 1 failed, 2 usage. Errors go to standard error.
#![deny(unsafe_code)]

mod closed_pipe;
mod commands;
mod complete;
mod cpu;
mod device;
mod faults;
mod idle;
mod log;
mod number;
mod progress;
mod sim;
mod tcp;
mod xdp;

use std::error::Error;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use commands::{
    Outcome, Usage, agent, completions, decode, devinfo, doctor, lab, man, perf, pingpong, script, stat, top,
};
use xroce::QpType;

/// A software RoCE v2 NIC in user space.
///
/// xroce speaks RoCE v2, the InfiniBand transport over UDP port 4791, on an ordinary Ethernet port through AF_XDP. The peer may be a
/// NIC in hardware, the kernel's rdma_rxe or another xroce.
///
/// Most commands open a device: -d takes a netdev, which needs root or some capabilities (`xroce doctor` says which are missing), or
/// udp:ADDRESS, which needs none. --sim plays both ends in one process.
#[derive(Debug, Parser)]
#[command(name = "xroce", version, disable_help_subcommand = true)]
struct Cli {
    /// Tell on standard error what the stack does: a level, or TARGET=LEVEL and more behind commas; xroce::qp is the target of
    /// queue pairs [env: RUST_LOG]
    #[arg(long, global = true, value_name = "FILTER", add = complete::log_filters())]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Agent(agent::Args),
    Completions(completions::Args),
    Decode(decode::Args),
    Devinfo(devinfo::Args),
    Doctor(doctor::Args),
    Lab(lab::Args),
    Man(man::Args),
    Perf(perf::Args),
    #[command(name = "rc_pingpong")]
    RcPingpong(pingpong::Args),
    #[command(name = "uc_pingpong")]
    UcPingpong(pingpong::Args),
    Script(script::Args),
    Stat(stat::Args),
    Top(top::Args),
}

impl Command {
    fn name(&self) -> &'static str {
        match self {
            Command::Agent(_) => "agent",
            Command::Completions(_) => "completions",
            Command::Decode(_) => "decode",
            Command::Devinfo(_) => "devinfo",
            Command::Doctor(_) => "doctor",
            Command::Lab(_) => "lab",
            Command::Man(_) => "man",
            Command::Perf(_) => "perf",
            Command::RcPingpong(_) => "rc_pingpong",
            Command::UcPingpong(_) => "uc_pingpong",
            Command::Script(_) => "script",
            Command::Stat(_) => "stat",
            Command::Top(_) => "top",
        }
    }

    fn run(&self) -> Result<Outcome, Box<dyn Error>> {
        match self {
            Command::Agent(args) => Ok(agent::run(args)?),
            Command::Completions(args) => Ok(completions::run(args)?),
            Command::Decode(args) => Ok(decode::run(args)?),
            Command::Devinfo(args) => Ok(devinfo::run(args)?),
            Command::Doctor(args) => Ok(doctor::run(args)?),
            Command::Lab(args) => Ok(lab::run(args)?),
            Command::Man(args) => Ok(man::run(args, Cli::command())?),
            Command::Perf(args) => Ok(perf::run(args)?),
            Command::RcPingpong(args) => Ok(pingpong::run(args, QpType::Rc)?),
            Command::UcPingpong(args) => Ok(pingpong::run(args, QpType::Uc)?),
            Command::Script(args) => Ok(script::run(args)?),
            Command::Stat(args) => Ok(stat::run(args)?),
            Command::Top(args) => Ok(top::run(args)?),
        }
    }
}

fn main() -> ExitCode {
    closed_pipe::ends_the_process();
    complete::answer();
    // A usage error ends in here with exit code 2, --help and --version with 0.
    let Cli { log, command } = Cli::parse();
    match log::start(log.as_deref()).map_err(Into::into).and_then(|()| command.run()) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xroce {}: {error}", command.name());
            if is_usage(&*error) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Whether the arguments are at fault.
fn is_usage(error: &(dyn Error + 'static)) -> bool {
    error.is::<Usage>()
        || matches!(error.downcast_ref(), Some(man::ManError::Usage(_)))
        || matches!(error.downcast_ref(), Some(lab::LabError::Script(_)))
        || matches!(error.downcast_ref(), Some(pingpong::PingpongError::Usage(_)))
        || matches!(error.downcast_ref(), Some(perf::PerfError::Usage(_)))
        || error.downcast_ref::<script::ScriptError>().is_some_and(script::ScriptError::is_usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
