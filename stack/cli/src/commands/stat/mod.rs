//! `xroce stat`: what the devices that other processes run are doing.
//!
//! In: reports over the sockets of those processes. Out: counters under the names of rxe and mlx5, drop reasons and queue pairs,
//! as text, JSON or in Prometheus' format.

mod prometheus;
#[cfg(test)]
pub mod sample;
mod text;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use xroce::Qpn;
use xroce::stat::{AskError, Endpoint, Report, Which, endpoints, run_dirs};

use super::Outcome;
use crate::complete;
use crate::number::{number, positive, qpn};

/// Version of the JSON object; grows when a field changes its meaning or goes away.
const JSON_VERSION: u32 = 1;

/// Show what the xroce devices on this machine are doing: counters, drop reasons, queue pairs.
///
/// Every xroce command that opens a device answers, and every program that calls `Context::serve_stat`; those of this user, and
/// for root those of all.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// qp for the queue pairs in place of the counters
    #[arg(value_enum)]
    what: Option<What>,
    /// Only the queue pair with this number (0x12345, or decimal)
    #[arg(value_name = "QPN", value_parser = qpn, add = complete::queue_pairs())]
    qpn: Option<Qpn>,
    #[command(flatten)]
    select: Select,
    /// In which format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Again every so many seconds, in text with the change per second; JSON is one line each time
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = positive::<u32>)]
    watch: Option<u32>,
    /// In text: counters that are 0, too
    #[arg(short, long)]
    all: bool,
}

/// Which devices.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Select {
    /// Only the devices of this process
    #[arg(long, value_name = "PID", value_parser = number::<u32>)]
    pid: Option<u32>,
    /// Only the devices on this netdev
    #[arg(short, long, value_name = "NETDEV", add = complete::netdevs())]
    device: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Queue pairs
    Qp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One object
    Json,
    /// Prometheus' text format
    Prometheus,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum StatError {
    /// Nobody runs a device.
    #[error(
        "no process{whose} runs an xroce device: start one, `xroce rc_pingpong --sim -n 1000000` say (looked in {dirs}{only})"
    )]
    Nobody {
        /// What was asked for.
        whose: String,
        /// Whose are not seen.
        only: &'static str,
        /// Where.
        dirs: String,
    },
    /// No such queue pair.
    #[error("no device has a queue pair {0}; `xroce stat qp` lists them")]
    NoQp(Qpn),
    /// A process does not tell, and it was the only one.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// Standard output is gone.
    #[error("{0}")]
    Output(#[from] io::Error),
}

impl Select {
    /// The reports of all these devices. One that does not answer is left out, unless it is the only one.
    pub fn collect(&self, which: Which) -> Result<Vec<Report>, StatError> {
        let wanted = |pid: u32| self.pid.is_none_or(|of| of == pid);
        let mut reports = Vec::new();
        let mut silent = None;
        for answer in ask_all(endpoints().iter().filter(|endpoint| wanted(endpoint.pid)), which) {
            match answer {
                Ok(report) => reports.push(report),
                Err(error) => silent = Some(error),
            }
        }
        self.sift(&mut reports);
        match (reports.is_empty(), silent) {
            (true, Some(error)) => Err(error.into()),
            (true, None) => Err(self.nobody()),
            _ => Ok(reports),
        }
    }

    /// Names that differ, and only the devices on the netdev that was asked for.
    fn sift(&self, reports: &mut Vec<Report>) {
        tell_apart(reports);
        reports.retain(|report| self.device.as_ref().is_none_or(|name| name == base(&report.device.name)));
    }

    fn nobody(&self) -> StatError {
        let mut whose = self.pid.map_or(String::new(), |pid| format!(" with number {pid}"));
        if let Some(device) = &self.device {
            let _ = write!(whose, " on {device}");
        }
        let only = if rustix::process::geteuid().is_root() { "" } else { "; those of other users only root sees" };
        let dirs = run_dirs().iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ");
        StatError::Nobody { whose, only, dirs }
    }
}

#[derive(Debug, Serialize)]
struct Json<'a> {
    version: u32,
    devices: &'a [Report],
}

impl Args {
    fn which(&self) -> Which {
        match (self.what, self.qpn) {
            (None, _) => Which::None,
            (Some(What::Qp), None) => Which::All,
            (Some(What::Qp), Some(qpn)) => Which::One(qpn),
        }
    }

