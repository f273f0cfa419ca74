//! Every counter of a queue pair, exactly, in small stories of two ends: none is forgotten, none counts twice.

mod common;

use common::{Fate, Frame, Pair, Setup};
use std::collections::BTreeSet;
use xroce_transport::qp::state::QpType;
use xroce_transport::wr::SendOp;
use xroce_transport::{DropReason, QpCounters};
use xroce_wire::{ImmData, Ipv4, Operation, Rkey};

/// What happened, and what A and B count: everything that is not 0, in the order of the counters.
struct Story {
    name: &'static str,
    setup: Setup,
    play: fn(&mut Pair),
    a: &'static [(&'static str, u64)],
    b: &'static [(&'static str, u64)],
}

fn write(pair: &mut Pair, id: u64, len: u32) {
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    let sges = [pair.a.sge(0, len)];
    pair.post_a(id, SendOp::Write { va, rkey }, &sges);
}

fn send(pair: &mut Pair, id: u64, len: u32) {
    let sges = [pair.a.sge(0, len)];
    pair.post_a(id, SendOp::Send, &sges);
}

fn lose(pair: &mut Pair, lost: impl Fn(&Frame) -> bool) {
    let mut once = true;
    pair.settle(|_, frame| {
        if once && lost(frame) {
            once = false;
            return Fate::Drop;
        }
        Fate::Deliver
    });
}

fn undisturbed(pair: &mut Pair) {
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    let [word, bytes] = [8, 2048].map(|len| [pair.a.sge(0, len)]);
    pair.recv_b(1, 0, 8);
    pair.recv_b(2, 0, 8);
    write(pair, 1, 2500);
    send(pair, 2, 5);
    pair.post_a(3, SendOp::WriteImm { va, rkey, imm: ImmData(1) }, &[]);
    pair.post_a(4, SendOp::Read { va, rkey }, &bytes);
    pair.post_a(5, SendOp::FetchAdd { va, rkey, add: 1 }, &word);
    pair.run();
}

fn request_lost(pair: &mut Pair) {
    write(pair, 1, 4096);
    lose(pair, |frame| frame.psn() == 101);
}

fn ack_lost(pair: &mut Pair) {
    write(pair, 1, 8);
    lose(pair, |frame| frame.op() == Operation::Acknowledge);
    pair.run_timed(8, |_, _| Fate::Deliver);
}

fn response_lost(pair: &mut Pair) {
    let (va, rkey) = (pair.b.at(0), pair.b.rkey());
    let sges = [pair.a.sge(0, 3072)];
    pair.post_a(1, SendOp::Read { va, rkey }, &sges);
    lose(pair, |frame| frame.op() == Operation::ReadResponseMiddle);
}

fn not_ready(pair: &mut Pair) {
    send(pair, 1, 8);
    pair.run();
    pair.recv_b(1, 0, 8);
    pair.run_timed(8, |_, _| Fate::Deliver);
}

fn never_ready(pair: &mut Pair) {
    send(pair, 1, 8);
    pair.run();
}

fn never_answered(pair: &mut Pair) {
    write(pair, 1, 8);
    pair.run_timed(32, |_, _| Fate::Drop);
}

fn wrong_key(pair: &mut Pair) {
    let (va, rkey) = (pair.b.at(0), Rkey(pair.b.rkey().0 ^ 1));
    let sges = [pair.a.sge(0, 8)];
    pair.recv_b(1, 0, 8);
    pair.post_a(1, SendOp::Write { va, rkey }, &sges);
    write(pair, 2, 8);
    pair.run();
}

fn recv_too_short(pair: &mut Pair) {
    pair.recv_b(1, 0, 4);
    send(pair, 1, 8);
    pair.run();
}

fn marked(pair: &mut Pair) {
    write(pair, 1, 8);
    pair.transmit();
    let mut frame = pair.wire.pop_front().unwrap();
    let mut ip = Ipv4::new_unchecked(&mut frame.bytes[..]);
    ip.set_traffic_class(3);
    ip.fill_checksum();
    assert!(pair.deliver(&frame).is_ok());
    pair.run();
}

fn uc_last_lost(pair: &mut Pair) {
    write(pair, 1, 2048);
    write(pair, 2, 8);
    lose(pair, |frame| frame.op() == Operation::WriteLast);
}

