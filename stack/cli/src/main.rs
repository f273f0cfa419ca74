//! The `xroce` command.
fn main() {}
