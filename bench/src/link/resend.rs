//! Everything from A to B, by RC, or by UC with an application that sends again what was lost.
//!
//! In: which of the two, how much is lost, how long. Out: what arrived whole in that time, and what it took.
//!
//! Data goes in blocks of [`MESSAGES`] WRITEs, each message to a place of its own, [`BLOCKS`] blocks at once. By RC a block is
//! done when it has completed. UC's completion says only that the packets have left. So there each WRITE carries its number as
//! immediate data, by which B knows those that came whole; A asks for each block over a small RC connection, and B's answer is
//! a bit for each message that is missing. Both are a SEND of no bytes with immediate data: one a block and way.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use xroce::{
    Access, Buffer, ConnectOptions, Context, Cq, Device, ImmData, Mr, PathMtu, Progress, Qp, QpCap, QpEndpoint,
    QpInitAttr, QpType, RecvWr, RemoteMr, SendFlags, SendOp, SendWr, Sge, Wc, WcOpcode, WrId,
};

use super::SHORT_TIMEOUT;
use super::busy::Busy;
use super::net::{Net, Side};
use crate::pair::Result;

/// Messages of a block: as many as a request for a block has bits.
const MESSAGES: usize = 16;
/// Blocks on the way at once.
const BLOCKS: usize = 8;
/// Bytes of a message.
const SIZE: usize = 64 << 10;
/// Work requests of the data's queue pair.
const DEPTH: u32 = (MESSAGES * BLOCKS) as u32;
/// RECVs of the connection for requests and answers: one a block, and those that are being posted again.
const CONTROL_DEPTH: u32 = 2 * BLOCKS as u32;
/// As many as can be there at once, so that polling once takes them all.
const COMPLETIONS: u32 = 2 * (DEPTH + CONTROL_DEPTH);
/// A bit for each message of a block.
const ALL: u16 = u16::MAX;
const _: () = assert!(MESSAGES == ALL.count_ones() as usize);

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// RC, or UC and what repeats it.
    pub kind: QpType,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Chance that either end's program drops a frame, in 1/65536.
    pub drop_per_64k: u16,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Gbit/s of payload known to have arrived.
    pub gbit_per_s: f64,
    /// CPU time of both threads while they had something to do, nanoseconds a byte that arrived.
    pub cpu_ns_per_byte: f64,
    /// Request packets that A sent, for each that would have been enough.
    pub packets_per_needed: f64,
}

/// One end, in its namespace.
struct End {
    context: Context,
    cq: Cq,
    mr: Mr,
    data: Qp,
    control: Qp,
    options: ConnectOptions,
}

type Places = ([QpEndpoint; 2], RemoteMr);

