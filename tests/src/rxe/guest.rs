//! Guests: booted, asked, ended. Enters: kernel, MTU. Leaves: a running guest, or why this machine can have none.
//!
//! All the work is done by the commands in tests/rxe. `boot --attached` stays as our child and ends the guest when its
//! standard input closes, so that nothing is left however this process ends.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{PeerAgent, in_namespace};

/// Exit status of the commands for "this machine cannot".
const SKIP_STATUS: i32 = 77;
/// Number of the guest: the last byte of its addresses.
const GUEST: u8 = 2;
/// Where its verbs agent listens.
const VERBS_PORT: u16 = 2500 + GUEST as u16;
/// How long an agent may take to answer a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Which rxe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    /// Debian 12's own kernel.
    V6_1,
    /// Debian 12's newer kernel. The usual choice.
    V6_12,
    /// The newest kernel that the next Debian's backports have; AF_XDP zero-copy in its virtio_net.
    Backports,
    /// 6.12 as a user-mode kernel: at the speed of the machine, but one CPU, and 6 to 10 minutes to build the first time.
    UserMode,
}

impl Kernel {
    /// What XROCE_RXE_KERNEL says: 6.1, 6.12, bpo or uml; 6.12 without it.
    ///
    /// # Panics
    /// It says something else.
    pub fn chosen() -> Self {
        match std::env::var("XROCE_RXE_KERNEL").as_deref() {
            Err(_) | Ok("" | "6.12") => Self::V6_12,
            Ok("6.1") => Self::V6_1,
            Ok("bpo") => Self::Backports,
            Ok("uml") => Self::UserMode,
            Ok(other) => panic!("XROCE_RXE_KERNEL is 6.1, 6.12, bpo or uml, not {other}"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 | Self::UserMode => "6.12",
            Self::Backports => "bpo",
        }
    }
}

/// MTU of all interfaces between the two ends, in bytes of IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mtu(pub u32);

impl Mtu {
    /// 1500: path MTU 1024.
    pub const ETHERNET: Self = Self(1500);
    /// 4200: path MTU 4096.
    pub const RDMA: Self = Self(4200);
    /// 9000: path MTU 4096 too.
    pub const JUMBO: Self = Self(9000);
}

/// What a guest is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its kernel.
    pub kernel: Kernel,
    /// The MTU everywhere.
    pub mtu: Mtu,
    /// Virtual CPUs (a user-mode guest always has one).
    pub cpus: u32,
    /// Queue pairs of its interface (a user-mode guest always has one).
    pub queues: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Checksum and segmentation offload on the virtual wire, as a stock virtual machine has it.
    pub offload: bool,
    /// A folder of this machine, read-only on /mnt/share in an emulated guest.
    pub share: Option<PathBuf>,
}

impl Options {
    /// Two CPUs, one queue pair, 1 GiB, no offload, nothing shared.
    pub fn new(kernel: Kernel, mtu: Mtu) -> Self {
        Self { kernel, mtu, cpus: 2, queues: 1, memory_mib: 1024, offload: false, share: None }
    }
}

/// Why this machine can have no guest. Not a failure of anything under test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skip {
    /// For a person to read.
    pub reason: String,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no rxe guest here: {}", self.reason)
    }
}

/// What a command in the guest gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// Exit status (128 + n: ended by signal n; 125: no guest, or the connection was lost).
    pub status: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// A running guest. Dropping it ends it and removes its namespaces.
pub struct Guest {
    name: String,
    options: Options,
    /// `None`: set up by hand or kept (XROCE_RXE_KEEP), and so left as it is.
    keeper: Option<(Child, Option<ChildStdin>)>,
}

/// Says on a line "SKIP TEST: reason", which `make test` counts, that this test does not run. With XROCE_REQUIRE_RXE=1, as in
/// CI, that is a failure.
///
/// # Panics
/// It is not allowed to skip.
pub fn skip_test(why: &impl fmt::Display) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("rxe");
    assert!(std::env::var_os("XROCE_REQUIRE_RXE").is_none_or(|v| v != "1"), "{name}: {why}");
    // Not by a macro: those are silent in a test that passes.
    let _ = writeln!(io::stderr(), "\nSKIP {name}: {why}");
}

/// A guest, or `None` after [`skip_test`].
///
/// # Panics
/// As [`Guest::boot`] and [`skip_test`].
pub fn boot_or_skip(kernel: Kernel, mtu: Mtu) -> Option<Guest> {
    Guest::boot(kernel, mtu).inspect_err(skip_test).ok()
}

fn script(name: &str) -> Command {
    Command::new(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("rxe").join(name))
}

/// A set name that no other test process has: at most 10 letters, since interface names are made of it.
fn fresh_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("x{:x}{}", std::process::id() & 0xff_ffff, COUNT.fetch_add(1, Ordering::Relaxed) % 100)
}

impl Guest {
    /// Boots a guest with `kernel` and `mtu` in namespaces of its own; what it needs is built first (some 10 s, once, and
    /// packages are installed where they are missing). Takes 10 to 15 s, 1 s in user mode.
    ///
    /// With XROCE_RXE_KEEP=NAME in the environment the set NAME is used, booted if it is not up, and left up: for quick
    /// repeated runs. Its kernel and MTU must be those asked for.
    ///
    /// # Errors
    /// This machine cannot: not root, packages that are not to be had, no namespaces.
    ///
    /// # Panics
    /// What should work here did not: the panic shows the output.
    pub fn boot(kernel: Kernel, mtu: Mtu) -> Result<Self, Skip> {
        Self::boot_with(&Options::new(kernel, mtu))
    }

