//! Queue pairs.
//!
//! In: work requests and state changes. Out: entries in the queue pair's rings, a rung doorbell, a connected queue pair.
#![forbid(unsafe_code)]

use crate::connect::{ConnectOptions, QpEndpoint};
use crate::context::{ContextInner, NoSuchGid};
use crate::cq::{Cq, CqInner};
use crate::pd::{Pd, PdInner};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use xroce_engine::engine::{CreateError, ModifyError};
use xroce_engine::shard::Shard;
use xroce_engine::token::Broken;
use xroce_transport::QpCounters;
use xroce_transport::qp::state::{AddressVector, QpAttr, QpState, QpType, SharedState};
use xroce_transport::qp::{QpInfo, QpInit};
use xroce_transport::wq::{RqProducer, SqProducer};
use xroce_transport::wr::{PostError, QpCap, RecvWr, SendWr};
use xroce_wire::{PathMtu, Qpn};

/// What a queue pair is made from (`ibv_qp_init_attr`).
#[derive(Clone, Copy, Debug)]
pub struct QpInitAttr<'a> {
    /// RC or UC.
    pub qp_type: QpType,
    /// Where send completions go.
    pub send_cq: &'a Cq,
    /// Where receive completions go; may be the same.
    pub recv_cq: &'a Cq,
    /// Depths and sizes of its queues. What is granted is at least that.
    pub cap: QpCap,
    /// Every send request makes a completion, whatever its flags.
    pub sq_sig_all: bool,
}

impl<'a> QpInitAttr<'a> {
    /// A queue pair with both kinds of completions in one queue, 128 work requests deep on both sides, one piece each, and up
    /// to 64 bytes inline.
    pub fn new(qp_type: QpType, cq: &'a Cq) -> QpInitAttr<'a> {
        let cap = QpCap { max_send_wr: 128, max_recv_wr: 128, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 64 };
        QpInitAttr { qp_type, send_cq: cq, recv_cq: cq, cap, sq_sig_all: false }
    }
}

/// Why a queue pair was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateQpError {
    /// A capacity is more than the device has.
    #[error("{name} is {asked}; the device's limit is {max} (query_device)")]
    Cap {
        /// The field of [`QpCap`].
        name: &'static str,
        /// What was asked for.
        asked: u32,
        /// What there is.
        max: u32,
    },
    /// The completion queue was made from another device.
    #[error("the {which} completion queue belongs to another context than the protection domain")]
    ForeignCq {
        /// "send" or "receive".
        which: &'static str,
    },
    /// The engine refuses.
    #[error(transparent)]
    Engine(#[from] CreateError),
}

/// A queue pair (`ibv_qp`). Posting is safe from several threads: each queue has a lock of its own.
///
/// Dropping it destroys it: outstanding work vanishes without completions, and the peer's requests go unanswered. A peer that
/// should know better is told out of band; over the wire it finds out when its next request runs out of retries.
pub struct Qp {
    context: Arc<ContextInner>,
    shard: Arc<Shard>,
    qpn: Qpn,
    kind: QpType,
    cap: QpCap,
    max_msg_sz: u64,
    state: Arc<SharedState>,
    sq: Mutex<SqProducer>,
    rq: Mutex<RqProducer>,
    // Parents, kept alive.
    _pd: Arc<PdInner>,
    _send_cq: Arc<CqInner>,
    _recv_cq: Arc<CqInner>,
}

/// Why a chain of work requests stopped. The requests before `index` are posted and will run; the one at `index` and those behind
/// it are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("QP {qpn}, work request {index} of the chain: {reason}")]
pub struct PostChainError {
    /// The queue pair.
    pub qpn: Qpn,
    /// Place of the bad work request in the chain, from 0.
    pub index: usize,
    /// What is wrong with it.
    pub reason: PostReason,
}

/// Why a work request was not posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostReason {
    /// The state of the queue pair forbids it.
    #[error("cannot be posted in state {state}: {need}")]
    State {
        /// The state.
        state: QpState,
        /// What it takes.
        need: &'static str,
    },
    /// The queue or the request forbids it.
    #[error(transparent)]
    Request(#[from] PostError),
}

/// Why a queue pair was not connected.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// One of the steps was refused; the queue pair is in the state it had reached.
    #[error("step to {to}: {source}")]
    Step {
        /// The state to be reached.
        to: QpState,
        /// Why not.
        source: ModifyError,
    },
    /// No path MTU fits the port.
    #[error("{name} has an MTU of {mtu}, which leaves no room for even 256 bytes of payload; raise it to at least 352")]
    NoPathMtu {
        /// The netdev.
        name: String,
        /// Its MTU.
        mtu: u32,
    },
}

