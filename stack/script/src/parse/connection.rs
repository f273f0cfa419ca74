//! The queue pair: the `qp` line and `modify`.

use super::line::{Line, Result, Word, Words};
use super::post::refused;
use crate::model::{Modify, QpSetup};
use crate::names;
use xroce_transport::qp::state::{AddressVector, QpAttr, QpType};
use xroce_wire::{PathMtu, Psn, QKey, Qpn};

const QP_FIELDS: &[&str] = &[
    "state",
    "peer",
    "mtu",
    "sq_psn",
    "rq_psn",
    "timeout",
    "retry_cnt",
    "rnr_retry",
    "min_rnr_timer",
    "max_rd_atomic",
    "max_dest_rd_atomic",
    "access",
    "sq",
    "rq",
    "sges",
    "inline",
    "cq",
    "sig_all",
    "credits",
    "ipv6",
    "tclass",
    "hops",
    "flow",
];

/// `qp rc mtu=1024 ...`
pub(super) fn setup(words: &mut Words<'_>) -> Result<QpSetup> {
    const KINDS: names::Table<QpType> = &[("rc", QpType::Rc), ("uc", QpType::Uc)];
    let line = words.line;
    let kind = words.need("rc or uc")?;
    let mut qp = QpSetup::new(line.one_of(kind, KINDS, "a transport")?);
    while let Some(word) = words.take() {
        let (field, value) = word.field();
        match (field.text, value) {
            ("sig_all", None) => qp.sig_all = true,
            ("credits", None) => qp.credits = true,
            ("ipv6", None) => qp.ipv6 = true,
            (name, Some(value)) if QP_FIELDS.contains(&name) => set(&mut qp, &line, field, value)?,
            (name, None) if QP_FIELDS.contains(&name) => return line.error(field, format!("{name}=VALUE")),
            _ => return line.unknown(field, "a setting of the queue pair", QP_FIELDS.iter().copied()),
        }
    }
    Ok(qp)
}

fn set(qp: &mut QpSetup, line: &Line<'_>, field: Word<'_>, value: Word<'_>) -> Result<()> {
    let byte = |max| line.at_most(value, max).map(|v| v as u8);
    match field.text {
        "state" => qp.state = line.one_of(value, names::STATES, "a state")?,
        "peer" => qp.peer = Qpn::new(line.u24(value)?),
        "mtu" => qp.mtu = mtu(line, value)?,
        "sq_psn" => qp.sq_psn = Psn::new(line.u24(value)?),
        "rq_psn" => qp.rq_psn = Psn::new(line.u24(value)?),
        "timeout" => qp.timeout = byte(31)?,
        "retry_cnt" => qp.retry_cnt = byte(7)?,
        "rnr_retry" => qp.rnr_retry = byte(7)?,
        "min_rnr_timer" => qp.min_rnr_timer = byte(31)?,
        "max_rd_atomic" => qp.max_rd_atomic = byte(255)?,
        "max_dest_rd_atomic" => qp.max_dest_rd_atomic = byte(255)?,
        "access" => qp.access = line.rights(value)?,
        "sq" => qp.sq = line.u32(value)?,
        "rq" => qp.rq = line.u32(value)?,
        "sges" => qp.sges = line.u32(value)?,
        "inline" => qp.inline = line.u32(value)?,
        "cq" => qp.cq = line.u32(value)?,
        "tclass" => qp.tclass = byte(255)?,
        "hops" => qp.hops = byte(255)?,
        "flow" => qp.flow = line.at_most(value, 0xF_FFFF)? as u32,
        _ => return line.error(field, "a name without a value"),
    }
    Ok(())
}

fn mtu(line: &Line<'_>, value: Word<'_>) -> Result<PathMtu> {
    match PathMtu::from_bytes(line.int(value)? as usize) {
        Some(mtu) => Ok(mtu),
        None => line.error(value, "256, 512, 1024, 2048 or 4096"),
    }
}

const MODIFY_FIELDS: &[&str] = &[
    "full",
    "without",
    "refused",
    "cur",
    "pkey_index",
    "port",
    "access",
    "qkey",
    "av",
    "no_grh",
    "alt_av",
    "mtu",
    "dest_qp",
    "rq_psn",
    "sq_psn",
    "max_rd_atomic",
    "max_dest_rd_atomic",
    "min_rnr_timer",
    "timeout",
    "retry_cnt",
    "rnr_retry",
    "sqd_notify",
];

