//! Opcodes: transport and operation in one byte, and what each operation is and carries.
//!
//! In: the first byte of the BTH. Out: [`Opcode`], its headers, its payload rule. Everything is a look-up in a constant table.

use core::fmt;

use crate::mtu::PathMtu;

/// What a packet does: the low five bits of the opcode (IBTA, BTH opcode).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Operation {
    /// First packet of a SEND.
    SendFirst = 0x00,
    /// Middle packet of a SEND.
    SendMiddle = 0x01,
    /// Last packet of a SEND.
    SendLast = 0x02,
    /// Last packet of a SEND with immediate.
    SendLastImm = 0x03,
    /// A SEND in one packet.
    SendOnly = 0x04,
    /// A SEND with immediate in one packet.
    SendOnlyImm = 0x05,
    /// First packet of an RDMA WRITE.
    WriteFirst = 0x06,
    /// Middle packet of an RDMA WRITE.
    WriteMiddle = 0x07,
    /// Last packet of an RDMA WRITE.
    WriteLast = 0x08,
    /// Last packet of an RDMA WRITE with immediate.
    WriteLastImm = 0x09,
    /// An RDMA WRITE in one packet.
    WriteOnly = 0x0A,
    /// An RDMA WRITE with immediate in one packet.
    WriteOnlyImm = 0x0B,
    /// RDMA READ request.
    ReadRequest = 0x0C,
    /// First response packet of a READ.
    ReadResponseFirst = 0x0D,
    /// Middle response packet of a READ.
    ReadResponseMiddle = 0x0E,
    /// Last response packet of a READ.
    ReadResponseLast = 0x0F,
    /// A READ response in one packet; also answers FLUSH and ATOMIC WRITE.
    ReadResponseOnly = 0x10,
    /// ACK or NAK.
    Acknowledge = 0x11,
    /// The answer to an atomic.
    AtomicAcknowledge = 0x12,
    /// Atomic compare-and-swap.
    CompareSwap = 0x13,
    /// Atomic fetch-and-add.
    FetchAdd = 0x14,
    /// Last packet of a SEND with invalidate.
    SendLastInv = 0x16,
    /// A SEND with invalidate in one packet.
    SendOnlyInv = 0x17,
    /// Flush (IBTA annex A19).
    Flush = 0x1C,
    /// Atomic write of 8 bytes (IBTA annex A19).
    AtomicWrite = 0x1D,
}

/// How much payload an operation may carry, P being the path MTU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PayloadRule {
    /// None at all.
    Empty,
    /// Exactly P.
    Full,
    /// 1 to P.
    NotEmpty,
    /// 0 to P.
    UpToMtu,
    /// Exactly 8 bytes.
    Eight,
}

impl PayloadRule {
    /// Whether `len` bytes of payload keep the rule at that path MTU.
    #[inline]
    pub const fn allows(self, len: usize, mtu: PathMtu) -> bool {
        match self {
            PayloadRule::Empty => len == 0,
            PayloadRule::Full => len == mtu.bytes(),
            PayloadRule::NotEmpty => len != 0 && len <= mtu.bytes(),
            PayloadRule::UpToMtu => len <= mtu.bytes(),
            PayloadRule::Eight => len == 8,
        }
    }
}

// Traits of an operation, one bit each in the table below.
const REQUEST: u16 = 1 << 0;
const RESPONSE: u16 = 1 << 1;
const FIRST: u16 = 1 << 2;
const MIDDLE: u16 = 1 << 3;
const LAST: u16 = 1 << 4;
const ONLY: u16 = 1 << 5;
const SEND: u16 = 1 << 6;
const WRITE: u16 = 1 << 7;
const ATOMIC: u16 = 1 << 8;
const READ_RESPONSE: u16 = 1 << 9;
const TAKES_RECV: u16 = 1 << 10;
const CONNECTED_UC: u16 = 1 << 11;
const DATAGRAM: u16 = 1 << 12;

#[derive(Clone, Copy)]
struct Info {
    operation: Option<Operation>,
    traits: u16,
    headers: HeaderSet,
    payload: PayloadRule,
    /// Names with transport prefix: RC, UC, UD; empty where the transport lacks the operation.
    names: &'static [&'static str; 3],
}

const RESERVED: Info =
    Info { operation: None, traits: 0, headers: HeaderSet::NONE, payload: PayloadRule::Empty, names: &["", "", ""] };

macro_rules! info {
    ($op:ident, $name:literal, $traits:expr, $headers:expr, $payload:ident) => {
        Info {
            operation: Some(Operation::$op),
            traits: $traits,
            headers: $headers,
            payload: PayloadRule::$payload,
            names: &[concat!("RC_", $name), concat!("UC_", $name), concat!("UD_", $name)],
        }
    };
}