impl Qp {
    pub(crate) fn create(pd: &Pd, init: &QpInitAttr<'_>) -> Result<Qp, CreateQpError> {
        let context = pd.context().clone();
        for (which, cq) in [("send", init.send_cq), ("receive", init.recv_cq)] {
            if !cq.inner().belongs_to(&context) {
                return Err(CreateQpError::ForeignCq { which });
            }
        }
        check_cap(&init.cap, &context.engine.config().limits)?;
        let made = context.engine.create_qp(QpInit {
            kind: init.qp_type,
            pd: pd.raw(),
            send_cq: init.send_cq.inner().record().cq().clone(),
            recv_cq: init.recv_cq.inner().record().cq().clone(),
            cap: init.cap,
            sq_sig_all: init.sq_sig_all,
        })?;
        Ok(Qp {
            shard: made.shard,
            qpn: made.handle.qpn,
            kind: init.qp_type,
            cap: made.handle.cap,
            max_msg_sz: context.engine.config().limits.max_msg_sz,
            state: made.handle.state,
            sq: Mutex::new(made.handle.sq),
            rq: Mutex::new(made.handle.rq),
            _pd: pd.inner().clone(),
            _send_cq: init.send_cq.inner().clone(),
            _recv_cq: init.recv_cq.inner().clone(),
            context,
        })
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// RC or UC.
    pub fn qp_type(&self) -> QpType {
        self.kind
    }

    /// What its queues can hold: at least what was asked for.
    pub fn cap(&self) -> QpCap {
        self.cap
    }

    /// The state it is in.
    pub fn state(&self) -> QpState {
        self.state.load()
    }

    /// Posts one send work request (`ibv_post_send`): all of it or nothing. Returns as soon as it stands in the queue; inline
    /// bytes are copied by then.
    ///
    /// # Errors
    /// See [`PostReason`]; `index` is 0.
    #[inline]
    pub fn post_send(&self, wr: &SendWr<'_>) -> Result<(), PostChainError> {
        self.post_send_chain(std::slice::from_ref(wr))
    }

    /// Posts a chain of send work requests and rings the doorbell once.
    ///
    /// # Errors
    /// The first request that is refused ends the chain; those before it run. `index` says which it was.
    #[inline]
    pub fn post_send_chain(&self, wrs: &[SendWr<'_>]) -> Result<(), PostChainError> {
        let mut sq = self.lock_sends();
        let state = self.state.load();
        if !state.may_post_send() && !wrs.is_empty() {
            return Err(self.bad(0, PostReason::State { state, need: "a SEND needs RTS" }));
        }
        let memory = self.context.engine.memory();
        self.post_all(wrs, |wr| {
            sq.post(wr, self.max_msg_sz)?;
            wr.sges.iter().for_each(|sge| memory.expect(sge.lkey.0));
            Ok(())
        })
    }

    /// Posts one receive work request (`ibv_post_recv`).
    ///
    /// # Errors
    /// See [`PostReason`]; `index` is 0.
    #[inline]
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostChainError> {
        self.post_recv_chain(std::slice::from_ref(wr))
    }

    /// Posts a chain of receive work requests and rings the doorbell once.
    ///
    /// # Errors
    /// As [`post_send_chain`](Qp::post_send_chain).
    #[inline]
    pub fn post_recv_chain(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostChainError> {
        let mut rq = self.rq.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.state.load();
        if !state.may_post_recv() && !wrs.is_empty() {
            return Err(self.bad(0, PostReason::State { state, need: "a RECV needs INIT" }));
        }
        self.post_all(wrs, |wr| rq.post(wr))
    }

    fn post_all<W>(&self, wrs: &[W], mut post: impl FnMut(&W) -> Result<(), PostError>) -> Result<(), PostChainError> {
        for (index, wr) in wrs.iter().enumerate() {
            if let Err(error) = post(wr) {
                if index > 0 {
                    self.shard.ring(self.qpn);
                }
                return Err(self.bad(index, error.into()));
            }
        }
        if !wrs.is_empty() {
            self.shard.ring(self.qpn);
        }
        Ok(())
    }

    fn lock_sends(&self) -> MutexGuard<'_, SqProducer> {
        self.sq.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn bad(&self, index: usize, reason: PostReason) -> PostChainError {
        PostChainError { qpn: self.qpn, index, reason }
    }

    /// Changes state or attributes (`ibv_modify_qp`); an attribute that is `Some` is one whose mask bit is set. The step to RTR
    /// looks up the next hop and waits for it, for a bounded time; if there is none, the queue pair stays in INIT.
    ///
    /// # Errors
    /// See [`ModifyError`]; then nothing has changed.
    pub fn modify(&self, attr: &QpAttr) -> Result<(), ModifyError> {
        // RESET empties the queues: a post that has looked at the state already ends first, one that has not finds RESET. And a
        // post that finds RTS finds how many READs there may be.
        let reset = attr.qp_state == Some(QpState::Reset);
        let sends = (reset || attr.qp_state == Some(QpState::Rts)).then(|| self.lock_sends());
        let _recvs = reset.then(|| self.rq.lock().unwrap_or_else(PoisonError::into_inner));
        self.context.engine.modify_qp(&self.shard, self.qpn, attr)?;
        if let Some(max) = attr.max_rd_atomic {
            sends.unwrap_or_else(|| self.lock_sends()).set_max_rd_atomic(max);
        }
        Ok(())
    }

    /// What it is set to, and what it has done (`ibv_query_qp`).
    ///
    /// # Errors
    /// [`Broken`] after a poll thread panicked.
    pub fn query(&self) -> Result<QpInfo, Broken> {
        // It exists as long as this handle does.
        self.context.engine.query_qp(&self.shard, self.qpn)?.ok_or(Broken)
    }

    /// What it has done.
    ///
    /// # Errors
    /// [`Broken`] after a poll thread panicked.
    pub fn counters(&self) -> Result<QpCounters, Broken> {
        Ok(self.query()?.counters)
    }

    /// What the other side must be told to connect to this queue pair, with the address and PSN that `options` name.
    ///
    /// # Errors
    /// [`NoSuchGid`].
    pub fn endpoint(&self, options: &ConnectOptions) -> Result<QpEndpoint, NoSuchGid> {
        let gid = self.context.query_gid(options.gid_index)?;
        Ok(QpEndpoint { gid, qpn: self.qpn, psn: options.psn })
    }

    /// The step from RESET to INIT: from here on RECVs can be posted.
    ///
    /// # Errors
    /// See [`ModifyError`].
    pub fn to_init(&self, options: &ConnectOptions) -> Result<(), ModifyError> {
        self.modify(&QpAttr {
            qp_state: Some(QpState::Init),
            pkey_index: Some(0),
            port_num: Some(1),
            qp_access_flags: Some(options.access),
            ..QpAttr::default()
        })
    }

    /// The step from INIT to RTR: from here on the peer's requests are served.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn to_rtr(&self, remote: &QpEndpoint, options: &ConnectOptions) -> Result<(), ConnectError> {
        let path_mtu = match options.path_mtu {
            Some(mtu) => mtu,
            None => self.usual_path_mtu()?,
        };
        let rc = self.kind == QpType::Rc;
        let attr = QpAttr {
            qp_state: Some(QpState::Rtr),
            ah_attr: Some(AddressVector {
                dgid: remote.gid,
                sgid_index: options.gid_index,
                hop_limit: options.hop_limit,
                traffic_class: options.traffic_class,
                flow_label: options.flow_label,
                sl: options.sl,
                port_num: 1,
                is_global: true,
            }),
            path_mtu: Some(path_mtu),
            dest_qp_num: Some(remote.qpn),
            rq_psn: Some(remote.psn),
            max_dest_rd_atomic: rc.then_some(options.max_dest_rd_atomic),
            min_rnr_timer: rc.then_some(options.min_rnr_timer),
            ..QpAttr::default()
        };
        self.modify(&attr).map_err(|source| ConnectError::Step { to: QpState::Rtr, source })
    }

    /// The step from RTR to RTS: from here on work requests are sent.
    ///
    /// # Errors
    /// See [`ModifyError`].
    pub fn to_rts(&self, options: &ConnectOptions) -> Result<(), ModifyError> {
        let rc = self.kind == QpType::Rc;
        self.modify(&QpAttr {
            qp_state: Some(QpState::Rts),
            sq_psn: Some(options.psn),
            timeout: rc.then_some(options.timeout),
            retry_cnt: rc.then_some(options.retry_cnt),
            rnr_retry: rc.then_some(options.rnr_retry),
            max_rd_atomic: rc.then_some(options.max_rd_atomic),
            ..QpAttr::default()
        })
    }

    /// All three steps, from RESET or from INIT (where RECVs may have been posted) to RTS.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(&self, remote: &QpEndpoint, options: &ConnectOptions) -> Result<(), ConnectError> {
        let step = |to| move |source| ConnectError::Step { to, source };
        if self.state() == QpState::Reset {
            self.to_init(options).map_err(step(QpState::Init))?;
        }
        self.to_rtr(remote, options)?;
        self.to_rts(options).map_err(step(QpState::Rts))
    }

    /// 1024 bytes, as rdma-core's programs use, or less where the port has no room for it.
    fn usual_path_mtu(&self) -> Result<PathMtu, ConnectError> {
        let engine = &self.context.engine;
        let Some(active) = engine.active_mtu() else {
            let state = engine.network().state();
            return Err(ConnectError::NoPathMtu { name: state.name.clone(), mtu: state.mtu });
        };
        Ok(if active.bytes() < PathMtu::Mtu1024.bytes() { active } else { PathMtu::Mtu1024 })
    }

    /// Destroys the queue pair (`ibv_destroy_qp`), as dropping it does.
    pub fn destroy(self) {
        drop(self);
    }
}

impl std::fmt::Debug for Qp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("Qp");
        f.field("qpn", &self.qpn).field("type", &self.kind).field("state", &self.state()).finish_non_exhaustive()
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.context.engine.destroy_qp(&self.shard, self.qpn);
    }
}

fn check_cap(cap: &QpCap, limits: &xroce_transport::Limits) -> Result<(), CreateQpError> {
    let max = QpCap::MAX;
    let table = [
        ("max_send_wr", cap.max_send_wr, limits.max_qp_wr.min(max.max_send_wr)),
        ("max_recv_wr", cap.max_recv_wr, limits.max_qp_wr.min(max.max_recv_wr)),
        ("max_send_sge", cap.max_send_sge, limits.max_sge.min(max.max_send_sge)),
        ("max_recv_sge", cap.max_recv_sge, limits.max_sge.min(max.max_recv_sge)),
        ("max_inline_data", cap.max_inline_data, limits.max_inline_data.min(max.max_inline_data)),
    ];
    match table.into_iter().find(|(_, asked, max)| asked > max) {
        Some((name, asked, max)) => Err(CreateQpError::Cap { name, asked, max }),
        None => Ok(()),
    }
}
