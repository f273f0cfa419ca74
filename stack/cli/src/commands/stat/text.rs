//! Counters and queue pairs for people.
//!
//! In: reports, and those before them. Out: text; numbers that moved come with their change per second.

use std::fmt::Write;

use xroce::stat::{Numbers, QpStat, Report};
use xroce::{Psn, Qpn};

use super::{earlier, seconds_between};

/// The change per second, if there is an earlier value and it differs.
fn rate(old: Option<(&Numbers, f64)>, name: &str, value: u64) -> String {
    let Some((numbers, seconds)) = old else { return String::new() };
    let moved = value.saturating_sub(numbers.get(name).copied().unwrap_or(0));
    if moved == 0 { String::new() } else { format!("  +{:.0}/s", moved as f64 / seconds) }
}

fn head(report: &Report) -> String {
    let device = &report.device;
    let largest =
        device.active_mtu.map_or_else(|| "no path MTU fits".to_owned(), |mtu| format!("path MTU up to {mtu}"));
    format!(
        "{}: process {} ({}), {} progress, {}, MTU {}, {largest}, {} queue pair(s), {}\n",
        device.name,
        report.pid,
        report.program,
        device.progress,
        device.port_state,
        device.mtu,
        device.queue_pairs,
        device.gids.join(" ")
    )
}

/// The counters of each device; those that are 0 only if `all` are wanted.
pub fn devices(before: &[Report], reports: &[Report], all: bool) -> String {
    let mut out = String::new();
    for report in reports {
        let old = earlier(before, report).map(|old| (&old.device, seconds_between(old, report)));
        out += &head(report);
        let mut list = |prefix: &str, numbers: &Numbers, old: Option<(&Numbers, f64)>| {
            for (name, value) in numbers.iter().filter(|(_, value)| all || **value > 0) {
                let name_shown = format!("{prefix}{name}");
                let _ = writeln!(out, "  {name_shown:<32} {value:>16}{}", rate(old, name, *value));
            }
        };
        list("", &report.device.counters, old.map(|(device, seconds)| (&device.counters, seconds)));
        list("dropped: ", &report.device.drops, old.map(|(device, seconds)| (&device.drops, seconds)));
    }
    out
}

/// The queue pairs of each device.
pub fn queue_pairs(before: &[Report], reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        out += &head(report);
        let old = earlier(before, report);
        for qp in &report.qps {
            let earlier = old.and_then(|old| old.qps.iter().find(|other| other.qpn == qp.qpn));
            let seconds = old.map_or(1.0, |old| seconds_between(old, report));
            out += &queue_pair(earlier.map(|qp| (qp, seconds)), qp);
        }
    }
    out
}

/// Nanoseconds of an ACK timer, in words.
fn ack_timer(qp: &QpStat) -> String {
    match qp.timeout {
        0 => "no ACK timer".to_owned(),
        code => {
            let runs = if qp.ack_awaited { "runs" } else { "rests" };
            format!("the ACK timer of {:.3} ms {runs}", 4.096e-3 * f64::from(code).exp2())
        }
    }
}

