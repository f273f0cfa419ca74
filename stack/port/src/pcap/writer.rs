//! The pcapng file format: draft-ietf-opsawg-pcapng, the blocks we need, little-endian.
//!
//! What enters: interfaces and packets. What leaves: bytes for any sink, a whole block per write.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Direction, RxFrame};

const SECTION_HEADER_BLOCK: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION_BLOCK: u32 = 1;
const ENHANCED_PACKET_BLOCK: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_MAC_ADDR: u16 = 6;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;

/// Powers of ten of a second in a time stamp: nanoseconds.
const TSRESOL_NS: u8 = 9;

const LINKTYPE_ETHERNET: u16 = 1;

/// Direction bits of `epb_flags`.
const INBOUND: u32 = 0b01;
const OUTBOUND: u32 = 0b10;

/// An interface of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InterfaceId(u32);

/// How a capture fares.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CaptureStatus {
    /// Packets written.
    pub packets: u64,
    /// Packets not written because the sink had failed.
    pub lost: u64,
    /// What the sink answered when it failed. Nothing is written after that, the ports go on.
    pub error: Option<String>,
}

/// A pcapng capture that is being written. Clones write to the same one.
#[derive(Clone)]
pub struct Capture(Arc<Mutex<Writer>>);

struct Writer {
    sink: Box<dyn Write + Send>,
    /// The block being built.
    block: Vec<u8>,
    interfaces: u32,
    status: CaptureStatus,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Capture {
    /// Begins a capture. Each packet is one write: give a file a buffer. What a capture begins with, the section header here and
    /// the interfaces, is flushed at once: also that of a process which is killed before its first packet is one.
    ///
    /// # Errors
    /// When the section header cannot be written.
    pub fn new(sink: impl Write + Send + 'static) -> io::Result<Capture> {
        let mut writer = Writer {
            sink: Box::new(sink),
            block: Vec::with_capacity(2048),
            interfaces: 0,
            status: CaptureStatus::default(),
        };
        writer.begin(SECTION_HEADER_BLOCK);
        writer.u32(BYTE_ORDER_MAGIC);
        writer.u16(1);
        writer.u16(0);
        // Section length unknown: it ends with the file.
        writer.block.extend(u64::MAX.to_le_bytes());
        writer.option(SHB_USERAPPL, concat!("xroce ", env!("CARGO_PKG_VERSION")).as_bytes());
        writer.option(OPT_END, &[]);
        writer.close();
        let Writer { sink, block, .. } = &mut writer;
        sink.write_all(block)?;
        sink.flush()?;
        Ok(Capture(Arc::new(Mutex::new(writer))))
    }

    /// Adds an interface; names need not differ.
    pub fn add_interface(&self, name: &str, mac: Option<[u8; 6]>) -> InterfaceId {
        let mut writer = self.lock();
        writer.begin(INTERFACE_DESCRIPTION_BLOCK);
        writer.u16(LINKTYPE_ETHERNET);
        writer.u16(0);
        // Snap length: none.
        writer.u32(0);
        writer.option(IF_NAME, name.as_bytes());
        if let Some(mac) = mac {
            writer.option(IF_MAC_ADDR, &mac);
        }
        writer.option(IF_TSRESOL, &[TSRESOL_NS]);
        writer.option(OPT_END, &[]);
        writer.close();
        writer.write_block();
        writer.flush();
        let id = InterfaceId(writer.interfaces);
        writer.interfaces += 1;
        id
    }

    /// Writes one packet. `at_ns` counts from 1970 or from the start of a virtual clock; an empty comment is left out.
    pub fn record(&self, interface: InterfaceId, direction: Direction, at_ns: u64, frame: &RxFrame<'_>, comment: &str) {
        let mut writer = self.lock();
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        writer.begin(ENHANCED_PACKET_BLOCK);
        writer.u32(interface.0);
        writer.u32((at_ns >> 32) as u32);
        writer.u32((at_ns & u64::from(u32::MAX)) as u32);
        writer.u32(len);
        writer.u32(len);
        writer.block.extend(frame.head);
        writer.block.extend(frame.tail);
        writer.pad();
        let flags = match direction {
            Direction::Rx => INBOUND,
            Direction::Tx => OUTBOUND,
        };
        writer.option(EPB_FLAGS, &flags.to_le_bytes());
        if !comment.is_empty() {
            writer.option(OPT_COMMENT, comment.as_bytes());
        }
        writer.option(OPT_END, &[]);
        writer.close();
        if writer.write_block() {
            writer.status.packets += 1;
        } else {
            writer.status.lost += 1;
        }
    }

    /// Flushes the sink, and says how the capture fares.
    pub fn flush(&self) -> CaptureStatus {
        let mut writer = self.lock();
        writer.flush();
        writer.status.clone()
    }

    /// How the capture fares.
    #[must_use]
    pub fn status(&self) -> CaptureStatus {
        self.lock().status.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    fn u16(&mut self, value: u16) {
        self.block.extend(value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.block.extend(value.to_le_bytes());
    }

    fn pad(&mut self) {
        let padded = self.block.len().next_multiple_of(4);
        self.block.resize(padded, 0);
    }

    /// Code, length, value, pad. A value beyond the length field is cut.
    fn option(&mut self, code: u16, value: &[u8]) {
        let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.u16(code);
        self.u16(len);
        self.block.extend(&value[..usize::from(len)]);
        self.pad();
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.u32(kind);
        // The total length is known when the block is closed.
        self.u32(0);
    }

    /// The total length stands at both ends of a block.
    fn close(&mut self) {
        let total = u32::try_from(self.block.len() + 4).unwrap_or(u32::MAX);
        self.block[4..8].copy_from_slice(&total.to_le_bytes());
        self.u32(total);
    }

    /// Whether the block was written.
    fn write_block(&mut self) -> bool {
        self.status.error.is_none() && {
            let written = self.sink.write_all(&self.block);
            self.went(written)
        }
    }

    fn flush(&mut self) {
        if self.status.error.is_none() {
            let flushed = self.sink.flush();
            self.went(flushed);
        }
    }

    /// Whether the sink did what it was asked to; once it did not, it is asked no more.
    fn went(&mut self, result: io::Result<()>) -> bool {
        let Err(error) = result else { return true };
        tracing::warn!(%error, packets = self.status.packets, "the capture ends: its sink failed");
        self.status.error = Some(error.to_string());
        false
    }
}
