//! `xroce completions`: a shell that has the script offers what may stand there.

mod ends;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ends::xroce;

/// What bash offers for the last of `words`, by the function that the script registers. Bash takes `=` and `:` for the end of a word: what is
/// offered stands in place of what is behind them.
fn bash(words: &[&str]) -> Vec<String> {
    let asked = r#"
        source <(xroce completions bash) || exit
        COMP_LINE=$* COMP_POINT=${#COMP_LINE} COMP_WORDS=() COMP_TYPE=9
        for word; do
            while [[ $word =~ ^([^=:]*)([=:]+)(.*)$ ]]; do
                [[ -z ${BASH_REMATCH[1]} ]] || COMP_WORDS+=("${BASH_REMATCH[1]}")
                COMP_WORDS+=("${BASH_REMATCH[2]}") word=${BASH_REMATCH[3]}
                [[ -n $word ]] || continue 2
            done
            COMP_WORDS+=("$word")
        done
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        current=${COMP_WORDS[COMP_CWORD]}
        [[ ! $current =~ ^[=:]+$ ]] || current=
        registered=$(complete -p xroce) || exit
        [[ $registered =~ -F\ ([^ ]+) ]] || exit
        "${BASH_REMATCH[1]}" xroce "$current" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", asked, "bash", "xroce"]).args(words).env("PATH", path()).env_remove("RUST_LOG");
    let output = command.current_dir(scratch()).output().expect("bash starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// A directory with one capture in it.
fn scratch() -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("completions");
    fs::create_dir_all(&dir).expect("a scratch directory");
    fs::write(dir.join("talk.pcapng"), []).expect("a file");
    dir
}

/// `PATH` with this xroce first.
fn path() -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_xroce")).parent().expect("a directory").display().to_string();
    format!("{bin}:{}", std::env::var("PATH").unwrap_or_default())
}

/// Runs a shell; None, after a line that says so, where it is not installed.
fn shell(test: &str, name: &str, args: &[&str], dir: &Path) -> Option<String> {
    let mut command = Command::new(name);
    command.args(args).current_dir(dir).env("PATH", path()).env("HOME", dir).env_remove("RUST_LOG");
    match command.output() {
        Ok(output) => {
            assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(error) => {
            println!("SKIP {test}: {name} does not start: {error}");
            None
        }
    }
}

/// A line, and what is offered at its end, without help.
const LINES: [(&str, &[&str]); 15] = [
    ("xroce rc", &["rc_pingpong"]),
    ("xroce perf send_bw --rx-", &["--rx-ring", "--rx-depth"]),
    ("xroce lab go", &["go-back-n"]),
    ("xroce lab --text --conversation=2 psn", &["psn-wrap"]),
    ("xroce perf send_", &["send_bw", "send_lat"]),
    ("xroce perf send_bw --progress s", &["spin"]),
    ("xroce perf send_bw --progress=s", &["--progress=spin"]),
    ("xroce perf send_bw -m 2", &["256", "2048"]),
    ("xroce stat q", &["qp"]),
    ("xroce --log de", &["debug"]),
    ("xroce doctor --log warn,xroce::qp=t", &["warn,xroce::qp=trace"]),
    ("xroce rc_pingpong --user nob", &["nobody"]),
    ("xroce decode ta", &["talk.pcapng"]),
    ("xroce man uc", &["uc_pingpong"]),
    ("xroce perf -d ud", &["udp:"]),
];

#[test]
fn fish_offers_the_same() {
    for (line, wanted) in LINES {
        let asked = format!("xroce completions fish | source; complete -C '{line}'");
        let args = ["--no-config", "-c", &asked];
        let Some(said) = shell("fish_offers_the_same", "fish", &args, &scratch()) else { return };
        let offers: Vec<&str> = said.lines().filter_map(|line| line.split('\t').next()).collect();
        assert_eq!(offers, wanted, "{line}");
    }
}

#[test]
fn zsh_offers_the_same_at_the_first_tab() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shells/offers.zsh");
    let dir = scratch().join("zsh");
    fs::create_dir_all(&dir).expect("a scratch directory");
    fs::write(dir.join("talk.pcapng"), []).expect("a file");
    let ask = |line: &str| shell("zsh_offers_the_same_at_the_first_tab", "zsh", &["-f", script, line], &dir);
    // A zsh takes more than a second to start.
    for (line, wanted) in LINES.into_iter().step_by(3) {
        let Some(said) = ask(line) else { return };
        let offers: Vec<&str> = said.lines().filter(|line| !line.starts_with("LINE<")).collect();
        assert_eq!(offers, wanted, "{line}: {said}");
    }
    // Behind an address something is to follow, behind a scenario nothing.
    for (line, becomes) in
        [("xroce perf -d ud", "udp:>"), ("xroce lab go", "go-back-n >"), ("xroce decode func", "functions/>")]
    {
        let Some(said) = ask(line) else { return };
        assert!(said.trim_end().ends_with(becomes), "{line}: {said}");
    }
}

#[track_caller]
fn offers(words: &[&str], wanted: &[&str]) {
    assert_eq!(bash(words), wanted, "{words:?}");
}

#[test]
fn bash_completes_commands_and_options() {
    let all = bash(&[""]);
    for command in ["agent", "decode", "lab", "perf", "rc_pingpong", "uc_pingpong", "stat", "top", "--help"] {
        assert!(all.iter().any(|offer| offer == command), "{command} in {all:?}");
    }
    offers(&["rc"], &["rc_pingpong"]);
    offers(&["perf", "send_bw", "--rx-"], &["--rx-ring", "--rx-depth"]);
    // Options of the originals that mean nothing here.
    assert_eq!(bash(&["rc_pingpong", "--od"]), ["--odp"], "only where nothing else fits");
    assert!(!bash(&["rc_pingpong", "--"]).contains(&"--odp".to_owned()));
}

#[test]
fn bash_completes_values() {
    offers(&["lab", "go"], &["go-back-n"]);
    offers(&["lab", "--text", "psn"], &["psn-wrap"]);
    offers(&["perf", "send_"], &["send_bw", "send_lat"]);
    offers(&["perf", "send_bw", "--progress", "s"], &["spin"]);
    offers(&["perf", "send_bw", "-m", "2"], &["256", "2048"]);
    offers(&["stat", "--format", "p"], &["prometheus"]);
    offers(&["stat", "q"], &["qp"]);
    offers(&["completions", "z"], &["zsh"]);
    offers(&["--log", "de"], &["debug"]);
    offers(&["doctor", "--log", "warn,xroce::qp=t"], &["trace"]);
    offers(&["rc_pingpong", "--log=de"], &["debug"]);
    assert_eq!(bash(&["rc_pingpong", "--log="]).len(), 7);
    offers(&["perf", "send_bw", "--progress=s"], &["spin"]);
    offers(&["lab", "--text", "--conversation=2", "psn"], &["psn-wrap"]);
    offers(&["rc_pingpong", "--user", "nob"], &["nobody"]);
    offers(&["decode", "t"], &["talk.pcapng"]);
    offers(&["man", "uc"], &["uc_pingpong"]);
}

#[test]
fn bash_completes_the_netdevs_there_are() {
    for words in [["doctor", "-d", "l"], ["devinfo", "--device", "l"], ["rc_pingpong", "--ib-dev", "l"]] {
        assert!(bash(&words).contains(&"lo".to_owned()), "{words:?}");
    }
    offers(&["perf", "-d", "ud"], &["udp:"]);
    assert!(bash(&["stat", "-d", "ud"]).is_empty());
}

#[test]
fn every_shell_has_a_script_that_asks_us() {
    for (shell, way) in [
        ("bash", "complete -o"),
        ("elvish", "edit:completion:arg-completer[xroce]"),
        ("fish", "complete --keep-order"),
        ("powershell", "Register-ArgumentCompleter"),
        ("zsh", "#compdef xroce"),
    ] {
        let said = xroce(&["completions", shell]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.out.contains(way) && said.out.contains("XROCE_COMPLETE"), "{shell}: {}", said.out);
    }
    assert_eq!(xroce(&["completions", "csh"]).code, Some(2));
    assert_eq!(xroce(&["completions"]).code, Some(2));
}
