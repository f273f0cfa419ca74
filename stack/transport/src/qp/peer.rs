//! What a connected queue pair knows of the other end, and the headers that follow from it.

use xroce_wire::{BthRepr, Headers, IpRepr, Opcode, PKey, PathMtu, Psn, Qpn, udp_src_port};

use crate::io::QpPath;
use crate::qp::state::QpType;

/// The other end of a connected queue pair. Set on the way to RTR.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) path: QpPath,
    pub(crate) mtu: PathMtu,
    /// Our own number.
    pub(crate) local: Qpn,
    /// The peer's number: the destination of our packets.
    pub(crate) qpn: Qpn,
    pub(crate) pkey: PKey,
    udp_src_port: u16,
}

impl Peer {
    pub(crate) fn new(path: QpPath, mtu: PathMtu, local: Qpn, remote: Qpn, pkey: PKey) -> Peer {
        Peer { path, mtu, local, qpn: remote, pkey, udp_src_port: udp_src_port(path.flow_label, local, remote) }
    }

    /// Headers of a packet to the peer: no extension header, AckReq and SE clear, M as hardware sends it.
    // rule: tx.headers, rc.resp.ack.fields
    pub(crate) fn headers(&self, opcode: Opcode, psn: Psn) -> Headers {
        Headers {
            ip: IpRepr {
                src: self.path.src,
                dst: self.path.dst,
                traffic_class: self.path.traffic_class,
                flow_label: self.path.flow_label,
                hop_limit: self.path.hop_limit,
            },
            udp_src_port: self.udp_src_port,
            bth: BthRepr {
                opcode,
                solicited: false,
                migreq: true,
                pad: 0,
                pkey: self.pkey,
                fecn: false,
                becn: false,
                dest_qp: self.qpn,
                ack_req: false,
                psn,
            },
            reth: None,
            atomic_eth: None,
            aeth: None,
            atomic_ack: None,
            imm: None,
            ieth: None,
            deth: None,
        }
    }
}

/// The opcode of `operation` on a queue pair of this type.
pub(crate) fn opcode(kind: QpType, operation: xroce_wire::Operation) -> Opcode {
    match kind {
        QpType::Rc => Opcode::Rc(operation),
        QpType::Uc => Opcode::Uc(operation),
    }
}
