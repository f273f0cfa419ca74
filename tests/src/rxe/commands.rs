//! The agent's commands as methods. Enters: verbs objects and work. Leaves: handles, completions, verdicts on memory.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use super::agent::{AgentError, PeerAgent, Reply, parse_number};
use super::verbs::{
    Access, AsyncEvent, Buf, Cq, Ctx, Mr, Mw, Path, Pd, PeerGid, Qp, QpAttr, QpKind, QpSpec, QpState, RecvWr, SendWr,
    Sge, Srq, Verdict, Wc,
};

/// How long the agent may wait for the end of a process.
const KILL_LIMIT: Duration = Duration::from_secs(30);

type Result<T> = std::result::Result<T, AgentError>;

/// Request lines under construction.
struct Line(String);

impl Line {
    fn new(command: &str) -> Self {
        Self(command.to_owned())
    }

    fn put(mut self, key: &str, value: impl fmt::Display) -> Self {
        write!(self.0, " {key}={value}").expect("a String takes all");
        self
    }

    fn maybe(self, key: &str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.put(key, value),
            None => self,
        }
    }

    fn sges(mut self, sges: &[Sge]) -> Self {
        for s in sges {
            write!(self.0, " sge={:#x}:{}:{:#x}", s.addr, s.len, s.lkey).expect("a String takes all");
        }
        self
    }
}

/// Memory.
impl PeerAgent {
    fn line(&mut self, line: Line) -> Result<Reply> {
        self.call(&line.0)
    }

    /// `len` bytes, zero, beginning on a page.
    ///
    /// # Errors
    /// No memory.
    pub fn alloc(&mut self, len: u64) -> Result<Buf> {
        self.alloc_shifted(len, 0, None)
    }

    /// `len` bytes of the pattern of `seed`.
    ///
    /// # Errors
    /// No memory.
    pub fn alloc_pattern(&mut self, len: u64, seed: u64) -> Result<Buf> {
        self.alloc_shifted(len, 0, Some(seed))
    }

    /// `len` bytes that begin `shift` (0 to 4095) behind a page boundary.
    ///
    /// # Errors
    /// No memory.
    pub fn alloc_shifted(&mut self, len: u64, shift: u32, seed: Option<u64>) -> Result<Buf> {
        let reply = self.line(Line::new("buf_alloc").put("len", len).put("shift", shift).maybe("seed", seed))?;
        Ok(Buf { handle: reply.number("buf")?, addr: reply.number("addr")?, len })
    }

    /// Fills `len` bytes from `off` on with the pattern of `seed` from its byte `at` on.
    ///
    /// # Errors
    /// Beyond the buffer.
    pub fn fill(&mut self, buf: Buf, off: u64, len: u64, seed: u64, at: u64) -> Result<()> {
        self.line(piece("buf_fill", buf, off, len).put("seed", seed).put("at", at)).map(drop)
    }

    /// Compares `len` bytes from `off` on with the pattern of `seed` from its byte `at` on.
    ///
    /// # Errors
    /// Beyond the buffer.
    pub fn verify(&mut self, buf: Buf, off: u64, len: u64, seed: u64, at: u64) -> Result<Verdict> {
        let reply = self.line(piece("buf_verify", buf, off, len).put("seed", seed).put("at", at))?;
        verdict(&reply, "match", "1")
    }

    /// At most 64 KiB.
    ///
    /// # Errors
    /// Beyond the buffer, or too long.
    pub fn read(&mut self, buf: Buf, off: u64, len: u64) -> Result<Vec<u8>> {
        let reply = self.line(piece("buf_read", buf, off, len))?;
        let hex = reply.text("hex")?;
        let bytes: Option<Vec<u8>> =
            (0..hex.len() / 2).map(|i| u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()).collect();
        bytes.ok_or_else(|| reply.lacks("hex"))
    }

    /// Writes `data` from `off` on.
    ///
    /// # Errors
    /// Beyond the buffer.
    pub fn write(&mut self, buf: Buf, off: u64, data: &[u8]) -> Result<()> {
        let hex: String = data.iter().map(|b| format!("{b:02x}")).collect();
        self.line(Line::new("buf_write").put("buf", u64::from(buf)).put("off", off).put("hex", hex)).map(drop)
    }

