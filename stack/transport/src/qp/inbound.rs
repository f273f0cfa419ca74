//! A message on its way in, the same for RC and UC: opcode order, lengths, rights, and where its bytes go
//! (IBTA, responder).
//!
//! In: request packets that are next in order. Out: bytes in memory and RECV completions, or a [`Refusal`]. What a
//! refusal means (a NAK or silence) is the caller's.

use std::sync::Arc;

use xroce_wire::{ImmData, Operation, Packet, PathMtu, Qpn, RethRepr};

use crate::context::Context;
use crate::counters::QpCounters;
use crate::cq::Cq;
use crate::memory::{Access, Pd};
use crate::mutation::{self, Mutation};
use crate::qp::sge;
use crate::wc::{Wc, WcFlags, WcOpcode, WcStatus};
use crate::wq::RqConsumer;

/// The parts of a queue pair that a message coming in works on.
pub(crate) struct Receiving<'a> {
    pub(crate) qpn: Qpn,
    pub(crate) peer_qpn: Qpn,
    pub(crate) pd: Pd,
    pub(crate) mtu: PathMtu,
    /// The queue pair's own access flags, beside those of a memory region.
    pub(crate) access: Access,
    pub(crate) recv_cq: &'a Arc<Cq>,
    pub(crate) rq: &'a mut RqConsumer,
    pub(crate) counters: &'a mut QpCounters,
}

/// Why a packet that was next in order is not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The opcode does not follow the last one, or the queue pair does not allow the operation.
    InvalidRequest,
    /// A length is wrong: of the packet for its opcode, or of the message for its RETH.
    BadLength,
    /// No RECV.
    NotReady,
    /// The message is longer than the RECV.
    RecvTooShort,
    /// R_Key, range or right.
    RemoteAccess,
    /// The RECV's own buffer cannot be written.
    RecvFault,
    /// The key that a SEND with Invalidate names cannot be invalidated.
    InvalidateFault,
}

impl Refusal {
    /// The status of the RECV that was in use, if the responder fails for this (IBTA, completion errors).
    // rule: rc.resp.recv-fault, uc.local-fault
    pub(crate) fn recv_status(self) -> WcStatus {
        match self {
            Refusal::RecvTooShort => WcStatus::LocLenErr,
            Refusal::RecvFault => WcStatus::LocProtErr,
            Refusal::InvalidateFault => WcStatus::LocAccessErr,
            Refusal::RemoteAccess => WcStatus::RemAccessErr,
            Refusal::InvalidRequest | Refusal::BadLength | Refusal::NotReady => WcStatus::RemInvReqErr,
        }
    }

    /// The refusal concerns a RECV that was taken.
    pub(crate) fn spoils_recv(self) -> bool {
        matches!(self, Refusal::RecvTooShort | Refusal::RecvFault | Refusal::InvalidateFault)
    }
}

/// A message whose last packet has not come.
#[derive(Clone, Copy, Debug)]
enum Open {
    Send { received: u64 },
    Write { reth: RethRepr, received: u64 },
}

/// The message that is coming in, if one is.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    open: Option<Open>,
}

impl Inbound {
    /// Forgets the open message. Its RECV was not taken off the queue and serves the next one.
    pub(crate) fn forget(&mut self) -> bool {
        self.open.take().is_some()
    }

    /// A message is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Bytes that have come of the open message.
    pub(crate) fn open_bytes(&self) -> Option<u64> {
        self.open.map(|open| match open {
            Open::Send { received } | Open::Write { received, .. } => received,
        })
    }

    /// An open SEND has a RECV in use.
    pub(crate) fn holds_recv(&self) -> bool {
        matches!(self.open, Some(Open::Send { .. }))
    }

