//! `xroce man`: the pages, as `man` reads them.

mod ends;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ends::xroce;

/// The names of all commands, as the help lists them.
fn commands() -> Vec<String> {
    let help = xroce(&["--help"]).out;
    let listed = help.split("Commands:\n").nth(1).expect("a list of commands").split("\n\n").next().expect("its end");
    listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned)).collect()
}

#[test]
fn a_file_for_each_command_without_a_complaint_of_man() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("man-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a scratch directory");
    let said = xroce(&["man", "--dir", dir.to_str().expect("UTF-8")]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let commands = commands();
    assert!(commands.iter().any(|name| name == "rc_pingpong"), "{commands:?}");
    let files: Vec<_> = commands.iter().map(|name| format!("xroce-{name}.1")).chain(["xroce.1".to_owned()]).collect();
    assert_eq!(fs::read_dir(&dir).expect("the directory").count(), files.len());
    for file in files {
        let path = dir.join(&file);
        let roff = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        let name = file.strip_suffix(".1").expect("section 1");
        let alone = xroce(&["man", name.strip_prefix("xroce-").unwrap_or("")][..1 + usize::from(name != "xroce")]);
        assert_eq!(alone.out, roff, "{file}");
        let man =
            Command::new("man").args(["--warnings", "-E", "UTF-8", "-l"]).arg(&path).env("MANWIDTH", "80").output();
        let Ok(man) = man else {
            println!("SKIP a_file_for_each_command_without_a_complaint_of_man: there is no man here");
            break;
        };
        let (text, complaints) = (String::from_utf8_lossy(&man.stdout), String::from_utf8_lossy(&man.stderr));
        assert!(man.status.success() && complaints.is_empty(), "{file}: {complaints}");
        // Lines are filled with blanks up to the margin.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("NAME {name} - ")) && text.contains("SEE ALSO"), "{file}: {text}");
    }
    fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn what_there_is_not_is_named() {
    let said = xroce(&["man", "nosuch"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("nosuch") && said.err.contains("rc_pingpong"), "{said:?}");
    let said = xroce(&["man", "--dir", "/nonexistent"]);
    assert!(said.code == Some(1) && said.err.contains("/nonexistent/xroce.1"), "{said:?}");
}
