//! The commands over a wire in memory, which every machine can do.

mod ends;

use ends::{Said, Scratch, unheard, xroce};
use serde_json::Value;

#[track_caller]
fn good(line: &str) -> Said {
    let args: Vec<&str> = line.split_whitespace().collect();
    let said = xroce(&args);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{line}: {}", said.out);
    said
}

#[track_caller]
fn json(line: &str) -> Value {
    serde_json::from_str(&good(line).out).expect("one JSON object")
}

#[test]
fn pingpong_says_what_the_originals_say() {
    for program in ["rc_pingpong", "uc_pingpong"] {
        let said = good(&format!("{program} --sim -n 20 -s 5000 -c"));
        let lines: Vec<&str> = said.out.lines().collect();
        assert_eq!(lines.len(), 4, "{said:?}");
        assert!(lines[0].starts_with("  local address:  LID 0x0000, QPN 0x"), "{said:?}");
        assert!(lines[0].ends_with(", GID ::ffff:192.0.2.1"), "{said:?}");
        assert!(lines[1].starts_with("  remote address: LID 0x0000, QPN 0x"), "{said:?}");
        assert!(lines[1].ends_with(", GID ::ffff:192.0.2.2"), "{said:?}");
        assert!(lines[2].starts_with("200000 bytes in ") && lines[2].ends_with(" Mbit/sec"), "{said:?}");
        assert!(lines[3].starts_with("20 iters in ") && lines[3].ends_with(" usec/iter"), "{said:?}");
    }
}

/// As a process that SIGPIPE ends, and not one whose threads wait for each other.
#[test]
fn nobody_listens_any_more() {
    for line in ["rc_pingpong --sim -n 20", "perf write_bw --sim -n 20"] {
        let said = unheard(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!((said.code, said.err.as_str()), (Some(141), ""), "{line}");
    }
}

#[test]
fn pingpong_of_every_kind() {
    for options in ["-s 0", "-s 1", "-m 256 -s 0x1001", "-m 4096 -s 1000000", "-r 1", "-r 2", "-e", "-e -g 1 -l 7"] {
        good(&format!("rc_pingpong --sim -n 10 {options}"));
        good(&format!("uc_pingpong --sim -n 10 {options}"));
    }
}

#[test]
fn a_capture_decodes_with_every_icrc_good() {
    let file = Scratch::new("sim.pcapng");
    good(&format!("rc_pingpong --sim -n 4 -s 3000 --pcap {}", file.path()));
    let said = good(&format!("decode --json {}", file.path()));
    let packets: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(packets.iter().all(|packet| packet["icrc_ok"] == true), "{said:?}");
    let first = |name: &str| packets.iter().filter(|packet| packet["opcode"] == name).count();
    // Four messages each way, of three packets each.
    assert_eq!((first("RC_SEND_FIRST"), first("RC_SEND_MIDDLE"), first("RC_SEND_LAST")), (8, 8, 8));
}

#[test]
fn bandwidth_in_json() {
    for (test, options, size, transport) in [
        ("send_bw", "", 65536, "RC"),
        ("send_bw", "--uc -s 100", 100, "UC"),
        ("write_bw", "-s 4000 -m 1024", 4000, "RC"),
        ("write_bw", "--uc -s 64 -I 64", 64, "UC"),
        ("read_bw", "-s 10000", 10000, "RC"),
        ("atomic_bw", "", 8, "RC"),
    ] {
        let figures = json(&format!("perf {test} --sim -n 50 --json {options}"));
        assert_eq!(figures["version"], 1);
        assert_eq!(figures["test"], test);
        assert_eq!(figures["transport"], transport);
        assert_eq!((&figures["size"], &figures["qps"], &figures["iters"]), (&size.into(), &1.into(), &50.into()));
        assert_eq!(figures["mtu"], if options.contains("-m") { 1024 } else { 4096 });
        for field in ["seconds", "gbps", "mpps", "cpu_ns_per_msg"] {
            assert!(figures[field].as_f64().is_some_and(|value| value > 0.0), "{field}: {figures}");
        }
        let rate = figures["gbps"].as_f64().unwrap() * 1e3 / (8.0 * f64::from(size));
        assert!((rate / figures["mpps"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{figures}");
    }
}

#[test]
fn several_queue_pairs_and_a_duration() {
    let figures = json("perf send_bw --sim -q 5 -n 33 -s 3000 -t 7 -r 9 --json");
    assert_eq!((&figures["qps"], &figures["iters"], &figures["messages"]), (&5.into(), &33.into(), &165.into()));
    let figures = json("perf write_bw --sim -q 2 -D 1 -s 512 --json");
    assert!(figures["seconds"].as_f64().is_some_and(|seconds| (1.0..10.0).contains(&seconds)), "{figures}");
    assert!(figures["messages"].as_u64().is_some_and(|messages| messages > 0), "{figures}");
}

#[test]
fn latency_in_json() {
    for (test, options, size) in [
        ("send_lat", "", 2),
        ("send_lat", "--uc -s 9000", 9000),
        ("write_lat", "", 2),
        ("write_lat", "--uc -s 300", 300),
        ("read_lat", "", 2),
        ("atomic_lat", "", 8),
    ] {
        let figures = json(&format!("perf {test} --sim -n 40 --json {options}"));
        assert_eq!((&figures["test"], &figures["size"], &figures["iters"]), (&test.into(), &size.into(), &40.into()));
        let us = |field: &str| figures["us"][field].as_f64().expect(field);
        assert!(us("min") > 0.0 && us("min") <= us("p50") && us("p50") <= us("p99"), "{figures}");
        assert!(us("p99") <= us("p999") && us("p999") <= us("max"), "{figures}");
    }
}

#[test]
fn every_driver() {
    for driver in ["inline", "spin", "adaptive", "event"] {
        let figures = json(&format!("perf send_lat --sim -n 20 --json --progress {driver} --cpu 0"));
        assert_eq!(figures["iters"], 20, "{driver}");
        json(&format!("perf read_bw --sim -n 20 -s 5000 --json --progress {driver}"));
    }
}

#[test]
fn text_has_the_columns_of_perftest() {
    let said = good("perf send_bw --sim -n 10");
    assert!(
        said.out.contains(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"),
        "{said:?}"
    );
    assert!(said.out.contains("CPU[ns/msg]") && said.out.contains("\n 65536      10 "), "{said:?}");
    let said = good("perf write_lat --sim -n 10");
    assert!(
        said.out.contains(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"),
        "{said:?}"
    );
    assert!(said.out.contains("99.9% percentile[usec]"), "{said:?}");
}
