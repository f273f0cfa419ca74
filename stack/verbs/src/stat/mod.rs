//! What a device and its queue pairs are doing, as values that can leave the process.
//!
//! In: an open device. Out: [`DeviceStat`] and [`QpStat`], read on demand under the shards' tokens: the data path does nothing for
//! it. With the feature `stat` (on by default) they can be turned into JSON and back, and a process can offer them to others by
//! [`serve`]: that is what `xroce stat` and `xroce top` read.
#![forbid(unsafe_code)]

mod names;
mod qp;
#[cfg(feature = "stat")]
mod rendezvous;
#[cfg(feature = "stat")]
mod server;

use std::collections::BTreeMap;

use xroce_engine::Progress;
use xroce_engine::netdev::PortState;
use xroce_engine::token::Broken;
use xroce_transport::qp::{QpInfo, QpSnapshot};
use xroce_wire::Qpn;

pub use names::{Family, NAMES, Named, Totals, markdown};
pub use qp::QpStat;
#[cfg(feature = "stat")]
pub use rendezvous::{AskError, Endpoint, endpoints, run_dirs};
#[cfg(feature = "stat")]
pub use server::{ServeError, StatServer};

use crate::context::Context;

/// Grows when a field changes its meaning or goes away.
pub const VERSION: u32 = 1;

/// Numbers by name.
pub type Numbers = BTreeMap<String, u64>;

/// A device at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "stat", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceStat {
    /// The netdev.
    pub name: String,
    /// The version of the library.
    pub fw_ver: String,
    /// Who runs the shards: inline, spin, adaptive or event.
    pub progress: String,
    /// ACTIVE or DOWN.
    pub port_state: String,
    /// Bytes of the largest IP packet of the netdev.
    pub mtu: u32,
    /// The largest path MTU there can be now; none when not even 256 fits.
    pub active_mtu: Option<u32>,
    /// Our addresses.
    pub gids: Vec<String>,
    /// How many shards there are.
    pub shards: u32,
    /// Queue pairs that exist.
    pub queue_pairs: u32,
    /// Every counter of [`NAMES`].
    pub counters: Numbers,
    /// Dropped packets by reason.
    pub drops: Numbers,
}

/// What another process is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "stat", derive(serde::Serialize, serde::Deserialize))]
pub struct Report {
    /// [`VERSION`] of who wrote it.
    pub version: u32,
    /// The process that runs the device.
    pub pid: u32,
    /// What it calls itself.
    pub program: String,
    /// Nanoseconds since the device is on offer: to make rates of two reports.
    pub at_ns: u64,
    /// The device.
    pub device: DeviceStat,
    /// The queue pairs that were asked for, by number.
    pub qps: Vec<QpStat>,
}

/// Which queue pairs a report is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// None.
    None,
    /// All.
    All,
    /// This one, if it exists.
    One(Qpn),
}

/// Queue pairs looked at with one token: some 20 µs in which the shard does nothing else.
const AT_A_TIME: usize = 64;

impl Context {
    /// What the device has counted, all shards together.
    ///
    /// # Errors
    /// [`Broken`] after a poll thread panicked.
    pub fn totals(&self) -> Result<Totals, Broken> {
        let mut totals = Totals { link_downed: self.raw_engine().network().state().link_downed, ..Totals::default() };
        for (port, shard, transport) in self.counters()? {
            totals.transport.add(&transport);
            totals.shard.add(&shard);
            totals.port.add(&port);
            totals.link_downed += shard.link_downed;
        }
        Ok(totals)
    }

    /// The device as it is now.
    ///
    /// # Errors
    /// [`Broken`] after a poll thread panicked.
    pub fn stat(&self) -> Result<DeviceStat, Broken> {
        let totals = self.totals()?;
        let port = self.query_port();
        let numbers = |pair: (&str, u64)| (pair.0.to_owned(), pair.1);
        let shards = self.raw_engine().shards();
        let mut queue_pairs = 0;
        for shard in shards {
            queue_pairs += shard.inspect(|core| core.endpoint.qpns().count())?;
        }
        Ok(DeviceStat {
            name: self.name(),
            fw_ver: env!("CARGO_PKG_VERSION").to_owned(),
            progress: progress_name(self.progress()).to_owned(),
            port_state: match port.state {
                PortState::Active => "ACTIVE".to_owned(),
                PortState::Down => "DOWN".to_owned(),
            },
            mtu: port.netdev_mtu,
            active_mtu: port.active_mtu.map(|mtu| mtu.bytes() as u32),
            gids: self.gid_table().iter().map(|entry| entry.gid.to_ip().to_string()).collect(),
            shards: shards.len() as u32,
            queue_pairs: queue_pairs as u32,
            counters: NAMES.iter().map(|named| numbers((named.name, named.of(&totals)))).collect(),
            drops: totals.transport.drops.iter().map(|(reason, count)| numbers((reason.name(), count))).collect(),
        })
    }

    /// Queue pairs as they are now, by number. Between some of them the device goes on.
    ///
    /// # Errors
    /// [`Broken`] after a poll thread panicked.
    pub fn qp_stats(&self, which: Which) -> Result<Vec<QpStat>, Broken> {
        let mut all = Vec::new();
        for shard in self.raw_engine().shards() {
            let qpns: Vec<Qpn> = match which {
                Which::None => Vec::new(),
                Which::All => shard.inspect(|core| core.endpoint.qpns().collect())?,
                Which::One(qpn) => vec![qpn],
            };
            for some in qpns.chunks(AT_A_TIME) {
                let mut looks: Vec<(QpInfo, QpSnapshot)> = Vec::with_capacity(some.len());
                shard.inspect(|core| {
                    let look = |qpn: &Qpn| Some((core.endpoint.query_qp(*qpn)?, core.endpoint.glance_at_qp(*qpn)?));
                    looks.extend(some.iter().filter_map(look));
                })?;
                all.extend(looks.iter().map(|(info, snapshot)| QpStat::new(shard.index(), info, snapshot)));
            }
        }
        all.sort_by_key(|qp| qp.qpn);
        Ok(all)
    }
}

fn progress_name(progress: Progress) -> &'static str {
    match progress {
        Progress::Inline { .. } => "inline",
        Progress::Spin { .. } => "spin",
        Progress::Adaptive { .. } => "adaptive",
        Progress::Event => "event",
    }
}
