//! The application at the device's machine: verbs calls, made by its agent.
//!
//! In: what a script wants done. Out: request lines to the agent, and what its replies mean.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use xroce_transport::EventKind;
use xroce_transport::memory::Access;
use xroce_transport::qp::state::{AddressVector, QpAttr, QpState, QpType};
use xroce_transport::wc::{Wc, WcFlags, WcOpcode, WcStatus};
use xroce_transport::wr::{SendFlags, SendOp, WrId};
use xroce_wire::{ImmData, Qpn};

use super::Pair;
use crate::agent::{Agent, AgentError, Refused, Reply, number};
use crate::expr::Data;
use crate::model::{Action, CqSide, MrSpec, Place, QpSetup, Script, Span};
use crate::names::{self, EventName};
use crate::target::{RecvRequest, Registered, SendRequest, What};

/// Bytes that one request reads or writes: the protocol's limit.
const PIECE: usize = 1 << 16;
/// Bytes from which inline data is posted: as many as any queue pair takes.
const INLINE_ROOM: usize = 4096;

/// What this agent can do beyond plain verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Abilities {
    /// Regions that the peer may invalidate.
    invalidate: bool,
    /// Counters of a queue pair.
    counters: bool,
    /// Reasons for which packets were dropped.
    drops: bool,
}

/// Why a script cannot be played against a device with these abilities.
pub(super) fn cannot(script: &Script, abilities: Abilities, all: bool) -> Option<String> {
    match script.head.place {
        Some(Place::Here) => {
            return Some("where: here: it needs virtual time, or a burst that nothing comes between".into());
        }
        Some(Place::Own) if !all => {
            return Some(
                "where: dut: it holds the device to more than the specification does, or looks where no wire shows"
                    .into(),
            );
        }
        _ => {}
    }
    if script.qp.credits {
        return Some("a live device decides by itself whether it announces credits".into());
    }
    let reason = |action: &Action| match action {
        Action::Register(mr) if mr.rights.contains(Access::REMOTE_INVALIDATE) && !abilities.invalidate => {
            Some("verbs has no memory region that the peer may invalidate")
        }
        Action::Modify(modify) if modify.attr.alt_ah_attr.is_some() => Some("the agent has no alternate paths"),
        Action::Modify(modify) if modify.attr.ah_attr.is_some_and(|av| !av.is_global) => {
            Some("the agent has no address vectors without a GRH")
        }
        _ => None,
    };
    script.steps.iter().find_map(|step| reason(&step.action).map(|why| format!("line {}: {why}", step.line)))
}

struct Mr {
    buf: u64,
    mr: u64,
    va: u64,
    key: u32,
}

/// What a script's application has made.
struct Made {
    qp: u64,
    send_cq: u64,
    recv_cq: u64,
    send_armed: bool,
    recv_armed: bool,
    device_index: u32,
    peer: String,
    drops: BTreeMap<String, u64>,
}

/// An agent with a device open.
pub(super) struct Application {
    agent: Agent,
    ctx: u64,
    pd: u64,
    foreign_pd: u64,
    inline_buf: Option<(u64, u64)>,
    mrs: BTreeMap<String, Mr>,
    made: Option<Made>,
    abilities: Abilities,
}

type Call<T> = Result<Result<T, String>, AgentError>;

fn words(refused: Refused) -> String {
    refused.to_string()
}

/// The value, or the refusal as the outcome of the surrounding call.
macro_rules! granted {
    ($call:expr) => {
        match $call? {
            Ok(reply) => reply,
            Err(refused) => return Ok(Err(words(refused))),
        }
    };
}

impl Application {
    /// Opens the device; `None`: the first.
    pub(super) fn open(mut agent: Agent, device: Option<&str>) -> Result<Application, AgentError> {
        let help = agent.call("help")?;
        let abilities = Abilities {
            invalidate: help.offers("mr_reg", "invalidate"),
            counters: help.offers("qp_counters", "qp"),
            drops: help.offers("drops", ""),
        };
        let open = device.map_or("open".to_owned(), |name| format!("open dev={name}"));
        let ctx = agent.call(&open)?.number("ctx")?;
        let pd = agent.call(&format!("pd_alloc ctx={ctx}"))?.number("pd")?;
        let foreign_pd = agent.call(&format!("pd_alloc ctx={ctx}"))?.number("pd")?;
        let (inline_buf, mrs, made) = (None, BTreeMap::new(), None);
        Ok(Application { agent, ctx, pd, foreign_pd, inline_buf, mrs, made, abilities })
    }

