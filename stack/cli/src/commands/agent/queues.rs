//! Completion queues and queue pairs: made, changed, asked.
//!
//! In: capacities and attributes by the names of `ibv_qp_attr`. Out: handles, and what is so now. Exactly the attributes
//! that are given go into the mask of a modify, so that any wrong combination can be tried.

use std::sync::Arc;

use xroce::{Access, AddressVector, Gid, Lkey, PathMtu, Psn, Qp, QpAttr, QpCap, QpInitAttr, QpState, QpType, Qpn, Sge};
use xroce_wire::QKey;

use super::objects::{CqAndChannel, Object, Objects};
use super::protocol::{Args, Done, Fault, Pairs, errno, parse};

/// Names of states.
const STATES: [(&str, QpState); 7] = [
    ("reset", QpState::Reset),
    ("init", QpState::Init),
    ("rtr", QpState::Rtr),
    ("rts", QpState::Rts),
    ("sqd", QpState::Sqd),
    ("sqe", QpState::Sqe),
    ("err", QpState::Err),
];

/// `cq_create ctx= cqe= channel=`
pub fn create_cq(objects: &mut Objects, args: &Args<'_>) -> Done {
    let context = objects.context(args, "ctx")?;
    let cqe: u32 = args.number_or("cqe", 256)?;
    let channel = match args.number_or("channel", 0u8)? {
        0 => None,
        _ => {
            let made = context.create_comp_channel();
            Some(made.map_err(|error| Fault::new(errno::ENOMEM, "ibv_create_comp_channel", error))?)
        }
    };
    let made = match &channel {
        None => context.create_cq(cqe),
        Some(channel) => context.create_cq_on(cqe, channel),
    };
    let cq = made.map_err(|error| Fault::new(errno::EINVAL, "ibv_create_cq", error))?;
    let capacity = cq.capacity();
    let handle = objects.add(Object::Cq(CqAndChannel { cq, channel }));
    Ok(Pairs::none().with("cq", handle).with("cqe", capacity))
}

/// `qp_create pd= type= scq= rcq= send_wr= ...`
pub fn create_qp(objects: &mut Objects, args: &Args<'_>) -> Done {
    let pd = objects.pd(args, "pd")?;
    let send_cq = &objects.cq(args, "scq")?.cq;
    let recv_cq = match args.text("rcq") {
        None => send_cq,
        Some(_) => &objects.cq(args, "rcq")?.cq,
    };
    let init = QpInitAttr {
        qp_type: args.word("type", &[("rc", QpType::Rc), ("uc", QpType::Uc)], QpType::Rc)?,
        send_cq,
        recv_cq,
        cap: QpCap {
            max_send_wr: args.number_or("send_wr", 64)?,
            max_recv_wr: args.number_or("recv_wr", 64)?,
            max_send_sge: args.number_or("send_sge", 4)?,
            max_recv_sge: args.number_or("recv_sge", 4)?,
            max_inline_data: args.number_or("inline", 0)?,
        },
        sq_sig_all: args.number_or("sig_all", 0u8)? != 0,
    };
    let qp = pd.create_qp(&init).map_err(|error| Fault::new(errno::EINVAL, "ibv_create_qp", error))?;
    let (cap, qpn) = (qp.cap(), qp.qpn().value());
    let reply = Pairs::none().with("qp", objects.add(Object::Qp(Arc::new(qp)))).with("qpn", format_args!("{qpn:#x}"));
    let reply = reply.with("send_wr", cap.max_send_wr).with("recv_wr", cap.max_recv_wr);
    let reply = reply.with("send_sge", cap.max_send_sge).with("recv_sge", cap.max_recv_sge);
    Ok(reply.with("inline", cap.max_inline_data))
}

/// A GID as 32 hexadecimal digits, IPv6 text or IPv4 text.
fn gid(text: &str) -> Result<Gid, Fault> {
    let parsed = text.parse().ok().or_else(|| Gid::from_hex32(text).ok());
    parsed.ok_or_else(|| Fault::new(errno::EINVAL, "dgid", format!("not a GID: {text}")))
}

/// The address vector, if any part of it is given.
fn address_vector(args: &Args<'_>) -> Result<Option<AddressVector>, Fault> {
    const KEYS: [&str; 6] = ["dgid", "sgid_index", "hop_limit", "traffic_class", "flow_label", "sl"];
    if KEYS.iter().all(|key| args.text(key).is_none()) {
        return Ok(None);
    }
    Ok(Some(AddressVector {
        dgid: args.text("dgid").map_or(Ok(Gid::UNSPECIFIED), gid)?,
        sgid_index: args.number_or("sgid_index", 0)?,
        hop_limit: args.number_or("hop_limit", 64)?,
        traffic_class: args.number_or("traffic_class", 0)?,
        flow_label: args.number_or("flow_label", 0)?,
        sl: args.number_or("sl", 0)?,
        port_num: 1,
        is_global: true,
    }))
}

