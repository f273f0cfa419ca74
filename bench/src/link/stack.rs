//! The stack over the veth: two devices on AF_XDP, one thread an end that posts, polls and thereby drives its device.
//!
//! In: queue pairs, sizes, losses. Out: what came of it in a given time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use xroce::{
    Access, Buffer, ConnectOptions, Context, Cq, Device, Mr, PathMtu, Progress, Qp, QpCap, QpEndpoint, QpInitAttr,
    QpType, RecvWr, RemoteMr, SendFlags, SendOp, SendWr, Sge, Wc, WrId,
};

use super::WARM_UP;
use super::net::{Net, Side};
use crate::pair::Result;

/// Work requests a side of a queue pair.
const DEPTH: u32 = 128;
/// Half a second: on a loaded machine an ACK may well be late by a time slice, which is no loss.
const TIMEOUT: u8 = 17;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// RC or UC.
    pub kind: QpType,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Queue pairs.
    pub qps: usize,
    /// Bytes of a message.
    pub size: u32,
    /// Chance that either end's program drops a frame, in 1/65536.
    pub drop_per_64k: u16,
    /// ACK timeout code.
    pub timeout: u8,
}

impl Load {
    /// One RC queue pair, no loss.
    pub fn rc(mtu: PathMtu, size: u32) -> Load {
        Load { kind: QpType::Rc, mtu, qps: 1, size, drop_per_64k: 0, timeout: TIMEOUT }
    }
}

/// What came of a load.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Messages a second that arrived.
    pub messages_per_s: f64,
    /// Gbit/s of payload that arrived.
    pub gbit_per_s: f64,
    /// Packets received from the peer by the sender, for each that it sent.
    pub acks_per_packet: f64,
}

/// One end, in its namespace.
struct End {
    context: Context,
    cq: Cq,
    mr: Mr,
    qps: Vec<Qp>,
    options: ConnectOptions,
}

/// Where an end's queue pairs and memory are.
type Places = (Vec<QpEndpoint>, RemoteMr);

fn open(side: Side, load: Load) -> Result<End> {
    let context = Device::builder(side.netdev())
        .progress(Progress::default())
        .xdp(|xdp| xdp.faults.drop_per_64k = load.drop_per_64k)
        .open()?;
    let gid_index = context.gid_table().iter().find(|e| e.address.is_ipv4()).ok_or("no IPv4 address")?.index;
    let options =
        ConnectOptions { gid_index, path_mtu: Some(load.mtu), timeout: load.timeout, ..ConnectOptions::default() };
    let pd = context.alloc_pd()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let mr = pd.reg_mr(Buffer::zeroed(2 * load.size.max(64) as usize), access)?;
    let cq = context.create_cq(2 * DEPTH * load.qps as u32)?;
    let cap = QpCap { max_send_wr: DEPTH, max_recv_wr: DEPTH, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 64 };
    let init = QpInitAttr { qp_type: load.kind, send_cq: &cq, recv_cq: &cq, cap, sq_sig_all: false };
    let qps = (0..load.qps).map(|_| Ok(pd.create_qp(&init)?)).collect::<Result<Vec<_>>>()?;
    for qp in &qps {
        qp.to_init(&options)?;
    }
    Ok(End { context, cq, mr, qps, options })
}

impl End {
    /// Tells the other end where we are, hears where it is, and connects.
    fn meet(&self, tell: &Sender<Places>, hear: &Receiver<Places>, ready: &Barrier) -> Result<RemoteMr> {
        let endpoints = self.qps.iter().map(|qp| Ok(qp.endpoint(&self.options)?)).collect::<Result<Vec<_>>>()?;
        tell.send((endpoints, self.mr.remote()))?;
        let (endpoints, remote) = hear.recv_timeout(Duration::from_secs(20)).map_err(|_| "the other end failed")?;
        for (qp, endpoint) in self.qps.iter().zip(&endpoints) {
            qp.connect(endpoint, &self.options)?;
        }
        ready.wait();
        Ok(remote)
    }

    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        let count = self.cq.poll(wcs)?;
        match wcs[..count].iter().find(|wc| !wc.status.is_success()) {
            Some(wc) => Err(format!("QP {}: {}", wc.qpn, wc.status).into()),
            None => Ok(count),
        }
    }

    /// Packets sent and received.
    fn packets(&self) -> Result<(u64, u64)> {
        let counters = self.context.counters()?;
        Ok(counters.iter().fold((0, 0), |sum, (_, _, c)| (sum.0 + c.packets_out, sum.1 + c.packets_in)))
    }
}

