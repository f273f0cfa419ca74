//! 7. An unreliable connection on a lossy wire.
//!
//! UC has no acknowledgements: a message with a lost packet is gone as a whole, and never half delivered. The same over RC, for
//! comparison, arrives complete. Here the wire is a simulated network that loses one frame in twenty, always the same ones.

use std::net::IpAddr;
use std::time::Duration;
use xroce::port::sim::{LinkModel, NodeConfig, SimNet};
use xroce::{Device, Port, QpType, RecvWr, SendFlags, SendOp, SendWr, WrId};
use xroce_examples::{End, Outcome, connect};

const MESSAGES: u64 = 100;
const BYTES: usize = 3000; // three packets at path MTU 1024

fn main() -> Outcome {
    for kind in [QpType::Uc, QpType::Rc] {
        let net = SimNet::real_time(7);
        let (left, right) = (net.add_node(&NodeConfig::default())?, net.add_node(&NodeConfig::default())?);
        net.set_links(left.id(), right.id(), &LinkModel::with_loss(0.05))?;
        let (left_mac, right_mac) = (left.capabilities().mac, right.capabilities().mac);
        let (left_ip, right_ip): (IpAddr, IpAddr) = ("192.0.2.1".parse()?, "192.0.2.2".parse()?);
        let left = Device::on_port(Box::new(left), &[left_ip]).neighbour(right_ip, right_mac).open()?;
        let right = Device::on_port(Box::new(right), &[right_ip]).neighbour(left_ip, left_mac).open()?;
        let (alice, bob) = (End::new(&left, kind, BYTES)?, End::new(&right, kind, BYTES)?);
        connect(&alice, &bob)?;

        for _ in 0..MESSAGES {
            bob.qp.post_recv(&RecvWr { wr_id: WrId(0), sges: &[bob.mr.sge(0..BYTES)?] })?;
        }
        for id in 0..MESSAGES {
            let sges = [alice.mr.sge(0..BYTES)?];
            alice.qp.post_send(&SendWr {
                wr_id: WrId(id),
                op: SendOp::Send,
                flags: SendFlags::SIGNALED,
                sges: &sges,
                inline: &[],
            })?;
            // For UC this means "has left", for RC "has arrived".
            alice.wait()?;
        }
        let mut arrived = 0;
        while bob.cq.poll_timeout(Duration::from_millis(100))?.is_some() {
            arrived += 1;
        }
        println!("{kind}: {arrived} of {MESSAGES} messages arrived");
    }
    Ok(())
}
