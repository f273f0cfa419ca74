//! Another node, as this one sees it: a metadata channel (RC), a data queue pair (UC, or RC to compare), and the TCP connection
//! over which they are connected, at first and again whenever RC has spent its retries.
//!
//! RC gives up after `retry_cnt` resends without progress, whoever is to blame: at 30 % loss, where a packet and its answer both
//! come through every other time, that is one exchange in 200; a peer that gets no CPU for two seconds does it without any loss.
//! Both ends then take new queue pairs. Which message was the last to arrive neither knows, so the keeper says how many records it
//! has; the owner goes on from there and asks for the comparison anew.
//!
//! Over TCP: `join`, addresses and records; `ready` when the other's were taken; `done` at the end. Who gets a `join` that it did
//! not ask for answers with one of its own.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::time::Instant;

use xroce::{
    ConnectOptions, Context, Cq, PathMtu, Pd, Psn, Qp, QpCap, QpEndpoint, QpInitAttr, Qpn, RemoteMr, Rkey, Wc,
};

use crate::Failure;
use crate::channel::Channel;
use crate::keeper::Keeper;
use crate::message::Body;
use crate::owner::Owner;
use crate::plan::Plan;
use crate::report::NodeReport;
use crate::sabotage::How;

/// WRITEs outstanding on a data queue pair.
pub const DATA_DEPTH: u32 = 16;
/// Connections in a row over which no message came, after which a peer is given up.
const MOST_IN_VAIN: u32 = 10;

/// First PSNs, to which the indices of both ends are added.
const CHANNEL_PSN: u32 = 0x1000;
const DATA_PSN: u32 = 0x20_0000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Our queue pairs wait for the addresses of theirs, since then.
    Joining(Instant),
    /// Ours are connected; theirs not yet, for all we know.
    Connected(Instant),
    /// Both are.
    Up,
}

/// What connections are made of.
#[derive(Clone, Copy)]
pub struct Home<'a> {
    /// Index of this node.
    pub me: u32,
    /// Its device.
    pub device: &'a Context,
    /// Its only domain.
    pub pd: &'a Pd,
    /// Its only completion queue.
    pub cq: &'a Cq,
    /// What is done.
    pub plan: &'a Plan,
}

/// Another node.
pub struct Peer<'a> {
    home: Home<'a>,
    /// Its index.
    pub index: u32,
    channel: Channel,
    data: Qp,
    /// Our volume's owner, towards it.
    pub owner: Owner,
    /// The keeper of its volume.
    pub keeper: Keeper,
    line: BufReader<TcpStream>,
    /// What came of the next line so far.
    heard: String,
    state: State,
    said_done: bool,
    /// Why the last connection was lost.
    why: String,
    in_vain: u32,
    /// Figures of connections that were lost.
    before: NodeReport,
}

