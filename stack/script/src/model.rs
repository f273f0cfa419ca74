//! A script as a value.

use xroce_transport::memory::Access;
use xroce_transport::qp::state::{AddressVector, QpAttr, QpState, QpType};
use xroce_transport::wc::{WcOpcode, WcStatus};
use xroce_wire::{Gid, PathMtu, Psn, Qpn};

use crate::expr::{Data, Num};
use crate::names::{EventName, PostOp};
use crate::packet::PacketSpec;

/// One behaviour.
#[derive(Clone, Debug)]
pub struct Script {
    /// The file, as it was named.
    pub name: String,
    /// What stands before the first statement.
    pub head: Head,
    /// The connection, made before the first step.
    pub qp: QpSetup,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// Where a script can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Only where time is virtual: it counts on what the device makes of a burst, or measures more finely than a clock can.
    Here,
    /// Against any device of this repository: it looks at what no wire shows, or asks for what another need not do.
    Own,
    /// Against any device.
    Any,
}

/// The comment and the tags at the start of a script.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The comment: the rule in words.
    pub rule: String,
    /// Where the rule comes from: a section of the InfiniBand specification, a public report.
    pub source: String,
    /// Ids of the rules it covers.
    pub covers: Vec<String>,
    /// Where it can run.
    pub place: Option<Place>,
}

/// The queue pair of the device under test, and what its peer (the script) is.
#[derive(Clone, Debug)]
pub struct QpSetup {
    /// RC or UC.
    pub kind: QpType,
    /// The state it is brought to.
    pub state: QpState,
    /// The script's queue pair number.
    pub peer: Qpn,
    /// Path MTU.
    pub mtu: PathMtu,
    /// PSN of the device's first request.
    pub sq_psn: Psn,
    /// PSN of the script's first request.
    pub rq_psn: Psn,
    /// ACK timeout code.
    pub timeout: u8,
    /// Resends without progress.
    pub retry_cnt: u8,
    /// RNR waits without progress.
    pub rnr_retry: u8,
    /// RNR timer code that the device sends.
    pub min_rnr_timer: u8,
    /// READs and atomics the device may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics the script may have outstanding.
    pub max_dest_rd_atomic: u8,
    /// What the queue pair lets the peer do.
    pub access: Access,
    /// Depth of the send queue.
    pub sq: u32,
    /// Depth of the receive queue.
    pub rq: u32,
    /// Pieces of a work request.
    pub sges: u32,
    /// Inline bytes of a work request.
    pub inline: u32,
    /// Entries of each CQ.
    pub cq: u32,
    /// Every send request makes a completion.
    pub sig_all: bool,
    /// The device tells its free RECVs in ACKs.
    pub credits: bool,
    /// IPv6 on the wire.
    pub ipv6: bool,
    /// Traffic class of the address vector.
    pub tclass: u8,
    /// Hop limit of the address vector.
    pub hops: u8,
    /// Flow label of the address vector.
    pub flow: u32,
}

impl QpSetup {
    /// What the `qp` line of a script says when it says nothing.
    pub fn new(kind: QpType) -> QpSetup {
        QpSetup {
            kind,
            state: QpState::Rts,
            peer: Qpn::new(0x22),
            mtu: PathMtu::Mtu1024,
            sq_psn: Psn::new(100),
            rq_psn: Psn::new(500),
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            sq: 64,
            rq: 64,
            sges: 16,
            inline: 128,
            cq: 1024,
            sig_all: false,
            credits: false,
            ipv6: false,
            tclass: 0,
            hops: 64,
            flow: 0,
        }
    }

    /// What the step to `state` requires, and nothing else.
    pub fn required(&self, state: QpState) -> QpAttr {
        let rc = self.kind == QpType::Rc;
        let to = QpAttr { qp_state: Some(state), ..QpAttr::default() };
        match state {
            QpState::Init => {
                QpAttr { pkey_index: Some(0), port_num: Some(1), qp_access_flags: Some(self.access), ..to }
            }
            QpState::Rtr => QpAttr {
                ah_attr: Some(self.address_vector()),
                path_mtu: Some(self.mtu),
                dest_qp_num: Some(self.peer),
                rq_psn: Some(self.rq_psn),
                max_dest_rd_atomic: rc.then_some(self.max_dest_rd_atomic),
                min_rnr_timer: rc.then_some(self.min_rnr_timer),
                ..to
            },
            QpState::Rts => QpAttr {
                sq_psn: Some(self.sq_psn),
                timeout: rc.then_some(self.timeout),
                retry_cnt: rc.then_some(self.retry_cnt),
                rnr_retry: rc.then_some(self.rnr_retry),
                max_rd_atomic: rc.then_some(self.max_rd_atomic),
                ..to
            },
            _ => to,
        }
    }

    /// The steps that bring a new queue pair to its state.
    pub fn path_to_state(&self) -> impl Iterator<Item = QpAttr> {
        let steps = [QpState::Init, QpState::Rtr, QpState::Rts];
        steps.into_iter().filter(|state| *state as u8 <= self.state as u8).map(|state| self.required(state))
    }

    /// The path to the script. The target knows the addresses.
    pub fn address_vector(&self) -> AddressVector {
        AddressVector {
            dgid: Gid::UNSPECIFIED,
            sgid_index: 0,
            hop_limit: self.hops,
            traffic_class: self.tclass,
            flow_label: self.flow,
            sl: 0,
            port_num: 1,
            is_global: true,
        }
    }
}

/// A line that does something.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its number, from 1.
    pub line: u32,
    /// It as written, without time and comment.
    pub text: String,
    /// The comment behind it, and those on lines of their own before it; may be empty. In a `repeat` only the first round has it.
    pub comment: String,
    /// When, counted from the step before.
    pub when: When,
    /// What.
    pub action: Action,
}

