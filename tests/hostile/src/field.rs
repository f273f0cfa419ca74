//! The field: two network namespaces and a veth between them. In: an MTU. Out: two ends that devices are opened on, gone
//! when the field is dropped.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xroce::{Context, DeviceBuilder, GidEntry, OpenError};

use crate::sys;

/// The netdev at each end.
pub const NETDEV: &str = "eth0";
/// Both ends' IPv4 addresses.
pub const IPV4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2)];
/// Both ends' MAC addresses.
pub const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 9, 1], [2, 0, 0, 0, 9, 2]];

/// A network namespace that is removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    fn new() -> Result<Namespace, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hostile-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        command("ip", &["netns", "add", &name])?;
        Ok(Namespace { name })
    }

    /// Its name, as `ip netns` lists it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` in it; a panic with what `ip` says when that fails.
    #[track_caller]
    pub fn ip(&self, arguments: &str) {
        self.try_ip(arguments).unwrap_or_else(|why| panic!("ip {arguments}: {why}"));
    }

    /// Runs `ip` in it.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn try_ip(&self, arguments: &str) -> Result<String, String> {
        let all: Vec<&str> = ["-n", &self.name].into_iter().chain(arguments.split_whitespace()).collect();
        command("ip", &all)
    }

    /// Runs `f` on a thread inside the namespace.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let file = open_namespace(&self.name);
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                sys::enter(&file).expect("the namespace can be entered");
                f()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Opens the device of this end, changed by `change`.
    ///
    /// # Errors
    /// As [`DeviceBuilder::open`].
    pub fn open(&self, change: impl FnOnce(DeviceBuilder) -> DeviceBuilder + Send) -> Result<Context, Box<OpenError>> {
        self.run(|| change(xroce::Device::builder(NETDEV)).open().map_err(Box::new))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = command("ip", &["netns", "del", &self.name]);
    }
}

/// The file that stands for a namespace made by `ip netns`.
pub fn open_namespace(name: &str) -> File {
    File::open(format!("/run/netns/{name}")).unwrap_or_else(|e| panic!("namespace {name}: {e}"))
}

fn command(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| format!("cannot run {program}: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Two namespaces joined by a veth whose ends are both called [`NETDEV`], with an IPv4 and an IPv6 address each.
#[derive(Debug)]
pub struct Field {
    /// Both ends.
    pub ends: [Namespace; 2],
    // One field at a time in a process: they measure time, and the machine may be small.
    _turn: MutexGuard<'static, ()>,
}

impl Field {
    /// `None`, after a line that says why, where namespaces or AF_XDP are not to be had.
    pub fn new(test: &str, mtu: u32) -> Option<Field> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        if !sys::is_root() {
            return skip(test, "not root");
        }
        let ends = match (Namespace::new(), Namespace::new()) {
            (Ok(a), Ok(b)) => [a, b],
            (Err(why), _) | (_, Err(why)) => return skip(test, &why),
        };
        let field = Field { ends, _turn: turn };
        field.lay_out(mtu);
        match field.ends[0].open(|builder| builder) {
            Ok(_) => Some(field),
            Err(error) => match *error {
                OpenError::Xdp(error) => skip(test, &error.to_string()),
                error => panic!("{error}"),
            },
        }
    }

    fn lay_out(&self, mtu: u32) {
        let [a, b] = &self.ends;
        for end in &self.ends {
            // No waiting for duplicates, and no traffic of the kernel's that nobody asked for.
            let set = |name: &str, value: &str| {
                let path = format!("/proc/sys/net/ipv6/conf/default/{name}");
                std::fs::write(&path, value).unwrap_or_else(|e| panic!("{path}: {e}"));
            };
            end.run(|| {
                set("accept_dad", "0");
                set("router_solicitations", "0");
            });
        }
        let mac = |i: usize| MAC[i].map(|byte| format!("{byte:02x}")).join(":");
        a.ip(&format!(
            "link add {NETDEV} mtu {mtu} address {} type veth peer name {NETDEV} mtu {mtu} address {} netns {}",
            mac(0),
            mac(1),
            b.name
        ));
        for (end, last) in self.ends.iter().zip([1, 2]) {
            end.ip("link set lo up");
            end.ip(&format!("link set {NETDEV} up"));
            end.ip(&format!("addr add 10.9.0.{last}/24 dev {NETDEV}"));
            end.ip(&format!("addr add fd09::{last}/64 dev {NETDEV} nodad"));
        }
    }

    /// Both devices, changed by `change`, which is told which end it is.
    pub fn open(&self, change: impl Fn(usize, DeviceBuilder) -> DeviceBuilder + Sync) -> [Context; 2] {
        let change = &change;
        std::array::from_fn(|i| self.ends[i].open(move |b| change(i, b)).unwrap_or_else(|e| panic!("end {i}: {e}")))
    }

    /// The kernel's own traffic passes, from either end.
    #[track_caller]
    pub fn assert_pings(&self) {
        for (end, peer) in self.ends.iter().zip([IPV4[1], IPV4[0]]) {
            if let Err(error) = end.run(|| sys::ping(peer, Duration::from_secs(5))) {
                panic!("no echo from {peer} in {}: {error}", end.name);
            }
        }
    }
}

/// The entry of the GID table for `address`.
pub fn gid_of(context: &Context, address: IpAddr) -> Option<GidEntry> {
    context.gid_table().into_iter().find(|entry| entry.address == address)
}

/// Past the capture of the test harness, which would hide it in a test that passes.
pub fn skip<T>(test: &str, why: &str) -> Option<T> {
    let _ = writeln!(std::io::stdout(), "SKIP {test}: {why}");
    None
}

/// Waits until `condition` holds; a panic with `what` if it does not within `patience`.
#[track_caller]
pub fn eventually(what: &str, patience: Duration, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < patience, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    start.elapsed()
}
