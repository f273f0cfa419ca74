//! A stream of WRITEs on a link that lets packets overtake each other, or loses some: what a capture of it has.
//!
//! In: a seed, chances, the capture point. Out: packets as they pass that point, and how many were lost where. For tests of captures.

use std::collections::VecDeque;

use xroce_port::sim::{NodeConfig, Rng, SimNet};
use xroce_transport::qp::state::QpState;
use xroce_transport::{Instant, RxMeta, RxPacket};

use super::end::Node;
use crate::scenario::{Op, Setup};

/// What happens to the requests of A, in parts of one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    /// Sent behind one to four later ones, before the capture point.
    pub(crate) overtaken: f64,
    /// Lost between A and the capture point.
    pub(crate) lost_before: f64,
    /// Lost between the capture point and B.
    pub(crate) lost_behind: f64,
}

/// A packet at the capture point: when, from which end, from the IP header on.
pub(crate) type Passed = (u64, usize, Vec<u8>);

/// What a capture has, and what it can only guess.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) passed: Vec<Passed>,
    pub(crate) lost_before: usize,
    pub(crate) lost_behind: usize,
}

/// Between two packets of an end.
const EVERY_NS: u64 = 1_000;
/// Requests that A has posted at a time, and bytes of each.
const POSTED: u64 = 4;
const BYTES: u32 = 10_000;

/// `writes` WRITEs of A. The capture point is so many nanoseconds from A, and from B.
pub(crate) fn writes(seed: u64, writes: u64, weather: Weather, [near, far]: [u64; 2]) -> Stream {
    let net = SimNet::new(1);
    let ports = [0, 1].map(|_| net.add_node(&NodeConfig::default()).expect("two nodes fit a network"));
    let setup = Setup { retry_cnt: 7, timeout: 10, ..Setup::default() };
    let mut index = 0;
    let mut nodes = ports.map(|port| {
        index += 1;
        Node::new(index - 1, port, &setup)
    });
    let remotes = [nodes[1].remote(), nodes[0].remote()];
    for (node, remote) in nodes.iter_mut().zip(&remotes) {
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            node.modify(Instant(0), state, remote).expect("the steps of a connection");
        }
    }
    let mut rng = Rng::new(seed);
    let mut stream = Stream::default();
    let mut on_their_way: [VecDeque<(u64, Vec<u8>)>; 2] = [VecDeque::new(), VecDeque::new()];
    let mut held: Vec<(u64, Vec<u8>)> = Vec::new();
    let (mut posted, mut done, mut now) = (0, 0, 0);
    while done < writes && now < 1_000_000_000_000 {
        now += EVERY_NS;
        let at = Instant(now);
        while posted < writes && posted < done + POSTED {
            posted += 1;
            nodes[0].post_send(at, (posted, Op::Write, BYTES), &remotes[0]).expect("a queue with room");
        }
        for end in [0, 1] {
            while on_their_way[end].front().is_some_and(|(arrives, _)| *arrives <= now) {
                let (_, bytes) = on_their_way[end].pop_front().expect("it is there");
                let _ = nodes[end].endpoint.handle_packet(at, &RxMeta::default(), RxPacket { head: &bytes, tail: &[] });
            }
            if nodes[end].endpoint.poll_timeout().is_some_and(|due| due <= at) {
                nodes[end].endpoint.handle_timeout(at);
            }
        }
        while let Some(wc) = nodes[0].cqs[0].poll_one() {
            assert!(wc.status.is_success(), "seed {seed}: {wc:?}");
            nodes[0].completed(false, wc.wr_id.0, wc.status);
            done += 1;
        }
        if let Some((bytes, ..)) = nodes[1].poll_transmit(at) {
            stream.passed.push((now + far, 1, bytes.clone()));
            on_their_way[0].push_back((now + far + near, bytes));
        }
        let Some((bytes, ..)) = nodes[0].poll_transmit(at) else { continue };
        let mut leave = Vec::new();
        match rng.chance(weather.overtaken) {
            true => held.push((rng.between(1, 4), bytes)),
            false => {
                leave.push(bytes);
                held.iter_mut().for_each(|(by, _)| *by -= 1);
                leave.extend(held.extract_if(.., |(by, _)| *by == 0).map(|(_, bytes)| bytes));
            }
        }
        for (nth, bytes) in leave.into_iter().enumerate() {
            let passes = now + near + nth as u64;
            if rng.chance(weather.lost_before) {
                stream.lost_before += 1;
                continue;
            }
            stream.passed.push((passes, 0, bytes.clone()));
            match rng.chance(weather.lost_behind) {
                true => stream.lost_behind += 1,
                false => on_their_way[1].push_back((passes + far, bytes)),
            }
        }
    }
    assert_eq!(done, writes, "seed {seed}");
    stream.passed.sort_by_key(|(at, ..)| *at);
    stream
}