    pub(super) fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn made(&self) -> &Made {
        self.made.as_ref().expect("a script makes its queue pair first")
    }

    pub(super) fn create_qp(&mut self, setup: &QpSetup, pair: &Pair) -> Call<Qpn> {
        let cq = format!("cq_create ctx={} cqe={} channel=1", self.ctx, setup.cq);
        let send_cq = granted!(self.agent.ask(&cq)).number("cq")?;
        let recv_cq = granted!(self.agent.ask(&cq)).number("cq")?;
        let kind = if setup.kind == QpType::Rc { "rc" } else { "uc" };
        let create = format!(
            "qp_create pd={} type={kind} scq={send_cq} rcq={recv_cq} send_wr={} recv_wr={} send_sge={} recv_sge={} \
             inline={} sig_all={}",
            self.pd,
            setup.sq,
            setup.rq,
            setup.sges,
            setup.sges,
            setup.inline,
            u8::from(setup.sig_all)
        );
        let reply = granted!(self.agent.ask(&create));
        let drops = self.all_drops()?;
        self.made = Some(Made {
            qp: reply.number("qp")?,
            send_cq,
            recv_cq,
            send_armed: false,
            recv_armed: false,
            device_index: pair.device_index,
            peer: pair.script.to_string(),
            drops,
        });
        for attr in setup.path_to_state() {
            if let Err(refused) = self.modify(&attr)? {
                return Ok(Err(refused));
            }
        }
        Ok(Ok(Qpn::new(reply.number("qpn")? as u32)))
    }

    pub(super) fn destroy_qp(&mut self) -> Result<(), AgentError> {
        match self.made.take() {
            Some(made) => self.agent.call(&format!("destroy h={}", made.qp)).map(drop),
            None => Ok(()),
        }
    }

    // Memory.

    pub(super) fn register(&mut self, spec: &MrSpec) -> Call<Registered> {
        let buf = granted!(self.agent.ask(&format!("buf_alloc len={}", spec.len))).number("buf")?;
        // Zero is what it holds already.
        if spec.fill != Data::Fill(0) {
            self.write_buf(buf, 0, &spec.fill.bytes(spec.len as usize))?;
        }
        let pd = if spec.foreign { self.foreign_pd } else { self.pd };
        let plain = spec.rights - Access::REMOTE_INVALIDATE;
        let mut line = format!("mr_reg pd={pd} buf={buf} access={}", plain.bits());
        if spec.rights.contains(Access::REMOTE_INVALIDATE) {
            line.push_str(" invalidate=1");
        }
        if let Some(iova) = spec.iova {
            let _ = write!(line, " iova={iova}");
        }
        let reply = granted!(self.agent.ask(&line));
        let (va, key) = (reply.number("va")?, reply.number("rkey")? as u32);
        let mr = reply.number("mr")?;
        self.mrs.insert(spec.name.clone(), Mr { buf, mr, va, key });
        Ok(Ok(Registered { va, key }))
    }

    pub(super) fn deregister(&mut self, name: &str) -> Call<()> {
        let Some(mr) = self.mrs.get(name) else { return Ok(Err(format!("there is no region {name}"))) };
        Ok(self.agent.ask(&format!("destroy h={}", mr.mr))?.map(drop).map_err(words))
    }

