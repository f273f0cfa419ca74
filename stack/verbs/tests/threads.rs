//! What one thread of an application sees while another thread is in the middle of a step, a control call or a post.
//!
//! Busy threads on few processors are stopped anywhere, so that a window of nanoseconds is met within some thousand rounds.

mod common;

use common::{Side, connect, device, options};
use std::sync::atomic::{AtomicU32, Ordering};
use xroce::{
    ConnectOptions, Context, Lkey, Progress, QpAttr, QpState, QpType, SendFlags, SendOp, SendWr, Sge, WcStatus, WrId,
};
use xroce_port::sim::{PipeConfig, loop_pair};

/// Two devices, of which only the first has a thread that is always awake.
fn spun() -> (Context, Context) {
    let (a, b) = loop_pair(&PipeConfig::default()).unwrap();
    (device(a, 0, Progress::Spin { cpu: None }, |_| {}), device(b, 1, Progress::Event, |_| {}))
}

/// The news that a request has failed is no older than the state that follows from it.
#[test]
fn who_sees_a_failure_sees_the_state_too() {
    const ROUNDS: u64 = 5_000;
    let (a, b) = spun();
    let (a, b) = (Side::new(&a, QpType::Uc, 8), Side::new(&b, QpType::Uc, 8));
    connect(&a, &b);
    let nowhere = Sge { addr: 0, length: 8, lkey: Lkey(0) };
    let again = QpAttr { qp_state: Some(QpState::Rts), ..QpAttr::default() };
    for id in 0..ROUNDS {
        a.send(id, SendOp::Send, &[nowhere]);
        let wc = loop {
            if let Some(wc) = a.cq.poll_one().unwrap() {
                break wc;
            }
            std::hint::spin_loop();
        };
        let state = a.qp.state();
        assert_eq!((wc.status, state), (WcStatus::LocProtErr, QpState::Sqe), "round {id}");
        a.qp.modify(&again).unwrap();
    }
}

/// RTS comes with the bound on READs that it was given: one more would be refused in vain, one without any would wait for ever.
#[test]
fn who_sees_rts_sees_how_many_reads_there_may_be() {
    const ROUNDS: u32 = 200;
    let (a, b) = spun();
    let (a, b) = (Side::new(&a, QpType::Rc, 8), Side::new(&b, QpType::Rc, 8));
    connect(&a, &b);
    let (round, seen) = (AtomicU32::new(0), AtomicU32::new(0));
    let max = |round: u32| (round % 2) as u8;
    let (poster, modifier) = (&a, options(1));
    let wrong = std::thread::scope(|scope| {
        let poster = scope.spawn(|| {
            let read = SendOp::Read { va: b.mr.addr(), rkey: b.mr.rkey() };
            let sges = [poster.sge(0, 8)];
            let wr = SendWr { wr_id: WrId(1), op: read, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] };
            let mut wrong = 0;
            for i in 1..=ROUNDS {
                while round.load(Ordering::Acquire) < i {
                    std::thread::yield_now();
                }
                while poster.qp.state() != QpState::Rts {
                    std::hint::spin_loop();
                }
                wrong += u32::from(poster.qp.post_send(&wr).is_ok() != (max(i) > 0));
                seen.store(i, Ordering::Release);
            }
            wrong
        });
        let remote = b.qp.endpoint(&options(0)).unwrap();
        for i in 1..=ROUNDS {
            a.qp.modify(&QpAttr { qp_state: Some(QpState::Reset), ..QpAttr::default() }).unwrap();
            round.store(i, Ordering::Release);
            a.qp.connect(&remote, &ConnectOptions { max_rd_atomic: max(i), ..modifier }).unwrap();
            while seen.load(Ordering::Acquire) < i {
                std::thread::yield_now();
            }
        }
        poster.join().unwrap()
    });
    assert_eq!(wrong, 0, "of {ROUNDS}");
}
