//! What a shell asks when TAB is pressed: `xroce` itself answers, so that netdevs and queue pairs are those of the moment.
//!
//! In: [`VARIABLE`] in the environment, and behind `--` the words so far. Out: the words that may stand here, or, without words,
//! the script that makes a shell ask (`xroce completions`).

mod bash;
mod zsh;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_complete::env::{CompleteEnv, Elvish, Fish, Powershell, Shells};
use clap_complete::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use xroce::stat::{Which, endpoints};

use crate::Cli;
use bash::Bash;
use zsh::Zsh;

/// Set to a shell's name by the scripts. Of our own: a `COMPLETE` that is meant for others shall not change what we do.
const VARIABLE: &str = "XROCE_COMPLETE";

/// The command, as `PATH` has it.
const PROGRAM: &str = "xroce";

/// The shells that there are scripts for.
pub const SHELLS: Shells<'static> = Shells(&[&Bash, &Elvish, &Fish, &Powershell, &Zsh]);

/// Answers a shell and ends the process, if it was a shell that asked.
pub fn answer() {
    CompleteEnv::with_factory(Cli::command).shells(SHELLS).var(VARIABLE).bin(PROGRAM).completer(PROGRAM).complete();
}

/// The script for the one of [`SHELLS`] with this name.
pub fn script(shell: &str, out: &mut dyn Write) -> io::Result<()> {
    let shell = SHELLS.completer(shell).ok_or_else(|| io::Error::other("no such shell"))?;
    shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, out)
}

/// The netdevs of this network namespace.
pub fn netdevs() -> ArgValueCandidates {
    ArgValueCandidates::new(netdev_names)
}

/// The same for commands that take udp:ADDRESS, too.
pub fn devices() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let udp = CompletionCandidate::new("udp:").help(Some("plain UDP sockets on an address of this host".into()));
        netdev_names().into_iter().chain([udp]).collect()
    })
}

fn netdev_names() -> Vec<CompletionCandidate> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    // bonding_masters is a file.
    let mut names: Vec<_> = entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name()).collect();
    names.sort();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// The queue pairs that `xroce stat qp` would show.
pub fn queue_pairs() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let reports = endpoints().into_iter().filter_map(|endpoint| endpoint.ask(Which::All).ok());
        let qp = |name: &str, qpn: u32| {
            CompletionCandidate::new(format!("{qpn:#x}")).help(Some(format!("on {name}").into()))
        };
        reports.flat_map(|r| r.qps.iter().map(|stat| qp(&r.device.name, stat.qpn)).collect::<Vec<_>>()).collect()
    })
}

/// The commands of xroce.
pub fn commands() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let whole = Cli::command();
        let about = |command: &Command| CompletionCandidate::new(command.get_name()).help(command.get_about().cloned());
        whole.get_subcommands().map(about).collect()
    })
}

/// The users of this machine.
pub fn users() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let table = fs::read_to_string("/etc/passwd").unwrap_or_default();
        table.lines().filter_map(|line| line.split(':').next()).map(CompletionCandidate::new).collect()
    })
}

/// The path MTUs.
pub fn path_mtus() -> ArgValueCandidates {
    ArgValueCandidates::new(|| ["256", "512", "1024", "2048", "4096"].map(CompletionCandidate::new).into())
}

/// Levels of the log, where a filter wants one; targets before.
pub fn log_filters() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| filters(&current.to_string_lossy()))
}

fn filters(current: &str) -> Vec<CompletionCandidate> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    const TARGET: &str = "xroce::qp=";
    let done = current.rfind([',', '=']).map_or(0, |at| at + 1);
    let (before, word) = current.split_at(done);
    let target = (!before.ends_with('=')).then_some(TARGET);
    let fits = LEVELS.into_iter().chain(target).filter(|candidate| candidate.starts_with(word));
    fits.map(|candidate| CompletionCandidate::new(format!("{before}{candidate}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_wanted_behind_a_target() {
        let words = |current| {
            let candidates = filters(current);
            candidates.iter().map(|c| c.get_value().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words("de"), ["debug"]);
        assert_eq!(words("xro"), ["xroce::qp="]);
        assert_eq!(words("warn,xroce::qp=t"), ["warn,xroce::qp=trace"]);
        assert_eq!(words("x=").len(), 6);
        assert_eq!(words("info,").len(), 7);
    }
}
