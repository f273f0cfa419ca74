//! `xroce-kill [ROUNDS]`: kill -9 under load, 100 times unless told otherwise.

use std::process::ExitCode;

use xroce_hostile::field::Field;
use xroce_hostile::kill;

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).map_or(Ok(100), |text| text.parse());
    let Ok(rounds) = rounds else {
        eprintln!("xroce-kill: ROUNDS is a number");
        return ExitCode::from(2);
    };
    let Some(field) = Field::new("xroce-kill", 1500) else { return ExitCode::SUCCESS };
    let here = std::env::current_exe().expect("a program knows where it is");
    match kill::run(&field, &here.with_file_name("xroce-hostile-peer"), rounds, |line| println!("{line}")) {
        Ok(killed) => {
            println!(
                "{} rounds: status 12 after {:?} at the latest; {} BPF objects and the sockets gone after {:?} at the latest",
                killed.rounds, killed.told_within, killed.objects, killed.gone_within
            );
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("xroce-kill: {why}");
            ExitCode::FAILURE
        }
    }
}
