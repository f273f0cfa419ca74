//! `xroce agent [-d NETDEV]`: verbs by remote control, one request a line (the protocol: docs/agent.md).
//!
//! A device and TCP connections enter; what the clients' verbs calls gave leaves. Each connection has objects of its own,
//! which are gone when it ends.

mod memory;
mod objects;
mod protocol;
mod queues;
mod session;
mod work;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use xroce::{AsyncEvent, Context, Progress};

use super::Outcome;
use crate::device::{DeviceArgs, DeviceError};
use crate::number::number;
use crate::tcp::{self, TcpError};
use protocol::{Fault, errno};
use session::Session;

/// The TCP port where nobody says otherwise; `xroce script --peer` looks there.
pub const PORT: u16 = 18516;

/// Serve verbs by remote control: a client makes them over TCP, one request a line.
///
/// This is the device's side of `xroce script --peer`; for a person: `nc HOST PORT`, then `help`. Whoever can reach the port can
/// send from this device's addresses, so it is for a network of one's own.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    device: DeviceArgs,
    /// TCP port to listen on
    #[arg(short, long, value_name = "PORT", default_value_t = PORT, value_parser = number::<u16>)]
    port: u16,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No listener.
    #[error(transparent)]
    Tcp(#[from] TcpError),
    /// Not even a line can be written.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    context: Context,
    /// Events that nobody has asked for yet: the device has one queue of them for all queue pairs.
    events: Mutex<Vec<AsyncEvent>>,
}

impl Shared {
    /// Events that wait, of which the oldest are forgotten.
    const EVENTS_MAX: usize = 4096;

    /// Takes the events that are `ours`.
    fn take_events(&self, ours: impl Fn(&AsyncEvent) -> bool) -> Vec<AsyncEvent> {
        let mut waiting = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend(std::iter::from_fn(|| self.context.try_get_async_event()));
        let (mine, others): (Vec<_>, Vec<_>) = waiting.drain(..).partition(|event| ours(event));
        *waiting = others;
        let surplus = waiting.len().saturating_sub(Self::EVENTS_MAX);
        waiting.drain(..surplus);
        mine
    }
}

/// Runs the command: it ends by a signal, or with an error.
pub fn run(args: &Args) -> Result<Outcome, ServeError> {
    // Nobody polls while the clients think, so that the device has to run by itself.
    let opened = args.device.open(Progress::Event)?;
    let listener = tcp::listen(args.port)?;
    let port = listener.local_addr()?.port();
    let mut out = io::stdout().lock();
    writeln!(out, "verbs agent on TCP port {port}, device {}", opened.context.name())?;
    out.flush()?;
    drop(out);
    let shared = Arc::new(Shared { context: opened.context.clone(), events: Mutex::new(Vec::new()) });
    let mut shut = false;
    loop {
        let shared = Arc::clone(&shared);
        // A connection that breaks is the client's affair; its objects are dropped with the session.
        let let_in = |stream| thread::Builder::new().name("agent".into()).spawn(move || drop(serve(stream, shared)));
        let tried = tcp::accept(&listener).map_err(ServeError::from).and_then(|stream| Ok(let_in(stream)?));
        // Too many clients for the descriptors or threads there are, mostly: that must not end those who are in.
        if let Err(error) = &tried {
            if !shut {
                eprintln!("xroce agent: {error}; it is tried again until it goes");
            }
            thread::sleep(PAUSE);
        }
        shut = tried.is_err();
    }
}

/// Between two tries to let a client in.
const PAUSE: Duration = Duration::from_millis(50);

/// Bytes of the longest request: `buf_write` takes 65,536 bytes in twice as many digits, and the rest has room in as much again.
const LINE_MAX: usize = 1 << 18;

fn serve(stream: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut out = stream;
    let mut session = Session::new(shared);
    let mut line = Vec::new();
    while (&mut lines).take(LINE_MAX as u64).read_until(b'\n', &mut line)? > 0 {
        let endless = line.len() == LINE_MAX && !line.ends_with(b"\n");
        let mut reply = if endless {
            Fault::new(errno::EINVAL, "line", format!("longer than {LINE_MAX} bytes: the connection ends")).line()
        } else {
            session.serve(&String::from_utf8_lossy(&line))
        };
        reply.push('\n');
        out.write_all(reply.as_bytes())?;
        if endless {
            break;
        }
        line.clear();
    }
    Ok(())
}
