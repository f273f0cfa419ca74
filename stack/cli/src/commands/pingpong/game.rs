//! The game itself: a message goes to the peer, comes back, and so on.
//!
//! In: a device and what to play. Out: a queue pair to connect, then the time that the exchanges took.

use std::io;
use std::time::{Duration, Instant};

use xroce::{
    Access, Buffer, CompChannel, ConnectError, ConnectOptions, Context, Cq, CreateCqError, CreateQpError, EventError,
    ModifyError, Mr, NoChannel, OutOfRange, Overrun, PAGE, PdError, PostChainError, Psn, Qp, QpCap, QpEndpoint,
    QpInitAttr, QpType, RecvWr, RegMrError, SendFlags, SendOp, SendWr, Wc, WrId,
};

use super::address::Address;
use super::{Args, Side};
use crate::idle::Idle;

/// Numbers of the work requests, as in the originals; together they say what is outstanding.
const RECV: u64 = 1;
const SEND: u64 = 2;

/// What the buffer is filled with, as in the originals.
const FILL: u8 = 0x7b;

/// Why the game could not be played.
#[derive(Debug, thiserror::Error)]
pub enum GameError {
    /// No protection domain.
    #[error("Couldn't allocate PD: {0}")]
    Pd(#[from] PdError),
    /// No memory region.
    #[error("Couldn't register MR: {0}")]
    Mr(#[from] RegMrError),
    /// No completion channel.
    #[error("Couldn't create completion channel: {0}")]
    Channel(io::Error),
    /// No completion queue.
    #[error("Couldn't create CQ: {0}")]
    Cq(#[from] CreateCqError),
    /// No queue pair.
    #[error("Couldn't create QP: {0}")]
    Qp(#[from] CreateQpError),
    /// No way to INIT.
    #[error("Failed to modify QP to INIT: {0}")]
    Init(ModifyError),
    /// No way to the peer.
    #[error("Couldn't connect to remote QP: {0}")]
    Connect(#[from] ConnectError),
    /// A receive was not taken.
    #[error("Couldn't post receive ({posted}): {source}")]
    Receive {
        /// How many were posted.
        posted: u32,
        /// Why not more.
        source: PostChainError,
    },
    /// A send was not taken.
    #[error("Couldn't post send: {0}")]
    Send(PostChainError),
    /// No notification.
    #[error("Couldn't request CQ notification: {0}")]
    Notify(#[from] NoChannel),
    /// No event.
    #[error("Failed to get cq_event: {0}")]
    Event(#[from] EventError),
    /// The queue died.
    #[error("poll CQ failed: {0}")]
    Poll(#[from] Overrun),
    /// The buffer is smaller than the message.
    #[error(transparent)]
    Buffer(#[from] OutOfRange),
}

/// Everything one player has.
pub struct Player {
    qp: Qp,
    cq: Cq,
    channel: Option<CompChannel>,
    mr: Mr,
    size: u32,
    rx_depth: u32,
    options: ConnectOptions,
    /// RECVs outstanding.
    posted: u32,
    /// RECV and SEND as far as they are outstanding.
    pending: u64,
    sent: u32,
    received: u32,
}

/// How a game ended.
pub enum Ending {
    /// All exchanges took place.
    Played(Duration),
    /// A work request failed.
    Failed(Wc),
}

impl Player {
    /// Makes everything up to a queue pair in INIT with its RECVs posted.
    pub fn new(context: &Context, kind: QpType, args: &Args, gid_index: u8, psn: Psn) -> Result<Player, GameError> {
        let channel = if args.events { Some(context.create_comp_channel().map_err(GameError::Channel)?) } else { None };
        let pd = context.alloc_pd()?;
        let mr = pd.reg_mr(Buffer::zeroed((args.size as usize).max(1)), Access::LOCAL_WRITE)?;
        mr.fill(FILL);
        let cqe = args.rx_depth.saturating_add(1);
        let cq = match &channel {
            Some(channel) => context.create_cq_on(cqe, channel)?,
            None => context.create_cq(cqe)?,
        };
        let cap =
            QpCap { max_send_wr: 1, max_recv_wr: args.rx_depth, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        let init = QpInitAttr { qp_type: kind, send_cq: &cq, recv_cq: &cq, cap, sq_sig_all: false };
        let qp = pd.create_qp(&init)?;
        let options = ConnectOptions {
            gid_index,
            path_mtu: Some(args.mtu),
            psn,
            access: Access::empty(),
            sl: args.sl,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            ..ConnectOptions::default()
        };
        qp.to_init(&options).map_err(GameError::Init)?;
        let (size, rx_depth) = (args.size, args.rx_depth);
        let (posted, pending, sent, received) = (0, 0, 0, 0);
        let mut player = Player { qp, cq, channel, mr, size, rx_depth, options, posted, pending, sent, received };
        player.post_recvs()?;
        if player.channel.is_some() {
            player.cq.req_notify(false)?;
        }
        Ok(player)
    }

    /// What the peer must be told.
    pub fn address(&self, gid: xroce::Gid) -> Address {
        Address { lid: 0, qpn: self.qp.qpn(), psn: self.options.psn, gid }
    }

    /// To RTS.
    pub fn connect(&self, to: &Address) -> Result<(), GameError> {
        let remote = QpEndpoint { gid: to.gid, qpn: to.qpn, psn: to.psn };
        Ok(self.qp.connect(&remote, &self.options)?)
    }

    /// Makes the memory ready for a checked game. To be called before the other side can know of us: what it sends may be placed
    /// at any time from then on.
    pub fn mark(&self, side: Side) -> Result<(), GameError> {
        match side {
            Side::Client => self.mark_pages(),
            // Bytes that never arrive must not look as if they had.
            Side::Server => {
                self.mr.fill(!FILL);
                Ok(())
            }
        }
    }

    /// Plays `iters` exchanges; the client has the first move.
    pub fn play(&mut self, side: Side, iters: u32) -> Result<Ending, GameError> {
        self.pending = RECV;
        if side == Side::Client {
            self.send()?;
        }
        let start = Instant::now();
        let mut wcs = [Wc::default(); 2];
        let mut idle = Idle::default();
        while self.sent < iters || self.received < iters {
            self.sleep()?;
            loop {
                let count = self.cq.poll(&mut wcs)?;
                for wc in &wcs[..count] {
                    if !wc.status.is_success() {
                        return Ok(Ending::Failed(*wc));
                    }
                    self.handle(wc, iters)?;
                }
                match (count, &self.channel) {
                    // Once woken, everything that is there is taken.
                    (0, Some(_)) => break,
                    (0, None) => idle.nothing(),
                    (_, None) => {
                        idle.found();
                        break;
                    }
                    _ => {}
                }
            }
        }
        Ok(Ending::Played(start.elapsed()))
    }

    /// With `-e`, waits for an event and arms the queue again.
    fn sleep(&self) -> Result<(), GameError> {
        if let Some(channel) = &self.channel {
            channel.get_cq_event(None)?;
            self.cq.req_notify(false)?;
        }
        Ok(())
    }

    fn handle(&mut self, wc: &Wc, iters: u32) -> Result<(), GameError> {
        if wc.wr_id.0 == RECV {
            self.received += 1;
            self.posted -= 1;
            if self.posted <= 1 {
                self.post_recvs()?;
            }
        } else {
            self.sent += 1;
        }
        self.pending &= !wc.wr_id.0;
        if self.sent < iters && self.pending == 0 {
            self.send()?;
        }
        Ok(())
    }

    fn post_recvs(&mut self) -> Result<(), GameError> {
        let sges = [self.mr.sge(0..self.size as usize)?];
        while self.posted < self.rx_depth {
            let wr = RecvWr { wr_id: WrId(RECV), sges: &sges };
            self.qp.post_recv(&wr).map_err(|source| GameError::Receive { posted: self.posted, source })?;
            self.posted += 1;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), GameError> {
        let sges = [self.mr.sge(0..self.size as usize)?];
        let wr = SendWr { wr_id: WrId(SEND), op: SendOp::Send, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] };
        self.qp.post_send(&wr).map_err(GameError::Send)?;
        self.pending = RECV | SEND;
        Ok(())
    }

    /// What the client of a checked game sends: 0 in the first byte of each page, as the originals do.
    fn mark_pages(&self) -> Result<(), GameError> {
        for page in (0..self.size as usize).step_by(PAGE) {
            self.mr.write_at(page, &[0])?;
        }
        Ok(())
    }

    /// The pages whose bytes are not what the client of a checked game sends.
    pub fn bad_pages(&self) -> Result<Vec<usize>, GameError> {
        let mut bad = Vec::new();
        let mut bytes = [0; PAGE];
        for (page, start) in (0..self.size as usize).step_by(PAGE).enumerate() {
            let bytes = &mut bytes[..PAGE.min(self.size as usize - start)];
            self.mr.read_at(start, bytes)?;
            if bytes[0] != 0 || bytes[1..].iter().any(|&byte| byte != FILL) {
                bad.push(page);
            }
        }
        Ok(bad)
    }
}
