//! What came of a run: figures of the nodes, summed, as a table and as a plot.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::plan::{Data, Plan};

/// The figures of one node.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct NodeReport {
    /// Index of the node.
    pub node: u32,
    /// Seconds from the first block to the last confirmation.
    pub seconds: f64,
    /// CPU time of the process in that time.
    pub cpu_seconds: f64,
    /// Blocks written, without those written again.
    pub blocks: u64,
    /// Blocks that the application wrote again.
    pub resent: u64,
    /// Packets that the card sent again, of both services.
    pub packets_resent: u64,
    /// Records sent.
    pub records: u64,
    /// Blocks found equal at the keepers.
    pub verified_blocks: u64,
    /// Records that came in order at the keepers.
    pub verified_records: u64,
    /// Times that a message waited for a credit.
    pub credit_waits: u64,
    /// RNR NAKs received.
    pub rnr_naks: u64,
    /// Connections that were lost (retries spent) and made again, counted where it was noticed.
    pub reconnects: u64,
    /// Bytes of payload in a packet.
    pub path_mtu: u32,
}

/// A run and its figures.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was done.
    pub plan: Plan,
    /// The nodes' figures.
    pub nodes: Vec<NodeReport>,
    /// CPU time of all processes.
    pub cpu_seconds: f64,
}

impl Run {
    fn sum(&self, of: impl Fn(&NodeReport) -> u64) -> u64 {
        self.nodes.iter().map(of).sum()
    }

    /// Bytes of blocks that were mirrored, once each.
    fn bytes(&self) -> u64 {
        self.sum(|n| n.blocks) * u64::from(self.plan.block_size)
    }

    fn seconds(&self) -> f64 {
        self.nodes.iter().map(|n| n.seconds).fold(0.0, f64::max)
    }

    /// Mirrored gigabits a second, all nodes together.
    pub fn gbps(&self) -> f64 {
        self.bytes() as f64 * 8.0 / self.seconds() / 1e9
    }

    /// CPU nanoseconds for each KiB mirrored, both ends together, with the application's own checksums.
    pub fn cpu_ns_per_kib(&self) -> f64 {
        self.cpu_seconds * 1e9 / (self.bytes() as f64 / 1024.0)
    }

    /// Blocks written again for each hundred.
    fn resent_percent(&self) -> f64 {
        self.sum(|n| n.resent) as f64 * 100.0 / self.sum(|n| n.blocks) as f64
    }
}

/// The heads of [`row`]'s columns.
pub const HEAD: &str =
    "  data    loss     Gbit/s    CPU ns/KiB   blocks again   packets again   RNR NAKs   credit waits   verified";

/// One run as a line of a table.
pub fn row(run: &Run) -> String {
    format!(
        "  {:<4} {:>6.2}% {:>10.2} {:>13.0} {:>13.2}% {:>15} {:>10} {:>14}   {} blocks, {} records",
        run.plan.data.name(),
        run.plan.loss * 100.0,
        run.gbps(),
        run.cpu_ns_per_kib(),
        run.resent_percent(),
        run.sum(|n| n.packets_resent),
        run.sum(|n| n.rnr_naks),
        run.sum(|n| n.credit_waits),
        run.sum(|n| n.verified_blocks),
        run.sum(|n| n.verified_records),
    )
}

/// How often connections were lost, if any was.
pub fn reconnects(run: &Run) -> Option<String> {
    let reconnects = run.sum(|n| n.reconnects);
    (reconnects > 0).then(|| format!("         connections lost and made again: {reconnects}"))
}

/// At which rates of loss which service mirrors faster, and at which it takes less CPU: a line each. Nothing where a rate was not run
/// with both.
pub fn verdict(runs: &[Run]) -> String {
    let of = |data, loss: f64| runs.iter().find(|r| r.plan.data == data && (r.plan.loss - loss).abs() < f64::EPSILON);
    let pairs: Vec<(f64, &Run, &Run)> =
        losses(runs).into_iter().filter_map(|loss| Some((loss, of(Data::Uc, loss)?, of(Data::Rc, loss)?))).collect();
    if pairs.is_empty() {
        return String::new();
    }
    let at = |wins: &dyn Fn(&Run, &Run) -> bool| {
        let rates = pairs.iter().filter(|(_, uc, rc)| wins(uc, rc)).map(|(loss, ..)| format!("{}", percent(*loss)));
        let rates: Vec<String> = rates.collect();
        if rates.is_empty() { "no rate tried".to_owned() } else { format!("{} %", rates.join(", ")) }
    };
    let faster = |a: &Run, b: &Run| a.gbps() > b.gbps();
    let cheaper = |a: &Run, b: &Run| a.cpu_ns_per_kib() < b.cpu_ns_per_kib();
    let mut out = String::new();
    let _ = writeln!(out, "of loss: UC mirrors faster at {}; RC at {}", at(&faster), at(&|uc, rc| !faster(uc, rc)));
    let _ = writeln!(out, "         UC takes less CPU at {}; RC at {}", at(&cheaper), at(&|uc, rc| !cheaper(uc, rc)));
    out
}

