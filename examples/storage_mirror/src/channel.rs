//! The metadata channel of a pair: messages over RC, with credits.
//!
//! A SEND needs a RECV at the other side. When there is none, RC makes the sender wait (RNR NAK) and try again, which costs far
//! more than it should. So the application keeps count: each side may send as many messages as the other has RECVs posted,
//! and with each message hears of new ones. Who has nothing else to say tells credits alone. That must never wait for a credit,
//! or two sides could wait for each other: such messages are not counted and have RECVs of their own.
//!
//! In: bodies to send, completions. Out: bodies received.

use xroce::{Access, Cq, Mr, Pd, Qp, QpCap, QpInitAttr, QpType, RecvWr, SendFlags, SendOp, SendWr, Wc, WrId};

use crate::Failure;
use crate::message::{Body, MESSAGE, Message};
use crate::work::Work;

/// RECVs for messages that only tell credits. One is sent for each half of the depth that was received, and the peer can send
/// more than its first two halves only after it has taken the first such message: no more than two are on the way.
const FOR_CREDITS: u32 = 2;

/// One side of a channel.
pub struct Channel {
    peer: u32,
    qp: Qp,
    outgoing: Mr,
    incoming: Mr,
    /// Send buffers that no SEND is using.
    free: Vec<u32>,
    /// How many messages more the peer can take; None: we do not count, and rely on RNR NAKs.
    credits: Option<u32>,
    /// RECVs posted again that the peer has not heard of.
    owed: u32,
    depth: u32,
    /// Times that a message had to wait for a credit.
    pub waits: u64,
}

impl Channel {
    /// A channel to node `peer` with `depth` RECVs, all posted by [`start`](Channel::start).
    pub fn new(peer: u32, pd: &Pd, cq: &Cq, depth: u32, with_credits: bool) -> Result<Channel, Failure> {
        let cap = QpCap {
            max_send_wr: depth + FOR_CREDITS,
            max_recv_wr: depth + FOR_CREDITS,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let qp = pd.create_qp(&QpInitAttr { cap, ..QpInitAttr::new(QpType::Rc, cq) })?;
        let buffers = depth + FOR_CREDITS;
        let bytes = buffers as usize * MESSAGE;
        Ok(Channel {
            peer,
            qp,
            outgoing: pd.reg_mr(vec![0; bytes], Access::empty())?,
            incoming: pd.reg_mr(vec![0; bytes], Access::LOCAL_WRITE)?,
            free: (0..buffers).collect(),
            credits: with_credits.then_some(depth),
            owed: 0,
            depth,
            waits: 0,
        })
    }

    /// Completions that a channel of `depth` may have outstanding.
    pub fn completions(depth: u32) -> u32 {
        2 * (depth + FOR_CREDITS)
    }

    /// The queue pair, to connect it and to look at its counters.
    pub fn qp(&self) -> &Qp {
        &self.qp
    }

    /// Posts all RECVs; the queue pair must be in INIT or later.
    pub fn start(&mut self) -> Result<(), Failure> {
        (0..self.depth + FOR_CREDITS).try_for_each(|slot| self.post_recv(slot))
    }

    fn post_recv(&self, slot: u32) -> Result<(), Failure> {
        let at = slot as usize * MESSAGE;
        let wr_id = Work::Received { peer: self.peer, slot }.id();
        self.qp.post_recv(&RecvWr { wr_id: WrId(wr_id), sges: &[self.incoming.sge(at..at + MESSAGE)?] })?;
        Ok(())
    }

    /// Sends `body`, if there is a credit and a buffer for it.
    pub fn try_send(&mut self, body: Body) -> Result<bool, Failure> {
        let counted = body != Body::Credits;
        if counted && self.credits == Some(0) {
            self.waits += 1;
            return Ok(false);
        }
        let Some(slot) = self.free.pop() else { return Ok(false) };
        let credits = std::mem::take(&mut self.owed);
        let bytes = Message { credits: u16::try_from(credits).unwrap_or(u16::MAX), body }.encode();
        let at = slot as usize * MESSAGE;
        self.outgoing.write_at(at, &bytes)?;
        self.qp.post_send(&SendWr {
            wr_id: WrId(Work::Sent { peer: self.peer, slot }.id()),
            op: SendOp::Send,
            flags: SendFlags::SIGNALED,
            sges: &[self.outgoing.sge(at..at + bytes.len())?],
            inline: &[],
        })?;
        if let Some(left) = self.credits.as_mut().filter(|_| counted) {
            *left -= 1;
        }
        Ok(true)
    }

    /// Tells credits, if half of the RECVs are there again and nothing was said that could have told it; whether it did.
    pub fn step(&mut self) -> Result<bool, Failure> {
        Ok(self.credits.is_some() && self.owed >= (self.depth / 2).max(1) && self.try_send(Body::Credits)?)
    }

    /// A SEND of ours has arrived: its buffer is free.
    pub fn sent(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// A message has come: what it says. Its RECV is posted again.
    pub fn received(&mut self, slot: u32, wc: &Wc) -> Result<Body, Failure> {
        let at = slot as usize * MESSAGE;
        let bytes = self.incoming.to_vec(at..at + wc.byte_len as usize)?;
        let message = Message::decode(&bytes).ok_or("a message that is none of ours")?;
        self.post_recv(slot)?;
        self.owed += u32::from(message.body != Body::Credits);
        if let Some(credits) = &mut self.credits {
            *credits += u32::from(message.credits);
        }
        Ok(message.body)
    }
}