fn queue_pair(old: Option<(&QpStat, f64)>, qp: &QpStat) -> String {
    let mut out = format!("  QP {}", Qpn::new(qp.qpn));
    if let (Some(dest), Some(peer)) = (qp.dest_qpn, &qp.peer) {
        let _ = write!(out, " → {} at {peer}", Qpn::new(dest));
    }
    let _ = write!(out, ": {} {}", qp.qp_type, qp.state);
    if let Some(mtu) = qp.path_mtu {
        let _ = write!(out, ", path MTU {mtu}");
    }
    let _ = writeln!(out, ", shard {}", qp.shard);
    let psn = Psn::new;
    let _ = writeln!(
        out,
        "    sends:  next PSN {}, oldest unacknowledged {}, behind the highest {}; {} packet(s) in flight of {}",
        psn(qp.sq_psn),
        psn(qp.una_psn),
        psn(qp.sent_end_psn),
        qp.in_flight,
        qp.window
    );
    let _ = writeln!(
        out,
        "            {} request(s) started, {} waiting; {} of {} READs and atomics",
        qp.outstanding, qp.waiting, qp.rd_atomics, qp.max_rd_atomic
    );
    let msn = qp.msn.map_or_else(String::new, |msn| format!(", MSN {msn}"));
    let silent = if qp.nak == "none" { String::new() } else { format!(", silent after a {} NAK", qp.nak) };
    let _ = writeln!(
        out,
        "    serves: expected PSN {}{msn}, {} RECV(s) posted, {} response(s) waiting{silent}",
        psn(qp.epsn),
        qp.recvs,
        qp.responses
    );
    let waiting = if qp.rnr_waiting { "; waits after an RNR NAK" } else { "" };
    let _ = writeln!(
        out,
        "    retries left: {} of {}, RNR {} of {}; {}{waiting}",
        qp.retries_left,
        qp.retry_cnt,
        qp.rnr_retries_left,
        qp.rnr_retry,
        ack_timer(qp)
    );
    let each = old.map(|(qp, seconds)| (&qp.counters, seconds));
    for (name, value) in qp.counters.iter().filter(|(_, value)| **value > 0) {
        let _ = writeln!(out, "    {name:<30} {value:>16}{}", rate(each, name, *value));
    }
    if let Some(why) = &qp.last_error {
        let _ = writeln!(out, "    failed: {why}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::stat::sample;
    use serde_json::json;
    use std::slice::from_ref;

    /// A device at a time, with one counter that moves, one that does not, and drops.
    fn at(at_ns: u64, sent: u64, bad_icrc: u64) -> Report {
        let mut report = sample::report(at_ns, 0x11, &json!({"sent_pkts": sent}), None);
        let numbers = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        report.device.counters = numbers(&[("sent_pkts", sent), ("rcvd_pkts", 7), ("bad_icrc", 0)]);
        report.device.drops = numbers(&[("bad_icrc", bad_icrc)]);
        report
    }

    #[track_caller]
    fn ends(text: &str, begins: &str, ends: &str) {
        let line = text.lines().find(|line| line.trim_start().starts_with(begins)).expect("a line of that name");
        assert!(line.ends_with(ends), "{line}");
    }

    #[test]
    fn changes_are_per_second_and_each_list_has_its_own() {
        let (old, new) = (at(1_000_000_000, 100, 2), at(3_000_000_000, 300, 12));
        let text = devices(from_ref(&old), from_ref(&new), false);
        ends(&text, "sent_pkts ", " 300  +100/s");
        ends(&text, "rcvd_pkts ", " 7");
        ends(&text, "dropped: bad_icrc ", " 12  +5/s");
        ends(&queue_pairs(from_ref(&old), from_ref(&new)), "sent_pkts ", " 300  +100/s");
        // Nothing to compare with.
        ends(&devices(&[], from_ref(&new), false), "sent_pkts ", " 300");
    }

    #[test]
    fn timers_and_retries_of_a_queue_pair() {
        let mut report = at(0, 1, 0);
        let shown = |report: &Report| queue_pairs(&[], from_ref(report));
        let qp = &mut report.qps[0];
        (qp.retries_left, qp.retry_cnt, qp.rnr_retries_left, qp.rnr_retry) = (3, 7, 5, 6);
        // 4.096 µs * 2^14.
        ends(&shown(&report), "retries left: ", "3 of 7, RNR 5 of 6; the ACK timer of 67.109 ms rests");
        let qp = &mut report.qps[0];
        (qp.ack_awaited, qp.rnr_waiting) = (true, true);
        ends(&shown(&report), "retries left: ", "the ACK timer of 67.109 ms runs; waits after an RNR NAK");
        // No code of a timer has so many bits, and whoever wrote the report need not be xroce.
        report.qps[0].timeout = 255;
        assert!(shown(&report).contains("the ACK timer of "));
        report.qps[0].timeout = 0;
        ends(&shown(&report), "retries left: ", "no ACK timer; waits after an RNR NAK");
    }
}