fn open(side: Side, load: Load) -> Result<End> {
    let context = Device::builder(side.netdev())
        // No helper: what it did would not be seen as a round with work.
        .progress(Progress::Inline { helper: false })
        .xdp(|xdp| xdp.faults.drop_per_64k = load.drop_per_64k)
        .open()?;
    let gid_index = context.gid_table().iter().find(|e| e.address.is_ipv4()).ok_or("no IPv4 address")?.index;
    let options =
        ConnectOptions { gid_index, path_mtu: Some(load.mtu), timeout: SHORT_TIMEOUT, ..ConnectOptions::default() };
    let pd = context.alloc_pd()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mr = pd.reg_mr(Buffer::zeroed(BLOCKS * MESSAGES * SIZE), access)?;
    let cq = context.create_cq(COMPLETIONS)?;
    let create = |qp_type, depth| -> Result<Qp> {
        let cap =
            QpCap { max_send_wr: depth, max_recv_wr: depth, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        let qp = pd.create_qp(&QpInitAttr { qp_type, send_cq: &cq, recv_cq: &cq, cap, sq_sig_all: false })?;
        qp.to_init(&options)?;
        for _ in 0..depth {
            qp.post_recv(&RecvWr { wr_id: WrId(0), sges: &[] })?;
        }
        Ok(qp)
    };
    let (data, control) = (create(load.kind, DEPTH)?, create(QpType::Rc, CONTROL_DEPTH)?);
    Ok(End { context, cq, mr, data, control, options })
}

impl End {
    /// Tells the other end where we are, hears where it is, and connects.
    fn meet(&self, tell: &Sender<Places>, hear: &Receiver<Places>, ready: &Barrier) -> Result<RemoteMr> {
        let place = |qp: &Qp| -> Result<QpEndpoint> { Ok(qp.endpoint(&self.options)?) };
        tell.send(([place(&self.data)?, place(&self.control)?], self.mr.remote()))?;
        let ([data, control], remote) =
            hear.recv_timeout(Duration::from_secs(20)).map_err(|_| "the other end failed")?;
        self.data.connect(&data, &self.options)?;
        self.control.connect(&control, &self.options)?;
        ready.wait();
        Ok(remote)
    }

    /// One round of the device, and what completed in it. Without work there is nothing to poll, and polling would be one more
    /// round.
    fn round(&self, wcs: &mut [Wc]) -> Result<(bool, usize)> {
        if !self.context.drive() {
            return Ok((false, 0));
        }
        let count = self.cq.poll(wcs)?;
        match wcs[..count].iter().find(|wc| !wc.status.is_success()) {
            Some(wc) => Err(format!("QP {}: {}", wc.qpn, wc.status).into()),
            None => Ok((true, count)),
        }
    }

    /// Says `word` to the other end.
    fn say(&self, word: u32) -> Result<()> {
        let op = SendOp::SendImm(ImmData(word));
        self.control.post_send(&SendWr { wr_id: CONTROL, op, flags: SendFlags::SIGNALED, sges: &[], inline: &[] })?;
        Ok(())
    }
}

/// A completion that only frees its place in the queue.
const CONTROL: WrId = WrId(u64::MAX);

/// A request or answer: a block's place, and a bit for each message of it.
fn word(place: usize, messages: u16) -> u32 {
    (place as u32) << 16 | u32::from(messages)
}

fn unword(word: u32) -> Result<(usize, u16)> {
    let place = (word >> 16) as usize;
    if place < BLOCKS { Ok((place, word as u16)) } else { Err(format!("a word about block {place}").into()) }
}

/// Data from A to B for `time`.
///
/// # Errors
/// When the devices cannot be had, a request fails, or a message that B knows of is not there.
pub fn transfer(net: &Net, load: Load, time: Duration) -> Result<Done> {
    let ((tell_b, hear_a), (tell_a, hear_b)) = (channel(), channel());
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(2));
    let (stop, ready) = (&stop, &ready);
    let send = move || {
        let end = open(Side::A, load)?;
        net.take_cpu(Side::A)?;
        let remote = end.meet(&tell_b, &hear_b, ready)?;
        let ran = Feeder::new(&end, remote, load.kind).and_then(|feeder| feeder.run(time));
        stop.store(true, Ordering::Relaxed);
        ran
    };
    let receive = move || {
        let end = open(Side::B, load)?;
        net.take_cpu(Side::B)?;
        end.meet(&tell_a, &hear_a, ready)?;
        Taker::new(&end).run(stop)
    };
    let (fed, cpu_b) = net.both(send, receive)?;
    let bytes = (fed.messages * SIZE as u64) as f64;
    Ok(Done {
        gbit_per_s: bytes * 8.0 / fed.elapsed.as_nanos() as f64,
        cpu_ns_per_byte: (fed.cpu_ns + cpu_b) / bytes,
        packets_per_needed: fed.packets as f64 / (bytes / load.mtu.bytes() as f64),
    })
}

/// What A did.
struct Fed {
    messages: u64,
    elapsed: Duration,
    cpu_ns: f64,
    packets: u64,
}

/// A's end.
struct Feeder<'a> {
    end: &'a End,
    remote: RemoteMr,
    kind: QpType,
    /// Of each place, the number of the block in it; None once time is over.
    blocks: [Option<u32>; BLOCKS],
    sges: Vec<[Sge; 1]>,
    /// Blocks that arrived.
    done: u64,
}

