//! How far a long run is, on standard error while somebody sits in front of it.
//!
//! In: a device that works, and how much it has to do. Out: one line that is written over every second, and is gone at the end. A
//! run that is over sooner shows nothing.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use xroce::Context;

/// When the run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// After so many messages of this end.
    Messages(u64),
    /// After so many seconds.
    Seconds(u64),
}

/// What was done by a time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Mark {
    seconds: f64,
    messages: u64,
    bytes: u64,
    resent: u64,
}

/// The line, until this is dropped.
#[derive(Debug)]
pub struct Progress {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Between two lines.
    const EVERY: Duration = Duration::from_secs(1);

    /// Shows how `context` comes closer to `goal`. None where nobody looks.
    pub fn start(context: &Context, goal: Goal) -> Option<Progress> {
        if !io::stderr().is_terminal() {
            return None;
        }
        let context = context.clone();
        let start = Instant::now();
        let before = mark(&context, start)?;
        let (stop, stopped) = channel();
        let show = move || {
            let mut last = before;
            let mut shown = false;
            while stopped.recv_timeout(Progress::EVERY) == Err(RecvTimeoutError::Timeout) {
                let Some(now) = mark(&context, start) else { break };
                shown = true;
                write(&line(goal, &before, &last, &now));
                last = now;
            }
            if shown {
                write("");
            }
        };
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(show).ok()?;
        Some(Progress { stop, thread: Some(thread) })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn mark(context: &Context, start: Instant) -> Option<Mark> {
    let qp = context.totals().ok()?.transport.qp;
    Some(Mark {
        seconds: start.elapsed().as_secs_f64(),
        messages: qp.rdma_sends,
        // A READ's bytes come, a WRITE's go.
        bytes: qp.sent_bytes + qp.rcvd_bytes,
        resent: qp.resent_pkts,
    })
}

/// Over the line before, whose rest is cleared.
fn write(text: &str) {
    let mut err = io::stderr().lock();
    // Who has closed standard error does not want to know.
    let _ = write!(err, "\r{text}\x1b[K");
    let _ = err.flush();
}

fn line(goal: Goal, first: &Mark, last: &Mark, now: &Mark) -> String {
    let done = now.messages - first.messages;
    let far = match goal {
        Goal::Messages(all) => {
            format!("{:.0} s: {done} of {all} messages ({} %)", now.seconds, done * 100 / all.max(1))
        }
        Goal::Seconds(all) => format!("{:.0} of {all} s: {done} messages", now.seconds),
    };
    let seconds = (now.seconds - last.seconds).max(1e-9);
    let rate = (now.messages - last.messages) as f64 / seconds;
    let gbit = (now.bytes - last.bytes) as f64 * 8e-9 / seconds;
    format!("{far}; now {rate:.0} a second, {gbit:.3} Gb/s; {} packets sent again", now.resent - first.resent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_and_how_fast() {
        let first = Mark { seconds: 0.0, messages: 100, bytes: 1000, resent: 1 };
        let last = Mark { seconds: 8.0, messages: 1100, bytes: 1_000_001_000, resent: 1 };
        let now = Mark { seconds: 10.0, messages: 2100, bytes: 1_500_001_000, resent: 4 };
        assert_eq!(
            line(Goal::Messages(4000), &first, &last, &now),
            "10 s: 2000 of 4000 messages (50 %); now 500 a second, 2.000 Gb/s; 3 packets sent again"
        );
        assert!(
            line(Goal::Seconds(60), &first, &last, &now).starts_with("10 of 60 s: 2000 messages; now 500 a second")
        );
    }
}
