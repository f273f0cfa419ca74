//! A device: its shards, its memory, its completion queues, and the control calls on them.
//!
//! In: ports, the network around them, the caller's control calls. Out: shards that run, queue pairs that are connected.
#![forbid(unsafe_code)]

use crate::at_exit;
use crate::clock::Clock;
use crate::core::{Budget, Common, Core, MAX_PACKET_LEN, Owner, ShardCounters};
use crate::cqs::{Channel, CqRecord, CqTable};
use crate::doorbell::Doorbell;
use crate::event::AsyncEvent;
use crate::handover::Inbox;
use crate::network::Network;
use crate::nexthop::NextHop;
use crate::notify::Notices;
use crate::progress::{Progress, Worker};
use crate::shard::{Mailbox, Shard};
use crate::sleep::Sleeper;
use crate::sys::{self, EventFd, Take};
use crate::token::Broken;
use crate::watch::Watch;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use xroce_port::{Capabilities, Port, PortCounters};
use xroce_transport::cq::Cq;
use xroce_transport::memory::Memory;
use xroce_transport::qp::state::{AddressVector, QpAttr, QpState};
use xroce_transport::qp::{ModifyQpError, QpHandle, QpInfo, QpInit};
use xroce_transport::{CreateQpError, Endpoint, EndpointConfig, LimitError, Limits, PathId, QpPath, QpnSpace};
use xroce_wire::{Gid, PathMtu, Qpn};

/// The 16-bit index of a QP number: the most queue pairs there can be.
const QPN_INDICES: u32 = 1 << 16;

/// Packets an inbox holds, where there is more than one shard.
const INBOX_SLOTS: usize = 256;

/// Asynchronous events that wait to be fetched.
const EVENT_SLOTS: usize = 1024;

/// How a device is set up.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Who runs the shards.
    pub progress: Progress,
    /// Work per step.
    pub budget: Budget,
    /// What one queue pair, queue or message may ask for.
    pub limits: Limits,
    /// Queue pairs of the whole device, 1 to 65,536.
    pub max_qp: u32,
    /// Memory regions of the whole device, up to 2^20.
    pub max_mr: u32,
    /// How long the step to RTR waits for the next hop to answer.
    pub resolve_wait: Duration,
    /// Decides the secret behind the keys of memory regions, and with which generations QP numbers begin; None draws both
    /// from the kernel, so that neither comes again after a restart. Given by tests that must repeat.
    pub seed: Option<u64>,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            progress: Progress::default(),
            budget: Budget::default(),
            limits: Limits::default(),
            max_qp: 16_384,
            max_mr: 1 << 17,
            resolve_wait: Duration::from_secs(3),
            seed: None,
        }
    }
}

