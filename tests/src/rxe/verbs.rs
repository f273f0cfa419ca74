//! What the agent's commands take and give, as types. Enters: nothing. Leaves: words for requests, values from replies.
//!
//! Numbers are those of verbs.h; names are the verbs names. Handles are valid on the connection that made them.

use std::net::{IpAddr, Ipv6Addr};

use super::agent::parse_number;

/// An open device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ctx(pub(super) u64);
/// A protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pd(pub(super) u64);
/// A shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Srq(pub(super) u64);
/// A completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cq(pub(super) u64);

/// A buffer of the guest, with guard bytes before and behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buf {
    pub(super) handle: u64,
    /// Its address in the agent's process.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

/// A memory region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mr {
    pub(super) handle: u64,
    /// For the guest's own SGEs.
    pub lkey: u32,
    /// For the other end.
    pub rkey: u32,
    /// The address of its first byte as both keys mean it.
    pub va: u64,
    /// Bytes.
    pub len: u64,
}

impl Mr {
    /// The `len` bytes from `off` on.
    pub fn sge(&self, off: u64, len: u32) -> Sge {
        Sge { addr: self.va + off, len, lkey: self.lkey }
    }
}

/// A memory window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mw {
    pub(super) handle: u64,
    /// The key it was made with; binding gives another one.
    pub rkey: u32,
}

/// A queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Qp {
    pub(super) handle: u64,
    /// Its number on the wire.
    pub qpn: u32,
    /// RC or UC.
    pub kind: QpKind,
}

macro_rules! handles {
    ($($type:ty: $field:tt),*) => { $(impl From<$type> for u64 { fn from(object: $type) -> Self { object.$field } })* };
}
handles!(Ctx: 0, Pd: 0, Srq: 0, Cq: 0, Buf: handle, Mr: handle, Mw: handle, Qp: handle);

bitflags::bitflags! {
    /// ibv_access_flags.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Access: u32 {
        /// RECV, READ responses and atomics may write here.
        const LOCAL_WRITE = 1;
        /// The other end may write.
        const REMOTE_WRITE = 2;
        /// The other end may read.
        const REMOTE_READ = 4;
        /// The other end may do atomics.
        const REMOTE_ATOMIC = 8;
        /// Windows may be bound to it.
        const MW_BIND = 16;
        /// Addresses count from 0 (rxe refuses it for an MR).
        const ZERO_BASED = 32;
    }
}

bitflags::bitflags! {
    /// ibv_send_flags.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flags: u32 {
        /// Wait for all earlier READs and atomics.
        const FENCE = 1;
        /// Give a completion.
        const SIGNALED = 2;
        /// Set the solicited event bit.
        const SOLICITED = 4;
        /// Take the bytes at post.
        const INLINE = 8;
    }
}

impl Flags {
    pub(super) fn words(self) -> String {
        let names: Vec<_> = self.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(",") }
    }
}

/// Type of a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpKind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
}

/// ibv_qp_state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum QpState {
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqd = 4,
    Sqe = 5,
    Err = 6,
}

/// What a QP is made of.
#[derive(Clone, Copy, Debug)]
pub struct QpSpec {
    /// RC or UC.
    pub kind: QpKind,
    /// Its protection domain.
    pub pd: Pd,
    /// For send completions.
    pub send_cq: Cq,
    /// For receive completions.
    pub recv_cq: Cq,
    /// RECVs come from there.
    pub srq: Option<Srq>,
    /// Depth of the send queue.
    pub send_wr: u32,
    /// Depth of the receive queue.
    pub recv_wr: u32,
    /// SGEs a send.
    pub send_sge: u32,
    /// SGEs a RECV.
    pub recv_sge: u32,
    /// Bytes of inline data.
    pub inline: u32,
    /// Every send gives a completion.
    pub sig_all: bool,
}

impl QpSpec {
    /// An RC QP, 64 deep both ways, 4 SGEs, 64 bytes inline, one CQ.
    pub fn rc(pd: Pd, cq: Cq) -> Self {
        Self {
            kind: QpKind::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            send_wr: 64,
            recv_wr: 64,
            send_sge: 4,
            recv_sge: 4,
            inline: 64,
            sig_all: false,
        }
    }

    /// The same as UC.
    pub fn uc(pd: Pd, cq: Cq) -> Self {
        Self { kind: QpKind::Uc, ..Self::rc(pd, cq) }
    }
}

