//! `xroce rc_pingpong` and `uc_pingpong` against rdma-core's programs in the guest. Enters: who is the server, options that
//! both sides get. Leaves: nothing; a side that fails is a panic with the output of both.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{Family, Side, Station};

/// TCP port of the out-of-band line. Not the default, which other tests of this machine may use.
const PORT: u16 = 18_700;
/// How long a game may take.
const LIMIT_S: u32 = 60;

/// The `xroce` command as it is now, built if need be.
///
/// # Panics
/// It does not build.
pub fn command() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "xroce-cli", "--bin", "xroce"])
        .current_dir(&root)
        .status()
        .expect("cargo can be run");
    assert!(built.success(), "xroce does not build");
    // A test lies in target/debug/deps, a program in target/debug.
    let here = std::env::current_exe().expect("this program has a path");
    let beside = here.parent().expect("a folder");
    let profile = if beside.ends_with("deps") { beside.parent().expect("target/debug") } else { beside };
    profile.join("xroce")
}

/// What xroce plays on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Through {
    /// AF_XDP on the netdev.
    Xdp,
    /// Plain UDP sockets, as a user without any rights.
    Udp,
}

/// A user and a group without any rights: nobody.
const NOBODY: u32 = 65_534;

/// A copy of the command where every user may run it.
fn for_everybody(xroce: &Path) -> PathBuf {
    let copy = std::env::temp_dir().join(format!("xroce-for-everybody-{}", std::process::id()));
    std::fs::copy(xroce, &copy).expect("the command can be copied");
    copy
}

/// One game: `kind` is "rc" or "uc", `server` who waits, `options` what both sides are given. To be called in the netdev's
/// namespace, without a device of ours on it.
///
/// # Panics
/// A side fails.
pub fn play(station: &mut Station, xroce: &Path, kind: &str, server: Side, family: Family, options: &str) {
    play_through(Through::Xdp, station, xroce, (kind, server, family), options);
}

/// The same over plain UDP sockets, as nobody.
///
/// # Panics
/// A side fails.
pub fn play_as_nobody(station: &mut Station, xroce: &Path, kind: &str, server: Side, family: Family, options: &str) {
    let copy = for_everybody(xroce);
    play_through(Through::Udp, station, &copy, (kind, server, family), options);
    std::fs::remove_file(copy).expect("ours");
}

fn play_through(
    through: Through,
    station: &mut Station,
    xroce: &Path,
    (kind, server, family): (&str, Side, Family),
    options: &str,
) {
    let (our_ip, peer_ip) = station.addresses(family);
    let peer = &mut station.peer;
    let index = peer.agent.gid_index(peer.ctx, peer_ip).expect("a GID of the guest");
    // The out-of-band line goes over IPv4 for both.
    let (our_v4, peer_v4) = (station.guest.host_addresses().0, station.guest.addresses().0);
    let host = |side| {
        if side == server {
            String::new()
        } else if side == Side::Ours {
            peer_v4.to_string()
        } else {
            our_v4.to_string()
        }
    };
    // By events: programs that spin starve rxe, whose CPUs are emulated on ours.
    let theirs =
        format!("timeout {LIMIT_S} ibv_{kind}_pingpong -d rxe0 -e -g {index} -p {PORT} {options} {}", host(Side::Peer));
    let (device, gid) = match through {
        Through::Xdp => (station.guest.interface(), station.our_gid(family)),
        Through::Udp => (format!("udp:{our_ip}"), 0),
    };
    let ours = format!("{kind}_pingpong -d {device} -e -g {gid} -p {PORT} {options} {}", host(Side::Ours));

    let our_child = || {
        let mut command = Command::new("timeout");
        command.arg(LIMIT_S.to_string());
        if through == Through::Udp {
            let as_nobody = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
            command.arg("setpriv").args(as_nobody).args(["--clear-groups", "--bounding-set=-all", "--no-new-privs"]);
        }
        command.arg(xroce).args(ours.split_whitespace()).stdin(Stdio::null()).output().expect("xroce can be run")
    };
    let guest = &station.guest;
    let namespace = guest.namespace();
    let (our_out, their_out) = thread::scope(|scope| {
        // A thread inherits the namespace of the one that starts it.
        let ours_first = (server == Side::Ours).then(|| scope.spawn(our_child));
        let their_side = match server {
            Side::Ours => {
                wait_for_listener(namespace);
                guest.run(&theirs)
            }
            Side::Peer => {
                let theirs = scope.spawn(|| guest.run(&theirs));
                wait_in_guest(station);
                let ours = our_child();
                return (ours, theirs.join().expect("it only runs a command"));
            }
        };
        (ours_first.expect("begun above").join().expect("it only runs a command"), their_side)
    });
    let text =
        |out: &Output| format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(
        our_out.status.success() && their_out.status == 0,
        "xroce {ours}: {}\n{}\n{theirs}: {}\n{}{}",
        our_out.status,
        text(&our_out),
        their_out.status,
        their_out.stdout,
        their_out.stderr
    );
    let iters = options.split_whitespace().skip_while(|&o| o != "-n").nth(1).unwrap_or("1000");
    for out in [&text(&our_out), &their_out.stdout] {
        assert!(out.contains(&format!("{iters} iters in")), "no result line in {out}");
    }
}

/// Until our server listens: seen in the table of sockets, since a connection would be its game.
fn wait_for_listener(namespace: &str) {
    let wanted = format!(":{PORT:04X} ");
    let end = Instant::now() + Duration::from_secs(20);
    let listens = || {
        let table = crate::rxe::in_namespace(namespace, || std::fs::read_to_string("/proc/thread-self/net/tcp"));
        let table6 = crate::rxe::in_namespace(namespace, || std::fs::read_to_string("/proc/thread-self/net/tcp6"));
        [table, table6].into_iter().flatten().flatten().any(|text| listening(&text, &wanted))
    };
    while !listens() {
        assert!(Instant::now() < end, "xroce does not listen on port {PORT}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether `table`, in the form of /proc/net/tcp, has a listener on `port`, which is written as there: ":490C ".
pub fn listening(table: &str, port: &str) -> bool {
    const LISTEN: &str = "0A";
    table.lines().any(|line| line.contains(port) && line.split_whitespace().nth(3) == Some(LISTEN))
}

fn wait_in_guest(station: &Station) {
    let end = Instant::now() + Duration::from_secs(20);
    let wanted = format!(":{PORT:04X} ");
    loop {
        let table = station.guest.run("cat /proc/net/tcp /proc/net/tcp6").stdout;
        if listening(&table, &wanted) {
            return;
        }
        assert!(Instant::now() < end, "the guest's server does not listen on port {PORT}");
        thread::sleep(Duration::from_millis(50));
    }
}
