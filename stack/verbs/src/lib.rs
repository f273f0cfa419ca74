//! A software RDMA NIC in user space, behind a verbs API.
//!
//! The names are those of rdma-core; the shapes are Rust's. The flow is that of every verbs program:
//!
//! 1. [`Device::open`] a netdev: a [`Context`].
//! 2. [`Context::alloc_pd`], [`Context::create_cq`], [`Pd::reg_mr`], [`Pd::create_qp`].
//! 3. Tell the peer where you are ([`Qp::endpoint`], [`Mr::remote`]), hear the same from it, [`Qp::connect`].
//! 4. [`Qp::post_recv`], [`Qp::post_send`], [`Cq::poll`].
//!
//! # What outlives what
//!
//! Every object keeps what it was made from: a [`Qp`] its [`Pd`] and [`Cq`]s, an [`Mr`] its [`Pd`], all of them the device.
//! Dropping handles in any order is therefore safe, and the device closes with the last of them. Who wants to hear EBUSY as
//! in verbs calls [`Pd::dealloc`], [`Cq::destroy`] or [`Context::close`]: they refuse, and give the handle back, while
//! something depends on it.
//!
//! # Threads
//!
//! Every type is `Send` and `Sync`, and every call that verbs calls thread-safe is so here. Each queue of a queue pair has a
//! lock of its own, which two threads that post to the same queue share.
//!
//! # Who runs the NIC
//!
//! By default [`Cq::poll`] does, with a helper thread that steps in when nobody has polled for a while; see [`Progress`].
#![deny(unsafe_code)]

mod buffer;
mod channel;
mod connect;
mod context;
mod cq;
mod device;
mod event;
mod mr;
mod pd;
mod qp;
pub mod stat;
mod text;

pub use buffer::{Buffer, PAGE};
pub use channel::CompChannel;
pub use connect::{ConnectOptions, ParseQpEndpointError, QpEndpoint};
pub use context::{CloseError, Context, DeviceAttr, NoSuchGid, PortAttr};
pub use cq::{Cq, CqId, CreateCqError, DestroyCqError, NoChannel, Overrun};
pub use device::{Device, DeviceBuilder, OpenError, drop_privileges};
pub use event::EventError;
pub use mr::{AtomicViewError, Mr, OutOfRange, ParseRemoteMrError, RegMrError, RemoteMr};
pub use pd::{DeallocPdError, Pd};
pub use qp::{ConnectError, CreateQpError, PostChainError, PostReason, Qp, QpInitAttr};

pub use xroce_engine::engine::{ModifyError, StartError};
pub use xroce_engine::event::{AsyncEvent, AsyncEventKind};
pub use xroce_engine::gid::{GidEntry, GidKind};
pub use xroce_engine::netdev::PortState;
pub use xroce_engine::nexthop::ResolveError;
pub use xroce_engine::privilege::DropError;
pub use xroce_engine::{EngineConfig, Progress};
pub use xroce_port as port;
pub use xroce_port::{Port, PortCounters, XdpMode, xdp};
pub use xroce_transport::TRACE_TARGET;
pub use xroce_transport::memory::{Access, PdError, RegError};
pub use xroce_transport::qp::QpInfo;
pub use xroce_transport::qp::state::{AddressVector, QpAttr, QpState, QpType};
pub use xroce_transport::wc::{Wc, WcDetail, WcFlags, WcOpcode, WcStatus};
pub use xroce_transport::wr::{PostError, QpCap, RecvWr, SendFlags, SendOp, SendWr, Sge, WrId};
pub use xroce_transport::{Counters, DropReason, Failure, Limits, QpCounters, QpFault};
pub use xroce_wire::{Gid, ImmData, Lkey, PathMtu, Psn, Qpn, Rkey};

/// The README's program, compiled with every test run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
