//! The inner wire: packets to a queue pair of the same device never leave the machine.
//!
//! In: packets the transport writes for a local destination, from the IP header on. Out: the same packets, in order.
#![forbid(unsafe_code)]

use xroce_transport::TxClass;

/// A bounded ring of packet buffers with one owner, allocated once.
///
/// A quarter of the slots is kept for responses, so that a queue pair that sends to itself cannot fill the ring with
/// requests and leave no room for the acknowledgements that would empty it.
#[derive(Debug)]
pub struct Loopback {
    bytes: Box<[u8]>,
    lens: Box<[usize]>,
    slot_len: usize,
    head: usize,
    used: usize,
    reserved: Option<usize>,
}

impl Loopback {
    /// A ring of `slots` packets (at least 4) of up to `slot_len` bytes each.
    pub fn new(slots: usize, slot_len: usize) -> Loopback {
        let slots = slots.max(4);
        Loopback {
            bytes: vec![0; slots * slot_len].into_boxed_slice(),
            lens: vec![0; slots].into_boxed_slice(),
            slot_len,
            head: 0,
            used: 0,
            reserved: None,
        }
    }

    /// Room for a packet of `len` bytes at the end of the ring; None when the ring has none for this class or the packet
    /// is longer than a slot. A reservation that was not committed is replaced.
    pub fn reserve(&mut self, len: usize, class: TxClass) -> Option<&mut [u8]> {
        self.reserved = None;
        let slots = self.lens.len();
        let usable = match class {
            TxClass::Request => slots - slots / 4,
            TxClass::Response => slots,
        };
        if self.used >= usable || len > self.slot_len {
            return None;
        }
        self.reserved = Some(len);
        let start = (self.head + self.used) % slots * self.slot_len;
        Some(&mut self.bytes[start..start + len])
    }

    /// The reserved packet is complete with its first `len` bytes. Without a reservation nothing happens.
    pub fn commit(&mut self, len: usize) {
        if let Some(reserved) = self.reserved.take() {
            let slot = (self.head + self.used) % self.lens.len();
            self.lens[slot] = len.min(reserved);
            self.used += 1;
        }
    }

    /// The oldest packet.
    pub fn front(&self) -> Option<&[u8]> {
        let start = self.head * self.slot_len;
        (self.used > 0).then(|| &self.bytes[start..start + self.lens[self.head]])
    }

    /// Frees the oldest packet's slot.
    pub fn pop(&mut self) {
        if self.used > 0 {
            self.head = (self.head + 1) % self.lens.len();
            self.used -= 1;
        }
    }

    /// Packets waiting.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(ring: &mut Loopback, byte: u8, len: usize, class: TxClass) -> bool {
        let Some(room) = ring.reserve(len, class) else { return false };
        room.fill(byte);
        ring.commit(len);
        true
    }

    #[test]
    fn packets_come_out_in_order_around_the_end() {
        let mut ring = Loopback::new(4, 16);
        for round in 0..10u8 {
            assert!(send(&mut ring, round, 5, TxClass::Request));
            assert!(send(&mut ring, round + 100, 16, TxClass::Response));
            assert_eq!(ring.front(), Some(&[round; 5][..]));
            ring.pop();
            assert_eq!(ring.front(), Some(&[round + 100; 16][..]));
            ring.pop();
            assert!(ring.is_empty());
        }
    }

    #[test]
    fn requests_leave_room_for_responses() {
        let mut ring = Loopback::new(8, 16);
        assert_eq!((0..9).filter(|_| send(&mut ring, 1, 1, TxClass::Request)).count(), 6);
        assert_eq!((0..9).filter(|_| send(&mut ring, 2, 1, TxClass::Response)).count(), 2);
        assert_eq!(ring.len(), 8);
    }

    #[test]
    fn what_is_not_committed_is_not_sent() {
        let mut ring = Loopback::new(4, 16);
        assert!(ring.reserve(3, TxClass::Request).is_some());
        assert!(ring.reserve(17, TxClass::Request).is_none(), "longer than a slot");
        ring.commit(3);
        assert!(ring.is_empty(), "the second reserve voided the first");
    }
}
