//! What a connected queue pair knows of the other end, and the headers that follow from it.

use xroce_wire::{IpRepr, Opcode, PKey, PathMtu, Qpn, Template, udp_src_port};

use crate::io::QpPath;
use crate::qp::state::QpType;

/// The other end of a connected queue pair. Set on the way to RTR.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) path: QpPath,
    pub(crate) mtu: PathMtu,
    /// Our own number.
    pub(crate) local: Qpn,
    /// The peer's number: the destination of our packets.
    pub(crate) qpn: Qpn,
    pub(crate) pkey: PKey,
    /// What the headers of all our packets have in common.
    pub(crate) template: Template,
}

impl Peer {
    pub(crate) fn new(path: QpPath, mtu: PathMtu, local: Qpn, remote: Qpn, pkey: PKey) -> Peer {
        let ip = IpRepr {
            src: path.src,
            dst: path.dst,
            traffic_class: path.traffic_class,
            flow_label: path.flow_label,
            hop_limit: path.hop_limit,
        };
        let template = Template::new(ip, udp_src_port(path.flow_label, local, remote), pkey, remote);
        Peer { path, mtu, local, qpn: remote, pkey, template }
    }
}

/// The opcode of `operation` on a queue pair of this type.
pub(crate) fn opcode(kind: QpType, operation: xroce_wire::Operation) -> Opcode {
    match kind {
        QpType::Rc => Opcode::Rc(operation),
        QpType::Uc => Opcode::Uc(operation),
    }
}
