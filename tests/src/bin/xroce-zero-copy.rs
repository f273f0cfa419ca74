//! xroce on zero-copy AF_XDP: in a guest whose virtio_net has it, against xroce in the network namespace before the guest
//! (`make interop` runs this). What is seen: the mode that xroce says it got, the mode that the kernel says its sockets have
//! while they play, and the driver's own counts of the frames that passed. A row a line as it goes; the last line counts them.
//!
//! Exit status 0: all passed; 77: this machine can have no such guest. A failure is a panic, after which nothing else runs.

use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use xroce_tests::interop::pingpong::{command, listening};
use xroce_tests::rxe::{Guest, Kernel, Mtu, Options, in_namespace};

/// TCP port of the out-of-band line.
const PORT: u16 = 18_701;
/// How long a game may take.
const LIMIT_S: u32 = 120;
/// Queue pairs of the guest's interface; xroce has a socket on each.
const QUEUES: u32 = 2;

/// Who waits for the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Server {
    Guest,
    Host,
}

fn main() -> ExitCode {
    let xroce = command();
    let share = xroce.parent().expect("target/debug").to_path_buf();
    let options = Options { queues: QUEUES, share: Some(share), ..Options::new(Kernel::Backports, Mtu::RDMA) };
    let guest = match Guest::boot_with(&options) {
        Ok(guest) => guest,
        Err(why) => {
            println!("SKIP zero-copy: {why}");
            return ExitCode::from(77);
        }
    };
    println!("kernel {}", guest.run("uname -r").stdout.trim());
    // The kernel's own RNIC would wait for the packets that XDP takes.
    let removed = guest.run("rdma link delete rxe0");
    assert_eq!(removed.status, 0, "{removed:?}");
    let rows = in_namespace(guest.namespace(), || rows(&Lab { guest: &guest, xroce: &xroce })).expect("its namespace");
    println!("{rows} passed, 0 failed");
    ExitCode::SUCCESS
}

fn rows(lab: &Lab) -> u32 {
    let mut count = 0;
    let mut row = |name: String, run: &dyn Fn()| {
        let begun = Instant::now();
        println!("{name}");
        run();
        println!("pass      {name} ({:.1} s)", begun.elapsed().as_secs_f64());
        count += 1;
    };
    // Frames of one chunk: zero-copy. Longer ones: what virtio_net has for them is multi-buffer, and then it copies.
    for (mtu, active, zero_copy) in [(4200, 4096, false), (3800, 2048, true), (1500, 1024, true)] {
        row(format!("MTU {mtu}, zero-copy: {zero_copy}"), &|| lab.mode(mtu, active, zero_copy));
        if mtu > 1500 {
            for server in [Server::Guest, Server::Host] {
                let options = format!("-n 20 -s 65536 -m {active} -e -c");
                row(format!("rc_pingpong, MTU {mtu}, {server:?} is the server, {options}"), &|| {
                    lab.play("rc", server, &options, zero_copy);
                });
            }
        }
    }
    for kind in ["rc", "uc"] {
        for server in [Server::Guest, Server::Host] {
            for options in ["-n 50 -s 1 -c", "-n 200 -e -c", "-n 20 -s 65536 -e -c", "-n 50 -g 2 -s 1025 -e -c"] {
                row(format!("{kind}_pingpong, MTU 1500, {server:?} is the server, {options}"), &|| {
                    lab.play(kind, server, options, true);
                });
            }
        }
    }
    for server in [Server::Guest, Server::Host] {
        let options = "-n 3 -s 1048576 -e -c";
        row(format!("rc_pingpong, MTU 1500, {server:?} is the server, {options}"), &|| {
            lab.play("rc", server, options, true);
        });
    }
    count
}

/// The guest, and the command under test, which both ends run.
struct Lab<'a> {
    guest: &'a Guest,
    xroce: &'a Path,
}

