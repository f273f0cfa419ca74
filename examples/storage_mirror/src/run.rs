//! One run: starts the nodes, gathers what they report, and ends all of them as soon as one has failed.

use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use xroce::Device;

use crate::Failure;
use crate::meet::meet;
use crate::network::{self, NETDEV, Namespaces, address};
use crate::node;
use crate::plan::{Data, Plan};
use crate::report::{NodeReport, Run};

const PORT: u16 = 18516;
/// What fails in the wake of a failure is told too, if it comes so soon: the first to be noticed need not be the cause.
const GRACE: Duration = Duration::from_millis(300);

/// Where the nodes run.
pub enum Place {
    /// In this process.
    Memory,
    /// In namespaces.
    Namespaces(Namespaces),
}

impl Place {
    /// A place for `nodes` nodes.
    pub fn new(sim: bool, nodes: u32) -> Result<Place, Failure> {
        if sim {
            return Ok(Place::Memory);
        }
        Namespaces::new(nodes)
            .map(Place::Namespaces)
            .map_err(|e| format!("namespaces cannot be made ({e}); with --sim no rights are needed").into())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Memory => "in this process, on a network in memory",
            Place::Namespaces(_) => "each in a network namespace, over AF_XDP",
        })
    }
}

/// What a node's process is told.
#[derive(clap::Args)]
pub struct NodeArgs {
    #[arg(long)]
    index: u32,
    /// The process that starts the nodes.
    #[arg(long)]
    parent: i32,
    #[arg(long)]
    nodes: u32,
    #[arg(long)]
    data: Data,
    /// A probability.
    #[arg(long)]
    loss: f64,
    #[command(flatten)]
    load: crate::Load,
}

/// How a node ended, in its own words.
type Outcome = Result<NodeReport, String>;

/// Runs `plan` on all nodes.
pub fn all_nodes(place: &Place, nodes: u32, plan: &Plan) -> Result<Run, Failure> {
    let (reports, cpu) = match place {
        Place::Memory => in_memory(nodes, plan)?,
        Place::Namespaces(namespaces) => in_namespaces(namespaces, nodes, plan)?,
    };
    Ok(Run { plan: *plan, nodes: reports, cpu_seconds: cpu })
}

/// Waits until every node has reported or one has failed. A node that says nothing (None) is settled by the caller.
fn gather(
    nodes: u32,
    said: &Receiver<(u32, Option<Outcome>)>,
    mut settle: impl FnMut(u32, Option<Outcome>) -> Outcome,
) -> Result<Vec<NodeReport>, Failure> {
    let (mut reports, mut failures) = (Vec::new(), Vec::new());
    let mut until: Option<Instant> = None;
    while reports.len() + failures.len() < nodes as usize {
        let next = match until {
            None => said.recv().ok(),
            Some(until) => said.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
        };
        let Some((index, outcome)) = next else { break };
        match settle(index, outcome) {
            Ok(report) => reports.push(report),
            Err(why) => {
                failures.push(format!("node {index} failed: {why}"));
                until.get_or_insert_with(|| Instant::now() + GRACE);
            }
        }
    }
    if !failures.is_empty() {
        return Err(failures.join("\n  ").into());
    }
    reports.sort_by_key(|report| report.node);
    Ok(reports)
}

/// The threads are not waited for: the program ends when one of them has failed, and with it the others.
fn in_memory(nodes: u32, plan: &Plan) -> Result<(Vec<NodeReport>, f64), Failure> {
    let devices = network::in_memory(nodes, plan.loss, plan.seed)?;
    let listeners = (0..nodes).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<Vec<_>, _>>()?;
    let at: Arc<[SocketAddr]> = listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
    let (say, said) = channel();
    for (me, (device, listener)) in (0..nodes).zip(devices.into_iter().zip(listeners)) {
        let (at, plan, say) = (at.clone(), *plan, say.clone());
        thread::spawn(move || {
            let node = || node::run(me, &device, meet(me, &listener, &at)?, &plan);
            let outcome = catch_unwind(AssertUnwindSafe(node)).ok().map(|o| o.map_err(|e: Failure| e.to_string()));
            // Nobody listens any more when another node was the first to fail.
            let _ = say.send((me, outcome));
        });
    }
    let reports = gather(nodes, &said, |_, outcome| outcome.unwrap_or_else(|| Err("its thread panicked".to_owned())))?;
    // One process: each node measured the CPU time of all.
    let cpu = reports.iter().map(|r| r.cpu_seconds).fold(0.0, f64::max);
    Ok((reports, cpu))
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// The process has closed its output: what came of it.
    fn settle(&mut self, outcome: Option<Outcome>) -> Outcome {
        let status = self.0.wait().map_err(|e| e.to_string())?;
        match outcome {
            Some(Ok(report)) if status.success() => Ok(report),
            Some(Err(why)) => Err(why),
            Some(Ok(_)) => Err(format!("it reported, and then its process ended by {status}")),
            None => Err(format!("its process ended by {status}, without a report")),
        }
    }
}

fn in_namespaces(namespaces: &Namespaces, nodes: u32, plan: &Plan) -> Result<(Vec<NodeReport>, f64), Failure> {
    let program = std::env::current_exe()?;
    let (say, said) = channel();
    let mut running = Vec::new();
    for index in 0..nodes {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespaces.name(index)]).arg(&program).arg("node");
        command.args(["--index", &index.to_string(), "--parent", &std::process::id().to_string()]);
        command.args(["--nodes", &nodes.to_string()]).args(plan.arguments());
        let mut node = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().map(Running)?;
        let output = node.0.stdout.take().ok_or("a node without output")?;
        running.push(node);
        let say = say.clone();
        thread::spawn(move || {
            let outcome = serde_json::from_reader(output).ok();
            let _ = say.send((index, outcome));
        });
    }
    let reports = gather(nodes, &said, |index, outcome| running[index as usize].settle(outcome))?;
    let cpu = reports.iter().map(|r| r.cpu_seconds).sum();
    Ok((reports, cpu))
}

/// The node that `args` name, in this process: prints its [`Outcome`] as one JSON object, for the program that started it.
pub fn one_node(args: &NodeArgs) -> ExitCode {
    let outcome = node_here(args).map_err(|e| e.to_string());
    let mut out = io::stdout().lock();
    let said = serde_json::to_writer(&mut out, &outcome).map_err(io::Error::from).and_then(|()| writeln!(out));
    if said.is_ok() && outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn node_here(args: &NodeArgs) -> Result<NodeReport, Failure> {
    // Who started us may be killed, and then nobody would end us. He may be gone already.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(Pid::as_raw_pid) != Some(args.parent) {
        return Err("the program that started this node has ended".into());
    }
    let plan = Plan::new(args.data, args.loss, &args.load);
    let device = network::lossy(Device::builder(NETDEV), plan.loss, plan.seed + u64::from(args.index))?.open()?;
    let at: Vec<SocketAddr> = (0..args.nodes).map(|n| (IpAddr::V4(address(n)), PORT).into()).collect();
    let listener = TcpListener::bind(at[args.index as usize])?;
    node::run(args.index, &device, meet(args.index, &listener, &at)?, &plan)
}
