//! The thread that listens to the kernel's news of the netdev.
//!
//! In: address, link, neighbour and route changes. Out: GID table and MTU brought up to date, paths re-resolved, asynchronous
//! events. Queue pairs stay tied to the source address they were given: if it goes, their packets find no answer and their
//! retries run out, as with hardware.
#![forbid(unsafe_code)]

use crate::core::Common;
use crate::event::{AsyncEvent, AsyncEventKind};
use crate::netdev::{Change, Monitor, PortState};
use crate::network::Network;
use crate::shard::Shard;
use crate::sys;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use xroce_wire::Gid;

/// Told the addresses of the device whenever they change: what filters frames in front of the port must know them.
pub type OnAddresses = Box<dyn FnMut(&[Gid]) + Send>;

/// What the watching thread needs.
pub struct WatchConfig {
    /// The kernel's news.
    pub monitor: Monitor,
    /// Who else wants to know the addresses.
    pub on_addresses: Option<OnAddresses>,
}

impl std::fmt::Debug for WatchConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchConfig").field("monitor", &self.monitor).finish_non_exhaustive()
    }
}

/// The running thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    common: Arc<Common>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(
        config: WatchConfig,
        network: Arc<Network>,
        shards: Vec<Arc<Shard>>,
        common: Arc<Common>,
    ) -> io::Result<Watch> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let watcher = Watcher { config, network, shards, common: common.clone() };
        let thread = std::thread::Builder::new().name("xroce-watch".into()).spawn(move || watcher.run(&stopped))?;
        Ok(Watch { stop, common, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.common.attention.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Watcher {
    config: WatchConfig,
    network: Arc<Network>,
    shards: Vec<Arc<Shard>>,
    common: Arc<Common>,
}

/// How long to leave a kernel alone that could not be asked.
const RETRY: Duration = Duration::from_millis(100);

impl Watcher {
    fn run(mut self, stop: &AtomicBool) {
        let attention = self.common.attention.as_raw_fd();
        let mut fds = [sys::readable(self.config.monitor.as_raw_fd()), sys::readable(attention)];
        while !stop.load(Ordering::SeqCst) {
            let until_ns = self.next_look_up();
            if let Err(error) = sys::wait(&mut fds, until_ns) {
                tracing::warn!(%error, "cannot wait for news of the netdev");
                std::thread::sleep(RETRY);
            }
            self.common.attention.take();
            match self.config.monitor.poll() {
                Ok(changes) => {
                    self.apply(&changes);
                    if changes.contains(&Change::Gone) {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read news of the netdev");
                    std::thread::sleep(RETRY);
                }
            }
            self.look_up();
        }
    }

    /// Nanoseconds until some path is due to be looked up again; None if there is none.
    ///
    /// Whoever makes a path due meanwhile wakes this thread; [`IDLE`] is for the case that it could not.
    fn next_look_up(&self) -> Option<u64> {
        /// Shorter than any interval of the path table.
        const IDLE: Duration = Duration::from_secs(1);
        let now = Instant::now();
        let due = self.shards.iter().filter_map(|s| s.inspect(|core| core.paths.next_due(now)).ok().flatten()).min();
        let wait = due.map_or(IDLE, |at| at.saturating_duration_since(now).min(IDLE));
        u64::try_from(wait.as_nanos()).ok()
    }

    fn apply(&mut self, changes: &[Change]) {
        let mut gids_changed = false;
        for change in changes {
            match *change {
                Change::GidAdded { .. } | Change::GidRemoved { .. } => gids_changed = true,
                Change::LinkUp => self.link(PortState::Active),
                Change::LinkDown => self.link(PortState::Down),
                Change::MtuChanged { mtu } => self.network.state_mut().mtu = mtu,
                Change::Gone => drop(self.common.tell_fatal()),
                _ => {}
            }
        }
        if gids_changed {
            self.addresses();
        }
        if !changes.is_empty() {
            let now = Instant::now();
            for shard in &self.shards {
                let _ = shard.control(|core, _| {
                    for change in changes {
                        if let Change::MacChanged { mac } = change {
                            core.set_mac(mac.0);
                        }
                        core.paths.apply(change, now);
                    }
                });
            }
        }
    }

    /// Looks up the paths that are due: asks the kernel without the shard's token, for that may take a while.
    fn look_up(&self) {
        let Some(resolver) = self.network.resolver() else { return };
        for shard in &self.shards {
            let now = Instant::now();
            if !shard.inspect(|core| core.paths.next_due(now).is_some_and(|at| at <= now)).unwrap_or(false) {
                continue;
            }
            let Ok(queries) = shard.control(|core, _| core.paths.due(now)) else { continue };
            for query in &queries {
                let answer = resolver.answer(query);
                let _ = shard.control(|core, _| core.paths.complete(answer, Instant::now()));
            }
        }
    }

    fn addresses(&mut self) {
        let gids = self.config.monitor.gids().clone();
        let list: Vec<Gid> = gids.iter().map(|entry| entry.gid).collect();
        self.network.state_mut().gids = gids;
        if let Some(on_addresses) = &mut self.config.on_addresses {
            on_addresses(&list);
        }
        self.tell(AsyncEventKind::GidChange);
    }

    fn link(&self, state: PortState) {
        {
            let mut network = self.network.state_mut();
            network.port_state = state;
            network.link_downed += u64::from(state == PortState::Down);
        }
        self.tell(match state {
            PortState::Active => AsyncEventKind::PortActive,
            PortState::Down => AsyncEventKind::PortErr,
        });
    }

    fn tell(&self, kind: AsyncEventKind) {
        self.common.events.push(AsyncEvent::of_port(kind));
    }
}
