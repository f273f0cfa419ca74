//! An open device: what it can do, and what is made from it.
//!
//! In: queries and creation calls. Out: attributes, protection domains, completion channels and queues, events.
#![forbid(unsafe_code)]

use crate::channel::CompChannel;
use crate::cq::{Cq, CreateCqError};
use crate::event::EventError;
use crate::pd::Pd;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use xroce_engine::core::ShardCounters;
use xroce_engine::event::AsyncEvent;
use xroce_engine::gid::GidEntry;
use xroce_engine::netdev::PortState;
use xroce_engine::token::Broken;
use xroce_engine::{Engine, Progress};
use xroce_port::{PortCounters, XdpMode};
use xroce_transport::cq::MAX_CQE;
use xroce_transport::memory::{MAX_PDS, PdError};
use xroce_transport::wr::QpCap;
use xroce_transport::{Counters, Limits};
use xroce_wire::{Gid, PathMtu};

/// An open device (`ibv_context`). Clones are handles on the same device; it closes when the last of them and everything
/// made from it is gone, or by [`close`](Context::close).
#[derive(Clone, Debug)]
pub struct Context {
    inner: Arc<ContextInner>,
}

#[derive(Debug)]
pub(crate) struct ContextInner {
    pub(crate) engine: Engine,
}

/// What the device can do (`ibv_device_attr`). Counts unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttr {
    /// The netdev's name.
    pub name: String,
    /// The version of this library.
    pub fw_ver: &'static str,
    /// Made from the MAC address, as an EUI-64.
    pub node_guid: u64,
    /// Bytes of the longest memory region.
    pub max_mr_size: u64,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of one queue.
    pub max_qp_wr: u32,
    /// Pieces of one work request.
    pub max_sge: u32,
    /// Inline bytes of one work request.
    pub max_inline_data: u32,
    /// Entries of one completion queue.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and atomics of a peer served at a time by one queue pair.
    pub max_qp_rd_atom: u8,
    /// READs and atomics of one queue pair outstanding.
    pub max_qp_init_rd_atom: u8,
    /// Bytes of the longest message.
    pub max_msg_sz: u64,
    /// Ports: 1.
    pub phys_port_cnt: u8,
    /// How AF_XDP sits on the netdev; None for a port that is not AF_XDP.
    pub xdp: Option<XdpMode>,
}

/// The port (`ibv_port_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAttr {
    /// Whether frames pass.
    pub state: PortState,
    /// The largest path MTU there is.
    pub max_mtu: PathMtu,
    /// The largest path MTU that fits the netdev and the port now; None when not even 256 bytes fit.
    pub active_mtu: Option<PathMtu>,
    /// The netdev's MTU, bytes of IP packet.
    pub netdev_mtu: u32,
    /// Places of the GID table up to the last that is in use.
    pub gid_tbl_len: u32,
    /// Partition keys: 1, the default 0xFFFF.
    pub pkey_tbl_len: u16,
    /// Bytes of the longest message.
    pub max_msg_sz: u64,
    /// Local identifier: 0, there is none on RoCE.
    pub lid: u16,
}

/// There is nothing at that index.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name} has no GID at index {index}; it has {have:?}")]
pub struct NoSuchGid {
    /// The netdev.
    pub name: String,
    /// The index asked for.
    pub index: u8,
    /// The indices there are.
    pub have: Vec<u8>,
}

/// The device is still in use; the handle comes back.
#[derive(Debug, thiserror::Error)]
#[error("the device is in use: {users} handles on it, or objects made from it, are left; drop them first")]
pub struct CloseError {
    /// Handles and objects that hold it, beside the one given to `close`.
    pub users: usize,
    /// The handle, as before.
    pub context: Context,
}

impl ContextInner {
    pub(crate) fn query_gid(&self, index: u8) -> Result<Gid, NoSuchGid> {
        let state = self.engine.network().state();
        state.gids.get(index).map(|entry| entry.gid).ok_or_else(|| NoSuchGid {
            name: state.name.clone(),
            index,
            have: state.gids.iter().map(|entry| entry.index).collect(),
        })
    }
}

impl From<Arc<ContextInner>> for Context {
    fn from(inner: Arc<ContextInner>) -> Context {
        Context { inner }
    }
}

impl Context {
    pub(crate) fn new(engine: Engine) -> Context {
        Context { inner: Arc::new(ContextInner { engine }) }
    }

    pub(crate) fn inner(&self) -> &Arc<ContextInner> {
        &self.inner
    }

    fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// The engine beneath, for tools and tests.
    pub fn raw_engine(&self) -> &Engine {
        self.engine()
    }

    /// The netdev's name.
    pub fn name(&self) -> String {
        self.engine().network().state().name.clone()
    }

    /// Who runs the device's shards.
    pub fn progress(&self) -> Progress {
        self.engine().config().progress
    }

