//! A peer that knows QPN, PSNs and keys, and lies about everything else.
//!
//! In: bytes that become a connection and a sequence of acts: packets of the peer, posts and time of the victim. Out: nothing.
//! What must hold whatever the peer sends:
//!
//! - nothing panics, and no packet makes the victim send more than its own memory and windows account for;
//! - bytes change only where the peer has the right to write, where a RECV was posted, and where the victim's own READs and
//!   atomics bring their answers;
//! - what leaves comes from where the peer may read, or from what the victim sends;
//! - a RECV completes with the bytes of one message of which every packet had come;
//! - requests complete once and in order.

mod lie;
mod victim;

use arbitrary::{Arbitrary, Unstructured};
use lie::Lie;
use victim::{Post, Setup, Victim};

/// Acts of one run.
const MAX_ACTS: usize = 96;

/// What happens next.
#[derive(Arbitrary, Debug)]
enum Act {
    /// The peer sends a packet.
    Packet(Lie),
    /// The same, and the next packets after it: the rest of a message as its first packet began it.
    Message(Lie, u8),
    /// A packet from long ago comes again.
    Again(u8),
    /// The victim posts a request.
    Send(Post),
    /// The victim posts a RECV of a length.
    Recv(u16),
    /// Time goes on, in microseconds.
    Pass(u16),
    /// Time goes on to the next deadline.
    Tick,
}

/// Plays the acts.
pub fn check(data: &[u8]) {
    let mut source = Unstructured::new(data);
    let Ok(setup) = Setup::arbitrary(&mut source) else { return };
    let mut victim = Victim::new(&setup);
    for _ in 0..MAX_ACTS {
        if source.is_empty() {
            break;
        }
        let Ok(act) = Act::arbitrary(&mut source) else { break };
        match act {
            Act::Packet(lie) => victim.receive(&lie.bytes(&victim), lie.cut()),
            Act::Message(lie, packets) => {
                for lie in lie.message(&victim, packets) {
                    victim.receive(&lie.bytes(&victim), lie.cut());
                }
            }
            Act::Again(which) => victim.receive_again(which),
            Act::Send(post) => victim.post_send(&post),
            Act::Recv(len) => victim.post_recv(len),
            Act::Pass(us) => victim.pass(u64::from(us) * 1_000),
            Act::Tick => victim.tick(),
        }
        victim.look();
    }
    victim.finish();
}
