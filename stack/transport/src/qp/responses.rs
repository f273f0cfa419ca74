//! Responses that wait to be sent, in the order of their requests, and what was answered before, for duplicates.
//!
//! In: what the responder decided. Out: one response packet at a time. READ data is read from memory when its packet is
//! built; the results of atomics are kept, since a duplicate must not execute again (IBTA, ATOMIC operations, duplicate READs).

use std::collections::VecDeque;

use xroce_wire::{AethRepr, AtomicAckRepr, Extension, Fields, Msn, NakCode, Operation, PathMtu, Psn, Rkey, Syndrome};

use crate::context::Context;
use crate::emit;
use crate::io::{Transmit, TxClass, TxSink};
use crate::memory::{Access, MemRef, Pd};
use crate::mutation::{self, Mutation};
use crate::qp::peer::{Peer, opcode};
use crate::qp::segment::{self, Position};
use crate::qp::state::QpType;

/// A READ request as it was accepted: PSNs `psn..psn + psns` carry its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) psn: Psn,
    pub(crate) psns: u32,
    pub(crate) va: u64,
    pub(crate) rkey: Rkey,
    pub(crate) len: u32,
}

/// What waits to be sent.
#[derive(Clone, Copy, Debug)]
enum Response {
    /// Without a refusal an ACK, whose credits are what is free when it leaves.
    Acknowledge {
        psn: Psn,
        refusal: Option<Syndrome>,
        msn: Msn,
    },
    /// `sent` packets of it have left.
    Read {
        read: Read,
        sent: u32,
        msn: Msn,
        request: Request,
    },
    Atomic {
        psn: Psn,
        original: u64,
        msn: Msn,
        request: Request,
    },
}

/// Which accepted request a response belongs to.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// Its first PSN, when it was new.
    psn: Psn,
    /// This response was asked for by a duplicate.
    again: bool,
}

impl Response {
    fn request(&self) -> Option<Request> {
        match self {
            Response::Acknowledge { .. } => None,
            Response::Read { request, .. } | Response::Atomic { request, .. } => Some(*request),
        }
    }
}

/// An operation whose answer may be asked for again.
#[derive(Clone, Copy, Debug)]
enum Saved {
    Read(Read),
    Atomic { psn: Psn, original: u64 },
}

impl Saved {
    fn psn(&self) -> Psn {
        match self {
            Saved::Read(read) => read.psn,
            Saved::Atomic { psn, .. } => *psn,
        }
    }
}

/// What answering needs to know of its queue pair.
pub(crate) struct Answering<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) pd: Pd,
    /// The queue pair's own access flags.
    pub(crate) access: Access,
    /// The syndrome of all that succeeded: every AETH but a NAK's says how many RECVs are free (IBTA, end-to-end credits), those of READ
    /// and atomic responses too. Their MSN may be older than the count, which only says less: what came since has taken its
    /// RECV already.
    pub(crate) done: Syndrome,
}

/// What one call of [`Responses::poll`] did.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A packet was written; `kind` for the counters.
    Sent(Transmit, Syndrome),
    /// Nothing to send.
    Idle,
    /// The port has no room.
    Blocked,
    /// The memory behind a READ that is answered for the first time is gone: a NAK takes its place and the queue pair must fail.
    ReadFault,
}

#[derive(Debug, Default)]
pub(crate) struct Responses {
    queue: VecDeque<Response>,
    saved: VecDeque<Saved>,
    /// Operations that are kept, and responses that may wait: the next power of two of max_dest_rd_atomic, since peers
    /// round up.
    resources: usize,
}

impl Responses {
    /// Room for a peer with this many READs and atomics outstanding. What waits, and what is kept, stays: the peer may
    /// not have its answer yet. Of what is kept beyond the new room the oldest goes, as the peer goes on.
    // rule: rc.resp.rd-atomic, rc.resp.bounded
    pub(crate) fn resize(&mut self, max_dest_rd_atomic: u8) {
        self.resources = match max_dest_rd_atomic {
            0 => 0,
            n => usize::from(n).next_power_of_two(),
        };
        // New requests and duplicates of kept ones, each up to `resources`, a NAK and an ACK before each, and at the end.
        let kept = self.resources.max(self.saved.len());
        self.queue.reserve((6 * kept + 4).saturating_sub(self.queue.len()));
        self.saved.reserve((kept + 1).saturating_sub(self.saved.len()));
    }