/// `modify RTS timeout=14 ...`; `full` takes all that the step requires from the `qp` line, `without=` leaves some out.
/// `modify here ...` stays in the state.
pub(super) fn modify(words: &mut Words<'_>, qp: &QpSetup) -> Result<Modify> {
    let line = words.line;
    let to = words.need("a state, or here")?;
    let mut attr = QpAttr::default();
    if to.text != "here" {
        attr.qp_state = Some(line.one_of(to, names::STATES, "a state, or here")?);
    }
    let mut modify = Modify { attr, refused: None };
    while let Some(word) = words.take() {
        let (field, value) = word.field();
        let attr = &mut modify.attr;
        match (field.text, value) {
            ("full", None) => fill(attr, qp),
            ("av", None) => attr.ah_attr = Some(qp.address_vector()),
            ("alt_av", None) => attr.alt_ah_attr = Some(qp.address_vector()),
            ("no_grh", None) => attr.ah_attr = Some(AddressVector { is_global: false, ..qp.address_vector() }),
            ("refused", _) => modify.refused = Some(refused(&line, value)?),
            (name, Some(value)) if MODIFY_FIELDS.contains(&name) => attribute(attr, &line, field, value)?,
            (name, None) if MODIFY_FIELDS.contains(&name) => return line.error(field, format!("{name}=VALUE")),
            _ => return line.unknown(field, "an attribute", MODIFY_FIELDS.iter().copied()),
        }
    }
    Ok(modify)
}

/// Adds what the step to `attr.qp_state` requires.
fn fill(attr: &mut QpAttr, qp: &QpSetup) {
    let Some(state) = attr.qp_state else { return };
    let all = qp.required(state);
    *attr = QpAttr {
        pkey_index: all.pkey_index.or(attr.pkey_index),
        port_num: all.port_num.or(attr.port_num),
        qp_access_flags: all.qp_access_flags.or(attr.qp_access_flags),
        ah_attr: all.ah_attr.or(attr.ah_attr),
        path_mtu: all.path_mtu.or(attr.path_mtu),
        dest_qp_num: all.dest_qp_num.or(attr.dest_qp_num),
        rq_psn: all.rq_psn.or(attr.rq_psn),
        max_dest_rd_atomic: all.max_dest_rd_atomic.or(attr.max_dest_rd_atomic),
        min_rnr_timer: all.min_rnr_timer.or(attr.min_rnr_timer),
        sq_psn: all.sq_psn.or(attr.sq_psn),
        timeout: all.timeout.or(attr.timeout),
        retry_cnt: all.retry_cnt.or(attr.retry_cnt),
        rnr_retry: all.rnr_retry.or(attr.rnr_retry),
        max_rd_atomic: all.max_rd_atomic.or(attr.max_rd_atomic),
        ..*attr
    };
}

fn attribute(attr: &mut QpAttr, line: &Line<'_>, field: Word<'_>, value: Word<'_>) -> Result<()> {
    // One more than the field holds is for the device to refuse.
    let byte = || line.at_most(value, 255).map(|v| Some(v as u8));
    match field.text {
        "without" => return without(attr, line, value),
        "cur" => attr.cur_qp_state = Some(line.one_of(value, names::STATES, "a state")?),
        "pkey_index" => attr.pkey_index = Some(line.at_most(value, 0xFFFF)? as u16),
        "port" => attr.port_num = byte()?,
        "access" => attr.qp_access_flags = Some(line.rights(value)?),
        "qkey" => attr.qkey = Some(QKey(line.u32(value)?)),
        "mtu" => attr.path_mtu = Some(mtu(line, value)?),
        "dest_qp" => attr.dest_qp_num = Some(Qpn::new(line.u24(value)?)),
        "rq_psn" => attr.rq_psn = Some(Psn::new(line.u24(value)?)),
        "sq_psn" => attr.sq_psn = Some(Psn::new(line.u24(value)?)),
        "max_rd_atomic" => attr.max_rd_atomic = byte()?,
        "max_dest_rd_atomic" => attr.max_dest_rd_atomic = byte()?,
        "min_rnr_timer" => attr.min_rnr_timer = byte()?,
        "timeout" => attr.timeout = byte()?,
        "retry_cnt" => attr.retry_cnt = byte()?,
        "rnr_retry" => attr.rnr_retry = byte()?,
        "sqd_notify" => attr.en_sqd_async_notify = Some(line.bit(value)?),
        _ => return line.error(field, "a name without a value"),
    }
    Ok(())
}

/// Takes attributes out again.
fn without(attr: &mut QpAttr, line: &Line<'_>, value: Word<'_>) -> Result<()> {
    let mut rest = Some(value);
    while let Some(list) = rest {
        let (name, more) = list.split(",").map_or((list, None), |(name, more)| (name, Some(more)));
        match name.text {
            "pkey_index" => attr.pkey_index = None,
            "port" => attr.port_num = None,
            "access" => attr.qp_access_flags = None,
            "av" => attr.ah_attr = None,
            "mtu" => attr.path_mtu = None,
            "dest_qp" => attr.dest_qp_num = None,
            "rq_psn" => attr.rq_psn = None,
            "sq_psn" => attr.sq_psn = None,
            "max_rd_atomic" => attr.max_rd_atomic = None,
            "max_dest_rd_atomic" => attr.max_dest_rd_atomic = None,
            "min_rnr_timer" => attr.min_rnr_timer = None,
            "timeout" => attr.timeout = None,
            "retry_cnt" => attr.retry_cnt = None,
            "rnr_retry" => attr.rnr_retry = None,
            _ => return line.unknown(name, "an attribute that `full` sets", MODIFY_FIELDS.iter().copied()),
        }
        rest = more;
    }
    Ok(())
}
