//! A device offers what it is doing to other processes of its user, over a Unix socket.
//!
//! In: one request a connection: `device`, `qp` or `qp NUMBER`, and the end of the line. Out: one [`Report`] in JSON, or a line
//! that begins with `error: `. A thread of its own sleeps until somebody asks; it serves one at a time, none for longer than a
//! few seconds, and reads the device by control calls: the data path knows nothing of it.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::rendezvous::{self, left};
use super::{Report, VERSION, Which};
use crate::context::{Context, ContextInner};

/// Bytes of the longest request.
const REQUEST_MAX: usize = 64;

/// How long to wait where nobody can be let in: no descriptor is free, most likely.
const PAUSE: Duration = Duration::from_millis(50);

/// How long one client is served.
const SERVING: Duration = Duration::from_secs(2);

/// Devices of one name that one process can offer.
const SAME_NAME_MAX: u32 = 64;

/// Why a device is not on offer.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No directory takes a socket.
    #[error("no run directory takes a socket: {}", .0.iter().map(|(dir, why)| format!("{}: {why}", dir.display())).collect::<Vec<_>>().join("; "))]
    NoDirectory(Vec<(PathBuf, io::Error)>),
    /// The system refused a thread.
    #[error("cannot start the thread that answers: {0}")]
    Thread(io::Error),
}