impl<'a> Feeder<'a> {
    fn new(end: &'a End, remote: RemoteMr, kind: QpType) -> Result<Feeder<'a>> {
        let sge = |i: usize| -> Result<[Sge; 1]> { Ok([end.mr.sge(i * SIZE..(i + 1) * SIZE)?]) };
        let sges = (0..BLOCKS * MESSAGES).map(sge).collect::<Result<_>>()?;
        Ok(Feeder { end, remote, kind, blocks: [None; BLOCKS], sges, done: 0 })
    }

    fn run(mut self, time: Duration) -> Result<Fed> {
        let mut busy = Busy::begin();
        let start = Instant::now();
        for place in 0..BLOCKS {
            self.start(place, place as u32)?;
        }
        let mut wcs = [Wc::default(); COMPLETIONS as usize];
        while self.blocks.iter().any(Option::is_some) {
            let (worked, count) = self.end.round(&mut wcs)?;
            for wc in &wcs[..count] {
                self.completed(wc, start.elapsed() >= time)?;
            }
            busy.round(worked);
        }
        let elapsed = start.elapsed();
        let packets = self.end.context.counters()?.iter().map(|(_, _, c)| c.packets_out).sum();
        Ok(Fed { messages: self.done * MESSAGES as u64, elapsed, cpu_ns: busy.cpu_ns(), packets })
    }

    fn completed(&mut self, wc: &Wc, over: bool) -> Result<()> {
        if wc.opcode == WcOpcode::Recv {
            self.end.control.post_recv(&RecvWr { wr_id: WrId(0), sges: &[] })?;
            return match unword(wc.imm.0)? {
                (place, 0) => self.arrived(place, over),
                (place, missing) => self.send(place, missing),
            };
        }
        match (wc.wr_id, self.kind) {
            (CONTROL, _) => Ok(()),
            (WrId(place), QpType::Rc) => self.arrived(place as usize, over),
            (WrId(place), _) => self.end.say(word(place as usize, ALL)),
        }
    }

    fn arrived(&mut self, place: usize, over: bool) -> Result<()> {
        self.done += 1;
        match self.blocks[place].take() {
            Some(block) if !over => self.start(place, block.wrapping_add(BLOCKS as u32)),
            _ => Ok(()),
        }
    }

    /// A new block, each message with the block's number in front.
    fn start(&mut self, place: usize, block: u32) -> Result<()> {
        self.blocks[place] = Some(block);
        for message in 0..MESSAGES {
            self.end.mr.write_at((place * MESSAGES + message) * SIZE, &block.to_le_bytes())?;
        }
        self.send(place, ALL)
    }

    /// Posts those messages of a block. One completion for all.
    fn send(&self, place: usize, messages: u16) -> Result<()> {
        let block = self.blocks[place].ok_or("a block was asked for that had arrived")?;
        let mut wrs = Vec::with_capacity(MESSAGES);
        for message in (0..MESSAGES).filter(|message| messages & 1 << message != 0) {
            let index = place * MESSAGES + message;
            let (va, rkey) = (self.remote.addr + (index * SIZE) as u64, self.remote.rkey);
            let op = match self.kind {
                QpType::Rc => SendOp::Write { va, rkey },
                _ => SendOp::WriteImm { va, rkey, imm: ImmData(number(block, message)) },
            };
            let wr_id = WrId(place as u64);
            wrs.push(SendWr { wr_id, op, flags: SendFlags::empty(), sges: &self.sges[index], inline: &[] });
        }
        if let Some(last) = wrs.last_mut() {
            last.flags = SendFlags::SIGNALED;
        }
        Ok(self.end.data.post_send_chain(&wrs)?)
    }
}

/// The number of a message, as immediate data says it. It repeats after 2^28 blocks.
fn number(block: u32, message: usize) -> u32 {
    block.wrapping_mul(MESSAGES as u32).wrapping_add(message as u32)
}

/// B's end. By RC it only drives its device.
struct Taker<'a> {
    end: &'a End,
    /// Of each place, the number of the block it waits for, and which messages of it came.
    blocks: [(u32, u16); BLOCKS],
}

impl<'a> Taker<'a> {
    fn new(end: &'a End) -> Taker<'a> {
        Taker { end, blocks: std::array::from_fn(|place| (place as u32, 0)) }
    }

    /// Until told to stop; nanoseconds of CPU time.
    fn run(mut self, stop: &AtomicBool) -> Result<f64> {
        let mut busy = Busy::begin();
        let mut wcs = [Wc::default(); COMPLETIONS as usize];
        while !stop.load(Ordering::Relaxed) {
            let (worked, count) = self.end.round(&mut wcs)?;
            for wc in &wcs[..count] {
                self.completed(wc)?;
            }
            busy.round(worked);
        }
        Ok(busy.cpu_ns())
    }

    fn completed(&mut self, wc: &Wc) -> Result<()> {
        let again = RecvWr { wr_id: WrId(0), sges: &[] };
        match wc.opcode {
            WcOpcode::RecvRdmaWithImm => {
                self.end.data.post_recv(&again)?;
                let place = wc.imm.0 as usize / MESSAGES % BLOCKS;
                let (block, came) = &mut self.blocks[place];
                // One of an earlier block is a repetition of what had come.
                if let Some(message) = (0..MESSAGES).find(|message| number(*block, *message) == wc.imm.0) {
                    *came |= 1 << message;
                }
                Ok(())
            }
            WcOpcode::Recv => {
                self.end.control.post_recv(&again)?;
                let (place, asked) = unword(wc.imm.0)?;
                let missing = asked & !self.blocks[place].1;
                if missing == 0 {
                    self.check(place)?;
                    self.blocks[place] = (self.blocks[place].0.wrapping_add(BLOCKS as u32), 0);
                }
                self.end.say(word(place, missing))
            }
            _ => Ok(()),
        }
    }

    /// Whether all messages of a block are there.
    fn check(&self, place: usize) -> Result<()> {
        for message in 0..MESSAGES {
            let mut bytes = [0; 4];
            self.end.mr.read_at((place * MESSAGES + message) * SIZE, &mut bytes)?;
            if u32::from_le_bytes(bytes) != self.blocks[place].0 {
                return Err(format!("message {message} of block {} is not there", self.blocks[place].0).into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_place_and_its_messages() {
        assert_eq!(unword(word(7, 0x8001)).unwrap(), (7, 0x8001));
        assert!(unword(word(BLOCKS, 1)).is_err());
    }

    #[test]
    fn the_number_of_a_message_tells_the_place_of_its_block() {
        for block in [0, 1, 1000, u32::MAX] {
            let place = number(block, 5) as usize / MESSAGES % BLOCKS;
            assert_eq!(place, block as usize % BLOCKS);
        }
    }
}
