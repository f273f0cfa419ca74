//! `xroce doctor`, run as the user does.

use std::process::Command;

use serde_json::Value;

fn doctor(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_xroce")).arg("doctor").args(args).output().expect("xroce starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (output.status.code(), String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn json_has_a_version_and_a_remedy_for_each_failure() {
    let (code, output) = doctor(&["--json"]);
    let report: Value = serde_json::from_str(&output).expect("one JSON object");
    assert_eq!(report["version"], 1);
    let checks = report["checks"].as_array().expect("an array of checks");
    for name in
        ["kernel", "cap_net_raw", "cap_net_admin", "cap_bpf", "af_xdp_socket", "bpf_map", "bpf_program", "memlock"]
    {
        assert!(checks.iter().any(|c| c["name"] == name && c["required"] == true), "{name}");
    }
    for check in checks {
        assert!(check["found"].as_str().is_some_and(|f| !f.is_empty()), "{check}");
        assert_eq!(check["remedy"].is_string(), check["ok"] == false, "{check}");
    }
    let missing = checks.iter().any(|c| c["required"] == true && c["ok"] == false);
    assert_eq!(report["ok"], !missing);
    assert_eq!(code, Some(i32::from(missing)));
}

#[test]
fn loopback_is_listed_but_of_no_use() {
    let (code, output) = doctor(&["-d", "lo", "--json"]);
    let report: Value = serde_json::from_str(&output).expect("one JSON object");
    assert_eq!(code, Some(1));
    assert_eq!(report["netdevs"][0]["name"], "lo");
    assert_eq!(report["netdevs"][0]["loopback"], true);
}

#[test]
fn a_netdev_that_is_not_there_fails() {
    let (code, output) = doctor(&["-d", "nosuchdev0"]);
    assert_eq!(code, Some(1));
    assert!(output.contains("MISSING  netdev         no netdev nosuchdev0"), "{output}");
}

#[test]
fn usage_errors_exit_with_2() {
    let status =
        Command::new(env!("CARGO_BIN_EXE_xroce")).args(["doctor", "--no-such-flag"]).output().expect("xroce starts");
    assert_eq!(status.status.code(), Some(2));
}
