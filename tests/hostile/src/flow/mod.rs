//! Traffic that checks itself: every operation of a queue pair, both ways, each byte and each count compared.
//!
//! In: a device, a shape, the peer's [`Offer`]. Out: completions, or the [`Failure`] that ended it. An [`End`] is one queue pair
//! with the [`Sender`] of its requests and the [`Receiver`] of the peer's.

mod load;
mod receiver;
mod sender;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use xroce::{
    Access, ConnectOptions, Context, Mr, Psn, Qp, QpAttr, QpEndpoint, QpInitAttr, QpState, QpType, RemoteMr, Sge, Wc,
    WcStatus,
};

pub use load::Load;
pub use receiver::Receiver;
pub use sender::Sender;

/// How large a flow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// RC or UC.
    pub kind: QpType,
    /// Bytes of the longest message, a multiple of 8, at least 64.
    pub max_len: usize,
    /// Requests outstanding.
    pub depth: usize,
}

/// RECVs posted.
const RECVS: usize = 32;
/// Places that WRITEs with immediate go to in turn: more than the RECVs that let them through, so that none is written over
/// before it was looked at.
const IMM_SLOTS: usize = 64;
/// The pattern that READs of the read-only part find.
const READ_SEED: u64 = 0x5eed_0f0f;
/// Every SEND begins with its number.
const NUMBER_LEN: usize = 8;

/// Where the parts of a receiver's memory lie, in bytes. Both ends must have the same shape.
#[derive(Debug, Clone, Copy)]
struct Layout {
    imm: usize,
    writes: usize,
    reads: usize,
    word: usize,
    total: usize,
}

impl Shape {
    fn layout(&self) -> Layout {
        let imm = RECVS * self.max_len;
        let writes = imm + IMM_SLOTS * self.max_len;
        let reads = writes + self.depth * self.max_len;
        let word = reads + self.read_area();
        Layout { imm, writes, reads, word, total: word + 8 }
    }

    /// Bytes of the read-only part.
    fn read_area(&self) -> usize {
        4 * self.max_len
    }
}

/// The pattern of message `number` of a kind that `salt` tells from others.
fn seed(salt: u64, number: u64) -> u64 {
    salt << 48 ^ number
}

const SEND_SALT: u64 = 1;
const IMM_SALT: u64 = 2;
const WRITE_SALT: u64 = 3;

/// Why a flow ended.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A request, or a RECV, did not succeed.
    #[error("QP {}: wr {} ended with status {} ({}), {:?}", .0.qpn, .0.wr_id.0, .0.status as u8, .0.status, .0.detail)]
    Completion(Wc),
    /// Bytes or counts are not what they must be.
    #[error("wrong contents: {0}")]
    Contents(String),
    /// A call of the API was refused.
    #[error("{0}")]
    Call(String),
}

impl Failure {
    /// The status, if it is one of a completion.
    pub fn status(&self) -> Option<WcStatus> {
        match self {
            Failure::Completion(wc) => Some(wc.status),
            _ => None,
        }
    }
}

fn call<E: fmt::Display>(error: E) -> Failure {
    Failure::Call(error.to_string())
}

/// What the other end must know, as text between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The queue pair.
    pub endpoint: QpEndpoint,
    /// The receiver's memory.
    pub memory: RemoteMr,
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.endpoint, self.memory)
    }
}

impl FromStr for Offer {
    type Err = String;

    fn from_str(text: &str) -> Result<Offer, String> {
        let (endpoint, memory) = text.split_once('+').ok_or_else(|| format!("{text:?} is no offer"))?;
        let endpoint = endpoint.parse().map_err(|e| format!("{e}"))?;
        Ok(Offer { endpoint, memory: memory.parse().map_err(|e| format!("{e}"))? })
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    /// Its queue pair.
    pub qp: Arc<Qp>,
    /// The requests of this end.
    pub sender: Sender,
    /// The requests of the other end.
    pub receiver: Receiver,
    shape: Shape,
    options: ConnectOptions,
}

impl End {
    /// A queue pair in INIT with its RECVs posted, and memory for a flow of this shape.
    ///
    /// # Errors
    /// What the API refuses.
    pub fn new(context: &Context, shape: Shape, options: ConnectOptions) -> Result<End, Failure> {
        let pd = context.alloc_pd().map_err(call)?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        // Every page is touched now, so that memory which grows later is a leak.
        let register = |len: usize| pd.reg_mr(vec![0xa5u8; len], rights).map_err(call);
        let staging = register(shape.depth * shape.max_len)?;
        let memory = register(shape.layout().total)?;
        let send_cq = context.create_cq(2 * shape.depth as u32).map_err(call)?;
        let recv_cq = context.create_cq(2 * RECVS as u32).map_err(call)?;
        let mut init = QpInitAttr::new(shape.kind, &send_cq);
        init.recv_cq = &recv_cq;
        init.cap.max_send_wr = shape.depth as u32;
        init.cap.max_recv_wr = RECVS as u32;
        let qp = Arc::new(pd.create_qp(&init).map_err(call)?);
        let mut end = End {
            sender: Sender::new(qp.clone(), send_cq, staging, shape),
            receiver: Receiver::new(qp.clone(), recv_cq, memory, shape),
            qp,
            shape,
            options,
        };
        end.ready()?;
        Ok(end)
    }

