//! Every operation between two devices of one process, in every progress mode.

mod common;

use common::{MODES, Side, all_rights, connect, connected, devices, options, pattern};
use std::sync::atomic::Ordering;
use xroce::{
    ConnectOptions, ImmData, PathMtu, Progress, QpInitAttr, QpType, SendFlags, SendOp, SendWr, WcFlags, WcOpcode,
    WcStatus, WrId,
};

const BYTES: usize = 300_000;
const HALF: usize = BYTES / 2;
/// Lengths at which segmentation changes, at path MTU 1024.
const LENGTHS: [usize; 9] = [0, 1, 3, 4, 1023, 1024, 1025, 65_536, HALF];

#[test]
fn rc_send_write_read_in_every_mode() {
    for mode in MODES {
        let (a, b) = connected(mode, QpType::Rc, BYTES);
        for (i, len) in LENGTHS.into_iter().enumerate() {
            let id = i as u64;
            let bytes = pattern(i as u8, len);
            a.mr.write_at(0, &bytes).unwrap();

            b.recv(100 + id, &[b.sge(0, HALF)]);
            a.send(id, SendOp::SendImm(ImmData(0xfeed_0000 + i as u32)), &[a.sge(0, len)]);
            let wc = b.success(&a, 100 + id);
            assert_eq!((wc.opcode, wc.byte_len as usize), (WcOpcode::Recv, len), "{mode:?}");
            assert_eq!(wc.imm_data(), Some(ImmData(0xfeed_0000 + i as u32)));
            a.success(&b, id);
            assert_eq!(b.mr.to_vec(0..len).unwrap(), bytes, "{mode:?} SEND of {len}");

            let va = b.mr.addr() + HALF as u64;
            a.send(id, SendOp::Write { va, rkey: b.mr.rkey() }, &[a.sge(0, len)]);
            a.success(&b, id);
            assert_eq!(b.mr.to_vec(HALF..HALF + len).unwrap(), bytes, "{mode:?} WRITE of {len}");

            a.mr.fill(0);
            a.send(id, SendOp::Read { va, rkey: b.mr.rkey() }, &[a.sge(HALF, HALF + len)]);
            let wc = a.success(&b, id);
            assert_eq!(wc.opcode, WcOpcode::RdmaRead);
            assert_eq!(a.mr.to_vec(HALF..HALF + len).unwrap(), bytes, "{mode:?} READ of {len}");
        }
    }
}

#[test]
fn rc_atomics_in_every_mode() {
    for mode in MODES {
        let (a, b) = connected(mode, QpType::Rc, 64);
        let word = b.mr.atomic_u64(8).unwrap();
        word.store(40, Ordering::SeqCst);
        let (va, rkey) = (b.mr.addr() + 8, b.mr.rkey());
        a.send(1, SendOp::FetchAdd { va, rkey, add: 2 }, &[a.sge(0, 8)]);
        a.success(&b, 1);
        assert_eq!((a.mr.atomic_u64(0).unwrap().load(Ordering::SeqCst), word.load(Ordering::SeqCst)), (40, 42));
        a.send(2, SendOp::CmpSwap { va, rkey, compare: 42, swap: u64::MAX }, &[a.sge(0, 8)]);
        let wc = a.success(&b, 2);
        assert_eq!(wc.opcode, WcOpcode::CompSwap);
        assert_eq!((a.mr.atomic_u64(0).unwrap().load(Ordering::SeqCst), word.load(Ordering::SeqCst)), (42, u64::MAX));
        a.send(3, SendOp::CmpSwap { va, rkey, compare: 42, swap: 0 }, &[a.sge(0, 8)]);
        a.success(&b, 3);
        assert_eq!(word.load(Ordering::SeqCst), u64::MAX, "{mode:?}: what does not compare does not swap");
    }
}

#[test]
fn uc_send_and_write_in_every_mode() {
    for mode in MODES {
        let (a, b) = connected(mode, QpType::Uc, BYTES);
        for (i, len) in LENGTHS.into_iter().enumerate() {
            let id = i as u64;
            let bytes = pattern(i as u8, len);
            a.mr.write_at(0, &bytes).unwrap();
            b.recv(id, &[b.sge(0, HALF)]);
            a.send(id, SendOp::Send, &[a.sge(0, len)]);
            a.success(&b, id);
            assert_eq!(b.success(&a, id).byte_len as usize, len);
            assert_eq!(b.mr.to_vec(0..len).unwrap(), bytes, "{mode:?} SEND of {len}");

            let (va, rkey) = (b.mr.addr() + HALF as u64, b.mr.rkey());
            b.recv(id, &[]);
            a.send(id, SendOp::WriteImm { va, rkey, imm: ImmData(7) }, &[a.sge(0, len)]);
            a.success(&b, id);
            let wc = b.success(&a, id);
            assert_eq!(
                (wc.opcode, wc.flags, wc.byte_len as usize),
                (WcOpcode::RecvRdmaWithImm, WcFlags::WITH_IMM, len)
            );
            assert_eq!(b.mr.to_vec(HALF..HALF + len).unwrap(), bytes, "{mode:?} WRITE of {len}");
        }
    }
}

