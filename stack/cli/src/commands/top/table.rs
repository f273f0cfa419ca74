//! Rates of queue pairs, and the table of them.
//!
//! In: two reports of each device. Out: one row a queue pair, the busiest first; lines of text.

use serde::Serialize;
use xroce::Qpn;
use xroce::stat::{QpStat, Report};

use crate::commands::stat::{earlier, harmless, seconds_between};

/// One queue pair. Rates are per second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The process.
    pub pid: u32,
    /// The netdev.
    pub device: String,
    /// The queue pair.
    pub qpn: u32,
    /// Its peer: none before RTR.
    pub dest_qpn: Option<u32>,
    /// The peer's address.
    pub peer: Option<String>,
    /// RC or UC.
    pub qp_type: String,
    /// Its state.
    pub state: String,
    /// Messages sent and completed.
    pub tx_messages: f64,
    /// Messages of the peer carried out.
    pub rx_messages: f64,
    /// Gigabits sent, from the IP header on.
    pub tx_gbit: f64,
    /// Gigabits received.
    pub rx_gbit: f64,
    /// Packets sent.
    pub tx_packets: f64,
    /// Packets received.
    pub rx_packets: f64,
    /// Packets sent again.
    pub resent: f64,
    /// RNR NAKs, received and sent.
    pub rnr: f64,
    /// Send requests that are started or wait, now.
    pub outstanding: u32,
    /// Why it failed, if it did.
    pub last_error: Option<String>,
}

/// The queue pairs of `now`, the busiest first. Those that `before` did not have count from 0.
pub fn rows(before: &[Report], now: &[Report]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for report in now {
        // Of a device that has just come there is nothing to compare with yet.
        let Some(old) = earlier(before, report) else { continue };
        let seconds = seconds_between(old, report);
        for qp in &report.qps {
            rows.push(row(report, old.qps.iter().find(|other| other.qpn == qp.qpn), qp, seconds));
        }
    }
    let traffic = |row: &Row| row.tx_gbit + row.rx_gbit;
    rows.sort_by(|a, b| traffic(b).total_cmp(&traffic(a)).then((a.pid, a.qpn).cmp(&(b.pid, b.qpn))));
    rows
}

fn row(report: &Report, old: Option<&QpStat>, qp: &QpStat, seconds: f64) -> Row {
    let rate = |of: &dyn Fn(&QpStat) -> u64| of(qp).saturating_sub(old.map_or(0, of)) as f64 / seconds;
    let counter = |name: &'static str| rate(&|qp: &QpStat| qp.counter(name));
    Row {
        pid: report.pid,
        device: report.device.name.clone(),
        qpn: qp.qpn,
        dest_qpn: qp.dest_qpn,
        peer: qp.peer.clone(),
        qp_type: qp.qp_type.clone(),
        state: qp.state.clone(),
        tx_messages: rate(&QpStat::messages_sent),
        rx_messages: rate(&QpStat::messages_received),
        tx_gbit: counter("sent_bytes") * 8e-9,
        rx_gbit: counter("rcvd_bytes") * 8e-9,
        tx_packets: counter("sent_pkts"),
        rx_packets: counter("rcvd_pkts"),
        resent: counter("resent_pkts"),
        rnr: counter("rcvd_rnr_err") + counter("send_rnr_err"),
        outstanding: qp.outstanding.saturating_add(qp.waiting),
        last_error: qp.last_error.clone(),
    }
}

const HEAD: &str = "    PID DEVICE     QP       PEER                                   ST    TX Gb/s RX Gb/s  TX msg/s  RX msg/s  TX pkt/s  \
                    RX pkt/s  AGAIN/s   RNR/s  OUT";

/// A count per second in at most 7 characters.
fn short(value: f64) -> String {
    match value {
        v if v < 99_999.5 => format!("{v:.0}"),
        v if v < 9_999_500.0 => format!("{:.0}k", v / 1e3),
        v => format!("{:.1}M", v / 1e6),
    }
}

fn line(row: &Row) -> String {
    let peer = match (&row.peer, row.dest_qpn) {
        (Some(peer), Some(qpn)) => format!("{peer} {}", Qpn::new(qpn)),
        _ => "-".to_owned(),
    };
    format!(
        "{:>7} {:<10} {} {peer:<38} {:<5} {:>7.3} {:>7.3} {:>9} {:>9} {:>9} {:>9} {:>8} {:>7} {:>4}",
        row.pid,
        row.device,
        Qpn::new(row.qpn),
        row.state,
        row.tx_gbit,
        row.rx_gbit,
        short(row.tx_messages),
        short(row.rx_messages),
        short(row.tx_packets),
        short(row.rx_packets),
        short(row.resent),
        short(row.rnr),
        row.outstanding
    )
}

/// What stands in place of rows where there are none, by the number of devices.
fn empty(devices: usize) -> &'static str {
    match devices {
        0 => "no process runs an xroce device: waiting for one, `xroce rc_pingpong --sim -n 1000000` say",
        _ => "no queue pair yet: waiting for one",
    }
}