/// The one table of operations, by the low five bits of the opcode.
static OPERATIONS: [Info; 32] = operations();

const fn operations() -> [Info; 32] {
    const NONE: HeaderSet = HeaderSet::NONE;
    const IMM: HeaderSet = HeaderSet::IMM;
    const RETH: HeaderSet = HeaderSet::RETH;
    const AETH: HeaderSet = HeaderSet::AETH;
    const S: u16 = REQUEST | SEND;
    const W: u16 = REQUEST | WRITE;
    const R: u16 = RESPONSE | READ_RESPONSE;
    const U: u16 = CONNECTED_UC;
    const D: u16 = DATAGRAM;
    const T: u16 = TAKES_RECV;
    let imm_reth = RETH.with(IMM);
    let entries = [
        info!(SendFirst, "SEND_FIRST", S | U | FIRST | T, NONE, Full),
        info!(SendMiddle, "SEND_MIDDLE", S | U | MIDDLE, NONE, Full),
        info!(SendLast, "SEND_LAST", S | U | LAST, NONE, NotEmpty),
        info!(SendLastImm, "SEND_LAST_IMM", S | U | LAST, IMM, NotEmpty),
        info!(SendOnly, "SEND_ONLY", S | U | D | ONLY | T, NONE, UpToMtu),
        info!(SendOnlyImm, "SEND_ONLY_IMM", S | U | D | ONLY | T, IMM, UpToMtu),
        info!(WriteFirst, "RDMA_WRITE_FIRST", W | U | FIRST, RETH, Full),
        info!(WriteMiddle, "RDMA_WRITE_MIDDLE", W | U | MIDDLE, NONE, Full),
        info!(WriteLast, "RDMA_WRITE_LAST", W | U | LAST, NONE, NotEmpty),
        info!(WriteLastImm, "RDMA_WRITE_LAST_IMM", W | U | LAST | T, IMM, NotEmpty),
        info!(WriteOnly, "RDMA_WRITE_ONLY", W | U | ONLY, RETH, UpToMtu),
        info!(WriteOnlyImm, "RDMA_WRITE_ONLY_IMM", W | U | ONLY | T, imm_reth, UpToMtu),
        info!(ReadRequest, "RDMA_READ_REQUEST", REQUEST | ONLY, RETH, Empty),
        info!(ReadResponseFirst, "RDMA_READ_RESPONSE_FIRST", R | FIRST, AETH, Full),
        info!(ReadResponseMiddle, "RDMA_READ_RESPONSE_MIDDLE", R | MIDDLE, NONE, Full),
        info!(ReadResponseLast, "RDMA_READ_RESPONSE_LAST", R | LAST, AETH, NotEmpty),
        info!(ReadResponseOnly, "RDMA_READ_RESPONSE_ONLY", R | ONLY, AETH, UpToMtu),
        info!(Acknowledge, "ACKNOWLEDGE", RESPONSE | ONLY, AETH, Empty),
        info!(AtomicAcknowledge, "ATOMIC_ACKNOWLEDGE", RESPONSE | ONLY, AETH.with(HeaderSet::ATOMIC_ACK), Empty),
        info!(CompareSwap, "COMPARE_SWAP", REQUEST | ATOMIC | ONLY, HeaderSet::ATOMIC_ETH, Empty),
        info!(FetchAdd, "FETCH_ADD", REQUEST | ATOMIC | ONLY, HeaderSet::ATOMIC_ETH, Empty),
        info!(SendLastInv, "SEND_LAST_INV", S | LAST, HeaderSet::IETH, NotEmpty),
        info!(SendOnlyInv, "SEND_ONLY_INV", S | ONLY | T, HeaderSet::IETH, UpToMtu),
        info!(Flush, "FLUSH", REQUEST | ONLY, HeaderSet::FETH.with(RETH), Empty),
        info!(AtomicWrite, "ATOMIC_WRITE", REQUEST | ONLY, RETH, Eight),
    ];
    let mut table = [RESERVED; 32];
    let mut i = 0;
    while i < entries.len() {
        if let Some(operation) = entries[i].operation {
            table[operation as usize] = entries[i];
        }
        i += 1;
    }
    table
}

