//! So many queue pairs that those of a burst are fetched into the cache ahead: each packet finds its own all the same.

mod common;

use common::{Side, connect, devices, pattern};
use xroce::{DropReason, Progress, QpType, SendOp};

/// More than stay in the cache as they are, and more than one burst.
const QPS: usize = 150;

#[test]
fn each_of_many_queue_pairs_gets_its_own_message_and_one_that_is_gone_none() {
    let (a, b) = devices(Progress::Inline { helper: false });
    let side = |context| (0..QPS).map(|_| Side::new(context, QpType::Rc, 64)).collect::<Vec<_>>();
    let (from, mut to) = (side(&a), side(&b));
    from.iter().zip(&to).for_each(|(from, to)| connect(from, to));
    for round in 0..3u8 {
        for (i, (from, to)) in from.iter().zip(&to).enumerate() {
            from.mr.write_at(0, &pattern(round.wrapping_mul(77) ^ i as u8, 64)).unwrap();
            to.recv(i as u64, &[to.sge(0, 64)]);
            from.send(i as u64, SendOp::Send, &[from.sge(0, 64)]);
        }
        // Its packets are on their way.
        a.drive();
        let gone = to.pop().unwrap();
        let lost = gone.qp.qpn();
        drop(gone);
        for (i, (from, to)) in from.iter().zip(&to).enumerate() {
            from.success(to, i as u64);
            to.success(from, i as u64);
            assert_eq!(to.mr.to_vec(0..64).unwrap(), pattern(round.wrapping_mul(77) ^ i as u8, 64));
        }
        assert!(!to.iter().any(|to| to.qp.qpn() == lost));
    }
    let unknown =
        b.counters().unwrap().iter().map(|(_, _, endpoint)| endpoint.drops.get(DropReason::UnknownQp)).sum::<u64>();
    assert!(unknown >= 1, "packets for the queue pairs that are gone found nobody");
}