/// WRITEs from A to B for `time`.
///
/// # Errors
/// When the devices cannot be had or a request fails.
pub fn write(net: &Net, load: Load, time: Duration) -> Result<Done> {
    let ((tell_b, hear_a), (tell_a, hear_b)) = (channel(), channel());
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(2));
    let (stop, ready) = (&stop, &ready);
    let send = move || {
        let end = open(Side::A, load)?;
        net.take_cpu(Side::A)?;
        let remote = end.meet(&tell_b, &hear_b, ready)?;
        let ran = pump(&end, remote, load, time);
        stop.store(true, Ordering::Relaxed);
        let (messages, elapsed) = ran?;
        Ok((messages, elapsed, end.packets()?))
    };
    let receive = move || {
        let end = open(Side::B, load)?;
        net.take_cpu(Side::B)?;
        end.meet(&tell_a, &hear_a, ready)?;
        while !stop.load(Ordering::Relaxed) {
            if !end.context.drive() {
                std::hint::spin_loop();
            }
        }
        // On UC a completion says that a message was sent; this end knows which did not arrive whole.
        Ok(end.qps.iter().map(|qp| qp.counters().map_or(0, |c| c.uc_dropped_messages)).sum::<u64>())
    };
    let ((messages, elapsed, (sent, answers)), given_up) = net.both(send, receive)?;
    let messages = messages.saturating_sub(given_up);
    let bytes = (messages * u64::from(load.size)) as f64;
    Ok(Done {
        messages_per_s: messages as f64 / elapsed.as_secs_f64(),
        gbit_per_s: bytes * 8.0 / elapsed.as_nanos() as f64,
        acks_per_packet: answers as f64 / sent as f64,
    })
}

/// Keeps all queue pairs busy; how many messages completed in which time.
fn pump(end: &End, remote: RemoteMr, load: Load, time: Duration) -> Result<(u64, Duration)> {
    let sges = [end.mr.sge(0..load.size as usize)?];
    let op = SendOp::Write { va: remote.addr, rkey: remote.rkey };
    // One completion for half a queue, as a program that cares for speed does.
    let chain = (DEPTH / 2) as usize;
    let wr = |flags| SendWr { wr_id: WrId(0), op, flags, sges: &sges, inline: &[] };
    let mut wrs = vec![wr(SendFlags::empty()); chain];
    let mut outstanding = vec![0; load.qps];
    let mut wcs = [Wc::default(); 64];
    let (mut done, start) = (0, Instant::now());
    loop {
        let over = start.elapsed() >= time;
        for (index, (qp, outstanding)) in end.qps.iter().zip(&mut outstanding).enumerate() {
            while !over && *outstanding < 2 {
                if let Some(last) = wrs.last_mut() {
                    *last = SendWr { wr_id: WrId(index as u64), ..wr(SendFlags::SIGNALED) };
                }
                qp.post_send_chain(&wrs)?;
                *outstanding += 1;
            }
        }
        let count = end.poll(&mut wcs)?;
        for wc in &wcs[..count] {
            outstanding[wc.wr_id.0 as usize] -= 1;
            done += chain as u64;
        }
        if over && outstanding.iter().all(|n| *n == 0) {
            return Ok((done, start.elapsed()));
        }
    }
}

