//! Two network namespaces joined by a veth, made for one run and removed behind it.
//!
//! In: nothing. Out: threads that stand in one of the namespaces, on a CPU of their own; the ways the kernel can run a
//! veth's receive side.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::pair::Result;

/// Bytes of the largest IP packet: path MTU 4096 fits, and so do frames in two pieces.
const MTU: u32 = 9000;

/// One of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The sender.
    A,
    /// The receiver.
    B,
}

impl Side {
    /// Its address.
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, 0, if self == Side::A { 1 } else { 2 })
    }

    /// Its netdev. The kernel's NAPI threads have it in their names.
    pub fn netdev(self) -> &'static str {
        if self == Side::A { "xbencha" } else { "xbenchb" }
    }

    /// The CPU of its thread.
    pub fn cpu(self) -> usize {
        if self == Side::A { 0 } else { 1 }
    }
}

/// How the kernel runs the receive side of the veth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setup {
    /// As it comes: most of it inside the sender's system call.
    Plain,
    /// Threaded NAPI: a kernel thread of real-time priority on the receiver's CPU.
    ThreadedNapi,
}

impl Setup {
    /// A and B, as in the tables.
    pub fn name(self) -> &'static str {
        if self == Setup::Plain { "A" } else { "B" }
    }
}

/// The namespaces; removed when dropped.
pub struct Net {
    names: [String; 2],
    undertaker: Child,
    /// The ends' threads run before every other program.
    realtime: bool,
}

impl Net {
    /// Makes them. With `realtime`, the ends' threads get a real-time priority: on a machine that is busy with other things
    /// both ends else rarely run at the same time, and a spinning receiver that does not run is no receiver.
    ///
    /// # Errors
    /// What `ip` says: without root it refuses.
    pub fn up(realtime: bool) -> Result<Net> {
        let names = ["a", "b"].map(|side| format!("bench-{}-{side}", std::process::id()));
        let undertaker = undertaker(&names).map_err(|e| format!("sh: {e}"))?;
        let net = Net { names, undertaker, realtime };
        let [a, b] = &net.names;
        for name in &net.names {
            run("ip", &["netns", "add", name])?;
        }
        let (mtu, [dev_a, dev_b]) = (MTU.to_string(), [Side::A, Side::B].map(Side::netdev));
        run(
            "ip",
            &["link", "add", dev_a, "netns", a, "mtu", &mtu, "type", "veth", "peer", dev_b, "netns", b, "mtu", &mtu],
        )?;
        for (side, name) in [(Side::A, a), (Side::B, b)] {
            let address = format!("{}/24", side.address());
            run("ip", &["-n", name, "addr", "add", &address, "dev", side.netdev()])?;
            run("ip", &["-n", name, "link", "set", "lo", "up"])?;
            run("ip", &["-n", name, "link", "set", side.netdev(), "up"])?;
        }
        Ok(net)
    }

    fn name(&self, side: Side) -> &str {
        &self.names[side as usize]
    }

