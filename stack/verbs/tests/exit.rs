//! A process that exits right after its last completion, destroying nothing, has acknowledged what it received: as with an
//! adapter, which goes on without it.

mod common;

use common::{PATIENCE, Side, ip, options};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Instant;
use xroce::{Device, Gid, Progress, Psn, QpEndpoint, QpType, Qpn, SendOp, WcStatus};

const TEST: &str = "a_process_that_exits_has_acknowledged_its_last_message";
/// Set in the process that exits: how it drives its device.
const LEAVER: &str = "XROCE_TEST_LEAVER";
const STAYS: &str = "127.0.47.1";
const LEAVES: &str = "127.0.47.2";
const ROUNDS: usize = 5;
const MODES: [(&str, Progress); 3] = [
    ("inline", Progress::Inline { helper: true }),
    ("adaptive", Progress::Adaptive { cpu: None, spin_ns: 20_000 }),
    ("event", Progress::Event),
];

fn side(address: &str, progress: Progress) -> Side {
    let context = Device::on_udp(&[ip(address)]).progress(progress).open().expect("the loopback carries UDP");
    Side::new(&context, QpType::Rc, 64)
}

fn gid(address: &str) -> Gid {
    let IpAddr::V4(address) = ip(address) else { unreachable!("they are IPv4") };
    Gid::from_ipv4(address)
}

/// Numbers as the two processes tell each other theirs.
fn connect(side: &Side, psn: u32, remote: &str, numbers: &str) {
    let mut numbers = numbers.split_whitespace().map(|word| word.parse().expect("a number"));
    let mut next = || numbers.next().expect("two numbers");
    let remote = QpEndpoint { gid: gid(remote), qpn: Qpn::new(next()), psn: Psn::new(next()) };
    side.qp.connect(&remote, &options(psn)).expect("it is there");
}

/// Receives one message and is gone.
fn leave(mode: &str) -> ! {
    let progress = MODES.iter().find(|(name, _)| *name == mode).expect("one of them").1;
    let side = side(LEAVES, progress);
    side.qp.to_init(&options(7)).expect("a new one");
    side.recv(1, &[side.sge(0, 64)]);
    let (mut line, mut out) = (String::new(), std::io::stdout());
    std::io::stdin().read_line(&mut line).expect("the other end tells");
    connect(&side, 7, STAYS, &line);
    writeln!(out, "\nat {} 7", side.qp.qpn().value()).and_then(|()| out.flush()).expect("it listens");
    let start = Instant::now();
    while side.cq.poll_one().expect("it works").is_none() {
        assert!(start.elapsed() < PATIENCE, "no message");
    }
    std::process::exit(0)
}

#[test]
fn a_process_that_exits_has_acknowledged_its_last_message() {
    if let Ok(mode) = env::var(LEAVER) {
        leave(&mode);
    }
    for (mode, _) in MODES {
        for round in 0..ROUNDS {
            let side = side(STAYS, Progress::Inline { helper: false });
            let mut leaver = Command::new(env::current_exe().expect("this program"))
                .args(["--exact", TEST, "--nocapture"])
                .env(LEAVER, mode)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("it starts again");
            let mut to = leaver.stdin.take().expect("a pipe");
            writeln!(to, "{} 9", side.qp.qpn().value()).expect("it reads");
            let lines = BufReader::new(leaver.stdout.take().expect("a pipe")).lines();
            let mut lines = lines.map(|line| line.expect("text"));
            let said = lines.find_map(|line| line.strip_prefix("at ").map(str::to_owned)).expect("it says where it is");
            connect(&side, 9, LEAVES, &said);
            side.send(7, SendOp::Send, &[side.sge(0, 8)]);
            let start = Instant::now();
            let wc = loop {
                if let Some(wc) = side.cq.poll_one().expect("it works") {
                    break wc;
                }
                assert!(start.elapsed() < PATIENCE, "no completion");
            };
            assert_eq!(wc.status, WcStatus::Success, "{mode}, round {round}");
            assert!(leaver.wait().expect("ours").success());
        }
    }
}