    /// CRC-32 (as in zlib) of `len` bytes from `off` on.
    ///
    /// # Errors
    /// Beyond the buffer.
    pub fn crc(&mut self, buf: Buf, off: u64, len: u64) -> Result<u32> {
        Ok(self.line(piece("buf_crc", buf, off, len))?.number("crc")? as u32)
    }

    /// Whether all bytes around the buffer are untouched.
    ///
    /// # Errors
    /// No such buffer.
    pub fn guard(&mut self, buf: Buf) -> Result<Verdict> {
        let reply = self.line(Line::new("buf_guard").put("buf", u64::from(buf)))?;
        verdict(&reply, "guard", "ok")
    }
}

fn piece(command: &str, buf: Buf, off: u64, len: u64) -> Line {
    Line::new(command).put("buf", u64::from(buf)).put("off", off).put("len", len)
}

fn verdict(reply: &Reply, key: &str, good: &str) -> Result<Verdict> {
    if reply.text(key)? == good {
        return Ok(Verdict::Good);
    }
    Ok(Verdict::Bad(reply.pairs().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")))
}

/// The agent's process, which holds the connection's objects.
impl PeerAgent {
    /// Its id in the guest.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn pid(&mut self) -> Result<u32> {
        Ok(self.call("pid")?.number("pid")? as u32)
    }

    /// SIGKILL to the process of another connection. Returns when the kernel has taken all its objects back.
    ///
    /// # Errors
    /// There is none with this id.
    pub fn kill(&mut self, pid: u32) -> Result<()> {
        self.call_waiting(&Line::new("kill").put("pid", pid).0, KILL_LIMIT).map(drop)
    }
}

/// Devices and objects.
impl PeerAgent {
    /// Opens a device by name ("rxe0").
    ///
    /// # Errors
    /// There is none.
    pub fn open(&mut self, device: &str) -> Result<Ctx> {
        Ok(Ctx(self.line(Line::new("open").put("dev", device))?.number("ctx")?))
    }

    /// The device's GIDs.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn gids(&mut self, ctx: Ctx) -> Result<Vec<PeerGid>> {
        let reply = self.line(Line::new("gids").put("ctx", ctx.0))?;
        let parse = |text: &str| {
            let mut parts = text.split(':');
            let index = parts.next()?.parse().ok()?;
            let gid = Ipv6Addr::from(u128::from_str_radix(parts.next()?, 16).ok()?);
            Some(PeerGid { index, gid, v2: parts.next()? == "v2" })
        };
        reply.all("gid").map(parse).collect::<Option<_>>().ok_or_else(|| reply.lacks("gid"))
    }

    /// Index of the RoCE v2 GID that stands for `ip`.
    ///
    /// # Errors
    /// There is none.
    pub fn gid_index(&mut self, ctx: Ctx, ip: IpAddr) -> Result<u8> {
        let wanted = to_gid(ip);
        let found = self.gids(ctx)?.into_iter().find(|g| g.gid == wanted && g.v2).map(|g| g.index);
        found.ok_or_else(|| AgentError::Reply { request: "gids".into(), key: wanted.to_string(), reply: String::new() })
    }

    /// ibv_query_device: limits by their verbs names.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn query_device(&mut self, ctx: Ctx) -> Result<BTreeMap<String, u64>> {
        Ok(self.line(Line::new("query_device").put("ctx", ctx.0))?.numbers())
    }

    /// ibv_query_port, MTUs in bytes.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn query_port(&mut self, ctx: Ctx) -> Result<BTreeMap<String, u64>> {
        Ok(self.line(Line::new("query_port").put("ctx", ctx.0))?.numbers())
    }

    /// The hw_counters of a device.
    ///
    /// # Errors
    /// No such device.
    pub fn counters(&mut self, device: &str) -> Result<BTreeMap<String, u64>> {
        Ok(self.line(Line::new("counters").put("dev", device))?.numbers())
    }

    /// Asynchronous events: waits up to `wait` for the first, then takes all.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn events(&mut self, ctx: Ctx, wait: Duration) -> Result<Vec<AsyncEvent>> {
        let line = Line::new("events").put("ctx", ctx.0).put("timeout_ms", wait.as_millis());
        let reply = self.call_waiting(&line.0, wait)?;
        let parse = |text: &str| {
            let (kind, qpn) = text.split_once(':')?;
            Some(AsyncEvent { kind: parse_number(kind)? as u32, qpn: parse_number(qpn)? as u32 })
        };
        reply.all("event").map(parse).collect::<Option<_>>().ok_or_else(|| reply.lacks("event"))
    }

    /// ibv_alloc_pd.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn alloc_pd(&mut self, ctx: Ctx) -> Result<Pd> {
        Ok(Pd(self.line(Line::new("pd_alloc").put("ctx", ctx.0))?.number("pd")?))
    }

    /// Registers a whole buffer at its own address.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn reg_mr(&mut self, pd: Pd, buf: Buf, access: Access) -> Result<Mr> {
        self.reg_mr_part(pd, buf, 0, buf.len, access, None)
    }

    /// Registers `len` bytes from `off` on; `iova` is the address that the keys mean (`None`: the true one).
    ///
    /// # Errors
    /// The kernel refused.
    pub fn reg_mr_part(
        &mut self,
        pd: Pd,
        buf: Buf,
        off: u64,
        len: u64,
        access: Access,
        iova: Option<u64>,
    ) -> Result<Mr> {
        let line = piece("mr_reg", buf, off, len).put("pd", pd.0).put("access", access.bits()).maybe("iova", iova);
        let reply = self.line(line)?;
        Ok(Mr {
            handle: reply.number("mr")?,
            lkey: reply.number("lkey")? as u32,
            rkey: reply.number("rkey")? as u32,
            va: reply.number("va")?,
            len,
        })
    }

    /// ibv_rereg_mr with other rights.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn rereg_mr_access(&mut self, mr: Mr, access: Access) -> Result<Mr> {
        let reply = self.line(Line::new("mr_rereg").put("mr", mr.handle).put("access", access.bits()))?;
        Ok(Mr { lkey: reply.number("lkey")? as u32, rkey: reply.number("rkey")? as u32, ..mr })
    }

    /// ibv_alloc_mw; `kind` 1 or 2.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn alloc_mw(&mut self, pd: Pd, kind: u8) -> Result<Mw> {
        let reply = self.line(Line::new("mw_alloc").put("pd", pd.0).put("type", kind))?;
        Ok(Mw { handle: reply.number("mw")?, rkey: reply.number("rkey")? as u32 })
    }

    /// ibv_create_cq.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn create_cq(&mut self, ctx: Ctx, cqe: u32) -> Result<Cq> {
        Ok(Cq(self.line(Line::new("cq_create").put("ctx", ctx.0).put("cqe", cqe))?.number("cq")?))
    }

    /// A CQ with a completion channel of its own, for [`PeerAgent::arm`] and [`PeerAgent::wait_event`].
    ///
    /// # Errors
    /// The kernel refused.
    pub fn create_cq_with_channel(&mut self, ctx: Ctx, cqe: u32) -> Result<Cq> {
        Ok(Cq(self.line(Line::new("cq_create").put("ctx", ctx.0).put("cqe", cqe).put("channel", 1))?.number("cq")?))
    }

    /// ibv_create_srq.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn create_srq(&mut self, pd: Pd, max_wr: u32, max_sge: u32) -> Result<Srq> {
        let line = Line::new("srq_create").put("pd", pd.0).put("max_wr", max_wr).put("max_sge", max_sge);
        Ok(Srq(self.line(line)?.number("srq")?))
    }

    /// Destroys any object. Buffers last: registered memory must not vanish.
    ///
    /// # Errors
    /// The kernel refused: most often something else still holds the object (EBUSY).
    pub fn destroy(&mut self, object: impl Into<u64>) -> Result<()> {
        self.line(Line::new("destroy").put("h", object.into())).map(drop)
    }
}