/// The table of so many devices in at most `height` lines of at most `width` characters.
pub fn text(rows: &[Row], devices: usize, width: usize, height: usize) -> Vec<String> {
    let sum = |of: &dyn Fn(&Row) -> f64| rows.iter().map(of).fold(0.0, |sum, value| sum + value);
    let failed = rows.iter().filter(|row| row.last_error.is_some()).count();
    let mut lines = vec![
        format!(
            "xroce top: {} queue pair(s), {failed} failed; TX {:.3} Gb/s, RX {:.3} Gb/s, {} packets/s sent again",
            rows.len(),
            sum(&|row| row.tx_gbit),
            sum(&|row| row.rx_gbit),
            short(sum(&|row| row.resent))
        ),
        HEAD.to_owned(),
    ];
    if rows.is_empty() {
        lines.push(empty(devices).to_owned());
    }
    for row in rows {
        lines.push(line(row));
        lines.extend(row.last_error.as_ref().map(|why| format!("        failed: {why}")));
    }
    lines.iter_mut().for_each(|line| *line = harmless(line));
    if lines.len() > height {
        let hidden = lines.len() + 1 - height;
        lines.truncate(height.saturating_sub(1));
        lines.push(format!("... {hidden} more line(s)"));
    }
    lines.iter().map(|line| line.chars().take(width).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::stat::sample::report;
    use serde_json::json;
    use std::slice::from_ref;

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let old = report(1_000_000_000, 0x11, &json!({"sent_bytes": 1000, "rdma_sends": 10, "resent_pkts": 1}), None);
        let new =
            report(3_000_000_000, 0x11, &json!({"sent_bytes": 250_001_000, "rdma_sends": 30, "resent_pkts": 5}), None);
        let [row] = &rows(from_ref(&old), from_ref(&new))[..] else { panic!("one row") };
        assert_eq!((row.tx_gbit, row.tx_messages, row.resent, row.outstanding), (1.0, 10.0, 2.0, 7));
        // A queue pair that is new counts from 0; a device that is new, or began anew, is left for the next time.
        let other = report(1_000_000_000, 0x33, &json!({}), None);
        assert_eq!(rows(&[other], from_ref(&new))[0].tx_messages, 15.0);
        assert_eq!(rows(&[], from_ref(&new)), []);
        assert_eq!(rows(&[new], &[old]), []);
    }

    #[test]
    fn each_column_has_its_own_counters() {
        let counters = json!({"sent_bytes": 125_000_000, "rcvd_bytes": 250_000_000, "sent_pkts": 3, "rcvd_pkts": 4,
            "resent_pkts": 5, "rcvd_rnr_err": 6, "send_rnr_err": 7, "rdma_sends": 8, "rdma_recvs": 9,
            "rx_write_requests": 10, "rx_read_requests": 11, "rx_atomic_requests": 12});
        let mut after = report(1_000_000_000, 1, &counters, None);
        // Whoever wrote the report need not be xroce.
        after.qps[0].waiting = u32::MAX;
        let [row] = &rows(&[report(0, 1, &json!({}), None)], &[after])[..] else { panic!("one row") };
        assert_eq!((row.tx_gbit, row.rx_gbit, row.tx_packets, row.rx_packets), (1.0, 2.0, 3.0, 4.0));
        assert_eq!((row.resent, row.rnr, row.tx_messages, row.rx_messages), (5.0, 13.0, 8.0, 42.0));
        assert_eq!(row.outstanding, u32::MAX);
    }

    #[test]
    fn the_busiest_come_first() {
        let of = |pid: u32, at_ns: u64, bytes: u64| {
            let mut report = report(at_ns, pid, &json!({"sent_bytes": bytes, "rcvd_bytes": 0}), None);
            report.pid = pid;
            report
        };
        let all = |at_ns, bytes: [u64; 4]| (1..).zip(bytes).map(|(pid, n)| of(pid, at_ns, n)).collect::<Vec<_>>();
        let rows = rows(&all(0, [0; 4]), &all(1, [5, 9, 0, 5]));
        assert_eq!(rows.iter().map(|row| row.pid).collect::<Vec<_>>(), [2, 1, 4, 3]);
    }

    #[test]
    fn the_table_fits_its_screen_and_names_failures() {
        let old = report(0, 0x11, &json!({}), None);
        let new = report(1_000_000_000, 0x11, &json!({"sent_pkts": 1_234_567}), Some("RETRY_EXC_ERR (status 12): ..."));
        let rows = rows(&[old], &[new]);
        let all = text(&rows, 1, usize::MAX, usize::MAX);
        assert_eq!(all.len(), 4);
        let bad = Row { device: "eth0\x1b[2J".to_owned(), last_error: Some("\n\r".to_owned()), ..rows[0].clone() };
        assert!(text(&[bad], 1, 200, 24).iter().all(|line| !line.contains(char::is_control)), "none of it is control");
        assert!(
            all[0].contains("1 queue pair(s), 1 failed") && all[3].ends_with("failed: RETRY_EXC_ERR (status 12): ...")
        );
        assert!(
            all[2].contains("0x000011 192.0.2.2 0x000022") && all[2].contains(" RTS ") && all[2].contains(" 1235k "),
            "{}",
            all[2]
        );
        // Numbers stand under their names.
        let column = |name: &str| all[1].find(name).expect("in the head") + name.len();
        assert_eq!(all[2].find("1235k").expect("there") + 5, column("TX pkt/s"));
        let none = text(&[], 1, 200, 24);
        assert!(none[0].ends_with("; TX 0.000 Gb/s, RX 0.000 Gb/s, 0 packets/s sent again"));
        assert_eq!(none[2], "no queue pair yet: waiting for one");
        assert!(text(&[], 0, 200, 24)[2].starts_with("no process runs an xroce device: waiting for one"));
        let small = text(&rows, 1, 40, 3);
        assert!(small.len() == 3 && small.iter().all(|line| line.chars().count() <= 40), "{small:?}");
        assert_eq!(small[2], "... 2 more line(s)");
    }

    #[test]
    fn counts_stay_short() {
        assert_eq!([0.4, 99_999.0, 100_000.0, 12_345_678.0].map(short), ["0", "99999", "100k", "12.3M"]);
    }
}
