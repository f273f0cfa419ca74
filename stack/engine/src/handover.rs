//! Hand-over between shards: the network card put a packet on a queue whose shard does not own the queue pair.
//!
//! In: packets copied by other shards. Out: the same, to the shard that owns the queue pair. Bounded; what does not fit is
//! dropped and counted, as a full NIC queue would, and the transport's retry repairs it.
#![forbid(unsafe_code)]

use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicU64, Ordering};

/// The inbox of one shard: many shards put in, the holder of its token takes out. All buffers are allocated once.
#[derive(Debug)]
pub struct Inbox {
    free: ArrayQueue<Box<[u8]>>,
    full: ArrayQueue<Packet>,
    accepted: AtomicU64,
    dropped: AtomicU64,
}

/// A handed-over packet, from the IP header on, in one piece.
#[derive(Debug)]
pub struct Packet {
    buffer: Box<[u8]>,
    len: usize,
    /// The VLAN it came with.
    pub vlan: Option<u16>,
    /// It came over the inner wire of the other shard.
    pub local: bool,
}

impl Packet {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Inbox {
    /// An inbox of `slots` packets (at least 1) of up to `slot_len` bytes.
    pub fn new(slots: usize, slot_len: usize) -> Inbox {
        let slots = slots.max(1);
        let free = ArrayQueue::new(slots);
        for _ in 0..slots {
            let _ = free.push(vec![0; slot_len].into_boxed_slice());
        }
        Inbox { free, full: ArrayQueue::new(slots), accepted: AtomicU64::new(0), dropped: AtomicU64::new(0) }
    }

    /// Copies a packet in; false (and counted) when there is no free slot or it is longer than one.
    pub fn put(&self, head: &[u8], tail: &[u8], vlan: Option<u16>, local: bool) -> bool {
        let len = head.len() + tail.len();
        let Some(mut buffer) = self.free.pop() else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        if len > buffer.len() {
            self.give_back(buffer);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        buffer[..head.len()].copy_from_slice(head);
        buffer[head.len()..len].copy_from_slice(tail);
        // There are as many places in `full` as there are buffers.
        let pushed = self.full.push(Packet { buffer, len, vlan, local }).is_ok();
        debug_assert!(pushed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The oldest packet; it goes back by [`release`](Inbox::release).
    pub fn take(&self) -> Option<Packet> {
        self.full.pop()
    }

    /// Returns a taken packet's buffer.
    pub fn release(&self, packet: Packet) {
        self.give_back(packet.buffer);
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.full.is_empty()
    }

    /// Packets accepted and packets dropped since the start.
    pub fn counts(&self) -> (u64, u64) {
        (self.accepted.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }

    fn give_back(&self, buffer: Box<[u8]>) {
        let returned = self.free.push(buffer).is_ok();
        debug_assert!(returned, "a buffer came back twice");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pieces_arrive_as_one_packet() {
        let inbox = Inbox::new(2, 8);
        assert!(inbox.put(&[1, 2], &[3], Some(7), false));
        let p = inbox.take().unwrap();
        assert_eq!((p.bytes(), p.vlan, p.local), (&[1, 2, 3][..], Some(7), false));
        inbox.release(p);
        assert!(inbox.take().is_none());
    }

    #[test]
    fn a_full_inbox_drops_and_counts_and_recovers() {
        let inbox = Inbox::new(2, 8);
        assert!(inbox.put(&[1], &[], None, false) && inbox.put(&[2], &[], None, false));
        assert!(!inbox.put(&[3], &[], None, false));
        let p = inbox.take().unwrap();
        inbox.release(p);
        assert!(inbox.put(&[4], &[], None, true));
        assert!(!inbox.put(&[0; 8], &[0; 1], None, false), "no slot and too long");
        assert_eq!(inbox.counts(), (3, 2));
    }

    #[test]
    fn a_packet_longer_than_a_slot_costs_no_slot() {
        let inbox = Inbox::new(1, 8);
        assert!(!inbox.put(&[0; 8], &[0; 1], None, false));
        assert!(inbox.put(&[0; 8], &[], None, false));
    }
}