    /// Executes a SEND or WRITE packet that is next in order. `Ok(true)` when it ended its message.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        r: &mut Receiving<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<bool, Refusal> {
        if !self.follows(operation) {
            return Err(Refusal::InvalidRequest);
        }
        if operation.is_send() { self.send(operation, packet, r, ctx) } else { self.write(operation, packet, r, ctx) }
    }

    /// The opcode may come after what came before (IBTA, opcode sequence).
    // rule: rc.resp.order
    pub(crate) fn follows(&self, operation: Operation) -> bool {
        match self.open {
            None => operation.begins_message(),
            Some(Open::Send { .. }) => operation.is_send() && !operation.begins_message(),
            Some(Open::Write { .. }) => operation.is_write() && !operation.begins_message(),
        }
    }

    // rule: rc.resp.rnr, rc.resp.rnr.one-recv, rc.resp.length.recv, rc.resp.inv, rc.resp.inv.refused, rx.order
    fn send(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        r: &mut Receiving<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<bool, Refusal> {
        let received = match self.open {
            Some(Open::Send { received }) => received,
            _ => 0,
        };
        let Some(recv) = r.rq.front() else { return Err(Refusal::NotReady) };
        let len = packet_length_fits(operation, packet, r.mtu)? as u64;
        let fits = received + len <= recv.length.min(ctx.limits.max_msg_sz);
        if !fits && !mutation::is(Mutation::RecvLengthNotChecked) {
            return Err(Refusal::RecvTooShort);
        }
        if len > 0 {
            sge::scatter(ctx.memory, r.pd, recv.sges(), received, packet.payload()).map_err(|_| Refusal::RecvFault)?;
        }
        if !operation.ends_message() {
            self.open = Some(Open::Send { received: received + len });
            return Ok(false);
        }
        let mut wc = Wc { opcode: WcOpcode::Recv, byte_len: (received + len) as u32, ..Wc::default() };
        if let Some(rkey) = packet.ieth() {
            if !mutation::is(Mutation::InvalidateForgotten) {
                ctx.memory.invalidate_remote(r.pd, rkey).map_err(|_| Refusal::InvalidateFault)?;
            }
            wc.flags |= WcFlags::WITH_INV;
            wc.imm = ImmData(rkey.0);
        }
        self.open = None;
        complete_recv(r, ctx, wc, packet);
        Ok(true)
    }

    // rule: rc.resp.rnr.write-imm, rc.resp.qp-right, rc.resp.length.message, rc.resp.key.again, rc.resp.key.right
    // rule: rc.resp.key.domain, uc.write.partial, uc.write-imm, uc.zero-length
    fn write(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        r: &mut Receiving<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<bool, Refusal> {
        if !r.access.contains(Access::REMOTE_WRITE) && !mutation::is(Mutation::QpRightsIgnored) {
            return Err(Refusal::InvalidRequest);
        }
        // Before anything is written: no RECV means that nothing has happened (IBTA, RNR NAK).
        if operation.has_imm() && r.rq.front().is_none() {
            return Err(Refusal::NotReady);
        }
        let (reth, received) = match &self.open {
            Some(Open::Write { reth, received }) => (*reth, *received),
            _ => (packet.reth().ok_or(Refusal::InvalidRequest)?, 0),
        };
        let len = packet_length_fits(operation, packet, r.mtu)? as u64;
        let total = u64::from(reth.len);
        let in_message = received + len;
        let complete = if operation.ends_message() { in_message == total } else { in_message < total };
        if !complete || total > ctx.limits.max_msg_sz {
            return Err(Refusal::BadLength);
        }
        if total > 0 {
            let target = ctx
                .memory
                .remote(r.pd, reth.va, reth.len, reth.rkey, Access::REMOTE_WRITE)
                .map_err(|_| Refusal::RemoteAccess)?;
            let (head, tail) = packet.payload();
            target.write(received as usize, head);
            if !tail.is_empty() && !mutation::is(Mutation::TailDropped) {
                target.write(received as usize + head.len(), tail);
            }
        }
        if !operation.ends_message() {
            match &mut self.open {
                Some(Open::Write { received, .. }) => *received = in_message,
                open => *open = Some(Open::Write { reth, received: in_message }),
            }
            return Ok(false);
        }
        self.open = None;
        r.counters.rx_write_requests += 1;
        if operation.has_imm() {
            let wc = Wc { opcode: WcOpcode::RecvRdmaWithImm, byte_len: reth.len, ..Wc::default() };
            complete_recv(r, ctx, wc, packet);
        }
        Ok(true)
    }
}

/// The payload has a length that its opcode allows, and the pad that the length asks for (IBTA, length validation).
// rule: rc.resp.length.packet, rc.resp.length.pad
fn packet_length_fits(operation: Operation, packet: &Packet<'_>, mtu: PathMtu) -> Result<usize, Refusal> {
    let len = packet.payload_len();
    let mtu = mtu.bytes();
    let fits = match (operation.begins_message(), operation.ends_message()) {
        (_, false) => len == mtu,
        (false, true) => (1..=mtu).contains(&len),
        (true, true) => len <= mtu,
    };
    let pad = usize::from(packet.pad()) == (len.wrapping_neg() & 3);
    if fits && pad { Ok(len) } else { Err(Refusal::BadLength) }
}

/// The RECV at the front is done: fills in what every such completion has.
// rule: rc.resp.recv, rc.resp.solicited, uc.recv
fn complete_recv(r: &mut Receiving<'_>, ctx: &mut Context<'_>, mut wc: Wc, packet: &Packet<'_>) {
    let Some(recv) = r.rq.front() else { return };
    wc.wr_id = recv.wr_id;
    wc.status = WcStatus::Success;
    (wc.qpn, wc.src_qp) = (r.qpn, r.peer_qpn);
    if let Some(imm) = packet.imm() {
        wc.flags |= WcFlags::WITH_IMM;
        wc.imm = imm;
    }
    let freed = r.rq.pop();
    r.counters.rdma_recvs += 1;
    ctx.complete(freed, r.recv_cq, wc, packet.solicited());
}
