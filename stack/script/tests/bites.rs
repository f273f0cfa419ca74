//! Scripts that are not as the device is must fail, and say where and why.

use xroce_script::parse::parse;
use xroce_script::{LocalTarget, Report, runner};

/// Plays steps after `qp rc sq_psn=100 rq_psn=500`. The first step stands in line 2.
fn play(steps: &str) -> Report {
    let script = parse("x", &format!("qp rc sq_psn=100 rq_psn=500\n{steps}\n")).unwrap_or_else(|e| panic!("{e}"));
    runner::run(&script, &mut LocalTarget::new())
}

/// The line and the reason of the failure.
fn failure(steps: &str) -> (u32, String) {
    let report = play(steps);
    let failure = report.failure().unwrap_or_else(|| panic!("passed: {steps}")).clone();
    (failure.line, failure.why)
}

#[test]
fn what_is_wrong_is_told_by_line_and_field() {
    let cases: &[(&str, u32, &str)] = &[
        // Another packet, another field, other data.
        ("post_send id=1 SEND len=1\n> WRITE_ONLY psn=100", 3, "another packet"),
        ("post_send id=1 SEND len=1\n> SEND_ONLY psn=101", 3, "another psn"),
        ("post_send id=1 SEND len=1\n> SEND_ONLY psn=100 A=0", 3, "another A"),
        ("post_send id=1 SEND len=4\n> SEND_ONLY psn=100 data=01020304", 3, "another data"),
        ("post_send id=1 SEND len=4\n> SEND_ONLY psn=100 data=0000000000", 3, "another len"),
        ("< WRITE_ONLY psn=500 A len=1\n> ACK psn=500 msn=2", 3, "another msn"),
        ("< WRITE_ONLY psn=500 A len=1\n> ACK psn=500 credits=3", 3, "another syndrome"),
        ("< WRITE_ONLY psn=501 A len=1\n> ACK psn=500", 3, "another packet"),
        // Nothing, too much, too early, too late.
        ("post_send id=1 SEND len=1\n> SEND_ONLY psn=100\n> SEND_ONLY psn=101", 4, "nothing of the kind came"),
        ("post_send id=1 SEND len=1", 0, "the device sent SEND_ONLY"),
        ("post_send id=1 SEND len=1\n+1us silent", 3, "the device sent SEND_ONLY"),
        ("post_send id=1 SEND len=1\n> SEND_ONLY psn=100\n+2T > SEND_ONLY psn=100", 4, "too early"),
        ("post_send id=1 SEND len=1\n> SEND_ONLY psn=100\n+0.5T > SEND_ONLY psn=100", 4, "nothing of the kind came"),
        ("post_send id=1 SEND len=1\n> SEND_ONLY psn=100\n+2T silent", 4, "the device sent SEND_ONLY"),
        // Completions and events.
        ("post_send id=1 SEND len=1\n> SEND_ONLY psn=100\nwc id=1 status=success", 4, "no such completion"),
        ("post_send id=1 SEND len=1\n> SEND_ONLY psn=100\n< ACK psn=100 msn=1", 0, "a completion that nothing here"),
        ("post_send id=1 SEND len=1\n> SEND_ONLY psn=100\n< ACK psn=100 msn=1\nno wc", 5, "a completion that nothing"),
        (
            "post_send id=1 SEND len=1\n> SEND_ONLY psn=100\n< NAK psn=100 code=access\nwc id=1 status=rem_op",
            5,
            "another status",
        ),
        ("post_recv id=1 len=8\n< SEND_ONLY psn=500 len=4\nwc id=1 status=success len=5", 4, "another len"),
        ("post_recv id=1 len=8\n< SEND_ONLY psn=500 len=4\nwc id=1 status=success imm=5", 4, "another imm"),
        ("modify SQD sqd_notify=1", 0, "an event that nothing here expects: SQ_DRAINED"),
        ("modify SQD sqd_notify=1\nevent COMM_EST", 3, "another event came"),
        ("event COMM_EST", 2, "no event came"),
        // Values.
        ("< WRITE_ONLY psn=500 len=4\nexpect mem buf[0..4] == zero", 3, "buf[0] is"),
        ("expect state == SQD", 2, "the queue pair is in RTS"),
        ("expect counter sent_pkts >= 1", 2, "sent_pkts is 0"),
        ("expect attr rq_psn == 501", 2, "rq_psn is 500"),
        // Calls.
        ("modify SQD refused", 2, "it was not refused"),
        ("modify INIT", 2, "refused: "),
        ("modify INIT refused=\"for another reason\"", 2, "refused, but for another reason"),
        ("< WRITE_ONLY psn=500 va=nowhere len=1", 2, "there is no region nowhere"),
    ];
    for (steps, line, why) in cases {
        let (at, what) = failure(steps);
        assert!(at == *line && what.contains(why), "{steps}\n  {at}: {what}");
    }
}

#[test]
fn a_failure_shows_expected_and_seen_side_by_side() {
    let report = play("+5us post_send id=1 WRITE len=3 va=0x1000 rkey=7\n> WRITE_ONLY psn=100 dmalen=4");
    let expected = "x:3: the packet has another dmalen than expected
            5 us    2  post_send id=1 WRITE len=3 va=0x1000 rkey=7
-           5 us    3  > WRITE_ONLY psn=100 dmalen=4
+           5 us       > WRITE_ONLY psn=100 A len=3 va=0x1000 rkey=0x7 dmalen=3
  dmalen: expected 4, seen 3
";
    let shown = report.to_string();
    let without_rule: String = shown.lines().filter(|l| !l.trim().is_empty()).map(|l| format!("{l}\n")).collect();
    assert_eq!(without_rule, expected);
}

#[test]
fn long_traces_are_cut_to_where_it_went_wrong() {
    let report = play("repeat 200\n< WRITE_ONLY psn=500+$i len=1\nend\nexpect attr rq_psn == 0");
    let shown = report.to_string();
    assert!(shown.contains("lines before") && shown.lines().count() < 40, "{shown}");
}

#[test]
fn what_may_come_is_not_missed_and_does_not_hide_what_must() {
    assert!(play("< WRITE_ONLY psn=500 A len=1\n>* ACK\n> ACK psn=500").passed());
    assert!(play("< WRITE_ONLY psn=500 A len=1\n>* ACK\n+1us silent").passed());
    let (line, why) = failure("< WRITE_ONLY psn=500 A len=1\n>* ACK\n> ACK psn=501");
    assert_eq!((line, why.contains("nothing of the kind")), (4, true), "{why}");
}
