//! Two ends that run the `xroce` command: two network namespaces with a veth between. Made by `ip`, with names unique to the
//! process, removed when dropped.

#![allow(dead_code)] // every test program uses another part of it

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a command may take before it is ended and the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace that is removed when dropped.
struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

/// The two ends.
pub struct Ends {
    a: Namespace,
    b: Namespace,
}

/// The netdev at each end.
pub const NETDEV: &str = "xr0";
/// The server's IPv4 address.
pub const SERVER: &str = "192.0.2.2";
/// The server's IPv6 address.
pub const SERVER6: &str = "2001:db8::2";

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Said {
    /// Exit code; None if it was ended by a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ends {
    /// None, after a line that says why, where namespaces or AF_XDP cannot be had.
    pub fn new(test: &str, mtu: u32) -> Option<Ends> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let made = ["a", "b"].map(|end| {
            let name = format!("cli-{}-{number}-{end}", std::process::id());
            let output = Command::new("ip").args(["netns", "add", &name]).output();
            match output {
                Ok(output) if output.status.success() => Ok(Namespace(name)),
                Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
                Err(error) => Err(format!("cannot run ip: {error}")),
            }
        });
        let [Ok(a), Ok(b)] = made else {
            let why = made.into_iter().find_map(Result::err).unwrap_or_default();
            return skip(test, &why);
        };
        let ends = Ends { a, b };
        ends.add_veth(mtu, "");
        let doctor = ends.client(&["doctor", "-d", NETDEV]);
        if doctor.code != Some(0) {
            let why = doctor.out.lines().find(|line| line.starts_with("MISSING")).unwrap_or("doctor fails");
            return skip(test, why);
        }
        Some(ends)
    }

    /// The veth again, with these options of `ip link` for the server's end.
    pub fn replace_veth(&self, mtu: u32, servers: &str) {
        ip(&format!("-n {} link del {NETDEV}", self.a.0));
        self.add_veth(mtu, servers);
    }

    fn add_veth(&self, mtu: u32, servers: &str) {
        let (a, b) = (&self.a.0, &self.b.0);
        let one = "numtxqueues 1 numrxqueues 1";
        ip(&format!("link add {NETDEV} netns {a} {one} type veth peer name {NETDEV} netns {b} {servers}"));
        for (name, host) in [(a, 1), (b, 2)] {
            ip(&format!("-n {name} link set lo up"));
            ip(&format!("-n {name} link set {NETDEV} mtu {mtu} up"));
            ip(&format!("-n {name} address add 192.0.2.{host}/24 dev {NETDEV}"));
            ip(&format!("-n {name} address add 2001:db8::{host}/64 dev {NETDEV} nodad"));
        }
    }

    /// Runs `xroce` at the client's end and waits for it.
    pub fn client(&self, args: &[&str]) -> Said {
        self.client_under(&[], args)
    }

    /// As [`Ends::client`], started by another program: `["strace", "-c"]`.
    pub fn client_under(&self, program: &[&str], args: &[&str]) -> Said {
        said(start(Some(&self.a.0), program, args))
    }

    /// Starts `xroce` at the client's end; returns when it has said its first line.
    pub fn start_client(&self, args: &[&str]) -> Server {
        Server::started(start(Some(&self.a.0), &[], args))
    }

    /// Starts `xroce` at the server's end; returns when it has said its first line, behind which it listens.
    pub fn server(&self, args: &[&str]) -> Server {
        self.server_under(&[], args)
    }

    /// As [`Ends::server`], started by another program.
    pub fn server_under(&self, program: &[&str], args: &[&str]) -> Server {
        Server::started(start(Some(&self.b.0), program, args))
    }

    /// Runs the server with `args`, the client with `args` and the server's address; both must end well.
    #[track_caller]
    pub fn both(&self, args: &[&str], client_only: &[&str]) -> (Said, Said) {
        let server_args: Vec<&str> = args.iter().copied().chain(["-d", NETDEV]).collect();
        let client_args: Vec<&str> = server_args.iter().chain(client_only).copied().chain([SERVER]).collect();
        let server = self.server(&server_args);
        let client = self.client(&client_args);
        let server = server.wait();
        assert_eq!((client.code, server.code), (Some(0), Some(0)), "{args:?}\nclient {client:?}\nserver {server:?}");
        (client, server)
    }
}

/// A command that runs, mostly the server's.
pub struct Server {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    first: String,
}

impl Server {
    fn started(mut child: Child) -> Server {
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut first = String::new();
        out.read_line(&mut first).expect("text");
        Server { child, out, first }
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Said {
        let code = finish(&mut self.child);
        let mut said = Said { code, out: std::mem::take(&mut self.first), err: String::new() };
        self.out.read_to_string(&mut said.out).expect("text");
        if let Some(mut err) = self.child.stderr.take() {
            err.read_to_string(&mut said.err).expect("text");
        }
        said
    }

    /// Whether it has not ended.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_none()
    }

    /// Sends it a signal by name: TERM, KILL.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().expect("kill(1) runs");
        assert!(sent.success(), "it runs");
    }

    /// Ends it at once, as a crash would.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

/// Runs `xroce` here and waits for it.
pub fn xroce(args: &[&str]) -> Said {
    said(start(None, &[], args))
}

/// Runs `xroce` for a reader who is gone before it says anything.
pub fn unheard(args: &[&str]) -> Said {
    let mut child = start(None, &[], args);
    drop(child.stdout.take());
    let code = finish(&mut child);
    let mut err = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("text");
    Said { code, out: String::new(), err }
}

fn start(namespace: Option<&str>, under: &[&str], args: &[&str]) -> Child {
    let namespace = namespace.map(|name| ["ip", "netns", "exec", name]);
    let words: Vec<&str> =
        (namespace.iter().flatten()).chain(under).chain(&[env!("CARGO_BIN_EXE_xroce")]).chain(args).copied().collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("xroce starts")
}

/// Reads while it waits: a page of the lab is longer than a pipe holds.
fn said(mut child: Child) -> Said {
    let read = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            from.read_to_string(&mut text).expect("text");
            text
        })
    };
    let out = read(Box::new(child.stdout.take().expect("a pipe")));
    let err = read(Box::new(child.stderr.take().expect("a pipe")));
    let code = finish(&mut child);
    let text = |thread: std::thread::JoinHandle<String>| thread.join().expect("it reads text");
    Said { code, out: text(out), err: text(err) }
}

fn finish(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return status.code();
        }
        if start.elapsed() > PATIENCE {
            child.kill().expect("it runs");
            return child.wait().expect("it ends").code();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip runs: it made a namespace");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A file for this test process that is removed when dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("xroce-cli-{}-{name}", std::process::id())))
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn skip<T>(test: &str, why: &str) -> Option<T> {
    // Past the harness, which would keep it for a failure.
    let line = format!("SKIP {test}: {why}\n");
    let _ = std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes());
    None
}
