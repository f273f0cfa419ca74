//! The commands of tests/rxe refuse a guest that cannot be, by the name of what is wrong and its range, before they ask for rights.

use std::path::Path;
use std::process::{Command, Output};

fn with_guest(command: &str, guest: &str) -> Output {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("rxe").join(command);
    // A set of its own, in case that it does something after all.
    let name = format!("l{}", std::process::id() % 1_000_000);
    let mut command = Command::new(program);
    command.arg("true").env("XROCE_RXE_GUEST", guest).env("XROCE_RXE_NAME", name);
    command.output().expect("bash is here")
}

#[test]
fn a_guest_that_cannot_be_is_named_with_its_range() {
    for command in ["run", "boot", "down"] {
        for guest in ["1000", "201", "0", "1", "x", "007", "-3", "2 3", "a[0]"] {
            let output = with_guest(command, guest);
            let said = String::from_utf8_lossy(&output.stderr);
            let expected = format!("{command}: --guest (XROCE_RXE_GUEST) is '{guest}': it takes 2 to 200");
            assert!(output.status.code() == Some(1) && said.starts_with(&expected), "{command} {guest:?}: {said}");
        }
    }
}
