//! `xroce rc_pingpong` and `xroce uc_pingpong`: rdma-core's programs of that name, on a netdev.
//!
//! Either side may be the original: the flags, the line that is exchanged over TCP, the defaults and the output are the same. A
//! device enters, the lines of the originals leave.

mod address;
mod game;

use std::hash::{BuildHasher, RandomState};
use std::net::TcpStream;
use std::thread;

use xroce::{Context, PathMtu, Psn, QpType, Wc};

use super::{Outcome, Usage};
use crate::complete;
use crate::device::{DeviceError, RunArgs, choose_gid, linger};
use crate::number::{number, path_mtu, positive, size};
use crate::progress::{Goal, Progress};
use crate::sim::{self, SimError};
use crate::tcp::{self, TcpError};
use address::ExchangeError;
use game::{Ending, GameError, Player};

/// Bounce messages to and fro, as rdma-core's program of that name does, which may be the other side.
///
/// Without HOST it is the server and waits for a client; with HOST it is the client.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The server's host name or address
    host: Option<String>,
    #[command(flatten)]
    device: RunArgs,
    /// TCP port to listen on or connect to
    #[arg(short, long, value_name = "PORT", default_value_t = 18515, value_parser = number::<u16>)]
    port: u16,
    /// Port of the device; a netdev has one
    #[arg(short = 'i', long, value_name = "PORT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=1))]
    ib_port: u8,
    /// Bytes of a message
    #[arg(short, long, value_name = "BYTES", default_value_t = 4096, value_parser = size)]
    size: u32,
    /// Path MTU: 256, 512, 1024, 2048 or 4096; the same at both ends
    #[arg(short, long, value_name = "BYTES", default_value = "1024", value_parser = path_mtu, add = complete::path_mtus())]
    mtu: PathMtu,
    /// Receives to post at a time
    #[arg(short, long, value_name = "COUNT", default_value_t = 500, value_parser = positive::<u32>)]
    rx_depth: u32,
    /// Exchanges; the same at both ends
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1000, value_parser = positive::<u32>)]
    iters: u32,
    /// Service level (VLAN priority)
    #[arg(short = 'l', long, value_name = "SL", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=7))]
    sl: u8,
    /// Sleep on a completion channel instead of polling
    #[arg(short, long)]
    events: bool,
    /// Index of the GID to use [default: the first routable one]
    #[arg(short, long, value_name = "INDEX", value_parser = number::<u8>)]
    gid_idx: Option<u8>,
    /// Check the bytes received; give it at both ends
    #[arg(short, long)]
    chk: bool,
    /// Play both sides in this process, over a wire in memory: needs no netdev and no rights
    #[arg(long, conflicts_with_all = ["host", "device", "port", "drop", "corrupt"])]
    sim: bool,
    #[command(flatten)]
    refused: Refused,
}

/// Options of the originals that mean nothing here.
#[derive(Debug, Clone, Copy, clap::Args)]
struct Refused {
    #[arg(short = 'o', long, hide = true)]
    odp: bool,
    #[arg(short = 'O', long, hide = true)]
    iodp: bool,
    #[arg(short = 'P', long, hide = true)]
    prefetch: bool,
    #[arg(short = 't', long, hide = true)]
    ts: bool,
    #[arg(short = 'j', long, hide = true)]
    dm: bool,
    #[arg(short = 'N', long = "new_send", hide = true)]
    new_send: bool,
}

impl Refused {
    fn check(self) -> Result<(), Usage> {
        let memory = "registered memory needs no paging on demand";
        let table = [
            (self.odp, "-o (--odp)", memory),
            (self.iodp, "-O (--iodp)", memory),
            (self.prefetch, "-P (--prefetch)", memory),
            (self.ts, "-t (--ts)", "completions carry no time stamps"),
            (self.dm, "-j (--dm)", "a software NIC has no memory of its own"),
            (self.new_send, "-N (--new_send)", "there is one way to post"),
        ];
        match table.into_iter().find(|(given, ..)| *given) {
            Some((_, option, why)) => Err(Usage(format!("{option} has no meaning here: {why}; leave it out"))),
            None => Ok(()),
        }
    }
}

/// Which side of the table one sits on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Has the first move.
    Client,
    /// Answers.
    Server,
}

