//! Faults on purpose, for tests. In: chances in per cent. Out: a device whose frames suffer them.
//!
//! Loss and corruption happen in the XDP program, on receive: before anything of ours sees the frame, and without system calls.
//! XDP cannot keep a frame back, so reorder happens on the sending side: a frame waits while a few later ones pass it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use xroce::{DeviceBuilder, PortCounters};
use xroce_port::fault::{Action, Fault, Faults, Rule};
use xroce_port::pcap::Tap;
use xroce_port::xdp;

/// Which faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, clap::Args)]
pub struct FaultArgs {
    /// For tests: drop this share of the RoCE frames received, in the XDP program (0 to 99)
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    drop: Option<f64>,
    /// For tests: flip a bit in this share of the RoCE frames received, in the XDP program (0 to 99)
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    corrupt: Option<f64>,
    /// For tests: send this share of the frames behind one to four later ones (0 to 99)
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    reorder: Option<f64>,
}

/// How many later frames pass one that is kept back.
const OVERTAKEN_BY: [u32; 4] = [1, 2, 3, 4];

/// A share in per cent, with or without the sign.
fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.strip_suffix('%').unwrap_or(text).parse().map_err(|_| "a number is needed".to_owned())?;
    if (0.0..=99.0).contains(&value) { Ok(value) } else { Err("it must be 0 to 99".to_owned()) }
}

/// The same in 1/65536, but never none where some was asked for.
fn per_64k(percent: f64) -> u16 {
    if percent == 0.0 { 0 } else { ((percent * 655.36).round() as u16).max(1) }
}

impl FaultArgs {
    /// Whether there are any.
    pub fn any(&self) -> bool {
        *self != FaultArgs::default()
    }

    /// Whether there are any that the XDP program makes.
    pub fn needs_xdp(&self) -> bool {
        self.drop.is_some() || self.corrupt.is_some()
    }

    /// How long a command has to hear nothing before it may believe that the other end lacks nothing any more. Where
    /// acknowledgements are lost on purpose: longer than that end's ACK timer, which may be doubled twice (0.27 s).
    pub fn quiet(&self) -> Duration {
        if self.any() { Duration::from_millis(300) } else { Duration::from_millis(20) }
    }

    /// The device with these faults; each is noted in the capture that `tap` leads to by then, if one does.
    pub fn apply(&self, builder: DeviceBuilder, tap: Arc<OnceLock<Tap>>) -> DeviceBuilder {
        let faults = xdp::Faults {
            drop_per_64k: self.drop.map_or(0, per_64k),
            corrupt_per_64k: self.corrupt.map_or(0, per_64k),
            drop_nth: 0,
        };
        let builder = builder.xdp(|config| config.faults = faults);
        let Some(share) = self.reorder.filter(|share| *share > 0.0) else { return builder };
        builder.wrap(move |port| {
            let fault = Fault::new(port, u64::from(std::process::id()));
            let fault = match tap.get() {
                Some(tap) => fault.with_tap(tap.clone()),
                None => fault,
            };
            keep_back(&fault.faults(), share);
            Box::new(fault)
        })
    }

    /// What was done, for the user; None without faults.
    pub fn report(&self, counters: &PortCounters) -> Option<String> {
        let PortCounters { rx_frames, rx_faults_dropped, rx_faults_corrupted, .. } = counters;
        self.any().then(|| {
            format!("xroce: faults: {rx_faults_dropped} dropped and {rx_faults_corrupted} corrupted on purpose, {rx_frames} received")
        })
    }
}

fn keep_back(faults: &Faults, share: f64) {
    // Each rule sees every frame, so the chances add up.
    let chance = share / 100.0 / OVERTAKEN_BY.len() as f64;
    for by in OVERTAKEN_BY {
        let added = faults.add(Rule::tx(Action::HoldFrames(by)).chance(chance).named("reorder"));
        debug_assert!(added.is_ok(), "0 to 99 per cent of frames, kept back for at least one");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_per_cent() {
        assert_eq!(percent("1.5%"), Ok(1.5));
        assert_eq!((per_64k(0.0), per_64k(1.0), per_64k(50.0), per_64k(0.0001)), (0, 655, 32768, 1));
        for bad in ["", "x", "-1", "100", "NaN"] {
            assert!(percent(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_report_only_where_something_was_asked_for() {
        let counters = PortCounters { rx_faults_dropped: 7, ..PortCounters::default() };
        assert_eq!(FaultArgs::default().report(&counters), None);
        let asked = FaultArgs { drop: Some(1.0), ..FaultArgs::default() };
        assert!(asked.report(&counters).unwrap().contains("7 dropped"));
    }
}