/// Why a device does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no port to run.
    #[error("a device needs at least one port")]
    NoPort,
    /// A value of [`EngineConfig`] is out of range.
    #[error(transparent)]
    OutOfRange(#[from] LimitError),
    /// The system refused a descriptor or a thread.
    #[error("{what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}

/// A queue pair and the shard it lives on.
pub struct EngineQp {
    /// Its queues, number and state.
    pub handle: QpHandle,
    /// Whose doorbell to ring.
    pub shard: Arc<Shard>,
}

/// Why a queue pair was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The transport refuses.
    #[error(transparent)]
    Transport(#[from] CreateQpError),
    /// The shard is unusable.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// A device that runs.
pub struct Engine {
    shards: Vec<Arc<Shard>>,
    common: Arc<Common>,
    memory: Arc<Memory>,
    network: Arc<Network>,
    capabilities: Capabilities,
    config: EngineConfig,
    next_shard: AtomicUsize,
    // Dropping them stops their threads; the ports go with the last handle on their shards, after that.
    _watch: Option<Watch>,
    _workers: Vec<Worker>,
}

impl Engine {
    /// Starts a device: one shard for each port. All ports belong to the same netdev.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(
        ports: Vec<Box<dyn Port>>,
        network: Network,
        watch: Option<crate::watch::WatchConfig>,
        config: EngineConfig,
    ) -> Result<Engine, StartError> {
        let capabilities = ports.first().ok_or(StartError::NoPort)?.capabilities().clone();
        check(&config)?;
        let secret = || match config.seed {
            Some(seed) => Ok([seed, seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15]),
            None => sys::random().map_err(system("draw a random secret")),
        };
        let memory = Arc::new(Memory::new(secret()?, config.max_mr, 0));
        let [qpn_seed, _] = secret()?;
        let network = Arc::new(network);
        let common = Arc::new(common(ports.len(), watch.is_some())?);
        let shards = shards(ports, &common, &memory, (&config, qpn_seed), network.vlan());
        let mut workers = Vec::new();
        for shard in &shards {
            workers.extend(Worker::start(shard, config.progress).map_err(system("start the poll thread"))?);
        }
        at_exit::settle_at_exit(&shards);
        let watch = watch
            .map(|w| Watch::start(w, network.clone(), shards.clone(), common.clone()))
            .transpose()
            .map_err(system("start the thread that watches the netdev"))?;
        Ok(Engine {
            shards,
            common,
            memory,
            network,
            capabilities,
            config,
            next_shard: AtomicUsize::new(0),
            _watch: watch,
            _workers: workers,
        })
    }

    /// Protection domains and memory regions.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Addresses, link state and MTU.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// What the ports can do (that of the first; they sit on the same netdev).
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// How the device was set up.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The shards.
    pub fn shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    /// Asynchronous events, with a descriptor to poll.
    pub fn events(&self) -> &Notices<AsyncEvent> {
        &self.common.events
    }

    /// Whether a thread of the device has ended in a panic and said so: behind the events that wait comes no further one.
    pub fn is_over(&self) -> bool {
        self.common.over.load(Ordering::SeqCst)
    }

    /// Completion queues.
    pub fn cqs(&self) -> &CqTable {
        &self.common.cqs
    }

    /// Whether the application's own polling runs the shards.
    #[inline]
    pub fn is_inline(&self) -> bool {
        matches!(self.config.progress, Progress::Inline { .. })
    }

    /// Steps every shard once, in the application's thread. True when there was something to do.
    #[inline]
    pub fn step_inline(&self) -> bool {
        let mut worked = false;
        for shard in &self.shards {
            worked |= shard.step_inline().is_some_and(|outcome| outcome.worked);
        }
        worked
    }

    /// The owner of a completion queue is about to arm it and to wait: puts helpers on duty until it is woken.
    pub fn expect_waiter(&self, cq: &CqRecord) {
        if self.is_inline() {
            self.common.cqs.await_wake(cq);
            for shard in &self.shards {
                shard.expect_waiter();
            }
        }
    }

    /// Whether nobody steps the shards unless the application does.
    pub fn needs_driving(&self) -> bool {
        self.config.progress == Progress::Inline { helper: false }
    }

    /// For a device that [needs driving](Engine::needs_driving): steps until there is nothing to do, then sleeps until a frame
    /// arrives, a deadline is reached, `fd` is readable or `timeout` passed, but no longer than 10 ms, because another thread's
    /// post wakes nobody here.
    ///
    /// # Errors
    /// What `ppoll(2)` says.
    pub fn drive(&self, fd: RawFd, timeout: Option<Duration>) -> io::Result<()> {
        const LONGEST_NS: u64 = 10_000_000;
        if self.step_inline() {
            return Ok(());
        }
        let mut sleep_ns =
            timeout.map_or(LONGEST_NS, |t| u64::try_from(t.as_nanos()).unwrap_or(LONGEST_NS).min(LONGEST_NS));
        let mut fds = vec![fd];
        let mut prepared = 0;
        let all_idle = self.shards.iter().all(|shard| {
            let Some(until) = shard.prepare_to_doze(&mut fds) else { return false };
            prepared += 1;
            sleep_ns = until.map_or(sleep_ns, |ns| sleep_ns.min(ns));
            true
        });
        let slept = if all_idle {
            let mut pollfds: Vec<_> = fds.into_iter().map(sys::readable).collect();
            sys::wait(&mut pollfds, Some(sleep_ns)).map(|_| ())
        } else {
            Ok(())
        };
        // A shard that has work keeps all awake, and those before it were told already that they would sleep.
        for shard in &self.shards[..prepared] {
            shard.after_sleep();
        }
        slept
    }

    /// Creates a completion queue of at least `cqe` entries that wakes `channel`.
    ///
    /// # Errors
    /// What [`Cq::new`] says.
    pub fn create_cq(
        &self,
        cqe: u32,
        channel: Option<Arc<Channel>>,
    ) -> Result<Arc<CqRecord>, xroce_transport::cq::CqError> {
        self.common.cqs.create(channel, |id| Cq::new(id, cqe))
    }

    /// Creates a queue pair on the next shard in turn.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create_qp(&self, init: QpInit) -> Result<EngineQp, CreateError> {
        let turn = self.next_shard.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        let shard = self.shards[turn].clone();
        let handle = shard.control(|core, _| {
            let handle = core.endpoint.create_qp(init)?;
            Ok::<_, CreateQpError>(handle)
        })??;
        shard.assign_bell(handle.qpn);
        Ok(EngineQp { handle, shard })
    }

    /// Destroys a queue pair; its outstanding work vanishes without completions.
    pub fn destroy_qp(&self, shard: &Shard, qpn: Qpn) {
        // A broken shard takes its queue pairs with it; one that is not there any more is gone already.
        let _ = shard.control_qp(qpn, |core, _| {
            let path = core.endpoint.query_qp(qpn).and_then(|info| info.path).map(|p| p.path);
            if core.endpoint.destroy_qp(qpn).is_ok() {
                release(core, path);
            }
        });
    }

    /// What the queue pair is set to. None if it is gone.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn query_qp(&self, shard: &Shard, qpn: Qpn) -> Result<Option<QpInfo>, Broken> {
        shard.inspect(|core| core.endpoint.query_qp(qpn))
    }

    /// Changes a queue pair. With an address vector the next hop is looked up first, outside the shard, for at most
    /// [`EngineConfig::resolve_wait`]; if that fails the queue pair stays as it was.
    ///
    /// # Errors
    /// See [`ModifyError`].
    pub fn modify_qp(&self, shard: &Shard, qpn: Qpn, attr: &QpAttr) -> Result<(), ModifyError> {
        // The state machine has the first word, so that a mistake is named before anybody waits for a neighbour.
        let info = self.query_qp(shard, qpn)?.ok_or(ModifyError::Gone { qpn })?;
        let current = info.attr.qp_state.unwrap_or(QpState::Reset);
        xroce_transport::qp::state::check(info.kind, current, attr)
            .map_err(|source| ModifyError::Refused { qpn, source: source.into() })?;
        let resolved = attr.ah_attr.as_ref().map(|av| self.resolve(qpn, av)).transpose()?;
        if let Some(mtu) = attr.path_mtu {
            self.check_path_mtu(qpn, mtu, resolved.as_ref().map(|(_, hop)| hop))?;
        }
        self.modify_resolved(shard, qpn, attr, resolved)
    }

    /// The rest of [`modify_qp`](Engine::modify_qp), once the next hop is known.
    fn modify_resolved(
        &self,
        shard: &Shard,
        qpn: Qpn,
        attr: &QpAttr,
        resolved: Option<(Gid, NextHop)>,
    ) -> Result<(), ModifyError> {
        let looked_up = resolved.is_some();
        shard.control_qp(qpn, |core, now| {
            // The table hears that an address goes after it has gone from the network's state, both under this token: what is
            // there now will be closed when it goes.
            if let (Some((src, _)), Some(av)) = (&resolved, &attr.ah_attr)
                && !self.network.state().gids.iter().any(|entry| entry.gid == *src)
            {
                return Err(self.no_such_gid(qpn, av.sgid_index));
            }
            let before = core.endpoint.query_qp(qpn).and_then(|info| info.path).map(|p| p.path);
            let path = resolved.map(|(src, hop)| {
                let av = attr.ah_attr.as_ref().expect("only an address vector is resolved");
                QpPath {
                    path: core.paths.insert(src, av.dgid, av.sl, &hop, Instant::now()),
                    src,
                    dst: av.dgid,
                    hop_limit: if av.hop_limit == 0 { hop.hop_limit } else { av.hop_limit },
                    traffic_class: av.traffic_class,
                    flow_label: av.flow_label,
                }
            });
            let new = path.as_ref().map(|p| p.path);
            match core.endpoint.modify_qp(now, qpn, attr, path) {
                Ok(()) => {
                    if new.is_some() || attr.qp_state == Some(QpState::Reset) {
                        release(core, before);
                    }
                    Ok(())
                }
                Err(source) => {
                    release(core, new);
                    Err(ModifyError::Refused { qpn, source })
                }
            }
        })??;
        if looked_up {
            // What changed between the look-up and now went past the table.
            self.common.attention.signal();
        }
        Ok(())
    }

    fn no_such_gid(&self, qpn: Qpn, index: u8) -> ModifyError {
        let state = self.network.state();
        ModifyError::NoSuchGid {
            qpn,
            index,
            name: state.name.clone(),
            have: state.gids.iter().map(|e| e.index).collect(),
        }
    }

    fn resolve(&self, qpn: Qpn, av: &AddressVector) -> Result<(Gid, NextHop), ModifyError> {
        let src = self.network.state().gids.get(av.sgid_index).map(|entry| entry.gid);
        let src = src.ok_or_else(|| self.no_such_gid(qpn, av.sgid_index))?;
        let hop = self
            .network
            .resolve(src, av.dgid, self.config.resolve_wait)
            .map_err(|source| ModifyError::NoNextHop { qpn, source })?;
        Ok((src, hop))
    }

    /// The largest path MTU of the port: what fits the netdev's MTU and a frame of the port, both ways.
    // rule: mtu.active
    pub fn active_mtu(&self) -> Option<PathMtu> {
        self.largest_path_mtu(self.network.state().mtu)
    }

    /// The same where IP packets may have `mtu` bytes.
    fn largest_path_mtu(&self, mtu: u32) -> Option<PathMtu> {
        let of_port = self.capabilities.max_ip_packet(usize::from(self.network.vlan().is_some()));
        PathMtu::largest_for_netdev(u32::try_from(of_port).unwrap_or(u32::MAX).min(mtu))
    }

    /// `hop`: with the MTU of the netdev and the route as they are now, of which news may still be under way.
    // rule: mtu.active
    fn check_path_mtu(&self, qpn: Qpn, asked: PathMtu, hop: Option<&NextHop>) -> Result<(), ModifyError> {
        let state = self.network.state();
        let mtu = hop.map_or(state.mtu, |hop| hop.mtu);
        let largest = self.largest_path_mtu(mtu);
        if largest.is_some_and(|largest| asked.bytes() <= largest.bytes()) {
            return Ok(());
        }
        Err(ModifyError::PathMtu {
            qpn,
            asked: asked.bytes(),
            largest: largest.map_or(0, |m| m.bytes()),
            name: state.name.clone(),
            mtu,
        })
    }

    /// Counters of every shard's port and of the shards themselves. Not for the hot path.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn counters(&self) -> Result<Vec<(PortCounters, ShardCounters)>, Broken> {
        self.shards.iter().map(|shard| shard.inspect(|core| (core.port_counters(), core.counters()))).collect()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("shards", &self.shards.len())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Why a queue pair was not changed. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ModifyError {
    /// There is no such queue pair.
    #[error("QP {qpn}: there is no such queue pair")]
    Gone {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The state machine or the range of an attribute forbids it.
    #[error("QP {qpn}: {source}")]
    Refused {
        /// The queue pair.
        qpn: Qpn,
        /// What is wrong with the call.
        source: ModifyQpError,
    },
    /// The address vector names a GID index that the port does not have.
    #[error("QP {qpn}: {name} has no GID at index {index}; it has {have:?}")]
    NoSuchGid {
        /// The queue pair.
        qpn: Qpn,
        /// The index asked for.
        index: u8,
        /// The netdev.
        name: String,
        /// The indices there are.
        have: Vec<u8>,
    },
    /// The next hop could not be found.
    #[error("QP {qpn}: {source}")]
    NoNextHop {
        /// The queue pair.
        qpn: Qpn,
        /// Why.
        source: crate::nexthop::ResolveError,
    },
    /// The path MTU does not fit the port or the route.
    #[error(
        "QP {qpn}: path MTU {asked} does not fit {name} (netdev or route MTU {mtu}); the largest is {largest}. Raise the \
         netdev's MTU to at least {} or use a smaller path MTU at both ends", asked + 96
    )]
    PathMtu {
        /// The queue pair.
        qpn: Qpn,
        /// Payload bytes asked for.
        asked: usize,
        /// The largest there can be; 0 when not even 256 fits.
        largest: usize,
        /// The netdev.
        name: String,
        /// Its MTU, or the route's.
        mtu: u32,
    },
    /// The shard is unusable.
    #[error(transparent)]
    Broken(#[from] Broken),
}

