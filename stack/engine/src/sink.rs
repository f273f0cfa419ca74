//! Where the transport writes its packets: straight into the port's frames, behind a prebuilt link-layer header.
//!
//! In: a path and a length. Out: the room for the packet, in a frame of the port or a slot of the inner wire.
#![forbid(unsafe_code)]

use crate::loopback::Loopback;
use crate::path::{PathTable, Route};
use xroce_port::Port;
use xroce_transport::{PathId, TxClass, TxPacket, TxSink};

/// The sink of one step.
pub(crate) struct Sink<'a> {
    port: &'a mut dyn Port,
    paths: &'a PathTable,
    loopback: &'a mut Loopback,
    void: &'a mut [u8],
    port_is_gone: bool,
    reserved: Reserved,
    refused: bool,
    voided: u64,
}

/// What the last reservation is made of.
#[derive(Clone, Copy)]
enum Reserved {
    Nothing,
    /// A frame of the port, with this many bytes of link-layer header.
    Frame(usize),
    Slot,
    /// Nowhere: the path cannot be used now.
    Void,
}

impl<'a> Sink<'a> {
    /// `void` has room for the longest packet there is.
    pub(crate) fn new(
        port: &'a mut dyn Port,
        paths: &'a PathTable,
        loopback: &'a mut Loopback,
        void: &'a mut [u8],
        port_is_gone: bool,
    ) -> Sink<'a> {
        Sink { port, paths, loopback, void, port_is_gone, reserved: Reserved::Nothing, refused: false, voided: 0 }
    }

    /// The packet reserved last is complete with its first `len` bytes.
    pub(crate) fn commit(&mut self, len: usize) {
        match std::mem::replace(&mut self.reserved, Reserved::Nothing) {
            Reserved::Frame(header) => self.port.tx_commit(header + len),
            Reserved::Slot => self.loopback.commit(len),
            Reserved::Void => self.voided += 1,
            Reserved::Nothing => debug_assert!(false, "committed without a reservation"),
        }
    }

    /// Whether some reservation was refused: the transport has more to send than there was room for.
    pub(crate) fn refused(&self) -> bool {
        self.refused
    }

    /// Packets that were written for a path that cannot be used.
    pub(crate) fn voided(&self) -> u64 {
        self.voided
    }
}

impl TxSink for Sink<'_> {
    #[inline]
    fn reserve(&mut self, path: PathId, len: usize, class: TxClass) -> Option<TxPacket<'_>> {
        self.reserved = Reserved::Nothing;
        match self.paths.route(path) {
            Some(Route::Wire(header)) if !self.port_is_gone => {
                let class = match class {
                    TxClass::Request => xroce_port::TxClass::Request,
                    TxClass::Response => xroce_port::TxClass::Response,
                };
                let Some(frame) = self.port.tx_reserve(header.len() + len, class) else {
                    self.refused = true;
                    return None;
                };
                self.reserved = Reserved::Frame(header.len());
                Some(TxPacket { head: header.put(frame.head), tail: frame.tail })
            }
            Some(Route::Local) => match self.loopback.reserve(len, class) {
                Some(head) => {
                    self.reserved = Reserved::Slot;
                    Some(TxPacket { head, tail: &mut [] })
                }
                None => {
                    self.refused = true;
                    None
                }
            },
            // No next hop now, or no port any more. The packet is lost as on a dead wire and retries repair it or end it; to refuse it here would
            // hold up every other queue pair of the shard behind this one.
            Some(Route::Wire(_)) | None => {
                let head = self.void.get_mut(..len)?;
                self.reserved = Reserved::Void;
                Some(TxPacket { head, tail: &mut [] })
            }
        }
    }
}