impl<'a> Peer<'a> {
    /// Node `index`, the other end of `stream`, which is invited to connect.
    pub fn new(home: Home<'a>, index: u32, stream: TcpStream) -> Result<Peer<'a>, Failure> {
        stream.set_nonblocking(true)?;
        let Home { me, pd, cq, plan, .. } = home;
        let mut peer = Peer {
            home,
            index,
            channel: Channel::new(index, pd, cq, plan.channel_depth, plan.credits)?,
            data: data_qp(pd, cq, plan)?,
            owner: Owner::new((me, index), pd, plan, DATA_DEPTH)?,
            keeper: Keeper::new((me, index), pd, plan.blocks, plan.block_size as usize)?,
            line: BufReader::new(stream),
            heard: String::new(),
            state: State::Joining(Instant::now()),
            said_done: false,
            why: "it never connected".to_owned(),
            in_vain: 0,
            before: NodeReport::default(),
        };
        peer.invite()?;
        Ok(peer)
    }

    /// Whether messages can go both ways.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Whether all is mirrored and verified, both ways.
    pub fn is_done(&self) -> bool {
        self.owner.is_done() && self.keeper.is_done()
    }

    /// Whether it needs nothing more of us.
    pub fn has_said_done(&self) -> bool {
        self.said_done
    }

    /// Whether `qpn` is a queue pair of the connection that there is now.
    pub fn owns(&self, qpn: Qpn) -> bool {
        qpn == self.channel.qp().qpn() || qpn == self.data.qpn()
    }

    /// Does what can be done now; whether that was anything.
    pub fn step(&mut self) -> Result<bool, Failure> {
        if !self.is_up() {
            return Ok(false);
        }
        let told = self.channel.step()?;
        let wrote = self.owner.step(&self.data, &mut self.channel)?;
        Ok(self.keeper.step(&mut self.channel)? || told || wrote)
    }

    /// A SEND of ours has arrived.
    pub fn sent(&mut self, slot: u32) {
        self.channel.sent(slot);
    }

    /// A message has come: what it says.
    pub fn received(&mut self, slot: u32, wc: &Wc) -> Result<Body, Failure> {
        self.in_vain = 0;
        self.channel.received(slot, wc)
    }

    /// Half of its volume has been logged, and no connection was lost yet.
    pub fn is_half_way(&self) -> bool {
        self.before.reconnects == 0 && self.keeper.records() * 2 >= u64::from(self.home.plan.blocks)
    }

    /// The connection is lost, for this reason: begins another, unless nobody needs it any more or the last ones were in vain.
    pub fn lost(&mut self, why: String) -> Result<(), Failure> {
        if self.said_done && self.is_done() {
            return Ok(());
        }
        self.why = why;
        self.in_vain += 1;
        if self.in_vain > MOST_IN_VAIN {
            return Err(format!(
                "{}; no message came over {MOST_IN_VAIN} connections in a row: do packets to UDP port 4791 reach node {}?",
                self.why, self.index
            )
            .into());
        }
        self.before.reconnects += 1;
        self.renew()
    }

    /// New queue pairs, and an invitation to the peer.
    fn renew(&mut self) -> Result<(), Failure> {
        self.before = self.figures()?;
        let Home { pd, cq, plan, .. } = self.home;
        self.channel = Channel::new(self.index, pd, cq, plan.channel_depth, plan.credits)?;
        self.data = data_qp(pd, cq, plan)?;
        self.keeper.renew();
        self.state = State::Joining(Instant::now());
        self.invite()
    }

    /// Figures of the connections that were lost and of the one that there is.
    fn figures(&self) -> Result<NodeReport, Failure> {
        let (channel, data) = (self.channel.qp().counters()?, self.data.counters()?);
        Ok(NodeReport {
            credit_waits: self.before.credit_waits + self.channel.waits,
            rnr_naks: self.before.rnr_naks + channel.rcvd_rnr_err,
            packets_resent: self.before.packets_resent + data.resent_pkts + channel.resent_pkts,
            ..self.before.clone()
        })
    }

    /// Adds what was done for this peer to a node's report.
    pub fn add_to(&self, report: &mut NodeReport) -> Result<(), Failure> {
        let (counts, figures) = (self.owner.counts, self.figures()?);
        report.blocks += counts.blocks;
        report.resent += counts.resent;
        report.records += self.owner.records();
        report.verified_blocks += counts.verified_blocks;
        report.verified_records += counts.verified_records;
        report.credit_waits += figures.credit_waits;
        report.rnr_naks += figures.rnr_naks;
        report.packets_resent += figures.packets_resent;
        report.reconnects += figures.reconnects;
        Ok(())
    }

    /// Tells the peer that we need nothing more of it.
    pub fn say_done(&mut self) -> Result<(), Failure> {
        self.say("done")
    }

    /// Looks for a line of the peer; whether there was one.
    pub fn listen(&mut self) -> Result<bool, Failure> {
        match self.line.read_line(&mut self.heard) {
            Ok(_) if self.heard.ends_with('\n') => {
                let line = std::mem::take(&mut self.heard);
                self.told(line.trim())?;
                Ok(true)
            }
            // It has ended, which is its right when it is done.
            Ok(_) if self.said_done => Ok(false),
            Ok(_) => Err(format!("node {} ended before it was done", self.index).into()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => self.still_waits(),
            Err(_) if self.said_done => Ok(false),
            Err(e) => Err(format!("node {}: {e}", self.index).into()),
        }
    }

    fn still_waits(&self) -> Result<bool, Failure> {
        match self.state {
            State::Joining(since) | State::Connected(since) if since.elapsed() > self.home.plan.patience => {
                let (index, patience) = (self.index, self.home.plan.patience);
                let why = &self.why;
                Err(format!(
                    "{why}; node {index} was asked to connect, and nothing came for {patience:?}: does it run?"
                )
                .into())
            }
            _ => Ok(false),
        }
    }

    fn told(&mut self, line: &str) -> Result<(), Failure> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["join", channel, data, copy, records] => {
                if !matches!(self.state, State::Joining(_)) {
                    self.renew()?;
                }
                self.connect(&channel.parse()?, &data.parse()?)?;
                let path_mtu = self.home.device.query_port().active_mtu.unwrap_or(PathMtu::Mtu1024).bytes();
                self.owner.resume(self.key(copy.parse()?), records.parse()?, path_mtu)?;
                self.state = State::Connected(Instant::now());
                self.say("ready")
            }
            ["ready"] => {
                // While we are joining it is about the connection before, over which messages may have come first.
                if matches!(self.state, State::Connected(_)) {
                    self.state = State::Up;
                }
                Ok(())
            }
            ["done"] => {
                self.said_done = true;
                Ok(())
            }
            _ => Err(format!("node {} said {line:?}", self.index).into()),
        }
    }