fn to_gid(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// Queue pairs.
impl PeerAgent {
    /// ibv_create_qp.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn create_qp(&mut self, spec: &QpSpec) -> Result<Qp> {
        let line = Line::new("qp_create")
            .put("pd", spec.pd.0)
            .put("type", if spec.kind == QpKind::Rc { "rc" } else { "uc" })
            .put("scq", spec.send_cq.0)
            .put("rcq", spec.recv_cq.0)
            .maybe("srq", spec.srq.map(|s| s.0))
            .put("send_wr", spec.send_wr)
            .put("recv_wr", spec.recv_wr)
            .put("send_sge", spec.send_sge)
            .put("recv_sge", spec.recv_sge)
            .put("inline", spec.inline)
            .put("sig_all", u8::from(spec.sig_all));
        let reply = self.line(line)?;
        Ok(Qp { handle: reply.number("qp")?, qpn: reply.number("qpn")? as u32, kind: spec.kind })
    }

    /// ibv_modify_qp with exactly these attributes.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn modify(&mut self, qp: Qp, attr: &QpAttr) -> Result<()> {
        let line = Line::new("qp_modify")
            .put("qp", qp.handle)
            .maybe("state", attr.state.map(|s| s as u32))
            .maybe("cur_state", attr.cur_state.map(|s| s as u32))
            .maybe("port", attr.port)
            .maybe("pkey_index", attr.pkey_index)
            .maybe("access", attr.access.map(|a| a.bits()))
            .maybe("dgid", attr.dgid)
            .maybe("sgid_index", attr.sgid_index)
            .maybe("hop_limit", attr.hop_limit)
            .maybe("traffic_class", attr.traffic_class)
            .maybe("flow_label", attr.flow_label)
            .maybe("path_mtu", attr.path_mtu)
            .maybe("dest_qpn", attr.dest_qpn)
            .maybe("rq_psn", attr.rq_psn)
            .maybe("sq_psn", attr.sq_psn)
            .maybe("max_rd_atomic", attr.max_rd_atomic)
            .maybe("max_dest_rd_atomic", attr.max_dest_rd_atomic)
            .maybe("min_rnr_timer", attr.min_rnr_timer)
            .maybe("timeout", attr.timeout)
            .maybe("retry_cnt", attr.retry_cnt)
            .maybe("rnr_retry", attr.rnr_retry)
            .maybe("en_sqd_notify", attr.en_sqd_notify.map(u8::from));
        self.line(line).map(drop)
    }

    /// RESET to INIT to RTR to RTS.
    ///
    /// # Errors
    /// The kernel refused one of the three.
    pub fn connect(&mut self, qp: Qp, path: &Path) -> Result<()> {
        let rc = qp.kind == QpKind::Rc;
        self.modify(
            qp,
            &QpAttr {
                state: Some(QpState::Init),
                pkey_index: Some(0),
                port: Some(1),
                access: Some(path.access),
                ..QpAttr::default()
            },
        )?;
        self.modify(
            qp,
            &QpAttr {
                state: Some(QpState::Rtr),
                dgid: Some(to_gid(path.remote)),
                sgid_index: Some(path.sgid_index),
                hop_limit: Some(path.hop_limit),
                traffic_class: Some(path.traffic_class),
                flow_label: Some(path.flow_label),
                path_mtu: Some(path.path_mtu),
                dest_qpn: Some(path.dest_qpn),
                rq_psn: Some(path.rq_psn),
                max_dest_rd_atomic: rc.then_some(path.max_dest_rd_atomic),
                min_rnr_timer: rc.then_some(path.min_rnr_timer),
                ..QpAttr::default()
            },
        )?;
        self.modify(
            qp,
            &QpAttr {
                state: Some(QpState::Rts),
                sq_psn: Some(path.sq_psn),
                max_rd_atomic: rc.then_some(path.max_rd_atomic),
                timeout: rc.then_some(path.timeout),
                retry_cnt: rc.then_some(path.retry_cnt),
                rnr_retry: rc.then_some(path.rnr_retry),
                ..QpAttr::default()
            },
        )
    }

    /// ibv_query_qp: numbers by their verbs names, the path MTU in bytes.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn query_qp(&mut self, qp: Qp) -> Result<BTreeMap<String, u64>> {
        Ok(self.line(Line::new("qp_query").put("qp", qp.handle))?.numbers())
    }

    /// The state of a QP, as the kernel says.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn qp_state(&mut self, qp: Qp) -> Result<QpState> {
        let reply = self.line(Line::new("qp_query").put("qp", qp.handle))?;
        use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
        let states = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];
        states.get(reply.number("state")? as usize).copied().ok_or_else(|| reply.lacks("state"))
    }
}

