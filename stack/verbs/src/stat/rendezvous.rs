//! Where processes that run a device leave their sockets, and how another process asks there.
//!
//! In: the user's run directories. Out: the devices on offer, and what each says of itself.
//!
//! A socket is called `PID-DEVICE.sock`, or with `.N` in front of `.sock` where the process has several devices of that name. Its
//! directory belongs to one user and is closed to all others; that is all the access control there is.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::net::sockopt::Timeout;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{Report, VERSION, Which};

/// Names a directory to use in place of the usual ones.
const OVERRIDE: &str = "XROCE_RUN_DIR";

/// How long a process may take to let us in, and then to answer, in whatever pieces.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of the longest answer that is read: 65,536 queue pairs have room.
const ANSWER_MAX: u64 = 256 << 20;

/// A device on offer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The process that runs it.
    pub pid: u32,
    /// The netdev, with characters that no file name has replaced.
    pub device: String,
    /// Its socket.
    pub path: PathBuf,
}

/// Why a process did not tell.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It cannot be reached.
    #[error("{}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It does not answer in time.
    #[error("process {pid} has not answered for {} s: it is stopped, or has no CPU (`ps -p {pid}` tells)", patience.as_secs())]
    Silent {
        /// The process.
        pid: u32,
        /// How long it was waited for.
        patience: Duration,
    },
    /// It says that it cannot.
    #[error("process {pid}: {text}")]
    Refused {
        /// The process.
        pid: u32,
        /// What it said.
        text: String,
    },
    /// That is no report, or one of another version.
    #[error("process {pid} runs another version of xroce: {text}")]
    Foreign {
        /// The process.
        pid: u32,
        /// What is wrong with its answer.
        text: String,
    },
}

/// The directories in which this user's processes leave their sockets, the preferred one first; for root those of all users.
pub fn run_dirs() -> Vec<PathBuf> {
    if let Some(dir) = env::var_os(OVERRIDE) {
        return vec![dir.into()];
    }
    let uid = rustix::process::geteuid();
    let mut dirs = own_dirs(uid.as_raw());
    if uid.is_root() {
        for (parent, below) in [("/run/user", "xroce"), (TMP, "")] {
            let entries = fs::read_dir(parent).into_iter().flatten().flatten();
            let wanted = entries.map(|entry| entry.path()).filter(|path| {
                let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
                parent != TMP || is_of_a_user(name)
            });
            dirs.extend(wanted.map(|path| if below.is_empty() { path } else { path.join(below) }));
        }
        dirs.dedup();
    }
    dirs
}

/// Whether a name below [`TMP`] is that of a directory for a user, by number; others begin so, too.
fn is_of_a_user(name: &str) -> bool {
    name.strip_prefix(TMP_PREFIX).is_some_and(|uid| uid.parse::<u32>().is_ok())
}

const TMP: &str = "/tmp";
const TMP_PREFIX: &str = "xroce-";

/// Where the user `uid` may have a directory of its own, the preferred place first.
pub(super) fn own_dirs(uid: u32) -> Vec<PathBuf> {
    if let Some(dir) = env::var_os(OVERRIDE) {
        return vec![dir.into()];
    }
    let mut dirs = Vec::new();
    if uid == 0 {
        dirs.push("/run/xroce".into());
    }
    // What the environment names may be another user's: after `su`, or once rights were given up.
    dirs.extend(env::var_os("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("xroce")).filter(|_| uid != 0));
    dirs.push(format!("/run/user/{uid}/xroce").into());
    dirs.push(format!("{TMP}/{TMP_PREFIX}{uid}").into());
    dirs.dedup();
    dirs
}

/// Makes the directory, or finds that it is there, is the user's and is closed to others.
pub(super) fn ready(dir: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Not through a link: in /tmp everybody may have put one there.
    let found = fs::symlink_metadata(dir)?;
    let ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    if ours {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "not a directory of this user alone"))
    }
}

/// The devices on offer, by process. Sockets that a killed process left behind are removed.
pub fn endpoints() -> Vec<Endpoint> {
    let mut all: Vec<Endpoint> = run_dirs().iter().flat_map(|dir| within(dir)).collect();
    all.sort_by(|a, b| (a.pid, &a.path).cmp(&(b.pid, &b.path)));
    all.dedup();
    all
}

/// The sockets of one directory, the dead ones removed.
pub(super) fn within(dir: &Path) -> Vec<Endpoint> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| named(&entry.path())).filter(|found| !buried(found)).collect()
}

fn named(path: &Path) -> Option<Endpoint> {
    let (pid, rest) = path.file_name()?.to_str()?.strip_suffix(".sock")?.split_once('-')?;
    let device = match rest.rsplit_once('.') {
        Some((device, n)) if n.parse::<u32>().is_ok() => device,
        _ => rest,
    };
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    is_socket.then(|| pid.parse().ok().map(|pid| Endpoint { pid, device: device.to_owned(), path: path.to_owned() }))?
}

