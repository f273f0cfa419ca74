//! `xroce script FILE...`: packet scripts, played against the stack of this program or against a peer across the wire.
//!
//! Scripts enter; what was expected and what came leaves. With `--peer` the script's packets go over AF_XDP, and the peer's
//! verbs calls are made by an agent there.

mod peer;
mod report;
mod wire;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use xroce_script::agent::{Agent, AgentError};
use xroce_script::files::{self, LoadError};
use xroce_script::known::{self, Known, KnownError};
use xroce_script::live::Timing;
use xroce_script::report::Report;
use xroce_script::{LiveTarget, LocalTarget, Script, runner};

use super::{Outcome, Usage};
use crate::complete;
use crate::device::{CaptureFile, DeviceError};
use crate::number::number;
use peer::{PeerAddress, PeerError};
use report::{Played, Printer, Summary};
use wire::{WireError, XdpWire};

/// Play packet scripts: the rules of RC and UC, one behaviour a file.
///
/// Without --peer they are played against the stack of this program, in virtual time. With it, against any RoCE v2 device: its
/// machine runs a verbs agent (`xroce agent`, or the one in C over libibverbs; see docs/conformance.md).
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Script files, or folders with scripts
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The peer's verbs agent: host and TCP port [default port: 18516]
    #[arg(long, value_name = "HOST[:PORT]")]
    peer: Option<PeerAddress>,
    /// The peer's RoCE address, where it is not that of the agent
    #[arg(long, value_name = "ADDRESS", requires = "peer")]
    roce: Option<std::net::IpAddr>,
    /// The peer's RDMA device (rxe0, mlx5_0) [default: the first]
    #[arg(long, value_name = "NAME", requires = "peer")]
    peer_device: Option<String>,
    /// Netdev that the script's packets leave by [default: the first that is up and can carry RoCE]
    #[arg(short = 'd', long = "device", visible_alias = "ib-dev", value_name = "NETDEV", requires = "peer", add = complete::netdevs())]
    device: Option<String>,
    /// Index of our own GID [default: the first routable one of each family]
    #[arg(short, long, value_name = "INDEX", value_parser = number::<u8>, requires = "peer")]
    gid_idx: Option<u8>,
    /// Capture every RoCE frame, in pcapng
    #[arg(long, value_name = "FILE", requires = "peer")]
    pcap: Option<PathBuf>,
    /// What the peer is known to do otherwise: lines of script name and reason. Holds in both directions
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// With --peer: also the scripts that are not for any device (where: dut), for a peer that is an xroce
    #[arg(long, requires = "peer")]
    all: bool,
    /// With --peer: how much longer to wait than for a peer nearby, as a factor
    #[arg(long, value_name = "FACTOR", requires = "peer", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    patience: u32,
    /// Show what happened in each script, also where all was as it should be
    #[arg(short, long)]
    verbose: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Why scripts were not played.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// A script, or the list of deviations, is wrong.
    #[error(transparent)]
    Usage(#[from] Usage),
    /// A file cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The list of known deviations.
    #[error(transparent)]
    Known(#[from] KnownError),
    /// There is no way to the peer.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The agent does not answer.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The wire cannot be had.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The capture cannot be written.
    #[error(transparent)]
    Capture(#[from] DeviceError),
    /// The output cannot be written.
    #[error("output: {0}")]
    Write(#[from] io::Error),
}

impl ScriptError {
    /// Whether what was given is at fault, not what was found.
    pub fn is_usage(&self) -> bool {
        matches!(self, ScriptError::Usage(_) | ScriptError::Load(_) | ScriptError::Known(_))
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome, ScriptError> {
    let paths = files::find(&args.files)?;
    // All are read before the first is played: a slip in the last must not cost the time of the others.
    let scripts: Vec<Script> = paths.iter().map(|path| files::load(path)).collect::<Result<_, _>>()?;
    let known = args.known.as_deref().map(Known::read).transpose()?.unwrap_or_default();
    let mut printer = Printer::new(args.json, args.verbose);
    let summary = match &args.peer {
        None => play_all(&scripts, &known, &mut printer, |script| Ok(runner::run(script, &mut LocalTarget::new())))?,
        Some(address) => live(args, address, &scripts, &known, &mut printer)?,
    };
    printer.finish(&summary)?;
    Ok(if summary.is_good() { Outcome::Done } else { Outcome::Failed })
}

fn play_all(
    scripts: &[Script],
    known: &Known,
    printer: &mut Printer,
    mut play: impl FnMut(&Script) -> Result<Report, ScriptError>,
) -> Result<Summary, ScriptError> {
    let mut summary = Summary::default();
    for script in scripts {
        let start = Instant::now();
        let report = play(script)?;
        let outcome = known.judge(&report);
        let played = Played { report, outcome, took: start.elapsed() };
        summary.count(&played);
        printer.show(&played)?;
    }
    Ok(summary)
}

fn live(
    args: &Args,
    address: &PeerAddress,
    scripts: &[Script],
    known: &Known,
    printer: &mut Printer,
) -> Result<Summary, ScriptError> {
    let capture = args.pcap.as_deref().map(CaptureFile::create).transpose()?;
    let agent = address.resolve()?;
    let mut wire = XdpWire::open(args.device.as_deref(), capture.as_ref())?;
    let roce = args.roce.unwrap_or(agent.ip());
    let mut peer = peer::find(&mut wire, agent, args.peer_device.as_deref(), roce, args.gid_idx)?;
    peer.lacking_events = known.lacking_events().to_vec();
    let timing = timing(args.patience);
    let device = args.peer_device.as_deref();
    let summary = play_all(scripts, known, printer, |script| {
        let mut attempts = 0;
        loop {
            attempts += 1;
            // A connection a script: what the script before left at the peer is gone with its own.
            let mut target =
                LiveTarget::new(&mut wire, Agent::connect(agent)?, device, peer.clone(), timing, args.all)?;
            let report = runner::run(script, &mut target);
            let blind = target.blind();
            target.close();
            if attempts == ATTEMPTS || !counts_for_nothing(&known.judge(&report), blind, &timing) {
                return Ok(report);
            }
            let name = &report.name;
            eprintln!("again       {name}: nobody looked at the wire for {} ms on the way", blind.as_millis());
        }
    })?;
    drop(wire);
    if let Some(capture) = capture {
        capture.finish()?;
    }
    Ok(summary)
}

/// How often a script is played at most.
const ATTEMPTS: u32 = 4;

/// The script did not go as it should, but neither did time: its own steps came so late that the device may have been right.
fn counts_for_nothing(outcome: &known::Outcome, blind: Duration, timing: &Timing) -> bool {
    matches!(outcome, known::Outcome::Failed | known::Outcome::OutOfDate(_)) && blind > timing.quiet
}

/// How long to wait for a peer that takes `factor` times as long as one nearby.
fn timing(factor: u32) -> Timing {
    let usual = Timing::default();
    let raised = usual.ack_timeout + factor.ilog2() as u8 + u8::from(!factor.is_power_of_two());
    Timing {
        quiet: usual.quiet.saturating_mul(factor),
        answer: usual.answer.saturating_mul(factor).min(Duration::from_secs(60)),
        ack_timeout: raised.min(31),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_counts_unless_the_machine_stood_still() {
        let (timing, moment) = (Timing::default(), Duration::from_millis(1));
        let outcomes = [known::Outcome::Failed, known::Outcome::OutOfDate(String::new())];
        for outcome in &outcomes {
            assert!(counts_for_nothing(outcome, timing.quiet + moment, &timing));
            assert!(!counts_for_nothing(outcome, timing.quiet, &timing), "{outcome:?}");
        }
        for outcome in [known::Outcome::Passed, known::Outcome::Deviates(String::new())] {
            assert!(!counts_for_nothing(&outcome, timing.answer, &timing), "{outcome:?}");
        }
    }

    #[test]
    fn the_ack_timeout_stays_longer_than_an_answer_may_take() {
        for factor in [1, 2, 3, 10, 100] {
            let timing = timing(factor);
            let ack_timeout = Duration::from_nanos(4096 << timing.ack_timeout);
            assert!(ack_timeout * 9 / 10 > timing.answer * 2, "{factor}: {timing:?}");
        }
    }
}
