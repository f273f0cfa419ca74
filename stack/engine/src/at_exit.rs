//! What a process still owes its peers when it exits.
//!
//! In: shards, as they are made. Out: when the process ends by `exit(3)` (also by returning from `main`), steps of those shards
//! that hold ACKs back. A program may exit right after its last completion without destroying a queue pair; an adapter would
//! have acknowledged that message all the same. A process that is killed, or calls `_exit(2)`, is dead to its peers at once.
#![forbid(unsafe_code)]

use crate::shard::Shard;
use crate::sys;
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::{Duration, Instant};

/// How long an exit may take longer for this: another thread may be in the middle of a step.
const PATIENCE: Duration = Duration::from_millis(20);

struct Debtors {
    /// A process made by `fork(2)` shares the rings, and must leave them alone.
    process: u32,
    shards: Vec<Weak<Shard>>,
}

static DEBTORS: Mutex<Option<Debtors>> = Mutex::new(None);

/// These shards settle what they owe when this process exits.
pub(crate) fn settle_at_exit(shards: &[Arc<Shard>]) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| sys::at_exit(settle));
    let Ok(mut debtors) = DEBTORS.lock() else { return };
    let process = std::process::id();
    let debtors = match &mut *debtors {
        Some(ours) if ours.process == process => ours,
        other => other.insert(Debtors { process, shards: Vec::new() }),
    };
    debtors.shards.retain(|shard| shard.strong_count() > 0);
    debtors.shards.extend(shards.iter().map(Arc::downgrade));
}

fn settle() {
    let Some(debtors) = DEBTORS.try_lock().ok().and_then(|mut debtors| debtors.take()) else { return };
    if debtors.process != std::process::id() {
        return;
    }
    let end = Instant::now() + PATIENCE;
    for shard in debtors.shards.iter().filter_map(Weak::upgrade) {
        while !shard.settle() && !shard.is_broken() && Instant::now() < end {
            std::thread::yield_now();
        }
    }
}
