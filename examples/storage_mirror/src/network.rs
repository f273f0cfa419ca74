//! Where the nodes stand: in this process on a network in memory, or each in a namespace of its own behind a bridge.
//!
//! In: how many nodes. Out: devices, or namespaces that go when the value goes.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use xroce::port::fault::{Action, Fault, Rule};
use xroce::port::sim::{NodeConfig, SimNet};
use xroce::{Context, Device, DeviceBuilder, Port};

use crate::Failure;

/// Address of a node: the range for documentation.
pub fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, node as u8 + 1)
}

/// The netdev of each node in its namespace.
pub const NETDEV: &str = "xr0";

/// MTU that carries path MTU 4096.
const MTU: u32 = 4200;

/// Puts loss in front of a device's port: each frame that leaves is lost with probability `loss`.
pub fn lossy(device: DeviceBuilder, loss: f64, seed: u64) -> Result<DeviceBuilder, Failure> {
    if loss == 0.0 {
        return Ok(device);
    }
    if !(0.0..=1.0).contains(&loss) {
        return Err(format!("a loss of {loss} is no probability").into());
    }
    Ok(device.wrap(move |port| {
        let fault = Fault::new(port, seed);
        // The probability was checked above, and no other part of the rule can be wrong.
        let _ = fault.faults().add(Rule::tx(Action::Drop).chance(loss).named("loss"));
        Box::new(fault)
    }))
}

/// Devices of `nodes` nodes on a network in memory.
pub fn in_memory(nodes: u32, loss: f64, seed: u64) -> Result<Vec<Context>, Failure> {
    let net = SimNet::real_time(seed);
    let config = NodeConfig { mtu: MTU, ..NodeConfig::default() };
    let ports = (0..nodes).map(|_| net.add_node(&config)).collect::<Result<Vec<_>, _>>()?;
    let macs: Vec<[u8; 6]> = ports.iter().map(|port| port.capabilities().mac).collect();
    ports
        .into_iter()
        .enumerate()
        .map(|(me, port)| {
            let device = Device::on_port(Box::new(port), &[IpAddr::V4(address(me as u32))]);
            let device = (0..nodes)
                .filter(|&other| other != me as u32)
                .fold(device, |device, other| device.neighbour(address(other).into(), macs[other as usize]));
            Ok(lossy(device, loss, seed + me as u64)?.open()?)
        })
        .collect()
}

/// Namespaces of the nodes, and one with the bridge that joins them.
pub struct Namespaces {
    names: Vec<String>,
    hub: String,
    undertaker: Child,
}

impl Namespaces {
    /// Makes them; needs root.
    pub fn new(nodes: u32) -> Result<Namespaces, Failure> {
        let id = std::process::id();
        let hub = format!("xroce-mirror-{id}-hub");
        let names: Vec<String> = (0..nodes).map(|node| format!("xroce-mirror-{id}-{node}")).collect();
        let undertaker = undertaker(names.iter().chain([&hub])).map_err(|e| format!("sh: {e}"))?;
        let made = Namespaces { names, hub, undertaker };
        ip(&["netns", "add", &made.hub])?;
        ip(&["-n", &made.hub, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &made.hub, "link", "set", "br0", "mtu", &MTU.to_string(), "up"])?;
        for (node, name) in made.names.iter().enumerate() {
            let port = format!("p{node}");
            ip(&["netns", "add", name])?;
            #[rustfmt::skip]
            ip(&["-n", name, "link", "add", NETDEV, "mtu", &MTU.to_string(), "type", "veth",
                 "peer", "name", &port, "mtu", &MTU.to_string(), "netns", &made.hub])?;
            ip(&["-n", &made.hub, "link", "set", &port, "master", "br0", "up"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", NETDEV, "up"])?;
            ip(&["-n", name, "address", "add", &format!("{}/24", address(node as u32)), "dev", NETDEV])?;
        }
        Ok(made)
    }

    /// Name of a node's namespace.
    pub fn name(&self, node: u32) -> &str {
        &self.names[node as usize]
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // Its input ends with that, which it waits for.
        let _ = self.undertaker.wait();
    }
}

/// A process that removes these namespaces as soon as we let go of its input: when they are dropped, and when this process ends in
/// any other way. A signal runs no destructor.
fn undertaker<'a>(names: impl Iterator<Item = &'a String>) -> std::io::Result<Child> {
    // Those that were never made cannot be removed, and there is nobody to tell.
    let remove = r#"read _; for name; do ip netns del "$name"; done"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", remove, "sh"]).args(names).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C is for all of our process group.
    shell.process_group(0).spawn()
}

fn ip(args: &[&str]) -> Result<(), Failure> {
    let output = Command::new("ip").args(args).output().map_err(|e| format!("ip: {e}"))?;
    if !output.status.success() {
        return Err(format!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(())
}
