//! One event per frame while somebody listens.

mod common;

use std::io;
use std::sync::{Arc, Mutex};

use common::{A, B, drain, numbered, send};
use tracing::Level;
use xroce_port::sim::pair;
use xroce_port::trace::{Trace, ethernet_summary};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log_at(level: Level) -> String {
    let log = Log::default();
    let sink = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(move || sink.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        let (_net, a, b) = pair(1);
        let (mut a, mut b) = (Trace::new(a, "left", ethernet_summary), Trace::new(b, "right", ethernet_summary));
        send(&mut a, &numbered(B, A, 1, 64));
        send(&mut a, &[9; 13]);
        assert_eq!(drain(&mut b), [numbered(B, A, 1, 64)]);
    });
    let bytes = log.0.lock().expect("no panic").clone();
    String::from_utf8(bytes).expect("text")
}

#[test]
fn each_frame_is_one_line_with_port_direction_and_summary() {
    let text = log_at(Level::TRACE);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("xroce_port::frame")).collect();
    assert_eq!(lines.len(), 3, "{text}");
    let summary = "02:00:00:00:00:01 > 02:00:00:00:00:02 type 0x88b5";
    for part in [summary, "port=\"left\"", "dir=\"tx\"", "len=64", "at_ns=0"] {
        assert!(lines[0].contains(part), "{part} is not in {}", lines[0]);
    }
    assert!(lines[1].contains("13 bytes: no Ethernet header"), "{}", lines[1]);
    assert!(lines[2].contains("port=\"right\"") && lines[2].contains("dir=\"rx\""), "{}", lines[2]);
}

#[test]
fn nothing_is_written_when_nobody_listens() {
    assert!(!log_at(Level::DEBUG).contains("xroce_port::frame"));
}
