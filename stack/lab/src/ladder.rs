//! A ladder: what two ends sent each other, in the order of time, with what each of them was in the middle of.
//!
//! In: steps, one after the other. Out: the value that text and page are made from. Indices of ends are 0 and 1, of
//! packets and steps from 0; people see packets counted from 1.

use xroce_transport::qp::state::QpState;
use xroce_transport::qp::{NakState, QpSnapshot, RequesterSnapshot, ResponderSnapshot};
use xroce_wire::Qpn;

/// Everything there is to show.
#[derive(Debug, Clone, Default)]
pub struct Ladder {
    /// What it is called on the command line.
    pub name: String,
    /// What it is called by people.
    pub title: String,
    /// What happens and why, a paragraph each.
    pub about: Vec<String>,
    /// What went wrong, where that is known.
    pub findings: Vec<Finding>,
    /// What to look at.
    pub look: Vec<String>,
    /// Settings worth knowing: name and value.
    pub facts: Vec<(&'static str, String)>,
    /// The two ends.
    pub ends: [End; 2],
    /// Packets, in the order in which they were sent.
    pub packets: Vec<Packet>,
    /// What happened, in order.
    pub steps: Vec<Step>,
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// In a sentence or two.
    pub text: String,
    /// The step where it shows.
    pub step: Option<usize>,
}

/// One of the two ends.
#[derive(Debug, Clone, Default)]
pub struct End {
    /// One letter or word.
    pub name: String,
    /// Its IP address; may be empty.
    pub address: String,
    /// Its queue pair, where there is one.
    pub qpn: Option<Qpn>,
}

impl Ladder {
    /// What a packet is numbered with: in the file that it comes from, or from 1 on.
    pub fn number(&self, packet: usize) -> u64 {
        self.packets[packet].frame.unwrap_or(packet as u64 + 1)
    }
}

/// A packet, from the IP header on.
#[derive(Debug, Clone)]
pub struct Packet {
    /// The end that sent it.
    pub from: usize,
    /// The bytes as they were sent.
    pub sent: Vec<u8>,
    /// What became of it.
    pub fate: Fate,
    /// It was sent before, and is now sent again.
    pub again: bool,
    /// Its number in the file that it comes from, if it does.
    pub frame: Option<u64>,
}

/// What became of a packet on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrived.
    Delivered,
    /// It did not.
    Lost,
    /// It arrived twice.
    Duplicated,
    /// It arrived with this bit flipped, counted from the most significant bit of the IP header's first byte.
    Corrupted(usize),
    /// It was seen once, where a capture was taken, or takes no time.
    Captured,
}

/// One thing that happened at one end.
#[derive(Debug, Clone)]
pub struct Step {
    /// When, in nanoseconds from the start.
    pub at_ns: u64,
    /// Where.
    pub end: usize,
    /// What.
    pub what: What,
    /// What followed from it at once, at the same end.
    pub effects: Vec<Effect>,
    /// What somebody who learns should notice.
    pub note: Option<String>,
    /// Both ends after it; `None` where nobody knows.
    pub states: [Option<State>; 2],
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The application called a verb.
    Call(String),
    /// A packet left.
    Sent(usize),
    /// A packet arrived; `copy` is true for the second one of a duplicated packet.
    Arrived {
        /// Which packet.
        packet: usize,
        /// The network had doubled it, and this is the second.
        copy: bool,
    },
    /// A packet went by: where a capture was taken, or without taking time.
    Captured(usize),
    /// A timer ran out.
    Timer(String),
}

/// What followed from a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The packet changed nothing, for this reason.
    Dropped(&'static str),
    /// The request had been answered before, and is answered again.
    Duplicate,
    /// A completion: whose, its status in words, and whether that is success.
    Completion {
        /// The application's number.
        wr_id: u64,
        /// Its queue: send or receive.
        recv: bool,
        /// The verbs status.
        status: String,
        /// Whether it did what it should.
        success: bool,
    },
    /// An asynchronous event.
    Event(&'static str),
    /// The queue pair changed its state.
    State {
        /// What it was in.
        from: QpState,
        /// What it is in.
        to: QpState,
    },
    /// A call was refused.
    Refused(String),
    /// The memory that is watched changed: old and new value.
    Memory {
        /// Before.
        from: u64,
        /// After.
        to: u64,
    },
}

/// One end at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Its queue pair.
    pub qp: QpSnapshot,
    /// Its settings: retry_cnt and rnr_retry.
    pub retries: (u8, u8),
    /// Its send requests, oldest first.
    pub sends: Vec<Request>,
    /// Its RECVs, oldest first.
    pub recvs: Vec<Request>,
    /// The memory word that the ladder watches at this end.
    pub memory: Option<u64>,
}

/// A work request and how far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The application's number.
    pub wr_id: u64,
    /// What it does.
    pub op: &'static str,
    /// Bytes.
    pub len: u32,
    /// How far it is.
    pub progress: Progress,
}

/// How far a work request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Posted, not looked at yet.
    Posted,
    /// A RECV that a message is coming into.
    InUse,
    /// On the wire: first PSN, PSNs in all, sent at least once, acknowledged.
    Started {
        /// PSN of its first packet.
        first: u32,
        /// PSN of its last packet.
        last: u32,
        /// PSNs that it takes.
        psns: u32,
        /// How many were sent.
        sent: u32,
        /// How many are acknowledged.
        acked: u32,
    },
    /// Completed, with this status.
    Done {
        /// The verbs status.
        status: String,
        /// Whether it did what it should.
        success: bool,
    },
    /// Forgotten by RESET, without a completion.
    Forgotten,
}

