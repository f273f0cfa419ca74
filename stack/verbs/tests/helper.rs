//! When the helper threads of polled devices look in.
//!
//! One test in this program: it looks at all threads of that name.

mod common;

use common::{PATIENCE, connected};
use std::fs;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};
use xroce::{Progress, QpType, SendOp};

/// How late the kernel may let the sleeps of each helper end, in nanoseconds.
fn slacks() -> io::Result<Vec<u64>> {
    let mut slacks = Vec::new();
    for task in fs::read_dir("/proc/self/task")? {
        let id = task?.file_name().into_string().unwrap();
        if fs::read_to_string(format!("/proc/self/task/{id}/comm"))?.trim() == "xroce-0" {
            let slack = fs::read_to_string(format!("/proc/{id}/timerslack_ns"))?;
            slacks.push(slack.trim().parse().unwrap());
        }
    }
    assert_eq!(slacks.len(), 2);
    Ok(slacks)
}

/// While the application polls, a look of the helper can wait for the next tick of the scheduler, and does not interrupt the
/// application by a timer of its own. Who sleeps until a deadline of the transport must not.
#[test]
fn a_helper_may_be_late_while_somebody_polls_and_not_on_duty() {
    const TEST: &str = "a_helper_may_be_late_while_somebody_polls_and_not_on_duty";
    let (a, b) = connected(Progress::Inline { helper: true }, QpType::Rc, 64);
    if let Err(error) = slacks()
        && error.kind() == io::ErrorKind::PermissionDenied
    {
        let _ = writeln!(io::stdout(), "SKIP {TEST}: only root may read the timer slack of a thread");
        return;
    }
    let (start, mut id) = (Instant::now(), 0);
    // As late as the shortest look is apart from the next, at least.
    while slacks().unwrap().iter().all(|slack| *slack < 100_000) {
        assert!(start.elapsed() < PATIENCE, "{:?} ns while the application polls", slacks());
        for _ in 0..100 {
            id += 1;
            b.recv(id, &[b.sge(0, 8)]);
            a.send(id, SendOp::Send, &[a.sge(0, 8)]);
            a.success(&b, id);
            b.success(&a, id);
        }
    }
    let start = Instant::now();
    while slacks().unwrap().iter().any(|slack| *slack > 1_000) {
        assert!(start.elapsed() < PATIENCE, "{:?} ns while nobody polls", slacks());
        thread::sleep(Duration::from_millis(1));
    }
}