impl Operation {
    #[inline]
    fn info(self) -> &'static Info {
        &OPERATIONS[self as usize]
    }

    #[inline]
    fn has(self, bits: u16) -> bool {
        self.info().traits & bits != 0
    }

    /// The operation with that code (low five bits); `None` if the code is reserved.
    #[inline]
    pub fn from_code(code: u8) -> Option<Operation> {
        OPERATIONS[(code & 0x1F) as usize].operation
    }

    /// The low five bits of the opcode.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether it goes from requester to responder.
    #[inline]
    pub fn is_request(self) -> bool {
        self.has(REQUEST)
    }

    /// Whether it goes from responder to requester.
    #[inline]
    pub fn is_response(self) -> bool {
        self.has(RESPONSE)
    }

    /// Whether it is the first of several packets.
    #[inline]
    pub fn is_first(self) -> bool {
        self.has(FIRST)
    }

    /// Whether it is neither first nor last.
    #[inline]
    pub fn is_middle(self) -> bool {
        self.has(MIDDLE)
    }

    /// Whether it is the last of several packets.
    #[inline]
    pub fn is_last(self) -> bool {
        self.has(LAST)
    }

    /// Whether it is a message (or response) in one packet.
    #[inline]
    pub fn is_only(self) -> bool {
        self.has(ONLY)
    }

    /// Whether it is a packet of a SEND, of any kind.
    #[inline]
    pub fn is_send(self) -> bool {
        self.has(SEND)
    }

    /// Whether it is a packet of an RDMA WRITE, of any kind (an ATOMIC WRITE is not).
    #[inline]
    pub fn is_write(self) -> bool {
        self.has(WRITE)
    }

    /// Whether it is an atomic request: compare-and-swap or fetch-and-add.
    #[inline]
    pub fn is_atomic(self) -> bool {
        self.has(ATOMIC)
    }

    /// Whether it is a response packet of an RDMA READ.
    #[inline]
    pub fn is_read_response(self) -> bool {
        self.has(READ_RESPONSE)
    }

    /// Whether a message begins with it: first or only.
    #[inline]
    pub fn begins_message(self) -> bool {
        self.has(FIRST | ONLY)
    }

    /// Whether a message ends with it: last or only.
    #[inline]
    pub fn ends_message(self) -> bool {
        self.has(LAST | ONLY)
    }

    /// Whether the responder takes a RECV for it: a SEND at its first packet, a WRITE with immediate at its last.
    #[inline]
    pub fn takes_recv(self) -> bool {
        self.has(TAKES_RECV)
    }

    /// Whether it carries immediate data.
    #[inline]
    pub fn has_imm(self) -> bool {
        self.headers().contains(HeaderSet::IMM)
    }

    /// Whether it carries an R_Key to invalidate.
    #[inline]
    pub fn has_inv(self) -> bool {
        self.headers().contains(HeaderSet::IETH)
    }

    /// Whether it carries a RETH.
    #[inline]
    pub fn has_reth(self) -> bool {
        self.headers().contains(HeaderSet::RETH)
    }

    /// Whether it carries an AETH.
    #[inline]
    pub fn has_aeth(self) -> bool {
        self.headers().contains(HeaderSet::AETH)
    }

    /// The extension headers it has on RC and UC.
    #[inline]
    // rule: wire.opcode
    pub fn headers(self) -> HeaderSet {
        self.info().headers
    }

    /// How much payload it may carry (IBTA, length validation).
    #[inline]
    pub fn payload_rule(self) -> PayloadRule {
        self.info().payload
    }

    /// Whether unreliable connected QPs have it: SEND and WRITE without invalidate.
    #[inline]
    pub fn on_uc(self) -> bool {
        self.has(CONNECTED_UC)
    }

    /// Whether datagram QPs have it: SEND in one packet.
    #[inline]
    pub fn on_ud(self) -> bool {
        self.has(DATAGRAM)
    }
}

/// The transport service an opcode belongs to: its upper three bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification, which belongs to no QP type.
    Cnp,
}

/// What a packet is: transport and operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Opcode {
    /// Reliable connection.
    Rc(Operation),
    /// Unreliable connection; only operations with [`Operation::on_uc`] come from the wire.
    Uc(Operation),
    /// Unreliable datagram; only operations with [`Operation::on_ud`] come from the wire.
    Ud(Operation),
    /// Congestion notification packet (IBTA annex A17).
    Cnp,
}

const RC: u8 = 0x00;
const UC: u8 = 0x20;
const UD: u8 = 0x60;
const CNP: u8 = 0x81;

/// Opcodes by their byte.
static OPCODES: [Option<Opcode>; 256] = opcodes();

const fn opcodes() -> [Option<Opcode>; 256] {
    let infos = operations();
    let mut table = [None; 256];
    let mut i = 0;
    while i < infos.len() {
        if let Some(operation) = infos[i].operation {
            table[i | RC as usize] = Some(Opcode::Rc(operation));
            if infos[i].traits & CONNECTED_UC != 0 {
                table[i | UC as usize] = Some(Opcode::Uc(operation));
            }
            if infos[i].traits & DATAGRAM != 0 {
                table[i | UD as usize] = Some(Opcode::Ud(operation));
            }
        }
        i += 1;
    }
    table[CNP as usize] = Some(Opcode::Cnp);
    table
}

