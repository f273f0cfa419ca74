//! An ACK may wait one step for company; it must not be lost with its queue pair, nor where nobody steps again.

mod common;

use common::{PATIENCE, Side, connected};
use xroce::{Progress, QpType, SendOp, WcStatus, WrId};

/// A WRITE that B has not seen yet.
fn written(progress: Progress) -> (Side, Side) {
    let (a, b) = connected(progress, QpType::Rc, 64);
    let (va, rkey) = (b.mr.addr(), b.mr.rkey());
    a.send(7, SendOp::Write { va, rkey }, &[a.sge(0, 8)]);
    (a, b)
}

#[track_caller]
fn completes_at(a: &Side) {
    let start = std::time::Instant::now();
    let wc = loop {
        if let Some(wc) = a.cq.poll_one().unwrap() {
            break wc;
        }
        assert!(start.elapsed() < PATIENCE, "no completion");
    };
    assert_eq!((wc.wr_id, wc.status), (WrId(7), WcStatus::Success));
}

#[test]
fn what_the_peer_is_owed_leaves_before_the_queue_pair_goes() {
    let (a, b) = written(Progress::Inline { helper: true });
    a.context.drive();
    b.context.drive();
    drop(b.qp);
    completes_at(&a);
}

#[test]
fn no_ack_waits_where_the_application_may_never_step_again() {
    let (a, b) = written(Progress::Inline { helper: false });
    a.context.drive();
    assert!(b.context.drive());
    completes_at(&a);
}
