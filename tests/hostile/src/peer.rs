//! One end of a connection as a process of its own, so that it can be killed, or give up its rights.
//!
//! In: a network namespace, and lines on standard input. Out: lines on standard output. [`run`] is the process, [`Peer`] is who
//! holds it. It opens the device, then knows two flows: an RC one and a UC one.
//!
//! | line in | line out |
//! |---|---|
//! | (start) | `open`, or `cannot WHY` |
//! | `offer` | `offer RC UC`: both begin anew |
//! | `meet RC UC` | `met` |
//! | `count` | `count RC-COMPLETED RC-ARRIVED UC-COMPLETED UC-ARRIVED` |
//! | `uc` | `uc MORE`: so many requests of the UC flow have completed after this, 20 or more unless it stands still |
//! | `gids` | `gids ADDRESS ...` |
//! | (a request fails) | `failed STATUS MISSING`: of those behind it, so many were not flushed |
//! | (something is wrong) | `broken WHY` |

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use xroce::{ConnectOptions, Context, Device, Psn, QpType};

use crate::field::{IPV4, NETDEV, Namespace, gid_of, open_namespace};
use crate::flow::{End, Failure, Offer, Shape};
use crate::sys;

/// What both flows of a peer look like.
const MAX_LEN: usize = 8192;
const DEPTH: usize = 16;

/// Requests of the UC flow that show that it goes on.
pub const UC_MORE: u64 = 20;

/// The ACK timer: 4.096 µs · 2^13 = 33.6 ms, so that a dead peer is found out within a second.
const TIMEOUT: u8 = 13;

/// How a peer is started.
#[derive(Debug, Clone, Default)]
pub struct PeerOptions {
    /// Gives up its rights for this user's once the device is open.
    pub user: Option<String>,
    /// Another ACK timeout code than the usual 13.
    pub timeout: Option<u8>,
}

/// The process: `NAMESPACE END [--user NAME] [--timeout CODE]`.
///
/// # Errors
/// What went wrong, for standard error.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let mut arguments = arguments.iter();
    let mut next = |what: &str| arguments.next().cloned().ok_or_else(|| format!("{what} is missing"));
    let namespace = next("NAMESPACE")?;
    let which: usize = next("END")?.parse().map_err(|_| "END is 0 or 1")?;
    let mut options = PeerOptions::default();
    while let Ok(flag) = next("a flag") {
        match flag.as_str() {
            "--user" => options.user = Some(next("NAME")?),
            "--timeout" => options.timeout = Some(next("CODE")?.parse().map_err(|_| "CODE is a number")?),
            other => return Err(format!("{other} is no flag")),
        }
    }
    sys::enter(&open_namespace(&namespace)).map_err(|e| e.to_string())?;
    match Process::open(which, &options) {
        Ok(process) => process.serve(),
        Err(why) => {
            say(&format!("cannot {why}"));
            Ok(())
        }
    }
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    // Nobody listens any more: the next read of standard input ends the process.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

struct Process {
    context: Context,
    rc: End,
    uc: End,
    met: bool,
    psn: u32,
}

impl Process {
    fn open(which: usize, options: &PeerOptions) -> Result<Process, String> {
        let mut builder = Device::builder(NETDEV);
        if let Some(user) = &options.user {
            builder = builder.drop_privileges(user);
        }
        let context = builder.open().map_err(|e| e.to_string())?;
        let gid = gid_of(&context, IPV4[which].into()).ok_or("find the address")?;
        let timeout = options.timeout.unwrap_or(TIMEOUT);
        let options = ConnectOptions { gid_index: gid.index, timeout, ..ConnectOptions::default() };
        let end = |kind| {
            End::new(&context, Shape { kind, max_len: MAX_LEN, depth: DEPTH }, options).map_err(|e| e.to_string())
        };
        let (rc, uc) = (end(QpType::Rc)?, end(QpType::Uc)?);
        Ok(Process { rc, uc, context, met: false, psn: std::process::id() })
    }

