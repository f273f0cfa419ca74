//! What is going to happen in one run, as data: the whole scenario, before the first event.
//!
//! In: nothing. Out: values that [`generate`](crate::generate) fills from a seed, that `world` carries
//! out, and that [`shrink`](crate::shrink) makes smaller. A run is a function of its plan and of nothing else.

use xroce_port::sim::LinkModel;
use xroce_transport::qp::state::QpType;
use xroce_wire::PathMtu;

/// A scenario.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where it came from; also decides the fate of every frame.
    pub seed: u64,
    /// Two to five.
    pub nodes: Vec<NodePlan>,
    /// Connections between them.
    pub conns: Vec<ConnPlan>,
    /// What every link does to frames until [`heal_at`](Plan::heal_at).
    pub weather: LinkModel,
    /// Times at which a link is worse than that.
    pub outages: Vec<Outage>,
    /// What happens when, in order of time.
    pub steps: Vec<Step>,
    /// When all faults end, in nanoseconds.
    pub heal_at: u64,
    /// IPv6 addresses; else IPv4.
    pub ipv6: bool,
}

/// A machine.
#[derive(Clone, Debug)]
pub struct NodePlan {
    /// Frames that its port holds before the wire has taken them.
    pub tx_slots: usize,
    /// Nanoseconds that the wire takes for one frame.
    pub tx_ns: u64,
    /// Received and sent frames come in two pieces, cut here; at least [`MIN_SPLIT`].
    pub split: usize,
    /// Nanoseconds from something happening until the application looks at its CQs.
    pub poll_ns: u64,
    /// The application looks only when a CQ that it armed wakes it.
    pub armed: bool,
    /// Completions that its CQ holds.
    pub cqe: u32,
    /// Request packets a queue pair may have unacknowledged.
    pub window: u32,
    /// AckReq at least every so many packets.
    pub ack_every: u32,
    /// ACKs carry the number of free RECVs.
    pub credits: bool,
}

/// All headers lie in the first piece of a frame.
pub const MIN_SPLIT: usize = 128;

/// Two queue pairs, or one that is connected to itself.
#[derive(Clone, Debug)]
pub struct ConnPlan {
    /// RC or UC.
    pub kind: QpType,
    /// Bytes of payload in a full packet.
    pub mtu: PathMtu,
    /// Its ends; one for a queue pair that is its own peer.
    pub ends: Vec<EndPlan>,
    /// A new connection after a failure uses the same queue pairs, by way of RESET.
    pub by_reset: bool,
    /// Bytes that the peer may write to, at each end.
    pub target: u32,
    /// Bytes of a RECV.
    pub recv_len: u32,
}

/// One queue pair and the application behind it.
#[derive(Clone, Debug)]
pub struct EndPlan {
    /// Which machine.
    pub node: usize,
    /// Its first PSN.
    pub psn: u32,
    /// Code of the ACK timer.
    pub timeout: u8,
    /// Resends without progress.
    pub retry_cnt: u8,
    /// Waits for a RECV without progress.
    pub rnr_retry: u8,
    /// Code of the wait that this end asks for.
    pub min_rnr_timer: u8,
    /// READs and atomics in flight.
    pub max_rd_atomic: u8,
    /// Those of the peer that it serves.
    pub max_dest_rd_atomic: u8,
    /// Send requests that the queue holds.
    pub send_depth: u32,
    /// RECVs that the application keeps posted.
    pub recv_depth: u32,
    /// The application posts no RECV before, in nanoseconds.
    pub recv_from: u64,
    /// Every send request makes a completion.
    pub sig_all: bool,
}

