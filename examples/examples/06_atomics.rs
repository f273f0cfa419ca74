//! 6. Atomics: a counter and a lock in the peer's memory.
//!
//! The old value comes back. Words are eight bytes, aligned, in the host's byte order.

use std::sync::atomic::Ordering;
use xroce::{QpType, SendFlags, SendOp, SendWr, WrId};
use xroce_examples::{End, Outcome, two_ends};

/// Runs one atomic and gives the word as it was before.
fn atomic(end: &End, op: SendOp) -> Result<u64, Box<dyn std::error::Error>> {
    let sges = [end.mr.sge(0..8)?];
    end.qp.post_send(&SendWr { wr_id: WrId(1), op, flags: SendFlags::SIGNALED, sges: &sges, inline: &[] })?;
    end.wait()?;
    Ok(end.mr.atomic_u64(0)?.load(Ordering::Acquire))
}

fn main() -> Outcome {
    let (alice, bob) = two_ends(QpType::Rc, 64)?;
    let (va, rkey) = (bob.mr.addr(), bob.mr.rkey());

    for _ in 0..3 {
        println!("the counter was {}", atomic(&alice, SendOp::FetchAdd { va, rkey, add: 10 })?);
    }
    // Bob sees the word as an ordinary atomic of his own.
    println!("bob sees {}", bob.mr.atomic_u64(0)?.load(Ordering::Acquire));

    let lock = va + 8;
    let take = SendOp::CmpSwap { va: lock, rkey, compare: 0, swap: 1 };
    println!("the lock was {}: alice has it", atomic(&alice, take)?);
    println!("the lock was {}: it is taken", atomic(&alice, take)?);
    Ok(())
}
