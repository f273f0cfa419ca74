//! Two devices in one process, joined by a wire in memory: what `--sim` runs on where there is no netdev to open.
//!
//! In: nothing but how the devices are driven. Out: the two devices, each knowing the other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use xroce::stat::StatServer;
use xroce::{Context, Device, DeviceBuilder, OpenError, Progress};
use xroce_port::Port;
use xroce_port::sim::{NodeError, PipeConfig, PipePort, loop_pair};

use crate::device::{DeviceError, Opened, RunArgs, offer};

/// Why there is no simulated wire.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The wire cannot be made.
    #[error("the wire in memory cannot be made: {0}")]
    Wire(#[from] NodeError),
    /// An end does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The end that is captured does not open.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The addresses of end `n`: one of each family, from the ranges for documentation.
fn addresses(n: u8) -> [IpAddr; 2] {
    [Ipv4Addr::new(192, 0, 2, n).into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n.into()).into()]
}

fn end(port: PipePort, me: u8, peer: u8, peer_mac: [u8; 6], progress: Progress) -> DeviceBuilder {
    let builder = Device::on_port(Box::new(port), &addresses(me)).progress(progress);
    addresses(peer).into_iter().fold(builder, |builder, address| builder.neighbour(address, peer_mac))
}

/// The server's end.
pub struct Server {
    /// For `xroce stat` and `xroce top`, which find both ends; dropped before the device.
    _offer: Option<StatServer>,
    /// The device.
    pub context: Context,
}

/// The client's end, which is the one that `args` capture, and the server's end.
pub fn pair(args: &RunArgs, progress: Progress) -> Result<(Opened, Server), SimError> {
    let (client, server) = loop_pair(&PipeConfig::default())?;
    let (client_mac, server_mac) = (client.capabilities().mac, server.capabilities().mac);
    let server = end(server, 2, 1, client_mac, progress).open()?;
    let client = args.open_as(end(client, 1, 2, server_mac, progress), "sim0")?;
    Ok((client, Server { _offer: offer(&server), context: server }))
}
