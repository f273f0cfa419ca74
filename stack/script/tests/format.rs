//! What the parser says about scripts that are wrong: file, line, column, and what would be right.

use xroce_script::model::{Action, Delay, Place};
use xroce_script::parse::parse;

const HEAD: &str = "# A rule.\nsource: IBTA 1\ncovers: x.y\nwhere: any\n\nqp rc\n";

/// The error of a script with one step, which stands in line 7: its column and what it expected.
fn error(step: &str) -> (usize, String) {
    let error = parse("rc/x.roce", &format!("{HEAD}{step}\n")).expect_err(step);
    assert_eq!((error.file.as_str(), error.line), ("rc/x.roce", 7), "{error}");
    (error.column, error.expected)
}

#[test]
fn an_error_points_at_the_word() {
    let text = format!("{HEAD}+5us     > SNED_ONLY psn=1\n");
    let error = parse("rc/x.roce", &text).unwrap_err();
    let expected = "rc/x.roce:7:12: expected a packet (did you mean SEND_ONLY?), found `SNED_ONLY`
    7 | +5us     > SNED_ONLY psn=1
      |            ^";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn every_kind_of_slip_is_told() {
    let cases: &[(&str, usize, &str)] = &[
        ("+5 > ACK psn=1", 2, "a time:"),
        ("+12481460529779325150us > ACK psn=1", 2, "a time:"),
        ("+18446744073709551s > ACK psn=1", 2, "a time of at most 3600s"),
        ("+3600.001s > ACK psn=1", 2, "a time of at most 3600s"),
        ("+1000.5T > ACK psn=1", 2, "a time of at most 1000T"),
        ("+5us..1 > ACK psn=1", 7, "a time:"),
        ("+1us..2us silent", 1, "one time"),
        ("sned", 1, "a statement"),
        ("> ACK psn=1x", 11, "a number"),
        ("> WRITE_ONLY psn=1 imm=3", 20, "a field of WRITE_ONLY"),
        ("> ACK psn", 7, "psn=VALUE"),
        ("> ACK psn=1 bad_icrc", 13, "a field of ACK"),
        ("< ACK msn=1", 12, "psn=NUMBER"),
        ("< SEND_ONLY psn=1 A=2", 21, "0 or 1"),
        ("< SEND_ONLY psn=1 pad=4", 23, "a number from 0 to 3"),
        ("< NAK psn=1 code=seqence", 18, "a NAK code (did you mean sequence?)"),
        ("post_send id=1", 15, "an operation"),
        ("post_send SEND len=1", 21, "id=NUMBER"),
        ("post_send id=1 SEMD len=1", 16, "an operation (did you mean SEND?)"),
        ("post_send id=1 SEND from=buf", 26, "a piece of a region"),
        ("post_send id=1 SEND from=buf[9..2]", 30, "an end that is not before the start"),
        ("post_recv len=1", 16, "id=NUMBER"),
        ("wc id=1", 8, "status=NAME"),
        ("wc id=1 status=sucess", 16, "a status (did you mean success?)"),
        ("event COMMEST", 7, "an event (did you mean COMM_EST?)"),
        ("expect counter bogus == 1", 16, "a name that the device knows"),
        ("expect drop bad_icrc = 1", 22, "== or >= or <="),
        ("expect mem buf[0..8] == 012", 25, "bytes:"),
        ("mr 9 len=8", 4, "a name for the region"),
        ("mr a rights=rx", 13, "a right"),
        ("modify RTX", 8, "a state, or here (did you mean"),
        ("post_send id=1 SEND inline=pat(", 28, "bytes:"),
        ("post_send id=1 SEND inline=pat(3", 28, "bytes:"),
        ("post_send id=1 SEND inline=pat()", 32, "a number"),
        ("modify RTS timeot=1", 12, "an attribute (did you mean timeout?)"),
        ("arm recv", 9, "any or solicited"),
        ("no packet", 4, "wc or event"),
        ("silent now", 8, "the end of the line"),
        ("repeat 3", 1, "an `end` behind this repeat"),
        ("modify ERR refused=no", 20, "a text in double quotes"),
    ];
    for (step, column, expected) in cases {
        let (at, what) = error(step);
        assert!(at == *column && what.contains(expected), "{step}: {at}: {what}");
    }
}

#[test]
fn the_queue_pair_comes_first() {
    let error = parse("x", "# A rule.\nsource: s\n\n> ACK psn=1\n").unwrap_err();
    assert_eq!((error.line, error.column, error.expected.as_str()), (4, 1, "qp rc or qp uc"));
    let error = parse("x", "# A rule.\n").unwrap_err();
    assert_eq!(error.expected, "qp rc or qp uc");
    let error = parse("x", "sauce: s\n").unwrap_err();
    assert_eq!(error.expected, "a tag (did you mean source?)");
    let error = parse("x", "qp rc mtu=1000\n").unwrap_err();
    assert_eq!((error.column, error.expected.as_str()), (11, "256, 512, 1024, 2048 or 4096"));
    let error = parse("x", "qp ud\n").unwrap_err();
    assert_eq!(error.column, 4);
}

#[test]
fn head_steps_and_repeats_are_read() {
    let text = format!("# And more.\n{HEAD}repeat 3\n+2T..4T > ACK psn=0xfffffe+$i*2   # wraps\nend\n\nsilent\n");
    let script = parse("x", &text).unwrap();
    assert_eq!(script.head.rule, "And more.\nA rule.");
    assert_eq!(script.head.covers, ["x.y"]);
    assert_eq!(script.head.place, Some(Place::Any));
    assert_eq!(script.steps.len(), 4);
    let psns: Vec<_> = script
        .steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::Out(spec) => spec.psn,
            _ => None,
        })
        .collect();
    assert_eq!(psns, [0xFF_FFFE, 0, 2]);
    let step = &script.steps[0];
    assert_eq!((step.line, step.when.from, step.when.to), (9, Delay::Timeout(2000), Some(Delay::Timeout(4000))));
    assert_eq!(step.text, "> ACK psn=0xfffffe+0*2");
}
