//! AF_XDP: the port that sits on a netdev.
//!
//! What enters: Ethernet frames that carry RoCE v2 to our addresses, on every receive queue of one netdev, one socket
//! a queue. What leaves: frames on the first of those queues, so that the order of a queue pair's packets is kept.
//!
//! Everything else on the netdev stays with the kernel. One port owns a netdev's XDP hook; the hook is free again when
//! the port is dropped and when the process dies.

mod assembly;
mod chunks;
mod config;
mod error;
mod link;
mod netdev;
mod open;
mod queue;
mod sys;

pub use chunks::FrameAccount;
pub use config::{AttachMode, Faults, MultiBuffer, Queues, XdpConfig, ZeroCopy};
pub use error::OpenError;
pub use xroce_xdp_prog::{AddressFilter, AttachError, Attachment, Counters as ProgramCounters, LoadError, MapError};

use crate::port::{Capabilities, LinkChange, Port, PortCounters, RxFrame, TxClass, TxFrame, XdpMode};
use link::Link;
use netdev::Netdev;
use open::{Pieces, open_queue, ways};
use queue::{BURST_MAX, Kick, Lent, PIECE_MAX, PIECES_MAX, Queue};
use std::os::fd::RawFd;
use std::thread;
use std::time::{Duration, Instant};
use xroce_xdp_prog::{Program, ProgramConfig};

/// Frames in flight on a veth: its ring holds 256 and drops what is beyond that without telling the sender.
const VETH_IN_FLIGHT_MAX: u32 = 200;
/// Of the frames in flight, so many are kept for [`TxClass::Response`]; a quarter when the bound is small.
const RESPONSE_SLOTS: u32 = 32;
/// What a netdev takes beyond its MTU, in bytes: the Ethernet header and one VLAN tag (`__is_skb_forwardable` in
/// net/core/dev.c; drivers do alike). Behind a second tag a packet has to be 4 bytes shorter than the MTU.
const L2_MAX: usize = 14 + 4;
/// How long attaching is tried again while another program is on the netdev: one that is being taken off.
const ATTACH_WAIT: Duration = Duration::from_millis(200);

/// A netdev's receive queues and one of its transmit queues, through AF_XDP sockets.
#[derive(Debug)]
pub struct XdpPort {
    // The program goes first, so that no frame is redirected to a queue that is being closed.
    attachment: Attachment,
    program: Program,
    queues: Vec<Queue>,
    /// Place in `queues` of the one that transmits.
    tx: usize,
    /// Place in `queues` where the next burst begins, so that no queue starves another.
    next_rx: usize,
    burst: Vec<Lent>,
    capabilities: Capabilities,
    request_limit: u32,
    in_flight_max: u32,
    netdev: Netdev,
    link: Link,
    counters: PortCounters,
}

impl XdpPort {
    /// Opens the netdev: loads the program, puts it on, opens and fills one socket a queue, and only then lets frames
    /// through to them.
    ///
    /// Must be called in the network namespace of the netdev; the port may then be used from any thread.
    ///
    /// # Errors
    /// [`OpenError`]. Nothing is left behind.
    pub fn open(config: &XdpConfig) -> Result<XdpPort, OpenError> {
        config.check()?;
        let netdev = Netdev::query(&config.ifname)?;
        let ids = config.queue_ids(netdev.rx_queues)?;
        let tx = ids
            .iter()
            .position(|&id| id < netdev.tx_queues)
            .ok_or_else(|| OpenError::NoTransmitQueue { ifname: config.ifname.clone(), have: netdev.tx_queues })?;
        let default_bound = if netdev.is_veth() { VETH_IN_FLIGHT_MAX } else { config.tx_ring };
        let in_flight_max = config.in_flight_max.unwrap_or(default_bound).min(config.tx_ring);

        let program = Program::load(&ProgramConfig {
            queues: netdev.rx_queues,
            multi_buffer: config.multi_buffer == MultiBuffer::Auto,
            faults: config.faults,
        })?;
        for &address in &config.addresses {
            program.addresses().add(address)?;
        }
        let attachment = attach(&program, &netdev, config.mode)?;
        let (queues, xdp) = open_queues(config, &netdev, &ids, tx, in_flight_max, &attachment, &program)?;
        for queue in &queues {
            program.set_socket(queue.id(), queue.borrow_fd())?;
        }

        let capabilities = Capabilities {
            mtu: netdev.mtu,
            max_frame: max_frame(netdev.mtu, xdp.multi_buffer),
            queues: queues.len() as u32,
            mac: netdev.mac,
            xdp: Some(xdp),
        };
        tracing::info!(ifname = netdev.name, ?capabilities, in_flight_max, "AF_XDP port open");
        Ok(XdpPort {
            attachment,
            program,
            queues,
            tx,
            next_rx: 0,
            burst: Vec::with_capacity(BURST_MAX),
            capabilities,
            request_limit: in_flight_max - RESPONSE_SLOTS.min(in_flight_max / 4),
            in_flight_max,
            netdev,
            link: Link::new(),
            counters: PortCounters::default(),
        })
    }

