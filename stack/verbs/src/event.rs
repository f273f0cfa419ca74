//! Waiting for what happens: asynchronous events and completion channels.
//!
//! In: a queue with a descriptor. Out: its next entry, a deadline that passed, or why there can be none.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use xroce_engine::Engine;
use xroce_engine::notify::Notices;

/// Why a wait failed.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The system refused to wait.
    #[error("cannot wait for an event: {0}")]
    System(#[from] io::Error),
    /// A poll thread panicked: there will be no more events.
    #[error(transparent)]
    Broken(#[from] xroce_engine::token::Broken),
}

/// The next notice, up to a deadline. Where only the application drives the device, the wait drives it.
pub(crate) fn wait<T>(engine: &Engine, queue: &Notices<T>, timeout: Option<Duration>) -> Result<Option<T>, EventError> {
    if !engine.needs_driving() {
        // In this order: what was said before it was over is handed on.
        let is_over = engine.is_over();
        return match queue.try_next() {
            None if is_over => Err(xroce_engine::token::Broken.into()),
            None => Ok(queue.next(timeout)?),
            notice => Ok(notice),
        };
    }
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    loop {
        if let Some(notice) = queue.try_next() {
            return Ok(Some(notice));
        }
        if engine.shards().iter().any(|shard| shard.is_broken()) {
            return Err(xroce_engine::token::Broken.into());
        }
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(None);
        }
        engine.drive(queue.as_raw_fd(), left)?;
    }
}
