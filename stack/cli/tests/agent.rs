//! `xroce agent`: clients that do it no good, and two of them that break a rule between each other. Over plain UDP
//! sockets on the loopback, which need no rights.

mod ends;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use ends::xroce;

const PATIENCE: Duration = Duration::from_secs(30);

/// An agent that runs, with few descriptors.
struct Agent {
    child: Child,
    port: u16,
}

impl Agent {
    const DESCRIPTORS: usize = 48;

    fn start(test: u8) -> Agent {
        Agent::start_with(test, &[])
    }

    fn start_with(test: u8, more: &[&str]) -> Agent {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let run = format!("ulimit -n {}; exec \"$0\" \"$@\"", Agent::DESCRIPTORS);
        let mut command = Command::new("sh");
        command.args(["-c", &run, env!("CARGO_BIN_EXE_xroce"), "agent", "-p", "0"]);
        command.args(["-d", &format!("udp:127.{}.{high}.{low}", 140 + test)]).args(more);
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
    thread::sleep(Duration::from_millis(200));
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

/// A client that is killed meanwhile is noticed when the wait is over.
#[test]
fn no_request_waits_for_ever() {
    let agent = Agent::start(5);
    let client = agent.connect();
    assert!(ask(&client, "open").starts_with("ok ctx=1"));
    assert!(ask(&client, "cq_create ctx=1 channel=1").starts_with("ok cq=2"));
    for request in ["cq_poll cq=2", "cq_wait cq=2", "events ctx=1"] {
        let reply = ask(&client, &format!("{request} timeout_ms={}", u64::MAX));
        assert!(reply.starts_with("err ") && reply.contains("at=timeout_ms") && reply.contains("600000"), "{reply}");
    }
}

/// A value of an `ok` reply.
fn value<'a>(reply: &'a str, key: &str) -> &'a str {
    let mut words = reply.split_whitespace().filter_map(|word| word.split_once('='));
    words.find(|(name, _)| *name == key).unwrap_or_else(|| panic!("{key}= in {reply:?}")).1
}

/// A queue pair, and memory that its peer may write.
struct End {
    stream: TcpStream,
    gid: String,
    mr: String,
    qp: String,
}

impl End {
    fn new(agent: &Agent) -> End {
        let stream = agent.connect();
        ask(&stream, "open");
        let gid = value(&ask(&stream, "gids ctx=1"), "gid").split(':').nth(1).expect("INDEX:GID:v2").to_owned();
        ask(&stream, "pd_alloc ctx=1");
        ask(&stream, "cq_create ctx=1");
        ask(&stream, "buf_alloc len=4096");
        // LOCAL_WRITE and REMOTE_WRITE.
        let mr = ask(&stream, "mr_reg pd=2 buf=4 access=3");
        let qp = ask(&stream, "qp_create pd=2 scq=3 rcq=3 type=rc");
        End { stream, gid, mr, qp }
    }

    fn connect(&self, peer: &End) {
        let (gid, qpn) = (&peer.gid, value(&peer.qp, "qpn"));
        for attributes in [
            "state=init port=1 pkey_index=0 access=3",
            &format!(
                "state=rtr dgid={gid} sgid_index=0 hop_limit=64 path_mtu=1024 dest_qpn={qpn} rq_psn=100 \
                 max_dest_rd_atomic=1 min_rnr_timer=8"
            ),
            "state=rts sq_psn=100 max_rd_atomic=1 timeout=18 retry_cnt=7 rnr_retry=3",
        ] {
            assert_eq!(ask(&self.stream, &format!("qp_modify qp=6 {attributes}")), "ok\n", "{attributes}");
        }
    }

    /// The status of a WRITE to `peer` under `rkey`.
    fn write(&self, peer: &End, rkey: u32) -> String {
        let (va, lkey, far) = (value(&self.mr, "va"), value(&self.mr, "lkey"), value(&peer.mr, "va"));
        let post = format!("post_send qp=6 id=7 op=write flags=signaled sge={va}:512:{lkey} ra={far} rkey={rkey}");
        assert_eq!(ask(&self.stream, &post), "ok\n");
        let polled = ask(&self.stream, "cq_poll cq=3 n=1 timeout_ms=20000");
        value(&polled, "wc").split(':').nth(1).expect("ID:STATUS").to_owned()
    }
}

#[test]
fn a_capture_of_a_wrong_rkey_names_the_error_and_the_end() {
    let name = format!("agent-rkey-{}.pcapng", std::process::id());
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let path = file.to_str().expect("UTF-8");
    let (ours, theirs) = (Agent::start_with(2, &["--pcap", path]), Agent::start(3));
    let (a, b) = (End::new(&ours), End::new(&theirs));
    a.connect(&b);
    b.connect(&a);
    let rkey = value(&b.mr, "rkey").trim_start_matches("0x");
    let rkey = u32::from_str_radix(rkey, 16).expect("a key");
    assert_eq!(a.write(&b, rkey), "0");
    assert_eq!(a.write(&b, rkey ^ 0x100), "10", "remote access error");
    for end in [&a, &b] {
        assert_eq!(value(&ask(&end.stream, "qp_query qp=6"), "state"), "6", "in error");
    }
    // An agent writes its capture out four times a second.
    let begun = Instant::now();
    let ladder = loop {
        let said = xroce(&["lab", "--from", path, "--text"]);
        if said.out.contains("#4") || begun.elapsed() > PATIENCE {
            break said;
        }
        thread::sleep(Duration::from_millis(50));
    };
    let told = ladder.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let wrong = "! B refuses frame 3 (WRITE_ONLY PSN 101 512 B A): NAK in frame 4, remote access error: its R_Key, \
                 its range, or a right of the memory region. Both queue pairs are in error from here on.";
    assert!(told.contains(wrong), "{ladder:?}");
    fs::remove_file(file).expect("ours");
}

#[test]
fn a_capture_of_an_agent_that_is_killed_at_once_can_be_read() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("agent-killed-{}.pcapng", std::process::id()));
    let path = file.to_str().expect("UTF-8");
    drop(Agent::start_with(4, &["--pcap", path]));
    let all = fs::read(&file).expect("a capture");
    let word = |at: usize| all.get(at..at + 4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
    let interfaces = word(4).and_then(|length| word(length as usize));
    assert_eq!((word(0), interfaces), (Some(0x0a0d_0d0a), Some(1)), "its section header, then its interface: {all:?}");
    assert_eq!(xroce(&["decode", path]).code, Some(0));
    fs::remove_file(file).expect("ours");
}