/// A link that loses frames for a while.
#[derive(Clone, Debug)]
pub struct Outage {
    /// Sender.
    pub from: usize,
    /// Receiver.
    pub to: usize,
    /// Begin, in nanoseconds.
    pub start: u64,
    /// End, in nanoseconds.
    pub end: u64,
    /// Probability that a frame is lost; 1 is a link that is down.
    pub loss: f64,
}

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub struct Step {
    /// Number in the plan as it was generated; also the `wr_id` of a request.
    pub id: u64,
    /// When, in nanoseconds.
    pub at: u64,
    /// What.
    pub act: Act,
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Act {
    /// The application of an end wants a request carried out.
    Post {
        /// Connection and end.
        end: EndId,
        /// What.
        work: Work,
    },
    /// An end's queue pair is moved to another state.
    Change {
        /// Connection and end.
        end: EndId,
        /// Where to.
        to: Change,
    },
    /// An end deregisters memory, and registers it again under another key.
    Rekey {
        /// Connection and end.
        end: EndId,
        /// Which.
        area: Area,
    },
    /// An end changes a registration in place.
    Rereg {
        /// Connection and end.
        end: EndId,
        /// Which.
        area: Area,
        /// What about it.
        what: Rereg,
    },
    /// An end's queue pair gets other attributes, where it is in SQD.
    Tune {
        /// Connection and end.
        end: EndId,
        /// Which.
        tune: Tune,
    },
    /// An end takes back what its queue pair allows the peer, or allows it again.
    Rights {
        /// Connection and end.
        end: EndId,
    },
    /// Both ends are taken down and connected anew.
    Reconnect {
        /// Connection.
        conn: usize,
    },
    /// A machine dies and comes back with nothing.
    Restart {
        /// Which.
        node: usize,
        /// Nanoseconds until it is back.
        down_ns: u64,
    },
}

/// One end of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndId {
    /// Index of the connection.
    pub conn: usize,
    /// 0 or 1.
    pub side: usize,
}

/// A state that the application asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Send queue drained, with an event.
    Sqd,
    /// Back from SQD or SQE.
    Rts,
    /// Error.
    Err,
    /// Reset.
    Reset,
}

/// What is changed about a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rereg {
    /// All rights are taken away, or given back.
    Rights,
    /// Another domain, or back to the first.
    Domain,
    /// The same memory once more, under another key.
    Translation,
}

/// Attributes that a queue pair may get in SQD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tune {
    /// Code of the ACK timer.
    pub timeout: u8,
    /// Resends without progress.
    pub retry_cnt: u8,
    /// Waits for a RECV without progress.
    pub rnr_retry: u8,
    /// Code of the wait that this end asks for.
    pub min_rnr_timer: u8,
    /// READs and atomics in flight; at most what the peer serves.
    pub max_rd_atomic: u8,
}

/// A registration of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Area {
    /// Where its messages come from and READs go to.
    Local,
    /// Where its RECVs go.
    Recv,
    /// What the peer reaches.
    Remote,
}

/// A request as the application thinks of it.
#[derive(Clone, Debug)]
pub struct Work {
    /// What to do.
    pub verb: Verb,
    /// Bytes.
    pub len: u32,
    /// Pieces of the scatter/gather list.
    pub pieces: u32,
    /// Make a completion.
    pub signaled: bool,
    /// Wait for earlier READs and atomics.
    pub fence: bool,
    /// Ask for a solicited event.
    pub solicited: bool,
    /// Bytes go into the request itself.
    pub inline: bool,
    /// What is wrong with it.
    pub flaw: Flaw,
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// SEND.
    Send,
    /// SEND with immediate.
    SendImm,
    /// SEND that invalidates a key of the peer.
    SendInv,
    /// WRITE to an offset of the target.
    Write(u32),
    /// WRITE with immediate.
    WriteImm(u32),
    /// READ of what nobody writes.
    ReadStock(u32),
    /// READ of an offset of the target.
    ReadTarget(u32),
    /// Compare and swap of a word that only this queue pair changes. `hit`: with the value it has.
    CmpSwap {
        /// Which word.
        word: u32,
        /// Compares with what the application believes is there.
        hit: bool,
    },
    /// Fetch and add of such a word.
    FetchAdd {
        /// Which word.
        word: u32,
    },
    /// Fetch and add of the word that all of a machine share; `bit` is nobody else's.
    SharedAdd {
        /// Which bit is added.
        bit: u32,
    },
}

impl Verb {
    /// It consumes a RECV of the peer.
    pub fn takes_recv(self) -> bool {
        matches!(self, Verb::Send | Verb::SendImm | Verb::SendInv | Verb::WriteImm(_))
    }

    /// It is answered by more than an ACK.
    pub fn is_rd_atomic(self) -> bool {
        matches!(self, Verb::ReadStock(_) | Verb::ReadTarget(_)) || self.is_atomic()
    }

    /// It is an atomic.
    pub fn is_atomic(self) -> bool {
        matches!(self, Verb::CmpSwap { .. } | Verb::FetchAdd { .. } | Verb::SharedAdd { .. })
    }
}

/// What is deliberately wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Nothing.
    None,
    /// A key that is nobody's.
    Key,
    /// The last byte lies behind the region.
    PastEnd,
    /// An atomic on an odd address.
    Misaligned,
    /// A SEND that is longer than the RECV.
    TooLong,
}
