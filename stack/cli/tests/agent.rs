//! `xroce agent` and clients that do it no good. Over plain UDP sockets on the loopback, which need no rights.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// An agent that runs, with few descriptors.
struct Agent {
    child: Child,
    port: u16,
}

impl Agent {
    const DESCRIPTORS: usize = 48;

    fn start(test: u8) -> Agent {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let run = format!("ulimit -n {}; exec \"$0\" \"$@\"", Agent::DESCRIPTORS);
        let mut command = Command::new("sh");
        command.args(["-c", &run, env!("CARGO_BIN_EXE_xroce"), "agent", "-p", "0"]);
        command.args(["-d", &format!("udp:127.{}.{high}.{low}", 140 + test)]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("sh starts");
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut said).expect("text");
        let port = said.strip_prefix("verbs agent on TCP port ").and_then(|rest| rest.split(',').next());
        Agent { child, port: port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{said:?}")) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time-out");
        stream
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The reply to a request.
fn ask(mut stream: &TcpStream, request: &str) -> String {
    stream.write_all(format!("{request}\n").as_bytes()).expect("sent");
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).expect("a reply");
    reply
}

#[test]
fn more_clients_than_descriptors_end_nobody() {
    let mut agent = Agent::start(0);
    let first = agent.connect();
    assert!(ask(&first, "open").starts_with("ok ctx=1"));
    let many: Vec<TcpStream> = (0..2 * Agent::DESCRIPTORS).map(|_| agent.connect()).collect();
    std::thread::sleep(Duration::from_millis(200));
    assert!(ask(&first, "pd_alloc ctx=1").starts_with("ok pd=2"), "its objects are there");
    drop(many);
    let next = agent.connect();
    assert!(ask(&next, "open").starts_with("ok ctx=1"));
    assert_eq!(agent.child.try_wait().expect("it can be waited for"), None);
}

#[test]
fn a_request_without_an_end_ends_the_connection() {
    let agent = Agent::start(1);
    let mut endless = agent.connect();
    let piece = [b'x'; 1 << 16];
    let taken = (0..1024).take_while(|_| endless.write_all(&piece).is_ok()).count();
    // What is on the way counts too.
    assert!(taken < 1024, "the agent has taken in {} MiB of one line", taken >> 4);
    let _ = endless.read_to_end(&mut Vec::new());
    // The longest that the protocol has is taken.
    let client = agent.connect();
    assert!(ask(&client, "buf_alloc len=65536").starts_with("ok buf=1"));
    assert_eq!(ask(&client, &format!("buf_write buf=1 hex={}", "a7".repeat(65536))), "ok\n");
    assert_eq!(ask(&client, "buf_read buf=1 len=4"), "ok hex=a7a7a7a7\n");
}
