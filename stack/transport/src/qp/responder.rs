//! The RC responder: PSN order, duplicates, execution and what is answered (IBTA, responder, acknowledge messages).
//!
//! In: request packets whose headers, address and ICRC were found good. Out: effects in memory, RECV completions, and
//! responses to send. A packet ahead of its turn is answered by one NAK, one behind by its old answer.

use xroce_wire::{Msn, NakCode, Operation, Packet, Psn, RnrTimer, Syndrome, credit};

use crate::context::Context;
use crate::drop::DropReason;
use crate::event::EventKind;
use crate::memory::Access;
use crate::mutation::{self, Mutation};
use crate::qp::inbound::{Inbound, Receiving, Refusal};
use crate::qp::responses::{Read, Responses};
use crate::qp::segment;
use crate::qp::snapshot::NakState;
use crate::wc::WcStatus;
use crate::wq::RqConsumer;

/// What a request did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    /// It was executed or answered again.
    Done,
    /// It changed nothing.
    Dropped(DropReason),
    /// It was refused for good: the queue pair goes to ERR once the NAK has left. `recv` is the status of the RECV in
    /// use; without one the application learns it by `event`.
    Fatal { reason: DropReason, recv: Option<WcStatus>, event: EventKind },
}

/// After a NAK the responder is silent until the expected PSN comes (IBTA, PSN sequence error).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Silence {
    No,
    AfterSequenceNak,
    AfterRnrNak,
}

#[derive(Debug)]
pub(crate) struct Responder {
    epsn: Psn,
    msn: Msn,
    silence: Silence,
    pub(crate) inbound: Inbound,
    pub(crate) responses: Responses,
    pub(crate) min_rnr_timer: RnrTimer,
    max_dest_rd_atomic: u8,
}

impl Responder {
    pub(crate) fn new(min_rnr_timer: RnrTimer) -> Responder {
        Responder {
            epsn: Psn::new(0),
            msn: Msn::new(0),
            silence: Silence::No,
            inbound: Inbound::default(),
            responses: Responses::default(),
            min_rnr_timer,
            max_dest_rd_atomic: 0,
        }
    }

    /// The first request will carry `rq_psn`.
    pub(crate) fn reset(&mut self, rq_psn: Psn, max_dest_rd_atomic: u8) {
        (self.epsn, self.msn, self.silence) = (rq_psn, Msn::new(0), Silence::No);
        self.inbound.forget();
        self.responses.clear();
        self.set_max_dest_rd_atomic(max_dest_rd_atomic);
    }

    /// Changes the resources for READs and atomics. What the peer is owed stays owed.
    pub(crate) fn set_max_dest_rd_atomic(&mut self, value: u8) {
        self.max_dest_rd_atomic = value;
        self.responses.resize(value);
    }

    /// The PSN that the next new request has.
    pub(crate) fn epsn(&self) -> Psn {
        self.epsn
    }

    /// Messages done.
    pub(crate) fn msn(&self) -> Msn {
        self.msn
    }

    /// Which NAK it is silent after.
    pub(crate) fn nak_state(&self) -> NakState {
        match self.silence {
            Silence::No => NakState::None,
            Silence::AfterSequenceNak => NakState::Sequence,
            Silence::AfterRnrNak => NakState::Rnr,
        }
    }

    /// A request packet.
    // rule: rc.resp.psn, rc.resp.silence
    pub(crate) fn handle_request(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        r: &mut Receiving<'_>,
        ctx: &mut Context<'_>,
    ) -> Handled {
        let distance = match mutation::is(Mutation::NoWrap) {
            true => packet.psn().value() as i32 - self.epsn.value() as i32,
            false => packet.psn().distance_from(self.epsn),
        };
        match distance {
            _ if distance < 0 && mutation::is(Mutation::DuplicateExecuted) => self.execute(operation, packet, r, ctx),
            0 => {
                self.silence = Silence::No;
                self.execute(operation, packet, r, ctx)
            }
            1.. => self.ahead(r),
            _ => self.duplicate(operation, packet, r, ctx),
        }
    }