fn path_mtu(args: &Args<'_>) -> Result<Option<PathMtu>, Fault> {
    let Some(bytes) = args.number("path_mtu")? else { return Ok(None) };
    let mtu = PathMtu::from_bytes(bytes);
    mtu.map(Some).ok_or_else(|| Fault::new(errno::EINVAL, "path_mtu", "256, 512, 1024, 2048 or 4096"))
}

/// `qp_modify qp= state= ...`
pub fn modify(objects: &Objects, args: &Args<'_>) -> Done {
    let qp = objects.qp(args, "qp")?;
    let state = |key: &str| args.text(key).map(|_| args.word(key, &STATES, QpState::Reset)).transpose();
    let attr = QpAttr {
        qp_state: state("state")?,
        cur_qp_state: state("cur_state")?,
        pkey_index: args.number("pkey_index")?,
        port_num: args.number("port")?,
        qp_access_flags: args.number("access")?.map(Access::from_bits_retain),
        qkey: args.number("qkey")?.map(QKey),
        ah_attr: address_vector(args)?,
        path_mtu: path_mtu(args)?,
        dest_qp_num: args.number("dest_qpn")?.map(Qpn::new),
        rq_psn: args.number("rq_psn")?.map(Psn::new),
        sq_psn: args.number("sq_psn")?.map(Psn::new),
        max_rd_atomic: args.number("max_rd_atomic")?,
        max_dest_rd_atomic: args.number("max_dest_rd_atomic")?,
        min_rnr_timer: args.number("min_rnr_timer")?,
        timeout: args.number("timeout")?,
        retry_cnt: args.number("retry_cnt")?,
        rnr_retry: args.number("rnr_retry")?,
        en_sqd_async_notify: args.number("en_sqd_notify")?.map(|value: u8| value != 0),
        ..QpAttr::default()
    };
    qp.modify(&attr).map(|()| Pairs::none()).map_err(|error| {
        let errno =
            if matches!(error, xroce::ModifyError::NoNextHop { .. }) { errno::EHOSTUNREACH } else { errno::EINVAL };
        Fault::new(errno, "ibv_modify_qp", error)
    })
}

fn info(qp: &Qp) -> Result<xroce::QpInfo, Fault> {
    qp.query().map_err(|error| Fault::new(errno::EIO, "ibv_query_qp", error))
}

/// `qp_query qp=`; what was never set is not said.
pub fn query(objects: &Objects, args: &Args<'_>) -> Done {
    let info = info(objects.qp(args, "qp")?)?;
    let attr = &info.attr;
    let hex = |value: u32| format!("{value:#x}");
    let table = [
        ("state", attr.qp_state.map(|v| (v as u8).to_string())),
        ("qpn", Some(hex(info.qpn.value()))),
        ("dest_qpn", attr.dest_qp_num.map(|v| hex(v.value()))),
        ("rq_psn", attr.rq_psn.map(|v| hex(v.value()))),
        ("sq_psn", attr.sq_psn.map(|v| hex(v.value()))),
        ("path_mtu", attr.path_mtu.map(|v| v.bytes().to_string())),
        ("access", attr.qp_access_flags.map(|v| hex(v.bits()))),
        ("max_rd_atomic", attr.max_rd_atomic.map(|v| v.to_string())),
        ("max_dest_rd_atomic", attr.max_dest_rd_atomic.map(|v| v.to_string())),
        ("min_rnr_timer", attr.min_rnr_timer.map(|v| v.to_string())),
        ("timeout", attr.timeout.map(|v| v.to_string())),
        ("retry_cnt", attr.retry_cnt.map(|v| v.to_string())),
        ("rnr_retry", attr.rnr_retry.map(|v| v.to_string())),
        ("sgid_index", attr.ah_attr.map(|v| v.sgid_index.to_string())),
    ];
    let pair = |pairs: Pairs, (key, value): (&str, Option<String>)| match value {
        Some(value) => pairs.with(key, value),
        None => pairs,
    };
    Ok(table.into_iter().fold(Pairs::none(), pair))
}

/// `qp_counters qp=`
pub fn counters(objects: &Objects, args: &Args<'_>) -> Done {
    let counters = info(objects.qp(args, "qp")?)?.counters;
    Ok(counters.iter().fold(Pairs::none(), |pairs, (name, value)| pairs.with(name, value)))
}

/// `sge=ADDR:LEN:LKEY`, any number of them.
pub fn sges(args: &Args<'_>) -> Result<Vec<Sge>, Fault> {
    let sge = |text: &str| {
        let mut fields = text.split(':').map(parse);
        let (addr, length, lkey) = (fields.next()??, fields.next()??, fields.next()??);
        let lkey = Lkey(u32::try_from(lkey).ok()?);
        fields.next().is_none().then_some(Sge { addr, length: u32::try_from(length).ok()?, lkey })
    };
    let wrong = |text: &str| Fault::new(errno::EINVAL, "sge", format!("not ADDR:LEN:LKEY: {text}"));
    args.all("sge").map(|text| sge(text).ok_or_else(|| wrong(text))).collect()
}