/// Attributes for ibv_modify_qp; what is `Some` is in the mask. Units are those of verbs, but the path MTU is in bytes.
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs)]
pub struct QpAttr {
    pub state: Option<QpState>,
    pub cur_state: Option<QpState>,
    pub port: Option<u8>,
    pub pkey_index: Option<u16>,
    pub access: Option<Access>,
    pub dgid: Option<Ipv6Addr>,
    pub sgid_index: Option<u8>,
    pub hop_limit: Option<u8>,
    pub traffic_class: Option<u8>,
    pub flow_label: Option<u32>,
    pub path_mtu: Option<u32>,
    pub dest_qpn: Option<u32>,
    pub rq_psn: Option<u32>,
    pub sq_psn: Option<u32>,
    pub max_rd_atomic: Option<u8>,
    pub max_dest_rd_atomic: Option<u8>,
    pub min_rnr_timer: Option<u8>,
    pub timeout: Option<u8>,
    pub retry_cnt: Option<u8>,
    pub rnr_retry: Option<u8>,
    pub en_sqd_notify: Option<bool>,
}

/// All that the three modifies of a plain connection take; for RC and UC.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Path {
    pub remote: IpAddr,
    pub sgid_index: u8,
    pub path_mtu: u32,
    pub dest_qpn: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub access: Access,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub flow_label: u32,
}

impl Path {
    /// All remote rights, 16 READs and atomics each way, RNR timer 0.64 ms, ACK timeout 67 ms, 6 retries of both kinds.
    pub fn new(remote: IpAddr, sgid_index: u8, path_mtu: u32, dest_qpn: u32, rq_psn: u32, sq_psn: u32) -> Self {
        Self {
            remote,
            sgid_index,
            path_mtu,
            dest_qpn,
            rq_psn,
            sq_psn,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            timeout: 14,
            retry_cnt: 6,
            rnr_retry: 6,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        }
    }
}

/// A piece of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sge {
    /// Its first byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// Key of the region.
    pub lkey: u32,
}

/// What a send request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Op {
    Send,
    SendImm(u32),
    SendInv(u32),
    Write { va: u64, rkey: u32 },
    WriteImm { va: u64, rkey: u32, imm: u32 },
    Read { va: u64, rkey: u32 },
    CmpSwap { va: u64, rkey: u32, compare: u64, swap: u64 },
    FetchAdd { va: u64, rkey: u32, add: u64 },
    LocalInv(u32),
}

impl Op {
    pub(super) fn words(self) -> String {
        match self {
            Self::Send => "send".to_owned(),
            Self::SendImm(imm) => format!("send_imm imm={imm:#x}"),
            Self::SendInv(rkey) => format!("send_inv inv={rkey:#x}"),
            Self::Write { va, rkey } => format!("write ra={va:#x} rkey={rkey:#x}"),
            Self::WriteImm { va, rkey, imm } => format!("write_imm ra={va:#x} rkey={rkey:#x} imm={imm:#x}"),
            Self::Read { va, rkey } => format!("read ra={va:#x} rkey={rkey:#x}"),
            Self::CmpSwap { va, rkey, compare, swap } => {
                format!("cas ra={va:#x} rkey={rkey:#x} compare={compare:#x} swap={swap:#x}")
            }
            Self::FetchAdd { va, rkey, add } => format!("fadd ra={va:#x} rkey={rkey:#x} add={add:#x}"),
            Self::LocalInv(rkey) => format!("local_inv inv={rkey:#x}"),
        }
    }
}

/// A send request, or `count` of them: each later one has its id one higher, and the addresses of its SGEs and of its READ
/// or WRITE `stride` bytes further.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct SendWr {
    pub id: u64,
    pub op: Op,
    pub flags: Flags,
    pub sges: Vec<Sge>,
    pub count: u32,
    pub stride: u64,
}

impl SendWr {
    /// One signaled request.
    pub fn new(id: u64, op: Op, sges: &[Sge]) -> Self {
        Self { id, op, flags: Flags::SIGNALED, sges: sges.to_vec(), count: 1, stride: 0 }
    }

    /// With further flags.
    pub fn with(mut self, flags: Flags) -> Self {
        self.flags |= flags;
        self
    }
}

/// A receive request, or `count` of them as in [`SendWr`].
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct RecvWr {
    pub id: u64,
    pub sges: Vec<Sge>,
    pub count: u32,
    pub stride: u64,
}

