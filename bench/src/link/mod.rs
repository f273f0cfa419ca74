//! Figures over a veth: S2 to S5, S7 and S8.
//!
//! In: how many rounds, and how long each. Out: rows of the table. What is compared runs in turn, in the same namespaces.

mod busy;
pub mod net;
mod pauses;
mod raw;
mod resend;
mod sockets;
mod stack;
mod unreliable;
mod xsk;

use std::time::Duration;

use xroce::PathMtu;

use crate::pair::Result;
use crate::report::{Goal, Report};
use crate::spread::{Ratio, alternate};
use net::{Net, Setup};
use raw::Costs;
use stack::Load;

/// Bytes of a message for throughput.
const LARGE: u32 = 64 << 10;
/// BTH and ICRC: what a RoCE packet has behind UDP beside its payload.
const ROCE: usize = 12 + 4;
/// A RETH.
const RETH: usize = 16;
/// Round trips before the first that counts: pages are touched, caches filled, helper threads have seen that somebody polls.
const WARM_UP: usize = 1000;
/// ACK timeout under injected loss: 17 ms. A lost packet is mostly told by a NAK; only the last one of all has to be waited for.
const SHORT_TIMEOUT: u8 = 12;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Rounds, 5 or more for a figure that is kept.
    pub rounds: usize,
    /// Of one side in one round.
    pub time: Duration,
    /// Round trips of one side in one round.
    pub trips: usize,
    /// The ends' threads run before every other program.
    pub realtime: bool,
}

/// Which of the figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Figure {
    /// Throughput against raw AF_XDP
    S2,
    /// Round trips against raw AF_XDP
    S3,
    /// Message rate against raw AF_XDP
    S4,
    /// Against UDP and TCP sockets
    S5,
    /// UC beside RC
    S7,
    /// RC under loss
    S8,
}

/// Measures `figures`, each row as it comes.
///
/// # Errors
/// When namespaces or AF_XDP cannot be had, or a measurement fails.
pub fn measure(figures: &[Figure], length: Length, report: &mut Report) -> Result<()> {
    let bench = Bench { net: Net::up(length.realtime)?, length };
    for figure in figures {
        match figure {
            Figure::S2 => bench.throughput(report)?,
            Figure::S3 => bench.round_trip(report)?,
            Figure::S4 => bench.message_rate(report)?,
            Figure::S5 => bench.sockets(report)?,
            Figure::S7 => unreliable::measure(&bench, report)?,
            Figure::S8 => bench.loss(report)?,
        }
    }
    Ok(())
}

struct Bench {
    net: Net,
    length: Length,
}

impl Bench {
    fn alternate(&self, ours: impl FnMut() -> Result<f64>, theirs: impl FnMut() -> Result<f64>) -> Result<Ratio> {
        alternate(self.length.rounds, ours, theirs)
    }

    /// Gbit/s of RC WRITE.
    fn write(&self, load: Load) -> Result<f64> {
        Ok(stack::write(&self.net, load, self.length.time)?.gbit_per_s)
    }

    /// Gbit/s of payload in raw frames as long as those of path MTU `mtu`.
    fn blast(&self, mtu: PathMtu, costs: Costs) -> Result<f64> {
        let packets = raw::blast(&self.net, mtu.bytes() + ROCE, costs, self.length.time)?;
        Ok(packets * mtu.bytes() as f64 * 8.0 / 1e9)
    }

    fn throughput(&self, report: &mut Report) -> Result<()> {
        for setup in [Setup::Plain, Setup::ThreadedNapi] {
            self.net.set_up(setup)?;
            let goal = Goal::AtLeast(if setup == Setup::Plain { 0.95 } else { 0.85 });
            for mtu in [PathMtu::Mtu1024, PathMtu::Mtu2048, PathMtu::Mtu4096] {
                let copies = Costs { copies: true, ..Costs::default() };
                let name = |against| format!("RC WRITE 64 KiB, MTU {mtu}, {}, vs {against}", setup.name());
                let ratio = self.alternate(|| self.write(Load::rc(mtu, LARGE)), || self.blast(mtu, copies))?;
                report.row("S2", &name("raw with copies"), "Gbit/s", ratio, goal);
            }
        }
        self.net.set_up(Setup::Plain)?;
        // What the yardstick costs when it does what every RoCE packet needs: shows how much of the gap is protocol.
        let mtu = PathMtu::Mtu1024;
        let all = Costs { copies: true, crc: true, reverse_every: 32 };
        let ratio = self.alternate(|| self.write(Load::rc(mtu, LARGE)), || self.blast(mtu, all))?;
        report.row(
            "S2",
            "RC WRITE 64 KiB, MTU 1024, A, vs raw with copies, CRC, 1 in 32 back",
            "Gbit/s",
            ratio,
            Goal::None,
        );
        Ok(())
    }

