//! Work requests and what becomes of them: completions, wake-ups, events.
//!
//! In: requests by the names of verbs. Out: completions as `wc=id:status:opcode:byte_len:imm:qpn:src_qp:flags:vendor_err`,
//! events as `event=NUMBER:QPN`, with the numbers of verbs.

use std::time::{Duration, Instant};

use xroce::{
    AsyncEvent, AsyncEventKind, ImmData, PostChainError, PostError, PostReason, RecvWr, Rkey, SendFlags, SendOp,
};
use xroce::{SendWr, Wc, WcStatus, WrId};

use super::Shared;
use super::memory::inline_bytes;
use super::objects::{Object, Objects};
use super::protocol::{Args, Done, Fault, Pairs, errno};
use super::queues::sges;

/// The most completions of one reply.
const WC_MAX: u64 = 4096;
/// Between two looks at an empty queue.
const IDLE: Duration = Duration::from_micros(20);

fn flags(args: &Args<'_>) -> Result<SendFlags, Fault> {
    let mut flags = SendFlags::empty();
    for word in args.text("flags").unwrap_or("signaled").split(',') {
        flags |= match word {
            "none" => SendFlags::empty(),
            "fence" => SendFlags::FENCE,
            "signaled" => SendFlags::SIGNALED,
            "solicited" => SendFlags::SOLICITED,
            "inline" => SendFlags::INLINE,
            _ => return Err(Fault::new(errno::EINVAL, "flags", format!("unknown: {word}"))),
        };
    }
    Ok(flags)
}

fn operation(args: &Args<'_>) -> Result<SendOp, Fault> {
    let (va, rkey) = (args.number_or("ra", 0)?, Rkey(args.number_or("rkey", 0)?));
    let imm = ImmData(args.number_or("imm", 0)?);
    let name = args.text("op").unwrap_or("send");
    Ok(match name {
        "send" => SendOp::Send,
        "send_imm" => SendOp::SendImm(imm),
        "send_inv" => SendOp::SendInv(Rkey(args.number_or("inv", 0)?)),
        "write" => SendOp::Write { va, rkey },
        "write_imm" => SendOp::WriteImm { va, rkey, imm },
        "read" => SendOp::Read { va, rkey },
        "cas" => SendOp::CmpSwap { va, rkey, compare: args.number_or("compare", 0)?, swap: args.number_or("swap", 0)? },
        "fadd" => SendOp::FetchAdd { va, rkey, add: args.number_or("add", 0)? },
        _ => return Err(Fault::new(errno::EINVAL, "op", format!("unknown: {name}"))),
    })
}

fn refused(call: &str, error: &PostChainError) -> Fault {
    let full = matches!(error.reason, PostReason::Request(PostError::QueueFull { .. }));
    Fault::new(if full { errno::ENOMEM } else { errno::EINVAL }, call, error)
}

/// `post_send qp= id= op= flags= sge= ...`
pub fn post_send(objects: &Objects, args: &Args<'_>) -> Done {
    let qp = objects.qp(args, "qp")?;
    let (op, flags, sges) = (operation(args)?, flags(args)?, sges(args)?);
    let wr_id = WrId(args.number_or("id", 0)?);
    let posted = if flags.contains(SendFlags::INLINE) {
        let bytes: Vec<Vec<u8>> =
            sges.iter().map(|sge| inline_bytes(objects, sge.addr, sge.length)).collect::<Result<_, _>>()?;
        let pieces: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        qp.post_send(&SendWr { wr_id, op, flags, sges: &[], inline: &pieces })
    } else {
        qp.post_send(&SendWr { wr_id, op, flags, sges: &sges, inline: &[] })
    };
    posted.map(|()| Pairs::none()).map_err(|error| refused("ibv_post_send", &error))
}

/// `post_recv qp= id= sge=`
pub fn post_recv(objects: &Objects, args: &Args<'_>) -> Done {
    let qp = objects.qp(args, "qp")?;
    let wr = RecvWr { wr_id: WrId(args.number_or("id", 0)?), sges: &sges(args)? };
    qp.post_recv(&wr).map(|()| Pairs::none()).map_err(|error| refused("ibv_post_recv", &error))
}

fn say(wc: &Wc) -> String {
    let Wc { wr_id, status, opcode, byte_len, qpn, src_qp, flags, .. } = wc;
    let imm = wc.imm_or_rkey();
    format!(
        "{:#x}:{}:{}:{byte_len}:{imm:#x}:{:#x}:{:#x}:{}:{}",
        wr_id.0,
        *status as u8,
        *opcode as u8,
        qpn.value(),
        src_qp.value(),
        flags.bits(),
        wc.detail.syndrome
    )
}

