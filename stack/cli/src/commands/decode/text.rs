//! `decode` for people: verdicts enter, aligned lines and a summary at the end leave.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::IpAddr;

use xroce_wire::WireError;

use super::Tally;
use super::capture::Frame;
use super::packet::{Decoded, Ends};
use xroce_lab::describe::{self, Path};

/// Characters of the longest dotted IPv4 address.
const IPV4_WIDTH: usize = 15;

/// Writes the lines and remembers what alignment and summary need.
#[derive(Default)]
pub struct Text {
    address_width: usize,
    first_ns: Option<i128>,
    opcodes: BTreeMap<&'static str, u64>,
}

impl Text {
    /// Writes the line of a packet.
    pub fn packet(&mut self, out: &mut impl Write, frame: &Frame<'_>, ends: &Ends, packet: &Decoded) -> io::Result<()> {
        self.begin(out, frame, ends)?;
        let Some(headers) = &packet.headers else {
            return writeln!(out, "cut off by the capture before the end of the BTH");
        };
        *self.opcodes.entry(headers.bth.opcode.name()).or_default() += 1;
        let line = describe::Packet { headers, payload_len: packet.payload_len, icrc: packet.icrc_ok.into() };
        write!(out, "{line}")?;
        if packet.icrc_ok.is_none() {
            write!(out, "  (cut off by the capture)")?;
        }
        if packet.bad_ip_checksum {
            write!(out, "  (IPv4 header checksum is wrong)")?;
        }
        writeln!(out)
    }

    /// Writes the line of a malformed packet.
    pub fn malformed(
        &mut self,
        out: &mut impl Write,
        frame: &Frame<'_>,
        ends: &Ends,
        error: &WireError,
    ) -> io::Result<()> {
        self.begin(out, frame, ends)?;
        writeln!(out, "MALFORMED: {error}")
    }

    /// Writes what the file held in all.
    pub fn summary(&self, out: &mut impl Write, tally: &Tally) -> io::Result<()> {
        if tally.packets + tally.malformed > 0 {
            writeln!(out)?;
        }
        for (name, count) in &self.opcodes {
            writeln!(out, "{count:>7}  {name}")?;
        }
        writeln!(
            out,
            "{} frames: {} RoCE v2 packets (ICRC {} good, {} bad, {} cut short), {} malformed, {} other frames passed over",
            tally.frames, tally.packets, tally.good, tally.bad, tally.cut, tally.malformed, tally.other
        )
    }

    fn begin(&mut self, out: &mut impl Write, frame: &Frame<'_>, ends: &Ends) -> io::Result<()> {
        let first_line = self.address_width == 0;
        let width = |address: IpAddr| address.to_string().len();
        self.address_width = self.address_width.max(IPV4_WIDTH).max(width(ends.src)).max(width(ends.dst));
        if first_line {
            let addresses = format!("{:>w$} → {:<w$}", "source", "destination", w = self.address_width);
            writeln!(out, "{:>7}  {:>12}  {addresses}  {}", "frame", "time", describe::heading())?;
        }
        let path = Path { src: ends.src, dst: ends.dst, width: self.address_width };
        write!(out, "{:>7}  {:>12}  {path}  ", frame.number, self.time(frame.time_ns))
    }

    /// Seconds since the first packet that has a time.
    fn time(&mut self, time_ns: Option<i128>) -> String {
        let Some(now) = time_ns else { return "-".into() };
        let since = now - *self.first_ns.get_or_insert(now);
        let sign = if since < 0 { "-" } else { "" };
        let micros = since.unsigned_abs() / 1_000;
        format!("{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    }
}
