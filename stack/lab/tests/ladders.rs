//! Every scenario as its ladder in text: what is sent, what becomes of it, and what follows, as ladders/NAME.txt says.
//!
//! `XROCE_BLESS=1 cargo test -p xroce-lab` writes the files anew; read them before you commit them.

use std::fs;
use std::path::PathBuf;

use xroce_lab::ladder::{Fate, What};
use xroce_lab::{Ladder, SCENARIOS, Scenario, page, text};

fn run(name: &str) -> Ladder {
    Scenario::find(name).unwrap_or_else(|| panic!("no scenario {name}")).run()
}

#[test]
fn every_scenario_is_what_its_file_says() {
    let mut wrong = Vec::new();
    for scenario in SCENARIOS {
        let file =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/ladders").join(format!("{}.txt", scenario.name));
        let is = text(&scenario.run());
        if std::env::var_os("XROCE_BLESS").is_some() {
            fs::write(&file, &is).expect("the file can be written");
        }
        let should = fs::read_to_string(&file).unwrap_or_default();
        if let Some((n, (is, should))) = first_difference(&is, &should) {
            wrong.push(format!("{} line {n}:\n  is      {is}\n  should  {should}", scenario.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn first_difference<'a>(is: &'a str, should: &'a str) -> Option<(usize, (&'a str, &'a str))> {
    let lines = is.lines().count().max(should.lines().count());
    let line = |text: &'a str, n: usize| text.lines().nth(n).unwrap_or("(end)");
    (0..lines).map(|n| (n + 1, (line(is, n), line(should, n)))).find(|(_, (a, b))| a != b)
}

#[test]
fn files_and_scenarios_belong_together() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/ladders");
    let mut files: Vec<String> = fs::read_dir(dir)
        .expect("the ladders")
        .flatten()
        .map(|f| f.path().file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    files.sort();
    let mut names: Vec<&str> = SCENARIOS.iter().map(|s| s.name).collect();
    names.sort_unstable();
    assert_eq!(files, names);
}

#[test]
fn a_scenario_is_the_same_each_time() {
    for scenario in SCENARIOS {
        let pages = [(); 2].map(|()| page(&scenario.run()).expect("a page"));
        assert!(pages[0] == pages[1], "{}", scenario.name);
    }
}

#[test]
fn what_arrives_is_what_was_sent() {
    for scenario in SCENARIOS {
        let ladder = scenario.run();
        for (index, packet) in ladder.packets.iter().enumerate() {
            let arrivals =
                ladder.steps.iter().filter(|s| matches!(s.what, What::Arrived { packet, .. } if packet == index));
            let expected = match packet.fate {
                Fate::Lost => 0,
                Fate::Duplicated => 2,
                _ => 1,
            };
            assert_eq!(arrivals.count(), expected, "{} #{}", scenario.name, index + 1);
        }
        assert!(ladder.steps.is_sorted_by_key(|s| s.at_ns), "{}", scenario.name);
        let notes = ladder.steps.iter().filter(|s| s.note.is_some()).count();
        assert!(notes >= 3, "{}: {notes} notes", scenario.name);
    }
}

#[test]
fn a_page_needs_nothing_beside_it() {
    for scenario in SCENARIOS {
        let page = page(&scenario.run()).expect("a page");
        // The namespace of SVG is a name, not an address that anybody visits.
        let addresses = page.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http://", "https://", "//cdn", "@import", "<link rel=\"stylesheet", "src="] {
            assert!(!addresses.contains(outside), "{}: {outside}", scenario.name);
        }
        assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    }
}

#[test]
fn the_flipped_bit_is_the_one_that_breaks_the_icrc() {
    let ladder = run("bad-icrc");
    let packet = &ladder.packets[0];
    let Fate::Corrupted(bit) = packet.fate else { panic!("{:?}", packet.fate) };
    let mut bytes = packet.sent.clone();
    let says = |bytes: &[u8]| {
        let headers = xroce_lab::fields::headers(bytes);
        headers.last().expect("the ICRC").fields[0].says.clone()
    };
    assert_eq!(says(&bytes), "right");
    bytes[bit / 8] ^= 0x80 >> (bit % 8);
    assert_eq!(says(&bytes), "WRONG");
}
