//! `xroce decode`, run as the user does: each input is made here, output and exit code are compared.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use xroce_wire::{AethRepr, Headers, Msn, Opcode, Operation, Syndrome};

mod captures;

use captures::{Order, PcapNg, Record, ethernet, ethernet_pcap, packet_of};

/// Runs `xroce decode - ARGS` on a capture.
fn decode(capture: &[u8], args: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_xroce"))
        .args(["decode", "-"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("xroce starts");
    // What is written is less than a pipe holds, or xroce reads it all before it writes much.
    child.stdin.take().expect("a pipe").write_all(capture).expect("xroce reads");
    child.wait_with_output().expect("xroce ends")
}

/// Exit code, the JSON lines, and what was said on standard error.
fn decode_json(capture: &[u8]) -> (Option<i32>, Vec<Value>, String) {
    let output = decode(capture, &["--json"]);
    let lines = String::from_utf8(output.stdout).expect("text");
    let lines = lines.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    (output.status.code(), lines, String::from_utf8(output.stderr).expect("text"))
}

fn decode_text(capture: &[u8]) -> (Option<i32>, String) {
    let output = decode(capture, &[]);
    (output.status.code(), String::from_utf8(output.stdout).expect("text"))
}

fn send(ipv6: bool) -> Vec<u8> {
    packet_of(Opcode::Rc(Operation::SendOnly), ipv6)
}

/// What a packet of `captures::headers` must come out as.
fn expected(frame: u64, opcode: &str, value: u8, headers: &Headers, payload_len: usize) -> Value {
    let mut line = json!({
        "frame": frame, "src": headers.ip.src.to_ip().to_string(), "dst": headers.ip.dst.to_ip().to_string(), "sport": 0xD012,
        "opcode": opcode, "opcode_value": value, "psn": 0xFFFFFE, "dest_qp": 0xABCDEF, "pkey": 0x7FFE, "ack_req": true,
        "solicited": true, "migreq": true, "pad": (4 - payload_len % 4) % 4, "payload_len": payload_len, "icrc_ok": true,
    });
    if headers.reth.is_some() {
        line["reth"] = json!({"va": 0xFFFF_FFFF_FFFF_FFF8u64, "rkey": 0x00AB_CD12, "len": 0x8000_0000u32});
    }
    if headers.aeth.is_some() {
        line["aeth"] = json!({"kind": "ack", "value": 31, "msn": 0x123456});
    }
    if headers.atomic_eth.is_some() {
        line["atomic"] = json!({
            "va": 0x1122_3344_5566_7788u64, "rkey": 0x8877_6655u32, "swap_add": 0xFEDC_BA98_7654_3210u64,
            "compare": 0x0102_0304_0506_0708u64,
        });
    }
    if headers.atomic_ack.is_some() {
        line["atomic_ack"] = json!(0xF0E0_D0C0_B0A0_9080u64);
    }
    if headers.imm.is_some() {
        line["imm"] = json!(0xDEAD_BEEFu32);
    }
    if headers.ieth.is_some() {
        line["ieth"] = json!(0xCAFE_0001u32);
    }
    if headers.deth.is_some() {
        line["deth"] = json!({"qkey": 0x8001_0000u32, "src_qp": 0x102});
    }
    line
}

/// The names by the low five bits of the opcode.
const NAMES: [(u8, &str); 25] = [
    (0x00, "SEND_FIRST"),
    (0x01, "SEND_MIDDLE"),
    (0x02, "SEND_LAST"),
    (0x03, "SEND_LAST_IMM"),
    (0x04, "SEND_ONLY"),
    (0x05, "SEND_ONLY_IMM"),
    (0x06, "RDMA_WRITE_FIRST"),
    (0x07, "RDMA_WRITE_MIDDLE"),
    (0x08, "RDMA_WRITE_LAST"),
    (0x09, "RDMA_WRITE_LAST_IMM"),
    (0x0A, "RDMA_WRITE_ONLY"),
    (0x0B, "RDMA_WRITE_ONLY_IMM"),
    (0x0C, "RDMA_READ_REQUEST"),
    (0x0D, "RDMA_READ_RESPONSE_FIRST"),
    (0x0E, "RDMA_READ_RESPONSE_MIDDLE"),
    (0x0F, "RDMA_READ_RESPONSE_LAST"),
    (0x10, "RDMA_READ_RESPONSE_ONLY"),
    (0x11, "ACKNOWLEDGE"),
    (0x12, "ATOMIC_ACKNOWLEDGE"),
    (0x13, "COMPARE_SWAP"),
    (0x14, "FETCH_ADD"),
    (0x16, "SEND_LAST_INV"),
    (0x17, "SEND_ONLY_INV"),
    (0x1C, "FLUSH"),
    (0x1D, "ATOMIC_WRITE"),
];

/// The name of an opcode, `None` where the contract has none.
fn name(value: u8) -> Option<String> {
    let operation = NAMES.iter().find(|(code, _)| *code == value & 0x1F)?.1;
    match value >> 5 {
        0 => Some(format!("RC_{operation}")),
        1 if value & 0x1F <= 0x0B => Some(format!("UC_{operation}")),
        3 if matches!(value, 0x64 | 0x65) => Some(format!("UD_{operation}")),
        4 if value == 0x81 => Some("CNP".into()),
        _ => None,
    }
}

#[test]
fn every_opcode_over_both_ip_versions() {
    let mut packets = Vec::new();
    let mut wanted = Vec::new();
    for ipv6 in [false, true] {
        for value in (0..=255).filter(|v| name(*v).is_some()) {
            let opcode = Opcode::from_byte(value).expect("an opcode of the contract");
            packets.push(packet_of(opcode, ipv6));
            let headers = captures::headers(opcode, ipv6);
            let name = name(value).expect("filtered");
            wanted.push(expected(packets.len() as u64, &name, value, &headers, captures::payload(opcode).len()));
        }
    }
    assert_eq!(packets.len(), 2 * (25 + 12 + 2 + 1));
    let (code, lines, errors) = decode_json(&ethernet_pcap(&packets));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert_eq!(lines, wanted);
}

#[test]
fn all_other_opcodes_are_errors() {
    let template = send(true);
    let values: Vec<u8> = (0..=255).filter(|v| name(*v).is_none()).collect();
    let packets: Vec<Vec<u8>> = values
        .iter()
        .map(|value| {
            let mut packet = template.clone();
            packet[48] = *value;
            packet
        })
        .collect();
    let (code, lines, _) = decode_json(&ethernet_pcap(&packets));
    assert_eq!((code, lines.len()), (Some(1), values.len()));
    for (i, line) in lines.iter().enumerate() {
        let keys: Vec<&String> = line.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["dst", "error", "frame", "sport", "src"], "{line}");
        assert_eq!((&line["frame"], &line["error"]["field"]), (&json!(i + 1), &json!("BTH opcode")));
        assert!(line["error"]["reason"].as_str().is_some_and(|r| r.contains(&format!("{:#x}", values[i]))), "{line}");
    }
}

#[test]
fn a_bad_icrc_is_told_and_fails() {
    for ipv6 in [false, true] {
        let good = send(ipv6);
        // Each byte that the ICRC covers and no earlier check: UDP source port, BTH, payload, pad, the ICRC itself.
        let bth = good.len() - 24;
        for at in [bth - 8, bth + 3, bth + 6, bth + 8, bth + 11, bth + 12, bth + 19, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            let (code, lines, _) = decode_json(&ethernet_pcap(&[good.clone(), bad, good.clone()]));
            let ok: Vec<&Value> = lines.iter().map(|l| &l["icrc_ok"]).collect();
            assert_eq!((code, ok), (Some(1), vec![&json!(true), &json!(false), &json!(true)]), "byte {at}");
        }
    }
    let mut bad = send(false);
    *bad.last_mut().expect("bytes") ^= 1;
    let (code, text) = decode_text(&ethernet_pcap(&[bad]));
    assert_eq!(code, Some(1));
    assert!(text.contains(" BAD ") && text.contains("0 good, 1 bad"), "{text}");
}

#[test]
fn what_routers_change_is_outside_the_icrc() {
    let mut v4 = send(false);
    (v4[1], v4[8]) = (0xC3, 3);
    // The header checksum, as a router would correct it.
    v4[10..12].fill(0);
    let sum: u32 = v4[..20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let checksum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
    v4[10..12].copy_from_slice(&checksum.to_be_bytes());
    // UDP checksum, FECN and BECN.
    v4[26..28].copy_from_slice(&[0x12, 0x34]);
    v4[32] = 0xC0;
    let mut v6 = send(true);
    (v6[0], v6[1], v6[2], v6[3], v6[7]) = (0x6A, 0xBC, 0xDE, 0xF0, 1);
    let (code, lines, _) = decode_json(&ethernet_pcap(&[v4, v6]));
    assert_eq!((code, lines.len()), (Some(0), 2));
    assert!(lines.iter().all(|l| l["icrc_ok"] == true));
}

/// A change to a packet.
type Change = fn(&mut Vec<u8>);

#[test]
fn malformed_packets_name_the_field_and_the_rest_is_decoded() {
    // IPv6: no header checksum stands in the way.
    let cases: [(&str, Change); 9] = [
        ("IPv6 payload length", |p| p[5] += 40),
        ("IPv6 payload length", |p| p[5] = 20),
        ("UDP length", |p| p[45] += 4),
        ("UDP length", |p| p[45] -= 4),
        ("UDP length", |p| p[48] = 0x0C),
        ("BTH opcode", |p| p[48] = 0x15),
        ("BTH transport version", |p| p[49] |= 1),
        ("BTH pad count", |p| {
            // Pad without a payload: no room for it.
            p.drain(60..68);
            p[5] -= 8;
            p[45] -= 8;
        }),
        ("payload", |p| {
            p[48] = 0x11;
        }),
    ];
    let good = send(true);
    for (field, change) in cases {
        let mut bad = good.clone();
        change(&mut bad);
        let (code, lines, _) = decode_json(&ethernet_pcap(&[good.clone(), bad, good.clone()]));
        assert_eq!((code, lines.len()), (Some(1), 3), "{field}");
        assert_eq!(lines[1]["error"]["field"], field, "{}", lines[1]);
        assert!(lines[1]["error"]["reason"].as_str().is_some_and(|r| !r.is_empty()));
        assert_eq!((&lines[1]["src"], &lines[1]["dst"]), (&json!("2001:db8::1"), &json!("2001:db8::2")));
        assert!(lines[1].get("icrc_ok").is_none() && lines[2]["icrc_ok"] == true);
    }
}

#[test]
fn malformed_ipv4() {
    let cases: [(&str, Change); 4] = [
        ("IPv4 header length", |p| {
            p[0] = 0x46;
            p[3] += 4;
            p.splice(20..20, [1, 1, 1, 1]);
        }),
        ("IPv4 fragment field", |p| p[6] |= 0x20),
        ("IPv4 total length", |p| p[3] += 100),
        ("IPv4 total length", |p| p[3] = 30),
    ];
    for (field, change) in cases {
        let mut bad = send(false);
        change(&mut bad);
        let (code, lines, _) = decode_json(&ethernet_pcap(&[bad]));
        assert_eq!(code, Some(1), "{field}");
        assert_eq!(lines[0]["error"]["field"], field, "{}", lines[0]);
    }
    // Later fragments have no ports: nobody can tell that they belong to a RoCE packet.
    let mut later = send(false);
    later[7] = 8;
    assert_eq!(decode_json(&ethernet_pcap(&[later])), (Some(0), vec![], String::new()));
}

#[test]
fn each_kind_of_aeth() {
    let cases = [
        (0x00, "ack", 0, "ACK, credits 0"),
        (0x1F, "ack", 31, "ACK, credits unlimited"),
        (0x20, "rnr_nak", 0, "RNR NAK, wait 655.36 ms"),
        (0x2C, "rnr_nak", 12, "RNR NAK, wait 0.64 ms"),
        (0x45, "reserved", 5, "reserved syndrome 0x45"),
        (0x60, "nak", 0, "NAK, PSN sequence error"),
        (0x62, "nak", 2, "NAK, remote access error"),
        (0x7F, "nak", 31, "NAK, reserved code 31"),
    ];
    let packets: Vec<Vec<u8>> = cases
        .iter()
        .map(|(byte, ..)| {
            let mut headers = captures::headers(Opcode::Rc(Operation::Acknowledge), false);
            headers.aeth = Some(AethRepr { syndrome: Syndrome::from_byte(*byte), msn: Msn::new(77) });
            captures::packet(&headers, &[])
        })
        .collect();
    let capture = ethernet_pcap(&packets);
    let (code, lines, _) = decode_json(&capture);
    assert_eq!((code, lines.len()), (Some(0), cases.len()));
    let (_, text) = decode_text(&capture);
    for ((_, kind, value, words), line) in cases.iter().zip(&lines) {
        assert_eq!(line["aeth"], json!({"kind": kind, "value": value, "msn": 77}));
        assert!(text.contains(&format!("{words}, MSN 77")), "{words} in {text}");
    }
}

#[test]
fn cut_short_by_the_capture_is_not_malformed() {
    let whole = ethernet(&packet_of(Opcode::Rc(Operation::WriteOnlyImm), false));
    let record = |len| Record::new(whole.clone()).cut_to(len);
    // Ethernet 14, IP 20, UDP 8, BTH 12, RETH 16, ImmDt 4: whole headers; RETH but no ImmDt; BTH alone; not even that.
    let capture =
        captures::pcap(Order::Little, false, 1, &[record(74), record(72), record(54), record(50), record(30)]);
    let (code, lines, _) = decode_json(&capture);
    assert_eq!((code, lines.len()), (Some(0), 4), "the last one ends before the ports");
    assert!(lines.iter().all(|l| l["icrc_ok"].is_null() && l.get("icrc_ok").is_some()));
    let headers = captures::headers(Opcode::Rc(Operation::WriteOnlyImm), false);
    let mut whole_headers = expected(1, "RC_RDMA_WRITE_ONLY_IMM", 0x0B, &headers, 5);
    whole_headers["icrc_ok"] = Value::Null;
    assert_eq!(lines[0], whole_headers);
    assert!(lines[1].get("imm").is_none() && lines[1]["reth"] == lines[0]["reth"]);
    assert!(lines[2].get("reth").is_none() && lines[2]["opcode"] == "RC_RDMA_WRITE_ONLY_IMM");
    assert_eq!(lines[2]["payload_len"], 5);
    assert_eq!(lines[3], json!({"frame": 4, "src": "192.0.2.1", "dst": "192.0.2.2", "sport": 0xD012, "icrc_ok": null}));
    let (code, text) = decode_text(&capture);
    assert_eq!(code, Some(0));
    assert!(text.contains("4 cut short), 0 malformed, 1 other"), "{text}");
}

#[test]
fn link_layers() {
    let (v4, v6) = (send(false), send(true));
    let frames: [(u32, Vec<u8>); 11] = [
        (1, ethernet(&v4)),
        (1, captures::tagged(&v6, &[(0x8100, 0x6014)])),
        (1, captures::tagged(&v4, &[(0x88A8, 5), (0x8100, 20)])),
        // Ethernet pads short frames; the padding is not part of the packet.
        (1, [ethernet(&v4), vec![0xEE; 9]].concat()),
        (113, captures::sll(&v4)),
        (113, captures::sll(&v6)),
        (276, captures::sll2(&v4)),
        (276, captures::sll2(&v6)),
        (101, v4.clone()),
        (228, v4.clone()),
        (229, v6.clone()),
    ];
    for order in Order::BOTH {
        let mut all = PcapNg::new(order);
        for (i, (link, frame)) in frames.iter().enumerate() {
            let record = Record::new(frame.clone());
            let (code, lines, errors) =
                decode_json(&captures::pcap(order, false, *link, std::slice::from_ref(&record)));
            assert_eq!((code, lines.len(), errors.as_str()), (Some(0), 1, ""), "link type {link}");
            assert!(lines[0]["icrc_ok"] == true && lines[0]["frame"] == 1);
            all.interface(*link as u16, 0, None).enhanced(i as u32, 0, &record);
        }
        let (code, lines, _) = decode_json(&all.file);
        assert_eq!((code, lines.len()), (Some(0), frames.len()));
        assert!(lines.iter().zip(1..).all(|(l, n)| l["frame"] == n && l["icrc_ok"] == true));
    }
}

#[test]
fn foreign_link_types_are_named() {
    let record = Record::new(vec![0; 40]);
    let (code, lines, errors) = decode_json(&captures::pcap(Order::Little, false, 127, std::slice::from_ref(&record)));
    assert_eq!((code, lines.len()), (Some(1), 0));
    assert!(errors.contains("link type 127 is not supported") && errors.contains("Ethernet (1)"), "{errors}");
    let mut ng = PcapNg::new(Order::Little);
    ng.interface(127, 0, None).interface(101, 0, None).enhanced(0, 0, &record).enhanced(
        1,
        0,
        &Record::new(send(false)),
    );
    let (code, lines, errors) = decode_json(&ng.file);
    assert_eq!((code, lines.len()), (Some(0), 1));
    assert_eq!(lines[0]["frame"], 2);
    assert!(errors.contains("1 frames passed over"), "{errors}");
}

#[test]
fn other_traffic_is_passed_over_and_counted() {
    let mut dns = send(false);
    dns[22..24].copy_from_slice(&53u16.to_be_bytes());
    let mut tcp = send(true);
    tcp[6] = 6;
    // From port 4791 to another one: an answer to nobody's RoCE.
    let mut reverse = send(false);
    reverse[20..24].copy_from_slice(&[0x12, 0xB7, 0xD0, 0x12]);
    let arp = [vec![0xFF; 12], vec![8, 6], vec![0; 46]].concat();
    let records = [ethernet(&dns), ethernet(&tcp), ethernet(&reverse), arp, ethernet(&send(true))].map(Record::new);
    let capture = captures::pcap(Order::Big, true, 1, &records);
    let (code, lines, _) = decode_json(&capture);
    assert_eq!((code, lines.len()), (Some(0), 1));
    assert_eq!(lines[0]["frame"], 5);
    let (code, text) = decode_text(&capture);
    assert_eq!(code, Some(0));
    assert!(text.ends_with(
        "5 frames: 1 RoCE v2 packets (ICRC 1 good, 0 bad, 0 cut short), 0 malformed, 4 other frames passed over\n"
    ));
}

#[test]
fn text_has_one_aligned_line_a_packet() {
    let mut second = Record::new(ethernet(&packet_of(Opcode::Rc(Operation::CompareSwap), false)));
    second.time_ns += 1_500_000;
    let first = Record::new(ethernet(&send(false)));
    let (code, text) = decode_text(&captures::pcap(Order::Little, false, 1, &[first, second]));
    assert_eq!(code, Some(0));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("source → destination"), "{text}");
    assert!(lines[1].starts_with("      1      0.000000        192.0.2.1 → 192.0.2.2"), "{text}");
    assert!(lines[2].starts_with("      2      0.001500        192.0.2.1 → 192.0.2.2"), "{text}");
    assert_eq!(lines[1].find("0xfffffe"), lines[2].find("0xfffffe"));
    assert!(lines[1].contains("RC_SEND_ONLY ") && lines[1].contains("0xabcdef      5 B  ASM..  good"), "{text}");
    assert!(
        lines[2].contains("VA 0x1122334455667788 rkey 0x88776655") && lines[2].contains("compare 0x102030405060708")
    );
}

#[test]
fn damaged_files_fail_after_the_rest_was_decoded() {
    let mut ng = PcapNg::new(Order::Little);
    ng.interface(1, 0, None);
    for _ in 0..3 {
        ng.enhanced(0, 0, &Record::new(ethernet(&send(false))));
    }
    let pcap = ethernet_pcap(&[send(false), send(false), send(false)]);
    for file in [ng.file, pcap] {
        let (code, lines, errors) = decode_json(&file[..file.len() - 7]);
        assert_eq!((code, lines.len()), (Some(1), 2));
        assert!(errors.starts_with("xroce decode: -: the file ends inside record"), "{errors}");
    }
    let output = decode(b"not a capture", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a capture file"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "nothing was decoded, so there is nothing to sum up");
}

#[test]
fn an_empty_capture_is_fine() {
    assert_eq!(decode_json(&ethernet_pcap(&[])), (Some(0), vec![], String::new()));
    let (code, text) = decode_text(&PcapNg::new(Order::Big).file);
    assert_eq!(code, Some(0));
    assert!(text.starts_with("0 frames"), "{text}");
}

fn xroce(args: &[&str]) -> Option<i32> {
    Command::new(env!("CARGO_BIN_EXE_xroce"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("xroce starts")
        .status
        .code()
}

#[test]
fn exit_codes() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("exit_codes.pcap");
    std::fs::write(&file, ethernet_pcap(&[send(false)])).expect("written");
    let file = file.to_str().expect("a path in UTF-8");
    assert_eq!(xroce(&["decode", file]), Some(0));
    assert_eq!(xroce(&["decode", "--json", file]), Some(0));
    assert_eq!(xroce(&["decode", "no/such/file.pcap"]), Some(1));
    assert_eq!(xroce(&["decode", env!("CARGO_TARGET_TMPDIR")]), Some(1), "a folder");
    assert_eq!(xroce(&["decode"]), Some(2));
    assert_eq!(xroce(&["decode", file, "--no-such-flag"]), Some(2));
    assert_eq!(xroce(&["no-such-command"]), Some(2));
    assert_eq!(xroce(&[]), Some(2));
    assert_eq!(xroce(&["--help"]), Some(0));
    assert_eq!(xroce(&["--version"]), Some(0));
}

/// A reader that closes early, such as `head`, is no reason to complain.
#[test]
fn a_closed_output_ends_quietly() {
    let packets = vec![send(false); 20_000];
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("closed_output.pcap");
    std::fs::write(&file, ethernet_pcap(&packets)).expect("written");
    let mut child = Command::new(env!("CARGO_BIN_EXE_xroce"))
        .args(["decode", "--json"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("xroce starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("xroce ends");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

/// Frames made by other programs: scapy (the first four) and the Linux kernel's rdma_rxe (the fifth).
#[test]
fn packets_made_by_others_have_a_good_icrc() {
    let frames = [
        "020000000002020000000001080045020034123440004011a47fc0000201c0000202c12312b7002000000470ffff0000012380fffffe68656c6c\
6f000000ed6232b3",
        "02000000000202000000000186dd668123450030113f20010db800000000000000000000000120010db8000000000000000000000002d0d012b7\
         003000000bc0ffff00abcdef80000000112233445566778800abcd1200000004deadbeef01020304a528032a",
        "020000000002020000000001080045c2003c000140004011b5eac0000202c0000201c00112b7002800008140ffff40000123000000000000000000\
         0000000000000000000000fcdeb684",
        "02000000000202000000000181006014080045000030000240004011b6b7c0000202c0000201c00112b7001c00001140ffff0000012300fffffe1f\
         00000139786392",
        "02000a4d000102000a4d000786dd6000000000201140fd000077000000000000000000000007fd000077000000000000000000000001cfe212b700\
         2000000430ffff00123456800000090000000000000000abfb2464",
    ];
    let records = frames.map(|hex| {
        let digits: Vec<u8> = hex.bytes().filter_map(|b| (b as char).to_digit(16)).map(|d| d as u8).collect();
        Record::new(digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect())
    });
    let (code, lines, _) = decode_json(&captures::pcap(Order::Little, false, 1, &records));
    assert_eq!((code, lines.len()), (Some(0), 5));
    assert!(lines.iter().all(|l| l["icrc_ok"] == true));
    assert_eq!(
        (&lines[0]["payload_len"], &lines[0]["pad"], &lines[0]["psn"]),
        (&json!(5), &json!(3), &json!(0xFFFFFE))
    );
    assert_eq!((&lines[1]["imm"], &lines[1]["reth"]["rkey"]), (&json!(0xDEAD_BEEFu32), &json!(0x00AB_CD12)));
    assert_eq!((&lines[2]["opcode"], &lines[2]["payload_len"]), (&json!("CNP"), &json!(0)));
    assert_eq!(lines[3]["aeth"], json!({"kind": "ack", "value": 31, "msn": 1}));
    assert_eq!((&lines[4]["src"], &lines[4]["migreq"]), (&json!("fd00:77::7"), &json!(false)));
}
