//! So many queue pairs or regions that those of a burst are fetched into the cache ahead: each packet finds its own all the same.

mod common;

use common::{Side, all_rights, connect, connected, devices, pattern};
use xroce::{DropReason, Progress, QpType, Rkey, SendOp, WcStatus};

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

/// More than stay in the cache as they are.
const MRS: usize = 9000;

#[test]
fn each_of_many_regions_is_reached_by_its_own_key_and_by_no_other() {
    let (a, b) = connected(Progress::Inline { helper: false }, QpType::Rc, 64);
    let regions =
        |side: &Side| (0..MRS).map(|_| side.pd.reg_mr(vec![0u8; 8], all_rights()).unwrap()).collect::<Vec<_>>();
    let (from, to) = (regions(&a), regions(&b));
    let chosen: Vec<usize> = (0..MRS).step_by(97).collect();
    for some in chosen.chunks(40) {
        for &i in some {
            from[i].write_at(0, &pattern(i as u8, 8)).unwrap();
            let op = SendOp::Write { va: to[i].addr(), rkey: to[i].rkey() };
            a.send(i as u64, op, &[from[i].sge(0..8).unwrap()]);
        }
        for &i in some {
            a.success(&b, i as u64);
        }
    }
    for (i, mr) in to.iter().enumerate() {
        let expected = if i % 97 == 0 { pattern(i as u8, 8) } else { vec![0; 8] };
        assert_eq!(mr.to_vec(0..8).unwrap(), expected, "region {i}");
    }
    let (gone, key) = (to[5].addr(), to[5].rkey());
    drop(to);
    a.send(1, SendOp::Write { va: gone, rkey: Rkey(key.0) }, &[from[5].sge(0..8).unwrap()]);
    assert_eq!(a.wc(&b).status, WcStatus::RemAccessErr);
}
