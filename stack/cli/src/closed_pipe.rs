//! Who reads our output may go before its end (`| head`).
//!
//! Enters: nothing. Leaves: a process that ends then, at once and without a word, with the status that a shell gives to one ended
//! by SIGPIPE. `println!` panics instead, in whichever thread it is, and others might wait for that thread for ever.

use std::panic::{self, PanicHookInfo};

/// 128 + SIGPIPE.
const STATUS: i32 = 141;

/// To be called before anything is printed.
pub(crate) fn ends_the_process() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if is_one(info) {
            std::process::exit(STATUS);
        }
        usual(info);
    }));
}

/// Whether this is the panic of a `print!` that met a closed pipe: the standard library's words are all there is to know it by.
fn is_one(info: &PanicHookInfo<'_>) -> bool {
    info.payload()
        .downcast_ref::<String>()
        .is_some_and(|said| said.starts_with("failed printing to std") && said.contains("Broken pipe"))
}
