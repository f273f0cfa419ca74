//! The world of a scenario: two whole endpoints on a simulated wire, in virtual time, and who writes down what happens.
//!
//! In: a [`Play`]. Out: a [`Ladder`]. Nothing is left to chance: the same play gives the same ladder, byte for byte.
//!
//! The wire is a link of [`SimNet`] with a rate and a delay, and its queue is short: an end makes its next packet when the wire
//! has taken the last one, so that a ladder shows what a fast link would crowd into one instant.

mod end;
#[allow(unsafe_code, reason = "the bytes that a region is registered over")]
mod memory;
mod record;
#[cfg(test)]
pub(crate) mod stream;

use std::collections::VecDeque;

use xroce_port::Port;
use xroce_port::fault::{Action, Rule};
use xroce_port::sim::{LinkModel, NodeConfig, NodeId, SimNet};
use xroce_transport::{Instant, RxMeta, RxPacket};

use crate::ladder::{Effect, End, Fate, Ladder, Packet, What};
use crate::scenario::{Act, Damage, Play};
use end::{ETHERNET, Node, Remote};

/// The link: 1 Gbit/s, 10 µs each way.
const LINK_BPS: u64 = 1_000_000_000;
const LINK_DELAY_NS: u64 = 10_000;
/// Where the world ends, whatever is still to come.
const LIMIT_NS: u64 = 60_000_000_000;

/// A frame on its way: the packet it is, and whether it is the network's copy.
struct OnItsWay {
    packet: usize,
    copy: bool,
}

/// Runs a play from its first act until nothing is left to happen.
pub(crate) fn run(play: &Play) -> Ladder {
    let mut world = World::new(play);
    if play.setup.connected {
        world.connect();
    }
    world.go(play);
    world.ladder
}

struct World {
    net: SimNet,
    nodes: [Node; 2],
    ids: [NodeId; 2],
    remotes: [Remote; 2],
    on_their_way: [VecDeque<OnItsWay>; 2],
    /// Packets that each end has sent.
    sent: [u32; 2],
    ladder: Ladder,
}

fn base_link() -> LinkModel {
    LinkModel { rate_bps: Some(LINK_BPS), ..LinkModel::with_delay_ns(LINK_DELAY_NS) }
}

impl World {
    fn new(play: &Play) -> World {
        let net = SimNet::new(1);
        net.set_every_link(&base_link()).expect("the model makes sense");
        // Room for one request at a time, and for a response beside it.
        let config = NodeConfig { in_flight_max: 2, response_reserve: Some(1), ..NodeConfig::default() };
        let ports = [0, 1].map(|_| net.add_node(&config).expect("two nodes fit a network"));
        let ids = [ports[0].id(), ports[1].id()];
        let mut index = 0;
        let mut nodes = ports.map(|port| {
            index += 1;
            Node::new(index - 1, port, &play.setup)
        });
        if let Some((end, value)) = play.watch {
            nodes[end].watch(0, value);
        }
        let remotes = [nodes[1].remote(), nodes[0].remote()];
        let end = |node: &Node, name: &str| End {
            name: name.into(),
            address: node.address.to_ip().to_string(),
            qpn: Some(node.qpn()),
        };
        let ends = [end(&nodes[0], "A"), end(&nodes[1], "B")];
        let ladder = Ladder { ends, facts: play.setup.facts(), ..Ladder::default() };
        let on_their_way = [VecDeque::new(), VecDeque::new()];
        World { net, nodes, ids, remotes, on_their_way, sent: [0; 2], ladder }
    }

    /// Both ends to RTS, before the ladder begins.
    fn connect(&mut self) {
        use xroce_transport::qp::state::QpState::{Init, Rtr, Rts};
        for (node, remote) in self.nodes.iter_mut().zip(&self.remotes) {
            for state in [Init, Rtr, Rts] {
                node.modify(Instant(0), state, remote).expect("the steps of a connection");
            }
        }
    }

    fn now(&self) -> Instant {
        Instant(self.net.now())
    }

    fn go(&mut self, play: &Play) {
        let mut acts: VecDeque<_> = play.acts.iter().collect();
        loop {
            while let Some((_, end, act)) = acts.front().filter(|(at, ..)| *at <= self.now().0) {
                acts.pop_front();
                self.act(*end, *act);
            }
            self.transmit(play);
            self.arrivals(play);
            self.timers();
            self.transmit(play);
            let next = [
                acts.front().map(|(at, ..)| *at),
                self.net.next_event(),
                self.nodes[0].endpoint.poll_timeout().map(|at| at.0),
                self.nodes[1].endpoint.poll_timeout().map(|at| at.0),
            ];
            match next.into_iter().flatten().min() {
                Some(at) if at < LIMIT_NS => self.net.advance_to(at.max(self.now().0 + 1)),
                _ => return,
            }
        }
    }

