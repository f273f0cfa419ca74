//! One AF_XDP socket on one queue, with its UMEM and rings. What enters: frames from the wire, frames to send. What
//! leaves: lent receive frames, and buffers to write into.
//!
//! This is the only file that touches the memory shared with the kernel.

#![allow(unsafe_code)]

use super::assembly::{Assembly, Piece, RxDrops};
use super::chunks::{Chunks, FrameAccount, Owner};
use super::sys;
use crate::port::{RxFrame, TxFrame};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::slice;
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, TxQueue, Umem};

/// Bytes in a chunk: the kernel's largest in aligned mode.
pub(super) const CHUNK: usize = 4096;
/// Bytes of a chunk that hold a frame: the kernel keeps XDP_PACKET_HEADROOM (256) in front.
pub(super) const PIECE_MAX: usize = CHUNK - 256;
/// Pieces a frame may have.
pub(super) const PIECES_MAX: usize = 2;
/// Frames in one burst at most.
pub(super) const BURST_MAX: usize = 256;
/// XDP_PKT_CONTD of linux/if_xdp.h: the frame goes on in the next descriptor.
const PKT_CONTD: u32 = 1;
/// Frames the kernel takes in one sendto(2) in copy mode (TX_BATCH_SIZE in net/xdp/xsk.c).
const KERNEL_TX_BATCH: u32 = 32;

/// A received frame that the engine holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lent {
    place: usize,
    head: FrameDesc,
    tail: Option<FrameDesc>,
}

impl Lent {
    /// Place of its queue in the port's list.
    pub(super) fn place(&self) -> usize {
        self.place
    }

    pub(super) fn len(&self) -> usize {
        self.head.lengths().data() + self.tail.map_or(0, |t| t.lengths().data())
    }
}

/// A frame to send that the engine writes.
#[derive(Debug, Clone, Copy)]
struct Reserved {
    head: u32,
    tail: Option<u32>,
    len: usize,
}

/// How a kick ended.
#[derive(Debug)]
pub(super) enum Kick {
    /// Nothing more to do: the ring is empty, or the driver sends on its own.
    Done,
    /// The kernel wants to be asked again later.
    Later,
    /// ENETDOWN: the netdev is down.
    Down,
    /// The socket will never send again.
    Dead(io::Error),
}

pub(super) struct QueueParts {
    pub(super) id: u32,
    pub(super) place: usize,
    pub(super) umem: Umem,
    pub(super) descs: Vec<FrameDesc>,
    pub(super) tx: TxQueue,
    pub(super) rx: RxQueue,
    pub(super) fill: FillQueue,
    pub(super) completion: CompQueue,
    pub(super) rx_ring: u32,
    pub(super) tx_ring: u32,
    pub(super) huge_pages: bool,
}

#[derive(Debug)]
pub(super) struct Queue {
    // The rings go before the UMEM they point into.
    rx: RxQueue,
    tx: TxQueue,
    fill: FillQueue,
    completion: CompQueue,
    umem: Umem,
    /// The descriptor of each chunk as the UMEM made it: the address behind the headroom.
    descs: Vec<FrameDesc>,
    chunks: Chunks,
    to_fill: Vec<u32>,
    scratch: Vec<FrameDesc>,
    assembly: Assembly<FrameDesc>,
    reserved: Option<Reserved>,
    in_flight: u32,
    tx_pending: u32,
    id: u32,
    place: usize,
    fill_size: u32,
    tx_size: u32,
    huge_pages: bool,
    pub(super) drops: RxDrops,
    pub(super) kicks: u64,
    pub(super) kicks_again: u64,
    pub(super) rx_wakeups: u64,
    pub(super) completions_odd: u64,
}

