//! 5. RDMA READ: bytes out of the peer's memory, without the peer's program.
//!
//! And what happens when the key does not give the right to it.

use xroce::{Access, QpType, SendFlags, SendOp, SendWr, WrId};
use xroce_examples::{Outcome, two_ends};

fn main() -> Outcome {
    let (alice, bob) = two_ends(QpType::Rc, 8192)?;
    bob.mr.write_at(1000, b"what bob knows")?;

    alice.qp.post_send(&SendWr {
        wr_id: WrId(1),
        op: SendOp::Read { va: bob.mr.addr() + 1000, rkey: bob.mr.rkey() },
        flags: SendFlags::SIGNALED,
        // For a READ the pieces say where the bytes go.
        sges: &[alice.mr.sge(0..14)?],
        inline: &[],
    })?;
    alice.wait()?;
    println!("alice has read {:?}", String::from_utf8_lossy(&alice.mr.to_vec(0..14)?));

    // A region that may be written but not read.
    let closed = bob.pd.reg_mr(b"a secret".to_vec(), Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    alice.qp.post_send(&SendWr {
        wr_id: WrId(2),
        op: SendOp::Read { va: closed.addr(), rkey: closed.rkey() },
        flags: SendFlags::SIGNALED,
        sges: &[alice.mr.sge(0..8)?],
        inline: &[],
    })?;
    let refused = loop {
        if let Some(wc) = alice.cq.poll_one()? {
            break wc;
        }
    };
    println!("reading the other one: {}", refused.status);
    println!("alice's queue pair is now in {}: it must be reset before it is of use again", alice.qp.state());
    Ok(())
}