    fn act(&mut self, end: usize, act: Act) {
        let before = self.before(end);
        let (now, remote) = (self.now(), self.remotes[end]);
        let node = &mut self.nodes[end];
        let (text, done) = match act {
            Act::Send { id, op, len } => {
                (format!("post_send {id}: {} {len} B", op.name()), node.post_send(now, (id, op, len), &remote))
            }
            Act::Recv { id, len } => (format!("post_recv {id}: {len} B"), node.post_recv(now, id, len)),
            Act::Modify(state) => (format!("modify_qp: {state}"), node.modify(now, state, &remote)),
        };
        let refused = done.err().map(Effect::Refused);
        self.record(end, What::Call(text), before, refused);
    }

    /// What has arrived, one packet after the other; each gets its answer out before the next is looked at.
    fn arrivals(&mut self, play: &Play) {
        for end in [0, 1] {
            while self.nodes[end].port.rx_burst(1) == 1 {
                let frame = self.nodes[end].port.rx_frame(0);
                let bytes = [frame.head, frame.tail].concat();
                self.nodes[end].port.rx_release();
                self.arrived(end, &bytes[ETHERNET..]);
                self.transmit(play);
            }
        }
    }

    fn arrived(&mut self, end: usize, packet: &[u8]) {
        let OnItsWay { packet: index, copy } = self.on_their_way[end].pop_front().expect("what arrives was sent");
        let before = self.before(end);
        let frame = RxPacket { head: packet, tail: &[] };
        let now = self.now();
        let outcome = self.nodes[end].endpoint.handle_packet(now, &RxMeta::default(), frame);
        let dropped = outcome.err().map(|reason| Effect::Dropped(crate::outcome::reason_words(reason)));
        self.record(end, What::Arrived { packet: index, copy }, before, dropped);
    }

    fn timers(&mut self) {
        for end in [0, 1] {
            let now = self.now();
            if self.nodes[end].endpoint.poll_timeout().is_some_and(|at| at <= now) {
                let before = self.before(end);
                self.nodes[end].endpoint.handle_timeout(now);
                if let Some(text) = self.expired(end, &before) {
                    self.record(end, What::Timer(text), before, None);
                }
            }
        }
    }

    /// Everything that the ends want to send and the wire takes now.
    fn transmit(&mut self, play: &Play) {
        for end in [0, 1] {
            loop {
                let before = self.before(end);
                let now = self.now();
                let Some((bytes, class, _)) = self.nodes[end].poll_transmit(now) else { break };
                let again = self.resent(end, &before);
                self.sent[end] += 1;
                let damage = play.damage(end, self.sent[end]);
                self.damage(end, damage);
                let remote = self.remotes[end];
                self.nodes[end].send(&bytes, class, &remote);
                self.damage(end, None);
                let packet = self.ladder.packets.len();
                let fate = fate_of(damage);
                let copies = match fate {
                    Fate::Lost => 0,
                    Fate::Duplicated => 2,
                    _ => 1,
                };
                self.on_their_way[1 - end].extend((0..copies).map(|n| OnItsWay { packet, copy: n > 0 }));
                self.ladder.packets.push(Packet { from: end, sent: bytes, fate, again, frame: None });
                self.record(end, What::Sent(packet), before, None);
            }
        }
    }

    /// Lets the network do this to the next frame of `end`, or stop.
    fn damage(&mut self, end: usize, damage: Option<Damage>) {
        let model = match damage {
            Some(Damage::Lose) => LinkModel { loss: 1.0, ..base_link() },
            Some(Damage::Duplicate) => LinkModel { duplicate: 1.0, ..base_link() },
            Some(Damage::FlipBit(_)) | None => base_link(),
        };
        self.net.set_link(self.ids[end], self.ids[1 - end], &model).expect("both nodes are there");
        let faults = self.nodes[end].port.faults();
        faults.clear();
        if let Some(Damage::FlipBit(bit)) = damage {
            // The port counts bits of the frame, from the least significant of each byte on.
            let in_frame = (ETHERNET + bit / 8) * 8 + (7 - bit % 8);
            faults.add(Rule::tx(Action::FlipBit(in_frame))).expect("a rule that makes sense");
        }
    }
}

fn fate_of(damage: Option<Damage>) -> Fate {
    match damage {
        None => Fate::Delivered,
        Some(Damage::Lose) => Fate::Lost,
        Some(Damage::Duplicate) => Fate::Duplicated,
        Some(Damage::FlipBit(bit)) => Fate::Corrupted(bit),
    }
}