impl Lab<'_> {
    /// Sets the guest's MTU; what `xroce devinfo` then says of path MTU and mode.
    fn mode(&self, mtu: u32, active: u32, zero_copy: bool) {
        let said = self.guest.run(&format!("ip link set eth0 mtu {mtu} && /mnt/share/xroce devinfo -d eth0 --json"));
        assert_eq!(said.status, 0, "{said:?}");
        let info: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        let xdp = &info["xdp"];
        assert_eq!((&info["active_mtu"], &xdp["mode"]), (&active.into(), &"native".into()), "{info}");
        assert_eq!((&xdp["zero_copy"], &xdp["queues"]), (&zero_copy.into(), &QUEUES.into()), "{info}");
        assert_eq!(xdp["multi_buffer"], !zero_copy, "{info}");
    }

    /// One game; both sides are given `options`. The guest's sockets must have the mode, and its frames must pass by them.
    fn play(&self, kind: &str, server: Server, options: &str, zero_copy: bool) {
        let host = |client: bool, address: &dyn ToString| if client { address.to_string() } else { String::new() };
        let to_host = host(server == Server::Host, &self.guest.host_addresses().0);
        let to_guest = host(server == Server::Guest, &self.guest.addresses().0);
        let theirs =
            format!("timeout {LIMIT_S} /mnt/share/xroce {kind}_pingpong -d eth0 -p {PORT} {options} {to_host}");
        let ours = format!("{kind}_pingpong -d {} -p {PORT} {options} {to_guest}", self.guest.interface());

        let before = self.frames();
        let (our_out, their_out) = thread::scope(|scope| match server {
            Server::Guest => {
                let theirs = scope.spawn(|| self.guest.run(&theirs));
                self.wait("the guest's server", || self.guest.run("cat /proc/net/tcp /proc/net/tcp6").stdout);
                self.assert_sockets(zero_copy);
                (self.here(&ours), theirs.join().expect("it only runs a command"))
            }
            Server::Host => {
                // A thread inherits the namespace of the one that starts it.
                let ours = scope.spawn(|| self.here(&ours));
                self.wait("our server", || {
                    let read = |file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
                    ["tcp", "tcp6"].into_iter().flat_map(read).collect()
                });
                let theirs = self.guest.run(&theirs);
                (ours.join().expect("it only runs a command"), theirs)
            }
        });

        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            our_out.status.success() && their_out.status == 0,
            "xroce {ours}: {}\n{}{}\nin the guest: {theirs}: {their_out:?}",
            our_out.status,
            text(&our_out.stdout),
            text(&our_out.stderr)
        );
        let iters: u64 = options.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("-n comes first");
        for out in [&text(&our_out.stdout), &their_out.stdout] {
            assert!(out.contains(&format!("{iters} iters in")), "no result line in {out}");
        }
        let after = self.frames();
        let [received, sent] = [after[0] - before[0], after[1] - before[1]];
        assert!(received >= iters, "{received} frames were redirected in {iters} exchanges");
        // In copy mode frames leave as the kernel's own do, and are not counted here.
        assert_eq!(sent >= iters, zero_copy, "{sent} frames were taken from the sockets in {iters} exchanges");
    }

    fn here(&self, arguments: &str) -> Output {
        Command::new("timeout")
            .arg(LIMIT_S.to_string())
            .arg(self.xroce)
            .args(arguments.split_whitespace())
            .stdin(Stdio::null())
            .output()
            .expect("timeout(1) can be run")
    }

    /// Until `who` listens, as the kernel's table of TCP sockets there shows it. A connection would be taken for its game.
    fn wait(&self, who: &str, table: impl Fn() -> String) {
        let end = Instant::now() + Duration::from_secs(60);
        while !listening(&table(), &format!(":{PORT:04X} ")) {
            assert!(Instant::now() < end, "{who} does not listen on port {PORT}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the kernel says of the guest's AF_XDP sockets (sock_diag(7)): one a queue, and how they are bound.
    fn assert_sockets(&self, zero_copy: bool) {
        let said = self.guest.run("ss --xdp --all --extended --no-header").stdout;
        let modes: Vec<bool> = said.lines().filter(|l| l.contains("umem(")).map(|l| l.contains(",zc:1,")).collect();
        assert_eq!(modes, [zero_copy; QUEUES as usize], "{said}");
    }

    /// Frames that the guest's driver gave to AF_XDP sockets so far, and that it took from them without copying.
    fn frames(&self) -> [u64; 2] {
        let said = self.guest.run("ethtool -S eth0").stdout;
        let count = |name: &str| {
            let line = said.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
            line.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no {name} in {said}"))
        };
        [count("rx_xdp_redirects"), count("tx_xdp_tx")]
    }
}
