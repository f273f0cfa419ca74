//! What public reports tell of programs whose peer ends, tried here with the commands. docs/regressions.md lists the reports; the
//! number of each begins the name of its test.

mod ends;

use std::thread::sleep;
use std::time::{Duration, Instant};

use ends::{Ends, NETDEV, SERVER};

const MTU: u32 = 1500;
const ENDLESS: &str = "100000000";

/// However a peer ends while requests are under way, be they SENDs or READs, the other side is told and ends. With
/// several outstanding: of a single one the answer may have left just before the end, and an idle connection notices nothing.
#[test]
fn h28_the_end_of_a_peer_is_noticed() {
    let Some(ends) = Ends::new("h28_the_end_of_a_peer_is_noticed", MTU) else { return };
    for (test, how) in [("send_bw", "TERM"), ("send_bw", "KILL"), ("read_bw", "TERM"), ("read_bw", "KILL")] {
        let server = ends.server(&["perf", test, "-d", NETDEV]);
        let client = ends.start_client(&["perf", test, "-d", NETDEV, "-n", ENDLESS, SERVER]);
        sleep(Duration::from_millis(500));
        let start = Instant::now();
        server.signal(how);
        assert_eq!(server.wait().code, None);
        let client = client.wait();
        assert_eq!(client.code, Some(1), "{test}, {how}: {client:?}");
        // By the status, or by the exchange's own connection, whichever is first.
        assert!(
            client.err.contains("(12)") || client.err.contains("the other end is gone"),
            "{test}, {how}: {client:?}"
        );
        assert!(start.elapsed() < Duration::from_secs(30), "{test}, {how}: {:?}", start.elapsed());
    }
}

/// UC has no answer that could be missed: a program whose peer is gone waits on. It ends when it is told to.
#[test]
fn h29_sigterm_ends_a_uc_program_whose_peer_is_gone() {
    let Some(ends) = Ends::new("h29_sigterm_ends_a_uc_program_whose_peer_is_gone", MTU) else { return };
    for waiting in [[].as_slice(), &["-e"]] {
        let server = ends.server(&["uc_pingpong", "-d", NETDEV, "-n", ENDLESS]);
        let args: Vec<&str> =
            ["uc_pingpong", "-d", NETDEV, "-n", ENDLESS].iter().chain(waiting).copied().chain([SERVER]).collect();
        let mut client = ends.start_client(&args);
        sleep(Duration::from_millis(300));
        server.kill();
        sleep(Duration::from_millis(300));
        assert!(client.runs(), "no error by design");
        let start = Instant::now();
        client.signal("TERM");
        let client = client.wait();
        assert_eq!((client.code, client.err.as_str()), (None, ""));
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}
