//! Captures of what a port carries, in pcapng.
//!
//! What enters: frames in both directions. What leaves: the same frames, and a capture that Wireshark and tshark read:
//! one interface block per port, nanosecond times, the direction in each packet's flags, and a comment where a fault
//! was injected or where the engine dropped the frame, and why. Several ports may write to one [`Capture`].
//!
//! A received frame is written when it is released, with the time of its burst: until then a wrapper above may add a
//! note to it through the [`Tap`].

#![forbid(unsafe_code)]

mod writer;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

pub use writer::{Capture, CaptureStatus, InterfaceId};

use crate::staging::Staging;
use crate::{Direction, Layer, Port, RxFrame, TxClass, TxFrame};

/// A port whose frames are written to a [`Capture`].
///
/// Times are the port's virtual time where it has one, else the system clock's.
#[derive(Debug)]
pub struct Pcap<P: Port> {
    port: P,
    tap: Tap,
    staging: Staging,
    /// Frames of the burst that is lent, and when it came.
    lent: usize,
    lent_at_ns: u64,
}

/// A second way into the capture of one [`Pcap`], for a wrapper above it that knows more than the frames show.
#[derive(Debug, Clone)]
pub struct Tap {
    capture: Capture,
    interface: InterfaceId,
    notes: Arc<Mutex<Notes>>,
}

#[derive(Debug, Default)]
struct Notes {
    next_tx: Option<String>,
    rx: Vec<(usize, String)>,
}

impl Tap {
    /// The next transmitted frame is written with this comment.
    pub fn note_next_tx(&self, text: impl Into<String>) {
        self.notes().next_tx = Some(text.into());
    }

    /// The next frame did not come about.
    pub(crate) fn forget_tx_note(&self) {
        self.notes().next_tx = None;
    }

    /// Frame `i` of the burst that is lent now is written with this comment; several are joined.
    pub fn note_rx(&self, i: usize, text: impl Into<String>) {
        self.notes().rx.push((i, text.into()));
    }

    /// Writes a frame that does not pass the port, such as one that was dropped above it.
    pub fn record(&self, direction: Direction, at_ns: u64, frame: &RxFrame<'_>, comment: &str) {
        self.capture.record(self.interface, direction, at_ns, frame, comment);
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Port> Pcap<P> {
    /// Wraps `port` and adds an interface of this name to the capture.
    pub fn new(port: P, capture: &Capture, name: &str) -> Pcap<P> {
        let mac = port.capabilities().mac;
        let interface = capture.add_interface(name, Some(mac).filter(|mac| *mac != [0; 6]));
        let tap = Tap { capture: capture.clone(), interface, notes: Arc::default() };
        let staging = Staging::for_frames_up_to(port.capabilities().max_frame);
        Pcap { port, tap, staging, lent: 0, lent_at_ns: 0 }
    }

    /// Wraps `port` with a capture of its own.
    ///
    /// # Errors
    /// When the head of the capture cannot be written.
    pub fn to_sink(port: P, sink: impl io::Write + Send + 'static, name: &str) -> io::Result<Pcap<P>> {
        Ok(Pcap::new(port, &Capture::new(sink)?, name))
    }

    /// The capture, to look at its status or to add further ports.
    pub fn capture(&self) -> &Capture {
        &self.tap.capture
    }

    /// A way to add notes, for a wrapper above.
    pub fn tap(&self) -> Tap {
        self.tap.clone()
    }

    /// The port below.
    pub fn get_ref(&self) -> &P {
        &self.port
    }

    fn now_ns(&self) -> u64 {
        self.port.now_hint().unwrap_or_else(wall_clock_ns)
    }

    /// Writes the burst that is about to be given back.
    fn write_burst(&mut self) {
        if self.lent == 0 {
            return;
        }
        let mut notes = std::mem::take(&mut self.tap.notes().rx);
        // Stable: notes on one frame keep the order in which they were made.
        notes.sort_by_key(|(i, _)| *i);
        let mut notes = notes.into_iter().peekable();
        for i in 0..std::mem::take(&mut self.lent) {
            let mut comment = String::new();
            while let Some((_, text)) = notes.next_if(|(at, _)| *at <= i) {
                if !comment.is_empty() {
                    comment.push_str("; ");
                }
                comment.push_str(&text);
            }
            self.tap.record(Direction::Rx, self.lent_at_ns, &self.port.rx_frame(i), &comment);
        }
    }
}

/// Nanoseconds since 1970; 0 on a machine whose clock stands before that.
fn wall_clock_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl<P: Port> Layer for Pcap<P> {
    type Below = P;

    fn below(&self) -> &P {
        &self.port
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.port
    }

    fn rx_burst(&mut self, max: usize) -> usize {
        self.write_burst();
        self.lent = self.port.rx_burst(max);
        if self.lent > 0 {
            self.lent_at_ns = self.now_ns();
        }
        self.lent
    }

    fn rx_dropped(&mut self, i: usize, reason: &'static str) {
        self.tap.note_rx(i, format!("dropped: {reason}"));
        self.port.rx_dropped(i, reason);
    }

    fn rx_release(&mut self) {
        self.write_burst();
        self.port.rx_release();
    }

    fn tx_reserve(&mut self, len: usize, class: TxClass) -> Option<TxFrame<'_>> {
        self.staging.reserve(&mut self.port, len, class)
    }

    fn tx_commit(&mut self, len: usize) {
        let class = self.staging.take(len);
        let comment = self.tap.notes().next_tx.take().unwrap_or_default();
        self.tap.record(Direction::Tx, self.now_ns(), &self.staging.frame(len), &comment);
        self.staging.send_granted(&mut self.port, len, class);
    }
}

impl<P: Port> Drop for Pcap<P> {
    fn drop(&mut self) {
        self.write_burst();
        self.tap.capture.flush();
    }
}
