//! Two devices in one process, joined by a wire in memory.
#![allow(dead_code, reason = "every test uses its own part of this")]

pub mod before;
pub mod netns;

use std::net::IpAddr;
use std::time::Duration;
use xroce::{
    Access, ConnectOptions, Context, Cq, Device, EngineConfig, Mr, Pd, Port, Progress, Psn, Qp, QpInitAttr, QpType,
    RecvWr, SendFlags, SendOp, SendWr, Sge, Wc, WcStatus, WrId,
};
use xroce_port::sim::{PipeConfig, loop_pair};

/// Long enough for any step of a test on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// CPU time of this process so far, in microseconds.
pub fn cpu_us() -> i64 {
    // SAFETY: an all-zero rusage is valid, and getrusage writes only to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    let us = |t: libc::timeval| t.tv_sec * 1_000_000 + t.tv_usec;
    us(usage.ru_utime) + us(usage.ru_stime)
}

/// Every way to run a device.
pub const MODES: [Progress; 5] = [
    Progress::Inline { helper: true },
    Progress::Inline { helper: false },
    Progress::Event,
    Progress::Adaptive { cpu: None, spin_ns: 20_000 },
    Progress::Spin { cpu: None },
];

pub const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
pub const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn device(
    port: impl Port + 'static,
    who: usize,
    progress: Progress,
    change: impl FnOnce(&mut EngineConfig),
) -> Context {
    let other = 1 - who;
    Device::on_port(Box::new(port), &[ip(ADDRESSES[who])])
        .neighbour(ip(ADDRESSES[other]), MACS[other])
        .progress(progress)
        .engine(change)
        .open()
        .unwrap()
}

/// Two devices on the ends of a perfect wire.
pub fn devices(progress: Progress) -> (Context, Context) {
    let (a, b) = loop_pair(&PipeConfig::default()).unwrap();
    (device(a, 0, progress, |_| {}), device(b, 1, progress, |_| {}))
}

/// One side of a connection, with a region of its own.
pub struct Side {
    pub qp: Qp,
    pub mr: Mr,
    pub cq: Cq,
    pub pd: Pd,
    pub context: Context,
}

pub fn all_rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

impl Side {
    pub fn new(context: &Context, kind: QpType, bytes: usize) -> Side {
        let cq = context.create_cq(1024).unwrap();
        Side::with_cq(context, kind, bytes, cq)
    }

    pub fn with_cq(context: &Context, kind: QpType, bytes: usize, cq: Cq) -> Side {
        let pd = context.alloc_pd().unwrap();
        let mr = pd.reg_mr(vec![0u8; bytes], all_rights()).unwrap();
        let mut init = QpInitAttr::new(kind, &cq);
        init.cap.max_send_sge = 4;
        init.cap.max_recv_sge = 4;
        let qp = pd.create_qp(&init).unwrap();
        Side { context: context.clone(), pd, cq, mr, qp }
    }

    pub fn sge(&self, start: usize, end: usize) -> Sge {
        self.mr.sge(start..end).unwrap()
    }

    pub fn send(&self, id: u64, op: SendOp, sges: &[Sge]) {
        let wr = SendWr { wr_id: WrId(id), op, flags: SendFlags::SIGNALED, sges, inline: &[] };
        self.qp.post_send(&wr).unwrap();
    }

    pub fn recv(&self, id: u64, sges: &[Sge]) {
        self.qp.post_recv(&RecvWr { wr_id: WrId(id), sges }).unwrap();
    }

    /// The next completion, whatever it says. `peer`'s device is driven too, for modes in which nobody else does.
    #[track_caller]
    pub fn wc(&self, peer: &Side) -> Wc {
        let start = std::time::Instant::now();
        loop {
            if let Some(wc) = self.cq.poll_one().unwrap() {
                return wc;
            }
            peer.context.drive();
            assert!(start.elapsed() < PATIENCE, "no completion");
            std::thread::yield_now();
        }
    }

    /// The next completion, which must be the success of `id`.
    #[track_caller]
    pub fn success(&self, peer: &Side, id: u64) -> Wc {
        let wc = self.wc(peer);
        assert_eq!((wc.wr_id, wc.status), (WrId(id), WcStatus::Success), "{wc:?}");
        wc
    }
}

pub fn options(psn: u32) -> ConnectOptions {
    ConnectOptions { psn: Psn::new(psn), ..ConnectOptions::default() }
}

/// Connects two queue pairs, with PSNs that wrap soon.
pub fn connect(a: &Side, b: &Side) {
    let (of_a, of_b) = (options(0xff_fffa), options(0x10_0000));
    let (at_a, at_b) = (a.qp.endpoint(&of_a).unwrap(), b.qp.endpoint(&of_b).unwrap());
    a.qp.connect(&at_b, &of_a).unwrap();
    b.qp.connect(&at_a, &of_b).unwrap();
}

pub fn connected(progress: Progress, kind: QpType, bytes: usize) -> (Side, Side) {
    let (a, b) = devices(progress);
    let (a, b) = (Side::new(&a, kind, bytes), Side::new(&b, kind, bytes));
    connect(&a, &b);
    (a, b)
}

/// `len` bytes that differ from place to place.
pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8).wrapping_add(seed)).collect()
}
