//! Completion channels: sleeping until a completion queue has something.
//!
//! In: completion queues that are armed. Out: a descriptor to poll, and which queue it was.
#![forbid(unsafe_code)]

use crate::context::{Context, ContextInner};
use crate::cq::CqId;
use crate::event::{self, EventError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use xroce_engine::cqs::Channel;

/// A completion channel (`ibv_comp_channel`). Its descriptor is readable while an event waits, and never for any other
/// reason; it can be handed to `poll`, `epoll` or an async runtime.
///
/// Arm, poll once more, then wait: a completion that arrives in between wakes. Events need no acknowledgement; several wake-ups
/// of one queue that nobody has fetched are one event.
#[derive(Debug)]
pub struct CompChannel {
    context: Arc<ContextInner>,
    channel: Arc<Channel>,
}

impl CompChannel {
    pub(crate) fn create(context: &Context) -> io::Result<CompChannel> {
        Ok(CompChannel { context: context.inner().clone(), channel: Arc::new(Channel::new(0)?) })
    }

    pub(crate) fn raw(&self) -> &Arc<Channel> {
        &self.channel
    }

    pub(crate) fn belongs_to(&self, context: &Arc<ContextInner>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// Waits for the next event (`ibv_get_cq_event`) up to `timeout` (None: for ever): the queue that has something. `Ok(None)`
    /// when the time is over.
    ///
    /// # Errors
    /// See [`EventError`].
    pub fn get_cq_event(&self, timeout: Option<Duration>) -> Result<Option<CqId>, EventError> {
        let id = event::wait(&self.context.engine, &self.channel, timeout)?;
        Ok(id.map(|id| self.fetched(id)))
    }

    /// The next event if there is one now.
    pub fn try_get_cq_event(&self) -> Option<CqId> {
        if self.context.engine.needs_driving() {
            self.context.engine.step_inline();
        }
        self.channel.try_next().map(|id| self.fetched(id))
    }

    fn fetched(&self, id: u64) -> CqId {
        self.context.engine.cqs().notice_fetched(id);
        CqId(id)
    }
}

impl AsFd for CompChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl AsRawFd for CompChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.channel.as_raw_fd()
    }
}
