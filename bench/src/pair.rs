//! Two devices in one process, joined by a pipe in memory, driven by one thread.
//!
//! In: a path MTU, the number of queue pairs and regions. Out: connected queue pairs to post to.

use std::net::{IpAddr, Ipv4Addr};

use xroce::{
    Access, Buffer, ConnectOptions, Context, Cq, Device, Limits, Mr, PathMtu, Pd, Port, Progress, Qp, QpCap,
    QpInitAttr, QpType,
};
use xroce_port::sim::{PipeConfig, loop_pair};

/// Any error of setting up: a bench has nothing better to do than to say it.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ADDRESSES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))];
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// One end.
pub struct End {
    /// The device.
    pub context: Context,
    /// All completions.
    pub cq: Cq,
    /// Its domain.
    pub pd: Pd,
    /// Its memory.
    pub mr: Mr,
    /// Its queue pairs, each connected to the one at the same place of the other end.
    pub qps: Vec<Qp>,
}

/// What a pair is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// RC or UC.
    pub kind: QpType,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Queue pairs.
    pub qps: u32,
    /// Work requests a side of a queue pair.
    pub depth: u32,
    /// Bytes of memory at each end.
    pub memory: usize,
}

impl Shape {
    /// One RC queue pair, 64 requests deep, 64 KiB of memory.
    pub fn rc(mtu: PathMtu) -> Shape {
        Shape { kind: QpType::Rc, mtu, qps: 1, depth: 64, memory: 64 << 10 }
    }
}

/// Both ends, connected.
pub fn connected(shape: Shape) -> Result<(End, End)> {
    let (mut a, mut b) = unconnected(shape)?;
    let options = options(shape.mtu);
    for _ in 0..shape.qps {
        let (qa, qb) = (new_qp(&a, shape)?, new_qp(&b, shape)?);
        qa.connect(&qb.endpoint(&options)?, &options)?;
        qb.connect(&qa.endpoint(&options)?, &options)?;
        a.qps.push(qa);
        b.qps.push(qb);
    }
    Ok((a, b))
}

/// Both ends, without queue pairs.
pub fn unconnected(shape: Shape) -> Result<(End, End)> {
    let (a, b) = loop_pair(&PipeConfig { mtu: 4200, ..PipeConfig::default() })?;
    Ok((end(Box::new(a), 0, shape)?, end(Box::new(b), 1, shape)?))
}

/// How the queue pairs are connected.
pub fn options(mtu: PathMtu) -> ConnectOptions {
    ConnectOptions { path_mtu: Some(mtu), ..ConnectOptions::default() }
}

/// A queue pair in RESET.
pub fn new_qp(end: &End, shape: Shape) -> Result<Qp> {
    let cap = QpCap {
        max_send_wr: shape.depth,
        max_recv_wr: shape.depth,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    let init = QpInitAttr { qp_type: shape.kind, send_cq: &end.cq, recv_cq: &end.cq, cap, sq_sig_all: false };
    Ok(end.pd.create_qp(&init)?)
}

fn end(port: Box<dyn Port>, who: usize, shape: Shape) -> Result<End> {
    let other = 1 - who;
    let limits = Limits::default();
    let context = Device::on_port(port, &[ADDRESSES[who]])
        .neighbour(ADDRESSES[other], MACS[other])
        .progress(Progress::Inline { helper: false })
        .limits(limits)
        .engine(|config| (config.max_qp, config.max_mr) = (1 << 16, 1 << 20))
        .open()?;
    let pd = context.alloc_pd()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let mr = pd.reg_mr(Buffer::zeroed(shape.memory), access)?;
    let cq = context.create_cq((2 * shape.depth * shape.qps).clamp(64, limits.max_cqe))?;
    Ok(End { context, cq, pd, mr, qps: Vec::new() })
}