/// Why there was no game.
#[derive(Debug, thiserror::Error)]
pub enum PingpongError {
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
    Exchange(#[from] ExchangeError),
    /// No game.
    #[error(transparent)]
    Game(#[from] GameError),
}

/// Runs the command for queue pairs of this type.
pub fn run(args: &Args, kind: QpType) -> Result<Outcome, PingpongError> {
    args.refused.check()?;
    if args.sim {
        return both(args, kind);
    }
    let opened = args.device.open(PROGRESS)?;
    let outcome = match &args.host {
        Some(host) => one(args, kind, &opened.context, Side::Client, || tcp::connect(host, args.port)),
        None => one(args, kind, &opened.context, Side::Server, || tcp::accept(&tcp::listen(args.port)?)),
    }?;
    opened.close()?;
    Ok(outcome)
}

/// The game polls, or waits in calls that drive the device: a helper thread would only be in the way.
const PROGRESS: xroce::Progress = xroce::Progress::Inline { helper: false };

/// Both sides in this process; only the client is heard.
fn both(args: &Args, kind: QpType) -> Result<Outcome, PingpongError> {
    let (opened, server) = sim::pair(&args.device, PROGRESS)?;
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).map_err(ExchangeError::Talk)?;
    let port = listener.local_addr().map_err(ExchangeError::Talk)?.port();
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            let quiet = |_: String| {};
            if let Err(error) = side(args, kind, &server.context, Side::Server, || tcp::accept(&listener), quiet) {
                eprintln!("xroce: the server's side: {error}");
            }
        });
        one(args, kind, &opened.context, Side::Client, || tcp::connect("127.0.0.1", port))
    })?;
    opened.close()?;
    Ok(outcome)
}

fn one(
    args: &Args,
    kind: QpType,
    context: &Context,
    which: Side,
    meet: impl FnOnce() -> Result<TcpStream, TcpError>,
) -> Result<Outcome, PingpongError> {
    side(args, kind, context, which, meet, |line| println!("{line}"))
}

/// One side of the game; what it has to say goes to `tell`.
fn side(
    args: &Args,
    kind: QpType,
    context: &Context,
    which: Side,
    meet: impl FnOnce() -> Result<TcpStream, TcpError>,
    mut tell: impl FnMut(String),
) -> Result<Outcome, PingpongError> {
    let gid = choose_gid(context, args.gid_idx)?;
    let mut player = Player::new(context, kind, args, gid.index, random_psn())?;
    if args.chk {
        player.mark(which)?;
    }
    let ours = player.address(gid.gid);
    tell(format!("  local address:  {ours}"));
    let mut stream = meet()?;
    let theirs = match which {
        Side::Client => address::ask(stream, &ours)?,
        Side::Server => {
            let theirs = address::hear(&mut stream)?;
            // The client may send as soon as it has our address: we must be ready by then.
            player.connect(&theirs)?;
            address::answer(stream, &ours)?;
            theirs
        }
    };
    tell(format!("  remote address: {theirs}"));
    if which == Side::Client {
        player.connect(&theirs)?;
    }
    let shown = Progress::start(context, Goal::Messages(args.iters.into()));
    let ending = player.play(which, args.iters)?;
    drop(shown);
    let seconds = match ending {
        Ending::Played(time) => time.as_secs_f64(),
        Ending::Failed(wc) => {
            report(&wc);
            return Ok(Outcome::Failed);
        }
    };
    linger(context, args.device.faults.quiet());
    let bad = if args.chk { player.bad_pages()? } else { Vec::new() };
    for page in &bad {
        tell(format!("invalid data in page {page}"));
    }
    let bytes = u64::from(args.size) * u64::from(args.iters) * 2;
    let mbit = bytes as f64 * 8e-6 / seconds;
    tell(format!("{bytes} bytes in {seconds:.2} seconds = {mbit:.2} Mbit/sec"));
    let iters = args.iters;
    tell(format!("{iters} iters in {seconds:.2} seconds = {:.2} usec/iter", seconds * 1e6 / f64::from(iters)));
    Ok(if bad.is_empty() { Outcome::Done } else { Outcome::Failed })
}

/// The line of the originals, and one with what they do not know.
fn report(wc: &Wc) {
    eprintln!("Failed status {} ({}) for wr_id {}", wc.status, wc.status as u8, wc.wr_id.0);
    if let Some(failure) = wc.failure() {
        eprintln!("  {failure}");
    }
}

/// 24 bits that differ from run to run.
fn random_psn() -> Psn {
    Psn::new(RandomState::new().hash_one(std::process::id()) as u32)
}
