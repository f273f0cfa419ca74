//! The UDP source port of a flow, which is what ECMP in the network and RSS in the peer spread packets by.

use crate::numbers::Qpn;

/// The lowest source port: RoCE v2 keeps to the dynamic range 0xC000–0xFFFF (IBTA annex A17 recommends it).
pub const SRC_PORT_BASE: u16 = 0xC000;

/// The UDP source port of a connected QP, as Linux derives it (`rdma_flow_label_to_udp_sport` and
/// `rdma_calc_flow_label` in include/rdma/ib_verbs.h).
///
/// The 20-bit `flow_label` of the address vector decides; if it is 0, one is made from both QPNs. That is symmetric: both
/// ends of a connection get the same port. Always in 0xC000 to 0xFFFF.
// rule: wire.source-port
pub const fn udp_src_port(flow_label: u32, local: Qpn, remote: Qpn) -> u16 {
    let label = match flow_label & 0xF_FFFF {
        0 => flow_label_of(local, remote),
        label => label,
    };
    SRC_PORT_BASE | ((label & 0x3FFF) ^ (label >> 14)) as u16
}

/// The flow label Linux gives a connection that chose none: 20 bits folded from the product of the two QPNs.
pub const fn flow_label_of(local: Qpn, remote: Qpn) -> u32 {
    let mut v = local.value() as u64 * remote.value() as u64;
    v ^= v >> 20;
    v ^= v >> 40;
    (v & 0xF_FFFF) as u32
}