    /// [`Guest::boot`] with all options.
    ///
    /// # Errors
    /// As [`Guest::boot`].
    ///
    /// # Panics
    /// As [`Guest::boot`].
    pub fn boot_with(options: &Options) -> Result<Self, Skip> {
        match std::env::var("XROCE_RXE_KEEP") {
            Ok(name) if !name.is_empty() => Self::start(&name, options, false),
            _ => Self::start(&fresh_name(), options, true),
        }
    }

    fn start(name: &str, options: &Options, attached: bool) -> Result<Self, Skip> {
        let mut command = if options.kernel == Kernel::UserMode {
            let mut c = script("uml");
            c.arg("up");
            c
        } else {
            let mut c = script("boot");
            c.args(["--smp", &options.cpus.to_string(), "--queues", &options.queues.to_string()]);
            c.args(["--offload", if options.offload { "on" } else { "off" }]);
            if let Some(share) = &options.share {
                c.arg("--share").arg(share);
            }
            c
        };
        command.args(["--mtu", &options.mtu.0.to_string(), "--mem", &options.memory_mib.to_string()]);
        if attached {
            command.arg("--attached");
        }
        command.env("XROCE_RXE_NAME", name).env("XROCE_RXE_GUEST", GUEST.to_string());
        command.env("XROCE_RXE_KERNEL", options.kernel.name());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0); // ^C reaches us alone; the child then sees its input close and tidies up
        let mut child = command.spawn().expect("tests/rxe: its commands can be run");
        let stdin = child.stdin.take();
        let errors = collect(child.stderr.take().expect("stderr is piped"));
        let mut line = String::new();
        let _ = BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line);
        let keeper = if attached && line.contains(" up") {
            Some((child, stdin))
        } else {
            let status = child.wait().expect("our own child").code();
            match status {
                Some(0) => None,
                Some(SKIP_STATUS) => {
                    return Err(Skip { reason: errors.join().expect("reads only").trim().replace('\n', "; ") });
                }
                _ => panic!("rxe guest: {status:?}\n{line}{}", errors.join().expect("reads only")),
            }
        };
        Ok(Self { name: name.to_owned(), options: options.clone(), keeper })
    }

    /// The process of this machine that a user-mode guest is; its programs are processes below it. `None` for other guests.
    pub fn process(&self) -> Option<u32> {
        let cache = std::env::var_os("XROCE_CACHE").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/xroce")))?;
        let file = cache.join("rxe/run").join(&self.name).join("uml/pid");
        std::fs::read_to_string(file).ok()?.split_whitespace().next()?.parse().ok()
    }

    /// The network namespace of this machine with the wire's near end. A program of ours runs there.
    pub fn namespace(&self) -> &str {
        &self.name
    }

    /// The interface in [`Guest::namespace`] (a veth, so native XDP works on it).
    pub fn interface(&self) -> String {
        format!("{}0", self.name)
    }

    /// Addresses of the near end.
    pub fn host_addresses(&self) -> (Ipv4Addr, Ipv6Addr) {
        addresses(1)
    }

    /// Addresses of the guest; rxe0 has them as GID 1 and 2 (0 is the link-local one).
    pub fn addresses(&self) -> (Ipv4Addr, Ipv6Addr) {
        addresses(GUEST)
    }

    /// The MAC address of the guest's interface.
    pub fn mac(&self) -> [u8; 6] {
        [2, 0, 0x0a, 0x4d, 0, GUEST]
    }

    /// Runs `command` by the guest's shell.
    ///
    /// # Panics
    /// The command that reaches the guest cannot be started.
    pub fn run(&self, command: &str) -> Output {
        let mut c = if self.options.kernel == Kernel::UserMode {
            let mut c = script("uml");
            c.arg("run");
            c
        } else {
            script("run")
        };
        c.env("XROCE_RXE_NAME", &self.name).env("XROCE_RXE_GUEST", GUEST.to_string());
        let out = c.arg(command).stdin(Stdio::null()).output().expect("tests/rxe: its commands can be run");
        Output {
            status: out.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }

    /// `None` while the guest lives; else the end of what its kernel said. Waits for one that is slow.
    pub fn last_words(&self) -> Option<String> {
        const TRIES: usize = 3;
        let mut said = self.run("true");
        for _ in 1..TRIES {
            if said.status == 0 {
                break;
            }
            thread::sleep(Duration::from_secs(1));
            said = self.run("true");
        }
        (said.status != 0).then_some(said.stderr)
    }

    /// A new connection to the verbs agent. Objects made over it live as long as it does; several may be open at once.
    ///
    /// # Errors
    /// The guest does not answer.
    pub fn agent(&self) -> io::Result<PeerAgent> {
        let (namespace, at) = if self.options.kernel == Kernel::UserMode {
            (self.name.clone(), SocketAddr::from((self.addresses().0, VERBS_PORT)))
        } else {
            (format!("{}-br", self.name), SocketAddr::from((Ipv4Addr::LOCALHOST, VERBS_PORT)))
        };
        let end = Instant::now() + CONNECT_LIMIT;
        loop {
            let attempt = in_namespace(&namespace, || TcpStream::connect_timeout(&at, CONNECT_LIMIT))?;
            match attempt.and_then(PeerAgent::new) {
                Ok(agent) => return Ok(agent),
                Err(e) if Instant::now() > end => return Err(e),
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

fn addresses(last: u8) -> (Ipv4Addr, Ipv6Addr) {
    (Ipv4Addr::new(10, 77, 0, last), Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, last.into()))
}

fn collect(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut all = Vec::new();
        let _ = from.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    })
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some((child, stdin)) = &mut self.keeper {
            drop(stdin.take());
            let _ = child.wait();
        }
    }
}
