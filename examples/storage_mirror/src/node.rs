//! A storage node: one device, and for each other node a metadata channel (RC) and a data queue pair (UC, or RC to compare).
//!
//! In: an open device, TCP connections to the other nodes for the exchange, what to do. Out: a report. One thread does it all: it
//! polls one completion queue, which also drives the card, and lets every owner and keeper take a step.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use xroce::{
    ConnectOptions, Context, Cq, Pd, Psn, Qp, QpCap, QpEndpoint, QpInitAttr, QpType, RemoteMr, Rkey, Wc, WcOpcode,
    WcStatus,
};

use crate::Failure;
use crate::channel::Channel;
use crate::keeper::Keeper;
use crate::message::Body;
use crate::owner::Owner;
use crate::plan::Plan;
use crate::report::NodeReport;
use crate::sabotage::How;
use crate::work::Work;

/// WRITEs outstanding on a data queue pair.
const DATA_DEPTH: u32 = 16;
/// A peer that has more to do with others than with us is waited for so long at the end.
const FAREWELL_LIMIT: Duration = Duration::from_secs(300);

/// Another node, as this one sees it.
struct Peer {
    index: u32,
    channel: Channel,
    data: Qp,
    owner: Owner,
    keeper: Keeper,
}

impl Peer {
    fn is_done(&self) -> bool {
        self.owner.is_done() && self.keeper.is_done()
    }
}

/// Runs node `me` until its volume is mirrored everywhere and its copies are verified.
pub fn run(me: u32, device: &Context, peers: Vec<(u32, TcpStream)>, plan: &Plan) -> Result<NodeReport, Failure> {
    let pd = device.alloc_pd()?;
    let cq =
        device.create_cq((Channel::completions(plan.channel_depth) + DATA_DEPTH) * peers.len().max(1) as u32 + 1)?;
    let mut lines = Vec::new();
    let mut all = Vec::new();
    for (index, stream) in peers {
        let (peer, stream) = connect(me, index, stream, device, &pd, &cq, plan)?;
        all.push(peer);
        lines.push(stream);
    }
    let start = Instant::now();
    let cpu = cpu_seconds();
    work(me, &cq, &mut all, plan)?;
    let report = report(me, device, &all, plan, start.elapsed(), cpu_seconds() - cpu)?;
    for stream in &mut lines {
        // Until the peer has said the same, its card may still need an answer of ours.
        writeln!(stream.get_mut(), "done")?;
    }
    farewell(&cq, &mut lines)?;
    Ok(report)
}

/// Exchanges addresses with one peer and connects both queue pairs.
fn connect(
    me: u32,
    index: u32,
    stream: TcpStream,
    device: &Context,
    pd: &Pd,
    cq: &Cq,
    plan: &Plan,
) -> Result<(Peer, BufReader<TcpStream>), Failure> {
    let mut channel = Channel::new(index, pd, cq, plan.channel_depth, plan.credits)?;
    let cap = QpCap { max_send_wr: DATA_DEPTH, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    let data = pd.create_qp(&QpInitAttr { cap, ..QpInitAttr::new(plan.data.into(), cq) })?;
    let keeper = Keeper::new((me, index), pd, plan.blocks)?;

    let gid_index = device.default_gid().ok_or("the device has no address that can be reached")?.index;
    let path_mtu = device.query_port().active_mtu;
    let options = |psn| ConnectOptions { gid_index, path_mtu, psn: Psn::new(psn), ..ConnectOptions::default() };
    let (of_channel, of_data) = (options(0x1000 + me * 0x100 + index), options(0x20_0000 + me * 0x100 + index));
    let mut stream = BufReader::new(stream);
    writeln!(
        stream.get_mut(),
        "{} {} {}",
        channel.qp().endpoint(&of_channel)?,
        data.endpoint(&of_data)?,
        keeper.remote()
    )?;
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let [their_channel, their_data, their_copy] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        return Err(format!("node {index} said {line:?}").into());
    };
    let mut copy: RemoteMr = their_copy.parse()?;
    if plan.breaks(me, How::Key) {
        copy.rkey = Rkey(!copy.rkey.0);
    }
    channel.qp().connect(&their_channel.parse::<QpEndpoint>()?, &of_channel)?;
    data.connect(&their_data.parse::<QpEndpoint>()?, &of_data)?;
    channel.start()?;
    // Both are ready to receive before either sends.
    writeln!(stream.get_mut(), "ready")?;
    line.clear();
    stream.read_line(&mut line)?;
    if line.trim() != "ready" {
        return Err(format!("node {index} said {line:?} instead of \"ready\"").into());
    }
    let owner = Owner::new((me, index), pd, plan.blocks, plan.rounds, DATA_DEPTH, copy)?;
    Ok((Peer { index, channel, data, owner, keeper }, stream))
}

