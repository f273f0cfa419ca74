//! The yardstick over the veth: frames through bare AF_XDP sockets, with no protocol above them.
//!
//! In: the bytes of a frame, and which of the bare costs to pay. Out: packets a second one way, or the times of round trips.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use xroce_xdp_prog::{AttachMode, Attachment, Faults, Program, ProgramConfig};

use super::WARM_UP;
use super::net::{Net, Side};
use super::xsk::{CHUNK, CONTINUES, Desc, RING, Xsk, ifindex};
use crate::pair::Result;

/// Packets ahead of the receiver at most: the ring of a veth holds 256, and drops what is beyond that without a word.
const WINDOW: u64 = 128;
/// Packets written before a kick.
const BATCH: u64 = 64;
/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;
/// The memory payload is copied from and to: one message, as at our side, so that both find their bytes equally near.
const REGION: usize = 64 << 10;

/// What a packet costs beside the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Costs {
    /// The payload is copied in by the sender and out by the receiver.
    pub copies: bool,
    /// A CRC over the frame at both ends.
    pub crc: bool,
    /// The receiver sends one small frame back for so many; 0 for none.
    pub reverse_every: u64,
}

/// A socket, with the program that gives it the frames.
struct End {
    xsk: Xsk,
    // Taken off the netdev before the socket is closed.
    _attachment: Attachment,
    _program: Program,
}

fn open(side: Side) -> Result<End> {
    let xsk = Xsk::open(side.netdev())?;
    let program = Program::load(&ProgramConfig { queues: 1, multi_buffer: true, faults: Faults::default() })?;
    program.addresses().add(side.address().into())?;
    let attachment = program.attach(ifindex(side.netdev())?, AttachMode::Auto)?;
    program.set_socket(0, xsk.fd())?;
    Ok(End { xsk, _attachment: attachment, _program: program })
}

