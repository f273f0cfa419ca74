//! What public reports tell of programs whose peer ends, tried here with the commands. docs/regressions.md lists the reports; the
//! number of each begins the name of its test.

mod ends;

use std::thread::sleep;
use std::time::{Duration, Instant};

use ends::{Ends, NETDEV, SERVER};

const MTU: u32 = 1500;
const ENDLESS: &str = "100000000";

/// However a peer ends while requests are under way, be they SENDs or READs, the other side is told by status 12 and ends.
#[test]
fn h28_the_end_of_a_peer_is_noticed() {
    let Some(ends) = Ends::new("h28_the_end_of_a_peer_is_noticed", MTU) else { return };
    for how in ["exit", "TERM", "KILL"] {
        let rounds = if how == "exit" { "50" } else { ENDLESS };
        let server = ends.server(&["rc_pingpong", "-d", NETDEV, "-n", rounds]);
        let client = ends.start_client(&["rc_pingpong", "-d", NETDEV, "-n", ENDLESS, SERVER]);
        if how != "exit" {
            sleep(Duration::from_millis(500));
            server.signal(how);
        }
        let start = Instant::now();
        let (server, client) = (server.wait(), client.wait());
        assert_eq!(server.code, if how == "exit" { Some(0) } else { None }, "{server:?}");
        assert_eq!(client.code, Some(1), "{how}: {client:?}");
        assert!(client.err.contains("Failed status transport retry counter exceeded (12)"), "{how}: {client:?}");
        assert!(start.elapsed() < Duration::from_secs(30), "{how}: {:?}", start.elapsed());
    }
    for how in ["TERM", "KILL"] {
        let server = ends.server(&["perf", "read_bw", "-d", NETDEV]);
        let client = ends.start_client(&["perf", "read_bw", "-d", NETDEV, "-n", ENDLESS, SERVER]);
        sleep(Duration::from_millis(500));
        let start = Instant::now();
        server.signal(how);
        assert_eq!(server.wait().code, None);
        let client = client.wait();
        assert_eq!(client.code, Some(1), "{how}: {client:?}");
        assert!(client.err.contains("(12)"), "{how}: {client:?}");
        assert!(start.elapsed() < Duration::from_secs(30), "{how}: {:?}", start.elapsed());
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
