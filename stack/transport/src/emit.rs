//! Writes one packet into a reservation: headers, payload straight from registered memory, pad, ICRC.
//!
//! In: the flow's headers, what this packet has of its own, and a closure that fills the payload. Out: the bytes, in one or two pieces. The ICRC is
//! made over the copy in the frame, never over the source, which the application may change meanwhile.

use xroce_wire::{Fields, ICRC_LEN, Icrc, Template, pad_len};

use crate::io::TxPacket;
use crate::memory::MemRef;

/// The payload area of a packet, filled from front to back.
pub(crate) struct PayloadWriter<'a> {
    head: &'a mut [u8],
    tail: &'a mut [u8],
}

impl PayloadWriter<'_> {
    /// Bytes still to be written.
    pub(crate) fn room(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Copies `len` bytes at `offset` of `source`. `len` is at most [`room`](Self::room).
    #[inline(always)]
    pub(crate) fn copy(&mut self, source: &MemRef, offset: usize, len: usize) {
        let first = len.min(self.head.len());
        let (dst, rest) = core::mem::take(&mut self.head).split_at_mut(first);
        source.read(offset, dst);
        self.head = rest;
        if len > first {
            let (dst, rest) = core::mem::take(&mut self.tail).split_at_mut(len - first);
            source.read(offset + first, dst);
            self.tail = rest;
        }
    }

    /// Copies bytes that lie in the work request itself.
    pub(crate) fn copy_slice(&mut self, source: &[u8]) {
        let first = source.len().min(self.head.len());
        let (dst, rest) = core::mem::take(&mut self.head).split_at_mut(first);
        dst.copy_from_slice(&source[..first]);
        self.head = rest;
        if source.len() > first {
            let (dst, rest) = core::mem::take(&mut self.tail).split_at_mut(source.len() - first);
            dst.copy_from_slice(&source[first..]);
            self.tail = rest;
        }
    }
}

/// Fills `out` with one packet, which takes all of it. When `fill` fails nothing is to be sent, and its error comes back.
pub(crate) fn packet<E>(
    (template, fields): (&Template, &Fields),
    payload: usize,
    out: TxPacket<'_>,
    fill: impl FnOnce(&mut PayloadWriter<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let TxPacket { head, tail } = out;
    let len = head.len() + tail.len();
    let header_len = template.header_len(fields);
    let (header, body) = head.split_at_mut(header_len);
    template.emit_covered(fields, payload, header);

    // The payload takes what the head has left, then the tail; pad and ICRC follow wherever it ended.
    let in_head = payload.min(body.len());
    let in_tail = payload - in_head;
    let mut writer = PayloadWriter { head: &mut body[..in_head], tail: &mut tail[..in_tail] };
    fill(&mut writer)?;
    debug_assert_eq!(writer.room(), 0);

    let pad = pad_len(payload);
    if in_tail == 0 && body.len() == payload + pad + ICRC_LEN {
        // In one piece: pad and ICRC stand right behind the payload.
        if pad > 0 {
            body[payload..payload + pad].fill(0);
        }
        let (covered, stored) = head.split_at_mut(header_len + payload + pad);
        stored.copy_from_slice(&Icrc::begin_covered(covered).finish());
    } else {
        let icrc = Icrc::begin_covered(&head[..header_len + in_head]);
        trailer_in_two(icrc, (&mut head[header_len + in_head..], tail), in_tail, pad);
    }
    template.uncover(len, head);
    Ok(())
}

/// Finishes a packet whose end does not lie in the first piece, or not as a whole. `icrc` and `rest` begin behind what the first
/// piece has of headers and payload; the payload goes on with `in_tail` bytes of the second.
fn trailer_in_two(mut icrc: Icrc, (rest, tail): (&mut [u8], &mut [u8]), in_tail: usize, pad: usize) {
    let mut end = [0u8; 3 + ICRC_LEN];
    icrc.update(&tail[..in_tail]);
    icrc.update(&end[..pad]);
    end[pad..pad + ICRC_LEN].copy_from_slice(&icrc.finish());
    let trailer = &end[..pad + ICRC_LEN];
    let (in_first, in_second) = trailer.split_at(rest.len().min(trailer.len()));
    rest[..in_first.len()].copy_from_slice(in_first);
    tail[in_tail..in_tail + in_second.len()].copy_from_slice(in_second);
}