    /// The netdev's name as it was when the port was opened.
    #[must_use]
    pub fn ifname(&self) -> &str {
        &self.netdev.name
    }

    /// The netdev's index.
    #[must_use]
    pub fn ifindex(&self) -> u32 {
        self.netdev.ifindex
    }

    /// How the program sits on the netdev: the mode, and why it is generic where native was tried.
    #[must_use]
    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// The set of our addresses. A clone of it ([`AddressFilter::try_clone`]) can change the set while the port is in
    /// use elsewhere.
    #[must_use]
    pub fn addresses(&self) -> &AddressFilter {
        self.program.addresses()
    }

    /// What the XDP program did with the netdev's frames. One system call.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn program_counters(&self) -> Result<ProgramCounters, MapError> {
        self.program.counters()
    }

    /// The netdev takes VLAN tags off before the program and the socket see the frame (`ethtool -k`:
    /// rx-vlan-offload), so that a tagged frame looks untagged: an engine must not use a VLAN while this is on. A veth
    /// says yes, and does so to tags that the peer's kernel wrote, not to those in the frame's bytes.
    #[must_use]
    pub fn hides_vlan_tags(&self) -> bool {
        self.netdev.hides_vlan_tags
    }

    /// The most frames submitted and not yet completed.
    #[must_use]
    pub fn in_flight_max(&self) -> u32 {
        self.in_flight_max
    }

    /// Frames submitted and not yet completed, as of the last look at the completion ring.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.queues[self.tx].in_flight()
    }

    /// Where every chunk of frame memory is now, all queues together. Looks at each chunk: not for the hot path.
    pub fn frame_account(&mut self) -> FrameAccount {
        let mut sum = FrameAccount::default();
        for queue in &mut self.queues {
            let one = queue.account();
            sum.free += one.free;
            sum.fill += one.fill;
            sum.rx += one.rx;
            sum.tx += one.tx;
            sum.completion += one.completion;
            sum.held += one.held;
            sum.in_kernel += one.in_kernel;
            sum.total += one.total;
        }
        sum
    }

    /// Looks whether netdev, program and sockets are still there. A few system calls.
    fn check_health(&mut self) {
        if !self.attachment.is_attached() {
            let reason = format!("{}: the netdev was removed, or the XDP program was detached", self.netdev.name);
            return self.link.gone(reason);
        }
        for queue in &self.queues {
            let errno = sys::take_socket_error(queue.fd());
            if errno != 0 {
                let error = std::io::Error::from_raw_os_error(errno);
                let reason = format!("{}: the socket of queue {} failed: {error}", self.netdev.name, queue.id());
                return self.link.gone(reason);
            }
        }
        if let Some((was, is)) = self.netdev.mtu_change() {
            let ifname = &self.netdev.name;
            tracing::warn!(ifname, was, is, "the MTU changed under an open port: frames longer than it are lost");
        }
        match self.netdev.is_up() {
            Some(true) => self.link.up(),
            Some(false) => self.link.down(),
            None => {} // it has just gone: the next look finds the program gone too
        }
    }
}

/// Puts the program on the netdev; a program that is just being taken off is waited for.
fn attach(program: &Program, netdev: &Netdev, mode: AttachMode) -> Result<Attachment, OpenError> {
    let give_up = Instant::now() + ATTACH_WAIT;
    loop {
        match program.attach(netdev.ifindex, mode) {
            Ok(attachment) => {
                if let Some(reason) = attachment.fallback_reason() {
                    tracing::warn!(ifname = netdev.name, %reason, "XDP program in generic mode");
                }
                return Ok(attachment);
            }
            Err(AttachError::InUse { .. }) if Instant::now() < give_up => thread::sleep(Duration::from_millis(10)),
            Err(source) => return Err(OpenError::Attach { ifname: netdev.name.clone(), source }),
        }
    }
}

/// Opens every queue the same way: the way the first one was got.
fn open_queues(
    config: &XdpConfig,
    netdev: &Netdev,
    ids: &[u32],
    tx: usize,
    in_flight_max: u32,
    attachment: &Attachment,
    program: &Program,
) -> Result<(Vec<Queue>, XdpMode), OpenError> {
    // Room for every frame in flight in two pieces, and one that is being written.
    let tx_frames = config.tx_ring.min(in_flight_max * PIECES_MAX as u32) + PIECES_MAX as u32;
    let (native, fallback) = (attachment.is_native(), attachment.fallback_reason().map(ToString::to_string));
    let pieces = Pieces::for_frames(netdev.mtu as usize + L2_MAX, program.takes_pieces());
    let mut ways = ways(config.zero_copy, native, pieces);
    let mut queues = Vec::with_capacity(ids.len());
    let (mut zero_copy, mut huge_pages, mut multi_buffer) = (true, true, true);
    for (place, &id) in ids.iter().enumerate() {
        let frames = if place == tx { config.frames.unwrap_or(config.rx_ring + tx_frames) } else { config.rx_ring };
        let (queue, way) = open_queue(config, netdev, (place, id), frames, &ways)?;
        zero_copy &= way.zero_copy;
        multi_buffer &= way.multi_buffer;
        huge_pages &= queue.huge_pages();
        ways.retain(|w| w.multi_buffer == way.multi_buffer);
        queues.push(queue);
    }
    Ok((queues, XdpMode { native, zero_copy, multi_buffer, need_wakeup: true, huge_pages, fallback }))
}

