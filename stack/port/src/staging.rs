//! A wrapper's own copy of the frame that is being written.
//!
//! What enters: a reservation that the port below granted. What leaves: a buffer of the same shape for the layer above
//! to write, and later that frame copied down. A port lends its transmit frame only between reserve and commit, so a
//! wrapper that wants to see the bytes at commit must have had them written to a buffer of its own.

#![forbid(unsafe_code)]

use crate::{Port, RxFrame, TxClass, TxFrame};

/// One frame, written by the layer above, not yet passed down.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    bytes: Vec<u8>,
    /// Bytes of the head piece, as the port below cut it.
    head_len: usize,
    reserved: Option<(usize, TxClass)>,
}

impl Staging {
    /// A buffer for frames of up to `max_frame` bytes, so that none is allocated later.
    pub(crate) fn for_frames_up_to(max_frame: usize) -> Staging {
        Staging { bytes: vec![0; max_frame], head_len: 0, reserved: None }
    }

    /// Reserves below, to learn that there is room and how the frame is cut, and lends a buffer of the same shape.
    pub(crate) fn reserve<P: Port>(&mut self, port: &mut P, len: usize, class: TxClass) -> Option<TxFrame<'_>> {
        self.reserved = None;
        self.head_len = port.tx_reserve(len, class)?.head.len();
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        self.reserved = Some((len, class));
        let (head, tail) = self.bytes[..len].split_at_mut(self.head_len);
        Some(TxFrame { head, tail })
    }

    /// Ends the reservation: the class it had. The bytes stay readable through [`Staging::frame`].
    ///
    /// # Panics
    /// When nothing is reserved, or `len` is 0 or more than was reserved: the contract of [`Port::tx_commit`].
    pub(crate) fn take(&mut self, len: usize) -> TxClass {
        let (reserved, class) = self.reserved.take().expect("tx_commit without a reserved frame");
        assert!((1..=reserved).contains(&len), "tx_commit of {len} bytes, reserved were {reserved}");
        class
    }

    /// Something is reserved.
    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved.is_some()
    }

    /// A void reservation: nothing was committed.
    pub(crate) fn forget(&mut self) {
        self.reserved = None;
    }

    /// The first `len` bytes, cut as the port below cut them.
    pub(crate) fn frame(&self, len: usize) -> RxFrame<'_> {
        let (head, tail) = self.bytes[..len].split_at(self.head_len.min(len));
        RxFrame { head, tail }
    }

    /// The first `len` bytes, to be changed.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[..len]
    }

    /// Copies the first `len` bytes into the frame that the port below granted, and commits it.
    ///
    /// The port is asked to reserve a second time: it said yes to the same length and class, and nothing was committed
    /// since, so it has the room still (a void reservation keeps its buffer).
    pub(crate) fn send_granted<P: Port>(&self, port: &mut P, len: usize, class: TxClass) {
        let sent = send_bytes(port, &self.bytes[..len], class);
        debug_assert!(sent, "a port took back a reservation of {len} bytes");
    }

    /// As [`Staging::send_granted`], when the granted frame was used up: `false` when the port has no more room.
    pub(crate) fn send_again<P: Port>(&self, port: &mut P, len: usize, class: TxClass) -> bool {
        send_bytes(port, &self.bytes[..len], class)
    }
}

/// Reserves, copies and commits one frame. `false` when the port had no room.
pub(crate) fn send_bytes<P: Port>(port: &mut P, bytes: &[u8], class: TxClass) -> bool {
    let Some(frame) = port.tx_reserve(bytes.len(), class) else {
        return false;
    };
    let (head, tail) = bytes.split_at(frame.head.len());
    frame.head.copy_from_slice(head);
    frame.tail.copy_from_slice(tail);
    port.tx_commit(bytes.len());
    true
}
