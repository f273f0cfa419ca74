//! Every script, played against an endpoint in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use xroce_script::known::Known;
use xroce_script::model::{Action, Delay, Place, Script, Step};
use xroce_script::report::{Report, Verdict};
use xroce_script::{LocalTarget, runner};
use xroce_scripts::{rules, suite};

/// As many scripts as there must be at least.
const ENOUGH: usize = 120;

fn scripts() -> Vec<Script> {
    suite::load().unwrap_or_else(|error| panic!("{error}"))
}

fn rules_file() -> String {
    std::fs::read_to_string(suite::folder().join("RULES.md")).expect("RULES.md is readable")
}

/// Plays a script. A device that panics fails that script, by name.
fn play(script: &Script) -> Report {
    std::panic::catch_unwind(|| runner::run(script, &mut LocalTarget::new())).unwrap_or_else(|_| Report {
        name: script.name.clone(),
        rule: script.head.rule.clone(),
        trace: Vec::new(),
        verdict: Verdict::failed(0, "the device panicked; see above"),
    })
}

/// `XROCE_SCRIPT=read` plays only scripts with that in their name, and shows what happened.
#[test]
fn every_script_is_as_it_should_be() {
    let only = std::env::var("XROCE_SCRIPT").ok();
    let mut played = 0;
    let mut failed = Vec::new();
    for script in scripts() {
        if only.as_ref().is_some_and(|part| !script.name.contains(part.as_str())) {
            continue;
        }
        let report = play(&script);
        played += 1;
        if only.is_some() && report.passed() {
            let mut trace = String::new();
            report.write_trace(&mut trace).expect("a String takes anything");
            println!("{report}{trace}");
        }
        if !report.passed() {
            failed.push(report);
        }
    }
    println!("{played} packet scripts played, {} failed", failed.len());
    for report in &failed {
        println!("\n{report}");
    }
    assert!(failed.is_empty(), "{} of {played} scripts failed; see above", failed.len());
    assert!(played > 0, "no script has that in its name");
}

#[test]
fn there_are_enough_scripts() {
    let count = scripts().len();
    assert!(count >= ENOUGH, "{count} scripts, of {ENOUGH}");
}

#[test]
fn every_script_says_what_it_is_about() {
    for script in scripts() {
        let (name, head) = (&script.name, &script.head);
        assert!(!head.rule.is_empty(), "{name} does not begin with a comment that says the rule");
        assert!(!head.source.is_empty(), "{name} has no source:");
        assert!(!head.covers.is_empty(), "{name} has no covers:");
        assert!(head.place.is_some(), "{name} has no where:");
    }
}

#[test]
fn every_rule_is_covered_and_every_tag_is_a_rule() {
    let known: Vec<String> = rules::read(&rules_file()).into_iter().map(|rule| rule.id).collect();
    let unique: BTreeSet<&String> = known.iter().collect();
    assert_eq!(unique.len(), known.len(), "an id stands twice in RULES.md");
    let mut covered = BTreeSet::new();
    for script in scripts() {
        for id in &script.head.covers {
            assert!(known.contains(id), "{} covers {id}, which RULES.md does not list", script.name);
            covered.insert(id.clone());
        }
    }
    let open: Vec<&String> = known.iter().filter(|id| !covered.contains(*id)).collect();
    println!("{} rules, {} covered", known.len(), covered.len());
    assert!(open.is_empty(), "rules without a script: {open:?}");
}

/// The last column of RULES.md is made from the scripts. `XROCE_BLESS=1` writes it.
#[test]
fn the_table_of_rules_names_the_scripts() {
    let mut by_rule: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for script in scripts() {
        let name = script.name.trim_end_matches(".roce").to_owned();
        for id in script.head.covers {
            by_rule.entry(id).or_default().push(name.clone());
        }
    }
    let now = rules_file();
    let right = rules::with_scripts(&now, |id| by_rule.get(id).cloned().unwrap_or_default());
    if std::env::var_os("XROCE_BLESS").is_some() {
        std::fs::write(suite::folder().join("RULES.md"), &right).expect("RULES.md is writable");
    } else {
        assert!(now == right, "RULES.md is out of date: run with XROCE_BLESS=1");
    }
}

/// A script that can run anywhere asks for nothing that a foreign device may do in another way.
#[test]
fn most_scripts_can_run_against_any_device() {
    let all = scripts();
    let any = all.iter().filter(|script| script.head.place == Some(Place::Any)).count();
    println!("{any} of {} scripts can run against any device", all.len());
    assert!(any * 2 > all.len(), "{any} of {}", all.len());
}

/// A step at which a device can be seen to do otherwise: something is expected, or time goes on in which it may do something.
fn shows(step: &Step) -> bool {
    let refused = match &step.action {
        Action::Register(mr) => mr.refused.is_some(),
        Action::PostSend(post) => post.refused.is_some(),
        Action::PostRecv(post) => post.refused.is_some(),
        Action::Modify(modify) => modify.refused.is_some(),
        _ => false,
    };
    use Action::{Event, Expect, NoEvent, NoWc, Out, Silent, Wc};
    let looks = matches!(step.action, Out(_) | Wc(_) | Event(_) | Expect(_) | Silent | NoWc | NoEvent);
    refused || looks || step.when.from != Delay::Ns(0)
}

/// What devices are known to do otherwise is about scripts that there are, and about lines of them at which it can show: one
/// that moved since is wrong.
#[test]
fn known_deviations_name_scripts_and_lines_of_them() {
    let scripts: BTreeMap<String, Script> = scripts().into_iter().map(|script| (script.name.clone(), script)).collect();
    let folder = suite::folder().join("known");
    let files: Vec<_> = std::fs::read_dir(&folder).expect("known/ is readable").flatten().map(|f| f.path()).collect();
    assert!(!files.is_empty());
    for file in files {
        let known = Known::read(&file).unwrap_or_else(|error| panic!("{error}"));
        for name in known.names() {
            let file = file.display();
            let script = scripts.get(name).unwrap_or_else(|| panic!("{file} lists {name}, which is no script"));
            if let Some(line) = known.of(name).and_then(|deviation| deviation.line) {
                let there = script.steps.iter().any(|step| step.line == line && shows(step));
                assert!(there, "{file}: nothing can fail at line {line} of {name}");
            }
        }
    }
}

/// The page for owners of other devices says how many there are.
#[test]
fn the_page_on_conformance_counts_the_scripts() {
    let page = suite::folder().join("../../docs/conformance.md");
    let text = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let count = format!("holds {} packet scripts", scripts().len());
    assert!(text.contains(&count), "docs/conformance.md does not say that `tests/scripts` {count}");
}
