//! `decode --json` against tshark, field by field, over frames of every opcode. Skipped where tshark is not installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

mod captures;

use captures::{Order, PcapNg, Record};

/// Our path in the JSON line, tshark's name of the same field.
const FIELDS: [(&str, &str); 22] = [
    ("/frame", "frame.number"),
    ("/sport", "udp.srcport"),
    ("/opcode_value", "infiniband.bth.opcode"),
    ("/psn", "infiniband.bth.psn"),
    ("/dest_qp", "infiniband.bth.destqp"),
    ("/pkey", "infiniband.bth.p_key"),
    ("/ack_req", "infiniband.bth.a"),
    ("/solicited", "infiniband.bth.se"),
    ("/migreq", "infiniband.bth.m"),
    ("/pad", "infiniband.bth.padcnt"),
    ("/reth/va", "infiniband.reth.va"),
    ("/reth/rkey", "infiniband.reth.r_key"),
    ("/reth/len", "infiniband.reth.dmalen"),
    ("/aeth/msn", "infiniband.aeth.msn"),
    ("/aeth/kind", "infiniband.aeth.syndrome.opcode"),
    ("/atomic/swap_add", "infiniband.atomiceth.swapdt"),
    ("/atomic/compare", "infiniband.atomiceth.cmpdt"),
    ("/atomic_ack", "infiniband.atomicacketh.origremdt"),
    ("/imm", "infiniband.immdt"),
    ("/ieth", "infiniband.ieth"),
    ("/deth/qkey", "infiniband.deth.q_key"),
    ("/deth/src_qp", "infiniband.deth.srcqp"),
];

/// tshark's rows for a capture, in the order of `FIELDS`; `None` if tshark is not there.
fn tshark(file: &Path) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-Y", "udp.dstport == 4791", "-T", "fields", "-E", "separator=|", "-E", "occurrence=f", "-r"]);
    command.arg(file);
    for (_, name) in FIELDS {
        command.args(["-e", name]);
    }
    let output = command.output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    Some(text.lines().map(|l| l.split('|').map(str::to_owned).collect()).collect())
}

fn xroce(file: &Path) -> Vec<Value> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_xroce")).args(["decode", "--json"]).arg(file).output().expect("xroce starts");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect()
}

/// A number as tshark prints it: decimal, 0x..., bare hex digits (byte fields), or a word for a flag.
fn number(name: &str, text: &str) -> u64 {
    match text {
        "True" => return 1,
        "False" => return 0,
        _ => {}
    }
    let bytes = matches!(name, "infiniband.immdt" | "infiniband.ieth");
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits.to_owned(), 16),
        None if bytes => (text.replace(':', ""), 16),
        None => (text.to_owned(), 10),
    };
    u64::from_str_radix(&digits, radix).unwrap_or_else(|e| panic!("{name} {text}: {e}"))
}

/// Our value as tshark counts it.
fn ours(value: &Value) -> u64 {
    match value {
        Value::Bool(flag) => u64::from(*flag),
        Value::String(kind) => match kind.as_str() {
            "ack" => 0,
            "rnr_nak" => 1,
            "reserved" => 2,
            _ => 3,
        },
        number => number.as_u64().unwrap_or_else(|| panic!("{number}")),
    }
}

/// FLUSH and ATOMIC_WRITE, whose headers older versions of tshark do not know.
const NEWER: [u64; 2] = [0x1C, 0x1D];

/// Compares all fields of all packets.
fn compare(test: &str, file: &Path) {
    let Some(theirs) = tshark(file) else {
        println!("SKIP {test}: tshark is not installed");
        return;
    };
    let lines = xroce(file);
    assert_eq!(lines.len(), theirs.len(), "both see the same packets");
    for (line, row) in lines.iter().zip(&theirs) {
        for (i, (path, name)) in FIELDS.iter().enumerate() {
            // tshark shows address and key of an AtomicETH under the names of the RETH.
            let value = line.pointer(path).or_else(|| line.pointer(&path.replace("/reth/", "/atomic/")));
            let text = row[i].as_str();
            if text.is_empty() && line["opcode_value"].as_u64().is_some_and(|o| NEWER.contains(&o)) {
                continue;
            }
            assert_eq!(value.is_some(), !text.is_empty(), "{name} in {line}: tshark says {text:?}");
            if let Some(value) = value {
                assert_eq!(ours(value), number(name, text), "{name} in {line}: tshark says {text:?}");
            }
        }
    }
}

fn written(name: &str, bytes: &[u8]) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, bytes).expect("written");
    file
}

fn records() -> Vec<Record> {
    let mut records = Vec::new();
    for ipv6 in [false, true] {
        for opcode in captures::all_opcodes() {
            let packet = captures::packet_of(opcode, ipv6);
            records.push(Record::new(captures::ethernet(&packet)));
            records.push(Record::new(captures::tagged(&packet, &[(0x88A8, 7), (0x8100, 0x6014)])));
        }
    }
    records
}

#[test]
fn every_opcode_agrees_with_tshark() {
    let file = written("tshark_opcodes.pcap", &captures::pcap(Order::Big, true, 1, &records()));
    compare("every_opcode_agrees_with_tshark", &file);
}

#[test]
fn frame_numbers_agree_with_tshark() {
    let mut ng = PcapNg::new(Order::Big);
    ng.interface(1, 0, Some(9)).interface(113, 0, None).interface(276, 0, None);
    let packet = captures::packet_of(captures::all_opcodes()[4], true);
    ng.block(9, b"__REALTIME_TIMESTAMP=1\nMESSAGE=x\n");
    ng.enhanced(0, 1, &Record::new(vec![0; 60]));
    ng.enhanced(1, 2, &Record::new(captures::sll(&packet)));
    ng.block(0x8000_0001, b"no number").block(0x0BAD, &[0; 16]).block(0x4000_0BAD, &[0; 16]);
    ng.old_packet(2, 3, &Record::new(captures::sll2(&packet)));
    ng.simple(&Record::new(captures::ethernet(&packet)));
    ng.section(Order::Little);
    ng.interface(276, 0, None).enhanced(0, 4, &Record::new(captures::sll2(&packet)));
    compare("frame_numbers_agree_with_tshark", &written("tshark_numbers.pcapng", &ng.file));
}
