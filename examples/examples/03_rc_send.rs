//! 3. SEND and RECV over a reliable connection.
//!
//! The receiver says beforehand where the next message shall go (a RECV). The sender's message takes the oldest RECV. Both hear
//! of it by a completion: the sender when the peer has acknowledged, the receiver when all bytes are in place.

use xroce::{QpType, RecvWr, SendFlags, SendOp, SendWr, WrId};
use xroce_examples::{Outcome, two_ends};

fn main() -> Outcome {
    let (alice, bob) = two_ends(QpType::Rc, 4096)?;

    // Bob offers his whole buffer for one message. The number comes back in the completion.
    bob.qp.post_recv(&RecvWr { wr_id: WrId(7), sges: &[bob.mr.sge(0..4096)?] })?;

    // Alice sends the first eleven bytes of hers. SIGNALED: she wants to hear when it has arrived.
    alice.mr.write_at(0, b"hello, rdma")?;
    alice.qp.post_send(&SendWr {
        wr_id: WrId(1),
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        sges: &[alice.mr.sge(0..11)?],
        inline: &[],
    })?;

    let sent = alice.wait()?;
    println!("alice: work request {} is done: {}", sent.wr_id, sent.status);
    let received = bob.wait()?;
    let bytes = bob.mr.to_vec(0..received.byte_len as usize)?;
    println!("bob: {} bytes from QP {}: {:?}", received.byte_len, received.src_qp, String::from_utf8_lossy(&bytes));
    Ok(())
}
