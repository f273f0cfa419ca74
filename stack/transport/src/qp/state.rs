//! The state machine of a queue pair, as data (IBTA, queue pair states; attribute sets: 11.2.5.2).
//!
//! In: a state and the attributes of a modify call. Out: the state it leads to, or what is wrong with the call. Nothing
//! changes here: whoever owns the QP applies the attributes after [`check`] has passed them.
#![forbid(unsafe_code)]

use crate::memory::Access;
use crate::sync::{AtomicU8, Ordering};
use bitflags::bitflags;
use core::fmt::{self, Write as _};
use xroce_wire::{Gid, PathMtu, Psn, QKey, Qpn};

/// The transport service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
}

impl QpType {
    /// Every service.
    pub const ALL: [QpType; 2] = [QpType::Rc, QpType::Uc];
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QpType::Rc => "RC",
            QpType::Uc => "UC",
        })
    }
}

/// The state of a queue pair: the numbers of `enum ibv_qp_state`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum QpState {
    /// Just made, or cleared. Nothing may be posted.
    Reset = 0,
    /// RECVs may be posted; packets are dropped.
    Init = 1,
    /// Ready to receive: requests are served, none are sent.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue drained: messages begun are finished, none is started.
    Sqd = 4,
    /// Send queue in error; the receive queue goes on. UC only here.
    Sqe = 5,
    /// Error: everything posted is flushed.
    Err = 6,
}

impl QpState {
    /// Every state, in the order of the numbers.
    pub const ALL: [QpState; 7] =
        [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];

    /// The state with this number.
    pub const fn from_u8(value: u8) -> Option<QpState> {
        if (value as usize) < Self::ALL.len() { Some(Self::ALL[value as usize]) } else { None }
    }

    /// Whether a RECV may be posted: from INIT on, also in ERR where it is flushed.
    // rule: qp.posts
    pub const fn may_post_recv(self) -> bool {
        !matches!(self, QpState::Reset)
    }

    /// Whether a send request may be posted: from RTS on; in SQD it waits, in SQE and ERR it is flushed.
    // rule: qp.posts
    pub const fn may_post_send(self) -> bool {
        matches!(self, QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err)
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Sqd => "SQD",
            QpState::Sqe => "SQE",
            QpState::Err => "ERR",
        })
    }
}

/// The path to the peer, as the verbs address handle attributes state it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressVector {
    /// Address of the peer.
    pub dgid: Gid,
    /// Index of our own address in the port's GID table.
    pub sgid_index: u8,
    /// IP time to live or hop limit; 0 leaves the choice to the route.
    pub hop_limit: u8,
    /// IP type of service or traffic class.
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits; also the entropy of the UDP source port.
    pub flow_label: u32,
    /// Service level, 0 to 7: the VLAN priority.
    pub sl: u8,
    /// Port of the device, from 1.
    pub port_num: u8,
    /// Whether the global part (dgid and what follows) is meant. RoCE has no other addressing, so it must be true.
    pub is_global: bool,
}

/// Path migration state: the numbers of `enum ibv_mig_state`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MigState {
    /// On the primary path.
    Migrated = 0,
    /// To be armed when both ends are ready.
    Rearm = 1,
    /// Ready to move to the alternate path.
    Armed = 2,
}

