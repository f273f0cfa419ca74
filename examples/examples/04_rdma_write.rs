//! 4. RDMA WRITE: bytes into the peer's memory, without the peer's program.
//!
//! Bob registers memory and tells Alice its address and key. Alice's WRITE puts bytes there; Bob's program hears nothing of it,
//! unless it comes with immediate data, which takes a RECV and makes a completion.

use xroce::{ImmData, QpType, RecvWr, RemoteMr, SendFlags, SendOp, SendWr, WrId};
use xroce_examples::{Outcome, two_ends};

fn main() -> Outcome {
    let (alice, bob) = two_ends(QpType::Rc, 1 << 20)?;

    // This text is what travels to Alice by some other way.
    let invitation = bob.mr.remote().to_string();
    println!("bob: my memory is {invitation}");
    let target: RemoteMr = invitation.parse()?;

    // A whole megabyte in one work request: the NIC cuts it into packets.
    alice.mr.fill(0x5a);
    alice.qp.post_send(&SendWr {
        wr_id: WrId(1),
        op: SendOp::Write { va: target.addr, rkey: target.rkey },
        flags: SendFlags::SIGNALED,
        sges: &[alice.mr.sge(0..1 << 20)?],
        inline: &[],
    })?;
    alice.wait()?;
    println!("bob's memory ends with {:02x?}", bob.mr.to_vec((1 << 20) - 4..1 << 20)?);

    // With immediate data Bob hears of it.
    bob.qp.post_recv(&RecvWr { wr_id: WrId(7), sges: &[] })?;
    alice.qp.post_send(&SendWr {
        wr_id: WrId(2),
        op: SendOp::WriteImm { va: target.addr + 100, rkey: target.rkey, imm: ImmData(42) },
        flags: SendFlags::SIGNALED | SendFlags::INLINE,
        sges: &[],
        // INLINE: the bytes are taken now, from anywhere; no registered memory is needed.
        inline: &[b"look here"],
    })?;
    alice.wait()?;
    let wc = bob.wait()?;
    println!("bob: {} bytes were written, immediate data {:?}", wc.byte_len, wc.imm_data());
    println!("bob: {:?}", String::from_utf8_lossy(&bob.mr.to_vec(100..109)?));
    Ok(())
}