impl Queue {
    /// Takes the parts over; the fill ring is filled, so the socket can go into the socket map.
    pub(super) fn new(parts: QueueParts) -> Queue {
        let QueueParts { id, place, umem, descs, tx, rx, fill, completion, rx_ring, tx_ring, huge_pages } = parts;
        let mut queue = Queue {
            chunks: Chunks::new(rx_ring, descs.len() as u32),
            to_fill: (0..rx_ring).rev().collect(),
            scratch: vec![FrameDesc::default(); BURST_MAX],
            assembly: Assembly::new(),
            reserved: None,
            in_flight: 0,
            tx_pending: 0,
            fill_size: rx_ring,
            tx_size: tx_ring,
            drops: RxDrops::default(),
            kicks: 0,
            kicks_again: 0,
            rx_wakeups: 0,
            completions_odd: 0,
            rx,
            tx,
            fill,
            completion,
            umem,
            descs,
            id,
            place,
            huge_pages,
        };
        queue.refill();
        queue
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn fd(&self) -> RawFd {
        self.rx.fd().as_raw_fd()
    }

    pub(super) fn borrow_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the rings, which `self` owns.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }

    pub(super) fn huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// Frames submitted and not completed, as of the last look at the completion ring.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    // ---- receive ----

    /// Takes up to `max` frames from the receive ring and appends them to `out`, whose capacity the caller has seen to.
    pub(super) fn receive(&mut self, max: usize, out: &mut Vec<Lent>) {
        let want = max.min(BURST_MAX);
        // SAFETY: the descriptors are overwritten with what the kernel put into the ring of this UMEM.
        let got = unsafe { self.rx.consume(&mut self.scratch[..want]) };
        for i in 0..got {
            let desc = self.scratch[i];
            if let Some(frame) = self.take_piece(desc) {
                out.push(frame);
            }
        }
        if got == 0 {
            self.wake_receive_if_asked();
        }
    }

    /// Puts a received piece to the frame it belongs to; the frame when it is whole and sound.
    fn take_piece(&mut self, desc: FrameDesc) -> Option<Lent> {
        if !self.chunks.receive(chunk_of(desc)) {
            // Not a chunk we gave for receiving: whoever holds it, it is not ours to give back.
            self.drops.invalid += 1;
            return None;
        }
        let len = desc.lengths().data();
        let sound = len > 0 && desc.addr() % CHUNK + len <= CHUNK;
        let piece = Piece { desc, len, sound, more: desc.has_more_frames() };
        let to_fill = &mut self.to_fill;
        let (head, tail) = self.assembly.push(piece, &mut self.drops, |desc| to_fill.push(chunk_of(desc)))?;
        Some(Lent { place: self.place, head, tail })
    }

