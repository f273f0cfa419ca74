//! Makes capture files for the tests: packets enter, the bytes of a pcap or pcapng file leave.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::net::{Ipv4Addr, Ipv6Addr};

use xroce_wire::{
    AethRepr, AtomicAckRepr, AtomicEthRepr, BthRepr, DethRepr, Gid, HeaderSet, Headers, ImmData, IpRepr, Msn, Opcode,
    PKey, PayloadRule, Psn, QKey, Qpn, RethRepr, Rkey, Syndrome,
};

/// Byte order of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Little,
    Big,
}

impl Order {
    pub const BOTH: [Order; 2] = [Order::Little, Order::Big];

    fn u16(self, value: u16) -> [u8; 2] {
        if self == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    fn u64(self, value: u64) -> [u8; 8] {
        if self == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }
}

/// One captured frame.
#[derive(Debug, Clone)]
pub struct Record {
    pub time_ns: u64,
    pub data: Vec<u8>,
    pub original_len: u32,
}

impl Record {
    pub fn new(data: Vec<u8>) -> Record {
        let original_len = data.len() as u32;
        Record { time_ns: 1_700_000_000_123_456_789, data, original_len }
    }

    /// The same frame, of which the capture kept `len` bytes.
    pub fn cut_to(mut self, len: usize) -> Record {
        self.data.truncate(len);
        self
    }
}

/// A pcap file.
pub fn pcap(order: Order, nanoseconds: bool, link: u32, records: &[Record]) -> Vec<u8> {
    let magic: u32 = if nanoseconds { 0xA1B2_3C4D } else { 0xA1B2_C3D4 };
    let mut file = order.u32(magic).to_vec();
    file.extend(order.u16(2));
    file.extend(order.u16(4));
    for word in [0, 0, 262_144, link] {
        file.extend(order.u32(word));
    }
    for record in records {
        let fraction = record.time_ns % 1_000_000_000 / if nanoseconds { 1 } else { 1_000 };
        let seconds = (record.time_ns / 1_000_000_000) as u32;
        for word in [seconds, fraction as u32, record.data.len() as u32, record.original_len] {
            file.extend(order.u32(word));
        }
        file.extend(&record.data);
    }
    file
}

/// A pcap file of whole Ethernet frames, in this machine's usual order.
pub fn ethernet_pcap(packets: &[Vec<u8>]) -> Vec<u8> {
    let records: Vec<Record> = packets.iter().map(|p| Record::new(ethernet(p))).collect();
    pcap(Order::Little, false, 1, &records)
}

/// A pcapng file in the making.
pub struct PcapNg {
    order: Order,
    pub file: Vec<u8>,
}

impl PcapNg {
    pub fn new(order: Order) -> PcapNg {
        let mut ng = PcapNg { order, file: Vec::new() };
        ng.section(order);
        ng
    }

    pub fn block(&mut self, kind: u32, body: &[u8]) -> &mut PcapNg {
        let padded = body.len().next_multiple_of(4);
        let len = self.order.u32(padded as u32 + 12);
        self.file.extend(self.order.u32(kind));
        self.file.extend(len);
        self.file.extend(body);
        self.file.resize(self.file.len() + padded - body.len(), 0);
        self.file.extend(len);
        self
    }

    pub fn section(&mut self, order: Order) -> &mut PcapNg {
        self.order = order;
        let mut body = order.u32(0x1A2B_3C4D).to_vec();
        body.extend(order.u16(1));
        body.extend(order.u16(0));
        body.extend(order.u64(u64::MAX));
        self.block(0x0A0D_0D0A, &body)
    }

    /// `ts_resol` is the value of the option if_tsresol.
    pub fn interface(&mut self, link: u16, snap_len: u32, ts_resol: Option<u8>) -> &mut PcapNg {
        let mut body = self.order.u16(link).to_vec();
        body.extend([0, 0]);
        body.extend(self.order.u32(snap_len));
        if let Some(resolution) = ts_resol {
            body.extend(self.order.u16(9));
            body.extend(self.order.u16(1));
            body.extend([resolution, 0, 0, 0]);
            body.extend([0; 4]);
        }
        self.block(1, &body)
    }

    pub fn enhanced(&mut self, interface: u32, units: u64, record: &Record) -> &mut PcapNg {
        let mut body = Vec::new();
        let (high, low) = ((units >> 32) as u32, units as u32);
        for word in [interface, high, low, record.data.len() as u32, record.original_len] {
            body.extend(self.order.u32(word));
        }
        body.extend(&record.data);
        self.block(6, &body)
    }

    pub fn simple(&mut self, record: &Record) -> &mut PcapNg {
        let mut body = self.order.u32(record.original_len).to_vec();
        body.extend(&record.data);
        self.block(3, &body)
    }

