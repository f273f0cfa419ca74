//! The thread that listens to the kernel's news of the netdev.
//!
//! In: address, link, neighbour and route changes. Out: GID table and MTU brought up to date, paths re-resolved, asynchronous
//! events. Queue pairs stay tied to the source address they were given: if it goes, their packets find no answer and their
//! retries run out, as with hardware.
#![forbid(unsafe_code)]

use crate::core::Common;
use crate::event::{AsyncEvent, AsyncEventKind};
use crate::netdev::{Change, Mac, Monitor, PortState};
use crate::network::Network;
use crate::shard::Shard;
use crate::sys::{self, EventFd, Take};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
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
    wake: Arc<EventFd>,
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
        let wake = Arc::new(EventFd::new(Take::All)?);
        let watcher = Watcher { config, network, shards, common };
        let (stopped, fd) = (stop.clone(), wake.clone());
        let thread =
            std::thread::Builder::new().name("xroce-watch".into()).spawn(move || watcher.run(&stopped, &fd))?;
        Ok(Watch { stop, wake, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake.signal();
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

impl Watcher {
    fn run(mut self, stop: &AtomicBool, wake: &EventFd) {
        /// How long to leave a kernel alone that could not be asked.
        const RETRY: Duration = Duration::from_millis(100);
        let mut fds = [sys::readable(self.config.monitor.as_raw_fd()), sys::readable(wake.as_raw_fd())];
        while !stop.load(Ordering::SeqCst) {
            if let Err(error) = sys::wait(&mut fds, None) {
                tracing::warn!(%error, "cannot wait for news of the netdev");
                std::thread::sleep(RETRY);
            }
            match self.config.monitor.poll() {
                Ok(changes) => {
                    let gone = changes.contains(&Change::Gone);
                    self.apply(&changes);
                    if gone {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read news of the netdev");
                    std::thread::sleep(RETRY);
                }
            }
        }
    }

    fn apply(&mut self, changes: &[Change]) {
        let mut resolve_all = false;
        let mut gids_changed = false;
        for change in changes {
            match *change {
                Change::GidAdded { .. } | Change::GidRemoved { .. } => gids_changed = true,
                Change::LinkUp => self.link(PortState::Active),
                Change::LinkDown => self.link(PortState::Down),
                Change::MtuChanged { mtu } => self.network.state_mut().mtu = mtu,
                Change::MacChanged { mac } => {
                    self.own_mac(mac);
                    resolve_all = true;
                }
                Change::NeighbourChanged { address, mac: Some(mac) } => self.neighbour(address, mac),
                Change::RouteChanged | Change::Overrun => resolve_all = true,
                Change::Gone => self.tell(AsyncEventKind::DeviceFatal),
                // A neighbour that does not answer may come back; until then its old address is as good as any.
                _ => {}
            }
        }
        if gids_changed {
            self.addresses();
        }
        if resolve_all {
            self.resolve_all();
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
        self.network.state_mut().port_state = state;
        self.tell(match state {
            PortState::Active => AsyncEventKind::PortActive,
            PortState::Down => AsyncEventKind::PortErr,
        });
    }

    fn own_mac(&self, mac: Mac) {
        for shard in &self.shards {
            let _ = shard.control(|core, _| core.set_mac(mac.0));
        }
    }

    fn neighbour(&self, address: IpAddr, mac: Mac) {
        for shard in &self.shards {
            let _ = shard.control(|core, _| core.paths.neighbour_changed(address, mac));
        }
    }

    /// Looks every path up again, without waiting for anybody: an answer that is still to come is news of its own.
    fn resolve_all(&self) {
        for shard in &self.shards {
            let Ok(ends) = shard.inspect(|core| core.paths.ends()) else { continue };
            for (path, src, dst) in ends {
                match self.network.resolve(src, dst, Duration::ZERO) {
                    Ok(hop) => {
                        let _ = shard.control(|core, _| core.paths.update(path, &hop));
                    }
                    Err(error) => tracing::debug!(%error, "a path keeps its old next hop"),
                }
            }
        }
    }

    fn tell(&self, kind: AsyncEventKind) {
        self.common.events.push(AsyncEvent::of_port(kind));
    }
}