/// The times of `rounds` round trips of 64 bytes in nanoseconds: SEND and RECV, or WRITEs that both ends watch arrive. Some
/// [`WARM_UP`] more go before them.
///
/// # Errors
/// When the devices cannot be had or a request fails.
pub fn ping_pong(net: &Net, send: bool, rounds: usize) -> Result<Vec<u64>> {
    let load = Load::rc(PathMtu::Mtu1024, 64);
    let ((tell_b, hear_a), (tell_a, hear_b)) = (channel(), channel());
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(2));
    let (stop, ready) = (&stop, &ready);
    let ping = move || {
        let end = open(Side::A, load)?;
        net.take_cpu(Side::A)?;
        let mut player = Player::new(&end, send, true)?;
        player.remote = Some(end.meet(&tell_b, &hear_b, ready)?);
        let mut times = Vec::with_capacity(WARM_UP + rounds);
        for _ in 0..WARM_UP + rounds {
            let start = Instant::now();
            player.shoot()?;
            player.catch(stop)?;
            times.push(start.elapsed().as_nanos() as u64);
        }
        stop.store(true, Ordering::Relaxed);
        Ok(times.split_off(WARM_UP))
    };
    let pong = move || {
        let end = open(Side::B, load)?;
        net.take_cpu(Side::B)?;
        let mut player = Player::new(&end, send, false)?;
        player.remote = Some(end.meet(&tell_a, &hear_a, ready)?);
        while player.catch(stop)? {
            player.shoot()?;
        }
        Ok(())
    };
    Ok(net.both(ping, pong)?.0)
}

/// One end of a ping-pong.
struct Player<'a> {
    end: &'a End,
    send: bool,
    /// Begins each round.
    first: bool,
    remote: Option<RemoteMr>,
    /// The message, and where the answer comes.
    out: [Sge; 1],
    inward: [Sge; 1],
    round: u8,
    /// RECVs that completed and were not waited for yet.
    arrived: u32,
    wcs: [Wc; 16],
}

const SIZE: usize = 64;

impl<'a> Player<'a> {
    fn new(end: &'a End, send: bool, first: bool) -> Result<Player<'a>> {
        let (out, inward) = ([end.mr.sge(0..SIZE)?], [end.mr.sge(SIZE..2 * SIZE)?]);
        let player =
            Player { end, send, first, remote: None, out, inward, round: 0, arrived: 0, wcs: [Wc::default(); 16] };
        for _ in 0..8 {
            player.post_recv()?;
        }
        Ok(player)
    }

    fn post_recv(&self) -> Result<()> {
        Ok(self.end.qps[0].post_recv(&RecvWr { wr_id: WrId(1), sges: &self.inward })?)
    }

    fn shoot(&mut self) -> Result<()> {
        let remote = self.remote.ok_or("not connected")?;
        let op = match self.send {
            true => SendOp::Send,
            false => SendOp::Write { va: remote.addr + SIZE as u64, rkey: remote.rkey },
        };
        self.round = self.round.wrapping_add(1);
        self.end.mr.write_at(SIZE - 1, &[self.round])?;
        let wr = SendWr { wr_id: WrId(0), op, flags: SendFlags::SIGNALED, sges: &self.out, inline: &[] };
        self.end.qps[0].post_send(&wr)?;
        Ok(())
    }

    /// Waits for the message of this round. False when it is time to stop.
    fn catch(&mut self, stop: &AtomicBool) -> Result<bool> {
        // The one who begins has counted this round already.
        let expected = if self.first { self.round } else { self.round.wrapping_add(1) };
        let start = Instant::now();
        for spin in 1u64.. {
            let count = self.end.poll(&mut self.wcs)?;
            self.arrived += self.wcs[..count].iter().filter(|wc| wc.wr_id.0 == 1).count() as u32;
            if self.send && self.arrived > 0 {
                self.arrived -= 1;
                self.post_recv()?;
                return Ok(true);
            }
            if !self.send {
                let mut byte = [0];
                self.end.mr.read_at(2 * SIZE - 1, &mut byte)?;
                if byte[0] == expected {
                    return Ok(true);
                }
            }
            if spin % 4096 == 0 && stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if spin % 4096 == 0 && start.elapsed() > Duration::from_secs(5) {
                return Err("a message was lost".into());
            }
        }
        Ok(false)
    }
}
