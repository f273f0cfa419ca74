//! Who holds each chunk of a UMEM. What enters: every hand-over of a chunk. What leaves: the transmit pool, and the
//! proof that no chunk is lost or held twice.

#![forbid(unsafe_code)]

/// Who holds a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The transmit pool.
    Free,
    /// The engine writes into it (reserved, not committed).
    Reserved,
    /// The kernel, to be sent; it is not the last piece of its frame.
    TxMore,
    /// The kernel, to be sent; it is the last piece of its frame.
    TxLast,
    /// The kernel, to be received into.
    Fill,
    /// The engine reads it, or waits to give it back to the fill ring.
    Lent,
}

/// Where the chunks of one port are. The rings are read while the kernel moves chunks: what it has taken out of one
/// ring and not yet put into the next is `in_kernel`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameAccount {
    /// In the transmit pool.
    pub free: u64,
    /// In the fill rings.
    pub fill: u64,
    /// In the receive rings, not yet taken.
    pub rx: u64,
    /// In the transmit rings, not yet taken by the kernel.
    pub tx: u64,
    /// In the completion rings, not yet collected.
    pub completion: u64,
    /// Reserved by, or lent to, the engine.
    pub held: u64,
    /// Taken by the kernel from a fill or transmit ring and not yet given back.
    pub in_kernel: u64,
    /// All chunks there are.
    pub total: u64,
}

impl FrameAccount {
    /// Every chunk is somewhere, and none is in two places.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.free + self.fill + self.rx + self.tx + self.completion + self.held + self.in_kernel == self.total
    }
}

/// The chunks of one UMEM.
#[derive(Debug)]
pub(super) struct Chunks {
    owners: Vec<Owner>,
    free: Vec<u32>,
    kernel_rx: usize,
    kernel_tx: usize,
    held: usize,
}

impl Chunks {
    /// The first `rx` of `total` chunks are lent (on their way to the fill ring), the others are free to send from.
    pub(super) fn new(rx: u32, total: u32) -> Chunks {
        let mut owners = vec![Owner::Lent; rx as usize];
        owners.resize(total as usize, Owner::Free);
        Chunks { owners, free: (rx..total).rev().collect(), kernel_rx: 0, kernel_tx: 0, held: rx as usize }
    }

    pub(super) fn owner(&self, chunk: u32) -> Option<Owner> {
        self.owners.get(chunk as usize).copied()
    }

    pub(super) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Takes a chunk from the pool to write into.
    pub(super) fn reserve(&mut self) -> Option<u32> {
        let chunk = self.free.pop()?;
        debug_assert_eq!(self.owners[chunk as usize], Owner::Free);
        self.owners[chunk as usize] = Owner::Reserved;
        self.held += 1;
        Some(chunk)
    }

    /// A reserved chunk was not used.
    pub(super) fn unreserve(&mut self, chunk: u32) {
        self.change(chunk, Owner::Reserved, Owner::Free);
        self.held -= 1;
        self.free.push(chunk);
    }

    /// A reserved chunk goes into the transmit ring.
    pub(super) fn send(&mut self, chunk: u32, last: bool) {
        self.change(chunk, Owner::Reserved, if last { Owner::TxLast } else { Owner::TxMore });
        self.held -= 1;
        self.kernel_tx += 1;
    }

    /// A chunk came back on the completion ring. `None`: it was not out for sending. `Some(true)`: its frame is done.
    pub(super) fn complete(&mut self, chunk: u32) -> Option<bool> {
        let last = match self.owner(chunk)? {
            Owner::TxLast => true,
            Owner::TxMore => false,
            _ => return None,
        };
        self.owners[chunk as usize] = Owner::Free;
        self.kernel_tx -= 1;
        self.free.push(chunk);
        Some(last)
    }

    /// A chunk goes into the fill ring.
    pub(super) fn fill(&mut self, chunk: u32) {
        self.change(chunk, Owner::Lent, Owner::Fill);
        self.held -= 1;
        self.kernel_rx += 1;
    }

    /// A chunk came on the receive ring. False: it was not out for receiving.
    pub(super) fn receive(&mut self, chunk: u32) -> bool {
        if self.owner(chunk) != Some(Owner::Fill) {
            return false;
        }
        self.owners[chunk as usize] = Owner::Lent;
        self.kernel_rx -= 1;
        self.held += 1;
        true
    }

    fn change(&mut self, chunk: u32, from: Owner, to: Owner) {
        debug_assert_eq!(self.owners[chunk as usize], from, "chunk {chunk} on its way to {to:?}");
        self.owners[chunk as usize] = to;
    }

    /// The running sums add up to all chunks. Cheap: for debug assertions.
    pub(super) fn sums_add_up(&self) -> bool {
        self.free.len() + self.held + self.kernel_rx + self.kernel_tx == self.owners.len()
    }

    /// Counts the owners one by one, and takes what the rings hold from `rings` (fill, rx, tx, completion).
    pub(super) fn account(&self, rings: [u32; 4]) -> FrameAccount {
        let count = |owner: Owner| self.owners.iter().filter(|&&o| o == owner).count() as u64;
        let [fill, rx, tx, completion] = rings.map(u64::from);
        let kernel = count(Owner::Fill) + count(Owner::TxMore) + count(Owner::TxLast);
        FrameAccount {
            free: self.free.len() as u64,
            fill,
            rx,
            tx,
            completion,
            held: count(Owner::Reserved) + count(Owner::Lent),
            // More in the rings than was handed to the kernel is a chunk in two places: the sum then shows it.
            in_kernel: kernel.saturating_sub(fill + rx + tx + completion),
            total: self.owners.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Report H38.
    #[test]
    fn a_round_of_every_hand_over_adds_up() {
        let mut chunks = Chunks::new(2, 5);
        chunks.fill(0);
        chunks.fill(1);
        assert!(chunks.receive(1));
        assert!(!chunks.receive(1), "received twice");
        let first = chunks.reserve().unwrap();
        let second = chunks.reserve().unwrap();
        let third = chunks.reserve().unwrap();
        assert_eq!((first, second, third), (2, 3, 4));
        assert_eq!(chunks.reserve(), None);
        chunks.unreserve(third);
        chunks.send(first, false);
        chunks.send(second, true);
        assert!(chunks.sums_add_up());
        assert!(chunks.account([1, 0, 1, 1]).adds_up());
        assert_eq!(chunks.complete(first), Some(false));
        assert_eq!(chunks.complete(second), Some(true));
        assert_eq!(chunks.complete(second), None, "completed twice");
        assert_eq!(chunks.complete(0), None, "a receive chunk completed");
        assert_eq!(chunks.complete(99), None, "a chunk that is not there");
        assert!(chunks.sums_add_up());
        assert!(chunks.account([1, 0, 0, 0]).adds_up());
        assert!(!chunks.account([2, 0, 0, 0]).adds_up(), "one chunk in two rings must show");
    }
}
