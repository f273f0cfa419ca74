//! A real Linux rdma_rxe as the other end of a test.
//!
//! Enters: which kernel, which MTU, verbs to carry out there. Leaves: a network namespace with the interface `NAME0` whose
//! far end is the guest, and the completions of the guest's verbs.
//!
//! ```no_run
//! use std::time::Duration;
//! use xroce_tests::rxe::{self, Access, Kernel, Mtu, QpSpec, in_namespace};
//!
//! let Some(guest) = rxe::boot_or_skip(Kernel::V6_12, Mtu::ETHERNET) else { return };
//! let mut peer = guest.agent().unwrap();
//! let ctx = peer.open("rxe0").unwrap();
//! let pd = peer.alloc_pd(ctx).unwrap();
//! let buf = peer.alloc_pattern(4096, 1).unwrap();
//! let mr = peer.reg_mr(pd, buf, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
//! let cq = peer.create_cq(ctx, 64).unwrap();
//! let qp = peer.create_qp(&QpSpec::rc(pd, cq)).unwrap();
//! // ... connect it, then
//! let wcs = peer.poll(cq, 1, Duration::from_secs(5)).unwrap();
//! // sockets of our own side are opened inside the namespace:
//! let port = in_namespace(guest.namespace(), || 4791).unwrap();
//! # let _ = (mr, qp, wcs, port);
//! ```
//!
//! The peer shares no code with xroce on purpose: it is the oracle.

mod agent;
mod commands;
mod guest;
mod netns;
pub mod pattern;
mod verbs;

pub use agent::{AgentError, PeerAgent, Reply};
pub use guest::{Guest, Kernel, Mtu, Options, Output, Skip, boot_or_skip, skip_test};
pub use netns::in_namespace;
pub use verbs::{
    Access, AsyncEvent, Buf, Cq, Ctx, Flags, Mr, Mw, Op, Path, Pd, PeerGid, Qp, QpAttr, QpKind, QpSpec, QpState,
    RecvWr, SendWr, Sge, Srq, Verdict, Wc, status,
};
