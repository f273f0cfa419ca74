//! Who talks to whom in a capture.
//!
//! In: packets in the order of time. Out: conversations, each between two queue pairs. A packet names the queue pair that it is for
//! and not the one that it comes from, so that two flows are one conversation when the responses of one carry the PSNs of the
//! requests of the other.

use std::collections::HashMap;
use std::net::IpAddr;

use xroce_wire::{Operation, Packet, Qpn, dissect};

use super::Captured;

/// Packets of one sender to one queue pair.
struct Flow {
    /// Source and destination.
    path: (IpAddr, IpAddr),
    qp: Qpn,
    packets: Vec<usize>,
}

/// What two queue pairs say to each other, as far as it was captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pairing {
    /// Addresses; the first is that of the end which sent first.
    pub(super) ends: [IpAddr; 2],
    /// The queue pair of each end, if a packet was sent to it.
    pub(super) qps: [Option<Qpn>; 2],
    /// Indices into the capture, in order.
    pub(super) packets: Vec<usize>,
}

/// All conversations, those with the most packets first.
pub(super) fn conversations(packets: &[Captured]) -> Vec<Pairing> {
    let mut flows: Vec<Flow> = Vec::new();
    let mut known: HashMap<(IpAddr, IpAddr, Qpn), usize> = HashMap::new();
    let mut flow_of = Vec::with_capacity(packets.len());
    // What cannot be read far enough to know its queue pair goes with the flow before it on the same path.
    let mut last_on: HashMap<(IpAddr, IpAddr), usize> = HashMap::new();
    for (index, captured) in packets.iter().enumerate() {
        let path = (captured.src, captured.dst);
        let qp = dissect(&captured.bytes).packet.ok().map(|packet| packet.dest_qp());
        let flow = match (qp, last_on.get(&path)) {
            (None, Some(flow)) => *flow,
            (qp, _) => {
                let qp = qp.unwrap_or(Qpn::new(0));
                *known.entry((path.0, path.1, qp)).or_insert_with(|| {
                    flows.push(Flow { path, qp, packets: Vec::new() });
                    flows.len() - 1
                })
            }
        };
        last_on.insert(path, flow);
        flows[flow].packets.push(index);
        flow_of.push(flow);
    }
    let mut pairings = paired(&flows, &votes(packets, &flow_of));
    pairings.sort_by_key(|pairing| (std::cmp::Reverse(pairing.packets.len()), pairing.packets.first().copied()));
    pairings
}

/// For each two flows, how many responses of one carry the PSN of the newest request of the other that has it.
fn votes(packets: &[Captured], flow_of: &[usize]) -> HashMap<(usize, usize), usize> {
    let mut votes = HashMap::new();
    let mut asked: HashMap<(IpAddr, IpAddr, u32), usize> = HashMap::new();
    for (captured, flow) in packets.iter().zip(flow_of) {
        let Ok(packet) = dissect(&captured.bytes).packet else { continue };
        let psn = packet.psn().value();
        match packet.opcode().operation() {
            Some(operation) if operation.is_request() => {
                asked.insert((captured.src, captured.dst, psn), *flow);
            }
            Some(operation) if operation.is_response() => {
                if let Some(asker) = asked.get(&(captured.dst, captured.src, psn)) {
                    *votes.entry((*asker, *flow)).or_insert(0) += 1;
                }
            }
            _ => {}
        }
    }
    votes
}

/// Flows put together: first those that answer each other most, then those between the same addresses that nobody else claims.
fn paired(flows: &[Flow], votes: &HashMap<(usize, usize), usize>) -> Vec<Pairing> {
    let mut partner: Vec<Option<usize>> = vec![None; flows.len()];
    let mut pairs: Vec<((usize, usize), usize)> = Vec::new();
    for ((a, b), n) in votes {
        pairs.push(((*a.min(b), *a.max(b)), *n + votes.get(&(*b, *a)).copied().unwrap_or(0)));
    }
    pairs.sort_by_key(|(pair, n)| (std::cmp::Reverse(*n), *pair));
    let mut join = |a: usize, b: usize| {
        if partner[a].is_none() && partner[b].is_none() && a != b {
            (partner[a], partner[b]) = (Some(b), Some(a));
        }
    };
    for ((a, b), _) in pairs {
        join(a, b);
    }
    let lonely: Vec<usize> = (0..flows.len()).filter(|flow| partner[*flow].is_none()).collect();
    let on = |path: (IpAddr, IpAddr)| lonely.iter().filter(move |flow| flows[**flow].path == path);
    for flow in &lonely {
        let (path, back) = (flows[*flow].path, (flows[*flow].path.1, flows[*flow].path.0));
        if on(path).count() == 1 && on(back).count() == 1 && path != back {
            partner[*flow] = on(back).next().copied();
        }
    }
    let mut pairings = Vec::new();
    for (a, flow) in flows.iter().enumerate() {
        match partner[a] {
            // The flow that began first speaks for both.
            Some(b) if b < a => {}
            other => {
                let back = other.map(|b| &flows[b]);
                let mut packets: Vec<usize> =
                    flow.packets.iter().chain(back.into_iter().flat_map(|f| &f.packets)).copied().collect();
                packets.sort_unstable();
                pairings.push(Pairing { ends: flow.path.into(), qps: [back.map(|f| f.qp), Some(flow.qp)], packets });
            }
        }
    }
    pairings
}

/// What tells a request packet of RC from all others, so that one which comes again is known. A READ request that asks for
/// the rest has another PSN, and is new in that sense.
pub(crate) fn request_key(bytes: &[u8]) -> Option<(u32, u32, Operation)> {
    let packet = Packet::new_checked(bytes, &[]).ok()?;
    match packet.opcode() {
        xroce_wire::Opcode::Rc(operation) if operation.is_request() => {
            Some((packet.dest_qp().value(), packet.psn().value(), operation))
        }
        _ => None,
    }
}