    pub fn old_packet(&mut self, interface: u16, units: u64, record: &Record) -> &mut PcapNg {
        let mut body = self.order.u16(interface).to_vec();
        body.extend([0xFF, 0xFF]);
        for word in [(units >> 32) as u32, units as u32, record.data.len() as u32, record.original_len] {
            body.extend(self.order.u32(word));
        }
        body.extend(&record.data);
        self.block(2, &body)
    }
}

/// An Ethernet frame around an IP packet.
pub fn ethernet(ip: &[u8]) -> Vec<u8> {
    tagged(ip, &[])
}

/// An Ethernet frame with these tags (TPID, TCI), outermost first.
pub fn tagged(ip: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for (tpid, tci) in tags {
        frame.extend(tpid.to_be_bytes());
        frame.extend(tci.to_be_bytes());
    }
    frame.extend(ethertype(ip));
    frame.extend(ip);
    frame
}

/// A Linux cooked frame.
pub fn sll(ip: &[u8]) -> Vec<u8> {
    let mut frame = vec![0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
    frame.extend(ethertype(ip));
    frame.extend(ip);
    frame
}

/// A Linux cooked frame, version 2.
pub fn sll2(ip: &[u8]) -> Vec<u8> {
    let mut frame = ethertype(ip).to_vec();
    frame.extend([0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0]);
    frame.extend(ip);
    frame
}

fn ethertype(ip: &[u8]) -> [u8; 2] {
    if ip[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xDD] }
}

/// Every opcode that has a name, in the order of its byte.
pub fn all_opcodes() -> Vec<Opcode> {
    (0..=255).filter_map(Opcode::from_byte).collect()
}

/// Headers of that opcode with a different value in each field.
pub fn headers(opcode: Opcode, ipv6: bool) -> Headers {
    let gid = |last: u8| match ipv6 {
        true => Gid::from_ipv6(Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, last.into())),
        false => Gid::from_ipv4(Ipv4Addr::new(192, 0, 2, last)),
    };
    let set = opcode.headers();
    let has = |header| set.contains(header);
    Headers {
        ip: IpRepr {
            src: gid(1),
            dst: gid(2),
            traffic_class: 0x68,
            flow_label: if ipv6 { 0x12345 } else { 0 },
            hop_limit: 63,
        },
        udp_src_port: 0xD012,
        bth: BthRepr {
            opcode,
            solicited: true,
            migreq: true,
            pad: 0,
            pkey: PKey(0x7FFE),
            fecn: false,
            becn: opcode == Opcode::Cnp,
            dest_qp: Qpn::new(0xABCDEF),
            ack_req: true,
            psn: Psn::new(0xFFFFFE),
        },
        reth: has(HeaderSet::RETH).then_some(RethRepr {
            va: 0xFFFF_FFFF_FFFF_FFF8,
            rkey: Rkey(0x00AB_CD12),
            len: 0x8000_0000,
        }),
        atomic_eth: has(HeaderSet::ATOMIC_ETH).then_some(AtomicEthRepr {
            va: 0x1122_3344_5566_7788,
            rkey: Rkey(0x8877_6655),
            swap_add: 0xFEDC_BA98_7654_3210,
            compare: 0x0102_0304_0506_0708,
        }),
        aeth: has(HeaderSet::AETH).then_some(AethRepr { syndrome: Syndrome::from_byte(0x1F), msn: Msn::new(0x123456) }),
        atomic_ack: has(HeaderSet::ATOMIC_ACK).then_some(AtomicAckRepr { original: 0xF0E0_D0C0_B0A0_9080 }),
        imm: has(HeaderSet::IMM).then_some(ImmData(0xDEAD_BEEF)),
        ieth: has(HeaderSet::IETH).then_some(Rkey(0xCAFE_0001)),
        deth: has(HeaderSet::DETH).then_some(DethRepr { qkey: QKey(0x8001_0000), src_qp: Qpn::new(0x000102) }),
    }
}

/// A payload that the opcode may carry, of an odd length where it may.
pub fn payload(opcode: Opcode) -> Vec<u8> {
    match opcode.payload_rule() {
        PayloadRule::Empty => Vec::new(),
        PayloadRule::Full => (0..=255).collect(),
        PayloadRule::Eight => vec![0x88; 8],
        PayloadRule::NotEmpty | PayloadRule::UpToMtu => b"hello".to_vec(),
    }
}

/// The whole IP packet.
pub fn packet(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; headers.packet_len(payload.len())];
    let len = headers.emit_packet(payload, &mut buffer);
    assert_eq!(len, buffer.len());
    buffer
}

/// A packet of that opcode with its usual headers and payload.
pub fn packet_of(opcode: Opcode, ipv6: bool) -> Vec<u8> {
    packet(&headers(opcode, ipv6), &payload(opcode))
}