fn release(core: &mut Core, path: Option<PathId>) {
    if let Some(path) = path {
        core.paths.remove(path);
    }
}

/// Something can be done with these settings: a device that takes none of its frames only looks as if it hung.
fn check(config: &EngineConfig) -> Result<(), LimitError> {
    config.limits.check()?;
    let most = u64::from(u32::MAX);
    let budget = &config.budget;
    let ranges = [
        ("max_qp", u64::from(config.max_qp), u64::from(QPN_INDICES)),
        ("max_mr", u64::from(config.max_mr), 1 << 20),
        ("budget.rx", budget.rx as u64, most),
        ("budget.tx", budget.tx as u64, most),
        ("budget.bells", budget.bells as u64, most),
        ("budget.events", budget.events as u64, most),
    ];
    match ranges.into_iter().find(|(_, value, max)| !(1..=*max).contains(value)) {
        Some((name, value, max)) => Err(LimitError { name, value, min: 1, max }),
        None => Ok(()),
    }
}

fn common(shards: usize, watched: bool) -> Result<Common, StartError> {
    let inbox_slots = if shards > 1 { INBOX_SLOTS } else { 1 };
    let mailboxes = (0..shards)
        .map(|_| {
            Ok(Mailbox { inbox: Arc::new(Inbox::new(inbox_slots, MAX_PACKET_LEN)), sleeper: Arc::new(Sleeper::new()?) })
        })
        .collect::<io::Result<Box<[Mailbox]>>>()
        .map_err(system("make an event descriptor (see `ulimit -n`)"))?;
    Ok(Common {
        cqs: CqTable::default(),
        events: Notices::new(EVENT_SLOTS).map_err(system("make an event descriptor (see `ulimit -n`)"))?,
        watched,
        mailboxes,
        dead_cqs: AtomicU64::new(0),
        attention: EventFd::new(Take::All).map_err(system("make an event descriptor (see `ulimit -n`)"))?,
        over: AtomicBool::new(false),
        fatal: AtomicBool::new(false),
    })
}

fn shards(
    ports: Vec<Box<dyn Port>>,
    common: &Arc<Common>,
    memory: &Arc<Memory>,
    (config, seed): (&EngineConfig, u64),
    vlan: Option<u16>,
) -> Vec<Arc<Shard>> {
    let stride = ports.len() as u32;
    let clock = Clock::start();
    let build = |(index, port): (usize, Box<dyn Port>)| {
        let offset = index as u32;
        let endpoint = Endpoint::new(
            EndpointConfig {
                qpns: QpnSpace { process_slot: 0, offset, stride },
                max_qp: config.max_qp.div_ceil(stride),
                limits: config.limits,
                seed,
                ..EndpointConfig::default()
            },
            memory.clone(),
        );
        let mut core = Core::new(port, endpoint, memory.reader(), clock, Owner { offset, stride }, vlan);
        // Without a thread of the device nobody sends what an application leaves behind that polls no more.
        core.let_acks_wait(config.progress != Progress::Inline { helper: false });
        let bells = Doorbell::new(QPN_INDICES, QPN_INDICES.div_ceil(stride));
        Arc::new(Shard::new(index, core, common.clone(), bells, config.budget))
    };
    ports.into_iter().enumerate().map(build).collect()
}

#[cfg(test)]
mod tests;
