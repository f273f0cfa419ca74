//! A ladder of packets that somebody captured.
//!
//! In: packets with their times and addresses. Out: the ladder of the conversation with the most of them. A capture sees a packet
//! once, so it leaves and arrives in the same instant; what the queue pairs were in the middle of is not known.

use std::collections::HashSet;
use std::net::IpAddr;

use xroce_wire::{Opcode, Operation, Packet as Wire};

use crate::ladder::{End, Fate, Ladder, Packet, Step, What};

/// A RoCE v2 packet of a capture.
#[derive(Debug, Clone)]
pub struct Captured {
    /// When, in nanoseconds since an arbitrary start.
    pub time_ns: i128,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// The packet from the IP header on, as far as it was captured; bytes behind its end do no harm.
    pub bytes: Vec<u8>,
}

/// Packets of one conversation that a ladder shows at most: a page of more is of no use to anybody.
const SHOWN_MAX: usize = 2_000;

/// The ladder of the two addresses between which most packets went; `None` without packets.
pub fn ladder(name: &str, packets: Vec<Captured>) -> Option<Ladder> {
    let all = packets.len();
    let pair = busiest(&packets)?;
    let own: Vec<Captured> = packets.into_iter().filter(|p| ends_of(p) == ends_of_pair(pair)).collect();
    let mut about =
        vec![format!("{} RoCE v2 packets between {} and {}, as a capture saw them.", own.len(), pair.0, pair.1)];
    if own.len() < all {
        about.push(format!("{} packets between other addresses are left out.", all - own.len()));
    }
    if own.len() > SHOWN_MAX {
        about.push(format!("Only the first {SHOWN_MAX} are shown."));
    }
    let start = own.first()?.time_ns;
    let mut ladder = Ladder {
        name: name.into(),
        title: name.into(),
        about,
        ends: [end("A", pair.0), end("B", pair.1)],
        ..Ladder::default()
    };
    let mut seen = HashSet::new();
    for (index, captured) in own.into_iter().take(SHOWN_MAX).enumerate() {
        let from = usize::from(captured.src != pair.0);
        let again = request_key(&captured.bytes).is_some_and(|key| !seen.insert((from, key)));
        let at_ns = u64::try_from(captured.time_ns - start).unwrap_or(0);
        ladder.packets.push(Packet { from, sent: captured.bytes, fate: Fate::Captured, again });
        let what = What::Captured(index);
        ladder.steps.push(Step { at_ns, end: from, what, effects: Vec::new(), note: None, states: [None, None] });
    }
    Some(ladder)
}

fn end(name: &str, address: IpAddr) -> End {
    End { name: name.into(), address: address.to_string(), qpn: None }
}

fn ends_of(packet: &Captured) -> (IpAddr, IpAddr) {
    ends_of_pair((packet.src, packet.dst))
}

fn ends_of_pair((a, b): (IpAddr, IpAddr)) -> (IpAddr, IpAddr) {
    if a <= b { (a, b) } else { (b, a) }
}

/// The ends of most packets; the first is the one that sent first.
fn busiest(packets: &[Captured]) -> Option<(IpAddr, IpAddr)> {
    let mut counts: Vec<Conversation> = Vec::new();
    for packet in packets {
        let ends = ends_of(packet);
        match counts.iter_mut().find(|c| c.ends == ends) {
            Some(conversation) => conversation.packets += 1,
            None => counts.push(Conversation { ends, began: (packet.src, packet.dst), packets: 1 }),
        }
    }
    // Of equals the first to appear.
    counts.into_iter().rev().max_by_key(|c| c.packets).map(|c| c.began)
}

/// Two addresses, and how much they have to say to each other.
struct Conversation {
    /// The smaller address first.
    ends: (IpAddr, IpAddr),
    /// The sender of the first packet first.
    began: (IpAddr, IpAddr),
    packets: usize,
}

/// What tells a request packet of RC from all others, so that one which comes again is known. A READ request that asks for
/// the rest has another PSN, and is new in that sense.
pub(crate) fn request_key(bytes: &[u8]) -> Option<(u32, u32, Operation)> {
    let packet = Wire::new_checked(bytes, &[]).ok()?;
    match packet.opcode() {
        Opcode::Rc(operation) if operation.is_request() => {
            Some((packet.dest_qp().value(), packet.psn().value(), operation))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;

    /// The packets of a scenario as a capture at A would see them, between `a` and the others of a busy link.
    fn packets() -> Vec<Captured> {
        let ladder = Scenario::find("go-back-n").expect("a scenario").run();
        let addresses = ladder.ends.each_ref().map(|end| end.address.parse::<IpAddr>().expect("an address"));
        let sent = |(i, p): (usize, &Packet)| Captured {
            time_ns: 1_000 + i as i128 * 500,
            src: addresses[p.from],
            dst: addresses[1 - p.from],
            bytes: p.sent.clone(),
        };
        ladder.packets.iter().enumerate().map(sent).collect()
    }

    #[test]
    fn a_capture_is_shown_from_the_end_that_sent_first() {
        let packets = packets();
        let ladder = ladder("x", packets.clone()).expect("packets");
        assert_eq!((ladder.packets.len(), ladder.steps.len()), (packets.len(), packets.len()));
        assert_eq!(ladder.ends.each_ref().map(|e| &*e.address), ["192.0.2.1", "192.0.2.2"]);
        let again: Vec<usize> = (0..packets.len()).filter(|i| ladder.packets[*i].again).collect();
        assert_eq!(again, [8, 9, 10, 11], "the four that go-back-N sends again");
        assert_eq!(ladder.steps[2].at_ns, 1_000);
        let page = crate::page(&ladder).expect("a page");
        assert!(page.contains("captured"));
        assert!(crate::text(&ladder).contains("NAK sequence error PSN 103"));
    }

    #[test]
    fn the_busiest_conversation_is_shown_and_the_rest_is_counted() {
        let mut packets = packets();
        let mut other = packets[0].clone();
        (other.src, other.dst) = ([198, 51, 100, 1].into(), [198, 51, 100, 2].into());
        packets.insert(0, other);
        let ladder = ladder("x", packets).expect("packets");
        assert_eq!(ladder.packets.len(), 13);
        assert!(ladder.about[1].starts_with("1 packets between other"), "{:?}", ladder.about);
        assert!(super::ladder("x", Vec::new()).is_none());
    }
}
