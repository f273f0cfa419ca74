//! 2. Which devices are there, and what can they do?
//!
//! Every Ethernet interface of this network namespace can be opened by its name. Its addresses are its GIDs.

use xroce::Device;
use xroce_examples::{Outcome, two_devices};

fn main() -> Outcome {
    let names: Vec<String> = Device::list()?.iter().map(|device| device.name().to_owned()).collect();
    println!("interfaces here: {}", names.join(", "));

    // Without `--device` this is a device on a wire in memory.
    let (device, _other) = two_devices()?;
    let attr = device.query_device();
    println!("opened {}: {} QPs, {} regions, AF_XDP: {:?}", attr.name, attr.max_qp, attr.max_mr, attr.xdp);

    let port = device.query_port();
    let mtu = port.active_mtu.map_or(0, |mtu| mtu.bytes());
    println!("port {:?}, path MTU up to {mtu} bytes of payload a packet", port.state);
    for entry in device.gid_table() {
        println!("  GID {}: {} ({})", entry.index, entry.gid, entry.address);
    }
    Ok(())
}
