//! The same game, rc_pingpong by events with messages of 1 MiB at path MTU 1024: rdma-core's on the kernel's rxe in a user-mode
//! kernel, both ends on a veth in there; and xroce's, both ends on a veth of this machine.
//!
//! In: how many rounds. Out: CPU time a byte, and what loss leaves of the throughput, in rows and as a curve.
//!
//! A user-mode kernel is a process, and its programs are processes below it, so that all it does is CPU time here, without an
//! emulation. Its rxe makes the ICRC by table, without the instructions that hardware has for it.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use xroce_tests::rxe::{Guest, Kernel, Mtu, Options};

use crate::cpu_time::children_ns;
use crate::link::net::{Net, Setup, Side};
use crate::pair::Result;
use crate::report::{Curve, Goal, Line, Report};
use crate::spread::Ratio;

/// Bytes of a message.
const SIZE: u32 = 1 << 20;
/// TCP port of the games.
const PORT: u16 = 18_730;
/// Percent of frames lost each way, and the exchanges that take a second or a few there.
const LOSSES: [(f64, u32); 3] = [(0.01, 150), (0.1, 100), (1.0, 20)];
/// How long a game may take.
const LIMIT_S: u32 = 120;

/// What a game took.
#[derive(Clone, Copy, Debug)]
struct Game {
    seconds: f64,
    /// CPU time of both ends in user mode, without the kernel's part, nanoseconds. Of a user-mode kernel all is user mode.
    own_ns: f64,
    /// All CPU time of both ends, nanoseconds.
    all_ns: f64,
}

/// Where games are played.
trait Table {
    /// `exchanges` exchanges with so much loss each way.
    fn play(&self, exchanges: u32, percent: f64) -> Result<Game>;
}

/// Measures it.
///
/// # Errors
/// When a game fails.
pub fn measure(rounds: usize, time: Duration, report: &mut Report) -> Result<()> {
    println!("a user-mode kernel with rxe (built first if it is missing: 6 to 10 minutes)");
    let guest = match Guest::boot_with(&Options::new(Kernel::UserMode, Mtu::ETHERNET)) {
        Ok(guest) => guest,
        Err(why) => {
            report.skip("S6", "CPU time against rxe in a user-mode kernel", &why.reason);
            report.skip("S8", "loss, beside rxe's curve", &why.reason);
            return Ok(());
        }
    };
    let theirs = Rxe::on(&guest)?;
    let net = Net::up(false)?;
    net.set_up(Setup::Plain)?;
    let ours = Xroce { net: &net };
    cpu(rounds, time, &ours, &theirs, report)?;
    loss(rounds, &ours, &theirs, report)
}

/// CPU time a byte. What starting and connecting take is measured by a game of one exchange, and taken off.
fn cpu(rounds: usize, time: Duration, ours: &dyn Table, theirs: &dyn Table, report: &mut Report) -> Result<()> {
    // A tick of the CPU accounting is 10 ms: at least a second, so that it does not matter.
    let exchanges = (200.0 * time.as_secs_f64() / 0.4).max(200.0) as u32;
    let bytes = f64::from(exchanges - 1) * 2.0 * f64::from(SIZE);
    let net = |table: &dyn Table| -> Result<Game> {
        let (short, long) = (table.play(1, 0.0)?, table.play(exchanges, 0.0)?);
        let per_byte = |f: fn(&Game) -> f64| (f(&long) - f(&short)) / bytes;
        Ok(Game {
            seconds: long.seconds - short.seconds,
            own_ns: per_byte(|g| g.own_ns),
            all_ns: per_byte(|g| g.all_ns),
        })
    };
    let pairs = turns(rounds, || net(ours), || net(theirs))?;
    let mut row = |what: &str, unit: &str, goal, value: &dyn Fn(&Game, &Game) -> (f64, f64)| {
        let ratio = Ratio::of(&pairs.iter().map(|(ours, theirs)| value(ours, theirs)).collect::<Vec<_>>());
        report.row("S6", &format!("rc_pingpong -e, 1 MiB, {what}, vs rxe"), unit, ratio, goal);
    };
    // Theirs cannot be told apart from their veth, so it is all of it on that side.
    row("CPU a byte without the veth", "ns", Goal::AtMost(1.0 / 3.0), &|o, t| (o.own_ns, t.all_ns));
    row("CPU a byte in all", "ns", Goal::AtMost(1.0), &|o, t| (o.all_ns, t.all_ns));
    row("throughput", "Gbit/s", Goal::None, &|o, t| (bytes * 8e-9 / o.seconds, bytes * 8e-9 / t.seconds));
    Ok(())
}