    /// To INIT, with RECVs.
    fn ready(&mut self) -> Result<(), Failure> {
        self.qp.to_init(&self.options).map_err(call)?;
        self.receiver.begin()
    }

    /// Begins anew from whatever state it is in, for another peer; `psn` is that of its first packet.
    ///
    /// # Errors
    /// What the API refuses.
    pub fn recycle(&mut self, psn: Psn) -> Result<(), Failure> {
        let reset = QpAttr { qp_state: Some(QpState::Reset), ..QpAttr::default() };
        self.qp.modify(&reset).map_err(call)?;
        self.options.psn = psn;
        self.sender.begin();
        self.ready()
    }

    /// What the other end must know.
    ///
    /// # Errors
    /// When the address of the options is gone.
    pub fn offer(&self) -> Result<Offer, Failure> {
        let endpoint = self.qp.endpoint(&self.options).map_err(call)?;
        Ok(Offer { endpoint, memory: self.receiver.memory().remote() })
    }

    /// To RTS. The shape of the other end must be the same.
    ///
    /// # Errors
    /// When there is no way to the peer.
    pub fn connect(&mut self, peer: &Offer) -> Result<(), Failure> {
        self.qp.connect(&peer.endpoint, &self.options).map_err(call)?;
        self.sender.aim(peer.memory);
        Ok(())
    }

    /// What it was made for.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// One round of both directions: what completed here or arrived here.
    ///
    /// # Errors
    /// The first [`Failure`]. Of a queue pair that failed, the request that it failed for, not a RECV that was flushed with it.
    pub fn step(&mut self) -> Result<u64, Failure> {
        let done = self.sender.step()?;
        match self.receiver.step() {
            Ok(arrived) => Ok(done + arrived),
            Err(failure) if failure.status() == Some(WcStatus::WrFlushErr) => {
                self.sender.step()?;
                Err(failure)
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Connects two ends of the same process. On UC the sender then knows what has arrived, and never overruns the receiver.
///
/// # Errors
/// When there is no way from one to the other.
pub fn join(a: &mut End, b: &mut End) -> Result<(), Failure> {
    let (of_a, of_b) = (a.offer()?, b.offer()?);
    a.connect(&of_b)?;
    b.connect(&of_a)?;
    a.sender.watch(b.receiver.seen());
    b.sender.watch(a.receiver.seen());
    Ok(())
}

/// Both ends in turn until each has completed `messages` requests more, with nothing outstanding.
///
/// # Errors
/// The first [`Failure`], or what stands still for longer than `patience`.
pub fn exchange(a: &mut End, b: &mut End, messages: u64, patience: std::time::Duration) -> Result<(), Failure> {
    for end in [&mut *a, &mut *b] {
        end.sender.stop_after(messages);
    }
    let mut last = std::time::Instant::now();
    while !(a.sender.is_done() && b.sender.is_done()) {
        if a.step()? + b.step()? > 0 {
            last = std::time::Instant::now();
        } else if last.elapsed() > patience {
            let text = format!("nothing moved for {patience:?}: {:?} and {:?}", a.sender, b.sender);
            return Err(Failure::Contents(text));
        } else {
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Shared between the two directions of a connection inside one process: the number behind the last message that arrived.
pub(crate) type Seen = Arc<AtomicU64>;

fn piece(mr: &Mr, at: usize, len: usize) -> Result<Sge, Failure> {
    mr.sge(at..at + len).map_err(call)
}