/// A share as people write it, in per cent.
fn percent(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

/// The rates of loss, each once, in order.
fn losses(runs: &[Run]) -> Vec<f64> {
    let mut losses: Vec<f64> = runs.iter().map(|r| r.plan.loss).collect();
    losses.sort_by(f64::total_cmp);
    losses.dedup();
    losses
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const MARGIN: f64 = 56.0;

/// Throughput over loss, RC and UC, as an SVG image. The steps between rates of loss are equal, as they span decades.
pub fn plot(runs: &[Run]) -> String {
    let losses = losses(runs);
    let most = runs.iter().map(Run::gbps).fold(f64::MIN_POSITIVE, f64::max) * 1.1;
    let x = |i: usize| MARGIN + (WIDTH - 2.0 * MARGIN) * i as f64 / (losses.len().max(2) - 1) as f64;
    let y = |gbps: f64| HEIGHT - MARGIN - (HEIGHT - 2.0 * MARGIN) * gbps / most;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-size=\"15\">Mirrored data over loss, Gbit/s</text>\n"
    );
    for step in 0..=4 {
        let gbps = most * f64::from(step) / 4.0;
        let _ = writeln!(
            out,
            "<line x1=\"{MARGIN}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{gbps:.2}</text>",
            WIDTH - MARGIN,
            MARGIN - 8.0,
            y(gbps) + 4.0,
            y = y(gbps),
        );
    }
    for (i, loss) in losses.iter().enumerate() {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}%</text>",
            x(i),
            HEIGHT - MARGIN + 20.0,
            percent(*loss)
        );
    }
    for (data, colour, dash) in [(Data::Uc, "#c2410c", "none"), (Data::Rc, "#1d4ed8", "6 4")] {
        let points: Vec<String> = losses
            .iter()
            .enumerate()
            .filter_map(|(i, &loss)| {
                let run = runs.iter().find(|r| r.plan.data == data && (r.plan.loss - loss).abs() < f64::EPSILON)?;
                Some(format!("{:.1},{:.1}", x(i), y(run.gbps())))
            })
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>",
            points.join(" ")
        );
        if let Some((px, py)) = points.last().and_then(|p| p.split_once(',')) {
            let _ =
                writeln!(out, "<text x=\"{px}\" y=\"{py}\" dx=\"8\" dy=\"4\" fill=\"{colour}\">{}</text>", data.name());
        }
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run(data: Data, loss: f64, seconds: f64) -> Run {
        let plan = Plan {
            data,
            blocks: 16,
            block_size: 64 << 10,
            rounds: 1,
            loss,
            credits: true,
            channel_depth: 32,
            slow_mirror_us: 0,
            patience: Duration::ZERO,
            sabotage: None,
            seed: 0,
        };
        let node = NodeReport { seconds, blocks: 16, resent: 4, ..NodeReport::default() };
        Run { plan, nodes: vec![node], cpu_seconds: 0.001 }
    }

    #[test]
    fn rates_are_of_what_was_mirrored() {
        let run = run(Data::Uc, 0.0, 0.001);
        assert!((run.gbps() - 8.388_608).abs() < 1e-6, "{}", run.gbps());
        assert!((run.cpu_ns_per_kib() - 976.5625).abs() < 1e-6);
        assert!(row(&run).contains("25.00%"));
    }

    #[test]
    fn the_verdict_names_the_rates_at_which_each_is_faster() {
        let runs =
            [run(Data::Uc, 0.0, 1.0), run(Data::Rc, 0.0, 1.2), run(Data::Uc, 0.01, 3.0), run(Data::Rc, 0.01, 2.0)];
        let said = verdict(&runs);
        assert!(said.starts_with("of loss: UC mirrors faster at 0 %; RC at 1 %\n"), "{said}");
        assert!(said.contains("UC takes less CPU at no rate tried; RC at 0, 1 %"), "{said}");
        assert!(verdict(&runs[..1]).is_empty(), "one alone is not compared");
        let svg = plot(&runs);
        assert_eq!(svg.matches("<polyline").count(), 2);
    }
}