    /// Moves this thread into the namespace of `side`.
    ///
    /// # Errors
    /// What the kernel says.
    #[allow(unsafe_code, reason = "a system call without a safe wrapper among our dependencies")]
    pub fn enter(&self, side: Side) -> io::Result<()> {
        let file = File::open(format!("/run/netns/{}", self.name(side)))?;
        // SAFETY: two integers; the descriptor is open, and only this thread is moved.
        if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Puts this thread onto the CPU of `side`. To be called once all is open: threads started after it would inherit CPU and
    /// priority, and those of a device must be able to run beside one that never sleeps.
    ///
    /// # Errors
    /// What the kernel says.
    #[allow(unsafe_code, reason = "two system calls without a safe wrapper among our dependencies")]
    pub fn take_cpu(&self, side: Side) -> io::Result<()> {
        // SAFETY: a cpu_set_t is plain bits, and the call reads as many of them as it is told.
        let pinned = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(side.cpu(), &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
        };
        if pinned != 0 {
            return Err(io::Error::last_os_error());
        }
        let priority = libc::sched_param { sched_priority: 1 };
        // SAFETY: the call reads one `sched_param`.
        if self.realtime && unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Runs `a` and `b` on a thread each, in their namespaces.
    ///
    /// # Errors
    /// That of `a`, else that of `b`.
    pub fn both<T: Send, U: Send>(
        &self,
        a: impl FnOnce() -> Result<T> + Send,
        b: impl FnOnce() -> Result<U> + Send,
    ) -> Result<(T, U)> {
        let (a, b) = std::thread::scope(|scope| {
            let say = |e: Box<dyn std::error::Error>| e.to_string();
            let a = scope.spawn(move || self.enter(Side::A).map_err(Into::into).and_then(|()| a()).map_err(say));
            let b = scope.spawn(move || self.enter(Side::B).map_err(Into::into).and_then(|()| b()).map_err(say));
            (a.join(), b.join())
        });
        let a = a.map_err(|_| "the sender's thread panicked")??;
        Ok((a, b.map_err(|_| "the receiver's thread panicked")??))
    }

    /// Changes how the receive sides are run. An XDP program must be on a netdev, or GRO, before NAPI can have a thread.
    ///
    /// # Errors
    /// What the tools say.
    pub fn set_up(&self, setup: Setup) -> Result<()> {
        for side in [Side::A, Side::B] {
            let (name, netdev) = (self.name(side), side.netdev());
            let (gro, threaded) = if setup == Setup::ThreadedNapi { ("on", "1") } else { ("off", "0") };
            let write = format!("echo {threaded} > /sys/class/net/{netdev}/threaded");
            if setup == Setup::ThreadedNapi {
                run("ip", &["netns", "exec", name, "ethtool", "-K", netdev, "gro", gro])?;
                run("ip", &["netns", "exec", name, "sh", "-c", &write])?;
                for pid in napi_threads(netdev) {
                    run("taskset", &["-pc", &side.cpu().to_string(), &pid])?;
                    run("chrt", &["-f", "-p", "10", &pid])?;
                }
            } else {
                // Refused where there is no NAPI: then nothing is threaded either.
                let _ = run("ip", &["netns", "exec", name, "sh", "-c", &write]);
                run("ip", &["netns", "exec", name, "ethtool", "-K", netdev, "gro", gro])?;
            }
        }
        Ok(())
    }

    /// Segmentation offload of the sockets on both ends.
    ///
    /// # Errors
    /// What `ethtool` says.
    pub fn offloads(&self, on: bool) -> Result<()> {
        let state = if on { "on" } else { "off" };
        for side in [Side::A, Side::B] {
            let (name, netdev) = (self.name(side), side.netdev());
            run("ip", &["netns", "exec", name, "ethtool", "-K", netdev, "tso", state, "gso", state])?;
        }
        Ok(())
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // Its input ends with that, which it waits for.
        let _ = self.undertaker.wait();
    }
}

/// A process that removes these namespaces as soon as we let go of its input: when they are dropped, and when this process ends in
/// any other way. A signal runs no destructor.
fn undertaker(names: &[String]) -> io::Result<Child> {
    let remove = r#"read _; for name; do ip netns del "$name"; done"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", remove, "sh"]).args(names).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C is for all of our process group.
    shell.process_group(0).spawn()
}

/// Process numbers of the kernel threads that run the NAPI of a netdev.
fn napi_threads(netdev: &str) -> Vec<String> {
    let prefix = format!("napi/{netdev}");
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|e| e.file_name().into_string().ok());
    pids.filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()) && name(pid).starts_with(&prefix)).collect()
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read};
    use std::time::{Duration, Instant};

    /// Set in the process that is killed.
    const VICTIM: &str = "XROCE_BENCH_VICTIM";

    fn names_left(names: &[String]) -> usize {
        let there = |name: &&String| fs::exists(format!("/run/netns/{name}")).unwrap_or(true);
        names.iter().filter(there).count()
    }

    const TEST: &str = "a_bench_that_gets_a_signal_leaves_no_namespaces";

    /// The process that is killed: makes namespaces and says their names.
    fn victim() {
        let net = match Net::up(false) {
            Ok(net) => net,
            Err(error) => return println!("SKIP {TEST}: {error}"),
        };
        println!("{}", net.names.join(" "));
        // Here the signal comes, or the end of a test that has failed.
        let _ = io::stdin().read(&mut [0]);
    }

    #[test]
    fn a_bench_that_gets_a_signal_leaves_no_namespaces() {
        if std::env::var_os(VICTIM).is_some() {
            return victim();
        }
        for signal in ["INT", "TERM", "KILL"] {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args([TEST, "--nocapture"]).env(VICTIM, "1");
            let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(|line| line.ok());
            let said = lines.find(|line| line.contains("bench-") || line.contains("SKIP")).unwrap_or_default();
            let names: Vec<String> =
                said.split(' ').filter(|word| word.starts_with("bench-")).map(str::to_owned).collect();
            let made = names_left(&names);
            run("kill", &["-s", signal, &child.id().to_string()]).unwrap();
            child.wait().unwrap();
            if let Some(at) = said.find("SKIP") {
                return println!("{}", &said[at..]);
            }
            assert_eq!((names.len(), made), (2, 2), "{said}");
            let start = Instant::now();
            while names_left(&names) > 0 {
                assert!(start.elapsed() < Duration::from_secs(60), "SIG{signal}: {names:?} are left");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