/// Nobody listens there any more: removes it. One that is being set up refuses for a moment, so young ones of a process that
/// lives are let alone.
fn buried(found: &Endpoint) -> bool {
    const YOUNG: Duration = Duration::from_secs(5);
    match connect(&found.path, None) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let lives = Path::new("/proc").join(found.pid.to_string()).exists();
            let born = fs::symlink_metadata(&found.path).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            if !lives || born.elapsed().is_ok_and(|age| age > YOUNG) {
                // Somebody else may have done so.
                let _ = fs::remove_file(&found.path);
            }
            true
        }
        _ => false,
    }
}

/// Connects within `patience`, or at once where there is none; [`io::ErrorKind::WouldBlock`] when that is over: a process that is
/// stopped lets nobody in, and its queue of those who wait is short.
fn connect(path: &Path, patience: Option<Duration>) -> io::Result<UnixStream> {
    let flags = if patience.is_none() { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | flags, None)?;
    net::sockopt::set_socket_timeout(&socket, Timeout::Send, patience)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

impl Which {
    /// The request, without the end of the line.
    pub(super) fn request(self) -> String {
        match self {
            Which::None => "device".to_owned(),
            Which::All => "qp".to_owned(),
            Which::One(qpn) => format!("qp {}", qpn.value()),
        }
    }

    /// The inverse.
    pub(super) fn parse(line: &str) -> Option<Which> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["device"] => Some(Which::None),
            ["qp"] => Some(Which::All),
            ["qp", qpn] => Some(Which::One(xroce_wire::Qpn::new(qpn.parse().ok()?))),
            _ => None,
        }
    }
}

impl Endpoint {
    /// Asks for a report.
    ///
    /// # Errors
    /// See [`AskError`].
    pub fn ask(&self, which: Which) -> Result<Report, AskError> {
        self.ask_within(which, PATIENCE)
    }

