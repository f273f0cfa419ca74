//! The commands over plain UDP sockets on the loopback, as an ordinary user.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65_534;
const PATIENCE: Duration = Duration::from_secs(60);

/// A copy of the program that every user can start, removed when dropped.
struct Program(PathBuf);

impl Program {
    fn new(name: &str) -> Program {
        let path = std::env::temp_dir().join(format!("xroce-udp-{}-{name}", std::process::id()));
        fs::copy(env!("CARGO_BIN_EXE_xroce"), &path).expect("the program can be copied");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        Program(path)
    }

    /// Starts `xroce ARGS`, as nobody if this test runs as root.
    fn start(&self, args: &str) -> Child {
        let mut command = Command::new(&self.0);
        command.args(args.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.current_dir("/");
        loop {
            match command.spawn() {
                // A process that another thread is just starting still holds the descriptor by which the copy was written.
                Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                child => break child.expect("xroce starts"),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Two loopback addresses that no other run of this test has.
fn addresses(test: u8) -> (String, String) {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    (format!("127.{}.{high}.{low}", 100 + 2 * test), format!("127.{}.{high}.{low}", 101 + 2 * test))
}

/// A TCP port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port()
}

fn ended(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().expect("it can be waited for").is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().expect("it runs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("it has ended")
}

/// Runs a command at both ends; what the client printed.
fn both(test: u8, command: &str) -> String {
    let program = Program::new(&test.to_string());
    let (here, there) = addresses(test);
    let port = free_port();
    let server = program.start(&format!("{command} -p {port} -d udp:{there}"));
    // The client is refused until the server listens, and a refused one has used nothing up.
    let client = loop {
        let client = ended(program.start(&format!("{command} -p {port} -d udp:{here} {there}")));
        if !String::from_utf8_lossy(&client.stderr).contains("refused") {
            break client;
        }
    };
    let server = ended(server);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        client.status.success() && server.status.success(),
        "{command}\nclient {}{}\nserver {}{}",
        text(&client.stdout),
        text(&client.stderr),
        text(&server.stdout),
        text(&server.stderr)
    );
    text(&client.stdout)
}

#[test]
fn rc_pingpong_needs_no_rights() {
    let said = both(0, "rc_pingpong -n 100 -s 10000 -m 4096 -c");
    assert!(said.contains("2000000 bytes in "), "{said}");
}

#[test]
fn uc_pingpong_needs_no_rights() {
    let said = both(1, "uc_pingpong -n 20 -s 3000 -c");
    assert!(said.contains("20 iters in "), "{said}");
}

#[test]
fn reads_and_atomics_pass() {
    let said = both(2, "perf read_lat -n 20 -s 5000");
    assert!(said.contains("READ LAT test"), "{said}");
    both(3, "perf atomic_bw -n 100");
}

#[test]
fn what_does_not_open_says_why() {
    let program = Program::new("errors");
    let fails = |args: &str| {
        let output = ended(program.start(args));
        assert_eq!(output.status.code(), Some(1), "{args}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(fails("devinfo -d udp:192.0.2.77").contains("192.0.2.77 is no address of this host"));
    assert!(fails("devinfo -d udp:nonsense").contains("\"nonsense\" is no IPv4 or IPv6 address"));
    assert!(fails("devinfo -d udp:169.254.1.1").contains("link-local"));
    let (here, _) = addresses(4);
    let taken = std::net::UdpSocket::bind((here.as_str(), 4791)).expect("nobody has it");
    assert!(fails(&format!("devinfo -d udp:{here}")).contains("UDP port 4791"));
    drop(taken);
    // The remedy can be typed as it stands.
    let said = fails(&format!("rc_pingpong -d udp:{here} -g 7"));
    let remedy = said.split('`').nth(1).unwrap_or_default().strip_prefix("xroce ").unwrap_or_default();
    assert_eq!(remedy, format!("devinfo -d udp:{here}"), "{said}");
    let listed = ended(program.start(remedy));
    assert!(listed.status.success(), "{listed:?}");
}
