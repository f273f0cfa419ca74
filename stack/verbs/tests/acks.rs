//! An ACK may wait one step for company; it must not be lost with its queue pair, nor keep a device from its sleep.

mod common;

use common::{PATIENCE, connected};
use xroce::{Progress, QpType, SendOp, WcStatus, WrId};

#[test]
fn what_the_peer_is_owed_leaves_before_the_queue_pair_goes() {
    let (a, b) = connected(Progress::Inline { helper: false }, QpType::Rc, 64);
    let (va, rkey) = (b.mr.addr(), b.mr.rkey());
    a.send(7, SendOp::Write { va, rkey }, &[a.sge(0, 8)]);
    a.context.drive();
    // The WRITE is carried out in this step, and nothing drives the device again but the end of the queue pair.
    assert!(b.context.drive());
    drop(b.qp);
    let start = std::time::Instant::now();
    let wc = loop {
        if let Some(wc) = a.cq.poll_one().unwrap() {
            break wc;
        }
        assert!(start.elapsed() < PATIENCE, "no completion");
    };
    assert_eq!((wc.wr_id, wc.status), (WrId(7), WcStatus::Success));
}