/// The longest frame that can enter and leave.
fn max_frame(mtu: u32, multi_buffer: bool) -> usize {
    let pieces = if multi_buffer { PIECES_MAX } else { 1 };
    (mtu as usize + L2_MAX).min(pieces * PIECE_MAX)
}

impl Port for XdpPort {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn rx_burst(&mut self, max: usize) -> usize {
        self.rx_release();
        if self.link.is_gone() {
            return 0;
        }
        let max = max.min(BURST_MAX);
        for turn in 0..self.queues.len() {
            let room = max - self.burst.len();
            if room == 0 {
                break;
            }
            let place = (self.next_rx + turn) % self.queues.len();
            self.queues[place].receive(room, &mut self.burst);
        }
        self.next_rx = (self.next_rx + 1) % self.queues.len();
        if !self.burst.is_empty() {
            self.link.received();
        }
        self.counters.rx_frames += self.burst.len() as u64;
        self.counters.rx_bytes += self.burst.iter().map(|lent| lent.len() as u64).sum::<u64>();
        self.burst.len()
    }

    fn rx_frame(&self, i: usize) -> RxFrame<'_> {
        let lent = &self.burst[i];
        self.queues[lent.place()].frame(lent)
    }

    fn rx_release(&mut self) {
        for lent in self.burst.drain(..) {
            self.queues[lent.place()].release(&lent);
        }
        for queue in &mut self.queues {
            queue.refill();
            debug_assert!(queue.sums_add_up());
        }
    }

    fn tx_reserve(&mut self, len: usize, class: TxClass) -> Option<TxFrame<'_>> {
        let limit = match class {
            TxClass::Request => self.request_limit,
            TxClass::Response => self.in_flight_max,
        };
        let possible = (1..=self.capabilities.max_frame).contains(&len) && !self.link.is_gone();
        let frame = if possible { self.queues[self.tx].reserve(len, limit) } else { None };
        if frame.is_none() {
            self.counters.tx_refused += 1;
        }
        frame
    }

    fn tx_commit(&mut self, len: usize) {
        self.queues[self.tx].commit(len);
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
    }

    fn tx_flush(&mut self) {
        let queue = &mut self.queues[self.tx];
        queue.collect();
        if !queue.tx_idle() && self.link.may_kick() {
            match queue.flush() {
                Kick::Done => self.link.up(),
                Kick::Later => {}
                Kick::Down => self.link.down(),
                Kick::Dead(error) => {
                    let reason = format!("{}: sending on queue {} failed: {error}", self.netdev.name, queue.id());
                    self.link.gone(reason);
                }
            }
        }
        debug_assert!(queue.sums_add_up());
    }

    fn tx_idle(&self) -> bool {
        self.link.is_gone() || self.queues[self.tx].tx_idle()
    }

    fn wait_fds(&self, out: &mut Vec<RawFd>) {
        // What a dead port's rings still hold nobody takes: it would end every sleep.
        if !self.link.is_gone() {
            out.extend(self.queues.iter().map(Queue::fd));
        }
    }

    fn after_wait(&mut self) {
        if self.link.check_due(true) {
            self.check_health();
        }
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.counters;
        for queue in &self.queues {
            let [dropped, ring_full, no_buffer, tx_invalid] = queue.kernel_counts();
            counters.rx_dropped_lower += dropped + ring_full;
            counters.rx_no_buffer += no_buffer;
            counters.tx_errors += tx_invalid + queue.completions_odd;
            counters.rx_dropped_pieces += queue.drops.pieces;
            counters.rx_dropped_invalid += queue.drops.invalid;
            counters.kicks += queue.kicks;
            counters.kicks_again += queue.kicks_again;
            counters.rx_wakeups += queue.rx_wakeups;
        }
        if let Ok(program) = self.program.counters() {
            counters.rx_left_to_kernel = program.passed();
            counters.rx_faults_dropped = program.dropped_on_purpose;
            counters.rx_faults_corrupted = program.corrupted_on_purpose;
        }
        counters
    }

    fn link(&mut self) -> Option<LinkChange> {
        if self.link.check_due(false) {
            self.check_health();
        }
        self.link.change()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_frame_follows_mtu_and_pieces() {
        assert_eq!(max_frame(1500, true), 1518);
        assert_eq!(max_frame(3498, false), 3516);
        assert_eq!(max_frame(9000, false), 3840);
        assert_eq!(max_frame(9000, true), 7680);
        assert_eq!(max_frame(4200, true), 4218);
    }
}