fn stories() -> Vec<Story> {
    let rc = Setup::default;
    vec![
        Story {
            name: "undisturbed",
            setup: rc(),
            play: undisturbed,
            a: &[("sent_pkts", 7), ("sent_bytes", 2896), ("rcvd_pkts", 3), ("rcvd_bytes", 2200), ("rdma_sends", 5)],
            b: &[
                ("sent_pkts", 3),
                ("sent_bytes", 2200),
                ("rcvd_pkts", 7),
                ("rcvd_bytes", 2896),
                ("acks_sent", 3),
                ("rdma_recvs", 2),
                ("rx_write_requests", 2),
                ("rx_read_requests", 1),
                ("rx_atomic_requests", 1),
            ],
        },
        Story {
            name: "a request is lost",
            setup: rc(),
            play: request_lost,
            a: &[
                ("sent_pkts", 7),
                ("sent_bytes", 7492),
                ("rcvd_pkts", 2),
                ("rcvd_bytes", 96),
                ("rcvd_seq_err", 1),
                ("resent_pkts", 3),
                ("rdma_sends", 1),
                ("completer_retry_err", 1),
            ],
            b: &[
                ("sent_pkts", 2),
                ("sent_bytes", 96),
                ("rcvd_pkts", 6),
                ("rcvd_bytes", 6424),
                ("out_of_seq_request", 2),
                ("acks_sent", 1),
                ("nak_seq_sent", 1),
                ("rx_write_requests", 1),
            ],
        },
        Story {
            name: "an ACK is lost",
            setup: rc(),
            play: ack_lost,
            a: &[
                ("sent_pkts", 2),
                ("sent_bytes", 136),
                ("rcvd_pkts", 1),
                ("rcvd_bytes", 48),
                ("local_ack_timeout_err", 1),
                ("resent_pkts", 1),
                ("rdma_sends", 1),
                ("completer_retry_err", 1),
            ],
            b: &[
                ("sent_pkts", 2),
                ("sent_bytes", 96),
                ("rcvd_pkts", 2),
                ("rcvd_bytes", 136),
                ("duplicate_request", 1),
                ("acks_sent", 2),
                ("rx_write_requests", 1),
            ],
        },
        Story {
            name: "a response is lost",
            setup: rc(),
            play: response_lost,
            a: &[
                ("sent_pkts", 2),
                ("sent_bytes", 120),
                ("rcvd_pkts", 4),
                ("rcvd_bytes", 4288),
                ("implied_nak_seq_err", 1),
                ("resent_pkts", 1),
                ("rdma_sends", 1),
                ("completer_retry_err", 1),
            ],
            b: &[
                ("sent_pkts", 5),
                ("sent_bytes", 5356),
                ("rcvd_pkts", 2),
                ("rcvd_bytes", 120),
                ("duplicate_request", 1),
                ("acks_sent", 5),
                ("rx_read_requests", 1),
            ],
        },
        Story {
            name: "no RECV at first",
            setup: rc(),
            play: not_ready,
            a: &[
                ("sent_pkts", 2),
                ("sent_bytes", 104),
                ("rcvd_pkts", 2),
                ("rcvd_bytes", 96),
                ("rcvd_rnr_err", 1),
                ("resent_pkts", 1),
                ("rdma_sends", 1),
            ],
            b: &[
                ("sent_pkts", 2),
                ("sent_bytes", 96),
                ("rcvd_pkts", 2),
                ("rcvd_bytes", 104),
                ("send_rnr_err", 1),
                ("acks_sent", 1),
                ("rdma_recvs", 1),
            ],
        },
        Story {
            name: "no RECV ever",
            setup: Setup { rnr_retry: 0, ..rc() },
            play: never_ready,
            a: &[
                ("sent_pkts", 1),
                ("sent_bytes", 52),
                ("rcvd_pkts", 1),
                ("rcvd_bytes", 48),
                ("rcvd_rnr_err", 1),
                ("retry_rnr_exceeded_err", 1),
                ("req_cqe_error", 1),
            ],
            b: &[("sent_pkts", 1), ("sent_bytes", 48), ("rcvd_pkts", 1), ("rcvd_bytes", 52), ("send_rnr_err", 1)],
        },
        Story {
            name: "no answer ever",
            setup: Setup { retry_cnt: 1, ..rc() },
            play: never_answered,
            a: &[
                ("sent_pkts", 2),
                ("sent_bytes", 136),
                ("local_ack_timeout_err", 2),
                ("resent_pkts", 1),
                ("retry_exceeded_err", 1),
                ("completer_retry_err", 1),
                ("req_cqe_error", 1),
            ],
            b: &[],
        },
        Story {
            name: "a wrong key",
            setup: rc(),
            play: wrong_key,
            a: &[
                ("sent_pkts", 2),
                ("sent_bytes", 136),
                ("rcvd_pkts", 1),
                ("rcvd_bytes", 48),
                ("req_cqe_error", 2),
                ("req_cqe_flush_error", 1),
                ("req_remote_access_errors", 1),
            ],
            b: &[
                ("sent_pkts", 1),
                ("sent_bytes", 48),
                ("rcvd_pkts", 1),
                ("rcvd_bytes", 68),
                ("resp_remote_access_errors", 1),
                ("resp_cqe_error", 1),
                ("resp_cqe_flush_error", 1),
            ],
        },
        Story {
            name: "a RECV too short",
            setup: rc(),
            play: recv_too_short,
            a: &[
                ("sent_pkts", 1),
                ("sent_bytes", 52),
                ("rcvd_pkts", 1),
                ("rcvd_bytes", 48),
                ("req_cqe_error", 1),
                ("req_remote_invalid_request", 1),
            ],
            b: &[
                ("sent_pkts", 1),
                ("sent_bytes", 48),
                ("rcvd_pkts", 1),
                ("rcvd_bytes", 52),
                ("resp_cqe_error", 1),
                ("resp_local_length_error", 1),
            ],
        },
        Story {
            name: "congestion",
            setup: rc(),
            play: marked,
            a: &[("sent_pkts", 1), ("sent_bytes", 68), ("rcvd_pkts", 1), ("rcvd_bytes", 48), ("rdma_sends", 1)],
            b: &[
                ("sent_pkts", 1),
                ("sent_bytes", 48),
                ("rcvd_pkts", 1),
                ("rcvd_bytes", 68),
                ("acks_sent", 1),
                ("np_ecn_marked_roce_packets", 1),
                ("rx_write_requests", 1),
            ],
        },
        Story {
            name: "UC",
            setup: Setup { kind: QpType::Uc, ..rc() },
            play: uc_last_lost,
            a: &[("sent_pkts", 3), ("sent_bytes", 2220), ("rdma_sends", 2)],
            b: &[
                ("rcvd_pkts", 2),
                ("rcvd_bytes", 1152),
                ("out_of_seq_request", 1),
                ("uc_dropped_messages", 1),
                ("rx_write_requests", 1),
            ],
        },
    ]
}

