//! How AF_XDP sits on a netdev that was opened, in the words of `devinfo` and of `doctor`, so that these two cannot differ.
//!
//! An open device enters; an object for JSON and a few words leave.

use std::fmt;

use serde::Serialize;
use xroce::{Context, XdpMode};

/// What was got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Xdp {
    /// Where the XDP program runs: `native`, in the driver, or `generic`, on the kernel's packet.
    pub mode: &'static str,
    /// Whether driver and socket share the frames' memory.
    pub zero_copy: bool,
    /// Whether frames longer than one buffer pass.
    pub multi_buffer: bool,
    /// Receive queues served.
    pub queues: u32,
    /// Whether the kernel says when it wants to be woken.
    pub need_wakeup: bool,
    /// Whether the frames lie in huge pages.
    pub huge_pages: bool,
    /// Why it is generic where native was tried.
    pub generic_because: Option<String>,
}

impl Xdp {
    /// Of an open device; None where it is not on AF_XDP.
    pub fn of(context: &Context) -> Option<Xdp> {
        let queues = context.raw_engine().capabilities().queues;
        context.query_device().xdp.map(|mode| Xdp::new(&mode, queues))
    }

    fn new(mode: &XdpMode, queues: u32) -> Xdp {
        Xdp {
            mode: if mode.native { "native" } else { "generic" },
            zero_copy: mode.zero_copy,
            multi_buffer: mode.multi_buffer,
            queues,
            need_wakeup: mode.need_wakeup,
            huge_pages: mode.huge_pages,
            generic_because: mode.fallback.clone(),
        }
    }
}

impl fmt::Display for Xdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copy = if self.zero_copy { "zero-copy" } else { "copy" };
        let long = if self.multi_buffer { "multi-buffer" } else { "one buffer a frame" };
        let pages = if self.huge_pages { ", huge pages" } else { "" };
        write!(f, "{}, {copy}, {long}, {} queue(s){pages}", self.mode, self.queues)
    }
}
