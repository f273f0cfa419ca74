//! An xroce process that others kill to see what the other end makes of it (tests/src/interop/victim.rs).

fn main() -> std::process::ExitCode {
    xroce_tests::interop::victim::main()
}