/// The offer; it ends, and the socket goes, when this is dropped. It does not keep the device open.
#[derive(Debug)]
pub struct StatServer {
    door: Arc<Door>,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

/// Where clients come in.
#[derive(Debug)]
struct Door {
    listener: UnixListener,
    closed: AtomicBool,
}

impl Door {
    /// Lets nobody in any more, and ends the wait for a client.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

impl StatServer {
    /// Its socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StatServer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        self.door.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Context {
    /// Offers what the device is doing to other processes of this user (and of root), until the result is dropped: `xroce stat` and
    /// `xroce top` find it then. The socket lies in `$XROCE_RUN_DIR` if that is set, else in `/run/xroce` for root, and in
    /// `$XDG_RUNTIME_DIR/xroce`, `/run/user/UID/xroce` or `/tmp/xroce-UID`, whichever can be had, for others.
    ///
    /// An answer that is under way holds the device as a handle does: drop the offer before [`close`](Context::close).
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn serve_stat(&self) -> Result<StatServer, ServeError> {
        let (listener, path) = bind(&self.name())?;
        let door = Arc::new(Door { listener, closed: AtomicBool::new(false) });
        let (inner, watched) = (Arc::downgrade(self.inner()), Arc::clone(&door));
        let started = Instant::now();
        let thread = std::thread::Builder::new()
            .name("xroce-stat".into())
            .spawn(move || serve(&watched, &inner, started))
            .map_err(ServeError::Thread)?;
        Ok(StatServer { door, path, thread: Some(thread) })
    }
}

/// A socket in the first directory that takes one.
fn bind(device: &str) -> Result<(UnixListener, PathBuf), ServeError> {
    let mut failures = Vec::new();
    for dir in rendezvous::own_dirs(rustix::process::geteuid().as_raw()) {
        match bind_in(&dir, device) {
            Ok(bound) => return Ok(bound),
            Err(error) => failures.push((dir, error)),
        }
    }
    Err(ServeError::NoDirectory(failures))
}

fn bind_in(dir: &Path, device: &str) -> io::Result<(UnixListener, PathBuf)> {
    rendezvous::ready(dir)?;
    // Removes what killed processes left behind: among it may be a socket of our own number.
    rendezvous::within(dir);
    let pid = std::process::id();
    let device: String =
        device.chars().map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' }).collect();
    for n in 1..=SAME_NAME_MAX {
        let suffix = if n == 1 { String::new() } else { format!(".{n}") };
        let path = dir.join(format!("{pid}-{device}{suffix}.sock"));
        match UnixListener::bind(&path) {
            Ok(listener) => {
                // The directory keeps others out already.
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
                return Ok((listener, path));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "too many devices of this name in this process"))
}

fn serve(door: &Door, device: &Weak<ContextInner>, started: Instant) {
    let_in(door, device, started);
    // Whoever came before the door was closed would wait for as long as the socket is there. Nobody comes behind them: a closed
    // one does not wait.
    while door.listener.accept().is_ok() {}
}

/// Lets one after the other in until the door is closed.
fn let_in(door: &Door, device: &Weak<ContextInner>, started: Instant) {
    while !door.closed.load(Ordering::Acquire) {
        match door.listener.accept() {
            Ok((stream, _)) => {
                // Where the device is gone, whoever comes is to be turned away and not to wait.
                let Some(inner) = device.upgrade() else { return door.close() };
                // A client that hangs up or dawdles is its own affair.
                let _ = answer(stream, &Context::from(inner), started);
            }
            // Where the door was not closed, the process has to do without for a while.
            Err(_) if !door.closed.load(Ordering::Acquire) => std::thread::sleep(PAUSE),
            Err(_) => return,
        }
    }
}

fn answer(mut stream: UnixStream, context: &Context, started: Instant) -> io::Result<()> {
    let until = Instant::now() + SERVING;
    let request = hear(&mut stream, until)?;
    if request.is_empty() {
        // Somebody looked whether we are there.
        return Ok(());
    }
    let text = match Which::parse(&request) {
        Some(which) => report(context, which, started),
        None => Err(format!("there are the requests device, qp and qp NUMBER, not {request:?}")),
    };
    say(&mut stream, text.unwrap_or_else(|error| format!("error: {error}\n")).as_bytes(), until)
}

fn report(context: &Context, which: Which, started: Instant) -> Result<String, String> {
    let say = |error: xroce_engine::token::Broken| error.to_string();
    let report = Report {
        version: VERSION,
        pid: std::process::id(),
        program: program(std::env::args_os().map(|word| word.to_string_lossy().into_owned())),
        at_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        device: context.stat().map_err(say)?,
        qps: context.qp_stats(which).map_err(say)?,
    };
    serde_json::to_string(&report).map(|text| text + "\n").map_err(|error| error.to_string())
}

/// The command line, cut short.
fn program(mut words: impl Iterator<Item = String>) -> String {
    const LONGEST: usize = 120;
    let name = words.next().unwrap_or_default();
    let name = Path::new(&name).file_name().map_or(name.clone(), |base| base.to_string_lossy().into_owned());
    let line = words.fold(name, |line, word| line + " " + &word);
    line.chars().take(LONGEST).collect()
}

/// One line, without its end.
fn hear(stream: &mut UnixStream, until: Instant) -> io::Result<String> {
    let mut line = Vec::new();
    let mut bytes = [0; REQUEST_MAX];
    while line.len() < REQUEST_MAX {
        stream.set_read_timeout(left(until)?)?;
        let count = stream.read(&mut bytes)?;
        line.extend(&bytes[..count]);
        if count == 0 || line.contains(&b'\n') {
            break;
        }
    }
    let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
    Ok(String::from_utf8_lossy(&line[..end]).into_owned())
}

fn say(stream: &mut UnixStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(left(until)?)?;
        let count = stream.write(bytes)?;
        bytes = &bytes[count..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_wait_are_turned_away_when_the_device_is_gone() {
        let path = std::env::temp_dir().join(format!("xroce-door-{}.sock", std::process::id()));
        let _ = fs::remove_file(&path);
        let door = Door { listener: UnixListener::bind(&path).unwrap(), closed: AtomicBool::new(false) };
        let mut waiting: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        serve(&door, &Weak::new(), Instant::now());
        for client in &mut waiting {
            client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "hung up");
        }
        assert!(UnixStream::connect(&path).is_err());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_command_line_is_shown_without_its_path_and_cut_short() {
        let shown = |words: &[&str]| program(words.iter().map(|word| (*word).to_owned()));
        assert_eq!(shown(&["/usr/bin/xroce", "perf", "-d", "eth0"]), "xroce perf -d eth0");
        assert_eq!(shown(&[]), "");
        let long = shown(&["xroce", &"ä".repeat(500)]);
        assert!(long.starts_with("xroce ä") && long.chars().count() == 120);
    }
}
