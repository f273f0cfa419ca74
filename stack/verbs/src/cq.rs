//! Completion queues.
//!
//! In: completions from the shards. Out: the same to the application, which in inline mode also runs the shards by asking.
#![forbid(unsafe_code)]

use crate::channel::CompChannel;
use crate::context::{Context, ContextInner};
use std::sync::Arc;
use std::time::{Duration, Instant};
use xroce_engine::cqs::CqRecord;
use xroce_transport::cq;
use xroce_transport::wc::Wc;

/// The number of a completion queue: which one an event is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub u64);

/// A completion queue (`ibv_cq`). Several threads may poll it. Queue pairs keep it alive after the handle is dropped;
/// [`destroy`](Cq::destroy) says instead whether there are any.
#[derive(Debug)]
pub struct Cq {
    inner: Arc<CqInner>,
}

#[derive(Debug)]
pub(crate) struct CqInner {
    context: Arc<ContextInner>,
    record: Arc<CqRecord>,
    inline: bool,
}

impl Drop for CqInner {
    fn drop(&mut self) {
        self.context.engine.cqs().remove(self.record.cq().id());
    }
}

/// Why a completion queue was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CreateCqError {
    /// The queue would have no entries, or too many.
    #[error("{cqe} completion queue entries; it must be 1 to {max}")]
    BadSize {
        /// Entries asked for.
        cqe: u32,
        /// The most there may be.
        max: u32,
    },
    /// The transport refuses.
    #[error(transparent)]
    Transport(#[from] cq::CqError),
    /// The channel was made from another device.
    #[error("the completion channel belongs to another context")]
    ForeignChannel,
}

/// The queue is dead: a completion found it full (`IBV_EVENT_CQ_ERR`). Its queue pairs go to ERR.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "completion queue overran its {capacity} entries and lost completions; its queue pairs are in ERR. Create it with at \
     least as many entries as work requests can be outstanding"
)]
pub struct Overrun {
    /// Entries of the queue.
    pub capacity: u32,
}

/// Why a queue cannot be armed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the completion queue has no channel to notify; create it with `create_cq_on`")]
pub struct NoChannel;

/// The queue is still in use; the handle comes back.
#[derive(Debug, thiserror::Error)]
#[error("the completion queue is in use by {users} sides of queue pairs; destroy those first")]
pub struct DestroyCqError {
    /// Sends and receives of queue pairs that complete into it.
    pub users: u32,
    /// The handle, as before.
    pub cq: Cq,
}

impl Cq {
    pub(crate) fn create(context: &Context, cqe: u32, channel: Option<&CompChannel>) -> Result<Cq, CreateCqError> {
        let max = context.query_device().max_cqe;
        if cqe == 0 || cqe > max {
            return Err(CreateCqError::BadSize { cqe, max });
        }
        let context = context.inner().clone();
        if channel.is_some_and(|channel| !channel.belongs_to(&context)) {
            return Err(CreateCqError::ForeignChannel);
        }
        let record = context.engine.create_cq(cqe, channel.map(|c| c.raw().clone()))?;
        let inline = context.engine.is_inline();
        Ok(Cq { inner: Arc::new(CqInner { context, record, inline }) })
    }

    pub(crate) fn inner(&self) -> &Arc<CqInner> {
        &self.inner
    }

    /// Its number, as in the events of its channel.
    pub fn id(&self) -> CqId {
        CqId(self.inner.record.cq().id())
    }

    /// Entries: what was asked for, rounded up.
    pub fn capacity(&self) -> u32 {
        self.inner.record.cq().capacity()
    }

    /// Takes up to `out.len()` completions, oldest first (`ibv_poll_cq`); gives how many. In inline mode an empty queue makes
    /// this call run the device once.
    ///
    /// # Errors
    /// [`Overrun`], once everything that was kept has been polled.
    #[inline]
    pub fn poll(&self, out: &mut [Wc]) -> Result<usize, Overrun> {
        let cq = self.inner.record.cq();
        let mut n = cq.poll(out);
        if n == 0 && !out.is_empty() {
            if self.inner.inline && self.inner.context.engine.step_inline() {
                n = cq.poll(out);
            }
            if n == 0 && cq.is_spent() {
                return Err(Overrun { capacity: cq.capacity() });
            }
        }
        Ok(n)
    }

    /// Takes the oldest completion.
    ///
    /// # Errors
    /// As [`poll`](Cq::poll).
    pub fn poll_one(&self) -> Result<Option<Wc>, Overrun> {
        let mut wc = [Wc::default()];
        Ok((self.poll(&mut wc)? == 1).then(|| wc[0]))
    }

    /// Takes the oldest completion, polling for it up to `timeout`: `Ok(None)` when the time is over. A thread of a device
    /// that is not in inline mode yields between polls.
    ///
    /// # Errors
    /// As [`poll`](Cq::poll).
    pub fn poll_timeout(&self, timeout: Duration) -> Result<Option<Wc>, Overrun> {
        /// Polls between two looks at the clock.
        const POLLS: u32 = 64;
        let start = Instant::now();
        loop {
            for _ in 0..POLLS {
                if let Some(wc) = self.poll_one()? {
                    return Ok(Some(wc));
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= timeout {
                return Ok(None);
            }
            std::thread::yield_now();
        }
    }

    /// The completions that are there now, one by one; ends when the queue is empty or dead.
    pub fn drain(&self) -> impl Iterator<Item = Wc> + '_ {
        std::iter::from_fn(|| self.poll_one().ok().flatten())
    }

    /// Arms the queue (`ibv_req_notify_cq`): the next completion makes its channel readable; with `solicited_only` the next that
    /// the peer marked solicited, or that is an error. One event for each arming.
    ///
    /// True if something may be in the queue already: poll once more before waiting, for what is there makes no event.
    ///
    /// # Errors
    /// [`NoChannel`].
    pub fn req_notify(&self, solicited_only: bool) -> Result<bool, NoChannel> {
        let inner = &self.inner;
        if inner.record.channel().is_none() {
            return Err(NoChannel);
        }
        inner.context.engine.expect_waiter(&inner.record);
        Ok(inner.record.cq().arm(solicited_only))
    }

    /// Destroys the queue (`ibv_destroy_cq`); completions in it, and its events, are gone.
    ///
    /// # Errors
    /// EBUSY in verbs: queue pairs complete into it. The handle comes back.
    pub fn destroy(self) -> Result<(), DestroyCqError> {
        match self.inner.record.cq().uses() {
            0 => Ok(()),
            users => Err(DestroyCqError { users, cq: self }),
        }
    }
}

impl CqInner {
    pub(crate) fn record(&self) -> &Arc<CqRecord> {
        &self.record
    }

    pub(crate) fn belongs_to(&self, context: &Arc<ContextInner>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }
}
