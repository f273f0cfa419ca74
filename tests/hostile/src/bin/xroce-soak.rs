//! `xroce-soak [MINUTES]`: the soak, 20 minutes unless told otherwise, with its figures at the end.

use std::process::ExitCode;
use std::time::Duration;

use xroce_hostile::field::Field;
use xroce_hostile::soak::{self, Plan};

fn main() -> ExitCode {
    let minutes = std::env::args().nth(1).map_or(Ok(20.0), |text| text.parse::<f64>());
    let Some(minutes) = minutes.ok().filter(|minutes| (0.01..=1e6).contains(minutes)) else {
        eprintln!("xroce-soak: MINUTES is a number, 0.01 or more");
        return ExitCode::from(2);
    };
    let Some(field) = Field::new("xroce-soak", 4300) else { return ExitCode::SUCCESS };
    let plan = Plan { time: Duration::from_secs_f64(60.0 * minutes), ..Plan::default() };
    match soak::run(&field, &plan, |line| println!("{line}")) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("xroce-soak: {why}");
            ExitCode::FAILURE
        }
    }
}
