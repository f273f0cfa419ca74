//! The storage case end to end, on a network in memory: what is lost is found, what is claimed was compared.

use std::process::Command;

/// The rows of the table that the program prints.
fn mirror(args: &[&str]) -> Vec<Row> {
    let output = Command::new(env!("CARGO_BIN_EXE_storage-mirror"))
        .args(["--sim", "--nodes", "2", "--blocks", "6", "--rounds", "2"])
        .args(args)
        .output()
        .expect("storage-mirror starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("all equal"), "{said}");
    said.lines().filter_map(Row::parse).collect()
}

#[derive(Debug)]
struct Row {
    data: String,
    blocks_again: f64,
    packets_again: u64,
    rnr_naks: u64,
    credit_waits: u64,
    blocks: u64,
    records: u64,
}

impl Row {
    fn parse(line: &str) -> Option<Row> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [data @ ("UC" | "RC"), _, _, _, again, packets, rnr, waits, blocks, _, records, _] = fields[..] else {
            return None;
        };
        Some(Row {
            data: data.to_owned(),
            blocks_again: again.trim_end_matches('%').parse().ok()?,
            packets_again: packets.parse().ok()?,
            rnr_naks: rnr.parse().ok()?,
            credit_waits: waits.parse().ok()?,
            blocks: blocks.parse().ok()?,
            records: records.parse().ok()?,
        })
    }
}

#[test]
fn everything_is_mirrored_and_compared() {
    let rows = mirror(&[]);
    assert_eq!(rows.iter().map(|r| r.data.as_str()).collect::<Vec<_>>(), ["UC", "RC"]);
    for row in rows {
        // Two nodes with a volume of 6 blocks each, every block written twice.
        assert_eq!((row.blocks, row.records), (12, 24), "{row:?}");
    }
}

#[test]
fn what_uc_loses_the_application_repeats_and_what_rc_loses_the_card() {
    for row in mirror(&["--loss", "3"]) {
        assert_eq!((row.blocks, row.records), (12, 24), "{row:?}");
        match row.data.as_str() {
            "UC" => assert!(row.blocks_again > 0.0, "{row:?}"),
            _ => assert!(row.blocks_again == 0.0 && row.packets_again > 0, "{row:?}"),
        }
    }
}

#[test]
fn a_slow_mirror_is_met_by_credits_or_by_rnr_naks() {
    let slow = ["--data", "uc", "--slow-mirror", "2000", "--channel-depth", "2"];
    for row in mirror(&slow) {
        assert!(row.credit_waits > 0 && row.rnr_naks == 0, "{row:?}");
    }
    for row in mirror(&[&slow[..], &["--no-credits"]].concat()) {
        assert!(row.credit_waits == 0 && row.rnr_naks > 0, "{row:?}");
    }
}