    fn ask_within(&self, which: Which, patience: Duration) -> Result<Report, AskError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AskError::Silent { pid: self.pid, patience },
            _ => AskError::Io { path: self.path.clone(), source: error },
        };
        let answer = self.exchange(&which.request(), patience).map_err(failed)?;
        // It may be another user's, whose words are not to steer a terminal.
        let shown = |text: &str| text.trim_end().replace(char::is_control, " ");
        let foreign = |text: String| AskError::Foreign { pid: self.pid, text: shown(&text) };
        if let Some(text) = answer.strip_prefix("error: ") {
            return Err(AskError::Refused { pid: self.pid, text: shown(text) });
        }
        let report: Report = serde_json::from_str(&answer).map_err(|error| foreign(error.to_string()))?;
        match report.version {
            VERSION => Ok(report),
            other => Err(foreign(format!("its reports have version {other}, not {VERSION}"))),
        }
    }

    fn exchange(&self, request: &str, patience: Duration) -> io::Result<String> {
        let mut stream = connect(&self.path, Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(format!("{request}\n").as_bytes())?;
        let mut answer = String::new();
        let until = Instant::now() + patience;
        Until { stream, until }.take(ANSWER_MAX).read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// What comes until then.
struct Until {
    stream: UnixStream,
    until: Instant,
}

impl Read for Until {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(left(self.until)?)?;
        self.stream.read(into)
    }
}

/// What is left until then, for a time-out; an error when it is over.
pub(super) fn left(until: Instant) -> io::Result<Option<Duration>> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(Some(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use xroce_wire::Qpn;

    #[test]
    fn not_all_that_begins_like_a_directory_of_a_user_is_one() {
        let names = ["xroce-0", "xroce-1000", "xroce-lab-print-4670.pdf", "xroce-", "xroce-7-x", "other-7"];
        assert_eq!(names.map(is_of_a_user), [true, true, false, false, false, false]);
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = env::temp_dir().join(format!("xroce-rendezvous-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn requests_come_back_as_they_were() {
        for which in [Which::None, Which::All, Which::One(Qpn::new(0xabcdef))] {
            assert_eq!(Which::parse(&which.request()), Some(which));
        }
        for bad in ["", "qp x", "qp 1 2", "devices", "GET / HTTP/1.1"] {
            assert_eq!(Which::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_process_that_lets_nobody_in_is_waited_for_so_long() {
        const PATIENCE: Duration = Duration::from_millis(50);
        let dir = scratch("full");
        ready(&dir).unwrap();
        let endpoint = Endpoint { pid: 1, device: "eth0".to_owned(), path: dir.join("1-eth0.sock") };
        let socket = net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        net::bind(&socket, &SocketAddrUnix::new(&endpoint.path).unwrap()).unwrap();
        net::listen(&socket, 0).unwrap();
        // One may wait; it gets no answer, and the next does not even get that far.
        let waiting = connect(&endpoint.path, None).unwrap();
        let start = Instant::now();
        for _ in 0..2 {
            let error = endpoint.ask_within(Which::None, PATIENCE).unwrap_err();
            assert!(matches!(error, AskError::Silent { pid: 1, patience: PATIENCE }), "{error}");
        }
        // Without a limit it would be for ever.
        assert!(start.elapsed() < 200 * PATIENCE);
        assert!(!buried(&endpoint), "somebody listens");
        drop(waiting);
        fs::remove_dir_all(&dir).unwrap();
    }

    /// Root asks the processes of everybody.
    #[test]
    fn an_answer_that_trickles_is_not_waited_for() {
        const PATIENCE: Duration = Duration::from_millis(100);
        let dir = scratch("trickle");
        ready(&dir).unwrap();
        let endpoint = Endpoint { pid: 1, device: "eth0".to_owned(), path: dir.join("1-eth0.sock") };
        let listener = UnixListener::bind(&endpoint.path).unwrap();
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = listener.accept().unwrap().0;
                BufReader::new(&stream).read_line(&mut String::new()).unwrap();
                // It ends when the other end does, or after a hundred times what it was waited for.
                for _ in 0..1_000 {
                    if stream.write_all(b" ").is_err() {
                        break;
                    }
                    std::thread::sleep(PATIENCE / 10);
                }
            });
            endpoint.ask_within(Which::None, PATIENCE).unwrap_err()
        });
        assert!(matches!(error, AskError::Silent { pid: 1, patience: PATIENCE }), "{error}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_directory_of_others_is_not_taken() {
        let dir = scratch("rights");
        ready(&dir).unwrap();
        ready(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(ready(&dir).is_err());
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        let link = scratch("link");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert!(ready(&link).is_err(), "through a link");
        fs::remove_file(&link).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn only_the_sockets_of_the_dead_are_removed() {
        let dir = scratch("stale");
        ready(&dir).unwrap();
        let pid = std::process::id();
        let [alive, setting_up, dead, other] = [
            format!("{pid}-eth0.sock"),
            format!("{pid}-eth0.2.sock"),
            "4194999-udp.sock".to_owned(),
            "notes".to_owned(),
        ]
        .map(|name| dir.join(name));
        let _listener = UnixListener::bind(&alive).unwrap();
        // Nobody listens on these; a file that is no socket is nobody's business.
        drop(UnixListener::bind(&setting_up).unwrap());
        drop(UnixListener::bind(&dead).unwrap());
        fs::write(&other, "").unwrap();
        let found = within(&dir);
        assert_eq!(found, [Endpoint { pid, device: "eth0".to_owned(), path: alive.clone() }]);
        assert!(alive.exists() && setting_up.exists() && other.exists() && !dead.exists());
        fs::remove_dir_all(&dir).unwrap();
    }

    /// What a process says when it is asked, that answers with this text.
    fn asked(name: &str, answer: &str) -> Result<Report, AskError> {
        let dir = scratch(name);
        ready(&dir).unwrap();
        let endpoint = Endpoint { pid: 7, device: "eth0".to_owned(), path: dir.join("7-eth0.sock") };
        let listener = UnixListener::bind(&endpoint.path).unwrap();
        let said = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = listener.accept().unwrap().0;
                // Closed before it is read, the question would come back as an error.
                BufReader::new(&stream).read_line(&mut String::new()).unwrap();
                stream.write_all(answer.as_bytes())
            });
            endpoint.ask(Which::None)
        });
        fs::remove_dir_all(&dir).unwrap();
        said
    }

    #[test]
    fn reports_of_another_version_are_not_believed() {
        let device = serde_json::json!({"name": "eth0", "fw_ver": "0", "progress": "event", "port_state": "ACTIVE",
            "mtu": 1500, "active_mtu": 1024, "gids": [], "shards": 1, "queue_pairs": 0, "counters": {}, "drops": {}});
        let report = |version| {
            serde_json::json!({"version": version, "pid": 7, "program": "p", "at_ns": 1, "device": device, "qps": []})
                .to_string()
        };
        assert_eq!(asked("right", &report(VERSION)).unwrap().pid, 7);
        let error = asked("other", &report(VERSION + 1)).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!(
                "another version of xroce: its reports have version {}, not {VERSION}",
                VERSION + 1
            ))
        );
        assert!(matches!(asked("none", "hello"), Err(AskError::Foreign { pid: 7, .. })));
        let refused = asked("refused", "error: the poll\x1bthread is gone\n").unwrap_err().to_string();
        assert_eq!(refused, "process 7: the poll thread is gone");
    }
}