/// Ethernet broadcast, IPv4 and UDP to port 4791 in front of `payload` bytes.
fn headers(from: Side, to: Side, payload: usize) -> [u8; HEADERS] {
    let mut h = [0; HEADERS];
    h[..6].fill(0xFF);
    h[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    let total = (HEADERS - 14 + payload) as u16;
    let ip = &mut h[14..34];
    (ip[0], ip[8], ip[9]) = (0x45, 64, 17);
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[12..16].copy_from_slice(&from.address().octets());
    ip[16..20].copy_from_slice(&to.address().octets());
    let sum: u32 = ip.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let sum = (sum >> 16) + (sum & 0xFFFF);
    ip[10..12].copy_from_slice(&(!((sum >> 16) + sum) as u16).to_be_bytes());
    h[34..38].copy_from_slice(&[0xC0, 0x00, 0x12, 0xB7]);
    h[38..40].copy_from_slice(&(8 + payload as u16).to_be_bytes());
    h
}

/// Puts the frame of `len` bytes at `at` into the transmit ring.
fn put(xsk: &mut Xsk, at: u64, len: usize) {
    let mut offset = 0;
    while offset < len {
        let piece = (len - offset).min(CHUNK);
        let options = if offset + piece < len { CONTINUES } else { 0 };
        xsk.tx.put(Desc { addr: at + offset as u64, len: piece as u32, options });
        offset += piece;
    }
}

fn collect(xsk: &mut Xsk) -> u32 {
    let done = xsk.completion.waiting();
    for _ in 0..done {
        xsk.completion.take();
    }
    xsk.completion.release();
    done
}

/// Packets a second that reach the receiver; a frame has `payload` bytes behind its UDP header.
///
/// # Errors
/// When the sockets cannot be had.
pub fn blast(net: &Net, payload: usize, costs: Costs, time: Duration) -> Result<f64> {
    let (received, stop, ready) = (AtomicU64::new(0), AtomicBool::new(false), Barrier::new(2));
    let (received, stop, ready) = (&received, &stop, &ready);
    let send = move || {
        let mut end = open(Side::A)?;
        net.take_cpu(Side::A)?;
        ready.wait();
        let started = Instant::now();
        let sent = Sender::new(payload, costs).run(&mut end.xsk, received, time);
        let elapsed = started.elapsed();
        let arrived = received.load(Ordering::Acquire);
        stop.store(true, Ordering::Relaxed);
        if arrived == 0 {
            Err("no frame has arrived".into())
        } else {
            Ok(arrived.min(sent) as f64 / elapsed.as_secs_f64())
        }
    };
    let receive = move || {
        let mut end = open(Side::B)?;
        net.take_cpu(Side::B)?;
        ready.wait();
        Receiver::new(payload, costs).run(&mut end.xsk, received, stop);
        Ok(())
    };
    Ok(net.both(send, receive)?.0)
}

struct Sender {
    headers: [u8; HEADERS],
    payload: usize,
    costs: Costs,
    region: Vec<u8>,
    cursor: usize,
}

impl Sender {
    fn new(payload: usize, costs: Costs) -> Sender {
        let region = vec![7; if costs.copies { REGION } else { 0 }];
        Sender { headers: headers(Side::A, Side::B, payload), payload, costs, region, cursor: 0 }
    }

    fn run(&mut self, xsk: &mut Xsk, received: &AtomicU64, time: Duration) -> u64 {
        let pieces = (HEADERS + self.payload).div_ceil(CHUNK) as u32;
        let slots = u64::from(RING / pieces);
        let (mut sent, mut in_flight) = (0, 0);
        let start = Instant::now();
        while start.elapsed() < time {
            in_flight -= collect(xsk);
            let ahead = sent - received.load(Ordering::Acquire);
            let room = u64::from(xsk.tx.room().min(RING - in_flight) / pieces);
            let count = BATCH.min(WINDOW.saturating_sub(ahead)).min(room);
            for _ in 0..count {
                let at = Xsk::send_area() + sent % slots * u64::from(pieces) * CHUNK as u64;
                self.build(xsk, at, sent);
                put(xsk, at, HEADERS + self.payload);
                sent += 1;
            }
            xsk.tx.publish();
            in_flight += count as u32 * pieces;
            // Frames that come back are only taken off the ring.
            drain(xsk, 0);
            if xsk.tx.pending() > 0 {
                xsk.kick();
            } else {
                std::hint::spin_loop();
            }
        }
        sent
    }

    fn build(&mut self, xsk: &mut Xsk, at: u64, number: u64) {
        let frame = xsk.bytes_mut(at, HEADERS + self.payload);
        if self.costs.copies || number < u64::from(RING) {
            frame[..HEADERS].copy_from_slice(&self.headers);
        }
        if self.costs.copies {
            if self.cursor + self.payload > self.region.len() {
                self.cursor = 0;
            }
            frame[HEADERS..].copy_from_slice(&self.region[self.cursor..self.cursor + self.payload]);
            self.cursor += self.payload;
        }
        if self.costs.crc {
            std::hint::black_box(crc32fast::hash(frame));
        }
    }
}

/// Takes what is in the receive ring, and gives the chunks back. How many pieces of `len` bytes there were.
fn drain(xsk: &mut Xsk, len: usize) -> u32 {
    let (count, mut found) = (xsk.rx.waiting(), 0);
    for _ in 0..count {
        let desc = xsk.rx.take();
        found += u32::from(desc.len as usize == len);
        xsk.fill.put(desc.addr & !(CHUNK as u64 - 1));
    }
    if count > 0 {
        xsk.rx.release();
        xsk.fill.publish();
    }
    found
}

struct Receiver {
    back: [u8; HEADERS],
    costs: Costs,
    region: Vec<u8>,
    cursor: usize,
    packets: u64,
    answered: u64,
}

impl Receiver {
    fn new(payload: usize, costs: Costs) -> Receiver {
        let region = vec![0; if costs.copies { REGION + payload } else { 0 }];
        Receiver { back: headers(Side::B, Side::A, 20), costs, region, cursor: 0, packets: 0, answered: 0 }
    }

    fn run(&mut self, xsk: &mut Xsk, received: &AtomicU64, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let count = xsk.rx.waiting().min(256);
            if count == 0 {
                std::hint::spin_loop();
                continue;
            }
            for _ in 0..count {
                let desc = xsk.rx.take();
                self.look(xsk.bytes(desc.addr, desc.len as usize));
                self.packets += u64::from(desc.options & CONTINUES == 0);
                xsk.fill.put(desc.addr & !(CHUNK as u64 - 1));
            }
            xsk.rx.release();
            xsk.fill.publish();
            self.answer(xsk);
            received.store(self.packets, Ordering::Release);
        }
    }

    fn look(&mut self, bytes: &[u8]) {
        if self.costs.crc {
            std::hint::black_box(crc32fast::hash(bytes));
        }
        if self.costs.copies {
            if self.cursor + bytes.len() > self.region.len() {
                self.cursor = 0;
            }
            self.region[self.cursor..self.cursor + bytes.len()].copy_from_slice(bytes);
            self.cursor += bytes.len();
        }
    }

    fn answer(&mut self, xsk: &mut Xsk) {
        if self.costs.reverse_every == 0 || self.packets - self.answered < self.costs.reverse_every {
            return;
        }
        self.answered = self.packets;
        collect(xsk);
        if xsk.tx.room() > 0 {
            let at = Xsk::send_area();
            xsk.bytes_mut(at, HEADERS).copy_from_slice(&self.back);
            put(xsk, at, HEADERS + 20);
            xsk.tx.publish();
            xsk.kick();
        }
    }
}

