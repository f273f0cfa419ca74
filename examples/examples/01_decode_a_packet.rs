//! 1. What is in a RoCE v2 packet?
//!
//! A packet is an InfiniBand packet in UDP port 4791: IP, UDP, the base transport header (BTH), extension headers that depend on
//! the opcode, payload, and the invariant CRC that only routers' fields are left out of. This example writes one and takes it
//! apart again.

use xroce_examples::Outcome;
use xroce_wire::{BthRepr, Gid, Headers, IpRepr, Opcode, Operation, PKey, Packet, Psn, Qpn, RethRepr, Rkey};

fn main() -> Outcome {
    // An RDMA WRITE of eleven bytes: the RETH says where they go.
    let headers = Headers {
        ip: IpRepr {
            src: Gid::from_ipv4("192.0.2.1".parse()?),
            dst: Gid::from_ipv4("192.0.2.2".parse()?),
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
        },
        udp_src_port: 49_152,
        bth: BthRepr {
            opcode: Opcode::Rc(Operation::WriteOnly),
            solicited: false,
            migreq: true,
            pad: 1,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(0x11),
            ack_req: true,
            psn: Psn::new(100),
        },
        reth: Some(RethRepr { va: 0x7f00_0000_1000, rkey: Rkey(0x1234), len: 11 }),
        atomic_eth: None,
        aeth: None,
        atomic_ack: None,
        imm: None,
        ieth: None,
        deth: None,
    };
    let mut bytes = [0u8; 256];
    let len = headers.emit_packet(b"hello, rdma", &mut bytes);
    println!("{len} bytes from the IP header to the ICRC: {:02x?}", &bytes[..len]);

    // Checked once: lengths, opcode, pad. A received frame may lie in two pieces; here there is one.
    let packet = Packet::new_checked(&bytes[..len], &[])?;
    println!("{} to QP {} with PSN {}", packet.opcode().name(), packet.dest_qp(), packet.psn());
    println!("{:?}", packet.reth().ok_or("a WRITE has a RETH")?);
    println!("payload {:?}", String::from_utf8_lossy(packet.payload().0));
    println!("ICRC good: {}", packet.icrc_ok());

    // One bit less, and the CRC says so.
    bytes[len - 8] ^= 1;
    println!("after a flipped bit: {}", Packet::new_checked(&bytes[..len], &[])?.icrc_ok());
    Ok(())
}
