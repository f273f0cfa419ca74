//! A storage node: one device, and for each other node a [`Peer`].
//!
//! In: an open device, TCP connections to the other nodes for the exchange, what to do. Out: a report. One thread does it all: it
//! polls one completion queue, which also drives the card, and lets every owner and keeper take a step.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use xroce::{Context, QpType, Wc, WcOpcode, WcStatus};

use crate::Failure;
use crate::channel::Channel;
use crate::message::Body;
use crate::peer::{DATA_DEPTH, Home, Peer};
use crate::plan::Plan;
use crate::report::NodeReport;
use crate::sabotage::How;
use crate::work::Work;

/// How often the TCP connections are looked at while RDMA goes on.
const LINES_EVERY: Duration = Duration::from_millis(1);

/// A peer that has more to do with others than with us is waited for so long at the end.
const FAREWELL_LIMIT: Duration = Duration::from_secs(300);

/// Runs node `me` until its volume is mirrored everywhere and its copies are verified.
pub fn run(me: u32, device: &Context, streams: Vec<(u32, TcpStream)>, plan: &Plan) -> Result<NodeReport, Failure> {
    let pd = device.alloc_pd()?;
    // Twice: what a lost connection leaves behind lies there beside what its successor does.
    let of_a_peer = 2 * (Channel::completions(plan.channel_depth) + DATA_DEPTH);
    let cq = device.create_cq(of_a_peer * streams.len().max(1) as u32 + 1)?;
    let home = Home { me, device, pd: &pd, cq: &cq, plan };
    let peers: Result<Vec<Peer<'_>>, Failure> =
        streams.into_iter().map(|(index, stream)| Peer::new(home, index, stream)).collect();
    Node { home, peers: peers?, began: None }.work()
}

/// A node at work.
struct Node<'a> {
    home: Home<'a>,
    peers: Vec<Peer<'a>>,
    /// When the first connection stood, and the CPU time until then.
    began: Option<(Instant, f64)>,
}

impl Node<'_> {
    /// Goes on until every peer has said that it is done too: until then it may need an answer of ours.
    fn work(&mut self) -> Result<NodeReport, Failure> {
        let (mut last, mut looked) = (Instant::now(), Instant::now());
        let mut done: Option<NodeReport> = None;
        loop {
            let mut progress = self.step()?;
            if !progress || looked.elapsed() > LINES_EVERY {
                looked = Instant::now();
                for peer in &mut self.peers {
                    progress |= peer.listen()?;
                }
            }
            if self.began.is_none() && self.peers.iter().any(Peer::is_up) {
                self.began = Some((Instant::now(), cpu_seconds()));
            }
            if done.is_none() && self.peers.iter().all(Peer::is_done) {
                done = Some(self.report()?);
                self.peers.iter_mut().try_for_each(Peer::say_done)?;
            }
            if let Some(report) = done.take_if(|_| self.peers.iter().all(Peer::has_said_done)) {
                return Ok(report);
            }
            if progress {
                last = Instant::now();
            } else {
                match done {
                    None if last.elapsed() > self.home.plan.patience => return Err(self.stuck()),
                    Some(_) if last.elapsed() > FAREWELL_LIMIT => return Err("a peer never finished".into()),
                    _ => {}
                }
                // More nodes than cores: let the others run.
                std::thread::yield_now();
            }
        }
    }

    /// Takes completions and lets everyone do what can be done now; whether that was anything.
    fn step(&mut self) -> Result<bool, Failure> {
        let mut progress = false;
        while let Some(wc) = self.home.cq.poll_one()? {
            self.completed(&wc)?;
            progress = true;
        }
        for peer in &mut self.peers {
            progress |= peer.step()?;
        }
        Ok(progress)
    }

    fn stuck(&self) -> Failure {
        let waits = self.peers.iter().filter(|p| !p.is_done());
        let standing: Vec<String> = waits.flat_map(|p| [p.owner.standing(), p.keeper.standing()]).collect();
        format!("nothing came for {:?}: {}", self.home.plan.patience, standing.join("; ")).into()
    }

    fn completed(&mut self, wc: &Wc) -> Result<(), Failure> {
        assert!(!self.home.plan.breaks(self.home.me, How::Crash), "--break asked for it");
        while self.home.plan.breaks(self.home.me, How::Hang) {
            std::thread::park();
        }
        let work = Work::of(wc.wr_id.0).ok_or("a completion of a request that we did not make")?;
        let index = match work {
            Work::Sent { peer, .. } | Work::Received { peer, .. } | Work::Block { peer, .. } => peer,
        };
        let peer =
            self.peers.iter_mut().find(|p| p.index == index).ok_or("a completion of a node that there is not")?;
        if !peer.owns(wc.qpn) {
            // Of a connection that was lost; what it had not done is done again.
            return Ok(());
        }
        if wc.status != WcStatus::Success {
            let detail = &wc.detail;
            let whose = detail.peer.map(|peer| format!(" (peer {peer}, PSN {})", detail.psn.value()));
            let why = format!("{work}: {}{}", wc.status, whose.unwrap_or_default());
            // Retries that are spent mean that packets were lost, or that the peer slept: a new connection may live.
            // Anything else would fail there too.
            return if wc.status == WcStatus::RetryExcErr { peer.lost(why) } else { Err(why.into()) };
        }
        match work {
            Work::Sent { slot, .. } => peer.sent(slot),
            Work::Block { .. } => peer.owner.written(),
            Work::Received { slot, .. } => {
                debug_assert_eq!(wc.opcode, WcOpcode::Recv);
                let body = peer.received(slot, wc)?;
                heard(self.home.me, peer, body, self.home.plan)?;
            }
        }
        Ok(())
    }

    fn report(&self) -> Result<NodeReport, Failure> {
        let (start, cpu) = self.began.unwrap_or_else(|| (Instant::now(), cpu_seconds()));
        let mut report = NodeReport {
            node: self.home.me,
            seconds: start.elapsed().as_secs_f64(),
            cpu_seconds: cpu_seconds() - cpu,
            ..NodeReport::default()
        };
        self.peers.iter().try_for_each(|peer| peer.add_to(&mut report))?;
        report.path_mtu = self.home.device.query_port().active_mtu.map_or(0, |mtu| mtu.bytes() as u32);
        debug_assert_eq!(
            report.blocks,
            u64::from(self.home.plan.blocks * self.home.plan.rounds) * self.peers.len() as u64
        );
        Ok(report)
    }
}

/// What a message asks of us.
fn heard(me: u32, peer: &mut Peer<'_>, body: Body, plan: &Plan) -> Result<(), Failure> {
    match body {
        Body::Record(record) => {
            // A slow disk, say. The card goes on meanwhile, until its RECVs run out.
            std::thread::sleep(Duration::from_micros(plan.slow_mirror_us.into()));
            peer.keeper.record(record)?;
            if plan.breaks(me, How::Lose) && peer.is_half_way() {
                peer.lost("--break asked for it".to_owned())?;
            }
            Ok(())
        }
        Body::RoundEnd { .. } => peer.keeper.compare(),
        Body::Done => {
            if plan.breaks(me, How::Rot) {
                peer.keeper.rot()?;
            }
            if plan.breaks(me, How::Forget) {
                peer.keeper.forget();
            }
            peer.keeper.verify()
        }
        Body::Resend { blocks } => peer.owner.answered(Some(blocks)),
        Body::RoundOk => peer.owner.answered(None),
        Body::Verified { blocks, records, log } => peer.owner.verified(blocks, records, log),
        Body::Credits => Ok(()),
    }
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