/// A time as people read it, always with the same number of digits: microseconds.
pub fn time(ns: u64) -> String {
    format!("{}.{:03}", group(ns / 1000), ns % 1000)
}

/// Digits in groups of three, by narrow spaces.
fn group(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A line of the table beside the ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Both halves.
    Pair,
    /// The sending half.
    Requester,
    /// The receiving half.
    Responder,
}

/// The names of the lines of [`state_lines`], what they belong to, and what they mean.
pub const STATE_NAMES: [(Section, &str, &str); 17] = [
    (Section::Pair, "QP state", "RESET, INIT, RTR, RTS, SQD, SQE or ERR."),
    (Section::Requester, "next PSN", "PSN of the next packet it sends. It steps back when packets must be sent again."),
    (Section::Requester, "oldest unacked", "The oldest PSN that no response has acknowledged."),
    (
        Section::Requester,
        "in flight",
        "Request packets sent and not acknowledged, and the window: how many there may be.",
    ),
    (Section::Requester, "READs, atomics", "READs and atomics that wait for their response, and max_rd_atomic."),
    (Section::Requester, "credits", "SSN: requests started. LSN: how far RECVs at the peer are known to reach."),
    (Section::Requester, "ACK timer", "When it expires. It runs while a packet that asked for an answer has none."),
    (Section::Requester, "RNR wait", "Until when it sends nothing, since the peer had no RECV."),
    (Section::Requester, "retries left", "Resends without progress before the request fails (retry_cnt)."),
    (
        Section::Requester,
        "RNR retries left",
        "RNR waits without progress before the request fails (rnr_retry); 7 means for ever.",
    ),
    (Section::Responder, "ePSN", "The PSN that the next new request must have."),
    (Section::Responder, "MSN", "Messages done; it goes out in every ACK and NAK."),
    (Section::Responder, "NAK pending", "After a NAK it stays silent until the expected PSN comes."),
    (Section::Responder, "open message", "Bytes of a message whose last packet has not come."),
    (Section::Responder, "RECVs posted", "Receive requests that wait for a message."),
    (Section::Responder, "answers kept", "READs and atomics that it can answer again when a duplicate comes."),
    (Section::Responder, "memory word", "Eight bytes of this end's memory."),
];

/// The lines of the table beside the ladder, as [`STATE_NAMES`] calls them; empty ones do not apply.
pub fn state_lines(state: &State) -> [String; 17] {
    let QpSnapshot { requester: q, responder: p, .. } = &state.qp;
    let rc = p.msn.is_some();
    let sends = matches!(state.qp.state, QpState::Rts | QpState::Sqd | QpState::Sqe);
    let receives = !matches!(state.qp.state, QpState::Reset | QpState::Init);
    let only = |applies: bool, text: String| if applies { text } else { String::new() };
    [
        state.qp.state.to_string(),
        only(sends, q.next_psn.value().to_string()),
        only(sends && rc, q.oldest_unacked.value().to_string()),
        only(sends && rc, format!("{} of {}", q.in_flight, q.window)),
        only(sends && rc, format!("{} of {}", q.rd_atomics, q.max_rd_atomic)),
        only(sends && rc, credits(q)),
        only(sends && rc, q.ack_deadline.map_or("off".into(), |at| format!("{} µs", time(at.0)))),
        only(sends && rc, q.rnr_wait.map_or("none".into(), |at| format!("until {} µs", time(at.0)))),
        only(sends && rc, format!("{} of {}", q.retries_left, state.retries.0)),
        only(sends && rc, format!("{} of {}", q.rnr_retries_left, state.retries.1)),
        only(receives, p.epsn.value().to_string()),
        only(receives, p.msn.map_or(String::new(), |msn| msn.value().to_string())),
        only(receives && rc, nak(p).into()),
        only(receives, p.open_message.map_or("none".into(), |bytes| format!("{bytes} B"))),
        state.qp.recvs.to_string(),
        only(receives && rc, p.kept.to_string()),
        state.memory.map_or(String::new(), |word| word.to_string()),
    ]
}

fn credits(q: &RequesterSnapshot) -> String {
    match q.credit_limit {
        None => "no limit".into(),
        Some(limit) => format!("SSN {}, LSN {}", q.ssn, limit.value()),
    }
}

fn nak(p: &ResponderSnapshot) -> &'static str {
    match p.nak {
        NakState::None => "none",
        NakState::Sequence => "sequence",
        NakState::Rnr => "RNR",
    }
}

impl Progress {
    /// In words.
    pub fn words(&self) -> String {
        match self {
            Progress::Posted => "posted".into(),
            Progress::InUse => "in use".into(),
            Progress::Started { first, last, psns, sent, acked } => {
                let range = if first == last { format!("PSN {first}") } else { format!("PSN {first} to {last}") };
                format!("{range}: {sent} sent, {acked} acked of {psns}")
            }
            Progress::Done { status, .. } => status.clone(),
            Progress::Forgotten => "forgotten".into(),
        }
    }
}

impl Effect {
    /// In words.
    pub fn words(&self) -> String {
        match self {
            Effect::Dropped(reason) => format!("dropped: {reason}"),
            Effect::Duplicate => "duplicate request: answered again".into(),
            Effect::Completion { wr_id, recv, status, .. } => {
                format!("CQE: {} {wr_id} {status}", if *recv { "RECV" } else { "WR" })
            }
            Effect::Event(name) => format!("event {name}"),
            Effect::State { from, to } => format!("{from} → {to}"),
            Effect::Refused(why) => format!("refused: {why}"),
            Effect::Memory { from, to } => format!("memory word {from} → {to}"),
        }
    }
}
