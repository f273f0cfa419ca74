//! Reports in Prometheus' text format (version 0.0.4): a HELP and a TYPE line for each name, then its samples together.
//!
//! In: reports. Out: `xroce_NAME_total` for every counter, labelled with device and process; for queue pairs with theirs too.

use std::collections::BTreeMap;
use std::fmt::Write;

use xroce::stat::{NAMES, QpStat, Report};
use xroce::{DropReason, Qpn};

/// One label.
type Label<'a> = (&'a str, String);

/// The samples of one name.
struct Family {
    kind: &'static str,
    help: String,
    samples: String,
}

/// Families in the order of their names.
#[derive(Default)]
struct Page(BTreeMap<String, Family>);

/// What a label's value, or a help text, may not contain as it stands.
fn escaped(text: &str, quotes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            '"' if quotes => out += "\\\"",
            c => out.push(c),
        }
    }
    out
}

impl Page {
    fn sample(&mut self, name: &str, (kind, help): (&'static str, &str), labels: &[Label<'_>], value: u64) {
        let family = self.0.entry(name.to_owned()).or_insert_with(|| Family {
            kind,
            help: escaped(help, false),
            samples: String::new(),
        });
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true))).collect();
        let _ = writeln!(family.samples, "{name}{{{}}} {value}", labels.join(","));
    }

    fn render(&self) -> String {
        let mut out = String::new();
        for (name, family) in &self.0 {
            let _ = write!(out, "# HELP {name} {}\n# TYPE {name} {}\n{}", family.help, family.kind, family.samples);
        }
        out
    }
}

fn device_labels(report: &Report) -> Vec<Label<'static>> {
    vec![("device", report.device.name.clone()), ("pid", report.pid.to_string())]
}