/// The times of `rounds` round trips of frames with `payload` bytes behind the UDP header, in nanoseconds; both ends spin. With
/// `ack`, each frame is followed by a small one in the same kick, as a request of RC is by the ACK for what came before.
///
/// # Errors
/// When the sockets cannot be had or a frame is lost.
pub fn ping_pong(net: &Net, payload: usize, ack: bool, rounds: usize) -> Result<Vec<u64>> {
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(2));
    let (stop, ready) = (&stop, &ready);
    let ball = Ball { len: HEADERS + payload, ack };
    let ping = move || {
        let mut end = open(Side::A)?;
        net.take_cpu(Side::A)?;
        ball.write(&mut end.xsk, (Side::A, Side::B));
        ready.wait();
        std::thread::sleep(Duration::from_millis(20));
        let mut times = Vec::with_capacity(WARM_UP + rounds);
        for _ in 0..WARM_UP + rounds {
            let start = Instant::now();
            ball.shoot(&mut end.xsk);
            if !ball.catch(&mut end.xsk, stop) {
                break;
            }
            times.push(start.elapsed().as_nanos() as u64);
        }
        stop.store(true, Ordering::Relaxed);
        if times.len() == WARM_UP + rounds { Ok(times.split_off(WARM_UP)) } else { Err("a frame was lost".into()) }
    };
    let pong = move || {
        let mut end = open(Side::B)?;
        net.take_cpu(Side::B)?;
        ball.write(&mut end.xsk, (Side::B, Side::A));
        ready.wait();
        while ball.catch(&mut end.xsk, stop) {
            ball.shoot(&mut end.xsk);
        }
        Ok(())
    };
    Ok(net.both(ping, pong)?.0)
}

/// What goes back and forth.
#[derive(Clone, Copy)]
struct Ball {
    /// Bytes of the frame.
    len: usize,
    /// A small frame follows.
    ack: bool,
}

/// BTH, AETH and ICRC.
const ACK: usize = 12 + 4 + 4;

impl Ball {
    fn write(self, xsk: &mut Xsk, (from, to): (Side, Side)) {
        for (chunk, payload) in [(0, self.len - HEADERS), (CHUNK as u64, ACK)] {
            xsk.bytes_mut(Xsk::send_area() + chunk, HEADERS).copy_from_slice(&headers(from, to, payload));
        }
    }

    fn shoot(self, xsk: &mut Xsk) {
        put(xsk, Xsk::send_area(), self.len);
        if self.ack {
            put(xsk, Xsk::send_area() + CHUNK as u64, HEADERS + ACK);
        }
        xsk.tx.publish();
        while xsk.tx.pending() > 0 {
            xsk.kick();
        }
        collect(xsk);
    }

    /// Waits for the frame; small ones are only taken off the ring. False when it is time to stop, or none came for two seconds.
    fn catch(self, xsk: &mut Xsk, stop: &AtomicBool) -> bool {
        let start = Instant::now();
        for spin in 1u64.. {
            if drain(xsk, self.len) > 0 {
                return true;
            }
            std::hint::spin_loop();
            if spin % 4096 == 0 && (stop.load(Ordering::Relaxed) || start.elapsed() > Duration::from_secs(2)) {
                break;
            }
        }
        false
    }
}