/// What loss leaves of the throughput.
fn loss(rounds: usize, ours: &dyn Table, theirs: &dyn Table, report: &mut Report) -> Result<()> {
    let mut lines = vec![Line::new("xroce"), Line::new("rxe")];
    for (percent, exchanges) in LOSSES {
        let left = |table: &dyn Table| -> Result<f64> {
            let rate = |exchanges, percent| {
                Ok::<f64, Box<dyn std::error::Error>>(f64::from(exchanges) / table.play(exchanges, percent)?.seconds)
            };
            Ok(rate(exchanges, percent)? / rate(100, 0.0)?)
        };
        let ratio = Ratio::of(&turns(rounds, || left(ours), || left(theirs))?);
        let name = format!("rc_pingpong -e, 1 MiB, {percent} % lost, part of loss-free, vs rxe");
        report.row("S8", &name, "", ratio, Goal::AtLeast(1.0));
        for (line, spread) in lines.iter_mut().zip([ratio.ours, ratio.theirs]) {
            line.points.push((percent, spread));
        }
    }
    report.curve(Curve {
        id: "S8",
        name: "rc_pingpong -e, RC, 1 MiB, MTU 1024, by loss each way",
        x: "% lost",
        panels: vec![("throughput, as part of what it is without loss", lines)],
    });
    Ok(())
}

/// Both sides of all rounds; who begins changes.
fn turns<T>(rounds: usize, ours: impl Fn() -> Result<T>, theirs: impl Fn() -> Result<T>) -> Result<Vec<(T, T)>> {
    let round = |round| {
        Ok(if round % 2 == 0 {
            let ours = ours()?;
            (ours, theirs()?)
        } else {
            let theirs = theirs()?;
            (ours()?, theirs)
        })
    };
    (0..rounds).map(round).collect()
}

/// Games that may break off for one figure.
const BROKEN_MAX: u32 = 5;

/// rdma-core's program on two rxe in a user-mode guest.
struct Rxe<'a> {
    guest: &'a Guest,
    process: u32,
}

impl<'a> Rxe<'a> {
    fn on(guest: &'a Guest) -> Result<Rxe<'a>> {
        let process = guest.process().ok_or("the guest's process is not known")?;
        let rxe = Rxe { guest, process };
        // The guest sees this machine's files.
        let pair = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/rxe/guest/rxe-pair");
        rxe.run(&format!("{pair} 1500"))?;
        for netdev in ["va", "vb"] {
            rxe.run(&format!("tc qdisc add dev {netdev} root netem limit 10000"))?;
        }
        Ok(rxe)
    }

    fn run(&self, command: &str) -> Result<String> {
        let output = self.guest.run(command);
        match output.status {
            0 => Ok(output.stdout),
            status => Err(format!("{command}: {status}\n{}{}", output.stdout, output.stderr).into()),
        }
    }
}

impl Table for Rxe<'_> {
    fn play(&self, exchanges: u32, percent: f64) -> Result<Game> {
        for netdev in ["va", "vb"] {
            // Without loss there is no netem, which would take CPU time.
            let qdisc = if percent > 0.0 { format!("netem limit 10000 loss {percent}%") } else { "pfifo".to_owned() };
            self.run(&format!("tc qdisc replace dev {netdev} root {qdisc}"))?;
        }
        let game = format!("timeout {LIMIT_S} ibv_rc_pingpong -e -g 1 -m 1024 -s {SIZE} -n {exchanges} -p {PORT}");
        let command = format!(
            "{game} -d rxea >/tmp/server 2>&1 & server=$!
             until grep -q ':{PORT:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done
             {game} -d rxeb 10.88.0.1 || {{ cat /tmp/server; exit 1; }}
             wait $server"
        );
        let (mut before, mut broken) = (tree_ns(self.process), 0);
        let output = loop {
            match self.run(&command) {
                // A queue pair that loses one packet too often is in ERR: that game has no figure.
                Err(error) if percent > 0.0 && broken < BROKEN_MAX => {
                    broken += 1;
                    eprintln!("a game of rxe at {percent} % broke off, and is played again: {error}");
                    before = tree_ns(self.process);
                }
                played => break played?,
            }
        };
        let all_ns = (tree_ns(self.process) - before) as f64;
        Ok(Game { seconds: seconds(&output)?, own_ns: all_ns, all_ns })
    }
}

