//! The UC receiver: whole messages or nothing, without answers (IBTA, UC responder).
//!
//! In: request packets whose headers, address and ICRC were found good. Out: effects in memory and RECV completions. A
//! gap forgets the open message, and only that one: its RECV stays at the front of the queue for the next.

use xroce_wire::{Operation, Packet, Psn};

use crate::context::Context;
use crate::drop::DropReason;
use crate::event::EventKind;
use crate::mutation::{self, Mutation};
use crate::qp::inbound::{Inbound, Receiving, Refusal};
use crate::qp::responder::Handled;

#[derive(Debug)]
pub(crate) struct UcReceiver {
    epsn: Psn,
    pub(crate) inbound: Inbound,
}

impl UcReceiver {
    pub(crate) fn new() -> UcReceiver {
        UcReceiver { epsn: Psn::new(0), inbound: Inbound::default() }
    }

    /// The first request is expected to carry `rq_psn`.
    pub(crate) fn reset(&mut self, rq_psn: Psn) {
        self.epsn = rq_psn;
        self.inbound.forget();
    }

    /// The PSN that follows the last packet.
    pub(crate) fn epsn(&self) -> Psn {
        self.epsn
    }

    /// A request packet.
    // rule: uc.gap, uc.psn, uc.duplicates, uc.begin-again, uc.orphan
    pub(crate) fn handle_request(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        r: &mut Receiving<'_>,
        ctx: &mut Context<'_>,
    ) -> Handled {
        let psn = packet.psn();
        if psn != self.epsn && !mutation::is(Mutation::UcGapIgnored) {
            r.counters.out_of_seq_request += 1;
            self.give_up(r);
        }
        self.epsn = psn.next();
        if operation.begins_message() {
            // The sender began anew: whatever was open will never be finished. The PSN is taken as it comes.
            self.give_up(r);
        } else if !self.inbound.is_open() {
            return Handled::Dropped(DropReason::UcOutOfSequence);
        }
        match self.inbound.accept(operation, packet, r, ctx) {
            Ok(_) => Handled::Done,
            Err(refusal) => self.refuse(refusal, r),
        }
    }

    fn give_up(&mut self, r: &mut Receiving<'_>) {
        if self.inbound.forget() {
            r.counters.uc_dropped_messages += 1;
            if mutation::is(Mutation::UcRecvNotReused) {
                r.rq.pop();
            }
        }
    }

    /// The message is dropped in silence; only a fault of our own is an error (IBTA, UC responder errors).
    // rule: uc.no-recv, uc.bad-key, uc.bad-length, uc.right, uc.local-fault
    fn refuse(&mut self, refusal: Refusal, r: &mut Receiving<'_>) -> Handled {
        let reason = match refusal {
            Refusal::InvalidRequest => DropReason::InvalidRequest,
            Refusal::BadLength | Refusal::RecvTooShort => DropReason::BadLength,
            Refusal::NotReady => DropReason::ReceiverNotReady,
            Refusal::RemoteAccess | Refusal::InvalidateFault => {
                r.counters.resp_remote_access_errors += 1;
                DropReason::RemoteAccess
            }
            Refusal::RecvFault => {
                let recv = Some(refusal.recv_status());
                return Handled::Fatal { reason: DropReason::LocalFault, recv, event: EventKind::QpFatal };
            }
        };
        self.inbound.forget();
        r.counters.uc_dropped_messages += 1;
        Handled::Dropped(reason)
    }
}