    /// What the device can do (`ibv_query_device`).
    pub fn query_device(&self) -> DeviceAttr {
        let config = self.engine().config();
        let limits = self.limits();
        let capabilities = self.engine().capabilities();
        let [a, b, c, d, e, f] = capabilities.mac;
        DeviceAttr {
            name: self.name(),
            fw_ver: env!("CARGO_PKG_VERSION"),
            node_guid: u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]),
            max_mr_size: isize::MAX as u64,
            max_qp: config.max_qp,
            max_qp_wr: limits.max_qp_wr.min(QpCap::MAX.max_send_wr),
            max_sge: limits.max_sge.min(QpCap::MAX.max_send_sge),
            max_inline_data: limits.max_inline_data.min(QpCap::MAX.max_inline_data),
            max_cqe: limits.max_cqe.min(MAX_CQE),
            max_mr: config.max_mr,
            max_pd: MAX_PDS as u32,
            max_qp_rd_atom: limits.max_qp_rd_atom,
            max_qp_init_rd_atom: limits.max_qp_init_rd_atom,
            max_msg_sz: limits.max_msg_sz,
            phys_port_cnt: 1,
            xdp: capabilities.xdp.clone(),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.inner.engine.config().limits
    }

    /// The state of the port (`ibv_query_port`).
    pub fn query_port(&self) -> PortAttr {
        let active_mtu = self.engine().active_mtu();
        let state = self.engine().network().state();
        PortAttr {
            state: state.port_state,
            max_mtu: PathMtu::Mtu4096,
            active_mtu,
            netdev_mtu: state.mtu,
            gid_tbl_len: state.gids.iter().map(|entry| u32::from(entry.index) + 1).max().unwrap_or(0),
            pkey_tbl_len: 1,
            max_msg_sz: self.limits().max_msg_sz,
            lid: 0,
        }
    }

    /// The GID at an index (`ibv_query_gid`).
    ///
    /// # Errors
    /// [`NoSuchGid`] lists the indices there are.
    pub fn query_gid(&self, index: u8) -> Result<Gid, NoSuchGid> {
        self.inner.query_gid(index)
    }

    /// The whole GID table (`ibv_query_gid_table`), by index.
    pub fn gid_table(&self) -> Vec<GidEntry> {
        self.engine().network().state().gids.iter().copied().collect()
    }

    /// The first GID that can be reached from beyond the link: what tools take when none is named. If there is no such one,
    /// the first of all.
    pub fn default_gid(&self) -> Option<GidEntry> {
        let table = self.gid_table();
        table.iter().find(|entry| !entry.gid.is_link_local()).or(table.first()).copied()
    }

    /// Makes a protection domain (`ibv_alloc_pd`).
    ///
    /// # Errors
    /// [`PdError::TooMany`].
    pub fn alloc_pd(&self) -> Result<Pd, PdError> {
        Pd::alloc(self)
    }

    /// Makes a completion queue of at least `cqe` entries that is polled (`ibv_create_cq` without channel).
    ///
    /// # Errors
    /// See [`CreateCqError`].
    pub fn create_cq(&self, cqe: u32) -> Result<Cq, CreateCqError> {
        Cq::create(self, cqe, None)
    }

    /// Makes a completion queue that can also wake `channel`.
    ///
    /// # Errors
    /// See [`CreateCqError`].
    pub fn create_cq_on(&self, cqe: u32, channel: &CompChannel) -> Result<Cq, CreateCqError> {
        Cq::create(self, cqe, Some(channel))
    }

    /// Makes a completion channel (`ibv_create_comp_channel`).
    ///
    /// # Errors
    /// What `eventfd(2)` says: mostly EMFILE.
    pub fn create_comp_channel(&self) -> io::Result<CompChannel> {
        CompChannel::create(self)
    }

    /// The next asynchronous event, waiting for one up to `timeout` (None: for ever). `Ok(None)` when the time is over.
    /// Nothing has to be acknowledged.
    ///
    /// # Errors
    /// See [`EventError`].
    pub fn get_async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>, EventError> {
        crate::event::wait(self.engine(), self.engine().events(), timeout)
    }

    /// The next asynchronous event if there is one now.
    pub fn try_get_async_event(&self) -> Option<AsyncEvent> {
        if self.engine().needs_driving() {
            self.engine().step_inline();
        }
        self.engine().events().try_next()
    }

    /// A descriptor that is readable while there is an asynchronous event (`ibv_context.async_fd`). With inline progress and no
    /// helper, events come about only while the application runs the device.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        self.engine().events().as_fd()
    }

    /// The same, as a number.
    pub fn async_raw_fd(&self) -> RawFd {
        self.engine().events().as_raw_fd()
    }

    /// Counters of every shard: its port, what it did in front of the transport, and the transport's. Not for the hot path.
    ///
    /// # Errors
    /// [`Broken`] after a poll thread panicked.
    pub fn counters(&self) -> Result<Vec<(PortCounters, ShardCounters, Counters)>, Broken> {
        let shards = self.engine().shards();
        shards
            .iter()
            .map(|s| s.inspect(|core| (core.port_counters(), core.counters(), core.endpoint.counters())))
            .collect()
    }

    /// Runs one round of the device in this thread, where it is set up for inline progress: what `poll` of an empty completion
    /// queue does. True if there was something to do.
    pub fn drive(&self) -> bool {
        self.engine().is_inline() && self.engine().step_inline()
    }

    /// Closes the device (`ibv_close_device`): its threads are gone and its port is free when this returns.
    ///
    /// # Errors
    /// [`CloseError`] while other handles on it, or objects made from it, are left.
    pub fn close(self) -> Result<(), CloseError> {
        match Arc::try_unwrap(self.inner) {
            Ok(inner) => {
                drop(inner);
                Ok(())
            }
            Err(inner) => Err(CloseError { users: Arc::strong_count(&inner) - 1, context: Context { inner } }),
        }
    }
}