    fn say(&mut self, line: &str) -> Result<(), Failure> {
        match self.line.get_mut().write_all(format!("{line}\n").as_bytes()) {
            // It has gone, and may.
            Err(_) if self.said_done => Ok(()),
            Err(e) => Err(format!("node {}: {e}", self.index).into()),
            Ok(()) => Ok(()),
        }
    }

    fn options(&self, psn: u32) -> Result<ConnectOptions, Failure> {
        let device = self.home.device;
        Ok(ConnectOptions {
            gid_index: device.default_gid().ok_or("the device has no address that can be reached")?.index,
            path_mtu: device.query_port().active_mtu,
            psn: Psn::new(psn + self.home.me * 0x100 + self.index),
            ..ConnectOptions::default()
        })
    }

    fn invite(&mut self) -> Result<(), Failure> {
        let channel = self.channel.qp().endpoint(&self.options(CHANNEL_PSN)?)?;
        let data = self.data.endpoint(&self.options(DATA_PSN)?)?;
        let (copy, records) = (self.keeper.remote(), self.keeper.records());
        self.say(&format!("join {channel} {data} {copy} {records}"))
    }

    /// Ready to receive before the peer hears that it may send.
    fn connect(&mut self, channel: &QpEndpoint, data: &QpEndpoint) -> Result<(), Failure> {
        self.channel.qp().connect(channel, &self.options(CHANNEL_PSN)?)?;
        self.data.connect(data, &self.options(DATA_PSN)?)?;
        self.channel.start()
    }

    fn key(&self, copy: RemoteMr) -> RemoteMr {
        let wrong = self.home.plan.breaks(self.home.me, How::Key);
        RemoteMr { rkey: if wrong { Rkey(!copy.rkey.0) } else { copy.rkey }, ..copy }
    }
}

fn data_qp(pd: &Pd, cq: &Cq, plan: &Plan) -> Result<Qp, Failure> {
    let cap = QpCap { max_send_wr: DATA_DEPTH, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    Ok(pd.create_qp(&QpInitAttr { cap, ..QpInitAttr::new(plan.data.into(), cq) })?)
}