    fn write_buf(&mut self, buf: u64, at: u64, bytes: &[u8]) -> Result<(), AgentError> {
        for (piece, i) in bytes.chunks(PIECE).zip(0..) {
            let at = at + i * PIECE as u64;
            self.agent.call(&format!("buf_write buf={buf} off={at} hex={}", hex(piece)))?;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, span: &Span, bytes: &[u8]) -> Result<(), AgentError> {
        match self.mrs.get(&span.mr) {
            Some(mr) => self.write_buf(mr.buf, span.start, bytes),
            None => Ok(()),
        }
    }

    pub(super) fn read(&mut self, span: &Span) -> Result<Vec<u8>, AgentError> {
        let Some(buf) = self.mrs.get(&span.mr).map(|mr| mr.buf) else { return Ok(Vec::new()) };
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < span.len() {
            let at = span.start + bytes.len() as u64;
            let len = (span.end - at).min(PIECE as u64);
            let reply = self.agent.call(&format!("buf_read buf={buf} off={at} len={len}"))?;
            bytes.extend(unhex(reply.text("hex")?).ok_or_else(|| reply.lacks("hex"))?);
        }
        Ok(bytes)
    }

    pub(super) fn trampled(&mut self) -> Result<Vec<String>, AgentError> {
        let mut list = Vec::new();
        for (name, mr) in &self.mrs {
            if self.agent.call(&format!("buf_guard buf={}", mr.buf))?.text("guard")? != "ok" {
                list.push(name.clone());
            }
        }
        Ok(list)
    }

    // Work.

    fn sges(&self, spans: &[Span], lkey: Option<u32>) -> Result<String, String> {
        let mut text = String::new();
        for span in spans {
            let mr = self.mrs.get(&span.mr).ok_or_else(|| format!("there is no region {}", span.mr))?;
            let len = u32::try_from(span.len()).map_err(|_| format!("a piece of {} bytes", span.len()))?;
            let addr = mr.va.wrapping_add(span.start);
            let _ = write!(text, " sge={addr:#x}:{len:#x}:{:#x}", lkey.unwrap_or(mr.key));
        }
        Ok(text)
    }

    /// Puts inline bytes where the agent can post them from, and names them.
    fn inline_sge(&mut self, bytes: &[u8]) -> Call<String> {
        let (buf, addr) = match self.inline_buf {
            Some(buf) => buf,
            None => {
                let reply = self.agent.call(&format!("buf_alloc len={INLINE_ROOM}"))?;
                let buf = (reply.number("buf")?, reply.number("addr")?);
                self.inline_buf = Some(buf);
                buf
            }
        };
        if bytes.len() > INLINE_ROOM {
            return Ok(Err(format!("{} inline bytes", bytes.len())));
        }
        self.write_buf(buf, 0, bytes)?;
        Ok(Ok(format!(" sge={addr:#x}:{}:0", bytes.len())))
    }

    pub(super) fn post_send(&mut self, wr: &SendRequest) -> Call<()> {
        let sges = match &wr.inline {
            Some(bytes) => self.inline_sge(bytes)?,
            None => self.sges(&wr.sges, wr.lkey),
        };
        let sges = match sges {
            Ok(sges) => sges,
            Err(refused) => return Ok(Err(refused)),
        };
        let line = format!("post_send qp={} id={} {}{sges}", self.made().qp, wr.id, operation(wr));
        Ok(self.agent.ask(&line)?.map(drop).map_err(words))
    }

    pub(super) fn post_recv(&mut self, wr: &RecvRequest) -> Call<()> {
        let sges = match self.sges(&wr.sges, wr.lkey) {
            Ok(sges) => sges,
            Err(refused) => return Ok(Err(refused)),
        };
        let line = format!("post_recv qp={} id={}{sges}", self.made().qp, wr.id);
        Ok(self.agent.ask(&line)?.map(drop).map_err(words))
    }

    pub(super) fn modify(&mut self, attr: &QpAttr) -> Call<()> {
        let made = self.made();
        let line = format!("qp_modify qp={}{}", made.qp, attributes(attr, &made.peer, made.device_index));
        Ok(self.agent.ask(&line)?.map(drop).map_err(words))
    }

    pub(super) fn arm(&mut self, side: CqSide, solicited_only: bool) -> Result<(), AgentError> {
        let made = self.made.as_mut().expect("a script makes its queue pair first");
        let cq = match side {
            CqSide::Send => {
                made.send_armed = true;
                made.send_cq
            }
            CqSide::Recv => {
                made.recv_armed = true;
                made.recv_cq
            }
        };
        self.agent.call(&format!("cq_arm cq={cq} solicited={}", u8::from(solicited_only))).map(drop)
    }

    // What came of it.

    /// Completions, events and wake-ups that there are now.
    pub(super) fn collect(&mut self) -> Result<Vec<What>, AgentError> {
        let made = self.made();
        let (qp_cqs, armed) = ([made.send_cq, made.recv_cq], [made.send_armed, made.recv_armed]);
        let mut requests: Vec<String> = qp_cqs.iter().map(|cq| format!("cq_poll cq={cq} n=0")).collect();
        requests.push(format!("events ctx={} timeout_ms=0", self.ctx));
        let waits = qp_cqs.iter().zip(armed).filter(|(_, armed)| *armed);
        requests.extend(waits.map(|(cq, _)| format!("cq_wait cq={cq} timeout_ms=0")));
        let replies = self.agent.ask_all(&requests)?;
        let mut news = Vec::new();
        for (i, reply) in replies.into_iter().enumerate() {
            match (i, reply) {
                // A queue that has overrun has nothing more to give.
                (0 | 1, Err(_)) => {}
                (0, Ok(reply)) => completions(&reply, CqSide::Send, &mut news)?,
                (1, Ok(reply)) => completions(&reply, CqSide::Recv, &mut news)?,
                (2, Ok(reply)) => events(&reply, &mut news)?,
                (_, Ok(reply)) if reply.number("event")? > 0 => news.push(What::Event(EventName::Wakeup)),
                (_, Ok(_)) => {}
                (_, Err(refused)) => return Err(AgentError::Refused { request: requests[i].clone(), refused }),
            }
        }
        Ok(news)
    }

    fn query(&mut self) -> Result<Reply, AgentError> {
        let qp = self.made().qp;
        self.agent.call(&format!("qp_query qp={qp}"))
    }

    pub(super) fn state(&mut self) -> Result<QpState, AgentError> {
        let reply = self.query()?;
        QpState::from_u8(reply.number("state")? as u8).ok_or_else(|| reply.lacks("state"))
    }

    pub(super) fn attribute(&mut self, name: &str) -> Result<Option<u64>, AgentError> {
        Ok(self.query()?.number(name).ok())
    }

    pub(super) fn counter(&mut self, name: &str) -> Result<Option<u64>, AgentError> {
        if !self.abilities.counters {
            return Ok(None);
        }
        let qp = self.made().qp;
        Ok(self.agent.call(&format!("qp_counters qp={qp}"))?.number(name).ok())
    }

    fn all_drops(&mut self) -> Result<BTreeMap<String, u64>, AgentError> {
        if !self.abilities.drops {
            return Ok(BTreeMap::new());
        }
        let reply = self.agent.call("drops")?;
        Ok(reply.pairs().filter_map(|(name, value)| Some((name.to_owned(), number(value)?))).collect())
    }

    /// Packets dropped for a reason since the queue pair was made.
    pub(super) fn dropped(&mut self, reason: &str) -> Result<Option<u64>, AgentError> {
        let now = self.all_drops()?.get(reason).copied();
        let before = self.made().drops.get(reason).copied();
        Ok(now.zip(before).map(|(now, before)| now - before))
    }
}

/// Operation, flags and what the operation needs.
fn operation(wr: &SendRequest) -> String {
    let mut text = match wr.op {
        SendOp::Send => "op=send".to_owned(),
        SendOp::SendImm(imm) => format!("op=send_imm imm={:#x}", imm.0),
        SendOp::SendInv(key) => format!("op=send_inv inv={:#x}", key.0),
        SendOp::Write { va, rkey } => format!("op=write ra={va:#x} rkey={:#x}", rkey.0),
        SendOp::WriteImm { va, rkey, imm } => format!("op=write_imm ra={va:#x} rkey={:#x} imm={:#x}", rkey.0, imm.0),
        SendOp::Read { va, rkey } => format!("op=read ra={va:#x} rkey={:#x}", rkey.0),
        SendOp::CmpSwap { va, rkey, compare, swap } => {
            format!("op=cas ra={va:#x} rkey={:#x} compare={compare} swap={swap}", rkey.0)
        }
        SendOp::FetchAdd { va, rkey, add } => format!("op=fadd ra={va:#x} rkey={:#x} add={add}", rkey.0),
    };
    let flags = [
        (SendFlags::SIGNALED, "signaled"),
        (SendFlags::FENCE, "fence"),
        (SendFlags::SOLICITED, "solicited"),
        (SendFlags::INLINE, "inline"),
    ];
    let set: Vec<&str> = flags.into_iter().filter(|(flag, _)| wr.flags.contains(*flag)).map(|(_, name)| name).collect();
    let _ = write!(text, " flags={}", if set.is_empty() { "none".to_owned() } else { set.join(",") });
    text
}

/// The attributes that are set, each as a key: exactly these go into the mask.
fn attributes(attr: &QpAttr, peer: &str, index: u32) -> String {
    let state = |state: QpState| names::name(names::STATES, state).to_lowercase();
    let vector = |av: AddressVector| {
        let AddressVector { hop_limit, traffic_class, flow_label, sl, .. } = av;
        format!(
            "{peer} sgid_index={index} hop_limit={hop_limit} traffic_class={traffic_class} flow_label={flow_label} sl={sl}"
        )
    };
    let byte = |value: Option<u8>| value.map(|v| v.to_string());
    let table = [
        ("state", attr.qp_state.map(state)),
        ("cur_state", attr.cur_qp_state.map(state)),
        ("pkey_index", attr.pkey_index.map(|v| v.to_string())),
        ("port", byte(attr.port_num)),
        ("access", attr.qp_access_flags.map(|v| v.bits().to_string())),
        ("qkey", attr.qkey.map(|v| v.0.to_string())),
        ("dgid", attr.ah_attr.map(vector)),
        ("path_mtu", attr.path_mtu.map(|v| v.bytes().to_string())),
        ("dest_qpn", attr.dest_qp_num.map(|v| v.value().to_string())),
        ("rq_psn", attr.rq_psn.map(|v| v.value().to_string())),
        ("sq_psn", attr.sq_psn.map(|v| v.value().to_string())),
        ("max_rd_atomic", byte(attr.max_rd_atomic)),
        ("max_dest_rd_atomic", byte(attr.max_dest_rd_atomic)),
        ("min_rnr_timer", byte(attr.min_rnr_timer)),
        ("timeout", byte(attr.timeout)),
        ("retry_cnt", byte(attr.retry_cnt)),
        ("rnr_retry", byte(attr.rnr_retry)),
        ("en_sqd_notify", attr.en_sqd_async_notify.map(|v| u8::from(v).to_string())),
    ];
    table.into_iter().filter_map(|(key, value)| Some(format!(" {key}={}", value?))).collect()
}

/// `wc=id:status:opcode:byte_len:imm:qpn:src_qp:flags:vendor_err`, any number of them.
fn completions(reply: &Reply, side: CqSide, news: &mut Vec<What>) -> Result<(), AgentError> {
    for text in reply.all("wc") {
        let wc = completion(text).ok_or_else(|| reply.lacks("wc"))?;
        news.push(What::Completion(side, wc));
    }
    Ok(())
}

fn completion(text: &str) -> Option<Wc> {
    const OPCODES: [WcOpcode; 7] = [
        WcOpcode::Send,
        WcOpcode::RdmaWrite,
        WcOpcode::RdmaRead,
        WcOpcode::CompSwap,
        WcOpcode::FetchAdd,
        WcOpcode::Recv,
        WcOpcode::RecvRdmaWithImm,
    ];
    /// rdma_rxe hands the kernel's number of "with invalidate" on in place of that of verbs.
    const KERNEL_WITH_INV: u64 = 4;
    let fields: Vec<u64> = text.split(':').map(number).collect::<Option<_>>()?;
    let [id, status, opcode, len, imm, qpn, src_qp, flags, ..] = fields[..] else { return None };
    let mut known = WcFlags::from_bits_truncate(flags as u32);
    known.set(WcFlags::WITH_INV, known.contains(WcFlags::WITH_INV) || flags & KERNEL_WITH_INV != 0);
    let status = *WcStatus::ALL.iter().find(|s| **s as u64 == status)?;
    // The opcode of a request that failed is undefined in verbs.
    let opcode = OPCODES.into_iter().find(|o| *o as u64 == opcode);
    Some(Wc {
        wr_id: WrId(id),
        status,
        opcode: if status.is_success() { opcode? } else { opcode.unwrap_or(WcOpcode::Send) },
        byte_len: len as u32,
        imm: ImmData(imm as u32),
        qpn: Qpn::new(qpn as u32),
        src_qp: Qpn::new(src_qp as u32),
        flags: known,
        ..Wc::default()
    })
}

/// `event=NUMBER:QPN`, any number of them; those of the port and the device are none of a script's business.
fn events(reply: &Reply, news: &mut Vec<What>) -> Result<(), AgentError> {
    const NUMBERS: [(u64, EventKind); 6] = [
        (0, EventKind::CqErr),
        (1, EventKind::QpFatal),
        (2, EventKind::QpReqErr),
        (3, EventKind::QpAccessErr),
        (4, EventKind::CommEst),
        (5, EventKind::SqDrained),
    ];
    for text in reply.all("event") {
        let kind = text.split(':').next().and_then(number).ok_or_else(|| reply.lacks("event"))?;
        if let Some((_, kind)) = NUMBERS.into_iter().find(|(number, _)| *number == kind) {
            news.push(What::Event(EventName::Async(kind)));
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