    fn render(&self, before: &[Report], reports: &[Report]) -> String {
        let json = Json { version: JSON_VERSION, devices: reports };
        // The values are numbers and texts: they have a form in JSON.
        let written = |text: Result<String, serde_json::Error>| text.unwrap_or_default() + "\n";
        let text = match (self.format, self.what) {
            (Format::Json, _) if self.watch.is_some() => written(serde_json::to_string(&json)),
            (Format::Json, _) => written(serde_json::to_string_pretty(&json)),
            (Format::Prometheus, None) => prometheus::devices(reports),
            (Format::Prometheus, Some(What::Qp)) => prometheus::queue_pairs(reports),
            (Format::Text, None) => text::devices(before, reports, self.all),
            (Format::Text, Some(What::Qp)) => text::queue_pairs(before, reports),
        };
        text.split_inclusive('\n')
            .map(|line| line.strip_suffix('\n').map_or_else(|| harmless(line), |line| harmless(line) + "\n"))
            .collect()
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome, StatError> {
    let mut before = Vec::new();
    loop {
        let reports = args.select.collect(args.which())?;
        if let Which::One(qpn) = args.which()
            && reports.iter().all(|report| report.qps.is_empty())
        {
            return Err(StatError::NoQp(qpn));
        }
        let mut out = io::stdout().lock();
        out.write_all(args.render(&before, &reports).as_bytes())?;
        out.flush()?;
        let Some(seconds) = args.watch else { return Ok(Outcome::Done) };
        drop(out);
        before = reports;
        thread::sleep(Duration::from_secs(seconds.into()));
    }
}

/// A line without what steers a terminal: root is shown what the processes of others say, and what is in their names.
pub fn harmless(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// What each of them answers, in their order; all are asked at once, so that those who are silent cost their time only once.
fn ask_all<'a>(them: impl Iterator<Item = &'a Endpoint>, which: Which) -> Vec<Result<Report, AskError>> {
    thread::scope(|scope| {
        let asked: Vec<_> = them.map(|endpoint| scope.spawn(move || endpoint.ask(which))).collect();
        asked.into_iter().map(|answer| answer.join().expect("asking does not panic")).collect()
    })
}

/// Devices of one name in one process get a number behind it: what keeps series by name must not mix them up.
fn tell_apart(reports: &mut [Report]) {
    for i in 1..reports.len() {
        let (before, rest) = reports.split_at_mut(i);
        let same =
            before.iter().filter(|old| old.pid == rest[0].pid && base(&old.device.name) == rest[0].device.name).count();
        if same > 0 {
            rest[0].device.name += &format!("#{}", same + 1);
        }
    }
}

/// The name without such a number.
fn base(name: &str) -> &str {
    name.split_once('#').map_or(name, |(base, _)| base)
}

/// The report that `before` has of the same device.
pub fn earlier<'a>(before: &'a [Report], report: &Report) -> Option<&'a Report> {
    before.iter().find(|old| old.pid == report.pid && old.device.name == report.device.name && old.at_ns < report.at_ns)
}

/// Seconds between two reports of a device.
pub fn seconds_between(old: &Report, new: &Report) -> f64 {
    (new.at_ns - old.at_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    fn on(device: &str, pid: u32, at_ns: u64) -> Report {
        let mut report = sample::report(at_ns, 0x11, &json!({}), None);
        (report.device.name, report.pid) = (device.to_owned(), pid);
        report
    }

    fn names(reports: &[Report]) -> Vec<(u32, &str)> {
        reports.iter().map(|report| (report.pid, report.device.name.as_str())).collect()
    }

    #[test]
    fn devices_of_one_name_in_one_process_are_told_apart() {
        let all = || vec![on("eth0", 1, 0), on("eth0", 1, 0), on("eth1", 1, 0), on("eth0", 1, 0), on("eth0", 2, 0)];
        let mut reports = all();
        Select::default().sift(&mut reports);
        assert_eq!(names(&reports), [(1, "eth0"), (1, "eth0#2"), (1, "eth1"), (1, "eth0#3"), (2, "eth0")]);
        let mut reports = all();
        Select { device: Some("eth0".to_owned()), pid: None }.sift(&mut reports);
        assert_eq!(names(&reports), [(1, "eth0"), (1, "eth0#2"), (1, "eth0#3"), (2, "eth0")]);
    }

    #[test]
    fn a_device_is_compared_with_itself() {
        let before = [on("eth1", 1, 5), on("eth0", 2, 6), on("eth0", 1, 7)];
        assert_eq!(earlier(&before, &on("eth0", 1, 9)).map(|old| old.at_ns), Some(7));
        // One that is not older began anew.
        assert_eq!(earlier(&before, &on("eth0", 1, 7)), None);
        assert_eq!(earlier(&before, &on("eth2", 1, 9)), None);
    }

    fn args(what: Option<What>, format: Format, watch: Option<u32>) -> Args {
        Args { what, qpn: None, select: Select::default(), format, watch, all: false }
    }

    #[test]
    fn all_are_asked_at_once() {
        let dir = std::env::temp_dir().join(format!("xroce-ask-all-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let them = [1, 2].map(|pid| Endpoint { pid, device: "eth0".to_owned(), path: dir.join(pid.to_string()) });
        let doors = them.each_ref().map(|endpoint| UnixListener::bind(&endpoint.path).unwrap());
        let answers = thread::scope(|scope| {
            // The first gets its answer when the second was asked.
            scope.spawn(|| {
                for door in doors.iter().rev() {
                    let mut client = door.accept().unwrap().0;
                    BufReader::new(&client).read_line(&mut String::new()).unwrap();
                    client.write_all(b"error: not today\n").unwrap();
                }
            });
            ask_all(them.iter(), Which::None)
        });
        let refused = |answer| matches!(answer, &Err(AskError::Refused { .. }));
        assert!(answers.len() == 2 && answers.iter().all(refused), "{answers:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// Root is shown what the processes of others say.
    #[test]
    fn no_report_reaches_the_terminal_as_control() {
        let mut report = on("eth0\x1b]0;x\x07", 1, 0);
        report.program = "\u{9b}2J\r".to_owned();
        report.qps[0].last_error = Some("\x1b[31m".to_owned());
        for (what, format) in
            [(None, Format::Text), (Some(What::Qp), Format::Text), (Some(What::Qp), Format::Prometheus)]
        {
            let text = args(what, format, None).render(&[], std::slice::from_ref(&report));
            assert!(text.contains("eth0") && text.lines().all(|line| !line.contains(char::is_control)), "{text:?}");
        }
    }

    #[test]
    fn json_is_one_line_each_time_where_it_comes_again() {
        let lines = |watch| args(None, Format::Json, watch).render(&[], &[on("eth0", 1, 0)]).lines().count();
        assert!(lines(Some(1)) == 1 && lines(None) > 10);
    }
}
