//! One run: starts the nodes, brings them together, gathers what they report.
//!
//! The nodes find each other over TCP, the higher index connecting to the lower: over the loopback where all are in one process,
//! else through the same network that carries RoCE.

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use xroce::Device;

use crate::Failure;
use crate::network::{self, NETDEV, Namespaces, address};
use crate::node;
use crate::plan::{Data, Plan};
use crate::report::{NodeReport, Run};

const PORT: u16 = 18516;
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

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

/// Runs `plan` on all nodes.
pub fn all_nodes(place: &Place, nodes: u32, plan: &Plan) -> Result<Run, Failure> {
    let (reports, cpu) = match place {
        Place::Memory => in_memory(nodes, plan)?,
        Place::Namespaces(namespaces) => in_namespaces(namespaces, nodes, plan)?,
    };
    Ok(Run { plan: *plan, nodes: reports, cpu_seconds: cpu })
}

fn in_memory(nodes: u32, plan: &Plan) -> Result<(Vec<NodeReport>, f64), Failure> {
    let devices = network::in_memory(nodes, plan.loss, plan.seed)?;
    let listeners = (0..nodes).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<Vec<_>, _>>()?;
    let at = listeners.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>()?;
    let reports = thread::scope(|scope| {
        let threads: Vec<_> = devices
            .into_iter()
            .zip(listeners)
            .enumerate()
            .map(|(me, (device, listener))| {
                let at = &at;
                scope.spawn(move || node::run(me as u32, &device, meet(me as u32, &listener, at)?, plan))
            })
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err("a node panicked".into())))
            .collect::<Result<Vec<_>, Failure>>()
    })?;
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

fn in_namespaces(namespaces: &Namespaces, nodes: u32, plan: &Plan) -> Result<(Vec<NodeReport>, f64), Failure> {
    let program = std::env::current_exe()?;
    let running = (0..nodes)
        .map(|index| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", namespaces.name(index)]).arg(&program).arg("node");
            command.args(["--index", &index.to_string(), "--nodes", &nodes.to_string()]);
            command.args(["--data", &plan.data.name().to_lowercase(), "--loss", &plan.loss.to_string()]);
            command.args(["--blocks", &plan.blocks.to_string(), "--rounds", &plan.rounds.to_string()]);
            command.args(["--seed", &plan.seed.to_string(), "--channel-depth", &plan.channel_depth.to_string()]);
            command.args(["--slow-mirror", &plan.slow_mirror_us.to_string()]);
            command.args((!plan.credits).then_some("--no-credits"));
            command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().map(Running)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut reports = Vec::new();
    for (index, mut node) in running.into_iter().enumerate() {
        let output = node.0.stdout.take().ok_or("a node without output")?;
        let report: Result<NodeReport, _> = serde_json::from_reader(output);
        let status = node.0.wait()?;
        if !status.success() {
            return Err(format!("node {index}: {status}").into());
        }
        reports.push(report?);
    }
    let cpu = reports.iter().map(|r| r.cpu_seconds).sum();
    Ok((reports, cpu))
}

/// The node that `args` name: prints its report as one JSON object.
pub fn one_node(args: &NodeArgs) -> Result<(), Failure> {
    let plan = Plan {
        data: args.data,
        blocks: args.load.blocks,
        rounds: args.load.rounds,
        loss: args.loss,
        credits: !args.load.no_credits,
        channel_depth: args.load.channel_depth,
        slow_mirror_us: args.load.slow_mirror,
        seed: args.load.seed,
    };
    let device = network::lossy(Device::builder(NETDEV), plan.loss, plan.seed + u64::from(args.index))?.open()?;
    let at: Vec<SocketAddr> = (0..args.nodes).map(|n| (IpAddr::V4(address(n)), PORT).into()).collect();
    let listener = TcpListener::bind(at[args.index as usize])?;
    let report = node::run(args.index, &device, meet(args.index, &listener, &at)?, &plan)?;
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &report)?;
    writeln!(out)?;
    Ok(())
}

/// A TCP connection to each other node. Who connects says its index in the first byte.
fn meet(me: u32, listener: &TcpListener, at: &[SocketAddr]) -> Result<Vec<(u32, TcpStream)>, Failure> {
    let mut peers = Vec::new();
    for (index, address) in at.iter().enumerate().take(me as usize) {
        let mut stream = dial(address)?;
        stream.write_all(&[me as u8])?;
        peers.push((index as u32, stream));
    }
    while peers.len() + 1 < at.len() {
        let (mut stream, _) = listener.accept()?;
        let mut index = [0];
        std::io::Read::read_exact(&mut stream, &mut index)?;
        peers.push((index[0].into(), stream));
    }
    // The same order everywhere: lower pairs first, so that no two nodes wait for each other in a circle.
    peers.sort_by_key(|(index, _)| *index);
    Ok(peers)
}

fn dial(address: &SocketAddr) -> Result<TcpStream, Failure> {
    let deadline = Instant::now() + CONNECT_LIMIT;
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(e) if Instant::now() > deadline => return Err(format!("no node at {address}: {e}").into()),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}