#[test]
fn h48_a_queue_pair_connected_to_itself() {
    for mode in MODES {
        let (context, _other) = devices(mode);
        let a = Side::new(&context, QpType::Rc, BYTES);
        let opts = options(5);
        a.qp.connect(&a.qp.endpoint(&opts).unwrap(), &opts).unwrap();
        let bytes = pattern(1, HALF);
        a.mr.write_at(0, &bytes).unwrap();
        a.recv(1, &[a.sge(HALF, BYTES)]);
        a.send(2, SendOp::Send, &[a.sge(0, HALF)]);
        // The two completions come in either order.
        let mut ids = [a.wc(&a), a.wc(&a)].map(|wc| {
            assert_eq!(wc.status, WcStatus::Success);
            wc.wr_id.0
        });
        ids.sort_unstable();
        assert_eq!(ids, [1, 2]);
        assert_eq!(a.mr.to_vec(HALF..BYTES).unwrap(), bytes, "{mode:?}");
        a.send(3, SendOp::Read { va: a.mr.addr(), rkey: a.mr.rkey() }, &[a.sge(HALF, HALF + 10_000)]);
        a.success(&a, 3);
        let word = a.mr.addr() + 8;
        a.send(4, SendOp::FetchAdd { va: word, rkey: a.mr.rkey(), add: 1 }, &[a.sge(0, 8)]);
        a.success(&a, 4);
        let [(port, shard, _)] = context.counters().unwrap()[..] else { panic!("one shard") };
        assert_eq!(port.tx_frames, 0, "nothing went on the wire");
        // 147 packets of the SEND, ten of the READ's answer, its request, the atomic and its answer; and acknowledgements.
        assert!(shard.local > 160, "{shard:?}");
    }
}

#[test]
fn h48_two_queue_pairs_of_one_device() {
    let (context, _other) = devices(Progress::default());
    let (a, b) = (Side::new(&context, QpType::Rc, 8192), Side::new(&context, QpType::Rc, 8192));
    connect(&a, &b);
    a.mr.write_at(0, &pattern(9, 8192)).unwrap();
    b.recv(1, &[b.sge(0, 8192)]);
    a.send(2, SendOp::Send, &[a.sge(0, 8192)]);
    a.success(&b, 2);
    b.success(&a, 1);
    assert_eq!(b.mr.to_vec(0..8192).unwrap(), pattern(9, 8192));
}

#[test]
fn the_largest_path_mtu_and_scattered_pieces() {
    let (a, b) = devices(Progress::default());
    let (a, b) = (Side::new(&a, QpType::Rc, 20_000), Side::new(&b, QpType::Rc, 20_000));
    let opts = ConnectOptions { path_mtu: Some(PathMtu::Mtu4096), ..options(0) };
    a.qp.connect(&b.qp.endpoint(&opts).unwrap(), &opts).unwrap();
    b.qp.connect(&a.qp.endpoint(&opts).unwrap(), &opts).unwrap();
    let bytes = pattern(3, 20_000);
    a.mr.write_at(0, &bytes).unwrap();
    b.recv(1, &[b.sge(0, 1), b.sge(1, 4097), b.sge(4097, 20_000)]);
    a.send(2, SendOp::Send, &[a.sge(0, 7), a.sge(7, 7), a.sge(7, 9000), a.sge(9000, 20_000)]);
    a.success(&b, 2);
    assert_eq!(b.success(&a, 1).byte_len, 20_000);
    assert_eq!(b.mr.to_vec(0..20_000).unwrap(), bytes);
}

/// Report H19.
#[test]
fn inline_bytes_are_taken_at_once() {
    let (a, b) = connected(Progress::default(), QpType::Rc, 64);
    b.recv(1, &[b.sge(0, 64)]);
    let mut bytes = *b"hello, world";
    let flags = SendFlags::INLINE | SendFlags::SIGNALED;
    let pieces: [&[u8]; 2] = [&bytes[..5], &bytes[5..]];
    a.qp.post_send(&SendWr { wr_id: WrId(2), op: SendOp::Send, flags, sges: &[], inline: &pieces }).unwrap();
    bytes.fill(0);
    a.success(&b, 2);
    b.success(&a, 1);
    assert_eq!(b.mr.to_vec(0..12).unwrap(), b"hello, world");
}

/// A completion says that its place in the queue is free, to whoever sees it, also while the thread that wrote it does no more:
/// three busy threads on few processors are stopped anywhere.
#[test]
fn who_sees_a_completion_may_post_in_its_place() {
    const REQUESTS: u64 = 60_000;
    let (a, b) = devices(Progress::Spin { cpu: None });
    let (cq, pd) = (a.create_cq(4).unwrap(), a.alloc_pd().unwrap());
    let mut init = QpInitAttr::new(QpType::Uc, &cq);
    init.cap.max_send_wr = 1;
    let from =
        Side { mr: pd.reg_mr(vec![0; 8], all_rights()).unwrap(), qp: pd.create_qp(&init).unwrap(), context: a, cq, pd };
    let to = Side::new(&b, QpType::Uc, 8);
    connect(&from, &to);
    let op = SendOp::Write { va: to.mr.addr(), rkey: to.mr.rkey() };
    for id in 0..REQUESTS {
        from.send(id, op, &[]);
        while from.cq.poll_one().unwrap().is_none() {
            std::hint::spin_loop();
        }
    }
}