    /// Nothing more is answered.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.saved.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Responses that wait to be sent; a READ counts one until all its packets have left.
    pub(crate) fn waiting(&self) -> u32 {
        self.queue.len() as u32
    }

    /// Operations whose answer can be given again.
    pub(crate) fn kept(&self) -> u32 {
        self.saved.len() as u32
    }

    /// What waits is one ACK.
    pub(crate) fn is_one_ack(&self) -> bool {
        self.queue.len() == 1 && matches!(self.queue.front(), Some(Response::Acknowledge { refusal: None, .. }))
    }

    /// What leaves next is an ACK or NAK.
    pub(crate) fn owes_acknowledge(&self) -> bool {
        matches!(self.queue.front(), Some(Response::Acknowledge { .. }))
    }

    /// The peer may not have one more READ or atomic outstanding. Duplicates do not count: their answers may have
    /// arrived meanwhile, and the peer may rightly have started another.
    pub(crate) fn exhausted(&self) -> bool {
        let waiting = self.queue.iter().filter_map(Response::request).filter(|request| !request.again).count();
        waiting >= self.resources
    }

    /// Requests up to `psn` are done. One ACK serves for all that wait, and a NAK that waits stays.
    // rule: rc.resp.ack.coalesced, rc.resp.bounded
    pub(crate) fn acknowledge(&mut self, psn: Psn, msn: Msn) {
        let ack = Response::Acknowledge { psn, refusal: None, msn };
        match self.queue.back_mut() {
            // One for a duplicate may have to stop short of what is owed already.
            Some(Response::Acknowledge { psn: owed, refusal: None, .. }) if owed.distance_from(psn) > 0 => {}
            Some(back @ Response::Acknowledge { refusal: None, .. }) => *back = ack,
            _ => self.push(ack),
        }
    }

    /// The request with `psn` is refused. The NAK acknowledges what lies before, so a waiting ACK is not needed, nor is
    /// a NAK that waits at the end: the newer one says as much.
    // rule: rc.resp.ack.order
    pub(crate) fn nak(&mut self, psn: Psn, msn: Msn, syndrome: Syndrome) {
        self.drop_trailing_ack();
        let nak = Response::Acknowledge { psn, refusal: Some(syndrome), msn };
        match self.queue.back_mut() {
            Some(back @ Response::Acknowledge { .. }) => *back = nak,
            _ => self.push(nak),
        }
    }

    /// A new READ is to be answered.
    pub(crate) fn read(&mut self, read: Read, msn: Msn) {
        self.drop_trailing_ack();
        self.remember(Saved::Read(read));
        self.push(Response::Read { read, sent: 0, msn, request: Request { psn: read.psn, again: false } });
    }

    /// A new atomic was executed.
    pub(crate) fn atomic(&mut self, psn: Psn, original: u64, msn: Msn) {
        self.drop_trailing_ack();
        self.remember(Saved::Atomic { psn, original });
        self.push(Response::Atomic { psn, original, msn, request: Request { psn, again: false } });
    }

    /// A READ that was seen before, whole or from a later packet on. `false` if it is not remembered.
    // rule: rc.resp.dup.read, rc.resp.dup.read.partial, rc.resp.dup.read.foreign, rc.resp.dup.read.restart
    pub(crate) fn read_again(&mut self, again: Read, mtu: PathMtu, msn: Msn) -> bool {
        let inside = |read: &Read| {
            let index = again.psn.distance_from(read.psn);
            let offset = index.max(0) as u64 * mtu.bytes() as u64;
            index >= 0
                && (index as u32) < read.psns
                && again.rkey == read.rkey
                && again.va == read.va.wrapping_add(offset)
                && offset + u64::from(again.len) <= u64::from(read.len)
        };
        let Some(original) = self.saved.iter().rev().find_map(|s| match s {
            Saved::Read(read) if inside(read) => Some(read.psn),
            _ => None,
        }) else {
            return false;
        };
        // Responses that are still going out start over at the requested PSN: one cursor a READ.
        for waiting in &mut self.queue {
            if let Response::Read { read, sent, request, .. } = waiting
                && request.psn == original
            {
                (*read, *sent) = (again, 0);
                return true;
            }
        }
        self.push(Response::Read { read: again, sent: 0, msn, request: Request { psn: original, again: true } });
        true
    }

