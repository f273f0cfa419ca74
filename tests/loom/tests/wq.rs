//! Work queues: a poster and a shard.

mod common;

use common::holds;
use loom::thread;
use xroce_loom::Weak::{Acquire, Release};
use xroce_loom::wq::recv_queue;
use xroce_loom::wr::{QpCap, RecvWr, Sge, WrId};
use xroce_wire::Lkey;

/// A queue of two entries, so that three go once around and over the skip at the end.
#[test]
fn entries_are_read_whole_and_room_is_given_back() {
    holds(&[Acquire, Release], || {
        let cap = QpCap { max_send_wr: 0, max_recv_wr: 2, max_send_sge: 0, max_recv_sge: 1, max_inline_data: 0 };
        let (mut producer, mut consumer) = recv_queue(&cap);
        let poster = thread::spawn(move || {
            let mut posted = 0;
            for id in 1..=3u64 {
                let sges = [Sge { addr: id * 16, length: id as u32, lkey: Lkey(id as u32) }];
                let sges = if id == 2 { &sges[..0] } else { &sges[..] };
                // A full queue is given up: what was refused is not in it.
                if producer.post(&RecvWr { wr_id: WrId(id), sges }).is_err() {
                    break;
                }
                posted = id;
            }
            posted
        });
        let mut seen = 0;
        let mut take = |consumer: &mut xroce_loom::wq::RqConsumer| {
            while let Some(wqe) = consumer.front() {
                seen += 1;
                assert_eq!(wqe.wr_id, WrId(seen));
                let want = if seen == 2 { 0 } else { seen };
                assert_eq!(wqe.sges().iter().map(|sge| u64::from(sge.length)).sum::<u64>(), want);
                consumer.pop();
            }
            seen
        };
        take(&mut consumer);
        let posted = poster.join().unwrap();
        assert_eq!(take(&mut consumer), posted);
    });
}