    /// The bytes of a lent frame.
    pub(super) fn frame(&self, lent: &Lent) -> RxFrame<'_> {
        // SAFETY: `take_piece` has checked that each descriptor lies inside one chunk of this UMEM and has marked the
        // chunk as lent; only `release` gives it back to the kernel, and that needs `&mut self`.
        let bytes = |desc: &FrameDesc| unsafe { self.umem.data(desc) }.contents();
        RxFrame { head: bytes(&lent.head), tail: lent.tail.as_ref().map_or(&[], bytes) }
    }

    /// A lent frame goes back; [`Queue::refill`] puts it into the fill ring.
    pub(super) fn release(&mut self, lent: &Lent) {
        self.to_fill.extend([Some(lent.head), lent.tail].into_iter().flatten().map(chunk_of));
    }

    /// Puts what was given back into the fill ring, and wakes the driver when it asks for it.
    pub(super) fn refill(&mut self) {
        if self.to_fill.is_empty() {
            return;
        }
        while !self.to_fill.is_empty() {
            let count = self.to_fill.len().min(BURST_MAX);
            let start = self.to_fill.len() - count;
            for (slot, &chunk) in self.scratch.iter_mut().zip(&self.to_fill[start..]) {
                *slot = self.descs[chunk as usize];
            }
            // SAFETY: the descriptors are of this UMEM and every chunk in `to_fill` is held by us alone (`Lent`).
            let put = unsafe { self.fill.produce(&self.scratch[..count]) };
            if put != count {
                // The ring holds as many as there are receive chunks; whatever is left waits for the next release.
                break;
            }
            for chunk in self.to_fill.drain(start..) {
                self.chunks.fill(chunk);
            }
        }
        self.wake_receive_if_asked();
    }

    fn wake_receive_if_asked(&mut self) {
        if self.fill.needs_wakeup() {
            self.rx_wakeups += 1;
            // A poll that does not wait. Its error, if any, is a socket error, which the port looks for anyway.
            let _ = self.fill.wakeup(self.rx.fd_mut(), 0);
        }
    }

    // ---- transmit ----

    /// Reserves a frame of `len` bytes (1 to two pieces) unless `limit` frames are in flight.
    pub(super) fn reserve(&mut self, len: usize, limit: u32) -> Option<TxFrame<'_>> {
        self.unreserve();
        let pieces = len.div_ceil(PIECE_MAX);
        debug_assert!((1..=PIECES_MAX).contains(&pieces));
        if !self.has_room(pieces, limit) {
            self.collect();
            if !self.has_room(pieces, limit) {
                return None;
            }
        }
        let head = self.chunks.reserve()?;
        let tail = if pieces > 1 { Some(self.chunks.reserve()?) } else { None };
        self.reserved = Some(Reserved { head, tail, len });
        let head = self.piece(head, len.min(PIECE_MAX));
        let tail = tail.map(|tail| self.piece(tail, len - PIECE_MAX));
        // SAFETY: the pieces are of two different chunks, both reserved, so neither the kernel nor anybody else holds
        // them; the result borrows `self` mutably, so no second pair can be made while it lives.
        unsafe {
            Some(TxFrame {
                head: slice::from_raw_parts_mut(head.0, head.1),
                tail: tail.map_or(&mut [], |(start, len)| slice::from_raw_parts_mut(start, len)),
            })
        }
    }

    fn has_room(&mut self, pieces: usize, limit: u32) -> bool {
        self.in_flight < limit
            && self.chunks.free_count() >= pieces
            && self.tx.nb_free(pieces as u32) as usize >= pieces
    }

    /// Start and length of the first `len` bytes (at most [`PIECE_MAX`]) of a reserved chunk.
    fn piece(&mut self, chunk: u32, len: usize) -> (*mut u8, usize) {
        debug_assert_eq!(self.chunks.owner(chunk), Some(Owner::Reserved));
        let mut desc = self.descs[chunk as usize];
        // SAFETY: the descriptor is of this UMEM, and the chunk is reserved: nobody else looks at it now.
        let mut data = unsafe { self.umem.data_mut(&mut desc) };
        data.cursor().set_pos(len);
        let bytes = data.contents_mut();
        (bytes.as_mut_ptr(), bytes.len())
    }

    /// Gives a reservation that was not committed back to the pool.
    pub(super) fn unreserve(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.chunks.unreserve(reserved.head);
            if let Some(tail) = reserved.tail {
                self.chunks.unreserve(tail);
            }
        }
    }

    /// The reserved frame goes into the transmit ring with its first `len` bytes.
    pub(super) fn commit(&mut self, len: usize) {
        let reserved = self.reserved.take().expect("tx_commit without a reserved frame");
        assert!((1..=reserved.len).contains(&len), "tx_commit of {len} of {} reserved bytes", reserved.len);
        let tail = match reserved.tail {
            Some(tail) if len > PIECE_MAX => Some(tail),
            Some(unused) => {
                self.chunks.unreserve(unused);
                None
            }
            None => None,
        };
        let first = self.filled(reserved.head, len.min(PIECE_MAX), tail.is_some());
        let put = match tail {
            // SAFETY: the descriptor is of this UMEM and its chunk is reserved: held by us alone.
            None => unsafe { self.tx.produce_one(&first) },
            Some(tail) => {
                let second = self.filled(tail, len - PIECE_MAX, false);
                // SAFETY: as above. Both pieces become visible to the kernel at once.
                unsafe { self.tx.produce(&[first, second]) }
            }
        };
        debug_assert_eq!(put, 1 + usize::from(tail.is_some()), "room was checked when the frame was reserved");
        self.chunks.send(reserved.head, tail.is_none());
        if let Some(tail) = tail {
            self.chunks.send(tail, true);
        }
        self.tx_pending += put as u32;
        self.in_flight += 1;
    }

    /// The descriptor of a chunk with `len` bytes written.
    fn filled(&mut self, chunk: u32, len: usize, more: bool) -> FrameDesc {
        let mut desc = self.descs[chunk as usize];
        // SAFETY: the descriptor is of this UMEM, and the chunk is reserved: nobody else looks at it now.
        unsafe { self.umem.data_mut(&mut desc) }.cursor().set_pos(len);
        desc.set_options(if more { PKT_CONTD } else { 0 });
        desc
    }

    /// Collects the buffers of frames that have left.
    pub(super) fn collect(&mut self) {
        // No more than the ring holds, so that a fast completer cannot keep us here.
        for _ in 0..self.tx_size.div_ceil(BURST_MAX as u32) {
            // SAFETY: the descriptors are overwritten with what the kernel put into the ring of this UMEM.
            let got = unsafe { self.completion.consume(&mut self.scratch) };
            for desc in &self.scratch[..got] {
                match self.chunks.complete(chunk_of(*desc)) {
                    Some(last) => self.in_flight -= u32::from(last),
                    None => self.completions_odd += 1,
                }
            }
            if got < BURST_MAX {
                break;
            }
        }
    }

    /// Nothing committed waits in the transmit ring, as of the last flush.
    pub(super) fn tx_idle(&self) -> bool {
        self.tx_pending == 0
    }

    /// Has the kernel send what is in the transmit ring: again and again while that makes it shorter.
    pub(super) fn flush(&mut self) -> Kick {
        self.tx_pending = self.tx_size - self.tx.nb_free_exact();
        // In copy mode one call takes a batch and says "again"; a call that takes nothing ends the round.
        for _ in 0..self.tx_size.div_ceil(KERNEL_TX_BATCH) + 2 {
            if self.tx_pending == 0 {
                return Kick::Done;
            }
            if !self.tx.needs_wakeup() {
                // The driver takes the rest on its own. Should it change its mind, the next flush sees it.
                return Kick::Done;
            }
            self.kicks += 1;
            let outcome = sys::kick(self.fd());
            self.collect();
            let pending = self.tx_size - self.tx.nb_free_exact();
            let progress = pending < self.tx_pending;
            self.tx_pending = pending;
            if let Err(error) = outcome {
                match error.raw_os_error() {
                    Some(libc::ENETDOWN) => return Kick::Down,
                    Some(libc::ENXIO | libc::EPERM | libc::EACCES | libc::EOPNOTSUPP | libc::ENODEV | libc::EBADF) => {
                        return Kick::Dead(error);
                    }
                    _ => self.kicks_again += 1,
                }
            }
            if !progress {
                return if pending == 0 { Kick::Done } else { Kick::Later };
            }
        }
        Kick::Later
    }

    // ---- accounts ----

    /// The cheap form of the account, for debug assertions.
    pub(super) fn sums_add_up(&self) -> bool {
        self.chunks.sums_add_up()
    }

    /// Where every chunk is now.
    pub(super) fn account(&mut self) -> FrameAccount {
        // Each ring is read before the one that feeds it, so that a chunk which moves meanwhile is not seen twice.
        let rx = self.rx.nb_avail_exact();
        let fill = self.fill_size - self.fill.nb_free_exact();
        let completion = self.completion.nb_avail_exact();
        let tx = self.tx_size - self.tx.nb_free_exact();
        self.chunks.account([fill, rx, tx, completion])
    }

    /// The kernel's own counts for this socket: dropped for want of a buffer or room, receive ring full, fill ring
    /// empty, malformed transmit descriptors.
    pub(super) fn kernel_counts(&self) -> [u64; 4] {
        self.rx.fd().xdp_statistics().map_or([0; 4], |s| {
            [
                s.rx_dropped() + s.rx_invalid_descs(),
                s.rx_ring_full(),
                s.rx_fill_ring_empty_descs(),
                s.tx_invalid_descs(),
            ]
        })
    }
}

fn chunk_of(desc: FrameDesc) -> u32 {
    (desc.addr() / CHUNK) as u32
}
