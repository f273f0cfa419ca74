//! Capture files: bytes of a pcap or pcapng file enter, frames with number, time, link type and both lengths leave.
//!
//! The records themselves are parsed by `pcap-parser`; this file finds where they begin and end in a stream (so that a
//! pipe is decoded while it is written), and keeps what a pcapng section says about its interfaces. Nothing in the
//! input panics: what cannot be read ends the iteration with a [`CaptureError`], and every frame before it has been given.

use std::io::{self, Read};

use pcap_parser::nom;
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{PcapError, PcapHeader};

/// Longest record that is believed. libpcap itself stops at 256 KiB for Ethernet; a longer one means a damaged file.
const MAX_RECORD: usize = 16 << 20;
/// How much is asked of the input at once.
const READ_SIZE: usize = 64 << 10;

/// Block types of pcapng (draft-ietf-opsawg-pcapng, section 4 and 11.1).
mod block {
    pub const SECTION: u32 = 0x0A0D_0D0A;
    pub const INTERFACE: u32 = 1;
    /// Obsolete predecessor of the enhanced packet block, still found in old files.
    pub const PACKET: u32 = 2;
    pub const SIMPLE_PACKET: u32 = 3;
    pub const ENHANCED_PACKET: u32 = 6;
    // No packets, but Wireshark numbers these blocks like packets, and numbers are compared with its own.
    pub const SYSTEMD_JOURNAL: u32 = 9;
    pub const CUSTOM: u32 = 0x0000_0BAD;
    pub const CUSTOM_NOT_COPIED: u32 = 0x4000_0BAD;
}

/// One record of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<'a> {
    /// 1-based number in the file, over all interfaces.
    pub number: u64,
    /// Nanoseconds since 1970; `None` where the file has no time (simple packet blocks).
    pub time_ns: Option<i128>,
    /// The interface: its index in the section, 0 where the format has only one.
    pub interface: u32,
    /// LINKTYPE value of the interface.
    pub link_type: u32,
    /// The bytes that were captured.
    pub data: &'a [u8],
    /// Bytes the frame had on the wire; more than `data` if the capture cut it short.
    pub original_len: usize,
}

/// Why reading a capture ended early.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The input could not be read.
    #[error("read: {0}")]
    Read(#[from] io::Error),
    /// The first bytes are neither format.
    #[error(
        "not a capture file: the first bytes are neither pcap nor pcapng (a compressed file must be unpacked first)"
    )]
    NotACapture,
    /// The file ends inside a record.
    #[error("the file ends inside record {0}, after {1} of its bytes; all before it was decoded")]
    CutShort(u64, usize),
    /// A record claims a length nobody writes.
    #[error("record {0} claims {1} bytes: the file is damaged from here on; all before it was decoded")]
    TooLong(u64, usize),
    /// A pcapng block whose inside contradicts its length.
    #[error("block {0} (type {1:#x}) is damaged: {2}; all before it was decoded")]
    BadBlock(u64, u32, &'static str),
}

/// Resolution and start of an interface's clock.
#[derive(Debug, Clone, Copy)]
struct Clock {
    units_per_s: u128,
    offset_s: i64,
}

impl Clock {
    const MICROSECONDS: Clock = Clock { units_per_s: 1_000_000, offset_s: 0 };

    fn ns(self, high: u32, low: u32) -> i128 {
        let units = u128::from(high) << 32 | u128::from(low);
        // units < 2^64 and 10^9 < 2^30, so the product cannot overflow 128 bits.
        (units * 1_000_000_000 / self.units_per_s) as i128 + i128::from(self.offset_s) * 1_000_000_000
    }
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link_type: u32,
    snap_len: u32,
    clock: Clock,
}

enum Format {
    Pcap { header: PcapHeader },
    PcapNg { big_endian: bool, interfaces: Vec<Interface> },
}

/// What a record says, without its bytes, which stay in the buffer.
struct Record {
    interface: u32,
    time_ns: Option<i128>,
    link_type: u32,
    data: std::ops::Range<usize>,
    original_len: usize,
}

/// A reader of capture files.
pub struct Capture<R> {
    input: R,
    /// Bytes read and not yet consumed are `buffer[start..]`.
    buffer: Vec<u8>,
    start: usize,
    format: Format,
    frames: u64,
    records: u64,
}