/// The attributes of a modify call. `Some` is what the mask bit of `ibv_modify_qp` is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(clippy::struct_field_names, reason = "the names are those of ibv_qp_attr")]
pub struct QpAttr {
    /// The state to go to; `None` stays where it is.
    pub qp_state: Option<QpState>,
    /// The state the caller believes the QP to be in.
    pub cur_qp_state: Option<QpState>,
    /// Index in the port's P_Key table.
    pub pkey_index: Option<u16>,
    /// Port of the device, from 1.
    pub port_num: Option<u8>,
    /// What the peer may do: the REMOTE rights.
    pub qp_access_flags: Option<Access>,
    /// Queue key, for datagram QPs.
    pub qkey: Option<QKey>,
    /// Path to the peer.
    pub ah_attr: Option<AddressVector>,
    /// Alternate path to the peer.
    pub alt_ah_attr: Option<AddressVector>,
    /// Payload bytes a packet may have; both ends must use the same.
    pub path_mtu: Option<PathMtu>,
    /// The peer's QPN.
    pub dest_qp_num: Option<Qpn>,
    /// PSN of the first packet to come.
    pub rq_psn: Option<Psn>,
    /// PSN of the first packet to send.
    pub sq_psn: Option<Psn>,
    /// READs and atomics we may have outstanding.
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics the peer may have outstanding.
    pub max_dest_rd_atomic: Option<u8>,
    /// RNR timer code, 0 to 31: how long a peer waits that met no RECV.
    pub min_rnr_timer: Option<u8>,
    /// ACK timeout code, 0 to 31: 4.096 µs · 2^timeout; 0 is no timer.
    pub timeout: Option<u8>,
    /// Resends without progress, 0 to 7.
    pub retry_cnt: Option<u8>,
    /// RNR waits without progress, 0 to 7; 7 is without end.
    pub rnr_retry: Option<u8>,
    /// Whether the end of draining (SQD) raises an event.
    pub en_sqd_async_notify: Option<bool>,
    /// Path migration state.
    pub path_mig_state: Option<MigState>,
}

bitflags! {
    /// Which attributes a call carries: the bits of `enum ibv_qp_attr_mask`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct AttrMask: u32 {
        /// `qp_state`
        const QP_STATE = 1;
        /// `cur_qp_state`
        const CUR_QP_STATE = 1 << 1;
        /// `en_sqd_async_notify`
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `qp_access_flags`
        const QP_ACCESS_FLAGS = 1 << 3;
        /// `pkey_index`
        const PKEY_INDEX = 1 << 4;
        /// `port_num`
        const PORT_NUM = 1 << 5;
        /// `qkey`
        const QKEY = 1 << 6;
        /// `ah_attr`
        const AH_ATTR = 1 << 7;
        /// `path_mtu`
        const PATH_MTU = 1 << 8;
        /// `timeout`
        const TIMEOUT = 1 << 9;
        /// `retry_cnt`
        const RETRY_CNT = 1 << 10;
        /// `rnr_retry`
        const RNR_RETRY = 1 << 11;
        /// `rq_psn`
        const RQ_PSN = 1 << 12;
        /// `max_rd_atomic`
        const MAX_RD_ATOMIC = 1 << 13;
        /// `alt_ah_attr`
        const ALT_AH_ATTR = 1 << 14;
        /// `min_rnr_timer`
        const MIN_RNR_TIMER = 1 << 15;
        /// `sq_psn`
        const SQ_PSN = 1 << 16;
        /// `max_dest_rd_atomic`
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `path_mig_state`
        const PATH_MIG_STATE = 1 << 18;
        /// `dest_qp_num`
        const DEST_QP_NUM = 1 << 20;
    }
}

impl fmt::Display for AttrMask {
    /// The names of the attributes as [`QpAttr`] spells them: `timeout, retry_cnt`; `none` if empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (i, (name, _)) in self.iter_names().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            for c in name.chars() {
                f.write_char(c.to_ascii_lowercase())?;
            }
        }
        Ok(())
    }
}

impl QpAttr {
    /// Which attributes are there.
    pub fn mask(&self) -> AttrMask {
        let has = [
            (self.qp_state.is_some(), AttrMask::QP_STATE),
            (self.cur_qp_state.is_some(), AttrMask::CUR_QP_STATE),
            (self.en_sqd_async_notify.is_some(), AttrMask::EN_SQD_ASYNC_NOTIFY),
            (self.qp_access_flags.is_some(), AttrMask::QP_ACCESS_FLAGS),
            (self.pkey_index.is_some(), AttrMask::PKEY_INDEX),
            (self.port_num.is_some(), AttrMask::PORT_NUM),
            (self.qkey.is_some(), AttrMask::QKEY),
            (self.ah_attr.is_some(), AttrMask::AH_ATTR),
            (self.path_mtu.is_some(), AttrMask::PATH_MTU),
            (self.timeout.is_some(), AttrMask::TIMEOUT),
            (self.retry_cnt.is_some(), AttrMask::RETRY_CNT),
            (self.rnr_retry.is_some(), AttrMask::RNR_RETRY),
            (self.rq_psn.is_some(), AttrMask::RQ_PSN),
            (self.max_rd_atomic.is_some(), AttrMask::MAX_RD_ATOMIC),
            (self.alt_ah_attr.is_some(), AttrMask::ALT_AH_ATTR),
            (self.min_rnr_timer.is_some(), AttrMask::MIN_RNR_TIMER),
            (self.sq_psn.is_some(), AttrMask::SQ_PSN),
            (self.max_dest_rd_atomic.is_some(), AttrMask::MAX_DEST_RD_ATOMIC),
            (self.path_mig_state.is_some(), AttrMask::PATH_MIG_STATE),
            (self.dest_qp_num.is_some(), AttrMask::DEST_QP_NUM),
        ];
        has.into_iter().filter(|(present, _)| *present).fold(AttrMask::empty(), |mask, (_, bit)| mask | bit)
    }
}

