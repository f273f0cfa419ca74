//! `xroce doctor [-d NETDEV] [--json]`: what this machine can do, and for each missing thing its remedy.
//!
//! Nothing enters but the machine itself. Nothing on it is changed, but that the netdev asked for, if one is, is opened for a
//! moment. The outcome is done if an AF_XDP endpoint can be opened here (was opened on that netdev), else failed.

mod checks;
mod netdev;
#[allow(unsafe_code)]
mod sys;
mod xdp_features;

use std::io::{self, Write};

use serde::Serialize;
use xroce::{Device, Progress};

use super::Outcome;
use crate::complete;
use crate::xdp::Xdp;
use checks::Check;
use netdev::{Netdev, Sys};

/// Version of the JSON object; grows when a field changes its meaning or goes away.
const JSON_VERSION: u32 = 1;

/// Tell what this machine can do, and the remedy for each missing thing.
///
/// A netdev that is named is opened for a moment, as the other commands do: only that tells what its driver really takes. Some NICs
/// lose their link for it for a second or two. Of the others the drivers' word is shown.
///
/// Exit code 0 if an AF_XDP endpoint can be opened, else 1.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Look at this netdev only, and open it for a moment
    #[arg(short, long, value_name = "NETDEV", add = complete::netdevs())]
    device: Option<String>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Why `doctor` could not tell.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The output cannot be written.
    #[error("output: {0}")]
    Write(#[from] io::Error),
}

/// All that was found.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    /// An AF_XDP endpoint can be opened.
    ok: bool,
    checks: Vec<Check>,
    netdevs: Vec<Netdev>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome, DoctorError> {
    // One of its alternative names will do; the folders of /sys know only the first.
    let name =
        args.device.as_deref().map(|name| xroce_engine::netdev::Netdev::open(name).map(|n| n.facts().name.clone()));
    let report = examine(name.and_then(Result::ok).as_deref().or(args.device.as_deref()), &Sys::default());
    let mut out = io::stdout().lock();
    let written = if args.json { json(&mut out, &report) } else { text(&mut out, &report) };
    match written {
        // Who reads our output has seen enough.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(e.into()),
        _ => {}
    }
    Ok(if report.ok { Outcome::Done } else { Outcome::Failed })
}

/// The netdevs that an endpoint can be opened on and that have a carrier, in the kernel's order.
pub fn candidates() -> Vec<String> {
    let sys = Sys::default();
    let usable = |name: &String| sys.netdev(name).is_some_and(|n| n.usable() && n.carrier != Some(false));
    sys.netdevs().into_iter().filter(usable).collect()
}

fn examine(device: Option<&str>, sys: &Sys) -> Report {
    let names = device.map_or_else(|| sys.netdevs(), |d| vec![d.to_owned()]);
    let mut netdevs: Vec<Netdev> = names.iter().filter_map(|n| sys.netdev(n)).collect();
    let mut checks = checks::machine();
    checks.push(netdev_check(device, &netdevs));
    checks.push(rdma_check(&netdevs));
    let can = |checks: &[Check]| checks.iter().all(|c| c.ok || !c.required);
    if let (Some(_), [netdev], true) = (device, &mut netdevs[..], can(&checks)) {
        checks.push(open_check(netdev));
    }
    let ok = can(&checks);
    Report { version: JSON_VERSION, ok, checks, netdevs }
}

/// Whether there is a netdev to open an endpoint on.
fn netdev_check(device: Option<&str>, netdevs: &[Netdev]) -> Check {
    let usable: Vec<&str> = netdevs.iter().filter(|n| n.usable()).map(|n| n.name.as_str()).collect();
    let (found, remedy) = match (device, netdevs, usable.as_slice()) {
        (_, _, [_, ..]) => (usable.join(", "), String::new()),
        (Some(device), [], _) => (
            format!("no netdev {device} in this network namespace"),
            "see `ip link`; for another namespace: ip netns exec NAME xroce doctor".into(),
        ),
        (Some(device), [found, ..], _) => {
            (format!("{device} cannot carry RoCE now"), found.hints.first().cloned().unwrap_or_default())
        }
        (None, ..) => (
            "none that is up and can carry RoCE".into(),
            "set one up, or make a pair to try: ip link add veth0 type veth peer name veth1".into(),
        ),
    };
    Check::required("netdev", !usable.is_empty(), found, remedy)
}

/// Opens it as the other commands do, and closes it again.
fn open_check(netdev: &mut Netdev) -> Check {
    let name = "opened";
    match Device::builder(&netdev.name).progress(Progress::Event).open() {
        Ok(context) => match Xdp::of(&context) {
            Some(got) => {
                let check = Check::required(name, true, got.to_string(), "");
                netdev.opened_as(got);
                check
            }
            None => Check::required(name, false, "it has no AF_XDP", "take another netdev"),
        },
        Err(error) => Check::required(name, false, error.to_string(), "do what it says, or take another netdev"),
    }
}

/// Whether the kernel's own RDMA sits on a netdev that we would take the packets from.
fn rdma_check(netdevs: &[Netdev]) -> Check {
    let taken: Vec<String> =
        netdevs.iter().flat_map(|n| n.rdma.iter().map(move |r| format!("{r} on {}", n.name))).collect();
    let found = if taken.is_empty() { "on no netdev looked at".to_owned() } else { taken.join(", ") };
    Check::optional(
        "kernel_rdma",
        taken.is_empty(),
        found,
        "use another netdev than the kernel does, or: rdma link delete NAME (its packets would go to xroce)",
    )
}

fn json(out: &mut impl Write, report: &Report) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

fn text(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let mut told = "";
    for check in &report.checks {
        let mark = match (check.ok, check.required) {
            (true, _) => "ok",
            (false, true) => "MISSING",
            (false, false) => "note",
        };
        writeln!(out, "{mark:<8} {:<14} {}", check.name, check.found)?;
        if let Some(remedy) = &check.remedy {
            let words = if remedy == told { "as above" } else { remedy };
            writeln!(out, "{:<23} → {words}", "")?;
            told = remedy;
        }
    }
    writeln!(out)?;
    for netdev in &report.netdevs {
        writeln!(out, "{netdev}")?;
        for hint in &netdev.hints {
            writeln!(out, "{:<14} → {hint}", "")?;
        }
    }
    let verdict = if report.ok { "can" } else { "cannot" };
    writeln!(out, "\nAn AF_XDP endpoint {verdict} be opened here.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_netdev_that_is_not_there_fails_with_a_remedy() {
        let check = netdev_check(Some("nosuchdev0"), &[]);
        assert!(!check.ok && check.required);
        assert!(check.found.contains("nosuchdev0") && check.remedy.is_some());
    }

    #[test]
    fn text_marks_what_is_missing_and_says_the_verdict() {
        let checks = vec![
            Check::required("kernel", true, "6.12", "never shown"),
            Check::required("cap_net_raw", false, "not effective", "run with sudo"),
            Check::optional("huge_pages", false, "none", "sysctl"),
        ];
        let mut out = Vec::new();
        text(&mut out, &Report { version: JSON_VERSION, ok: false, checks, netdevs: Vec::new() }).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("ok       kernel") && !out.contains("never shown"));
        assert!(out.contains("MISSING  cap_net_raw") && out.contains("→ run with sudo"));
        assert!(out.contains("note     huge_pages"));
        assert!(out.contains("cannot be opened"));
    }
}
