//! What is measured, and how much of it.
//!
//! In: options. Out: a plan that both ends carry out, also as the text in which the client tells it to the server.

use std::fmt;

use clap::ValueEnum;
use xroce::{PathMtu, QpType};

/// The tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Test {
    /// SEND, bytes and messages per second
    SendBw,
    /// RDMA WRITE, bytes and messages per second
    WriteBw,
    /// RDMA READ, bytes and messages per second
    ReadBw,
    /// Fetch and add, messages per second
    AtomicBw,
    /// SEND, half the round trip
    SendLat,
    /// RDMA WRITE, half the round trip; both ends watch their memory
    WriteLat,
    /// RDMA READ, the whole round trip
    ReadLat,
    /// Fetch and add, the whole round trip
    AtomicLat,
}

/// What a test sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// SEND to RECV.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// Fetch and add.
    Atomic,
}

impl Test {
    /// The name on the command line and in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Test::SendBw => "send_bw",
            Test::WriteBw => "write_bw",
            Test::ReadBw => "read_bw",
            Test::AtomicBw => "atomic_bw",
            Test::SendLat => "send_lat",
            Test::WriteLat => "write_lat",
            Test::ReadLat => "read_lat",
            Test::AtomicLat => "atomic_lat",
        }
    }

    /// What it sends.
    pub fn operation(self) -> Operation {
        match self {
            Test::SendBw | Test::SendLat => Operation::Send,
            Test::WriteBw | Test::WriteLat => Operation::Write,
            Test::ReadBw | Test::ReadLat => Operation::Read,
            Test::AtomicBw | Test::AtomicLat => Operation::Atomic,
        }
    }

    /// Whether it measures latency.
    pub fn is_lat(self) -> bool {
        matches!(self, Test::SendLat | Test::WriteLat | Test::ReadLat | Test::AtomicLat)
    }

    /// What a time is divided by: the round trip of SEND and WRITE is counted by half, as perftest does.
    pub fn trips(self) -> u32 {
        if matches!(self, Test::SendLat | Test::WriteLat) { 2 } else { 1 }
    }

    /// Bytes of a message unless told otherwise, as in perftest.
    pub fn usual_size(self) -> u32 {
        match self {
            Test::AtomicBw | Test::AtomicLat => 8,
            test if test.is_lat() => 2,
            _ => 65536,
        }
    }

    /// Messages of a QP unless told otherwise, as in perftest.
    pub fn usual_iters(self) -> u64 {
        if self == Test::WriteBw { 5000 } else { 1000 }
    }

    /// Up to which size a message is posted inline unless told otherwise, as in perftest.
    pub fn usual_inline(self) -> u32 {
        match self {
            Test::SendLat => 236,
            Test::WriteLat => 220,
            _ => 0,
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How long a test goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So many messages on each queue pair.
    Iters(u64),
    /// So many seconds.
    Seconds(u32),
}

/// Everything both ends must agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// What is measured.
    pub test: Test,
    /// On which service.
    pub service: QpType,
    /// Payload of a packet.
    pub mtu: PathMtu,
    /// Bytes of a message.
    pub size: u32,
    /// How long.
    pub length: Length,
    /// Queue pairs.
    pub qps: u32,
    /// Sends outstanding on each.
    pub tx_depth: u32,
    /// RECVs posted on each.
    pub rx_depth: u32,
    /// Up to which size messages are posted inline.
    pub inline: u32,
}

/// As text: fields in hexadecimal of fixed width with colons between, so that neither byte order nor the size of a type enters
/// into it. Test (2 digits), service (2), path MTU (4), size (8), iterations (16), seconds (8), queue pairs (8), depths (8
/// each), inline (8).
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { test, service, mtu, size, length, qps, tx_depth, rx_depth, inline } = self;
        let (iters, seconds) = match length {
            Length::Iters(iters) => (*iters, 0),
            Length::Seconds(seconds) => (0, *seconds),
        };
        let (test, service) = (*test as u8, u8::from(*service == QpType::Uc));
        write!(f, "{test:02x}:{service:02x}:{:04x}:{size:08x}:{iters:016x}:{seconds:08x}", mtu.bytes())?;
        write!(f, ":{qps:08x}:{tx_depth:08x}:{rx_depth:08x}:{inline:08x}")
    }
}

/// Digits of the fields.
const WIDTHS: [usize; 10] = [2, 2, 4, 8, 16, 8, 8, 8, 8, 8];

impl Plan {
    /// The plan that the text tells; None if it is not one.
    pub fn parse(text: &str) -> Option<Plan> {
        let fields: Vec<&str> = text.split(':').collect();
        if fields.len() != WIDTHS.len() || fields.iter().zip(WIDTHS).any(|(field, width)| field.len() != width) {
            return None;
        }
        let number = |i: usize| u64::from_str_radix(fields[i], 16).ok();
        let small = |i: usize| u32::try_from(number(i)?).ok();
        Some(Plan {
            test: *Test::value_variants().get(small(0)? as usize)?,
            service: *[QpType::Rc, QpType::Uc].get(small(1)? as usize)?,
            mtu: PathMtu::from_bytes(small(2)? as usize)?,
            size: small(3)?,
            length: match (number(4)?, small(5)?) {
                (0, seconds) => Length::Seconds(seconds),
                (iters, _) => Length::Iters(iters),
            },
            qps: small(6)?,
            tx_depth: small(7)?,
            rx_depth: small(8)?,
            inline: small(9)?,
        })
    }

    /// Whether messages are posted inline.
    pub fn is_inline(&self) -> bool {
        let incoming = matches!(self.test.operation(), Operation::Read | Operation::Atomic);
        !incoming && self.size <= self.inline
    }

    /// Messages in one post: enough to share its cost, few enough that the queue never runs dry.
    pub fn batch(&self) -> u32 {
        (self.tx_depth / 4).clamp(1, 32)
    }

    /// Messages of all queue pairs; None for a test that goes by time.
    pub fn messages(&self) -> Option<u64> {
        match self.length {
            Length::Iters(iters) => Some(iters.saturating_mul(u64::from(self.qps))),
            Length::Seconds(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            test: Test::AtomicLat,
            service: QpType::Uc,
            mtu: PathMtu::Mtu4096,
            size: 0x8000_0000,
            length: Length::Iters(0x0123_4567_89ab_cdef),
            qps: 3,
            tx_depth: 128,
            rx_depth: 512,
            inline: 236,
        }
    }

    #[test]
    fn the_text_tells_the_whole_plan() {
        let text = plan().to_string();
        assert_eq!(text, "07:01:1000:80000000:0123456789abcdef:00000000:00000003:00000080:00000200:000000ec");
        assert_eq!(Plan::parse(&text), Some(plan()));
        let timed = Plan { length: Length::Seconds(10), test: Test::SendBw, service: QpType::Rc, ..plan() };
        assert_eq!(Plan::parse(&timed.to_string()), Some(timed));
    }

    #[test]
    fn cut_text_is_no_plan() {
        let text = plan().to_string();
        for len in 0..text.len() {
            assert_eq!(Plan::parse(&text[..len]), None, "{len}");
        }
        assert_eq!(Plan::parse(&format!("{text}:00")), None);
        assert_eq!(Plan::parse(&text.replacen("07", "08", 1)), None);
    }

    #[test]
    fn the_number_of_a_test_is_its_place() {
        for (i, test) in Test::value_variants().iter().enumerate() {
            assert_eq!(*test as usize, i);
            assert_eq!(Test::from_str(test.name(), false), Ok(*test));
        }
    }
}
