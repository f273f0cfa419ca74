//! One end of a connection as a process, for tests that kill it or take its rights: see the library's `peer`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match xroce_hostile::peer::run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xroce-hostile-peer: {why}");
            ExitCode::FAILURE
        }
    }
}