    fn round_trip(&self, report: &mut Report) -> Result<()> {
        self.net.set_up(Setup::Plain)?;
        let trips = self.length.trips;
        for (name, send, extra) in [("SEND", true, 0), ("WRITE", false, RETH)] {
            let mut pairs = [const { Vec::new() }; 4];
            let mut pauses = Vec::new();
            for _ in 0..self.length.rounds {
                let ours = stack::ping_pong(&self.net, send, trips)?;
                let theirs = raw::ping_pong(&self.net, 64 + extra + ROCE, false, trips)?;
                let with_acks = raw::ping_pong(&self.net, 64 + extra + ROCE, true, trips)?;
                pairs[0].push((quantile(&ours, 0.5), quantile(&theirs, 0.5)));
                pairs[1].push((quantile(&ours, 0.95), quantile(&theirs, 0.95)));
                pairs[2].push((quantile(&ours, 0.99), quantile(&theirs, 0.99)));
                // What the yardstick needs for as many frames as RC sends: shows how much of the gap is ACKs.
                pairs[3].push((quantile(&ours, 0.5), quantile(&with_acks, 0.5)));
                let one_in_100 = 1e6 / quantile(&ours, 0.5) / 100.0;
                pauses.push((pauses::per_second(&self.net, self.length.time)?, one_in_100));
            }
            let rows = [
                ("median, vs raw", Goal::AtMost(1.2)),
                ("p95, vs raw", Goal::None),
                ("p99, vs raw", Goal::AtMost(1.5)),
                ("median, vs raw with a second frame each way", Goal::None),
            ];
            for ((which, goal), pairs) in rows.into_iter().zip(pairs) {
                let name = format!("RC {name} 64 B round trip, {which}");
                report.row("S3", &name, "µs", Ratio::of(&pairs), goal);
            }
            // Above 1 the p99 is the length of such a pause, whatever the stack does.
            let name = format!("pauses of a spinning thread, 20 µs and more, vs 1 in 100 {name}s");
            report.row("S3", &name, "/s", Ratio::of(&pauses), Goal::None);
        }
        Ok(())
    }

    fn message_rate(&self, report: &mut Report) -> Result<()> {
        self.net.set_up(Setup::Plain)?;
        for qps in [1, 16] {
            let load = Load { qps, ..Load::rc(PathMtu::Mtu1024, 64) };
            let mut acks = Vec::new();
            let ratio = self.alternate(
                || {
                    let done = stack::write(&self.net, load, self.length.time)?;
                    acks.push(done.acks_per_packet);
                    Ok(done.messages_per_s / 1e6)
                },
                || Ok(raw::blast(&self.net, 64 + RETH + ROCE, Costs::default(), self.length.time)? / 1e6),
            )?;
            report.row("S4", &format!("RC WRITE 64 B, {qps} QP, vs raw frames"), "M/s", ratio, Goal::AtLeast(0.9));
            let acks = Ratio::of(&acks.iter().map(|a| (*a, 1.0)).collect::<Vec<_>>());
            report.row("S4", &format!("ACKs a packet, {qps} QP"), "", acks, Goal::AtMost(1.0 / 16.0));
        }
        Ok(())
    }

    fn sockets(&self, report: &mut Report) -> Result<()> {
        let mtu = PathMtu::Mtu1024;
        for setup in [Setup::Plain, Setup::ThreadedNapi] {
            self.net.set_up(setup)?;
            let goal = Goal::AtLeast(1.0);
            let ours = || self.write(Load::rc(mtu, LARGE));
            let ratio = self.alternate(ours, || sockets::udp(&self.net, mtu.bytes(), self.length.time))?;
            report.row(
                "S5",
                &format!("RC WRITE 64 KiB, MTU 1024, {}, vs UDP 1024 B", setup.name()),
                "Gbit/s",
                ratio,
                goal,
            );
            self.net.offloads(false)?;
            let goal = if setup == Setup::Plain { Goal::None } else { goal };
            let ratio = self.alternate(ours, || sockets::tcp(&self.net, mtu.bytes(), self.length.time));
            self.net.offloads(true)?;
            report.row(
                "S5",
                &format!("RC WRITE 64 KiB, MTU 1024, {}, vs TCP MSS 1024", setup.name()),
                "Gbit/s",
                ratio?,
                goal,
            );
        }
        self.net.set_up(Setup::Plain)?;
        let trips = self.length.trips;
        let median = |times: Vec<u64>| quantile(&times, 0.5);
        let ratio = self.alternate(
            || Ok(median(stack::ping_pong(&self.net, true, trips)?)),
            || Ok(median(sockets::udp_ping_pong(&self.net, 64, trips)?)),
        )?;
        report.row("S5", "RC SEND 64 B round trip, median, vs UDP spinning", "µs", ratio, Goal::AtMost(0.6));
        Ok(())
    }

    fn loss(&self, report: &mut Report) -> Result<()> {
        self.net.set_up(Setup::Plain)?;
        for (percent, goal) in [(0.01, Goal::None), (0.1, Goal::AtLeast(0.9)), (1.0, Goal::None)] {
            let clean = Load { timeout: SHORT_TIMEOUT, ..Load::rc(PathMtu::Mtu1024, LARGE) };
            let lossy = Load { drop_per_64k: unreliable::per_64k(percent), ..clean };
            let ratio = self.alternate(|| self.write(lossy), || self.write(clean))?;
            report.row(
                "S8",
                &format!("RC WRITE 64 KiB, MTU 1024, {percent} % lost each way, vs none"),
                "Gbit/s",
                ratio,
                goal,
            );
        }
        Ok(())
    }
}

/// The time, in microseconds, that so much of the round trips took at most.
fn quantile(times_ns: &[u64], part: f64) -> f64 {
    let mut sorted = times_ns.to_vec();
    sorted.sort_unstable();
    sorted[((sorted.len() - 1) as f64 * part) as usize] as f64 / 1000.0
}