/// What one service asks of a transition. `qp_state` itself is not listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attrs {
    /// Attributes that must be there.
    pub required: AttrMask,
    /// Attributes that may be there.
    pub optional: AttrMask,
}

/// One line of the table: a step and what each service asks of it; `None` if the service has no such step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// State before.
    pub from: QpState,
    /// State after.
    pub to: QpState,
    /// For reliable connections.
    pub rc: Option<Attrs>,
    /// For unreliable connections.
    pub uc: Option<Attrs>,
}

impl Transition {
    /// What `kind` asks of this step.
    pub const fn attrs(&self, kind: QpType) -> Option<Attrs> {
        match kind {
            QpType::Rc => self.rc,
            QpType::Uc => self.uc,
        }
    }
}

const NONE: AttrMask = AttrMask::empty();
const INIT_SET: AttrMask = AttrMask::PKEY_INDEX.union(AttrMask::PORT_NUM).union(AttrMask::QP_ACCESS_FLAGS);
const UC_RTR_SET: AttrMask =
    AttrMask::AH_ATTR.union(AttrMask::PATH_MTU).union(AttrMask::DEST_QP_NUM).union(AttrMask::RQ_PSN);
const RC_RTR_SET: AttrMask = UC_RTR_SET.union(AttrMask::MAX_DEST_RD_ATOMIC).union(AttrMask::MIN_RNR_TIMER);
const RTR_OPTIONAL: AttrMask = AttrMask::ALT_AH_ATTR.union(AttrMask::QP_ACCESS_FLAGS).union(AttrMask::PKEY_INDEX);
const RC_RTS_SET: AttrMask = AttrMask::SQ_PSN
    .union(AttrMask::TIMEOUT)
    .union(AttrMask::RETRY_CNT)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::MAX_RD_ATOMIC);
const UC_RTS_OPTIONAL: AttrMask = AttrMask::CUR_QP_STATE
    .union(AttrMask::QP_ACCESS_FLAGS)
    .union(AttrMask::ALT_AH_ATTR)
    .union(AttrMask::PATH_MIG_STATE);
const RC_RTS_OPTIONAL: AttrMask = UC_RTS_OPTIONAL.union(AttrMask::MIN_RNR_TIMER);
const UC_SQD_OPTIONAL: AttrMask = AttrMask::PKEY_INDEX
    .union(AttrMask::AH_ATTR)
    .union(AttrMask::ALT_AH_ATTR)
    .union(AttrMask::QP_ACCESS_FLAGS)
    .union(AttrMask::PATH_MIG_STATE);
const RC_SQD_OPTIONAL: AttrMask = UC_SQD_OPTIONAL
    .union(AttrMask::PORT_NUM)
    .union(AttrMask::TIMEOUT)
    .union(AttrMask::RETRY_CNT)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::MAX_RD_ATOMIC)
    .union(AttrMask::MAX_DEST_RD_ATOMIC)
    .union(AttrMask::MIN_RNR_TIMER);
const SQE_OPTIONAL: AttrMask = AttrMask::CUR_QP_STATE.union(AttrMask::QP_ACCESS_FLAGS);

const fn attrs(required: AttrMask, optional: AttrMask) -> Option<Attrs> {
    Some(Attrs { required, optional })
}

/// A step that needs nothing and takes nothing, on either service.
const fn bare(from: QpState, to: QpState) -> Transition {
    Transition { from, to, rc: attrs(NONE, NONE), uc: attrs(NONE, NONE) }
}

const fn step(from: QpState, to: QpState, rc: Option<Attrs>, uc: Option<Attrs>) -> Transition {
    Transition { from, to, rc, uc }
}