/// Work.
impl PeerAgent {
    /// ibv_post_send.
    ///
    /// # Errors
    /// The library refused: ENOMEM for a full queue, EINVAL for what the QP cannot do. The text says how many were posted.
    pub fn post_send(&mut self, qp: Qp, wr: &SendWr) -> Result<()> {
        let line = Line::new("post_send")
            .put("qp", qp.handle)
            .put("id", wr.id)
            .put("op", wr.op.words())
            .put("flags", wr.flags.words())
            .put("count", wr.count)
            .put("stride", wr.stride)
            .sges(&wr.sges);
        self.line(line).map(drop)
    }

    /// ibv_post_recv.
    ///
    /// # Errors
    /// As [`PeerAgent::post_send`].
    pub fn post_recv(&mut self, qp: Qp, wr: &RecvWr) -> Result<()> {
        self.line(recv(wr).put("qp", qp.handle)).map(drop)
    }

    /// ibv_post_srq_recv.
    ///
    /// # Errors
    /// As [`PeerAgent::post_send`].
    pub fn post_srq_recv(&mut self, srq: Srq, wr: &RecvWr) -> Result<()> {
        self.line(recv(wr).put("srq", srq.0)).map(drop)
    }

    /// Posts the binding of a window to `len` bytes of `mr` from `va` on: signaled, with `id`. Returns the key that is valid
    /// once the completion is there: by the QP's queue for type 2 windows (`kind` 2), by ibv_bind_mw for type 1.
    ///
    /// # Errors
    /// As [`PeerAgent::post_send`].
    #[allow(clippy::too_many_arguments)] // they are those of the verb
    pub fn bind_mw(
        &mut self,
        qp: Qp,
        kind: u8,
        id: u64,
        mw: Mw,
        mr: Mr,
        va: u64,
        len: u64,
        access: Access,
    ) -> Result<u32> {
        let line = if kind == 1 { Line::new("mw_bind") } else { Line::new("post_send").put("op", "bind_mw") };
        let line = line.put("qp", qp.handle).put("id", id).put("mw", mw.handle).put("mr", mr.handle);
        let reply = self.line(line.put("va", va).put("len", len).put("access", access.bits()))?;
        Ok(reply.number("rkey")? as u32)
    }

