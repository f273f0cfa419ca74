//! Several shards: a packet that arrives at the wrong one is handed over.

mod common;

use common::{ADDRESSES, MACS, MODES, PATIENCE, Side, connect, device, ip, options, pattern};
use std::time::Instant;
use xroce::stat::Which;
use xroce::{Device, Port, Progress, QpAttr, QpInitAttr, QpState, QpType, RecvWr, SendOp, WrId};
use xroce_port::sim::{PipeConfig, loop_pair};
use xroce_port::{Capabilities, LinkChange, PortCounters, RxFrame, TxClass, TxFrame};

/// A port that never receives anything and sends nowhere: the second queue set of a station whose network card puts everything
/// on the first.
struct SilentPort(Capabilities);

impl Port for SilentPort {
    fn capabilities(&self) -> &Capabilities {
        &self.0
    }
    fn rx_burst(&mut self, _max: usize) -> usize {
        0
    }
    fn rx_frame(&self, _i: usize) -> RxFrame<'_> {
        RxFrame { head: &[], tail: &[] }
    }
    fn rx_release(&mut self) {}
    fn tx_reserve(&mut self, _len: usize, _class: TxClass) -> Option<TxFrame<'_>> {
        None
    }
    fn tx_commit(&mut self, _len: usize) {}
    fn tx_flush(&mut self) {}
    fn tx_idle(&self) -> bool {
        true
    }
    fn wait_fds(&self, _out: &mut Vec<std::os::fd::RawFd>) {}
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
    fn link(&mut self) -> Option<LinkChange> {
        None
    }
}

#[test]
fn packets_for_another_shards_queue_pair_are_handed_over_and_counted() {
    // More packets than the other shard's inbox holds, most in two pieces.
    const MESSAGES: u64 = 80;
    for mode in [Progress::Event, Progress::default()] {
        let (a, b) = loop_pair(&PipeConfig { split_at: Some(200), ..PipeConfig::default() }).unwrap();
        let silent = SilentPort(b.capabilities().clone());
        let ca = device(a, 0, mode, |_| {});
        let cb = Device::on_ports(vec![Box::new(b), Box::new(silent)], &[ip(ADDRESSES[1])])
            .neighbour(ip(ADDRESSES[0]), MACS[0])
            .progress(mode)
            .open()
            .unwrap();
        // Queue pairs go to the shards in turn: the first of these to the shard that receives, the second to the other.
        let (_first, second) = (Side::new(&cb, QpType::Uc, 4096), Side::new(&cb, QpType::Uc, 4096));
        assert_eq!(second.qp.qpn().value() & 1, 1);
        for qp in cb.qp_stats(Which::All).unwrap() {
            assert_eq!(qp.shard, qp.qpn & 1);
        }
        let a = Side::new(&ca, QpType::Uc, 4096);
        connect(&a, &second);
        a.mr.write_at(0, &pattern(0, 4096)).unwrap();
        // UC: the other shard's port could not send an acknowledgement.
        for id in 0..MESSAGES {
            second.mr.fill(0);
            second.recv(id, &[second.sge(0, 4096)]);
            a.send(id, SendOp::Send, &[a.sge(0, 4096)]);
            a.success(&second, id);
            second.success(&a, id);
            assert_eq!(second.mr.to_vec(0..4096).unwrap(), pattern(0, 4096), "{id}");
        }
        let counters = cb.counters().unwrap();
        assert_eq!((counters[0].1.handed_over, counters[0].1.hand_over_drops), (4 * MESSAGES, 0), "{mode:?}");
    }
}

#[test]
fn a_queue_pair_of_another_shard_fails_with_the_completion_queue() {
    for mode in MODES {
        let (_a, b) = loop_pair(&PipeConfig::default()).unwrap();
        let silent = SilentPort(b.capabilities().clone());
        let context =
            Device::on_ports(vec![Box::new(b), Box::new(silent)], &[ip(ADDRESSES[1])]).progress(mode).open().unwrap();
        let cq = context.create_cq(4).unwrap();
        let pd = context.alloc_pd().unwrap();
        let [busy, idle] = [(); 2].map(|()| pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap());
        assert_ne!(busy.qpn().value() & 1, idle.qpn().value() & 1, "on different shards");
        for qp in [&busy, &idle] {
            qp.to_init(&options(0)).unwrap();
        }
        for id in 0..6 {
            busy.post_recv(&RecvWr { wr_id: WrId(id), sges: &[] }).unwrap();
        }
        // Six are flushed into four places.
        busy.modify(&QpAttr { qp_state: Some(QpState::Err), ..QpAttr::default() }).unwrap();
        let start = Instant::now();
        while idle.state() != QpState::Err {
            context.drive();
            assert!(start.elapsed() < PATIENCE, "{mode:?}: {}", idle.state());
            std::thread::yield_now();
        }
    }
}
