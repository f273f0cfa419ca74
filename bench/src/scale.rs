//! S9: what many queue pairs and many regions cost: time a packet, memory, time to connect.
//!
//! In: rounds. Out: rows of the table. One thread drives both ends over a pipe in memory.

use std::time::{Duration, Instant};

use xroce::{Access, Mr, PathMtu, RemoteMr};

use crate::cpu_time::thread_ns;
use crate::pair::{End, Result, Shape, connected, new_qp, unconnected};
use crate::report::{Goal, Report};
use crate::spread::{Ratio, alternate};
use crate::stream::Stream;

/// Queue pairs of the large case.
const MANY_QPS: u32 = 10_000;
/// Regions of the large case.
const MANY_MRS: usize = 1_000_000;
/// Bytes of a message, in one packet.
const MESSAGE: u32 = 256;
/// Bytes that an idle queue pair may take.
const QP_BYTES: f64 = 4096.0;
/// Messages in one round: each queue pair and each region gets its turn.
const MESSAGES: u64 = 20_000;

/// All of S9.
///
/// # Errors
/// When the devices cannot be made, or a request fails.
pub fn measure(rounds: usize, report: &mut Report) -> Result<()> {
    queue_pairs(rounds, report)?;
    regions(rounds, report)?;
    idle(rounds, report)
}

fn shape(qps: u32, depth: u32) -> Shape {
    Shape { qps, depth, memory: MESSAGE as usize, ..Shape::rc(PathMtu::Mtu1024) }
}

/// Nanoseconds of CPU a packet, ACKs counted: a queue pair with one message in flight has one ACK for it, one with many has one
/// for many.
fn time(stream: &mut Stream<'_>) -> Result<f64> {
    let (start, packets) = (thread_ns(), stream.packets()?);
    stream.run(MESSAGES)?;
    Ok((thread_ns() - start) as f64 / (stream.packets()? - packets) as f64)
}

fn queue_pairs(rounds: usize, report: &mut Report) -> Result<()> {
    let (one_a, one_b) = connected(shape(1, 64))?;
    let mut one = Stream::new(&one_a, &one_b, MESSAGE, 64)?;
    for qps in [100, MANY_QPS] {
        let (a, b) = connected(shape(qps, 16))?;
        let mut many = Stream::new(&a, &b, MESSAGE, 16)?;
        many.run(2 * MESSAGES)?;
        let ratio = alternate(rounds, || time(&mut many), || time(&mut one))?;
        report.row("S9", &format!("WRITE {MESSAGE} B over {qps} QPs in turn, vs 1"), "ns", ratio, Goal::AtMost(1.3));
    }
    Ok(())
}

/// An end's memory once more as `count` regions, so that one region and many reach the same bytes.
#[allow(unsafe_code, reason = "registers memory that a region owns already")]
fn register(end: &End, count: usize) -> Result<Vec<Mr>> {
    let (access, size) = (Access::LOCAL_WRITE | Access::REMOTE_WRITE, MESSAGE as usize);
    let start = end.mr.addr() as *mut u8;
    let piece = |i: usize| {
        // SAFETY: `count` pieces are the end's region, whose bytes it keeps as long as it lives, which is longer than these; nobody
        // holds a reference to them.
        unsafe { end.pd.reg_mr_raw(start.wrapping_add(i * size), size, None, access) }
    };
    (0..count).map(|i| Ok(piece(i)?)).collect()
}

fn regions(rounds: usize, report: &mut Report) -> Result<()> {
    let size = MESSAGE as usize;
    for count in [1_000, MANY_MRS] {
        // The one region is as large as all the others together.
        let (a, b) = connected(Shape { memory: count * size, ..shape(1, 64) })?;
        let (locals, remotes) = (register(&a, count)?, register(&b, count)?);
        // Neighbours do not follow each other.
        let order = || (0..count).map(|i| i * 7919 % count);
        let many = order().map(|i| Ok((locals[i].sge(0..size)?, remotes[i].remote())));
        let one = order().map(|i| {
            let remote = b.mr.remote();
            let addr = remote.addr + (i * size) as u64;
            Ok((a.mr.sge(i * size..(i + 1) * size)?, RemoteMr { addr, ..remote }))
        });
        let mut many = Stream::over(&a, &b, many.collect::<Result<_>>()?, 64);
        let mut one = Stream::over(&a, &b, one.collect::<Result<_>>()?, 64);
        many.run(MESSAGES)?;
        one.run(MESSAGES)?;
        let ratio = alternate(rounds, || time(&mut many), || time(&mut one))?;
        let name = format!("WRITE {MESSAGE} B over {count} MRs in turn, vs 1 of that size");
        report.row("S9", &name, "ns", ratio, Goal::AtMost(1.3));
    }
    Ok(())
}

fn idle(rounds: usize, report: &mut Report) -> Result<()> {
    let shape = shape(0, 16);
    let mut bytes = Vec::new();
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        let (a, b) = unconnected(shape)?;
        let before = allocated();
        let mut qps = Vec::with_capacity(MANY_QPS as usize);
        for _ in 0..MANY_QPS {
            qps.push(new_qp(&a, shape)?);
        }
        bytes.push(((allocated() - before) as f64 / f64::from(MANY_QPS), QP_BYTES));
        drop((qps, a, b));
        let start = Instant::now();
        let ends = connected(Shape { qps: MANY_QPS, ..shape })?;
        // Both ends were made: half of it is one end's.
        seconds.push((start.elapsed().as_secs_f64() / 2.0, Duration::from_secs(1).as_secs_f64()));
        drop(ends);
    }
    report.row("S9", "memory of an idle QP, 16 requests a side, vs 4 KiB", "B", Ratio::of(&bytes), Goal::AtMost(1.0));
    report.row("S9", "10,000 QPs made and connected, vs 1 s", "s", Ratio::of(&seconds), Goal::AtMost(1.0));
    Ok(())
}

/// Bytes that the process has allocated and not freed.
#[allow(unsafe_code, reason = "the allocator's own account")]
fn allocated() -> usize {
    // SAFETY: reads counters of the C library's allocator, which is this program's.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}