    /// Completions: waits up to `wait` until `n` have come and returns those that came (`n` 0: what is there now).
    ///
    /// # Errors
    /// The library refused. Fewer than `n` is no error.
    pub fn poll(&mut self, cq: Cq, n: usize, wait: Duration) -> Result<Vec<Wc>> {
        let line = Line::new("cq_poll").put("cq", cq.0).put("n", n).put("timeout_ms", wait.as_millis());
        let reply = self.call_waiting(&line.0, wait)?;
        reply.all("wc").map(Wc::parse).collect::<Option<_>>().ok_or_else(|| reply.lacks("wc"))
    }

    /// ibv_req_notify_cq.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn arm(&mut self, cq: Cq, solicited_only: bool) -> Result<()> {
        self.line(Line::new("cq_arm").put("cq", cq.0).put("solicited", u8::from(solicited_only))).map(drop)
    }

    /// Whether the armed CQ's event came within `wait`.
    ///
    /// # Errors
    /// The CQ has no channel.
    pub fn wait_event(&mut self, cq: Cq, wait: Duration) -> Result<bool> {
        let line = Line::new("cq_wait").put("cq", cq.0).put("timeout_ms", wait.as_millis());
        Ok(self.call_waiting(&line.0, wait)?.number("event")? == 1)
    }
}

fn recv(wr: &RecvWr) -> Line {
    Line::new("post_recv").put("id", wr.id).put("count", wr.count).put("stride", wr.stride).sges(&wr.sges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rxe::Sge;

    #[test]
    fn requests_are_written_as_the_agent_reads_them() {
        let line = recv(&RecvWr::new(3, &[Sge { addr: 16, len: 4, lkey: 5 }]));
        assert_eq!(line.0, "post_recv id=3 count=1 stride=0 sge=0x10:4:0x5");
    }
}
