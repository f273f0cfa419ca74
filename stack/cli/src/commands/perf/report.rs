//! The figures: as perftest's columns, with CPU time added, or as JSON.
//!
//! In: a plan and what was measured. Out: text.

use serde::Serialize;
use xroce::QpType;

use super::bw::Bandwidth;
use super::lat::Latency;
use super::plan::Plan;

/// Version of the JSON object; grows when a field changes its meaning or goes away.
const JSON_VERSION: u32 = 1;

const RULE: &str =
    "---------------------------------------------------------------------------------------------------------";

#[derive(Debug, Serialize)]
struct BandwidthJson {
    version: u32,
    test: &'static str,
    transport: &'static str,
    size: u32,
    mtu: usize,
    qps: u32,
    /// Messages of each queue pair.
    iters: u64,
    /// Messages of all queue pairs.
    messages: u64,
    /// Messages of an unreliable SEND test that did not arrive.
    lost: Option<u64>,
    seconds: f64,
    gbps: f64,
    gbps_peak: f64,
    mpps: f64,
    /// Request packets that the client sent again.
    resent_pkts: u64,
    cpu_ns_per_msg: f64,
    server_cpu_ns_per_msg: f64,
}

#[derive(Debug, Serialize)]
struct LatencyJson {
    version: u32,
    test: &'static str,
    transport: &'static str,
    size: u32,
    mtu: usize,
    iters: u64,
    us: Percentiles,
    cpu_ns_per_msg: f64,
}

/// Microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Percentiles {
    min: f64,
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
    avg: f64,
    stdev: f64,
}

/// What is known of a test when it is over, beside the times.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    /// Messages that the server saw, or knows to have come.
    pub received: u64,
    /// The server's CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Packets that the client sent again.
    pub resent: u64,
}

fn transport(plan: &Plan) -> &'static str {
    if plan.service == QpType::Uc { "UC" } else { "RC" }
}

/// What stands above the figures.
pub fn heading(plan: &Plan, device: &str, gid: &str) -> String {
    let title = plan.test.name().replace('_', " ").to_uppercase();
    let inline = if plan.is_inline() { ", inline" } else { "" };
    format!(
        "{RULE}\n  {title} test, {}, {} QP(s), path MTU {}, depth {}, {} a post{inline}\n  {device}, GID {gid}\n{RULE}",
        transport(plan),
        plan.qps,
        plan.mtu.bytes(),
        plan.tx_depth,
        if plan.test.is_lat() { 1 } else { plan.batch() }
    )
}

fn per(total: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { total as f64 / count as f64 }
}

/// Messages that were sent but did not arrive; None where that cannot be or is not known.
fn lost(plan: &Plan, sent: u64, served: &Served) -> Option<u64> {
    (plan.service == QpType::Uc).then(|| sent.saturating_sub(served.received))
}

/// The figures of a bandwidth test.
pub fn bandwidth(plan: &Plan, measured: &Bandwidth, served: &Served, json: bool) -> String {
    let seconds = measured.time.as_secs_f64().max(1e-9);
    let bits = f64::from(plan.size) * 8.0;
    let rate = measured.messages as f64 / seconds;
    let figures = BandwidthJson {
        version: JSON_VERSION,
        test: plan.test.name(),
        transport: transport(plan),
        size: plan.size,
        mtu: plan.mtu.bytes(),
        qps: plan.qps,
        iters: measured.messages / u64::from(plan.qps.max(1)),
        messages: measured.messages,
        lost: lost(plan, measured.messages, served),
        seconds,
        gbps: rate * bits * 1e-9,
        gbps_peak: measured.peak.max(rate) * bits * 1e-9,
        mpps: rate * 1e-6,
        resent_pkts: served.resent,
        cpu_ns_per_msg: per(measured.cpu_ns, measured.messages),
        server_cpu_ns_per_msg: per(served.cpu_ns, measured.messages),
    };
    if json {
        return to_json(&figures);
    }
    let mut text = format!(
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]   CPU[ns/msg]   peer CPU[ns/msg]\n \
         {:<10} {:<14} {:<18.2} {:<20.2} {:<15.6} {:<13.0} {:.0}",
        figures.size,
        figures.iters,
        figures.gbps_peak,
        figures.gbps,
        figures.mpps,
        figures.cpu_ns_per_msg,
        figures.server_cpu_ns_per_msg
    );
    if let Some(lost) = figures.lost.filter(|&lost| lost > 0) {
        text += &format!("\n {lost} of {} messages did not arrive: UC does not send again", measured.messages);
    }
    if figures.resent_pkts > 0 {
        text += &format!("\n {} packets were sent again", figures.resent_pkts);
    }
    text + "\n" + RULE
}

/// The figures of a latency test.
pub fn latency(plan: &Plan, measured: &Latency, json: bool) -> String {
    let us = Percentiles::of(&measured.samples, plan.test.trips());
    let cpu_ns_per_msg = per(measured.cpu_ns, measured.iters);
    if json {
        return to_json(&LatencyJson {
            version: JSON_VERSION,
            test: plan.test.name(),
            transport: transport(plan),
            size: plan.size,
            mtu: plan.mtu.bytes(),
            iters: measured.iters,
            us,
            cpu_ns_per_msg,
        });
    }
    format!(
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
         99% percentile[usec]   99.9% percentile[usec]   CPU[ns/msg]\n {:<7} {:<14} {:<14.2} {:<12.2} {:<18.2} {:<14.2} \
         {:<15.2} {:<22.2} {:<24.2} {:.0}\n{RULE}",
        plan.size, measured.iters, us.min, us.max, us.p50, us.avg, us.stdev, us.p99, us.p999, cpu_ns_per_msg
    )
}

fn to_json(figures: &impl Serialize) -> String {
    serde_json::to_string(figures).expect("numbers and text")
}

impl Percentiles {
    /// Of sorted times in nanoseconds, each divided by `trips`.
    fn of(sorted: &[u64], trips: u32) -> Percentiles {
        let scale = 1e-3 / f64::from(trips);
        // The smallest time that this share of all is not above.
        let at = |share: f64| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).map_or(0.0, |&ns| ns as f64 * scale)
        };
        let count = sorted.len().max(1) as f64;
        let avg = sorted.iter().map(|&ns| ns as f64 * scale).sum::<f64>() / count;
        let variance = sorted.iter().map(|&ns| (ns as f64 * scale - avg).powi(2)).sum::<f64>() / count;
        let (min, max) = (at(0.0), at(1.0));
        Percentiles { min, p50: at(0.5), p99: at(0.99), p999: at(0.999), max, avg, stdev: variance.sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_rank() {
        let sorted: Vec<u64> = (1..=1000).map(|i| i * 2000).collect();
        let us = Percentiles::of(&sorted, 2);
        assert_eq!((us.min, us.p50, us.p99, us.p999, us.max), (1.0, 500.0, 990.0, 999.0, 1000.0));
        assert!((us.avg - 500.5).abs() < 1e-9);
        let one = Percentiles::of(&[3000], 1);
        assert_eq!((one.min, one.p50, one.p999, one.max, one.stdev), (3.0, 3.0, 3.0, 3.0, 0.0));
        assert_eq!(Percentiles::of(&[], 1).max, 0.0);
    }
}
