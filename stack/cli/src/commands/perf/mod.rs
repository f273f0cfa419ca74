//! `xroce perf TEST [SERVER]`: how fast two ends exchange messages.
//!
//! A device enters, and a TCP connection to the other end; the figures leave. Without SERVER this is the server, which does what
//! the client's plan says.

mod bw;
mod lat;
mod plan;
mod report;
mod rig;
mod talk;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use xroce::{
    ConnectError, ConnectOptions, Context, CreateCqError, CreateQpError, Failure, ModifyError, NoSuchGid, OutOfRange,
    Overrun, PathMtu, PdError, PostChainError, Progress, Psn, QpType, RegMrError,
};

use super::{Outcome, Usage};
use crate::complete;
use crate::cpu;
use crate::device::{DeviceError, RunArgs, choose_gid, linger};
use crate::number::{number, path_mtu, positive, size};
use crate::progress::{self, Goal};
use crate::sim::{self, SimError};
use crate::tcp::{self, TcpError};
use plan::{Length, Operation, Plan, Test};
use report::Served;
use rig::Rig;
use talk::{Listener, Message, Talk, TalkError};

/// Measure bandwidth or latency between two xroce.
///
/// Without SERVER it is the server and waits for a client, whose options then hold for both ends.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What to measure
    #[arg(value_enum, hide_possible_values = false)]
    test: Test,
    /// The server's host name or address
    server: Option<String>,
    #[command(flatten)]
    device: RunArgs,
    /// Index of the GID to use [default: the first routable one]
    #[arg(short, long, value_name = "INDEX", value_parser = number::<u8>)]
    gid_idx: Option<u8>,
    /// TCP port to listen on or connect to
    #[arg(short, long, value_name = "PORT", default_value_t = 18515, value_parser = number::<u16>)]
    port: u16,
    /// On UC instead of RC: SEND and WRITE only
    #[arg(long)]
    uc: bool,
    /// Bytes of a message [default: 65536 for bandwidth, 2 for latency, 8 for atomics]
    #[arg(short, long, value_name = "BYTES", value_parser = size)]
    size: Option<u32>,
    /// Messages on each queue pair [default: 1000, for write_bw 5000]
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = positive::<u64>, conflicts_with = "duration")]
    iters: Option<u64>,
    /// Seconds to run, instead of a number of messages
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = positive::<u32>)]
    duration: Option<u32>,
    /// Path MTU [default: the largest that both ends can]
    #[arg(short, long, value_name = "BYTES", value_parser = path_mtu, add = complete::path_mtus())]
    mtu: Option<PathMtu>,
    /// Queue pairs [default: 1]
    #[arg(short, long, value_name = "COUNT", value_parser = positive::<u32>)]
    qp: Option<u32>,
    /// Messages outstanding on each queue pair [default: 128]
    #[arg(short, long, value_name = "COUNT", value_parser = positive::<u32>)]
    tx_depth: Option<u32>,
    /// Receives posted on each queue pair [default: 512]
    #[arg(short, long, value_name = "COUNT", value_parser = positive::<u32>)]
    rx_depth: Option<u32>,
    /// Up to which size messages are posted inline [default: 236 for send_lat, 220 for write_lat, else 0]
    #[arg(short = 'I', long, value_name = "BYTES", value_parser = number::<u32>)]
    inline_size: Option<u32>,
    /// Who drives the device of this end
    #[arg(long, value_enum, default_value_t = Driver::Inline)]
    progress: Driver,
    /// CPU to stay on: for this thread with inline progress, else for the thread that drives the device
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
    /// The client's figures as one JSON object
    #[arg(long)]
    json: bool,
    /// Both ends in this process, over a wire in memory: needs no netdev and no rights
    #[arg(long, conflicts_with_all = ["server", "device", "port", "drop", "corrupt"])]
    sim: bool,
}

