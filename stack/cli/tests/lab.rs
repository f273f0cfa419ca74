//! `xroce lab`: what it writes, and what it says of what there is not.

mod ends;

use std::fs;
use std::path::PathBuf;

use ends::xroce;

fn scratch(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("lab-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a scratch directory");
    dir
}

#[test]
fn the_list_names_every_scenario() {
    let said = xroce(&["lab", "--list"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for name in ["lost-packet", "go-back-n", "rnr", "duplicate-atomic", "psn-wrap", "read-split", "uc-gap"] {
        assert!(said.out.lines().any(|line| line.starts_with(name)), "{name}: {}", said.out);
    }
    assert_eq!(said.out.lines().count(), 12);
}

#[test]
fn a_page_goes_where_it_is_told_and_a_text_to_the_terminal() {
    let dir = scratch("page");
    let file = dir.join("x.html");
    let said = xroce(&["lab", "rnr", "-o", file.to_str().expect("UTF-8")]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let page = fs::read_to_string(&file).expect("the page");
    assert!(page.starts_with("<!doctype html>") && page.contains("RNR: the receiver is not ready"));
    let text = xroce(&["lab", "rnr", "--text"]);
    assert!(text.code == Some(0) && text.out.contains("RNR NAK 0.16 ms PSN 100"), "{text:?}");
    let both = xroce(&["lab", "rnr", "-o", "-"]);
    assert_eq!(both.out, page, "the same page on standard output");
    fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn a_capture_of_ours_becomes_a_ladder() {
    let dir = scratch("capture");
    let file = dir.join("talk.pcapng");
    let path = file.to_str().expect("UTF-8");
    let said = xroce(&["rc_pingpong", "--sim", "-n", "3", "--pcap", path]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let text = xroce(&["lab", "--from", path, "--text"]);
    assert_eq!(text.code, Some(0), "{text:?}");
    assert!(text.out.starts_with("talk\n") && text.out.contains("SEND_"), "{text:?}");
    let page = xroce(&["lab", "--from", path, "-o", "-"]);
    assert!(page.code == Some(0) && page.out.contains("\"captured\""), "{:?}", page.err);
    fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn a_capture_of_a_bad_link_says_what_went_wrong() {
    let dir = scratch("wrong");
    let file = dir.join("lost.pcapng");
    let path = file.to_str().expect("UTF-8");
    let said = xroce(&["lab", "lost-packet", "--text", "--pcap", path]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let text = xroce(&["lab", "--from", path, "--text"]);
    assert!(text.code == Some(0) && text.out.contains("What went wrong\n! B expects PSN 101"), "{text:?}");
    assert!(text.out.contains("from 2 places"), "each packet once: {text:?}");
    let said = xroce(&["lab", "--from", path, "--conversation", "2"]);
    assert!(
        said.code == Some(1) && said.err.contains("no conversation 2") && said.err.contains("10 packets"),
        "{said:?}"
    );
    assert_eq!(xroce(&["lab", "rnr", "--conversation", "2"]).code, Some(2));
    fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn a_capture_that_ends_inside_a_packet_is_shown_up_to_there() {
    let dir = scratch("cut");
    let file = dir.join("cut.pcapng");
    let path = file.to_str().expect("UTF-8");
    assert_eq!(xroce(&["rc_pingpong", "--sim", "-n", "3", "--pcap", path]).code, Some(0));
    let whole = fs::read(path).expect("a capture");
    fs::write(path, &whole[..whole.len() - 37]).expect("ours");
    let text = xroce(&["lab", "--from", path, "--text"]);
    let told = text.out.contains("The file is damaged: the file ends inside") && text.out.contains("SEND_FIRST");
    assert!(text.code == Some(0) && told, "{text:?}");
    fs::write(path, &whole[..40]).expect("ours");
    let said = xroce(&["lab", "--from", path, "--text"]);
    assert!(said.code == Some(1) && !said.err.is_empty(), "nothing to show: {said:?}");
    fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn a_packet_script_becomes_a_ladder_with_the_state_of_its_device() {
    let dir = scratch("script");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/scripts/rc/retry_count.roce");
    let path = script.to_str().expect("UTF-8");
    let text = xroce(&["lab", "--from", path, "--text"]);
    assert!(text.code == Some(0) && text.out.contains("device: ACK timer expired: no retry left"), "{text:?}");
    let page = xroce(&["lab", "--from", path, "-o", "-"]);
    assert!(
        page.code == Some(0) && page.out.contains("\"states\":[[") && page.out.contains("],null]"),
        "{:?}",
        page.err
    );
    let bad = dir.join("bad.roce");
    fs::write(&bad, "# A rule.\n\nqp rc\n\n  > SNED_ONLY psn=1\n").expect("a scratch file");
    let said = xroce(&["lab", "--from", bad.to_str().expect("UTF-8")]);
    assert!(said.code == Some(2) && said.err.contains("SEND_ONLY"), "{said:?}");
    fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn what_there_is_not_is_named() {
    let said = xroce(&["lab", "nosuch"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("nosuch") && said.err.contains("go-back-n"), "{said:?}");
    assert_eq!(xroce(&["lab"]).code, Some(2));
    let said = xroce(&["lab", "--from", "/nonexistent/x.pcap"]);
    assert!(said.code == Some(1) && said.err.contains("/nonexistent/x.pcap"), "{said:?}");
    let said = xroce(&["lab", "rnr", "-o", "/nonexistent/x.html"]);
    assert!(said.code == Some(1) && said.err.contains("/nonexistent/x.html"), "{said:?}");
}

#[test]
fn a_scenario_is_a_capture_too_with_its_faults() {
    let dir = scratch("pcap");
    let file = dir.join("bad.pcapng");
    let path = file.to_str().expect("UTF-8");
    let said = xroce(&["lab", "bad-icrc", "--text", "--pcap", path]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let bytes = fs::read(&file).expect("the capture");
    let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("dropped: ICRC is wrong") && has("flipped on the way"));
    let decoded = xroce(&["decode", "--json", path]);
    let bad = |line: &&str| line.contains("\"icrc_ok\":false");
    assert_eq!(decoded.out.lines().filter(bad).count(), 1, "as it arrived, and only there: {decoded:?}");
    assert_eq!(xroce(&["lab", "--list", "--pcap", path]).code, Some(2));
    fs::remove_dir_all(dir).expect("ours");
}