    /// One NAK for the first packet ahead; the rest is dropped silently.
    // rule: rc.resp.nak-seq, rc.resp.silence
    fn ahead(&mut self, r: &mut Receiving<'_>) -> Handled {
        r.counters.out_of_seq_request += 1;
        if self.silence == Silence::No {
            self.silence = Silence::AfterSequenceNak;
            r.counters.nak_seq_sent += 1;
            self.responses.nak(self.epsn, self.msn, Syndrome::Nak(NakCode::PsnSequenceError));
        }
        Handled::Dropped(DropReason::PsnAhead)
    }

    // rule: rc.resp.not-offered
    fn execute(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        r: &mut Receiving<'_>,
        ctx: &mut Context<'_>,
    ) -> Handled {
        let result = match operation {
            Operation::ReadRequest => self.read(packet, r, ctx),
            Operation::CompareSwap | Operation::FetchAdd => self.atomic(operation, packet, r, ctx),
            _ if operation.is_send() || operation.is_write() => self.message(operation, packet, r, ctx),
            _ => Err(Refusal::InvalidRequest),
        };
        match result {
            Ok(()) => Handled::Done,
            Err(refusal) => self.refuse(packet.psn(), refusal, r),
        }
    }

    /// SEND or WRITE.
    // rule: rc.resp.ack, rc.resp.msn
    fn message(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        r: &mut Receiving<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<(), Refusal> {
        let ended = self.inbound.accept(operation, packet, r, ctx)?;
        let psn = self.epsn;
        self.epsn = self.epsn.next();
        if ended {
            self.msn = self.msn.add(1);
        }
        if packet.ack_req() {
            let psn = psn.add(u32::from(mutation::is(Mutation::AckOneTooMany)));
            self.responses.acknowledge(psn, self.msn);
        }
        Ok(())
    }

    // rule: rc.resp.msn, rc.resp.length.huge, rc.resp.key, rc.resp.key.range, rc.resp.zero-length
    fn read(&mut self, packet: &Packet<'_>, r: &mut Receiving<'_>, ctx: &mut Context<'_>) -> Result<(), Refusal> {
        let reth = packet.reth().ok_or(Refusal::InvalidRequest)?;
        self.may_execute(r, Access::REMOTE_READ)?;
        if u64::from(reth.len) > ctx.limits.max_msg_sz {
            return Err(Refusal::BadLength);
        }
        if reth.len > 0 {
            ctx.memory
                .remote(r.pd, reth.va, reth.len, reth.rkey, Access::REMOTE_READ)
                .map_err(|_| Refusal::RemoteAccess)?;
        }
        let psns = segment::packets(reth.len, r.mtu);
        self.msn = self.msn.add(1);
        r.counters.rx_read_requests += 1;
        self.responses.read(Read { psn: self.epsn, psns, va: reth.va, rkey: reth.rkey, len: reth.len }, self.msn);
        self.epsn = self.epsn.add(psns);
        Ok(())
    }

    fn atomic(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        r: &mut Receiving<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<(), Refusal> {
        self.may_execute(r, Access::REMOTE_ATOMIC)?;
        let original = change_word(operation, packet, r, ctx)?;
        self.msn = self.msn.add(1);
        r.counters.rx_atomic_requests += 1;
        self.responses.atomic(self.epsn, original, self.msn);
        self.epsn = self.epsn.next();
        Ok(())
    }

    /// READs and atomics: between messages only, allowed on this queue pair, and within its resources.
    // rule: rc.resp.order, rc.resp.qp-right, rc.resp.rd-atomic
    fn may_execute(&self, r: &Receiving<'_>, right: Access) -> Result<(), Refusal> {
        let right = r.access.contains(right) || mutation::is(Mutation::QpRightsIgnored);
        let allowed = right && self.max_dest_rd_atomic > 0;
        if self.inbound.is_open() || !allowed || self.responses.exhausted() {
            return Err(Refusal::InvalidRequest);
        }
        Ok(())
    }

    /// The NAK that a refusal is answered with; all but "not ready" end the connection (IBTA, NAK).
    // rule: rc.resp.rnr, rc.resp.fatal.event
    fn refuse(&mut self, psn: Psn, refusal: Refusal, r: &mut Receiving<'_>) -> Handled {
        let (code, reason, event) = match refusal {
            Refusal::NotReady => {
                self.silence = Silence::AfterRnrNak;
                r.counters.send_rnr_err += 1;
                self.responses.nak(psn, self.msn, Syndrome::RnrNak(self.min_rnr_timer));
                return Handled::Dropped(DropReason::ReceiverNotReady);
            }
            Refusal::InvalidRequest => (NakCode::InvalidRequest, DropReason::InvalidRequest, EventKind::QpReqErr),
            Refusal::BadLength | Refusal::RecvTooShort => {
                (NakCode::InvalidRequest, DropReason::BadLength, EventKind::QpReqErr)
            }
            Refusal::RemoteAccess | Refusal::InvalidateFault => {
                r.counters.resp_remote_access_errors += 1;
                (NakCode::RemoteAccessError, DropReason::RemoteAccess, EventKind::QpAccessErr)
            }
            Refusal::RecvFault => (NakCode::RemoteOperationalError, DropReason::LocalFault, EventKind::QpFatal),
        };
        self.responses.nak(psn, self.msn, Syndrome::Nak(code));
        let in_use = self.inbound.holds_recv() || refusal.spoils_recv();
        Handled::Fatal { reason, recv: in_use.then(|| refusal.recv_status()), event }
    }

    /// A request that was executed before: answered again, never executed again (IBTA, duplicate requests).
    // rule: rc.resp.dup.message, rc.resp.dup.no-ack, rc.resp.nak-seq.again
    fn duplicate(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        r: &mut Receiving<'_>,
        ctx: &Context<'_>,
    ) -> Handled {
        r.counters.duplicate_request += 1;
        // The peer went back: if our NAK or the first packet after it is lost again, say so again.
        if self.silence == Silence::AfterSequenceNak {
            self.silence = Silence::No;
        }
        let psn = packet.psn();
        let answered = match operation {
            Operation::ReadRequest => packet.reth().is_some_and(|reth| {
                let psns = segment::packets(reth.len, r.mtu);
                let again = Read { psn, psns, va: reth.va, rkey: reth.rkey, len: reth.len };
                self.responses.read_again(again, r.mtu, self.msn)
            }),
            Operation::CompareSwap | Operation::FetchAdd => {
                if mutation::is(Mutation::AtomicExecutedAgain) {
                    let _ = change_word(operation, packet, r, ctx);
                }
                self.responses.atomic_again(psn, self.msn)
            }
            _ => {
                if packet.ack_req() {
                    let limit = self.responses.ack_limit(psn, self.epsn.sub(1));
                    self.responses.acknowledge(limit, self.msn);
                }
                true
            }
        };
        if answered { Handled::Done } else { Handled::Dropped(DropReason::DuplicateTooOld) }
    }
}

/// Carries out an atomic on the word it names; gives the old value.
// rule: rc.resp.atomic, rc.resp.atomic.aligned
fn change_word(
    operation: Operation,
    packet: &Packet<'_>,
    r: &Receiving<'_>,
    ctx: &Context<'_>,
) -> Result<u64, Refusal> {
    let atomic = packet.atomic_eth().ok_or(Refusal::InvalidRequest)?;
    // IBTA, ATOMIC operations: the address is naturally aligned.
    if atomic.va % 8 != 0 {
        return Err(Refusal::InvalidRequest);
    }
    let target =
        ctx.memory.remote(r.pd, atomic.va, 8, atomic.rkey, Access::REMOTE_ATOMIC).map_err(|_| Refusal::RemoteAccess)?;
    match operation {
        Operation::CompareSwap => target.atomic_cmp_swap(atomic.compare, atomic.swap_add),
        _ => target.atomic_fetch_add(atomic.swap_add),
    }
    .ok_or(Refusal::RemoteAccess)
}

/// The syndrome of what succeeded: "no credits given", or what the free RECVs are worth.
// rule: rc.resp.credits
pub(crate) fn done(rq: &RqConsumer, ctx: &Context<'_>) -> Syndrome {
    Syndrome::Ack { credits: if ctx.credits { credit::code_for(rq.len()) } else { credit::UNLIMITED } }
}
