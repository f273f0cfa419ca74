//! What the figures were measured on.

use serde::Serialize;

/// Machine, kernel, commit and load.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The model that the kernel names.
    pub cpu: String,
    /// How many the process may use.
    pub cpus: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The commit of the working tree, with `+` if it was changed since.
    pub commit: String,
    /// The compiler.
    pub rustc: &'static str,
    /// Seconds since 1970.
    pub time: u64,
}

impl Machine {
    /// This one, now.
    pub fn here() -> Machine {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("unknown");
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Machine {
            cpu: model.trim_start_matches([' ', '\t', ':']).to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
            commit: commit(),
            rustc: env!("XROCE_BENCH_RUSTC"),
            time: since.map_or(0, |d| d.as_secs()),
        }
    }
}

/// The average number of runnable tasks over the last minute, this program's own among them.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0)
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    if changed { head + "+" } else { head }
}