fn counted(counters: QpCounters) -> Vec<(&'static str, u64)> {
    counters.iter().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn each_story_counts_what_happened_and_nothing_else() {
    for story in stories() {
        let mut pair = Pair::new(story.setup);
        (story.play)(&mut pair);
        let [a, b] = [&pair.a.ep, &pair.b.ep].map(|ep| counted(ep.counters().qp));
        assert_eq!((a.as_slice(), b.as_slice()), (story.a, story.b), "{}", story.name);
        // What one queue pair counted is what its endpoint says, also when it is gone.
        assert_eq!(pair.a.ep.qp_counters(pair.qpn_a()).map(counted), Some(a.clone()), "{}", story.name);
        pair.a.ep.destroy_qp(pair.a.qp.qpn).unwrap();
        assert_eq!(counted(pair.a.ep.counters().qp), a, "{}: A is destroyed", story.name);
    }
}

#[test]
fn the_stories_leave_no_counter_out() {
    let all: BTreeSet<&str> = QpCounters::default().iter().map(|(name, _)| name).collect();
    let told: BTreeSet<&str> = stories().iter().flat_map(|s| s.a.iter().chain(s.b)).map(|(name, _)| *name).collect();
    assert_eq!(told, all);
}

#[test]
fn a_response_that_skips_one_is_told_as_a_gap() {
    let mut pair = Pair::new(Setup::default());
    response_lost(&mut pair);
    assert_eq!(pair.a.ep.counters().drops.get(DropReason::ResponseGap), 1);
}
