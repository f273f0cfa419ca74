//! What a failed completion, and the queue pair afterwards, say about why.

mod common;

use common::{Fate, Pair, Setup};
use xroce_transport::QpFault;
use xroce_transport::qp::state::QpState;
use xroce_transport::wc::{Wc, WcOpcode, WcStatus};
use xroce_transport::wr::SendOp;
use xroce_wire::{NakCode, Rkey, Syndrome};

/// The completion that says why; everything behind it was flushed and says nothing.
fn first(wcs: &[Wc]) -> &Wc {
    let (first, rest) = wcs.split_first().expect("a completion");
    for wc in rest {
        let failure = wc.failure().expect("flushed");
        assert_eq!((failure.status, failure.peer, failure.retries), (WcStatus::WrFlushErr, None, 0));
    }
    first
}

#[test]
fn a_dead_peer_is_named_with_packet_retries_and_time() {
    for (retry_cnt, waits) in [(0, 0), (1, 2), (3, 2 + 4 + 4)] {
        let mut pair = Pair::new(Setup { timeout: 10, retry_cnt, ..Setup::default() });
        for id in 1..=2 {
            let sge = pair.a.sge(0, 10);
            pair.post_a(id, SendOp::Write { va: pair.b.at(0), rkey: pair.b.rkey() }, &[sge]);
        }
        pair.run_timed(100, |_, _| Fate::Drop);
        let wcs = pair.a.poll();
        let failure = first(&wcs).failure().expect("a failure");
        assert_eq!((failure.status, failure.opcode), (WcStatus::RetryExcErr, WcOpcode::RdmaWrite));
        let (qpn, _) = failure.peer.expect("a peer");
        assert_eq!((failure.qpn, qpn, failure.psn.value()), (pair.qpn_a(), pair.b.qp.qpn, 100));
        assert_eq!((failure.retries, failure.syndrome), (retry_cnt, None));
        let timer = 4096_u64 << 10;
        assert_eq!(failure.ack_timeout_ns, timer);
        // From the first expiry; the wheel may be late by a tick each time, and a detail counts whole microseconds.
        let expected = waits * timer;
        assert!(
            (expected.saturating_sub(1000)..=expected + expected / 2 + 100_000).contains(&failure.retried_ns),
            "{failure:?}"
        );
        let snapshot = pair.a.ep.snapshot_qp(pair.qpn_a()).expect("there");
        assert_eq!((snapshot.state, snapshot.fault), (QpState::Err, Some(QpFault::Completion(failure))));
    }
}

#[test]
fn waits_for_a_recv_are_counted_apart() {
    let mut pair = Pair::new(Setup { rnr_retry: 2, ..Setup::default() });
    let sge = pair.a.sge(0, 10);
    pair.post_a(1, SendOp::Send, &[sge]);
    pair.run_timed(100, |_, _| Fate::Deliver);
    let wcs = pair.a.poll();
    let failure = first(&wcs).failure().expect("a failure");
    assert_eq!((failure.status, failure.retries), (WcStatus::RnrRetryExcErr, 2));
    let Some(Syndrome::RnrNak(timer)) = failure.syndrome else { panic!("{failure:?}") };
    assert!(failure.retried_ns + 1000 >= 2 * timer.ns(), "two waits of {timer}: {failure:?}");
}

#[test]
fn a_refusal_is_told_at_both_ends() {
    let mut pair = Pair::new(Setup::default());
    let sge = pair.a.sge(0, 10);
    pair.post_a(1, SendOp::Write { va: pair.b.at(0), rkey: Rkey(pair.b.rkey().0 ^ 0x100) }, &[sge]);
    pair.run();
    let wcs = pair.a.poll();
    let failure = first(&wcs).failure().expect("a failure");
    assert_eq!(failure.syndrome, Some(Syndrome::Nak(NakCode::RemoteAccessError)));
    assert_eq!((failure.status, failure.retries, failure.retried_ns), (WcStatus::RemAccessErr, 0, 0));
    // There nothing was posted that a completion could be about.
    let there = pair.b.ep.snapshot_qp(pair.b.qp.qpn).expect("there");
    assert_eq!(
        there.fault.map(|f| f.to_string()).as_deref(),
        Some("the peer's request with PSN 0x000064 was refused: remote_access")
    );
}
