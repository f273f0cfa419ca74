//! Wrappers with nothing to do change nothing: same frames, same refusals, same counters; and they stack.

mod common;

use std::io;

use common::{A, B, bytes_of, numbered};
use proptest::prelude::*;
use xroce_port::fault::{Action, Fault, Rule};
use xroce_port::pcap::Pcap;
use xroce_port::sim::{LinkModel, NodeConfig, SimNet, SimPort};
use xroce_port::trace::{Trace, ethernet_summary};
use xroce_port::{LinkChange, Port, PortCounters, TxClass};

#[derive(Debug, Clone)]
enum Step {
    Commit { from: usize, len: usize, shorter: usize, request: bool },
    Void { from: usize, len: usize },
    Flush(usize),
    Burst { at: usize, max: usize, release: bool },
    Time(u64),
    Carrier(usize, bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    let node = 0usize..2;
    prop_oneof![
        5 => (node.clone(), 22usize..4_300, 0usize..40, any::<bool>())
            .prop_map(|(from, len, shorter, request)| Step::Commit { from, len, shorter, request }),
        1 => (node.clone(), 0usize..4_300).prop_map(|(from, len)| Step::Void { from, len }),
        3 => node.clone().prop_map(Step::Flush),
        3 => (node.clone(), 0usize..9, any::<bool>())
            .prop_map(|(at, max, release)| Step::Burst { at, max, release }),
        2 => (0u64..3_000).prop_map(Step::Time),
        1 => (node, any::<bool>()).prop_map(|(at, up)| Step::Carrier(at, up)),
    ]
}

/// What an engine can see of a port.
#[derive(Debug, PartialEq)]
enum Seen {
    Reserved(Option<(usize, usize)>),
    Idle(bool),
    Frames(Vec<(usize, Vec<u8>)>),
    Link(Option<LinkChange>),
    Counters(PortCounters),
    Now(Option<u64>),
}

fn run(seed: u64, steps: &[Step], wrap: impl Fn(SimPort) -> Box<dyn Port>) -> Vec<Seen> {
    let net = SimNet::new(seed);
    let config = NodeConfig { tx_ring: 6, kick_max: 4, split_at: Some(2100), ..NodeConfig::default() };
    let sim = [0, 1].map(|_| net.add_node(&config).expect("sound"));
    let ids = [sim[0].id(), sim[1].id()];
    let rough = LinkModel { loss: 0.1, duplicate: 0.1, delay_max_ns: 2_000, reorder: 0.1, ..LinkModel::default() };
    net.set_every_link(&rough).expect("sound");
    let mut ports = sim.map(wrap);
    let (mut seen, macs) = (Vec::new(), [A, B]);
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Commit { from, len, shorter, request } => {
                let class = if *request { TxClass::Request } else { TxClass::Response };
                let bytes = numbered(macs[1 - from], macs[*from], number as u64, *len);
                let port = &mut ports[*from];
                let reserved = port.tx_reserve(*len, class).map(|frame| {
                    let (head, tail) = bytes.split_at(frame.head.len());
                    frame.head.copy_from_slice(head);
                    frame.tail.copy_from_slice(tail);
                    (head.len(), tail.len())
                });
                if reserved.is_some() {
                    port.tx_commit(len.saturating_sub(*shorter).max(14));
                }
                seen.push(Seen::Reserved(reserved));
                seen.push(Seen::Idle(port.tx_idle()));
            }
            Step::Void { from, len } => {
                let reserved = ports[*from].tx_reserve(*len, TxClass::Request);
                seen.push(Seen::Reserved(reserved.map(|frame| (frame.head.len(), frame.tail.len()))));
            }
            Step::Flush(at) => {
                ports[*at].tx_flush();
                seen.push(Seen::Idle(ports[*at].tx_idle()));
            }
            Step::Burst { at, max, release } => {
                let count = ports[*at].rx_burst(*max);
                let frames = (0..count).map(|i| ports[*at].rx_frame(i)).map(|f| (f.head.len(), bytes_of(f)));
                seen.push(Seen::Frames(frames.collect()));
                if *release {
                    ports[*at].rx_release();
                }
            }
            Step::Time(ns) => net.advance_to(net.now() + ns),
            Step::Carrier(at, up) => {
                net.set_carrier(ids[*at], *up).expect("here");
                seen.push(Seen::Link(ports[*at].link()));
            }
        }
    }
    for port in &ports {
        seen.extend([Seen::Counters(port.counters()), Seen::Now(port.now_hint())]);
        assert_eq!(port.capabilities().max_frame, 4218);
        let mut fds = Vec::new();
        port.wait_fds(&mut fds);
        assert!(fds.is_empty(), "virtual time has nothing to sleep on");
    }
    seen
}

/// Rules in force, but for frames that never come: the fault's long way.
fn armed(port: SimPort) -> Fault<SimPort> {
    let fault = Fault::new(port, 1);
    for rule in [Rule::rx(Action::Drop), Rule::tx(Action::Drop)] {
        fault.faults().add(rule.matching(|_| false)).expect("sound");
    }
    fault
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn wrappers_are_transparent(seed: u64, steps in prop::collection::vec(any_step(), 1..120)) {
        let bare = run(seed, &steps, |port| Box::new(port));
        let pcap = |port| Pcap::to_sink(port, io::sink(), "x").expect("a sink takes all");
        prop_assert_eq!(&bare, &run(seed, &steps, |port| Box::new(Fault::new(port, 1))), "fault, quiet");
        prop_assert_eq!(&bare, &run(seed, &steps, |port| Box::new(armed(port))), "fault, armed");
        prop_assert_eq!(&bare, &run(seed, &steps, |port| Box::new(pcap(port))), "pcap");
        prop_assert_eq!(&bare, &run(seed, &steps, |port| Box::new(Trace::new(port, "x", ethernet_summary))), "trace");
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(io::sink).finish();
        let traced = tracing::subscriber::with_default(subscriber, || {
            run(seed, &steps, |port| Box::new(Trace::new(port, "x", ethernet_summary)))
        });
        prop_assert_eq!(&bare, &traced, "trace, heard");
        let stack = |port| {
            let inner: Box<dyn Port> = Box::new(Fault::new(armed(port), 2));
            let pcap = Pcap::to_sink(inner, io::sink(), "x").expect("a sink takes all");
            Box::new(Trace::new(Fault::new(pcap, 3), "x", ethernet_summary)) as Box<dyn Port>
        };
        prop_assert_eq!(&bare, &run(seed, &steps, stack), "the stack");
    }
}
