//! Every packet script as a ladder: a page comes of it, with the packets of the script and no other, and its comments as notes.

use std::path::{Path, PathBuf};

use xroce_lab::ladder::What;
use xroce_lab::{Ladder, page, script, text};
use xroce_script::model::Action;
use xroce_script::{LocalTarget, Script, files, runner, show};

fn scripts() -> Vec<Script> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scripts");
    let paths: Vec<PathBuf> = files::find(&[folder]).expect("the scripts");
    paths.iter().map(|path| files::load(path).expect("a script")).collect()
}

fn find(name: &str) -> Script {
    scripts().into_iter().find(|script| script.name == name).unwrap_or_else(|| panic!("no script {name}"))
}

/// The packets of an end, as a script would write them.
fn packets(ladder: &Ladder, end: usize) -> Vec<String> {
    ladder.packets.iter().filter(|p| p.from == end).map(|p| show::packet(&p.sent)).collect()
}

#[test]
fn every_script_is_a_page_with_its_packets() {
    let scripts = scripts();
    assert!(scripts.len() > 250, "{} scripts", scripts.len());
    for script in &scripts {
        let name = &script.name;
        let ladder = script::ladder(script);
        assert_eq!(ladder.findings, [], "{name}");
        let page = page(&ladder).expect("a page");
        assert!(page.starts_with("<!doctype html>") && !ladder.steps.is_empty(), "{name}");
        let of_script = script.steps.iter().filter(|step| matches!(step.action, Action::In(_))).count();
        assert_eq!(packets(&ladder, 1).len(), of_script, "{name}: packets of the script");
        // What the runner saw of the device, which looks at it by itself.
        let report = runner::run(script, &mut LocalTarget::new());
        let mut seen: Vec<&str> = report.trace.iter().filter_map(|entry| entry.text.strip_prefix("> ")).collect();
        let mut drawn = packets(&ladder, 0);
        seen.sort_unstable();
        drawn.sort_unstable();
        // A trace leaves out what a script allows and never comes to speak of.
        let tolerates = script.steps.iter().any(|step| matches!(step.action, Action::Tolerate(_)));
        if tolerates {
            drawn.retain(|packet| seen.contains(&packet.as_str()));
            drawn.dedup();
            seen.dedup();
        }
        assert_eq!(drawn, seen, "{name}: packets of the device");
        assert!(ladder.steps.iter().all(|step| step.states[0].is_some()), "{name}: the device's state at each step");
        let completions = script.steps.iter().filter(|step| matches!(step.action, Action::Wc(_))).count();
        assert_eq!(text(&ladder).matches(": CQE: ").count(), completions, "{name}: completions");
        for comment in script.steps.iter().map(|step| &step.comment).filter(|comment| !comment.is_empty()) {
            let noted = |step: &xroce_lab::ladder::Step| step.note.as_ref().is_some_and(|note| note.contains(comment));
            assert!(ladder.steps.iter().any(noted), "{name}: {comment}");
        }
    }
}

#[test]
fn completions_stand_at_the_step_they_come_of() {
    let ladder = script::ladder(&find("rc/rnr_wait_is_not_shortened.roce"));
    let last = ladder.steps.iter().rfind(|step| matches!(step.what, What::Captured(_))).expect("a packet");
    assert_eq!(last.effects.len(), 3, "the ACK completes all three: {:?}", last.effects);
    let rnr = ladder.steps.iter().find(|step| step.note.is_some()).expect("a note");
    assert!(rnr.note.as_ref().is_some_and(|note| note.starts_with("122.88 ms")), "{rnr:?}");
    let lines = xroce_lab::ladder::state_lines(rnr.states[0].as_ref().expect("a state"));
    assert!(lines[7].starts_with("until 122"), "times count from the start of the script: {lines:?}");
}

#[test]
fn of_a_burst_each_packet_has_its_own_completions() {
    let burst = "# A rule.\n\nqp rc sq_psn=100\n\n  post_recv id=7 len=8\n  post_send id=1 SEND len=8\n  > SEND_ONLY psn=100\n\
        +5us < SEND_ONLY psn=500 A len=8\n  < ACK psn=100 msn=1\n  > ACK psn=500\n  wc id=1 status=success\n  wc id=7 status=success\n";
    let ladder = script::ladder(&xroce_script::parse::parse("rc/burst.roce", burst).expect("a script"));
    assert_eq!(ladder.findings, []);
    let packets = ladder.steps.iter().filter(|step| matches!(step.what, What::Captured(_)));
    let effects: Vec<Vec<String>> = packets.map(|step| step.effects.iter().map(|e| e.words()).collect()).collect();
    assert_eq!(effects[1], ["CQE: RECV 7 success"], "{effects:?}");
    assert_eq!(effects[2], ["CQE: WR 1 success"], "{effects:?}");
}

#[test]
fn a_script_that_fails_says_where_and_why() {
    let broken = "# A rule.\n\nqp rc sq_psn=100\n\n  post_send id=1 SEND len=8\n  > SEND_ONLY psn=101\n";
    let ladder = script::ladder(&xroce_script::parse::parse("rc/broken.roce", broken).expect("a script"));
    assert!(ladder.findings[0].text.contains("Line 6"), "{:?}", ladder.findings);
    let shown = text(&ladder);
    assert!(
        shown.contains("What went wrong\n! The device does not") && shown.contains("expected 101, seen 100"),
        "{shown}"
    );
    assert_eq!(ladder.packets.len(), 1, "what it did is drawn all the same");
}
