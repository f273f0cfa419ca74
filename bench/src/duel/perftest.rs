//! What perftest printed: its output enters, one figure of its table leaves, or why there is none.
//!
//! The table is a line of names, "#bytes" first, and below it one row of numbers. Warnings, which go to standard error, may stand
//! anywhere. perftest reads the CPU's clock and measures at each start how fast that runs; on a busy machine the measurement may
//! fail ("Correlation coefficient r^2: ..."), and then every time is infinite or every rate 0.

/// Why there is no figure.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoFigure {
    /// No line of names.
    #[error("perftest printed no line \"#bytes ...\":\n{0}")]
    Table(String),
    /// Names, and no row of as many numbers below.
    #[error("perftest printed no row of numbers below its line \"#bytes ...\":\n{0}")]
    Row(String),
    /// A table without this column.
    #[error("perftest's table has no column {0:?}:\n{1}")]
    Column(&'static str, String),
    /// perftest does not know how fast the CPU's clock runs: another run may.
    #[error("perftest could not measure how fast the CPU's clock runs, {0} is {1}: the machine is too busy")]
    Clock(&'static str, String),
}

/// The figure in the column of this name, as perftest spells it: "t_typical[usec]", "BW average[MB/sec]".
pub fn figure(output: &str, column: &'static str) -> Result<f64, NoFigure> {
    let mut lines = output.lines();
    let names = lines.find(|line| line.trim_start().starts_with("#bytes")).map(names);
    let names = names.ok_or_else(|| NoFigure::Table(output.to_owned()))?;
    let row = lines.find_map(|line| numbers(line).filter(|row| row.len() == names.len()));
    let row = row.ok_or_else(|| NoFigure::Row(output.to_owned()))?;
    let at = names.iter().position(|name| name == column);
    let value = row[at.ok_or_else(|| NoFigure::Column(column, output.to_owned()))?];
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(NoFigure::Clock(column, value.to_string())) }
}

/// The names of a table's columns. Some have a blank in them: a name begins with a number sign or ends with its unit.
fn names(line: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    for word in line.split_whitespace() {
        let name = names.last_mut().expect("never empty");
        if !name.is_empty() {
            name.push(' ');
        }
        name.push_str(word);
        if name.starts_with('#') || name.ends_with(']') {
            names.push(String::new());
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// A line that is nothing but numbers.
fn numbers(line: &str) -> Option<Vec<f64>> {
    line.split_whitespace().map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What perftest 6 (Debian 12) printed in a guest, but for lines of settings.
    const SEND_LAT: &str = "\
---------------------------------------------------------------------------------------
                    Send Latency Test
 Dual-port       : OFF\t\tDevice         : rxeb
 Mtu             : 1024[B]
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0012 PSN 0x7ca245
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:88:00:02
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 2       1000          116.87         5225.12      360.40   \t       614.73      \t688.11 \t\t3642.69 \t\t5225.12
---------------------------------------------------------------------------------------
";
    /// The same program on the same guest a moment later.
    const NO_CLOCK: &str = "\
Correlation coefficient r^2: 0.887163 < 0.9
---------------------------------------------------------------------------------------
                    Send Latency Test
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0013 PSN 0xba5b93
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 2       1000          inf            inf          inf      \t       inf         \t-nan   \t\tinf     \t\tinf    
---------------------------------------------------------------------------------------
";
    const WRITE_BW: &str = "\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 CQ Moderation   : 1
---------------------------------------------------------------------------------------
 remote address: LID 0000 QPN 0x0014 PSN 0xb2c36e RKey 0x000595 VAddr 0x007f4641033000
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      20               16.99              15.58  \t\t   0.000249
---------------------------------------------------------------------------------------
";
    const WARNINGS: [&str; 3] = [
        "Correlation coefficient r^2: 0.887163 < 0.9",
        "Warning: measured timestamp frequency 2593.9 differs from nominal 2445.4 MHz",
        "Conflicting CPU frequency values detected: 2445.406000 != 3244.022000. CPU Frequency is not max.",
    ];

    #[test]
    fn figures_are_read_by_the_name_of_their_column() {
        for (column, value) in [
            ("t_min[usec]", 116.87),
            ("t_typical[usec]", 360.40),
            ("99% percentile[usec]", 3642.69),
            ("99.9% percentile[usec]", 5225.12),
        ] {
            assert_eq!(figure(SEND_LAT, column), Ok(value));
        }
        assert_eq!(figure(WRITE_BW, "BW average[MB/sec]"), Ok(15.58));
        let error = figure(WRITE_BW, "t_typical[usec]").unwrap_err().to_string();
        assert!(error.contains("no column \"t_typical[usec]\"") && error.contains("MsgRate"), "{error}");
    }

    #[test]
    fn warnings_may_stand_anywhere() {
        let lines: Vec<&str> = SEND_LAT.lines().collect();
        for warning in WARNINGS {
            for at in 0..=lines.len() {
                let (before, behind) = lines.split_at(at);
                let output = [before, &[warning], behind].concat().join("\n");
                assert_eq!(figure(&output, "t_typical[usec]"), Ok(360.40), "{output}");
            }
        }
    }

    #[test]
    fn without_a_clock_there_is_no_figure() {
        let no_clock = |value: &str| NoFigure::Clock("t_typical[usec]", value.to_owned());
        assert_eq!(figure(NO_CLOCK, "t_typical[usec]"), Err(no_clock("inf")));
        let still = WRITE_BW.replace("15.58", "0.00");
        let error = figure(&still, "BW average[MB/sec]").unwrap_err().to_string();
        assert!(error.contains("BW average[MB/sec] is 0"), "{error}");
    }

    #[test]
    fn what_is_no_table_is_shown() {
        let (head, row) = SEND_LAT.split_once(" 2       1000").expect("its row");
        let short = format!("{head} 2       1000          116.87\n 1 2 3 4 5 6 7 8 9 10\n");
        for (output, line) in [("", "no line"), (row, "no line"), (head, "no row"), (&short, "no row")] {
            let error = figure(output, "t_typical[usec]").unwrap_err().to_string();
            assert!(error.contains(line) && error.contains(output), "{error}");
        }
    }
}
