//! What a modify call does to a queue pair after the table in [`state`](super::state) has passed it.

use thiserror::Error;
use xroce_wire::{PKey, Psn, RnrTimer};

use crate::config::Limits;
use crate::context::Context;
use crate::io::QpPath;
use crate::mutation::{self, Mutation};
use crate::qp::peer::Peer;
use crate::qp::queue_pair::{Inward, Qp};
use crate::qp::state::{self, ModifyError, QpAttr, QpState};
use crate::trace::QpSpan;

/// Why a modify call changed nothing.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ModifyQpError {
    /// There is no such queue pair.
    #[error("there is no queue pair with this number")]
    NoSuchQp,
    /// The table has no such step, or an attribute is missing, not permitted or out of range.
    #[error(transparent)]
    State(#[from] ModifyError),
    /// More READs and atomics than the device serves.
    #[error("{name} {value} is more than the device's {max}: ask for {max} or less")]
    Limit {
        /// The attribute.
        name: &'static str,
        /// What was asked for.
        value: u8,
        /// What the device has.
        max: u8,
    },
    /// An address vector came without its resolved path.
    #[error("ah_attr was given without the next hop that it resolves to")]
    PathMissing,
}

impl Qp {
    /// Checks the call as a whole, then applies it. Nothing changes on an error.
    pub(crate) fn modify(
        &mut self,
        attr: &QpAttr,
        path: Option<QpPath>,
        ctx: &mut Context<'_>,
    ) -> Result<(), ModifyQpError> {
        let from = self.state;
        let to = state::check(self.kind, from, attr)?;
        check_limits(attr, ctx.limits)?;
        if attr.ah_attr.is_some() && path.is_none() {
            return Err(ModifyQpError::PathMissing);
        }
        if to == QpState::Reset {
            self.reset();
            return Ok(());
        }
        if !(from == QpState::Sqd && to == from && mutation::is(Mutation::SqdAttributesIgnored)) {
            merge(&mut self.attr, attr);
            self.apply(attr, path);
        }
        match (from, to) {
            (_, QpState::Err) => self.enter_error(ctx, false),
            (QpState::Init, QpState::Rtr) => self.ready_to_receive(),
            (QpState::Rtr, QpState::Rts) => self.ready_to_send(),
            (QpState::Sqd, QpState::Sqd) if attr.timeout.is_some() => {
                let awaited = self.requester.outstanding(&self.unacked).len > 0;
                self.completer.retime(ctx.now, awaited);
            }
            (QpState::Rts, QpState::Sqd) => self.notify_drained = attr.en_sqd_async_notify.unwrap_or(false),
            _ => {}
        }
        self.set_state(to);
        self.check_drained(ctx);
        Ok(())
    }

    /// Everything is forgotten, without completions; those not yet polled are gone too (IBTA, RESET state).
    // rule: qp.reset, wc.reset
    fn reset(&mut self) {
        self.set_state(QpState::Reset);
        self.attr = QpAttr::default();
        self.peer = None;
        self.sq.reset();
        self.rq.reset();
        self.unacked.reset(Psn::new(0));
        self.requester.reset(Psn::new(0));
        self.completer.reset();
        match &mut self.inward {
            Inward::Rc(responder) => responder.reset(Psn::new(0), 0),
            Inward::Uc(receiver) => receiver.reset(Psn::new(0)),
        }
        self.established = false;
        (self.fault, self.span) = (None, QpSpan::new(self.qpn));
        self.send_cq.purge(self.qpn);
        self.recv_cq.purge(self.qpn);
    }

    /// Attributes that act at once, in whatever state they are allowed.
    // rule: qp.optional, qp.sqd
    fn apply(&mut self, attr: &QpAttr, path: Option<QpPath>) {
        if let Some(access) = attr.qp_access_flags {
            self.access = access;
        }
        if let (Some(path), Some(mtu), Some(dest)) = (path, self.attr.path_mtu, self.attr.dest_qp_num) {
            self.span.connected(dest, &path);
            self.peer = Some(Peer::new(path, mtu, self.qpn, dest, PKey::DEFAULT));
        }
        if let (Inward::Rc(responder), Some(timer)) = (&mut self.inward, attr.min_rnr_timer.and_then(RnrTimer::new)) {
            responder.min_rnr_timer = timer;
        }
        if let (QpState::Sqd, Inward::Rc(responder), Some(n)) = (self.state, &mut self.inward, attr.max_dest_rd_atomic)
        {
            responder.set_max_dest_rd_atomic(n);
        }
        if attr.timeout.is_some() || attr.retry_cnt.is_some() || attr.rnr_retry.is_some() {
            let of = |value: Option<u8>| value.unwrap_or(0);
            self.completer.configure(of(self.attr.timeout), of(self.attr.retry_cnt), of(self.attr.rnr_retry));
        }
    }

    fn ready_to_receive(&mut self) {
        let rq_psn = self.attr.rq_psn.unwrap_or(Psn::new(0));
        match &mut self.inward {
            Inward::Rc(responder) => responder.reset(rq_psn, self.attr.max_dest_rd_atomic.unwrap_or(0)),
            Inward::Uc(receiver) => receiver.reset(rq_psn),
        }
    }

    fn ready_to_send(&mut self) {
        let sq_psn = self.attr.sq_psn.unwrap_or(Psn::new(0));
        self.unacked.reset(sq_psn);
        self.requester.reset(sq_psn);
        self.completer.reset();
    }
}

fn check_limits(attr: &QpAttr, limits: &Limits) -> Result<(), ModifyQpError> {
    let checks = [
        ("max_rd_atomic", attr.max_rd_atomic, limits.max_qp_init_rd_atom),
        ("max_dest_rd_atomic", attr.max_dest_rd_atomic, limits.max_qp_rd_atom),
    ];
    for (name, value, max) in checks {
        if let Some(value) = value.filter(|v| *v > max) {
            return Err(ModifyQpError::Limit { name, value, max });
        }
    }
    Ok(())
}

/// What has been set so far, for `query_qp` and for values that take effect in a later step.
fn merge(kept: &mut QpAttr, new: &QpAttr) {
    macro_rules! take {
        ($($field:ident)*) => { $(if new.$field.is_some() { kept.$field = new.$field; })* };
    }
    take! {
        pkey_index port_num qp_access_flags qkey ah_attr alt_ah_attr path_mtu dest_qp_num rq_psn sq_psn max_rd_atomic
        max_dest_rd_atomic min_rnr_timer timeout retry_cnt rnr_retry en_sqd_async_notify path_mig_state
    }
}