/// Every step there is; what is not here is not permitted.
// rule: qp.required, qp.optional, qp.steps
pub const TRANSITIONS: &[Transition] = {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    &[
        step(Reset, Init, attrs(INIT_SET, NONE), attrs(INIT_SET, NONE)),
        step(Init, Init, attrs(NONE, INIT_SET), attrs(NONE, INIT_SET)),
        step(Init, Rtr, attrs(RC_RTR_SET, RTR_OPTIONAL), attrs(UC_RTR_SET, RTR_OPTIONAL)),
        step(Rtr, Rts, attrs(RC_RTS_SET, RC_RTS_OPTIONAL), attrs(AttrMask::SQ_PSN, UC_RTS_OPTIONAL)),
        step(Rts, Rts, attrs(NONE, RC_RTS_OPTIONAL), attrs(NONE, UC_RTS_OPTIONAL)),
        step(Rts, Sqd, attrs(NONE, AttrMask::EN_SQD_ASYNC_NOTIFY), attrs(NONE, AttrMask::EN_SQD_ASYNC_NOTIFY)),
        step(Sqd, Sqd, attrs(NONE, RC_SQD_OPTIONAL), attrs(NONE, UC_SQD_OPTIONAL)),
        step(Sqd, Rts, attrs(NONE, RC_RTS_OPTIONAL), attrs(NONE, UC_RTS_OPTIONAL)),
        // Only unconnected and unreliable services keep their receive queue when the send queue fails.
        step(Sqe, Rts, None, attrs(NONE, SQE_OPTIONAL)),
        bare(Init, Err),
        bare(Rtr, Err),
        bare(Rts, Err),
        bare(Sqd, Err),
        bare(Sqe, Err),
        bare(Err, Err),
        bare(Reset, Reset),
        bare(Init, Reset),
        bare(Rtr, Reset),
        bare(Rts, Reset),
        bare(Sqd, Reset),
        bare(Sqe, Reset),
        bare(Err, Reset),
    ]
};

/// Why a modify call is refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ModifyError {
    /// The state machine has no such step.
    #[error("a {kind} queue pair cannot go from {from} to {to}")]
    NoSuchTransition {
        /// Service of the QP.
        kind: QpType,
        /// State it is in.
        from: QpState,
        /// State it was to go to.
        to: QpState,
    },
    /// The step needs attributes that the call does not carry.
    #[error("{kind} {from} to {to} needs also: {missing}")]
    Missing {
        /// Service of the QP.
        kind: QpType,
        /// State it is in.
        from: QpState,
        /// State it was to go to.
        to: QpState,
        /// All that is missing.
        missing: AttrMask,
    },
    /// The call carries attributes that the step does not take.
    #[error("{kind} {from} to {to} does not take: {extra}")]
    NotPermitted {
        /// Service of the QP.
        kind: QpType,
        /// State it is in.
        from: QpState,
        /// State it was to go to.
        to: QpState,
        /// All that is too much.
        extra: AttrMask,
    },
    /// `cur_qp_state` is not the state the QP is in.
    #[error("cur_qp_state is {given}, but the queue pair is in {actual}")]
    NotInThatState {
        /// What the caller believes.
        given: QpState,
        /// What is so.
        actual: QpState,
    },
    /// A value lies outside its range.
    #[error("{attribute} is {value}; it must be {min} to {max}")]
    OutOfRange {
        /// The attribute.
        attribute: &'static str,
        /// Its value.
        value: u32,
        /// Smallest value allowed.
        min: u32,
        /// Largest value allowed.
        max: u32,
    },
    /// An address vector without its global part.
    #[error("{attribute}.is_global is false: RoCE needs a GRH; set is_global, dgid and sgid_index")]
    NoGrh {
        /// The attribute.
        attribute: &'static str,
    },
}

