//! Storage nodes that mirror each other's volumes: metadata on RC, data on UC.
//!
//! Each pair of nodes has two connections. The *metadata channel* (RC) carries a log of small records that must never be lost: this
//! block now has this version. The *data channel* (UC) carries the blocks, of 64 KiB unless told otherwise, as RDMA WRITEs straight
//! into the mirror's memory. What UC loses the mirror finds by comparing versions and checksums with the log, and asks for just
//! that. At the end every block and every record is compared. A connection whose retries are spent is made anew, and the nodes go on
//! where they were. The same can be run with RC for the data, and with loss.
//!
//! ```text
//! storage-mirror --sim                 three nodes in this process, on a network in memory
//! storage-mirror                       three nodes in namespaces behind a bridge, over AF_XDP (root)
//! storage-mirror --sweep               rates of loss, UC and RC in turn; a plot in target/mirror.svg
//! ```

mod block;
mod channel;
mod keeper;
mod log;
mod meet;
mod message;
mod network;
mod node;
mod owner;
mod peer;
mod plan;
mod report;
mod run;
mod sabotage;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::plan::{Data, Plan};
use crate::run::Place;
use crate::sabotage::Sabotage;

/// Any error, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Storage nodes that mirror each other: metadata on RC, data on UC.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Nodes; each mirrors its volumes at each other node
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=16))]
    nodes: u32,
    /// What carries the blocks [default: UC, then RC]
    #[arg(long)]
    data: Option<Data>,
    /// Percent of frames that are lost, at each sender; of several rates (0,0.5,2) there is a plot
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = percent, value_delimiter = ',')]
    loss: Vec<f64>,
    /// UC and RC at 0, 0.01, 0.05, 0.1, 0.5, 1 and 2 percent of loss, and a plot
    #[arg(long, conflicts_with_all = ["loss", "data"])]
    sweep: bool,
    /// Where the plot goes
    #[arg(long, value_name = "FILE", default_value = "target/mirror.svg")]
    plot: PathBuf,
    /// All nodes in this process, on a network in memory: needs no rights
    #[arg(long)]
    sim: bool,
    #[command(flatten)]
    load: Load,
}

/// What all nodes must be told alike.
#[derive(Args, Clone)]
struct Load {
    /// Blocks in a volume
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=16384))]
    blocks: u32,
    /// Bytes of a block, or KiB with a k behind: 1k to 1024k, a multiple of 8 bytes
    #[arg(long, value_name = "BYTES", default_value = "64k", value_parser = block::parse_size)]
    block_size: u32,
    /// Times that each block is written anew
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Do not count credits on the metadata channel: a message without a RECV then meets RNR NAKs
    #[arg(long)]
    no_credits: bool,
    /// RECVs of a metadata channel
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=1024))]
    channel_depth: u32,
    /// Microseconds that a mirror spends on each record, as a slow disk would
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    slow_mirror: u32,
    /// Seconds without any progress after which a node gives up, and the run with it
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    patience: u32,
    /// Let a node fail, to see that the run ends and says so: rot (a byte of its copies changes unseen), forget (it loses
    /// the logs), key (it writes with a wrong rkey), crash, hang; or lose (it drops its connections half-way), to see that the run goes on
    #[arg(long = "break", value_name = "NODE:HOW")]
    sabotage: Option<Sabotage>,
    /// What decides which frames are lost
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Subcommand)]
enum Command {
    /// One node, in this namespace; started by the above
    #[command(hide = true)]
    Node(run::NodeArgs),
}

fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if (0.0..=50.0).contains(&percent) { Ok(percent) } else { Err("0 to 50 percent".to_owned()) }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(Command::Node(args)) = &cli.command {
        return run::one_node(args);
    }
    match mirror(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("storage-mirror: {error}");
            ExitCode::FAILURE
        }
    }
}

fn mirror(cli: &Cli) -> Result<(), Failure> {
    let (blocks, size) = (cli.load.blocks, cli.load.block_size);
    let volume = u64::from(blocks) * u64::from(size);
    if volume > block::VOLUME_MAX {
        let most = block::VOLUME_MAX / u64::from(size);
        return Err(format!(
            "--blocks {blocks} of --block-size {size} are {volume} bytes; at most {most} of that size"
        )
        .into());
    }
    let place = Place::new(cli.sim, cli.nodes)?;
    let losses: &[f64] = if cli.sweep { &[0.0, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0] } else { &cli.loss };
    let services = cli.data.map_or(vec![Data::Uc, Data::Rc], |data| vec![data]);
    println!(
        "{} nodes, each pair with metadata on RC and data on UC or RC; {} blocks of {} bytes, {} rounds, {place}",
        cli.nodes, cli.load.blocks, cli.load.block_size, cli.load.rounds
    );
    println!("{}", report::HEAD);
    let mut runs = Vec::new();
    for &loss in losses {
        for &data in &services {
            let run = run::all_nodes(&place, cli.nodes, &Plan::new(data, loss / 100.0, &cli.load))?;
            println!("{}", report::row(&run));
            if let Some(reconnects) = report::reconnects(&run) {
                println!("{reconnects}");
            }
            runs.push(run);
        }
    }
    println!("every block and every record was compared at its mirror: all equal");
    if losses.len() > 1 {
        print!("{}", report::verdict(&runs));
        if let Some(folder) = cli.plot.parent() {
            // Where it cannot be made, the error is that of the file.
            let _ = std::fs::create_dir_all(folder);
        }
        std::fs::write(&cli.plot, report::plot(&runs)).map_err(|e| format!("{}: {e}", cli.plot.display()))?;
        println!("plot: {}", cli.plot.display());
    }
    Ok(())
}