    /// An atomic that was executed before. `false` if its result is not kept any more.
    // rule: rc.resp.dup.atomic, rc.resp.dup.atomic.old
    pub(crate) fn atomic_again(&mut self, psn: Psn, msn: Msn) -> bool {
        // The newest first: numbers come round, and one of the round before may still be kept.
        let Some(original) = self.saved.iter().rev().find_map(|s| match s {
            Saved::Atomic { psn: p, original } if *p == psn => Some(*original),
            _ => None,
        }) else {
            return false;
        };
        let waits = self.queue.iter().filter_map(Response::request).any(|request| request.psn == psn);
        if !waits {
            self.push(Response::Atomic { psn, original, msn, request: Request { psn, again: true } });
        }
        true
    }

    /// The PSN up to which a duplicate SEND or WRITE with `psn` may be acknowledged: not past a READ or atomic behind
    /// it, whose response may be lost.
    // rule: rc.resp.dup.past-read
    pub(crate) fn ack_limit(&self, psn: Psn, newest: Psn) -> Psn {
        if mutation::is(Mutation::AckPastRead) {
            return newest;
        }
        self.saved
            .iter()
            .map(Saved::psn)
            .find(|p| p.distance_from(psn) > 0 && newest.distance_from(*p) >= 0)
            .map_or(newest, |p| p.sub(1))
    }

    fn drop_trailing_ack(&mut self) {
        if let Some(Response::Acknowledge { refusal: None, .. }) = self.queue.back() {
            self.queue.pop_back();
        }
    }

    fn remember(&mut self, saved: Saved) {
        while self.saved.len() >= self.resources
            && let Some(old) = self.saved.pop_front()
        {
            // The peer went on beyond it, so it has the answer; a duplicate that waits is not needed any more.
            self.queue.retain(|r| r.request().is_none_or(|request| !request.again || request.psn != old.psn()));
        }
        self.saved.push_back(saved);
    }

    /// READs and atomics are bounded by `resources` each way, ACKs and NAKs between them merge; so this never grows beyond
    /// what was reserved.
    fn push(&mut self, response: Response) {
        debug_assert!(self.queue.len() < self.queue.capacity());
        self.queue.push_back(response);
    }

    /// Writes the next response packet.
    // rule: rc.resp.ack.order, rc.resp.read.vanishes
    pub(crate) fn poll<S: TxSink>(&mut self, qp: &Answering<'_>, ctx: &Context<'_>, sink: &mut S) -> Reply {
        let Some(front) = self.queue.front().copied() else { return Reply::Idle };
        let peer = qp.peer;
        let (fields, syndrome) = match front {
            Response::Acknowledge { psn, refusal, msn } => {
                let syndrome = refusal.unwrap_or(qp.done);
                (response(Operation::Acknowledge, psn, Extension::Aeth(AethRepr { syndrome, msn })), syndrome)
            }
            Response::Atomic { psn, original, msn, .. } => {
                let aeth = AethRepr { syndrome: qp.done, msn };
                let extension = Extension::AtomicAck(aeth, AtomicAckRepr { original });
                (response(Operation::AtomicAcknowledge, psn, extension), qp.done)
            }
            Response::Read { read, sent, msn, request } => match source(&read, request, qp, ctx) {
                Ok(source) => return self.poll_read((read, sent, msn), &source, qp, sink),
                Err(code) => return self.refuse_read((read.psn.add(sent), msn), request, code, (qp, ctx), sink),
            },
        };
        let len = peer.template.packet_len(&fields, 0);
        let Some(out) = sink.reserve(peer.path.path, len, TxClass::Response) else { return Reply::Blocked };
        let Ok(()) = emit::packet::<core::convert::Infallible>((&peer.template, &fields), 0, out, |_| Ok(()));
        self.queue.pop_front();
        Reply::Sent(Transmit { path: peer.path.path, len, qpn: peer.local }, syndrome)
    }