/// A stretch of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delay {
    /// Nanoseconds.
    Ns(u64),
    /// Thousandths of the queue pair's ACK timeout.
    Timeout(u64),
    /// The time that an RNR timer code stands for.
    Rnr(u8),
}

/// When a step takes place: then exactly, or for what the device does, not before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct When {
    /// Not before.
    pub from: Delay,
    /// Not after; `None` leaves it to the target's slack.
    pub to: Option<Delay>,
}

/// What a step does or expects.
#[derive(Clone, Debug)]
pub enum Action {
    /// `mr`: the application registers memory.
    Register(MrSpec),
    /// `dereg`: it takes a registration back.
    Deregister(String),
    /// `set mem`: it writes to its memory.
    Set(Span, Data),
    /// `post_send`
    PostSend(PostSend),
    /// `post_recv`
    PostRecv(PostRecv),
    /// `modify`
    Modify(Modify),
    /// `arm`: the application waits for a completion; with `true` only for a solicited one.
    Arm(CqSide, bool),
    /// `<`: a packet to the device.
    In(PacketSpec),
    /// `>`: a packet that the device must send.
    Out(PacketSpec),
    /// `>*`: packets that the device may send before the next one that it must.
    Tolerate(PacketSpec),
    /// `wc`: a completion.
    Wc(WcSpec),
    /// `event`: an asynchronous event.
    Event(EventName),
    /// `silent`: the device sends nothing meanwhile.
    Silent,
    /// `no wc`: no completion is there.
    NoWc,
    /// `no event`: no event is there.
    NoEvent,
    /// `expect`: a value.
    Expect(Expect),
}

/// Which completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CqSide {
    /// That of the send queue.
    Send,
    /// That of the receive queue.
    Recv,
}

/// Memory that the application registers.
#[derive(Clone, Debug)]
pub struct MrSpec {
    /// Its name in the script.
    pub name: String,
    /// Bytes.
    pub len: u64,
    /// What may be done with it.
    pub rights: Access,
    /// Address by which it is named; `None`: the memory's own.
    pub iova: Option<u64>,
    /// What it holds at first.
    pub fill: Data,
    /// In another protection domain than the queue pair.
    pub foreign: bool,
    /// The registration must be refused.
    pub refused: Option<Refusal>,
}

/// A piece of a registered region: `name[start..end]`. It may reach out of the region, which is then the point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// The region.
    pub mr: String,
    /// First byte.
    pub start: u64,
    /// One behind the last byte.
    pub end: u64,
}

impl Span {
    /// Bytes.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// It has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// That a call must fail, and what its error must say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Refusal {
    /// Part of the error's text; empty: any.
    pub says: String,
}

/// A send request as the script states it.
#[derive(Clone, Debug)]
pub struct PostSend {
    /// The application's number.
    pub id: u64,
    /// What to do.
    pub op: PostOp,
    /// Where bytes come from, or go to.
    pub sges: Vec<Span>,
    /// With inline bytes: them.
    pub inline: Option<Vec<u8>>,
    /// A local key in place of those of the pieces.
    pub lkey: Option<Num>,
    /// The peer's address.
    pub va: u64,
    /// The peer's key.
    pub rkey: u32,
    /// Immediate data.
    pub imm: u32,
    /// Of an atomic: what is added or swapped in.
    pub swap_add: u64,
    /// Of an atomic: what the word must be.
    pub compare: u64,
    /// Waits for earlier READs and atomics.
    pub fence: bool,
    /// Asks for an event at the peer.
    pub solicited: bool,
    /// Makes no completion on success.
    pub unsignaled: bool,
    /// It must be refused.
    pub refused: Option<Refusal>,
}

/// A receive request as the script states it.
#[derive(Clone, Debug)]
pub struct PostRecv {
    /// The application's number.
    pub id: u64,
    /// Where bytes go.
    pub sges: Vec<Span>,
    /// A local key in place of those of the pieces.
    pub lkey: Option<Num>,
    /// It must be refused.
    pub refused: Option<Refusal>,
}

/// A modify call.
#[derive(Clone, Debug)]
pub struct Modify {
    /// The attributes; of `ah_attr` only whether it is there and its flags.
    pub attr: QpAttr,
    /// It must be refused.
    pub refused: Option<Refusal>,
}

/// A completion; what is `None` is not looked at.
#[derive(Clone, Debug)]
pub struct WcSpec {
    /// The application's number.
    pub id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What it was.
    pub opcode: Option<WcOpcode>,
    /// Bytes.
    pub len: Option<u32>,
    /// Immediate data; `Some` also asks for the flag.
    pub imm: Option<u32>,
    /// The key that the peer invalidated; `Some` also asks for the flag.
    pub inv: Option<Num>,
    /// The peer's queue pair.
    pub src_qp: Option<u32>,
}

/// How two numbers must compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// `==`
    Equal,
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
}

impl Compare {
    /// Whether `seen` is as it must be.
    pub fn holds(self, seen: u64, expected: u64) -> bool {
        match self {
            Compare::Equal => seen == expected,
            Compare::AtLeast => seen >= expected,
            Compare::AtMost => seen <= expected,
        }
    }
}

/// A value that must be so.
#[derive(Clone, Debug)]
pub enum Expect {
    /// A counter of the queue pair, if the target counts that.
    Counter(String, Compare, u64),
    /// Packets dropped for a reason, if the target counts that.
    Drop(String, Compare, u64),
    /// An attribute as query tells it.
    Attr(String, Compare, u64),
    /// The state.
    State(QpState),
    /// Memory contents.
    Memory(Span, Data),
}