/// `xroce rc_pingpong` on both ends of a veth.
struct Xroce<'a> {
    net: &'a Net,
}

impl Xroce<'_> {
    fn start(&self, side: Side, exchanges: u32, percent: f64) -> Result<Child> {
        let xroce = std::env::current_exe()?.with_file_name("xroce");
        let mut command = Command::new("timeout");
        command.arg(LIMIT_S.to_string()).arg(&xroce).args(["rc_pingpong", "-e", "-m", "1024", "-d", side.netdev()]);
        command.args(["-s", &SIZE.to_string(), "-n", &exchanges.to_string(), "-p", &PORT.to_string()]);
        if percent > 0.0 {
            command.args(["--drop", &percent.to_string()]);
        }
        if side == Side::A {
            command.arg(Side::B.address().to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command.spawn().map_err(|e| format!("{}: {e}", xroce.display()))?)
    }
}

impl Table for Xroce<'_> {
    fn play(&self, exchanges: u32, percent: f64) -> Result<Game> {
        let before = children_ns();
        let server = || {
            let child = self.start(Side::B, exchanges, percent)?;
            finish(child)
        };
        let client = || {
            let end = Instant::now() + Duration::from_secs(20);
            while !self.listens()? {
                if Instant::now() > end {
                    return Err("xroce's server does not listen".into());
                }
                thread::sleep(Duration::from_millis(5));
            }
            finish(self.start(Side::A, exchanges, percent)?)
        };
        let (output, _) = self.net.both(client, server)?;
        let after = children_ns();
        let own_ns = (after.0 - before.0) as f64;
        Ok(Game { seconds: seconds(&output)?, own_ns, all_ns: own_ns + (after.1 - before.1) as f64 })
    }
}

impl Xroce<'_> {
    /// Whether somebody listens on the game's port, at B's end. A connection would be taken for the client's.
    fn listens(&self) -> Result<bool> {
        let port = format!(":{PORT:04X} ");
        let look = || -> Result<bool> {
            let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
            let table = read("tcp") + &read("tcp6");
            Ok(table.lines().any(|line| line.contains(&port) && line.split_whitespace().nth(3) == Some("0A")))
        };
        Ok(self.net.both(|| Ok(()), look)?.1)
    }
}

/// Waits for its end; its output.
fn finish(mut child: Child) -> Result<String> {
    let mut text = String::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_string(&mut text)?;
    }
    if let Some(stderr) = &mut child.stderr {
        stderr.read_to_string(&mut text)?;
    }
    let status = child.wait()?;
    if status.success() { Ok(text) } else { Err(format!("xroce rc_pingpong: {status}\n{text}").into()) }
}

/// From the line "N iters in SECONDS seconds = ...", which both programs print.
fn seconds(output: &str) -> Result<f64> {
    let line = output.lines().find_map(|line| line.split_once(" iters in "));
    let value = line.and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    Ok(value.ok_or_else(|| format!("no result line in\n{output}"))?)
}

/// CPU time of a process, its children that ended, and those that did not, to any depth, in nanoseconds.
fn tree_ns(process: u32) -> u64 {
    const TICK_NS: u64 = 10_000_000;
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let below: u64 = children.split_whitespace().filter_map(|pid| pid.parse().ok()).map(tree_ns).sum();
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the name, which may have blanks: utime, stime, cutime and cstime are the 12th to 15th.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split_whitespace();
    let own: u64 = fields.skip(11).take(4).filter_map(|n| n.parse::<u64>().ok()).sum();
    own * TICK_NS + below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_line_is_read() {
        let output = "2097152 bytes in 0.01 seconds = 1677.72 Mbit/sec\n20 iters in 0.25 seconds = 12500 usec/iter\n";
        assert_eq!(seconds(output).unwrap(), 0.25);
        assert!(seconds("").is_err());
    }

    #[test]
    fn a_tree_has_the_time_of_its_process() {
        let until = Instant::now() + Duration::from_millis(60);
        while Instant::now() < until {}
        assert!(tree_ns(std::process::id()) > 0);
        assert_eq!(tree_ns(u32::MAX), 0, "no such process");
    }
}