    fn serve(mut self) -> Result<(), String> {
        let (lines, inbox) = channel();
        thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        say("open");
        loop {
            match inbox.try_recv() {
                Ok(line) => self.obey(&line)?,
                Err(std::sync::mpsc::TryRecvError::Empty) => {}
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
            }
            if self.met && self.step() == 0 {
                thread::yield_now();
            } else if !self.met {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// One round of both flows. The first failure ends the RC one.
    fn step(&mut self) -> u64 {
        let moved = self.rc.step();
        let also = self.uc.step();
        match (moved, also) {
            (Ok(rc), Ok(uc)) => rc + uc,
            (Err(Failure::Completion(wc)), Ok(_)) => {
                self.met = false;
                // What was behind it is flushed, all of it.
                let left = self.rc.sender.outstanding() as u64 - 1;
                let start = Instant::now();
                let mut drained = self.rc.sender.drain();
                while drained < left && start.elapsed() < Duration::from_secs(5) {
                    drained += self.rc.sender.drain();
                }
                say(&format!("failed {} {}", wc.status as u8, left - drained));
                0
            }
            (Err(error), _) | (_, Err(error)) => {
                self.met = false;
                say(&format!("broken {error}"));
                0
            }
        }
    }

    fn obey(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("offer") => {
                self.met = false;
                let offer = self.offer().map_err(|e| e.to_string())?;
                say(&offer);
            }
            Some("meet") => {
                let mut offer = || words.next().unwrap_or_default().parse::<Offer>();
                let (rc, uc) = (offer()?, offer()?);
                let met = self.rc.connect(&rc).and_then(|()| self.uc.connect(&uc));
                met.map_err(|e| e.to_string())?;
                self.met = true;
                say("met");
            }
            Some("count") => say(&format!(
                "count {} {} {} {}",
                self.rc.sender.completed, self.rc.receiver.arrived, self.uc.sender.completed, self.uc.receiver.arrived
            )),
            Some("uc") => {
                let (before, start) = (self.uc.sender.completed, Instant::now());
                while self.uc.sender.completed < before + UC_MORE && start.elapsed() < Duration::from_secs(5) {
                    self.uc.step().map_err(|e| e.to_string())?;
                }
                say(&format!("uc {}", self.uc.sender.completed - before));
            }
            Some("gids") => {
                let table = self.context.gid_table();
                let list: Vec<String> = table.iter().map(|entry| entry.address.to_string()).collect();
                say(&format!("gids {}", list.join(" ")));
            }
            _ => return Err(format!("{line:?} is no command")),
        }
        Ok(())
    }

    fn offer(&mut self) -> Result<String, Failure> {
        self.psn = self.psn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        for end in [&mut self.rc, &mut self.uc] {
            end.recycle(Psn::new(self.psn))?;
        }
        Ok(format!("offer {} {}", self.rc.offer()?, self.uc.offer()?))
    }
}

/// A peer process, killed when dropped.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    stdin: ChildStdin,
    lines: Inbox<String>,
}

/// How long a peer may take to answer. Generous: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What a peer said where something else was due, or that it said nothing.
#[derive(Debug, thiserror::Error)]
#[error("peer {pid}: {what:?} was due, but {}", said.as_deref().unwrap_or("nothing came"))]
pub struct Unexpected {
    /// The process.
    pub pid: u32,
    /// What was due.
    pub what: String,
    /// What came.
    pub said: Option<String>,
}

impl Peer {
    /// Starts `program` at end `which`, in `namespace`; it has opened its device when this returns.
    ///
    /// # Errors
    /// When it cannot: [`Unexpected::said`] says why.
    pub fn start(
        program: &Path,
        namespace: &Namespace,
        which: usize,
        options: &PeerOptions,
    ) -> Result<Peer, Unexpected> {
        let mut command = Command::new(program);
        command.args([namespace.name(), &which.to_string()]);
        if let Some(user) = &options.user {
            command.args(["--user", user]);
        }
        if let Some(timeout) = options.timeout {
            command.args(["--timeout", &timeout.to_string()]);
        }
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|e| panic!("{}: {e}", program.display()));
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let peer = Peer { child, stdin, lines };
        peer.hear("open")?;
        Ok(peer)
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says a line.
    pub fn say(&mut self, line: &str) {
        // A peer that is gone is noticed by what it does not answer.
        let _ = writeln!(self.stdin, "{line}");
    }

    /// The rest of the next line, which must begin with the word `what`.
    ///
    /// # Errors
    /// When another line comes, or none.
    pub fn hear(&self, what: &str) -> Result<String, Unexpected> {
        let unexpected = |said| Unexpected { pid: self.pid(), what: what.to_owned(), said };
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => match line.strip_prefix(what) {
                Some(rest) => Ok(rest.trim().to_owned()),
                None => Err(unexpected(Some(line))),
            },
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(unexpected(None)),
        }
    }

    /// Says `line`, whose first word the answer begins with.
    ///
    /// # Errors
    /// As [`Peer::hear`].
    pub fn ask(&mut self, line: &str, answer: &str) -> Result<String, Unexpected> {
        self.say(line);
        self.hear(answer)
    }

    /// Requests completed and messages arrived: RC, RC, UC, UC.
    ///
    /// # Errors
    /// As [`Peer::hear`].
    pub fn count(&mut self) -> Result<[u64; 4], Unexpected> {
        let text = self.ask("count", "count")?;
        let mut numbers = text.split_whitespace().map_while(|n| n.parse().ok());
        Ok(std::array::from_fn(|_| numbers.next().unwrap_or(0)))
    }

    /// Waits until its RC flow has moved by `by` both ways.
    ///
    /// # Errors
    /// As [`Peer::hear`], and when it does not move.
    pub fn moves(&mut self, by: u64) -> Result<(), Unexpected> {
        let before = self.count()?;
        let start = Instant::now();
        loop {
            let now = self.count()?;
            if now[0] >= before[0] + by && now[1] >= before[1] + by {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                let said = Some(format!("it went from {before:?} to {now:?}"));
                return Err(Unexpected { pid: self.pid(), what: format!("{by} more"), said });
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it at once, as nothing else can (SIGKILL).
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Connects two peers; both their flows run when this returns.
///
/// # Errors
/// As [`Peer::hear`].
pub fn introduce(a: &mut Peer, b: &mut Peer) -> Result<(), Unexpected> {
    let of_a = a.ask("offer", "offer")?;
    let of_b = b.ask("offer", "offer")?;
    b.say(&format!("meet {of_a}"));
    a.say(&format!("meet {of_b}"));
    b.hear("met")?;
    a.hear("met")?;
    Ok(())
}