/// Checks a modify call against [`TRANSITIONS`] and the ranges of values; gives the state it leads to.
///
/// # Errors
/// See [`ModifyError`]; missing attributes are named before those that are too many, and both before values.
// rule: qp.required, qp.not-permitted, qp.steps
pub fn check(kind: QpType, current: QpState, attr: &QpAttr) -> Result<QpState, ModifyError> {
    let (from, to) = (current, attr.qp_state.unwrap_or(current));
    let line = TRANSITIONS.iter().find(|line| line.from == from && line.to == to);
    let Some(attrs) = line.and_then(|line| line.attrs(kind)) else {
        return Err(ModifyError::NoSuchTransition { kind, from, to });
    };
    let mask = attr.mask() - AttrMask::QP_STATE;
    let missing = attrs.required - mask;
    if !missing.is_empty() {
        return Err(ModifyError::Missing { kind, from, to, missing });
    }
    let extra = mask - attrs.required - attrs.optional;
    if !extra.is_empty() {
        return Err(ModifyError::NotPermitted { kind, from, to, extra });
    }
    if let Some(given) = attr.cur_qp_state.filter(|given| *given != current) {
        return Err(ModifyError::NotInThatState { given, actual: current });
    }
    check_values(attr)?;
    Ok(to)
}

// rule: qp.ranges
fn check_values(attr: &QpAttr) -> Result<(), ModifyError> {
    // The widths of the fields: IBTA 11.2.5.2 (attributes), local ACK timeout, RNR NAK timer.
    in_range("timeout", attr.timeout, 0, 31)?;
    in_range("retry_cnt", attr.retry_cnt, 0, 7)?;
    in_range("rnr_retry", attr.rnr_retry, 0, 7)?;
    in_range("min_rnr_timer", attr.min_rnr_timer, 0, 31)?;
    in_range("port_num", attr.port_num, 1, 255)?;
    check_path(["ah_attr", "ah_attr.flow_label", "ah_attr.sl", "ah_attr.port_num"], attr.ah_attr)?;
    check_path(["alt_ah_attr", "alt_ah_attr.flow_label", "alt_ah_attr.sl", "alt_ah_attr.port_num"], attr.alt_ah_attr)
}

fn check_path(names: [&'static str; 4], path: Option<AddressVector>) -> Result<(), ModifyError> {
    let Some(path) = path else { return Ok(()) };
    if !path.is_global {
        return Err(ModifyError::NoGrh { attribute: names[0] });
    }
    in_range(names[1], Some(path.flow_label), 0, 0xF_FFFF)?;
    in_range(names[2], Some(path.sl), 0, 7)?;
    in_range(names[3], Some(path.port_num), 1, 255)
}

fn in_range(attribute: &'static str, value: Option<impl Into<u32>>, min: u32, max: u32) -> Result<(), ModifyError> {
    match value.map(Into::into) {
        Some(value) if value < min || value > max => Err(ModifyError::OutOfRange { attribute, value, min, max }),
        _ => Ok(()),
    }
}

/// [`TRANSITIONS`] as a Markdown table, for the documentation.
pub fn table_markdown() -> String {
    let mut text = String::from("| step | service | required | optional |\n|---|---|---|---|\n");
    for line in TRANSITIONS {
        if line.rc == line.uc {
            row(&mut text, line, "RC, UC", line.rc);
        } else {
            row(&mut text, line, "RC", line.rc);
            row(&mut text, line, "UC", line.uc);
        }
    }
    text
}

fn row(text: &mut String, line: &Transition, service: &str, attrs: Option<Attrs>) {
    let Some(attrs) = attrs else { return };
    let Transition { from, to, .. } = line;
    let Attrs { required, optional } = attrs;
    // Writing into a String cannot fail.
    let _ = writeln!(text, "| {from} → {to} | {service} | {required} | {optional} |");
}

/// The state as other threads see it: the owner of the QP stores it, a post reads it.
#[derive(Debug)]
pub struct SharedState(AtomicU8);

impl SharedState {
    /// A state to share.
    pub const fn new(state: QpState) -> SharedState {
        SharedState(AtomicU8::new(state as u8))
    }

    /// The newest state published; all that its owner did before is visible.
    #[inline]
    pub fn load(&self) -> QpState {
        // Only `store` writes, so the number is always one of a state; ERR is the safe reading of anything else.
        QpState::from_u8(self.0.load(Ordering::Acquire)).unwrap_or(QpState::Err)
    }

    /// Publishes a state, and all that was done before.
    #[inline]
    pub fn store(&self, state: QpState) {
        self.0.store(state as u8, Ordering::Release);
    }
}

impl Default for SharedState {
    fn default() -> Self {
        SharedState::new(QpState::Reset)
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
