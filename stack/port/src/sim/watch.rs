//! What happens to frames, for those who look on: events, a hash over all of them, and a capture with comments.

use super::NodeId;
use crate::pcap::Capture;
use crate::{Direction, RxFrame};

/// Why the network lost a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The model's independent loss.
    Random,
    /// The model's loss in bursts.
    Burst,
    /// The queue in front of the wire was full.
    Queue,
    /// The IP packet is longer than the link's MTU.
    Mtu,
    /// The link, or the carrier of one end, is down.
    Down,
    /// No other node has the destination address, or the frame is shorter than an Ethernet header.
    Unroutable,
    /// The receiver's ring was full.
    RxRing,
    /// The frame is longer than the receiver takes.
    TooLong,
}

/// What happened to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum What {
    /// A node sent it. A group frame is sent once to each other node.
    Sent,
    /// It lies in the receiver's ring.
    Delivered,
    /// It is gone.
    Lost(Loss),
    /// A copy of it is on its way too.
    Duplicated,
    /// This many bits of it were flipped.
    Corrupted(u32),
    /// It is held back, others may overtake it.
    HeldBack,
}

/// One thing that happened to one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NetEvent<'a> {
    /// When, in nanoseconds of the network's time.
    pub at_ns: u64,
    /// The node that sent the frame.
    pub from: NodeId,
    /// The node it goes to; `None` for one that is [`Loss::Unroutable`].
    pub to: Option<NodeId>,
    /// What happened.
    pub what: What,
    /// The frame, from the Ethernet header on, as it is after what happened.
    pub frame: &'a [u8],
}

/// A hash over a sequence of events: two runs with the same hash did the same. FNV-1a, the same on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> TraceHash {
        TraceHash(0xcbf2_9ce4_8422_2325)
    }
}

impl TraceHash {
    /// Takes an event in: all fields and every byte of the frame.
    pub fn event(&mut self, event: &NetEvent<'_>) {
        let (what, detail) = match event.what {
            What::Sent => (0, 0),
            What::Delivered => (1, 0),
            What::Lost(loss) => (2, loss as u64),
            What::Duplicated => (3, 0),
            What::Corrupted(bits) => (4, u64::from(bits)),
            What::HeldBack => (5, 0),
        };
        let to = event.to.map_or(u64::MAX, |to| u64::from(to.index()));
        for word in [event.at_ns, u64::from(event.from.index()), to, what, detail, event.frame.len() as u64] {
            self.bytes(&word.to_le_bytes());
        }
        self.bytes(event.frame);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The hash so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0
    }
}

/// An observer for [`SimNet::observe`](super::SimNet::observe) that writes the whole network to a capture, under one
/// interface: a frame as it was sent (outbound) and as it was delivered (inbound), and once more with a comment for all
/// that befell it between.
pub fn into_capture(capture: &Capture, name: &str) -> impl FnMut(&NetEvent<'_>) + Send + 'static {
    let capture = capture.clone();
    let interface = capture.add_interface(name, None);
    move |event| {
        let (direction, comment) = match event.what {
            What::Sent => (Direction::Tx, String::new()),
            What::Delivered => (Direction::Rx, String::new()),
            what => {
                let to = event.to.map_or("nobody".to_owned(), |to| format!("node {}", to.index()));
                (Direction::Tx, format!("{what:?} on the way from node {} to {to}", event.from.index()))
            }
        };
        let frame = RxFrame { head: event.frame, tail: &[] };
        capture.record(interface, direction, event.at_ns, &frame, &comment);
    }
}