impl<R: Read> Capture<R> {
    /// Reads the file's header and tells the format by it.
    pub fn open(input: R) -> Result<Self, CaptureError> {
        let mut capture = Capture {
            input,
            buffer: Vec::new(),
            start: 0,
            format: Format::PcapNg { big_endian: false, interfaces: Vec::new() },
            frames: 0,
            records: 0,
        };
        if !capture.fill(4)? {
            return Err(CaptureError::NotACapture);
        }
        if capture.bytes()[..4] == block::SECTION.to_le_bytes() {
            return Ok(capture);
        }
        // A pcap magic is known before the whole header has come, so that a cut header is told from a foreign file.
        let known = !matches!(pcap_parser::parse_pcap_header(capture.bytes()), Err(nom::Err::Error(_)));
        if !known {
            return Err(CaptureError::NotACapture);
        }
        if !capture.fill(24)? {
            return Err(CaptureError::CutShort(0, capture.bytes().len()));
        }
        let header = match pcap_parser::parse_pcap_header(capture.bytes()) {
            Ok((_, header)) => header,
            Err(_) => return Err(CaptureError::NotACapture),
        };
        capture.start += header.size();
        capture.format = Format::Pcap { header };
        Ok(capture)
    }

    /// The next frame; `None` at the regular end of the file. After an error the file is at its end.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        let record = match self.format {
            Format::Pcap { .. } => self.next_pcap()?,
            Format::PcapNg { .. } => self.next_pcapng()?,
        };
        Ok(record.map(|r| Frame {
            number: self.frames,
            time_ns: r.time_ns,
            interface: r.interface,
            link_type: r.link_type,
            data: &self.buffer[r.data],
            original_len: r.original_len,
        }))
    }

    fn next_pcap(&mut self) -> Result<Option<Record>, CaptureError> {
        const HEADER: usize = 16;
        if !self.fill(1)? {
            return Ok(None);
        }
        self.records += 1;
        let Format::Pcap { header } = &self.format else { return Ok(None) };
        let header = header.clone();
        let parse = match (header.is_modified_format(), header.is_bigendian()) {
            (true, _) => pcap_parser::parse_pcap_frame_modified,
            (false, true) => pcap_parser::parse_pcap_frame_be,
            (false, false) => pcap_parser::parse_pcap_frame,
        };
        loop {
            let bytes = self.bytes();
            let missing = match parse(bytes) {
                Ok((rest, frame)) => {
                    let end = self.start + bytes.len() - rest.len();
                    let unit_ns = if header.is_nanosecond_precision() { 1 } else { 1_000 };
                    let record = Record {
                        interface: 0,
                        time_ns: Some(i128::from(frame.ts_sec) * 1_000_000_000 + i128::from(frame.ts_usec) * unit_ns),
                        // The upper bits tell the length of a frame check sequence, which the IP length cuts off anyway.
                        link_type: header.network.0 as u32 & 0x03FF_FFFF,
                        data: end - frame.data.len()..end,
                        original_len: (frame.origlen as usize).max(frame.data.len()),
                    };
                    self.start = end;
                    self.frames += 1;
                    return Ok(Some(record));
                }
                Err(nom::Err::Incomplete(nom::Needed::Size(n))) => n.get(),
                Err(nom::Err::Incomplete(nom::Needed::Unknown)) => 1,
                Err(_) => return Err(CaptureError::NotACapture),
            };
            let want = bytes.len().saturating_add(missing);
            if want > MAX_RECORD {
                return Err(self.end(CaptureError::TooLong(self.records, want - HEADER)));
            }
            if !self.fill(want)? {
                return Err(self.cut_short());
            }
        }
    }

    fn next_pcapng(&mut self) -> Result<Option<Record>, CaptureError> {
        while self.fill(1)? {
            self.records += 1;
            let (kind, len) = self.next_block()?;
            let at = self.start;
            self.start += len;
            let outcome = match kind {
                block::SECTION => self.section(at, len).map(|()| None),
                block::INTERFACE => self.interface(at, len).map(|()| None),
                block::ENHANCED_PACKET => self.enhanced_packet(at, len).map(Some),
                block::SIMPLE_PACKET => self.simple_packet(at, len).map(Some),
                block::PACKET => self.old_packet(at, len).map(Some),
                block::SYSTEMD_JOURNAL | block::CUSTOM | block::CUSTOM_NOT_COPIED => {
                    self.frames += 1;
                    Ok(None)
                }
                _ => Ok(None),
            };
            match outcome {
                Ok(None) => {}
                Ok(record) => {
                    self.frames += 1;
                    return Ok(record);
                }
                Err(what) => return Err(self.end(CaptureError::BadBlock(self.records, kind, what))),
            }
        }
        Ok(None)
    }

    /// Brings one whole block into the buffer; its type and its length with both length fields.
    fn next_block(&mut self) -> Result<(u32, usize), CaptureError> {
        if !self.fill(12)? {
            return Err(self.cut_short());
        }
        let word = |i: usize| [0, 1, 2, 3].map(|j| self.bytes()[i + j]);
        // The section header's type reads the same in both byte orders; its magic tells which one begins here.
        let is_section = word(0) == block::SECTION.to_le_bytes();
        let big_endian = match (&self.format, is_section) {
            (_, true) => word(8) == [0x1A, 0x2B, 0x3C, 0x4D],
            (Format::PcapNg { big_endian, .. }, false) => *big_endian,
            (Format::Pcap { .. }, false) => false,
        };
        let value = |i: usize| if big_endian { u32::from_be_bytes(word(i)) } else { u32::from_le_bytes(word(i)) };
        let (kind, len) = (value(0), value(4) as usize);
        // First, because no reader would look at the last digits of such a number.
        if len > MAX_RECORD {
            return Err(self.end(CaptureError::TooLong(self.records, len)));
        }
        if len < 12 || !len.is_multiple_of(4) {
            let what = "its length is not a multiple of 4 of at least 12";
            return Err(self.end(CaptureError::BadBlock(self.records, kind, what)));
        }
        if !self.fill(len)? {
            return Err(self.cut_short());
        }
        Ok((kind, len))
    }

    fn section(&mut self, at: usize, len: usize) -> Result<(), &'static str> {
        let (_, section) = pcap_parser::parse_sectionheaderblock(&self.buffer[at..at + len]).map_err(reason)?;
        if section.major_version != 1 {
            return Err("pcapng of a major version other than 1");
        }
        let big_endian = section.big_endian();
        self.format = Format::PcapNg { big_endian, interfaces: Vec::new() };
        Ok(())
    }

    fn interface(&mut self, at: usize, len: usize) -> Result<(), &'static str> {
        let Format::PcapNg { big_endian, interfaces } = &mut self.format else { return Ok(()) };
        let bytes = &self.buffer[at..at + len];
        let (_, description) = if *big_endian {
            pcap_parser::parse_interfacedescriptionblock_be(bytes)
        } else {
            pcap_parser::parse_interfacedescriptionblock_le(bytes)
        }
        .map_err(reason)?;
        let link_type = description.linktype.0 as u32 & 0xFFFF;
        let clock = clock(&description, *big_endian);
        interfaces.push(Interface { link_type, snap_len: description.snaplen, clock });
        Ok(())
    }

    fn enhanced_packet(&self, at: usize, len: usize) -> Result<Record, &'static str> {
        let bytes = &self.buffer[at..at + len];
        let (_, packet) = if self.big_endian() {
            pcap_parser::parse_enhancedpacketblock_be(bytes)
        } else {
            pcap_parser::parse_enhancedpacketblock_le(bytes)
        }
        .map_err(reason)?;
        let interface = self.interface_of(packet.if_id)?;
        let captured = packet.packet_data().len();
        Ok(Record {
            interface: packet.if_id,
            time_ns: Some(interface.clock.ns(packet.ts_high, packet.ts_low)),
            link_type: interface.link_type,
            data: at + 28..at + 28 + captured,
            original_len: (packet.origlen as usize).max(captured),
        })
    }

    fn simple_packet(&self, at: usize, len: usize) -> Result<Record, &'static str> {
        let bytes = &self.buffer[at..at + len];
        let (_, packet) = if self.big_endian() {
            pcap_parser::parse_simplepacketblock_be(bytes)
        } else {
            pcap_parser::parse_simplepacketblock_le(bytes)
        }
        .map_err(reason)?;
        let interface = self.interface_of(0)?;
        let mut captured = packet.packet_data().len();
        // The block tells no captured length: it is the original length or the interface's limit (section 4.4).
        if interface.snap_len != 0 {
            captured = captured.min(interface.snap_len as usize);
        }
        Ok(Record {
            interface: 0,
            time_ns: None,
            link_type: interface.link_type,
            data: at + 12..at + 12 + captured,
            original_len: packet.origlen as usize,
        })
    }

    /// The obsolete packet block: 16-bit interface and drop count, time, both lengths, data (appendix of the draft).
    fn old_packet(&self, at: usize, len: usize) -> Result<Record, &'static str> {
        const HEADER: usize = 28;
        if len < HEADER + 4 {
            return Err("shorter than its fixed fields");
        }
        let interface = [self.buffer[at + 8], self.buffer[at + 9]];
        let word = |i: usize| {
            let bytes = [0, 1, 2, 3].map(|j| self.buffer[at + i + j]);
            if self.big_endian() { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
        };
        let id = if self.big_endian() { u16::from_be_bytes(interface) } else { u16::from_le_bytes(interface) };
        let interface = self.interface_of(u32::from(id))?;
        let captured = word(20) as usize;
        if captured > len - HEADER - 4 {
            return Err("the packet is longer than the block");
        }
        Ok(Record {
            interface: u32::from(id),
            time_ns: Some(interface.clock.ns(word(12), word(16))),
            link_type: interface.link_type,
            data: at + HEADER..at + HEADER + captured,
            original_len: (word(24) as usize).max(captured),
        })
    }

    fn big_endian(&self) -> bool {
        matches!(self.format, Format::PcapNg { big_endian: true, .. })
    }

    fn interface_of(&self, id: u32) -> Result<Interface, &'static str> {
        match &self.format {
            Format::PcapNg { interfaces, .. } => interfaces.get(id as usize).copied(),
            Format::Pcap { .. } => None,
        }
        .ok_or("a packet of an interface that was not described")
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Reads until `want` unconsumed bytes are there; `false` if the input ends before.
    fn fill(&mut self, want: usize) -> Result<bool, CaptureError> {
        while self.bytes().len() < want {
            self.buffer.drain(..self.start);
            self.start = 0;
            let old = self.buffer.len();
            // Room for what may come now, not for what a record claims: a pipe that trickles would have it cleared each time.
            self.buffer.resize(old + READ_SIZE, 0);
            let read = loop {
                match self.input.read(&mut self.buffer[old..]) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    other => break other,
                }
            };
            self.buffer.truncate(old + *read.as_ref().unwrap_or(&0));
            if read? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn cut_short(&mut self) -> CaptureError {
        let there = self.bytes().len();
        self.end(CaptureError::CutShort(self.records, there))
    }

    /// Drops what is left, so that nothing is decoded behind a damaged record.
    fn end(&mut self, error: CaptureError) -> CaptureError {
        self.start = self.buffer.len();
        error
    }
}

/// The interface's clock from its options if_tsresol (9) and if_tsoffset (14); microseconds if they are absent or
/// tell more than 64 bits can count.
fn clock(description: &pcap_parser::InterfaceDescriptionBlock<'_>, big_endian: bool) -> Clock {
    let mut clock = Clock::MICROSECONDS;
    for option in &description.options {
        match (option.code.0, option.as_bytes()) {
            (9, Ok(&[exponent])) => {
                let power = u32::from(exponent & 0x7F);
                let units = if exponent & 0x80 == 0 { 10u64.checked_pow(power) } else { 2u64.checked_pow(power) };
                clock.units_per_s = units.map_or(1_000_000, u128::from);
            }
            (14, Ok(bytes)) => {
                if let Ok(bytes) = <[u8; 8]>::try_from(bytes) {
                    clock.offset_s = if big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
                }
            }
            _ => {}
        }
    }
    clock
}

/// The whole block is in the buffer, so "incomplete" means that an inner length points outside of it.
fn reason(error: nom::Err<PcapError<&[u8]>>) -> &'static str {
    match error {
        nom::Err::Incomplete(_) => "a length inside it points outside of it",
        nom::Err::Error(_) | nom::Err::Failure(_) => "its lengths contradict each other",
    }
}