fn work(me: u32, cq: &Cq, peers: &mut [Peer], plan: &Plan) -> Result<(), Failure> {
    let mut last = Instant::now();
    while !peers.iter().all(Peer::is_done) {
        let mut progress = false;
        while let Some(wc) = cq.poll_one()? {
            completed(me, peers, &wc, plan)?;
            progress = true;
        }
        for peer in peers.iter_mut() {
            progress |= peer.channel.step()?;
            progress |= peer.owner.step(&peer.data, &mut peer.channel)?;
            progress |= peer.keeper.step(&mut peer.channel)?;
        }
        if progress {
            last = Instant::now();
        } else {
            if last.elapsed() > plan.patience {
                let waits = peers.iter().filter(|p| !p.is_done());
                let standing: Vec<String> = waits.flat_map(|p| [p.owner.standing(), p.keeper.standing()]).collect();
                return Err(format!("nothing came for {:?}: {}", plan.patience, standing.join("; ")).into());
            }
            // More nodes than cores: let the others run.
            std::thread::yield_now();
        }
    }
    Ok(())
}

fn completed(me: u32, peers: &mut [Peer], wc: &Wc, plan: &Plan) -> Result<(), Failure> {
    assert!(!plan.breaks(me, How::Crash), "--break asked for it");
    while plan.breaks(me, How::Hang) {
        std::thread::park();
    }
    let work = Work::of(wc.wr_id.0).ok_or("a completion of a request that we did not make")?;
    let index = match work {
        Work::Sent { peer, .. } | Work::Received { peer, .. } | Work::Block { peer, .. } => peer,
    };
    if wc.status != WcStatus::Success {
        let detail = &wc.detail;
        let whose = detail.peer.map(|peer| format!(" (peer {peer}, PSN {})", detail.psn.value()));
        return Err(format!("{work}: {}{}", wc.status, whose.unwrap_or_default()).into());
    }
    let peer = peers.iter_mut().find(|p| p.index == index).ok_or("a completion of a node that there is not")?;
    match work {
        Work::Sent { slot, .. } => peer.channel.sent(slot),
        Work::Block { .. } => peer.owner.written(),
        Work::Received { slot, .. } => {
            debug_assert_eq!(wc.opcode, WcOpcode::Recv);
            match peer.channel.received(slot, wc)? {
                Body::Record(record) => {
                    // A slow disk, say. The card goes on meanwhile, until its RECVs run out.
                    std::thread::sleep(Duration::from_micros(plan.slow_mirror_us.into()));
                    peer.keeper.record(record)?;
                }
                Body::RoundEnd { .. } => peer.keeper.compare()?,
                Body::Done => {
                    if plan.breaks(me, How::Rot) {
                        peer.keeper.rot()?;
                    }
                    if plan.breaks(me, How::Forget) {
                        peer.keeper.forget();
                    }
                    peer.keeper.verify()?;
                }
                Body::Resend { blocks } => peer.owner.answered(Some(blocks))?,
                Body::RoundOk => peer.owner.answered(None)?,
                Body::Verified { blocks, records, log } => peer.owner.verified(blocks, records, log)?,
                Body::Credits => {}
            }
        }
    }
    Ok(())
}

/// Keeps the card running until every peer has said that it is done too.
fn farewell(cq: &Cq, lines: &mut [BufReader<TcpStream>]) -> Result<(), Failure> {
    for stream in lines {
        stream.get_ref().set_read_timeout(Some(Duration::from_millis(2)))?;
        let deadline = Instant::now() + FAREWELL_LIMIT;
        let mut line = String::new();
        while !line.ends_with('\n') {
            while cq.poll_one()?.is_some() {}
            match stream.read_line(&mut line) {
                Ok(0) => break,
                Ok(_) => {}
                Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
                Err(e) => return Err(e.into()),
            }
            if Instant::now() > deadline {
                return Err("a peer never finished".into());
            }
        }
    }
    Ok(())
}

fn report(
    me: u32,
    device: &Context,
    peers: &[Peer],
    plan: &Plan,
    elapsed: Duration,
    cpu: f64,
) -> Result<NodeReport, Failure> {
    let mut report = NodeReport { node: me, seconds: elapsed.as_secs_f64(), cpu_seconds: cpu, ..NodeReport::default() };
    for peer in peers {
        let counts = peer.owner.counts;
        report.blocks += counts.blocks;
        report.resent += counts.resent;
        report.records += peer.owner.records();
        report.verified_blocks += counts.verified_blocks;
        report.verified_records += counts.verified_records;
        report.credit_waits += peer.channel.waits;
        report.rnr_naks += peer.channel.qp().counters()?.rcvd_rnr_err;
        report.packets_resent += peer.data.counters()?.resent_pkts + peer.channel.qp().counters()?.resent_pkts;
    }
    report.path_mtu = device.query_port().active_mtu.map_or(0, |mtu| mtu.bytes() as u32);
    debug_assert_eq!(report.blocks, u64::from(plan.blocks * plan.rounds) * peers.len() as u64);
    Ok(report)
}

/// CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

impl From<crate::plan::Data> for QpType {
    fn from(data: crate::plan::Data) -> QpType {
        match data {
            crate::plan::Data::Uc => QpType::Uc,
            crate::plan::Data::Rc => QpType::Rc,
        }
    }
}
