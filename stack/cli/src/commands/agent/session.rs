//! One connection: its commands and its objects.
//!
//! In: request lines. Out: reply lines. A request that fails leaves the connection usable.

use std::sync::Arc;

use xroce::{DropReason, Pd, PortState};

use super::Shared;
use super::memory;
use super::objects::{Object, Objects};
use super::protocol::{Args, Done, Fault, Pairs, errno};
use super::{queues, work};

/// A client, and what it has made.
#[derive(Debug)]
pub struct Session {
    objects: Objects,
    /// Of the regions that hold the buffers. Made at the first buffer.
    own_pd: Option<Pd>,
    shared: Arc<Shared>,
}

type Command = fn(&mut Session, &Args<'_>) -> Done;

/// Every command and its keys. A key that is not listed is refused: a slip must not pass as a default.
const COMMANDS: &[(&str, &str, Command)] = &[
    ("help", "", |_, _| Ok(help())),
    ("devices", "", |s, _| Ok(Pairs::none().with("dev", s.shared.context.name()))),
    ("open", "dev", Session::open),
    ("query_device", "ctx", Session::query_device),
    ("query_port", "ctx", Session::query_port),
    ("gids", "ctx", Session::gids),
    ("counters", "dev", Session::counters),
    ("drops", "", Session::drops),
    ("events", "ctx timeout_ms", |s, args| work::events(&s.objects, &s.shared, args)),
    ("buf_alloc", "len shift seed", Session::buf_alloc),
    ("buf_fill", "buf off len seed at", |s, args| memory::fill(&s.objects, args)),
    ("buf_verify", "buf off len seed at", |s, args| memory::verify(&s.objects, args)),
    ("buf_read", "buf off len", |s, args| memory::read(&s.objects, args)),
    ("buf_write", "buf off len hex", |s, args| memory::write(&s.objects, args)),
    ("buf_crc", "buf off len", |s, args| memory::crc(&s.objects, args)),
    ("buf_guard", "buf", |s, args| memory::guard(&s.objects, args)),
    ("pd_alloc", "ctx", Session::pd_alloc),
    ("mr_reg", "pd buf off len access iova invalidate", |s, args| memory::register(&mut s.objects, args)),
    ("cq_create", "ctx cqe channel", |s, args| queues::create_cq(&mut s.objects, args)),
    ("cq_poll", "cq n timeout_ms", |s, args| work::poll(&s.objects, args)),
    ("cq_arm", "cq solicited", |s, args| work::arm(&s.objects, args)),
    ("cq_wait", "cq timeout_ms", |s, args| work::wait(&s.objects, args)),
    ("qp_create", "pd type scq rcq send_wr recv_wr send_sge recv_sge inline sig_all", |s, args| {
        queues::create_qp(&mut s.objects, args)
    }),
    (
        "qp_modify",
        "qp state cur_state port pkey_index access qkey dgid sgid_index hop_limit traffic_class flow_label sl path_mtu \
         dest_qpn rq_psn sq_psn max_rd_atomic max_dest_rd_atomic min_rnr_timer timeout retry_cnt rnr_retry en_sqd_notify",
        |s, args| queues::modify(&s.objects, args),
    ),
    ("qp_query", "qp", |s, args| queues::query(&s.objects, args)),
    ("qp_counters", "qp", |s, args| queues::counters(&s.objects, args)),
    ("post_send", "qp id op flags sge ra rkey imm inv compare swap add", |s, args| work::post_send(&s.objects, args)),
    ("post_recv", "qp id sge", |s, args| work::post_recv(&s.objects, args)),
    ("destroy", "h", |s, args| s.objects.destroy(args.need("h")?).map(|()| Pairs::none())),
];

fn help() -> Pairs {
    let list: Vec<String> = COMMANDS.iter().map(|(name, keys, _)| format!("{name}({keys})")).collect();
    Pairs::words(&list.join(" "))
}

impl Session {
    /// A client that has made nothing yet.
    pub fn new(shared: Arc<Shared>) -> Session {
        Session { objects: Objects::default(), own_pd: None, shared }
    }

    /// Carries out a request line; gives the reply line.
    pub fn serve(&mut self, line: &str) -> String {
        match self.carry_out(line) {
            Ok(pairs) => pairs.line(),
            Err(fault) => fault.line(),
        }
    }

    fn carry_out(&mut self, line: &str) -> Done {
        let (name, args) = Args::of(line)?;
        if name.is_empty() {
            return Err(Fault::new(errno::EINVAL, "line", "empty"));
        }
        let Some((_, keys, command)) = COMMANDS.iter().find(|(known, ..)| *known == name) else {
            return Err(Fault::new(errno::ENOSYS, name, "unknown command (help lists them)"));
        };
        match args.unknown(keys) {
            Some(key) => Err(Fault::new(errno::EINVAL, key, format!("{name} takes: {keys}"))),
            None => command(self, &args),
        }
    }

    fn open(&mut self, args: &Args<'_>) -> Done {
        let context = self.shared.context.clone();
        match args.text("dev") {
            Some(name) if name != context.name() => {
                Err(Fault::new(errno::ENODEV, "dev", format!("no such device: {name}")))
            }
            _ => Ok(Pairs::none().with("ctx", self.objects.add(Object::Context(context)))),
        }
    }

    fn query_device(&mut self, args: &Args<'_>) -> Done {
        let d = self.objects.context(args, "ctx")?.query_device();
        let counts = Pairs::none().with("max_qp", d.max_qp).with("max_qp_wr", d.max_qp_wr).with("max_sge", d.max_sge);
        let counts = counts.with("max_cqe", d.max_cqe).with("max_mr", d.max_mr).with("max_pd", d.max_pd);
        let counts = counts.with("max_qp_rd_atom", d.max_qp_rd_atom).with("max_qp_init_rd_atom", d.max_qp_init_rd_atom);
        Ok(counts.with("max_inline", d.max_inline_data))
    }

    fn query_port(&mut self, args: &Args<'_>) -> Done {
        let p = self.objects.context(args, "ctx")?.query_port();
        // The numbers of enum ibv_port_state: 1 is down, 4 active. Ethernet is link layer 2.
        let state = if p.state == PortState::Active { 4 } else { 1 };
        let pairs = Pairs::none().with("state", state).with("max_mtu", p.max_mtu.bytes());
        let pairs =
            pairs.with("active_mtu", p.active_mtu.map_or(0, |mtu| mtu.bytes())).with("gid_tbl_len", p.gid_tbl_len);
        let pairs = pairs.with("max_msg_sz", format_args!("{:#x}", p.max_msg_sz));
        Ok(pairs.with("pkey_tbl_len", p.pkey_tbl_len).with("link_layer", 2))
    }

    fn gids(&mut self, args: &Args<'_>) -> Done {
        let table = self.objects.context(args, "ctx")?.gid_table();
        let entry = |pairs: Pairs, e: &xroce::GidEntry| {
            pairs.with("gid", format_args!("{}:{}:v2", e.index, e.gid.to_hex32().as_str()))
        };
        Ok(table.iter().fold(Pairs::none(), entry))
    }

    /// Of the whole device, which the connections share.
    fn counters(&mut self, args: &Args<'_>) -> Done {
        let name = self.shared.context.name();
        if args.text("dev").is_some_and(|dev| dev != name) {
            return Err(Fault::new(errno::ENODEV, "dev", format!("this is {name}")));
        }
        let shards = self.shared.context.counters().map_err(|error| Fault::new(errno::EIO, "counters", error))?;
        let mut sum = xroce::QpCounters::default();
        shards.iter().for_each(|(_, _, transport)| sum.add(&transport.qp));
        Ok(sum.iter().fold(Pairs::none(), |pairs, (name, value)| pairs.with(name, value)))
    }

    /// Packets that the whole device dropped, by reason.
    fn drops(&mut self, _: &Args<'_>) -> Done {
        let shards = self.shared.context.counters().map_err(|error| Fault::new(errno::EIO, "drops", error))?;
        let count =
            |reason: DropReason| shards.iter().map(|(_, _, transport)| transport.drops.get(reason)).sum::<u64>();
        Ok(DropReason::ALL.iter().fold(Pairs::none(), |pairs, &reason| pairs.with(reason.name(), count(reason))))
    }

    fn pd_alloc(&mut self, args: &Args<'_>) -> Done {
        let made = self.objects.context(args, "ctx")?.alloc_pd();
        let pd = made.map_err(|error| Fault::new(errno::ENOMEM, "ibv_alloc_pd", error))?;
        Ok(Pairs::none().with("pd", self.objects.add(Object::Pd(pd))))
    }

    fn buf_alloc(&mut self, args: &Args<'_>) -> Done {
        if self.own_pd.is_none() {
            let made = self.shared.context.alloc_pd();
            self.own_pd = Some(made.map_err(|error| Fault::new(errno::ENOMEM, "buf_alloc", error))?);
        }
        let pd = self.own_pd.as_ref().expect("made above");
        memory::alloc(&mut self.objects, pd, args)
    }
}
