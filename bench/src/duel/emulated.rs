//! In one emulated guest, over one veth there: perftest on rxe and `xroce perf`, by turns.
//!
//! In: how many rounds. Out: rows. The guest's CPUs are emulated, so that every instruction costs some twenty, those of the
//! kernel too, and what processors do in hardware costs most: no figure of here holds for hardware.

use serde_json::Value;
use xroce_tests::rxe::{Guest, Kernel, Mtu, Options};

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
    run("pair")?;
    let ratio = alternate(
        rounds,
        || number(&run("perf write_bw -s 65536 -n 300")?, "/gbps"),
        || Ok(column(&run("perftest ib_write_bw -s 65536 -n 300")?, 3)? * MB * 8.0 / 1e9),
    )?;
    report.row("S6", "RC WRITE 64 KiB in an emulated guest, vs rxe", "Gbit/s", ratio, Goal::AtLeast(3.0));
    let ratio = alternate(
        rounds,
        || number(&run("perf send_lat -s 2 -n 1000")?, "/us/p50"),
        || column(&run("perftest ib_send_lat -s 2 -n 1000")?, 4),
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

/// A number of the JSON line that `xroce perf` prints.
fn number(output: &str, pointer: &str) -> Result<f64> {
    let line = output.lines().find(|line| line.starts_with('{')).unwrap_or(output);
    let json: Value = serde_json::from_str(line).map_err(|e| format!("{e}: {output}"))?;
    Ok(json.pointer(pointer).and_then(Value::as_f64).ok_or_else(|| format!("no {pointer} in {output}"))?)
}

/// A number of perftest's table, which has one line: the one that begins with a number, columns counted from 0.
fn column(output: &str, index: usize) -> Result<f64> {
    let row = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = row.into_iter().find(|row| row.len() > index && row.iter().all(|word| word.parse::<f64>().is_ok()));
    let value = row.and_then(|row| row[index].parse().ok()).filter(|value: &f64| value.is_finite());
    Ok(value.ok_or_else(|| format!("no finite number in column {index} of\n{output}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_of_numbers_is_read() {
        let output = "---\n local address: LID 0000\n #bytes     #iterations    BW peak[MB/sec]\n \
                      65536      300              11.18              9.44   \t\t   0.000151\n---\n";
        assert_eq!(column(output, 3).unwrap(), 9.44);
        assert!(column(" 65536 300 inf inf inf\n", 3).is_err());
        assert!(column("", 0).is_err());
    }

    #[test]
    fn json_is_found_among_other_lines() {
        assert_eq!(number("note\n{\"us\":{\"p50\":2.5}}\n", "/us/p50").unwrap(), 2.5);
        assert!(number("{}", "/gbps").is_err());
    }
}
