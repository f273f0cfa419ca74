//! `xroce stat` and `xroce top` look at processes that run a device: here over plain UDP sockets on the loopback, which need no
//! rights.

mod prometheus;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// Processes that leave their sockets in a directory of their own.
struct World {
    dir: PathBuf,
    addresses: [String; 2],
    children: Vec<Child>,
}

impl World {
    fn new(test: u8) -> World {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let dir = std::env::temp_dir().join(format!("xroce-stat-{}-{test}", std::process::id()));
        let addresses = [0, 1].map(|end| format!("127.{}.{high}.{low}", 120 + 2 * test + end));
        World { dir, addresses, children: Vec::new() }
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xroce"));
        command.args(args.split_whitespace()).env("XROCE_RUN_DIR", &self.dir).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &str) -> Output {
        self.command(args).output().expect("xroce starts")
    }

    /// Standard output of a command that must succeed.
    #[track_caller]
    fn good(&self, args: &str) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn json(&self, args: &str) -> Value {
        serde_json::from_str(&self.good(args)).expect("one JSON object")
    }

    /// A test of bandwidth that goes on until this is dropped, and is under way.
    fn busy(&mut self) {
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
        let perf = format!("perf write_bw -p {port} -s 1000 -m 1024 --progress event");
        let [here, there] = self.addresses.clone();
        let mut start = |args: &str| {
            let child = self.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            self.children.push(child.expect("xroce starts"));
        };
        start(&format!("{perf} -d udp:{there}"));
        // The server listens when it answers here.
        self.eventually("the server is there", |world| world.run("stat").status.success());
        let start = |world: &World| {
            let args = format!("{perf} -d udp:{here} -D 600 {there}");
            world.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("xroce starts")
        };
        let mut client = start(self);
        self.eventually("messages flow", |world| {
            if client.try_wait().expect("it can be waited for").is_some() {
                client = start(world);
            }
            let output = world.run("stat qp -f json");
            let devices = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default()["devices"].clone();
            let busy = |device: &Value| device["qps"][0]["counters"]["sent_pkts"].as_u64().is_some_and(|sent| sent > 0);
            devices.as_array().is_some_and(|devices| devices.len() == 2 && devices.iter().all(busy))
        });
        self.children.push(client);
    }