    /// The next packet of the READ at the front cannot be built any more: a NAK takes its place.
    // rule: rc.resp.dup.read.vanished
    fn refuse_read<S: TxSink>(
        &mut self,
        (psn, msn): (Psn, Msn),
        request: Request,
        code: NakCode,
        (qp, ctx): (&Answering<'_>, &Context<'_>),
        sink: &mut S,
    ) -> Reply {
        let nak = Response::Acknowledge { psn, refusal: Some(Syndrome::Nak(code)), msn };
        if !request.again {
            self.queue.clear();
            self.push(nak);
            return Reply::ReadFault;
        }
        // It was answered in full before, and its owner may rightly have taken the memory back since: a copy that comes late
        // must end nothing here (IBTA, duplicate requests). A peer that has its answer drops the NAK as stale; one that lost it learns why
        // it gets none, and that what lies before was carried out.
        if let Some(front) = self.queue.front_mut() {
            *front = nak;
        }
        self.poll(qp, ctx, sink)
    }

    /// Packet `sent` of the READ at the front.
    fn poll_read<S: TxSink>(
        &mut self,
        (read, sent, msn): (Read, u32, Msn),
        source: &MemRef,
        qp: &Answering<'_>,
        sink: &mut S,
    ) -> Reply {
        let &Answering { peer, done, .. } = qp;
        let psn = read.psn.add(sent);
        let position = Position::of(sent, read.psns);
        let extension = match position {
            Position::Middle => Extension::None,
            _ => Extension::Aeth(AethRepr { syndrome: done, msn }),
        };
        let fields = response(segment::read_response(position), psn, extension);
        let payload = segment::payload_len(read.len, peer.mtu, sent);
        let len = peer.template.packet_len(&fields, payload);
        let offset = u64::from(sent) * peer.mtu.bytes() as u64;
        let Some(out) = sink.reserve(peer.path.path, len, TxClass::Response) else { return Reply::Blocked };
        let Ok(()) = emit::packet::<core::convert::Infallible>((&peer.template, &fields), payload, out, |writer| {
            writer.copy(source, offset as usize, payload);
            Ok(())
        });
        if position.ends() {
            self.queue.pop_front();
        } else if let Some(Response::Read { sent, .. }) = self.queue.front_mut() {
            *sent += 1;
        }
        Reply::Sent(Transmit { path: peer.path.path, len, qpn: peer.local }, done)
    }
}

/// The memory of a READ. Key and range were checked as a whole when it came; they must still hold for every packet. One that
/// is asked for again is read anew, so what the queue pair allows now counts too.
fn source(read: &Read, request: Request, qp: &Answering<'_>, ctx: &Context<'_>) -> Result<MemRef, NakCode> {
    if request.again && !qp.access.contains(Access::REMOTE_READ) {
        return Err(NakCode::InvalidRequest);
    }
    ctx.memory.remote(qp.pd, read.va, read.len, read.rkey, Access::REMOTE_READ).map_err(|_| NakCode::RemoteAccessError)
}

fn response(operation: Operation, psn: Psn, extension: Extension) -> Fields {
    Fields { extension, ..Fields::new(opcode(QpType::Rc, operation), psn) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers come round: 16 READs and atomics may have all of the 2^24 between them.
    #[test]
    fn of_two_atomics_with_one_number_the_newer_answers() {
        let mut responses = Responses::default();
        responses.resize(4);
        for original in [7, 8] {
            responses.atomic(Psn::new(5), original, Msn::new(0));
        }
        responses.queue.clear();
        assert!(responses.atomic_again(Psn::new(5), Msn::new(0)));
        assert!(matches!(responses.queue.back(), Some(Response::Atomic { original: 8, .. })));
    }
}