impl Opcode {
    /// The opcode of that byte; `None` if it is reserved or of a transport we do not speak (RD, XRC, vendor).
    #[inline]
    pub fn from_byte(byte: u8) -> Option<Opcode> {
        OPCODES[byte as usize]
    }

    /// The byte on the wire.
    #[inline]
    pub const fn byte(self) -> u8 {
        match self {
            Opcode::Rc(operation) => RC | operation as u8,
            Opcode::Uc(operation) => UC | operation as u8,
            Opcode::Ud(operation) => UD | operation as u8,
            Opcode::Cnp => CNP,
        }
    }

    /// The name, like `RC_RDMA_WRITE_LAST_IMM`.
    pub fn name(self) -> &'static str {
        match self {
            Opcode::Rc(operation) => operation.info().names[0],
            Opcode::Uc(operation) => operation.info().names[1],
            Opcode::Ud(operation) => operation.info().names[2],
            Opcode::Cnp => "CNP",
        }
    }

    /// The transport service.
    #[inline]
    pub const fn transport(self) -> Transport {
        match self {
            Opcode::Rc(_) => Transport::Rc,
            Opcode::Uc(_) => Transport::Uc,
            Opcode::Ud(_) => Transport::Ud,
            Opcode::Cnp => Transport::Cnp,
        }
    }

    /// The operation; `None` for a CNP.
    #[inline]
    pub const fn operation(self) -> Option<Operation> {
        match self {
            Opcode::Rc(operation) | Opcode::Uc(operation) | Opcode::Ud(operation) => Some(operation),
            Opcode::Cnp => None,
        }
    }

    /// The extension headers that follow the BTH.
    #[inline]
    pub fn headers(self) -> HeaderSet {
        match self {
            Opcode::Rc(operation) | Opcode::Uc(operation) => operation.headers(),
            Opcode::Ud(operation) => HeaderSet::DETH.with(operation.headers()),
            Opcode::Cnp => HeaderSet::CNP_RESERVED,
        }
    }

    /// How much payload it may carry.
    #[inline]
    pub fn payload_rule(self) -> PayloadRule {
        match self.operation() {
            Some(operation) => operation.payload_rule(),
            None => PayloadRule::Empty,
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The extension headers a packet has, and how long they are together.
///
/// On the wire they stand in the order DETH, FETH, RETH or AtomicETH or AETH, AtomicAckETH, ImmDt or IETH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HeaderSet {
    bits: u16,
    len: u8,
}

impl HeaderSet {
    /// No extension header.
    pub const NONE: HeaderSet = HeaderSet { bits: 0, len: 0 };
    /// Datagram header, 8 bytes.
    pub const DETH: HeaderSet = HeaderSet { bits: 1 << 0, len: 8 };
    /// Flush header, 4 bytes.
    pub const FETH: HeaderSet = HeaderSet { bits: 1 << 1, len: 4 };
    /// RDMA header, 16 bytes.
    pub const RETH: HeaderSet = HeaderSet { bits: 1 << 2, len: 16 };
    /// Atomic header, 28 bytes.
    pub const ATOMIC_ETH: HeaderSet = HeaderSet { bits: 1 << 3, len: 28 };
    /// ACK header, 4 bytes.
    pub const AETH: HeaderSet = HeaderSet { bits: 1 << 4, len: 4 };
    /// Atomic ACK header, 8 bytes.
    pub const ATOMIC_ACK: HeaderSet = HeaderSet { bits: 1 << 5, len: 8 };
    /// Immediate data, 4 bytes.
    pub const IMM: HeaderSet = HeaderSet { bits: 1 << 6, len: 4 };
    /// Invalidate header, 4 bytes.
    pub const IETH: HeaderSet = HeaderSet { bits: 1 << 7, len: 4 };
    /// The reserved bytes of a CNP, 16 bytes.
    pub const CNP_RESERVED: HeaderSet = HeaderSet { bits: 1 << 8, len: 16 };

    /// Both sets together; they must not share a header.
    pub(crate) const fn with(self, other: HeaderSet) -> HeaderSet {
        HeaderSet { bits: self.bits | other.bits, len: self.len + other.len }
    }

    /// Whether all headers of `other` are in this set.
    #[inline]
    pub const fn contains(self, other: HeaderSet) -> bool {
        self.bits & other.bits == other.bits
    }

    /// Where the RETH stands behind the BTH: first, or behind the FETH.
    #[inline]
    pub(crate) const fn reth_at(self) -> usize {
        if self.contains(HeaderSet::FETH) { HeaderSet::FETH.byte_len() } else { 0 }
    }

    /// Bytes of all headers together, 0 to 28.
    #[inline]
    pub const fn byte_len(self) -> usize {
        self.len as usize
    }
}