    #[track_caller]
    fn eventually(&self, what: &str, mut so: impl FnMut(&World) -> bool) {
        let start = Instant::now();
        while !so(self) {
            assert!(start.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn both_ends_of_a_connection_tell_the_same() {
    let mut world = World::new(0);
    world.busy();
    let pid = world.children[1].id();
    // One process alone, by its number.
    let client = &world.json(&format!("stat qp -f json --pid {pid}"))["devices"];
    assert_eq!((client.as_array().map(Vec::len), client[0]["pid"].as_u64()), (Some(1), Some(pid.into())));
    let qp = &client[0]["qps"][0];
    let server = &world.json(&format!("stat qp -f json --pid {}", world.children[0].id()))["devices"][0]["qps"][0];
    assert_eq!((&qp["dest_qpn"], &qp["qpn"]), (&server["qpn"], &server["dest_qpn"]));
    assert_eq!(
        (qp["peer"].as_str(), server["peer"].as_str()),
        (Some(&*world.addresses[1]), Some(&*world.addresses[0]))
    );
    assert_eq!((qp["state"].as_str(), qp["path_mtu"].as_u64()), (Some("RTS"), Some(1024)));

    // What was asked for by number is that queue pair, in hexadecimal too.
    let qpn = qp["qpn"].as_u64().expect("a number");
    let one = world.json(&format!("stat qp {qpn:#x} -f json"));
    let found: Vec<&Value> =
        one["devices"].as_array().expect("a list").iter().flat_map(|d| d["qps"].as_array()).flatten().collect();
    assert!(!found.is_empty() && found.iter().all(|qp| qp["qpn"].as_u64() == Some(qpn)), "{one}");
    let none = world.run("stat qp 0x7fffff");
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    assert!(String::from_utf8_lossy(&none.stderr).contains("0x7fffff"), "{none:?}");

    let text = world.good(&format!("stat qp --pid {pid}"));
    for part in [format!("QP {qpn:#08x} → "), format!("at {}: RC RTS, path MTU 1024", world.addresses[1])] {
        assert!(text.contains(&part), "{part} in {text}");
    }
}

#[test]
fn of_a_wire_in_memory_both_ends_are_seen() {
    let mut world = World::new(6);
    let perf = "perf write_bw --sim -s 1000 -m 1024 -D 600";
    let child = world.command(perf).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    world.children.push(child.expect("xroce starts"));
    world.eventually("both ends and their queue pairs", |world| {
        let output = world.run("stat qp -f json");
        let devices = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default()["devices"].clone();
        let of = |i: usize| (devices[i]["qps"][0]["qpn"].as_u64(), devices[i]["qps"][0]["dest_qpn"].as_u64());
        let (one, other) = (of(0), of(1));
        one.0.is_some() && one == (other.1, other.0)
    });
}

#[test]
fn counters_in_every_format() {
    let mut world = World::new(1);
    world.busy();
    let pid = world.children[0].id();
    let devices = world.json("stat -f json");
    assert_eq!(devices["version"], 1);
    let device = &devices["devices"][0]["device"];
    assert!(device["counters"]["sent_pkts"].as_u64() > Some(0) && device["drops"]["bad_icrc"].is_u64(), "{device}");
    // Text has what is not 0; all of it if asked.
    let text = world.good(&format!("stat --pid {pid}"));
    assert!(text.contains("  rx_write_requests ") && !text.contains("retry_exceeded_err"), "{text}");
    assert!(world.good(&format!("stat --all --pid {pid}")).contains("  retry_exceeded_err "));

    for args in ["stat -f prometheus", "stat qp -f prometheus"] {
        let page = prometheus::parse(&world.good(args)).unwrap_or_else(|why| panic!("{args}: {why}"));
        assert!(page.iter().all(|family| !family.samples.is_empty()));
        let pids: Vec<&str> = page[0].samples.iter().filter_map(|sample| sample.label("pid")).collect();
        assert!(pids.contains(&&*pid.to_string()), "{pids:?}");
    }
    let page = prometheus::parse(&world.good(&format!("stat -f prometheus --pid {pid}"))).expect("a page");
    let value = |name: &str| page.iter().find(|family| family.name == name).map(|family| family.samples[0].value);
    assert!(value("xroce_rx_write_requests_total") > Some(0.0));
    assert_eq!((value("xroce_port_up"), value("xroce_retry_exceeded_err_total")), (Some(1.0), Some(0.0)));
}

#[test]
fn top_shows_rates() {
    let mut world = World::new(2);
    world.busy();
    let rows = world.json("top --once --json");
    let rows = rows["qps"].as_array().expect("a list");
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in rows {
        assert!(row["tx_packets"].as_f64() > Some(0.0) && row["rx_packets"].as_f64() > Some(0.0), "{row}");
    }
    // One sends the messages, the other takes them, and both see the same queue pairs.
    let sends = rows.iter().filter(|row| row["tx_messages"].as_f64() > Some(0.0)).count();
    assert_eq!((sends, rows[0]["qpn"].as_u64()), (1, rows[1]["dest_qpn"].as_u64()));
    let table = world.good("top --once");
    assert!(table.starts_with("xroce top: 2 queue pair(s), 0 failed; ") && table.lines().count() == 4, "{table}");
}

/// Without a device it says what it waits for, and goes on.
#[test]
fn top_waits_for_a_device() {
    let mut world = World::new(6);
    let mut top = world.command("top").stdout(Stdio::piped()).spawn().expect("xroce starts");
    let said = BufReader::new(top.stdout.take().expect("piped")).lines().map_while(Result::ok);
    world.children.push(top);
    let (to, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || said.for_each(|line| drop(to.send(line))));
    // It goes on until it is killed, whatever it says.
    let comes = |text: &str| {
        let end = Instant::now() + PATIENCE;
        let next = || lines.recv_timeout(end.saturating_duration_since(Instant::now())).ok();
        assert!(std::iter::from_fn(next).any(|line| line.starts_with(text)), "{text:?} does not come");
    };
    comes("no process runs an xroce device: waiting for one, `xroce rc_pingpong --sim");
    world.busy();
    comes("xroce top: 2 queue pair(s)");
}

/// On a terminal, which `script` lends: the table is drawn on the other screen until q, then all is as before.
#[test]
fn top_on_a_terminal_ends_with_q() {
    let mut world = World::new(5);
    let script = ["/usr/bin/script", "/bin/script"].into_iter().find(|path| std::path::Path::new(path).exists());
    let Some(script) = script else {
        return eprintln!("SKIP top_on_a_terminal_ends_with_q: no script(1) of util-linux here");
    };
    world.busy();
    let shell = format!("stty rows 10 cols 150; timeout --foreground 60 {} top; stty -a", env!("CARGO_BIN_EXE_xroce"));
    let mut terminal = Command::new(script)
        .args(["-qec", &shell, "/dev/null"])
        .env("XROCE_RUN_DIR", &world.dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script starts");
    let mut keys = terminal.stdin.take().expect("piped");
    let mut screen = terminal.stdout.take().expect("piped");
    let mut text = String::new();
    let mut drawn_so_often = |times: usize| {
        while text.matches("xroce top: 2 queue pair(s)").count() < times {
            let mut bytes = [0; 4096];
            let count = screen.read(&mut bytes).expect("it draws");
            assert!(count > 0, "it ended: {text}");
            text += &String::from_utf8_lossy(&bytes[..count]);
        }
    };
    drawn_so_often(1);
    // Another key is none that ends it: it draws at once, and after a second again.
    keys.write_all(b"x").expect("it reads");
    drawn_so_often(3);
    keys.write_all(b"q").expect("it reads");
    screen.read_to_string(&mut text).expect("it ends");
    assert!(terminal.wait().expect("it ends").success());
    let (drawn, behind) =
        text.split_once("\x1b[?1049h").expect("the other screen").1.split_once("\x1b[?1049l").expect("and back");
    assert!(drawn.contains("xroce top: 2 queue pair(s), 0 failed") && drawn.contains(" RTS "), "{text}");
    let restored = |mode: &str| behind.split_whitespace().any(|word| word.trim_end_matches(';') == mode);
    assert!(restored("icanon") && restored("echo") && restored("isig"), "{behind}");
}

#[test]
fn the_killed_leave_nothing_and_nobody_is_an_error() {
    let mut world = World::new(3);
    let nobody = world.run("stat");
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
    let said = String::from_utf8_lossy(&nobody.stderr);
    assert!(said.starts_with("xroce stat: no process runs an xroce device: start one, `xroce rc_pingpong"), "{said}");
    assert!(said.contains(&*world.dir.to_string_lossy()) && said.lines().count() == 1, "{said}");
    let once = world.run("top --once");
    assert!(once.status.code() == Some(1) && String::from_utf8_lossy(&once.stderr).contains("start one"), "{once:?}");
    world.busy();
    let sockets = |world: &World| fs::read_dir(&world.dir).map_or(0, Iterator::count);
    assert_eq!(sockets(&world), 2);
    for child in &mut world.children {
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
    assert_eq!(sockets(&world), 2, "killed processes clean nothing up");
    assert_eq!(world.run("stat").status.code(), Some(1));
    assert_eq!(sockets(&world), 0);
}

#[test]
fn wrong_arguments_exit_with_2() {
    let world = World::new(4);
    for args in
        ["stat nosuch", "stat qp 0x1000000", "stat qp x", "stat -f yaml", "stat --watch 0", "top --interval 0", "top x"]
    {
        assert_eq!(world.run(args).status.code(), Some(2), "{args}");
    }
}
