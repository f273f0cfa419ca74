//! In one emulated guest, over one veth there: perftest on rxe and `xroce perf`, by turns.
//!
//! In: how many rounds. Out: rows. The guest's CPUs are emulated, so that every instruction costs some twenty, those of the
//! kernel too, and what processors do in hardware costs most: no figure of here holds for hardware.

use serde_json::Value;
use xroce_tests::rxe::{Guest, Kernel, Mtu, Options};

use super::perftest::{self, NoFigure};
use crate::pair::Result;
use crate::report::{Goal, Report};
use crate::spread::alternate;

/// Functions for the guest's shell.
const SCRIPT: &str = include_str!("guest.sh");
/// Bytes of a MB as perftest counts them.
const MB: f64 = (1 << 20) as f64;

/// Measures it.
///
/// # Errors
/// When a game fails.
pub fn measure(rounds: usize, report: &mut Report) -> Result<()> {
    let here = std::env::current_exe()?;
    let share = here.parent().ok_or("this program lies in no folder")?.to_path_buf();
    if !share.join("xroce").exists() {
        return Err("there is no xroce beside this program: cargo build --release -p xroce-cli".into());
    }
    let kernel = Kernel::V6_12;
    let guest = match Guest::boot_with(&Options { share: Some(share), ..Options::new(kernel, Mtu::ETHERNET) }) {
        Ok(guest) => guest,
        Err(why) => {
            report.skip("S6", "against rxe in one emulated guest", &why.reason);
            return Ok(());
        }
    };
    let run = |command: &str| call(&guest, command);
    let perftest = |game: &str, column| theirs(|| run(&format!("perftest {game}")), column);
    run("pair")?;
    let ratio = alternate(
        rounds,
        || number(&run("perf write_bw -s 65536 -n 300")?, "/gbps"),
        || Ok(perftest("ib_write_bw -s 65536 -n 300", "BW average[MB/sec]")? * MB * 8.0 / 1e9),
    )?;
    report.row("S6", "RC WRITE 64 KiB in an emulated guest, vs rxe", "Gbit/s", ratio, Goal::AtLeast(3.0));
    let ratio = alternate(
        rounds,
        || number(&run("perf send_lat -s 2 -n 1000")?, "/us/p50"),
        || perftest("ib_send_lat -s 2 -n 1000", "t_typical[usec]"),
    )?;
    report.row("S6", "SEND 2 B in an emulated guest, half a round trip, vs rxe", "µs", ratio, Goal::AtMost(1.0 / 3.0));
    Ok(())
}

fn call(guest: &Guest, command: &str) -> Result<String> {
    let output = guest.run(&format!("{SCRIPT}\n{command}"));
    match output.status {
        0 => Ok(output.stdout),
        status => Err(format!("{command}: {status}\n{}{}", output.stdout, output.stderr).into()),
    }
}

/// A figure of a game of perftest. Without a clock the game was played for nothing, and is played again.
fn theirs(play: impl Fn() -> Result<String>, column: &'static str) -> Result<f64> {
    /// Of four games one was without on a busy machine.
    const GAMES_MAX: u32 = 10;
    let mut last = None;
    for _ in 0..GAMES_MAX {
        match perftest::figure(&play()?, column) {
            Err(without @ NoFigure::Clock(..)) => last = Some(without),
            played => return Ok(played?),
        }
    }
    let why = last.map_or_else(String::new, |why| why.to_string());
    Err(format!("{GAMES_MAX} games: {why}").into())
}

/// A number of the JSON line that `xroce perf` prints.
fn number(output: &str, pointer: &str) -> Result<f64> {
    let line = output.lines().find(|line| line.starts_with('{')).unwrap_or(output);
    let json: Value = serde_json::from_str(line).map_err(|e| format!("{e}: {output}"))?;
    Ok(json.pointer(pointer).and_then(Value::as_f64).ok_or_else(|| format!("no {pointer} in {output}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_game_without_a_clock_is_played_again() {
        let table = |value: &str| format!(" #bytes #iterations t_typical[usec]\n 2 1000 {value}\n");
        let (games, played) = ([table("inf"), table("inf"), table("3.5")], std::cell::Cell::new(0));
        let play = || {
            played.set(played.get() + 1);
            Ok(games[played.get() - 1].clone())
        };
        assert_eq!(theirs(play, "t_typical[usec]").unwrap(), 3.5);
        assert_eq!(played.get(), 3);
        let error = theirs(|| Ok(table("inf")), "t_typical[usec]").unwrap_err().to_string();
        assert!(error.starts_with("10 games") && error.contains("too busy"), "{error}");
        played.set(0);
        let no_table = theirs(
            || {
                played.set(played.get() + 1);
                Ok(String::new())
            },
            "t_typical[usec]",
        );
        assert!(no_table.is_err() && played.get() == 1, "what will not change is not tried again");
    }

    #[test]
    fn json_is_found_among_other_lines() {
        assert_eq!(number("note\n{\"us\":{\"p50\":2.5}}\n", "/us/p50").unwrap(), 2.5);
        assert!(number("{}", "/gbps").is_err());
    }
}