/// For who watches the agent: the protocol has no words for it. What was flushed follows from what failed before.
fn tell(wc: &Wc) {
    if let Some(failure) = wc.failure().filter(|failure| failure.status != WcStatus::WrFlushErr) {
        eprintln!("xroce agent: {failure}");
    }
}

/// The longest a request may wait, in milliseconds: a client that was killed meanwhile keeps its objects for so long.
const TIMEOUT_MAX_MS: u64 = 600_000;

fn patience(args: &Args<'_>) -> Result<Duration, Fault> {
    match args.number_or("timeout_ms", 0)? {
        ms @ ..=TIMEOUT_MAX_MS => Ok(Duration::from_millis(ms)),
        ms => Err(Fault::new(errno::EINVAL, "timeout_ms", format!("{ms} is more than {TIMEOUT_MAX_MS}, ten minutes"))),
    }
}

/// `cq_poll cq= n= timeout_ms=`: waits until n completions came or the time is over; says those that came. n=0: what is there.
pub fn poll(objects: &Objects, args: &Args<'_>) -> Done {
    let cq = &objects.cq(args, "cq")?.cq;
    let (want, patience): (u64, _) = (args.number_or("n", 1)?, patience(args)?);
    let start = Instant::now();
    let (mut reply, mut got) = (Pairs::none(), 0);
    while got < WC_MAX && (want == 0 || got < want) {
        match cq.poll_one() {
            Ok(Some(wc)) => {
                reply = reply.with("wc", say(&wc));
                tell(&wc);
                got += 1;
            }
            Ok(None) if want == 0 || start.elapsed() >= patience => break,
            Ok(None) => std::thread::sleep(IDLE),
            // What came before is said; the next poll tells.
            Err(_) if got > 0 => break,
            Err(error) => return Err(Fault::new(errno::EIO, "ibv_poll_cq", error)),
        }
    }
    Ok(reply.with("n", got))
}

/// `cq_arm cq= solicited=`
pub fn arm(objects: &Objects, args: &Args<'_>) -> Done {
    let solicited = args.number_or("solicited", 0u8)? != 0;
    let armed = objects.cq(args, "cq")?.cq.req_notify(solicited);
    armed.map(|_| Pairs::none()).map_err(|error| Fault::new(errno::EINVAL, "ibv_req_notify_cq", error))
}

/// `cq_wait cq= timeout_ms=`: event=1, the armed queue's channel told so within the time; event=0, it did not.
pub fn wait(objects: &Objects, args: &Args<'_>) -> Done {
    let channel = objects.cq(args, "cq")?.channel.as_ref();
    let channel = channel.ok_or_else(|| Fault::new(errno::EINVAL, "cq", "made without channel=1"))?;
    let event = channel.get_cq_event(Some(patience(args)?));
    let event = event.map_err(|error| Fault::new(errno::EIO, "ibv_get_cq_event", error))?;
    Ok(Pairs::none().with("event", u8::from(event.is_some())))
}

/// The number of enum ibv_event_type.
fn number(kind: AsyncEventKind) -> u8 {
    match kind {
        AsyncEventKind::CqErr => 0,
        AsyncEventKind::QpFatal => 1,
        AsyncEventKind::QpReqErr => 2,
        AsyncEventKind::QpAccessErr => 3,
        AsyncEventKind::CommEst => 4,
        AsyncEventKind::SqDrained => 5,
        AsyncEventKind::DeviceFatal => 8,
        AsyncEventKind::PortActive => 9,
        AsyncEventKind::PortErr => 10,
        AsyncEventKind::GidChange => 18,
    }
}

/// `events ctx= timeout_ms=`: the events of this connection's objects, and those of the port; waits for a first one.
pub fn events(objects: &Objects, shared: &Shared, args: &Args<'_>) -> Done {
    objects.context(args, "ctx")?;
    let patience = patience(args)?;
    let start = Instant::now();
    let ours = |event: &AsyncEvent| is_ours(objects, event);
    let list = loop {
        let list = shared.take_events(ours);
        if !list.is_empty() || start.elapsed() >= patience {
            break list;
        }
        std::thread::sleep(IDLE);
    };
    let pair = |pairs: Pairs, event: &AsyncEvent| {
        let qpn = event.qpn.map_or(0, |qpn| qpn.value());
        pairs.with("event", format_args!("{}:{qpn:#x}", number(event.kind)))
    };
    Ok(list.iter().fold(Pairs::none(), pair).with("n", list.len()))
}

fn is_ours(objects: &Objects, event: &AsyncEvent) -> bool {
    let has = |of: &dyn Fn(&Object) -> bool| objects.iter().any(of);
    match (event.qpn, event.cq) {
        (Some(qpn), _) => has(&|object| matches!(object, Object::Qp(qp) if qp.qpn() == qpn)),
        (None, Some(cq)) => has(&|object| matches!(object, Object::Cq(one) if one.cq.id().0 == cq)),
        (None, None) => true,
    }
}