/// Who drives the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Driver {
    /// This thread, whenever it polls
    Inline,
    /// A thread that never sleeps
    Spin,
    /// A thread that sleeps after 50 µs without work
    Adaptive,
    /// A thread that sleeps when there is nothing to do
    Event,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// A wrong option.
    #[error(transparent)]
    Usage(#[from] Usage),
    /// No device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No simulated wire.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// No connection.
    #[error(transparent)]
    Tcp(#[from] TcpError),
    /// No conversation.
    #[error(transparent)]
    Talk(#[from] TalkError),
    /// No such CPU.
    #[error("CPU {cpu}: {source}")]
    Cpu {
        /// The CPU asked for.
        cpu: usize,
        /// What the system says.
        source: io::Error,
    },
    /// No protection domain.
    #[error(transparent)]
    Pd(#[from] PdError),
    /// No memory region.
    #[error(transparent)]
    Mr(#[from] RegMrError),
    /// Size times queue pairs is more than there are addresses.
    #[error("so many bytes for so many queue pairs do not fit into memory")]
    TooMuchMemory,
    /// No completion queue.
    #[error("{0}; take fewer queue pairs (-q) or smaller depths (-t, -r)")]
    Cq(#[from] CreateCqError),
    /// No queue pair.
    #[error(transparent)]
    Qp(#[from] CreateQpError),
    /// No way to INIT.
    #[error(transparent)]
    Init(ModifyError),
    /// No way to the peer.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The other end cannot follow.
    #[error("path MTU {asked} is more than the other end's port takes: at most {largest} there")]
    PathMtu {
        /// As given by the user.
        asked: PathMtu,
        /// What the other end can.
        largest: PathMtu,
    },
    /// The GID went away.
    #[error(transparent)]
    Gid(#[from] NoSuchGid),
    /// A post was refused.
    #[error(transparent)]
    Post(#[from] PostChainError),
    /// The completion queue died.
    #[error(transparent)]
    Overrun(#[from] Overrun),
    /// Memory that is not there.
    #[error(transparent)]
    Range(#[from] OutOfRange),
    /// A work request failed.
    #[error("{0}")]
    Completion(Failure),
    /// Nothing moved for a long time.
    #[error(
        "nothing has arrived for {seconds} s{}",
        if *.unreliable { ": on UC a test of latency ends with the first packet lost" } else { "" }
    )]
    Stalled {
        /// So long.
        seconds: u64,
        /// The service does not send again.
        unreliable: bool,
    },
    /// The ends do not count the same.
    #[error("{sent} messages were sent, but this end finds {found}")]
    Sum {
        /// As the client says.
        sent: u64,
        /// As counted here.
        found: u64,
    },
    /// The other end is at another point of the conversation.
    #[error("the other end said {text:?} in the middle of the test")]
    Unexpected {
        /// What it said.
        text: String,
    },
}

impl Args {
    /// What the client is to measure; `active` is the largest path MTU of its port.
    fn plan(&self, active: PathMtu) -> Result<Plan, Usage> {
        let test = self.test;
        let service = if self.uc { QpType::Uc } else { QpType::Rc };
        let qps = self.qp.unwrap_or(1);
        let length = match self.duration {
            Some(seconds) => Length::Seconds(seconds),
            None => Length::Iters(self.iters.unwrap_or(test.usual_iters())),
        };
        let plan = Plan {
            test,
            service,
            mtu: self.mtu.unwrap_or(active),
            size: self.size.unwrap_or(test.usual_size()),
            length,
            qps,
            tx_depth: self.tx_depth.unwrap_or(128),
            rx_depth: self.rx_depth.unwrap_or(512),
            inline: self.inline_size.unwrap_or(test.usual_inline()),
        };
        check(&plan).map(|()| plan)
    }

    /// What this server was told that the client's plan contradicts.
    fn contradiction(&self, plan: &Plan) -> Option<String> {
        let differs = |given: Option<u64>, planned: u64| given.is_some_and(|given| given != planned);
        let (iters, seconds) = match plan.length {
            Length::Iters(iters) => (iters, 0),
            Length::Seconds(seconds) => (0, seconds.into()),
        };
        let table = [
            ("--uc", self.uc && plan.service == QpType::Rc),
            ("-s", differs(self.size.map(Into::into), plan.size.into())),
            ("-n", differs(self.iters, iters)),
            ("-D", differs(self.duration.map(Into::into), seconds)),
            ("-m", self.mtu.is_some_and(|mtu| mtu != plan.mtu)),
            ("-q", differs(self.qp.map(Into::into), plan.qps.into())),
            ("-t", differs(self.tx_depth.map(Into::into), plan.tx_depth.into())),
            ("-r", differs(self.rx_depth.map(Into::into), plan.rx_depth.into())),
        ];
        if self.test != plan.test {
            return Some(format!("the server runs {}, the client {}", self.test, plan.test));
        }
        let (flag, _) = table.into_iter().find(|(_, differs)| *differs)?;
        Some(format!("the server was started with another {flag}; give it the same, or none, since the client's holds"))
    }

    fn progress(&self) -> Progress {
        match self.progress {
            Driver::Inline => Progress::Inline { helper: false },
            Driver::Spin => Progress::Spin { cpu: self.cpu },
            Driver::Adaptive => Progress::Adaptive { cpu: self.cpu, spin_ns: 50_000 },
            Driver::Event => Progress::Event,
        }
    }

    fn pin(&self) -> Result<(), PerfError> {
        match self.cpu {
            Some(cpu) if matches!(self.progress, Driver::Inline | Driver::Event) => {
                cpu::pin(cpu).map_err(|source| PerfError::Cpu { cpu, source })
            }
            _ => Ok(()),
        }
    }
}

/// Combinations that mean nothing.
fn check(plan: &Plan) -> Result<(), Usage> {
    let test = plan.test;
    let operation = test.operation();
    let bad = |text: String| Err(Usage(text));
    match operation {
        Operation::Read | Operation::Atomic if plan.service == QpType::Uc => {
            bad(format!("{test}: UC has neither READ nor atomics; leave out --uc"))
        }
        Operation::Atomic if plan.size != 8 => bad(format!("{test}: an atomic works on 8 bytes; leave out -s")),
        Operation::Write if test.is_lat() && plan.size == 0 => {
            bad(format!("{test}: the other end watches the last byte, so there must be one: -s 1 or more"))
        }
        _ if test.is_lat() && plan.qps > 1 => {
            bad(format!("{test}: latency is measured on one queue pair; leave out -q"))
        }
        _ => Ok(()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome, PerfError> {
    // Before anything is opened.
    args.plan(PathMtu::Mtu1024)?;
    if args.sim {
        return both(args);
    }
    args.pin()?;
    let opened = args.device.open(args.progress())?;
    match &args.server {
        Some(host) => client(args, &opened.context, || tcp::connect(host, args.port), cpu::process_ns)?,
        None => serve(args, &opened.context, &tcp::listen(args.port)?, |line| println!("{line}"))?,
    }
    opened.close()?;
    Ok(Outcome::Done)
}

/// Both ends in this process; only the client is heard.
fn both(args: &Args) -> Result<Outcome, PerfError> {
    let (opened, server) = sim::pair(&args.device, args.progress())?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(TalkError::Broken)?;
    let port = listener.local_addr().map_err(TalkError::Broken)?.port();
    thread::scope(|scope| {
        // What goes wrong there is told to the client.
        scope.spawn(|| serve(args, &server.context, &listener, |_| {}));
        args.pin()?;
        let clock = if args.progress == Driver::Inline { cpu::thread_ns } else { cpu::process_ns };
        client(args, &opened.context, || tcp::connect("127.0.0.1", port), clock)
    })?;
    opened.close()?;
    Ok(Outcome::Done)
}

/// The client: connects, measures, prints.
fn client(
    args: &Args,
    context: &Context,
    meet: impl FnOnce() -> Result<TcpStream, TcpError>,
    cpu_now: fn() -> u64,
) -> Result<(), PerfError> {
    let gid = choose_gid(context, args.gid_idx)?;
    let active = active_mtu(context)?;
    let mut talk = Talk::new(meet()?)?;
    talk.say(&Message::Plan(args.plan(active)?))?;
    // It comes back with the path MTU that both ends can.
    let plan = talk.hear_plan()?;
    if let Some(asked) = args.mtu.filter(|&asked| asked != plan.mtu) {
        return telling(&mut talk, || Err(PerfError::PathMtu { asked, largest: plan.mtu }));
    }
    let mut rig = telling(&mut talk, || rig(args, context, plan, gid.index))?;
    for place in rig.places()? {
        talk.say(&place)?;
    }
    let places = talk.hear_places(rig.qps.len())?;
    telling(&mut talk, || rig.connect(&places))?;
    talk.say(&Message::Ready)?;
    talk.hear_ready()?;
    if !args.json {
        println!("{}", report::heading(&plan, &context.name(), &gid.gid.to_string()));
    }
    let mut listener = talk.listen()?;
    let shown = progress::Progress::start(context, goal(&plan));
    let measured = measure(&rig, &listener, cpu_now);
    drop(shown);
    let measured = telling_listener(&mut listener, measured)?;
    listener.say(&Message::Done(measured.messages()))?;
    let served = match rig.await_message(&listener)? {
        Message::Result(received, cpu_ns) => Served { received, cpu_ns, resent: rig.resent() },
        other => return Err(PerfError::Unexpected { text: other.to_string() }),
    };
    println!(
        "{}",
        match &measured {
            Measured::Bandwidth(bandwidth) => report::bandwidth(&plan, bandwidth, &served, args.json),
            Measured::Latency(latency) => report::latency(&plan, latency, args.json),
        }
    );
    Ok(())
}

/// When this end is done.
fn goal(plan: &Plan) -> Goal {
    match plan.length {
        Length::Iters(iters) => Goal::Messages(iters * u64::from(plan.qps)),
        Length::Seconds(seconds) => Goal::Seconds(seconds.into()),
    }
}

enum Measured {
    Bandwidth(bw::Bandwidth),
    Latency(lat::Latency),
}

impl Measured {
    fn messages(&self) -> u64 {
        match self {
            Measured::Bandwidth(bandwidth) => bandwidth.messages,
            Measured::Latency(latency) => latency.iters,
        }
    }
}

fn measure(rig: &Rig, listener: &Listener, cpu_now: fn() -> u64) -> Result<Measured, PerfError> {
    Ok(if rig.plan.test.is_lat() {
        Measured::Latency(lat::client(rig, listener, cpu_now)?)
    } else {
        Measured::Bandwidth(bw::client(rig, listener, cpu_now)?)
    })
}

/// The server: waits for one client and does what it says.
fn serve(
    args: &Args,
    context: &Context,
    listener: &TcpListener,
    mut tell: impl FnMut(String),
) -> Result<(), PerfError> {
    let gid = choose_gid(context, args.gid_idx)?;
    if !args.json {
        tell(format!(
            "{} on {}, GID {}: waiting for a client on TCP port {}",
            args.test,
            context.name(),
            gid.gid,
            args.port
        ));
    }
    let mut talk = Talk::new(tcp::accept(listener)?)?;
    let mut plan = talk.hear_plan()?;
    if let Some(why) = args.contradiction(&plan) {
        talk.say(&Message::Refuse(why.clone()))?;
        return Err(Usage(why).into());
    }
    let active = telling(&mut talk, || active_mtu(context))?;
    if active.bytes() < plan.mtu.bytes() {
        plan.mtu = active;
    }
    talk.say(&Message::Plan(plan))?;
    let places = talk.hear_places(plan.qps as usize)?;
    let mut rig = telling(&mut talk, || rig(args, context, plan, gid.index))?;
    telling(&mut talk, || rig.connect(&places))?;
    for place in rig.places()? {
        talk.say(&place)?;
    }
    talk.hear_ready()?;
    talk.say(&Message::Ready)?;
    let mut listener = talk.listen()?;
    let served = if plan.test.is_lat() { lat::server(&rig, &listener) } else { bw::server(&rig, &listener) };
    let (received, cpu_ns) = telling_listener(&mut listener, served)?;
    listener.say(&Message::Result(received, cpu_ns))?;
    linger(context, args.device.faults.quiet());
    // The client closes when it has heard; until then its last words are not cut off.
    let _ = listener.next_within(Duration::from_secs(2));
    if !args.json {
        tell(format!("{received} messages of {} bytes, {} ns of CPU time each", plan.size, cpu_ns / received.max(1)));
    }
    Ok(())
}

fn rig(args: &Args, context: &Context, plan: Plan, gid_index: u8) -> Result<Rig, PerfError> {
    let psn = Psn::new(RandomState::new().hash_one(std::process::id()) as u32);
    let options = ConnectOptions { gid_index, path_mtu: Some(plan.mtu), psn, ..ConnectOptions::default() };
    Rig::new(context, plan, options, args.progress == Driver::Inline)
}

fn active_mtu(context: &Context) -> Result<PathMtu, PerfError> {
    let port = context.query_port();
    port.active_mtu.ok_or(PerfError::Connect(ConnectError::NoPathMtu { name: context.name(), mtu: port.netdev_mtu }))
}

/// What goes wrong here is told to the other end, which would wait in vain.
fn telling<T>(talk: &mut Talk, act: impl FnOnce() -> Result<T, PerfError>) -> Result<T, PerfError> {
    act().inspect_err(|error| {
        // If it is gone too, there is nobody to tell.
        let _ = talk.say(&Message::Refuse(error.to_string()));
    })
}

/// As [`telling`], while the test runs.
fn telling_listener<T>(listener: &mut Listener, result: Result<T, PerfError>) -> Result<T, PerfError> {
    result.inspect_err(|error| {
        let _ = listener.say(&Message::Refuse(error.to_string()));
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Line::try_parse_from(["perf"].into_iter().chain(line.split_whitespace())).unwrap().args
    }

    fn plan(line: &str) -> Plan {
        args(line).plan(PathMtu::Mtu1024).unwrap()
    }

    #[test]
    fn defaults_are_those_of_perftest() {
        let bw = plan("write_bw");
        assert_eq!((bw.size, bw.length, bw.qps, bw.tx_depth), (65536, Length::Iters(5000), 1, 128));
        let lat = plan("send_lat");
        assert_eq!((lat.size, lat.length), (2, Length::Iters(1000)));
        assert!(lat.is_inline() && !plan("send_lat -s 237").is_inline() && !plan("read_lat -I 64").is_inline());
        assert_eq!(plan("atomic_bw").size, 8);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in ["read_bw --uc", "atomic_lat --uc", "atomic_bw -s 16", "write_lat -s 0", "send_lat -q 2"] {
            assert!(args(line).plan(PathMtu::Mtu1024).is_err(), "{line}");
        }
        assert!(Line::try_parse_from(["perf", "send_bw", "-n", "5", "-D", "5"]).is_err());
    }

    #[test]
    fn the_server_names_the_flag_that_differs() {
        let server = |line| args(line).contradiction(&plan("send_bw -s 64 -q 2 -n 10"));
        assert_eq!(server("send_bw"), None);
        assert_eq!(server("send_bw -s 64 -q 2 -n 10"), None);
        assert!(server("write_bw").unwrap().contains("write_bw"));
        for (line, flag) in
            [("send_bw -s 65", "-s"), ("send_bw -q 1", "-q"), ("send_bw -D 1", "-D"), ("send_bw --uc", "--uc")]
        {
            assert!(server(line).unwrap().contains(flag), "{line}");
        }
    }
}
