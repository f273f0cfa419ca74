//! One queue pair as its user sees it: what was posted and has not completed.
//!
//! In: posts and completions. Out: panics when a completion is none that is owed.

use std::collections::VecDeque;

use core::ops::Range;
use xroce_transport::qp::QpHandle;
use xroce_transport::qp::state::QpState;
use xroce_transport::wc::Wc;

/// A message that consumes a RECV of the peer.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Also its immediate data.
    pub(crate) id: u64,
    pub(crate) len: usize,
    /// Where in the source its bytes lie; nowhere for a WRITE.
    pub(crate) from: Option<usize>,
}

/// What a send request has to bring on success.
#[derive(Clone, Debug)]
pub(crate) enum Brings {
    Nothing,
    /// The n-th message of the connection in this direction.
    Message(usize),
    /// Bytes of the stock, from here, in this part of the arena.
    Stock(usize, Range<usize>),
    /// This bit of the peer's word.
    Bit(u32),
}

#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) id: u64,
    pub(crate) signaled: bool,
    pub(crate) brings: Brings,
}

/// A queue pair in use.
pub(crate) struct Queue {
    pub(crate) handle: QpHandle,
    pub(crate) uc: bool,
    /// Every send request is signaled.
    pub(crate) sig_all: bool,
    pub(crate) sends: VecDeque<Sent>,
    pub(crate) recvs: VecDeque<(u64, Range<usize>)>,
    /// Messages sent to the peer since the connection was made.
    pub(crate) messages: Vec<Message>,
    /// Messages of the peer that have completed a RECV here.
    pub(crate) received: usize,
    /// Highest message of this end that completed with success, plus one.
    pub(crate) acknowledged: usize,
    /// This end has been in RESET, or gone, since the connection was made.
    pub(crate) broken: bool,
    failed_send: bool,
    failed_recv: bool,
}

impl Queue {
    pub(crate) fn new(handle: QpHandle, uc: bool, sig_all: bool) -> Queue {
        Queue {
            handle,
            uc,
            sig_all,
            sends: VecDeque::new(),
            recvs: VecDeque::new(),
            messages: Vec::new(),
            received: 0,
            acknowledged: 0,
            broken: false,
            failed_send: false,
            failed_recv: false,
        }
    }

    pub(crate) fn state(&self) -> QpState {
        self.handle.state.load()
    }

    /// RESET: everything is forgotten.
    pub(crate) fn forget(&mut self) {
        self.sends.clear();
        self.recvs.clear();
        (self.failed_send, self.failed_recv, self.broken) = (false, false, true);
    }

    /// The RECV of a completion, if it is one; they complete in order.
    pub(crate) fn take_recv(&mut self, wc: &Wc) -> Option<Range<usize>> {
        if !self.recvs.iter().any(|recv| recv.0 == wc.wr_id.0) {
            return None;
        }
        let (id, range) = self.recvs.pop_front().expect("one is there");
        assert_eq!(id, wc.wr_id.0, "{wc:?} out of order");
        assert!(!(self.failed_recv && wc.status.is_success()), "{wc:?} behind a RECV that failed");
        self.failed_recv |= !wc.status.is_success();
        Some(range)
    }

    /// The send request of a completion. What is passed over succeeded in silence.
    pub(crate) fn take_send(&mut self, wc: &Wc) -> Vec<Sent> {
        let mut done = Vec::new();
        loop {
            let sent = self.sends.pop_front().unwrap_or_else(|| panic!("{wc:?} of nothing that is outstanding"));
            assert!(!(self.failed_send && wc.status.is_success()), "{wc:?} behind a request that failed");
            let this = sent.id == wc.wr_id.0;
            assert!(this || !sent.signaled, "{wc:?} before {sent:?}");
            assert!(!this || sent.signaled || !wc.status.is_success(), "{wc:?} was not to be signaled");
            if !this {
                assert!(!self.failed_send, "{sent:?} is passed over behind a failed one");
            }
            if !this || wc.status.is_success() {
                done.push(sent);
            }
            if this {
                self.failed_send |= !wc.status.is_success();
                return done;
            }
        }
    }
}
