//! `xroce devinfo [-d NETDEV] [--json]`: what a device is and can do, once it is open.
//!
//! A netdev enters; its port state, MTUs, GIDs, AF_XDP mode and limits leave.

use std::io::{self, Write};

use serde::Serialize;
use xroce::{Context, PortState, Progress};

use super::Outcome;
use crate::device::{DeviceArgs, DeviceError};
use crate::xdp::Xdp;

/// Version of the JSON object; grows when a field changes its meaning or goes away.
const JSON_VERSION: u32 = 1;

/// Tell what a device is: port state, MTUs, GIDs, AF_XDP mode, limits.
///
/// Opens the netdev as the other commands do, so that what is shown is what they get.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    device: DeviceArgs,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Why there is nothing to tell.
#[derive(Debug, thiserror::Error)]
pub enum DevinfoError {
    /// No device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The output cannot be written.
    #[error("output: {0}")]
    Write(#[from] io::Error),
}

#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    device: String,
    port_state: &'static str,
    /// Bytes of the netdev's largest IP packet.
    mtu: u32,
    /// Bytes of payload in a packet; null when not even 256 fit.
    active_mtu: Option<usize>,
    gids: Vec<Gid>,
    xdp: Option<Xdp>,
    limits: Limits,
}

#[derive(Debug, Serialize)]
struct Gid {
    index: u8,
    gid: String,
}

#[derive(Debug, Serialize)]
struct Limits {
    max_mtu: usize,
    max_msg_sz: u64,
    max_mr_size: u64,
    max_qp: u32,
    max_qp_wr: u32,
    max_sge: u32,
    max_inline_data: u32,
    max_cqe: u32,
    max_mr: u32,
    max_pd: u32,
    max_qp_rd_atom: u8,
    max_qp_init_rd_atom: u8,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome, DevinfoError> {
    let opened = args.device.open(Progress::Event)?;
    let report = report(&opened.context);
    let mut out = io::stdout().lock();
    let written = if args.json { json(&mut out, &report) } else { text(&mut out, &report) };
    match written {
        // Who reads our output has seen enough.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(e.into()),
        _ => {}
    }
    opened.close()?;
    Ok(Outcome::Done)
}

fn report(context: &Context) -> Report {
    let (device, port) = (context.query_device(), context.query_port());
    Report {
        version: JSON_VERSION,
        device: device.name.clone(),
        port_state: match port.state {
            PortState::Active => "PORT_ACTIVE",
            PortState::Down => "PORT_DOWN",
        },
        mtu: port.netdev_mtu,
        active_mtu: port.active_mtu.map(|mtu| mtu.bytes()),
        gids: context.gid_table().iter().map(|e| Gid { index: e.index, gid: e.gid.to_string() }).collect(),
        xdp: Xdp::of(context),
        limits: Limits {
            max_mtu: port.max_mtu.bytes(),
            max_msg_sz: device.max_msg_sz,
            max_mr_size: device.max_mr_size,
            max_qp: device.max_qp,
            max_qp_wr: device.max_qp_wr,
            max_sge: device.max_sge,
            max_inline_data: device.max_inline_data,
            max_cqe: device.max_cqe,
            max_mr: device.max_mr,
            max_pd: device.max_pd,
            max_qp_rd_atom: device.max_qp_rd_atom,
            max_qp_init_rd_atom: device.max_qp_init_rd_atom,
        },
    }
}

fn json(out: &mut impl Write, report: &Report) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

fn text(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let Report { device, port_state, mtu, active_mtu, limits, .. } = report;
    writeln!(out, "{device}")?;
    writeln!(out, "  state       {port_state}")?;
    let active = active_mtu.map_or_else(|| "none fits: raise the MTU to at least 352".to_owned(), |m| m.to_string());
    writeln!(out, "  MTU         {mtu} (active path MTU {active}, largest there is {})", limits.max_mtu)?;
    if let Some(xdp) = &report.xdp {
        writeln!(out, "  AF_XDP      {xdp}")?;
        if let Some(why) = &xdp.generic_because {
            writeln!(out, "              generic because {why}")?;
        }
    }
    for (i, gid) in report.gids.iter().enumerate() {
        let label = if i == 0 { "GIDs" } else { "" };
        writeln!(out, "  {label:<10}  {:>3}  {}", gid.index, gid.gid)?;
    }
    if report.gids.is_empty() {
        writeln!(out, "  GIDs        none: give it an address (`ip addr add 192.0.2.1/24 dev {device}`)")?;
    }
    let Limits { max_qp, max_qp_wr, max_cqe, max_sge, max_inline_data, max_mr, max_msg_sz, .. } = limits;
    writeln!(out, "  limits      {max_qp} QPs of {max_qp_wr} WRs, {max_cqe} CQEs, {max_sge} SGEs, {max_mr} MRs")?;
    writeln!(out, "              messages up to {max_msg_sz} B, inline up to {max_inline_data} B")
}

#[cfg(test)]
mod tests {
    use super::*;
    use xroce::Device;
    use xroce_port::sim::{PipeConfig, loop_pair};

    #[test]
    fn a_device_without_an_address_is_told_what_to_do() {
        for (addresses, told) in [(&[][..], true), (&["192.0.2.1".parse().unwrap()][..], false)] {
            let (port, _other_end) = loop_pair(&PipeConfig::default()).unwrap();
            let context = Device::on_port(Box::new(port), addresses).open().unwrap();
            let mut out = Vec::new();
            text(&mut out, &report(&context)).unwrap();
            let out = String::from_utf8(out).unwrap();
            assert_eq!(out.contains("none: give it an address (`ip addr add"), told, "{out}");
        }
    }
}
