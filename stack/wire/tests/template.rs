//! A template writes what `Headers` writes, for every opcode, both IPs and every kind of length.

use xroce_wire::{
    AethRepr, AtomicAckRepr, AtomicEthRepr, BthRepr, Extension, Fields, Gid, HeaderSet, Headers, ImmData, IpRepr, Msn,
    Opcode, Operation, PKey, Psn, Qpn, RethRepr, Rkey, Syndrome, Template,
};

const RETH: RethRepr = RethRepr { va: 0x0123_4567_89AB_CDEF, rkey: Rkey(0xDEAD_BEEF), len: 0x7FFF_FFFF };
const IMM: ImmData = ImmData(0xA1B2_C3D4);
const IETH: Rkey = Rkey(0x1122_3344);
const ATOMIC: AtomicEthRepr = AtomicEthRepr { va: 8, rkey: Rkey(9), swap_add: u64::MAX, compare: 10 };
const ACK: AtomicAckRepr = AtomicAckRepr { original: 0x1020_3040_5060_7080 };

fn aeth() -> AethRepr {
    AethRepr { syndrome: Syndrome::Ack { credits: 31 }, msn: Msn::new(0xFE_DCBA) }
}

/// Every extension there is.
fn extensions() -> [Extension; 8] {
    [
        Extension::None,
        Extension::Reth(RETH),
        Extension::RethImm(RETH, IMM),
        Extension::Imm(IMM),
        Extension::Ieth(IETH),
        Extension::AtomicEth(ATOMIC),
        Extension::Aeth(aeth()),
        Extension::AtomicAck(aeth(), ACK),
    ]
}

fn headers(ip: IpRepr, fields: &Fields) -> Headers {
    let bth = BthRepr {
        opcode: fields.opcode,
        solicited: fields.solicited,
        migreq: true,
        pad: 0,
        pkey: PKey(0x8001),
        fecn: false,
        becn: false,
        dest_qp: Qpn::new(0xAB_CDEF),
        ack_req: fields.ack_req,
        psn: fields.psn,
    };
    let set = fields.opcode.headers();
    Headers {
        reth: set.contains(HeaderSet::RETH).then_some(RETH),
        imm: set.contains(HeaderSet::IMM).then_some(IMM),
        ieth: set.contains(HeaderSet::IETH).then_some(IETH),
        atomic_eth: set.contains(HeaderSet::ATOMIC_ETH).then_some(ATOMIC),
        aeth: set.contains(HeaderSet::AETH).then_some(aeth()),
        atomic_ack: set.contains(HeaderSet::ATOMIC_ACK).then_some(ACK),
        ..Headers::new(ip, 0xC123, bth)
    }
}

#[test]
fn a_template_writes_what_headers_write() {
    let v4 = |n| Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, n]);
    let v6 = |n| Gid([0x20, 1, 0xD, 0xB8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, n]);
    let mut compared = 0;
    for (src, dst) in [(v4(1), v4(255)), (v6(1), v6(255)), (v4(1), v6(2))] {
        for (traffic_class, hop_limit) in [(0, 64), (0x6A, 1), (0xFF, 255)] {
            let ip = IpRepr { src, dst, traffic_class, flow_label: 0xF_1234, hop_limit };
            let template = Template::new(ip, 0xC123, PKey(0x8001), Qpn::new(0xAB_CDEF));
            for opcode in (0..=255).filter_map(Opcode::from_byte).filter(|o| matches!(o, Opcode::Rc(_) | Opcode::Uc(_)))
            {
                let Some(extension) = extensions().into_iter().find(|e| e.set() == opcode.headers()) else {
                    assert_eq!(opcode.operation(), Some(Operation::Flush), "{opcode} has no extension");
                    continue;
                };
                for payload in [0, 1, 2, 3, 4, 1023, 4096, 40_000] {
                    for (solicited, ack_req, psn) in
                        [(false, true, 0xFF_FFFF), (true, false, 0), (true, true, 0x12_3456)]
                    {
                        let fields = Fields { opcode, solicited, ack_req, psn: Psn::new(psn), extension };
                        let want = headers(ip, &fields);
                        let (mut got, mut expected) = ([0xA5; 128], [0xA5; 128]);
                        template.emit(&fields, payload, &mut got);
                        want.emit(payload, &mut expected);
                        assert_eq!(got, expected, "{opcode}, {payload} bytes, {ip:?}");
                        assert_eq!(template.header_len(&fields), want.header_len());
                        assert_eq!(template.packet_len(&fields, payload), want.packet_len(payload));
                        compared += 1;
                    }
                }
            }
        }
    }
    assert!(compared > 5_000, "{compared} packets were compared");
}