impl RecvWr {
    /// One request.
    pub fn new(id: u64, sges: &[Sge]) -> Self {
        Self { id, sges: sges.to_vec(), count: 1, stride: 0 }
    }
}

/// ibv_wc_status, as [`Wc::status`] holds it.
#[allow(missing_docs)]
pub mod status {
    pub const SUCCESS: u32 = 0;
    pub const LOC_LEN_ERR: u32 = 1;
    pub const LOC_QP_OP_ERR: u32 = 2;
    pub const LOC_PROT_ERR: u32 = 4;
    pub const WR_FLUSH_ERR: u32 = 5;
    pub const MW_BIND_ERR: u32 = 6;
    pub const LOC_ACCESS_ERR: u32 = 8;
    pub const REM_INV_REQ_ERR: u32 = 9;
    pub const REM_ACCESS_ERR: u32 = 10;
    pub const REM_OP_ERR: u32 = 11;
    pub const RETRY_EXC_ERR: u32 = 12;
    pub const RNR_RETRY_EXC_ERR: u32 = 13;
}

/// A completion, in the numbers of verbs.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wc {
    /// Of the request.
    pub wr_id: u64,
    /// ibv_wc_status; names in [`status`].
    pub status: u32,
    /// ibv_wc_opcode: 0 send, 1 write, 2 read, 3 cmp_swap, 4 fetch_add, 5 bind_mw, 6 local_inv, 128 recv, 129 recv of a
    /// WRITE with immediate data. Meaningless unless the status is success.
    pub opcode: u32,
    /// Bytes.
    pub byte_len: u32,
    /// Immediate data (the number that is big-endian on the wire) or invalidated rkey, by `flags`.
    pub imm: u32,
    /// The guest's QP.
    pub qpn: u32,
    /// The other end's QP, where known.
    pub src_qp: u32,
    /// ibv_wc_flags: 1 GRH, 2 with imm, 8 with inv; rxe says 4 for the latter, the kernel's own value.
    pub flags: u32,
    /// What the driver adds.
    pub vendor_err: u32,
}

impl Wc {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = text.split(':').map(parse_number).collect::<Option<_>>()?;
        let [wr_id, status, opcode, byte_len, imm, qpn, src_qp, flags, vendor_err] = fields.try_into().ok()?;
        Some(Self {
            wr_id,
            status: status as u32,
            opcode: opcode as u32,
            byte_len: byte_len as u32,
            imm: imm as u32,
            qpn: qpn as u32,
            src_qp: src_qp as u32,
            flags: flags as u32,
            vendor_err: vendor_err as u32,
        })
    }

    /// Whether the request was carried out.
    pub fn ok(&self) -> bool {
        self.status == status::SUCCESS
    }

    /// The immediate data, if there is any.
    pub fn immediate(&self) -> Option<u32> {
        (self.flags & 2 != 0).then_some(self.imm)
    }

    /// The key that a SEND_WITH_INV made invalid.
    pub fn invalidated(&self) -> Option<u32> {
        (self.flags & (8 | 4) != 0).then_some(self.imm)
    }
}

/// A GID of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerGid {
    /// Its place in the table.
    pub index: u8,
    /// The GID; IPv4 addresses are v4-mapped.
    pub gid: Ipv6Addr,
    /// Whether it is for RoCE v2.
    pub v2: bool,
}

/// An asynchronous event: ibv_event_type, and the QP's number (0: not about a QP).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct AsyncEvent {
    pub kind: u32,
    pub qpn: u32,
}

/// Whether memory holds what it should.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It does.
    Good,
    /// It does not: the agent's words.
    Bad(String),
}

impl Verdict {
    /// # Panics
    /// The memory is not as it should be.
    #[track_caller]
    pub fn assert_good(&self) {
        assert_eq!(*self, Self::Good);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_are_taken_apart() {
        let wc = Wc::parse("0x10:0:128:44:0xdeadbeef:0x11:0x12:2:0").unwrap();
        assert_eq!(
            (wc.wr_id, wc.opcode, wc.byte_len, wc.immediate(), wc.invalidated()),
            (16, 128, 44, Some(0xdead_beef), None)
        );
        assert!(Wc::parse("1:2:3").is_none() && Wc::parse("x:0:0:0:0:0:0:0:0").is_none());
    }

    #[test]
    fn flags_are_written_as_the_agent_reads_them() {
        assert_eq!((Flags::SIGNALED | Flags::FENCE).words(), "fence,signaled");
        assert_eq!(Flags::empty().words(), "none");
    }
}
