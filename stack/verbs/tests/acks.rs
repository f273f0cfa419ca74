//! An ACK may wait one step for company; it must not be lost with its queue pair, nor where nobody steps again.

mod common;

use common::{PATIENCE, Side, connect, connected, device};
use xroce::{Context, Progress, QpType, SendOp, WcStatus, WrId};
use xroce_port::sim::{PipeConfig, loop_pair};

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
    let (a, b) = connected(Progress::Inline { helper: true }, QpType::Rc, 64);
    b.recv(1, &[]);
    a.send(7, SendOp::Send, &[]);
    a.context.drive();
    b.success(&a, 1);
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

/// The completion of a message is seen before its ACK leaves, which may take more than the rest of the step.
#[test]
fn what_the_peer_is_owed_leaves_even_behind_the_packets_of_others() {
    let undriven = Progress::Inline { helper: false };
    let (a, b) = loop_pair(&PipeConfig::default()).unwrap();
    let (a, b) = (device(a, 0, undriven, |_| {}), device(b, 1, undriven, |config| config.budget.tx = 1));
    let sides = |context: &Context| [(); 5].map(|()| Side::new(context, QpType::Rc, 64));
    let (from, to) = (sides(&a), sides(&b));
    from.iter().zip(&to).for_each(|(a, b)| connect(a, b));
    for (a, b) in from.iter().zip(&to) {
        a.send(7, SendOp::Write { va: b.mr.addr(), rkey: b.mr.rkey() }, &[a.sge(0, 8)]);
    }
    a.drive();
    b.drive();
    for side in to.into_iter().rev() {
        drop(side.qp);
    }
    from.iter().for_each(completes_at);
}