/// The counters of devices.
pub fn devices(reports: &[Report]) -> String {
    let mut page = Page::default();
    for report in reports {
        let labels = device_labels(report);
        let with = |more: &[Label<'static>]| [labels.as_slice(), more].concat();
        let info = with(&[("program", report.program.clone()), ("version", report.device.fw_ver.clone())]);
        page.sample("xroce_device_info", ("gauge", "1 for each device that is open."), &info, 1);
        let up = u64::from(report.device.port_state == "ACTIVE");
        page.sample("xroce_port_up", ("gauge", "Whether frames pass."), &labels, up);
        page.sample(
            "xroce_queue_pairs",
            ("gauge", "Queue pairs that exist."),
            &labels,
            report.device.queue_pairs.into(),
        );
        for named in NAMES {
            let value = report.device.counters.get(named.name).copied().unwrap_or(0);
            page.sample(&format!("xroce_{}_total", named.name), ("counter", named.help), &labels, value);
        }
        for reason in DropReason::ALL {
            let value = report.device.drops.get(reason.name()).copied().unwrap_or(0);
            let labels = with(&[("reason", reason.name().to_owned())]);
            page.sample("xroce_dropped_packets_total", ("counter", "Packets dropped, by reason."), &labels, value);
        }
    }
    page.render()
}

/// The state and the counters of queue pairs.
pub fn queue_pairs(reports: &[Report]) -> String {
    let mut page = Page::default();
    for report in reports {
        for qp in &report.qps {
            queue_pair(&mut page, report, qp);
        }
    }
    page.render()
}

fn queue_pair(page: &mut Page, report: &Report, qp: &QpStat) {
    let mut labels = device_labels(report);
    let dest = qp.dest_qpn.map_or_else(String::new, |qpn| Qpn::new(qpn).to_string());
    labels.extend([("qpn", Qpn::new(qp.qpn).to_string()), ("type", qp.qp_type.clone())]);
    labels.extend([("dest_qpn", dest), ("peer", qp.peer.clone().unwrap_or_default())]);
    let state = [labels.as_slice(), &[("state", qp.state.clone())]].concat();
    page.sample("xroce_qp_state", ("gauge", "1 for the state that the queue pair is in."), &state, 1);
    let gauges = [
        ("outstanding", "Send requests that are started and not done.", u64::from(qp.outstanding)),
        ("waiting", "Send requests that wait to be started.", qp.waiting.into()),
        ("recvs", "RECVs that are posted.", qp.recvs.into()),
        ("in_flight", "Request packets sent and not acknowledged.", qp.in_flight.into()),
        ("retries_left", "Resends left until the oldest request fails.", qp.retries_left.into()),
        ("rnr_retries_left", "RNR waits left; 7 is without end.", qp.rnr_retries_left.into()),
    ];
    for (name, help, value) in gauges {
        page.sample(&format!("xroce_qp_{name}"), ("gauge", help), &labels, value);
    }
    for (name, value) in &qp.counters {
        let help =
            NAMES.iter().find(|named| named.name == name).map_or("A counter of the queue pair.", |named| named.help);
        page.sample(&format!("xroce_qp_{name}_total"), ("counter", help), &labels, *value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::stat::sample;
    use serde_json::json;
    use std::slice::from_ref;

    #[test]
    fn texts_are_escaped() {
        let mut page = Page::default();
        let program = "a \"b\" \\ c\nd".to_owned();
        page.sample("x", ("gauge", "one\ntwo \\ \"three\""), &[("program", program)], 7);
        let expected = "# HELP x one\\ntwo \\\\ \"three\"\n# TYPE x gauge\nx{program=\"a \\\"b\\\" \\\\ c\\nd\"} 7\n";
        assert_eq!(page.render(), expected);
    }

    #[test]
    fn samples_of_a_name_stand_together() {
        let mut page = Page::default();
        for (name, value) in [("b", 1), ("a", 2), ("b", 3)] {
            page.sample(name, ("gauge", "h"), &[("l", value.to_string())], value);
        }
        let text = page.render();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "# HELP a h",
                "# TYPE a gauge",
                "a{l=\"2\"} 2",
                "# HELP b h",
                "# TYPE b gauge",
                "b{l=\"1\"} 1",
                "b{l=\"3\"} 3"
            ]
        );
    }

    #[track_caller]
    fn has(page: &str, line: &str) {
        assert!(page.lines().any(|found| found == line), "no line {line} in\n{page}");
    }

    #[test]
    fn a_device_by_its_labels() {
        let mut report = sample::report(0, 0x11, &json!({}), None);
        report.device.counters = [("sent_pkts".to_owned(), 3)].into();
        report.device.drops = [("bad_icrc".to_owned(), 5), ("unknown_qp".to_owned(), 7)].into();
        let page = devices(from_ref(&report));
        has(&page, "xroce_port_up{device=\"eth0\",pid=\"9\"} 1");
        has(&page, "xroce_queue_pairs{device=\"eth0\",pid=\"9\"} 1");
        has(&page, "xroce_sent_pkts_total{device=\"eth0\",pid=\"9\"} 3");
        has(&page, "xroce_dropped_packets_total{device=\"eth0\",pid=\"9\",reason=\"bad_icrc\"} 5");
        has(&page, "xroce_dropped_packets_total{device=\"eth0\",pid=\"9\",reason=\"unknown_qp\"} 7");
        has(&page, "xroce_dropped_packets_total{device=\"eth0\",pid=\"9\",reason=\"stale_response\"} 0");
        report.device.port_state = "DOWN".to_owned();
        has(&devices(&[report]), "xroce_port_up{device=\"eth0\",pid=\"9\"} 0");
    }

    #[test]
    fn a_queue_pair_by_its_labels() {
        let mut report = sample::report(0, 0x11, &json!({"resent_pkts": 8}), None);
        let qp = &mut report.qps[0];
        (qp.outstanding, qp.waiting, qp.recvs, qp.in_flight, qp.retries_left, qp.rnr_retries_left) = (1, 2, 3, 4, 5, 6);
        let page = queue_pairs(&[report]);
        let labels = "device=\"eth0\",pid=\"9\",qpn=\"0x000011\",type=\"RC\",dest_qpn=\"0x000022\",peer=\"192.0.2.2\"";
        has(&page, &format!("xroce_qp_state{{{labels},state=\"RTS\"}} 1"));
        let names = ["outstanding", "waiting", "recvs", "in_flight", "retries_left", "rnr_retries_left"];
        for (name, value) in names.into_iter().zip(1..) {
            has(&page, &format!("xroce_qp_{name}{{{labels}}} {value}"));
        }
        has(&page, &format!("xroce_qp_resent_pkts_total{{{labels}}} 8"));
    }
}
